# Adapters: gradients and five steps as PEFT's on any ranks and stage, exact resuming, what is saved
# is PEFT's, frozen weights cost nothing; gradients written out; dropout, whatever the ranks.  B6, A3, C2
. "$(dirname "$0")/lib.sh"
M=$G/models L=$G/lora

# -- gradients of whole models ------------------------------------------------------------------
grads() { ckpt-train -q --model "$M/$1" --train-file "$M/$1/rows.jsonl" --per-device-train-batch-size $((3 / $3)) \
    --max-steps 1 --nproc "$3" --zero-stage "$2" --dump-grads "$T/$1-$2-$3.grads" -o "$T/$1-$2-$3"; }
golden_grads() { part grad "$M/$1/golden.safetensors" "$T/$1.wanted" && within "$T/$1-$2-$3.grads" "$T/$1.wanted" 2e-5; }
for m in bloom-a opt-a gpt2-a llama-a qwen3moe-a; do
    t "$m: gradients are written" grads $m 0 1
    t "$m: they are transformers'" golden_grads $m 0 1
done
t "shards of three ranks" grads llama-a 3 3
t "give the same gradients" golden_grads llama-a 3 3
touch "$T/llama-a-3-1.grads"; expect 73 "a file that exists is left alone" grads llama-a 3 1
t "nothing was trained" test ! -e "$T/llama-a-3-1/checkpoint-1"

# -- adapters -----------------------------------------------------------------------------------
# Five steps from a saved adapter, as its golden has them.
go_on() {
    local name=$1 stage=$2 ranks=$3; shift 3
    ckpt-train -q --model "$L/$name/base" --adapter "$L/$name/adapter" --train-file "$L/$name/rows.jsonl" \
        --learning-rate 2e-3 --lr-scheduler-type constant --adam-epsilon 1e-6 --weight-decay 0.01 --max-grad-norm 0 \
        --max-steps 5 --logging-steps 1 --per-device-train-batch-size $((2 / ranks)) --nproc "$ranks" \
        --zero-stage "$stage" -o "$T/$name-$stage-$ranks" "$@"
}
trained() { part final "$L/$1/golden.safetensors" "$T/$1.final" && within "$T/$1-$2-$3/checkpoint-5/adapter_model.safetensors" "$T/$1.final" 1e-4; }
pushed() { part grad "$L/$1/golden.safetensors" "$T/$1.grad" && within "$T/$1-$2-$3.g" "$T/$1.grad" 2e-5; }
for m in llama-all-linear llama-dora llama-patterns llama-tokens mixtral-attn; do
    t "$m goes on" go_on $m 0 1 --dump-grads "$T/$m-0-1.g"
    t "$m: gradients are PEFT's" pushed $m 0 1
    t "$m: five steps are PEFT's" trained $m 0 1
    t "$m goes on over shards" go_on $m 3 2 --dump-grads "$T/$m-3-2.g"
    t "$m: the same gradients" pushed $m 3 2
    t "$m: the same five steps" trained $m 3 2
done
t "two ranks that hold all" go_on llama-all-linear 0 2
t "take the same five steps" trained llama-all-linear 0 2
# An embedding's own matrix lies beside its factors, unchanged.
t "llama-embed goes on" go_on llama-embed 0 1 --dump-grads "$T/embed.g"
embed() { part final "$L/llama-embed/golden.safetensors" "$T/embed.final" && within "$T/llama-embed-0-1/checkpoint-5/adapter_model.safetensors" "$T/embed.final" 1e-4; }
t "llama-embed: five steps are PEFT's" embed
loss() { score "$1/rows.jsonl" "${@:2}"; }
merged() {
    ckpt-merge -q --adapter "$T/$1-3-2/checkpoint-5" -o "$T/$1-merged" "$L/$1/base" &&
        near "$(loss "$L/$1" "$T/$1-merged")" "$(loss "$L/$1" --adapter "$T/$1-3-2/checkpoint-5" "$L/$1/base")"
}
for m in llama-all-linear llama-dora mixtral-attn; do t "$m: merged it scores as beside its base" merged $m; done

# -- fresh ones ---------------------------------------------------------------------------------
fresh() {
    local out=$1 model=$2 stage=$3 ranks=$4; shift 4
    cat "$M/$model/rows.jsonl" "$M/$model/rows.jsonl" | head -n 6 > "$T/rows.jsonl"
    ckpt-train -q --model "$M/$model" --train-file "$T/rows.jsonl" --lora-rank 4 --learning-rate 1e-2 --max-steps 4 \
        --save-steps 2 --logging-steps 1 --per-device-train-batch-size $((2 / ranks)) --nproc "$ranks" \
        --zero-stage "$stage" -o "$T/$out" "$@"
}
same() { cmp "$T/$1/checkpoint-$3/adapter_model.safetensors" "$T/$2/checkpoint-$3/adapter_model.safetensors"; }
again() { local out=$1; shift; rewind "$out" "$out-again" && fresh "$out-again" "$@" --resume-from-checkpoint latest && same_state "$out" "$out-again"; }
ALL="--target-modules all-linear --use-dora --lora-dropout 0.2 --lora-bias all"
for m in llama-a bloom-a opt-350m; do
    t "$m: DoRA with dropout on one rank" fresh $m-1 $m 0 1 $ALL
    t "$m: in stage 3 the same bits" fresh $m-3 $m 3 1 $ALL
    t "$m: compared" same $m-1 $m-3 4
    t "$m: resumed, the same bits" again $m-1 $m 0 1 $ALL
    t "$m: on two ranks" fresh $m-2 $m 3 2 $ALL
    t "$m: resumed there, the same bits" again $m-2 $m 3 2 $ALL
done
t "resumed by itself it finds base and adapter" ckpt-train -q --train-file "$T/rows.jsonl" --per-device-train-batch-size 2 \
    --learning-rate 1e-2 --max-steps 4 --save-steps 2 --resume-from-checkpoint "$T/opt-350m-1/checkpoint-2" -o "$T/alone"
cmp_alone() { cmp "$T/alone/checkpoint-4/adapter_model.safetensors" "$T/opt-350m-1/checkpoint-4/adapter_model.safetensors"; }
t "and the same bits" cmp_alone
expect 65 "with another rank it is refused" fresh llama-a-1 llama-a 0 1 $ALL --lora-rank 5 --resume-from-checkpoint latest
t "naming what differs" says "another r than"
# A head that is tied and trained whole becomes one of its own.
t "a tied head trained whole" fresh tied qwen2-a 0 1 --modules-to-save lm_head --target-modules q_proj,v_proj
tied() { near "$(loss "$M/qwen2-a" "$T/tied/checkpoint-4")" "$(ckpt-merge -q --adapter "$T/tied/checkpoint-4" -o "$T/tied-merged" "$M/qwen2-a" > "$T/.merged" && loss "$M/qwen2-a" "$T/tied-merged")"; }
t "merged it scores alike" tied
t "a pattern of modules" fresh pattern llama-a 0 1 --target-modules '.*layers\.[01]\.mlp\.(up|down)_proj' --rank-pattern down_proj=2
expect 0 "a plan" ckpt-train --model "$M/llama-a" --train-file "$T/rows.jsonl" --lora-rank 2 --dry-run -o "$T/none"
t "says what is frozen" says "M parameters are trained ("
frozen() { ! grep -qE 'gradients 0\.[1-9]|optimizer 0\.[1-9]' "$T/.err" && grep -q 'gradients 0.0, optimizer 0.0' "$T/.err"; }
t "and what that saves" frozen

# -- what is refused ----------------------------------------------------------------------------
ask() { ckpt-train --model "$M/$1" --train-file "$M/$1/rows.jsonl" --max-steps 1 -o "$T/none" "${@:2}"; }
expect 78 "a target that is nowhere" ask llama-a --lora-rank 2 --target-modules frog
expect 78 "options without a rank" ask llama-a --use-dora
expect 78 "no usual targets" ask phi3-a --lora-rank 2
expect_says 65 "the head" "modules_to_save" ask llama-a --lora-rank 2 --target-modules q_proj,lm_head
expect 65 "experts one by one" ask mixtral-a --lora-rank 2 --target-modules w1
expect 65 "fused experts" ckpt-train --model "$L/mixtral-experts/base" --adapter "$L/mixtral-experts/adapter" \
    --train-file "$L/mixtral-attn/rows.jsonl" --max-steps 1 -o "$T/none"
t "by name" says "target_parameters"

# -- dropout ------------------------------------------------------------------------------------
dropped() {
    mkdir -p "$T/drop"; cp -rL "$M/gpt2-a/." "$T/drop"; chmod -R u+w "$T/drop"
    sed -i 's/"\(embd\|resid\|attn\)_pdrop": [0-9.]*/"\1_pdrop": 0.1/' "$T/drop/config.json"
    [ "$(grep -c '_pdrop": 0.1' "$T/drop/config.json")" = 3 ]
}
whole() {
    local out=$1 stage=$2; shift 2
    ckpt-train -q --model "$T/drop" --train-file "$M/gpt2-a/rows.jsonl" --max-steps 4 --save-steps 2 --logging-steps 1 \
        --per-device-train-batch-size 1 --zero-stage "$stage" -o "$T/$out" "$@"
}
weights() { sha256sum < "$T/$1/checkpoint-4/model.safetensors"; }
repeated() { [ "$(weights d1)" = "$(weights "$1")" ]; }
t "a model with dropout" dropped
t "trains" whole d1 0
t "recomputing makes the same masks" whole d2 0 --gradient-checkpointing
t "to the same bits" repeated d2
t "what norms gave made again" whole d2n 0 --recompute norms
t "to the same bits as well" repeated d2n
t "resumed" whole d3 0 --resume-from-checkpoint "$T/d1/checkpoint-2"
t "to the same bits again" repeated d3
t "other seeds drop others" whole d4 0 --seed 43
t "which shows" bash -c "! cmp $T/d1/checkpoint-2/model.safetensors $T/d4/checkpoint-2/model.safetensors"

# -- the same masks on any number of ranks, with any micro-batches and packed ---------------------
R=tools/recipes/demo
grep -E '.{40}' README.md man/ckpt-train.1 | sed 's/^[^:]*://; s/[\\"]//g' | head -60 | awk '{ printf "{\"text\": \"%s\"}\n", substr($0, 1, 40 + NR * 7 % 50) }' | tr -d '\t\r' >"$T/train.jsonl"
head -n 12 "$T/train.jsonl" >"$T/few.jsonl"
# MODEL DROPOUT: the same model with that dropout everywhere
config() {
    case $1 in
        gpt2) echo '{"model_type": "gpt2", "n_embd": 36, "n_head": 3, "n_layer": 2, "n_positions": 64, "activation_function": "gelu_new",
             "layer_norm_epsilon": 1e-05, "initializer_range": 0.1, "vocab_size": 4096, "bos_token_id": 1, "eos_token_id": 2,
             "attn_pdrop": P, "embd_pdrop": P, "resid_pdrop": P}' ;;
        mixtral) echo '{"model_type": "mixtral", "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 3, "num_key_value_heads": 1,
             "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "hidden_act": "silu", "max_position_embeddings": 64,
             "rms_norm_eps": 1e-05, "initializer_range": 0.1, "vocab_size": 4096, "tie_word_embeddings": false,
             "attention_dropout": P, "router_jitter_noise": P}' ;;
        t5) echo '{"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "feed_forward_proj": "gated-gelu",
             "vocab_size": 4096, "initializer_factor": 0.3, "tie_word_embeddings": false, "pad_token_id": 3, "eos_token_id": 2,
             "decoder_start_token_id": 3, "dropout_rate": P}' ;;
        bloom) cat $R/config.json ;;    # dropout is LoRA's
    esac | sed "s/ P\([,}]\)/ $2\1/g" >"$T/$1.json"
}
awk -F'"' '{ n = length($4); printf "{\"prompt\": \"%s\", \"completion\": \"%s\"}\n", substr($4, 1, n / 2), substr($4, n / 2 + 1) }' "$T/train.jsonl" >"$T/pairs.jsonl"
declare -A FILE=([t5]=pairs) ADAPTER=([bloom]="--lora-rank 4 --target-modules all-linear --lora-dropout 0.2")
train() {       # OUT RANKS EACH OPTION... - twelve documents a step, each a micro-batch
    local out=$1 ranks=$2 each=$3; shift 3
    # shellcheck disable=SC2086
    ckpt-train -q --device cpu --nproc "$ranks" --model "$T/base" --train-file "$T/${FILE[$m]-train}.jsonl" --max-seq-length 32 --learning-rate 1e-3 \
        --max-steps 4 --logging-steps 1 --save-steps 2 --per-device-train-batch-size "$each" --gradient-accumulation-steps $((12 / ranks / each)) \
        -o "$T/$out" ${ADAPTER[$m]-} "$@"
}
last_near() { near "$(losses "$1" | tail -n 1)" "$(losses "$2" | tail -n 1)" 1e-6; }
other() { losses "$1" >"$T/a"; losses "$2" >"$T/b"; ! diff "$T/a" "$T/b" >/dev/null; }
fresh() { ckpt-train -q --init "$T/$m.json" --tokenizer $R/tokenizer --init-only -o "$T/base"; }

for m in gpt2 mixtral t5 bloom; do
    rm -rf "$T"/{base,one,ones,many,again,sharded}
    config $m 0.2
    t "$m: a fresh model" fresh
    t "a step is one micro-batch" train one 1 12
    t "six micro-batches" train ones 1 2
    t "of the same losses" losses_near one ones 1e-6 4
    t "two ranks with two each" train many 2 3
    t "of the same losses" losses_near one many 1e-6 4
    t "three ranks, sharded" train sharded 3 4 --zero-stage 3
    t "of the same losses" losses_near one sharded 1e-6 4
    rewind many again
    t "two ranks go on" train again 2 3 --resume-from-checkpoint latest
    t "to the same bits" same_state many again
    rm -rf "$T/again"; rewind many again
    t "one goes on, by other micro-batches" train again 1 4 --resume-from-checkpoint latest
    t "to the same losses" last_near one again
    rm -rf "$T/again"
    t "another seed, the same order" train again 1 12 --seed 7 --data-seed 42
    t "drops others" other one again
done

# -- packed -------------------------------------------------------------------------------------
m=gpt2
rm -rf "$T"/{base,one,packed,bins,two,again}
t "a fresh model again" fresh
FILE[gpt2]=few
t "all records of an epoch in a step" train one 1 12
t "the same in one bin" train packed 1 12 --packing
t "of the same losses" losses_near one packed 1e-6 4
FILE[gpt2]=train
t "four bins a step" train bins 1 3 --packing
t "on two ranks" train two 2 3 --packing
t "have the same losses" losses_near bins two 1e-6 4
rewind two again
t "and go on" train again 2 3 --packing --resume-from-checkpoint latest
t "to the same bits" same_state two again
