# Rows of an embedding that are trained by themselves where the head is tied to it: PEFT's gradients
# and steps on any ranks and stage, exact resuming, beside the base and merged the same.
. "$(dirname "$0")/lib.sh"
M=$G/models L=$G/lora N=llama-tokens-tied
# Five steps from a saved adapter, as its golden has them.
go_on() {
    local name=$1 stage=$2 ranks=$3; shift 3
    ckpt-train -q --model "$L/$name/base" --adapter "$L/$name/adapter" --train-file "$L/$name/rows.jsonl" \
        --learning-rate 2e-3 --lr-scheduler-type constant --adam-epsilon 1e-6 --weight-decay 0.01 --max-grad-norm 0 \
        --max-steps 5 --per-device-train-batch-size $((2 / ranks)) --nproc "$ranks" --zero-stage "$stage" \
        --dump-grads "$T/$name-$stage-$ranks.g" -o "$T/$name-$stage-$ranks" "$@"
}
trained() { part final "$L/$1/golden.safetensors" "$T/$1.final" && within "$T/$1-$2/checkpoint-5/adapter_model.safetensors" "$T/$1.final" 1e-4; }
pushed() { part grad "$L/$1/golden.safetensors" "$T/$1.grad" && within "$T/$1-$2.g" "$T/$1.grad" 2e-5; }
for m in $N bloom-tokens; do
    for how in "0 1" "3 2"; do
        t "$m goes on ($how)" go_on $m $how
        t "its gradients are PEFT's" pushed $m "${how/ /-}"
        t "its five steps are PEFT's" trained $m "${how/ /-}"
    done
done
# What several passes give the rows adds up.
by_row() { rm -rf "$T/$N-0-1" "$T/$N-0-1.g"; go_on $N 0 1 --per-device-train-batch-size 1 --gradient-accumulation-steps 2; }
t "a row of a batch at a time" by_row
t "gives the same gradients" pushed $N 0-1
t "and the same five steps" trained $N 0-1

loss() { score "$1/rows.jsonl" "${@:2}"; }
merged() {
    ckpt-merge -q --adapter "$T/$N-3-2/checkpoint-5" -o "$T/merged" "$L/$N/base" &&
        near "$(loss "$L/$N" "$T/merged")" "$(loss "$L/$N" --adapter "$T/$N-3-2/checkpoint-5" "$L/$N/base")"
}
t "merged it scores as beside its base" merged

# -- fresh ones ---------------------------------------------------------------------------------
fresh() {
    local out=$1 stage=$2 ranks=$3; shift 3
    cat "$M/qwen2-a/rows.jsonl" "$M/qwen2-a/rows.jsonl" | head -n 6 > "$T/rows.jsonl"
    ckpt-train -q --model "$M/qwen2-a" --train-file "$T/rows.jsonl" --lora-rank 4 --target-modules q_proj \
        --trainable-token-indices 7,9 --trainable-token-indices 30 --learning-rate 1e-2 --max-steps 4 --save-steps 2 \
        --per-device-train-batch-size $((2 / ranks)) --nproc "$ranks" --zero-stage "$stage" -o "$T/$out" "$@"
}
same() { cmp "$T/$1/checkpoint-4/adapter_model.safetensors" "$T/$2/checkpoint-4/adapter_model.safetensors"; }
again() { rewind "$1" "$1-again" && fresh "$1-again" "${@:2}" --resume-from-checkpoint latest && same "$1" "$1-again"; }
t "a fresh one" fresh one 0 1
t "resumed, the same bits" again one 0 1
t "in stage 3 the same bits" fresh three 3 1
t "compared" same one three
t "blocks computed again, the same bits" fresh full 0 1 --recompute full
t "compared" same one full
t "on two ranks" fresh two 3 2
t "resumed there, the same bits" again two 3 2
rows() { [ "$(ckpt-inspect "$T/one/checkpoint-4" | grep -c token_adapter.trainable_tokens_delta)" = 1 ]; }
t "the rows are saved once" rows
moved() { ! cmp -s "$T/one/checkpoint-2/adapter_model.safetensors" "$T/one/checkpoint-4/adapter_model.safetensors"; }
t "they moved" moved
# Generation reads them in the head as well.
says_same() {
    ckpt-merge -q --adapter "$T/one/checkpoint-4" -o "$T/one-merged" "$M/qwen2-a" &&
        near "$(loss "$M/qwen2-a" "$T/one-merged")" "$(loss "$M/qwen2-a" --adapter "$T/one/checkpoint-4" "$M/qwen2-a")"
}
t "merged it scores alike" says_same
expect 0 "a plan" ckpt-train --model "$M/qwen2-a" --train-file "$T/rows.jsonl" --lora-rank 4 --trainable-token-indices 7 \
    --dry-run -o "$T/none"

# -- what is refused, and what only looks so ------------------------------------------------------
ask() { ckpt-train -q --model "$M/qwen2-a" --train-file "$T/rows.jsonl" --lora-rank 2 --max-steps 1 -o "$T/none" "$@"; }
expect 65 "a head that is trained whole as well" ask --trainable-token-indices 7 --modules-to-save lm_head
t "by name" says "trained whole as well"
expect 65 "an embedding that is" ask --trainable-token-indices 7 --modules-to-save embed_tokens
expect_says 78 "an id named twice" "7 is named twice" ask --trainable-token-indices 7,9,7
edited() { # NAME SED - the adapter with another adapter_config.json goes on
    rm -rf "$T/$1" "$T/$1-run"; cp -rL "$L/$N/adapter" "$T/$1" && chmod -R u+w "$T/$1"
    sed -i "$2" "$T/$1/adapter_config.json" || return 1
    ckpt-train -q --model "$L/$N/base" --adapter "$T/$1" --train-file "$L/$N/rows.jsonl" --learning-rate 2e-3 \
        --lr-scheduler-type constant --adam-epsilon 1e-6 --weight-decay 0.01 --max-grad-norm 0 --max-steps 5 \
        --per-device-train-batch-size 2 -o "$T/$1-run"
}
rows_of() { printf '/"trainable_token_indices": \[/,/\]/c "trainable_token_indices": {"embed_tokens": [11, 12, 13], "lm_head": %s},' "$1"; }
as_it_was() { within "$T/$1-run/checkpoint-5/adapter_model.safetensors" "$T/$N.final" 1e-4; }
t "tying that is asked for" edited tying 's/"ensure_weight_tying": false/"ensure_weight_tying": true/'
t "is what there is" as_it_was tying
t "the head named too, with the same rows" edited both "$(rows_of '[11, 12, 13]')"
t "is what there is as well" as_it_was both
expect_says 65 "with other rows" "lm_head: rows of" edited other "$(rows_of '[11, 12, 14]')"
expect 65 "tying of what is trained whole" edited whole \
    's/"ensure_weight_tying": false/"ensure_weight_tying": true/; s/"modules_to_save": null/"modules_to_save": ["embed_tokens"]/'
t "is named" says "ensure_weight_tying"
