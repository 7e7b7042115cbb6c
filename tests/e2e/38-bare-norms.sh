# OPT whose norms have neither gain nor bias: transformers' loss, gradients and names; trained, resumed,
# on two ranks; adapters; inspected and merged as any.
. "$(dirname "$0")/lib.sh"
M=$G/models/opt-bare
loss() { near "$(score "$M/rows.jsonl" "$M")" "$(cat "$M/loss.txt")"; }
t "the loss is transformers'" loss
train() {
    local out=$1 stage=$2 ranks=$3; shift 3
    ckpt-train -q --model "$M" --train-file "$M/rows.jsonl" --max-steps 4 --save-steps 2 --learning-rate 1e-2 \
        --per-device-train-batch-size $((2 / ranks)) --nproc "$ranks" --zero-stage "$stage" -o "$T/$out" "$@"
}
for how in "0 1" "3 3"; do
    grads() { ckpt-train -q --model "$M" --train-file "$M/rows.jsonl" --per-device-train-batch-size $((3 / $2)) --max-steps 1 \
        --nproc "$2" --zero-stage "$1" --dump-grads "$T/$1.grads" -o "$T/grads-$1"; }
    t "gradients are written ($how)" grads $how
    golden() { part grad "$M/golden.safetensors" "$T/wanted" && within "$T/$1.grads" "$T/wanted" 2e-5; }
    t "they are transformers'" golden $how
done
names() { ckpt-inspect --json "$1" | grep -o '"name": "[^"]*"' | sort; }
same_names() { diff <(names "$M") <(names "$T/$1/checkpoint-4") && ! names "$T/$1/checkpoint-4" | grep -q norm; }
again() { rewind "$1" "$1-again" && train "$1-again" "${@:2}" --resume-from-checkpoint latest &&
    cmp "$T/$1/checkpoint-4/model.safetensors" "$T/$1-again/checkpoint-4/model.safetensors"; }
t "it trains" train one 0 1
t "what is saved has transformers' names" same_names one
t "resumed, the same bits" again one 0 1
t "on two ranks" train two 3 2
whole() { ckpt-merge -q -o "$T/$1-merged" "$T/$1/checkpoint-4"; }
shards_again() { rewind two two-again && train two-again 3 2 --resume-from-checkpoint latest &&
    whole two && whole two-again && cmp "$T/two-merged/model.safetensors" "$T/two-again-merged/model.safetensors"; }
t "resumed there and merged, the same bits" shards_again
merged_names() { diff <(names "$M") <(names "$T/two-merged") && [ -n "$(score "$M/rows.jsonl" "$T/two-merged")" ]; }
t "with transformers' names" merged_names
expect 0 "a plan" ckpt-train --model "$M" --train-file "$M/rows.jsonl" --dry-run -o "$T/none"
t "it is inspected" ckpt-inspect "$M"
t "an adapter on it" train lora 0 1 --lora-rank 2 --target-modules all-linear --lora-bias all
t "from its modules alone" bash -c "! ckpt-inspect '$T/lora/checkpoint-4' | grep -q norm"
gone() { cp -rL "$M" "$T/odd" && chmod -R u+w "$T/odd" && sed -i 's/"layer_norm_elementwise_affine": false/"layer_norm_elementwise_affine": true/' "$T/odd/config.json" &&
    ckpt-eval -q --eval-file "$M/rows.jsonl" "$T/odd"; }
expect_says 65 "a config that promises gains" "layer_norm" gone
