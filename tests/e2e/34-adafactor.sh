# Adafactor: another run than AdamW's, bit for bit on resume, the same on any ranks and stages, merged, with an adapter; refusals before training.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/optim.sh"
COMMON="--weight-decay 0.01 --optim adafactor"
t "one rank" train one 1
t "rows and columns are in optimizer.pt" bash -c "ckpt-inspect $T/one/checkpoint-4/optimizer.pt | grep -q 'state.0.exp_avg_sq_row *F32 *.4096' && ckpt-inspect $T/one/checkpoint-4/optimizer.pt | grep -q exp_avg_sq_col"
t "a small file" test "$(stat -c %s "$T/one/checkpoint-4/optimizer.pt")" -lt 400000
resumes one ""
first="--optim-args beta1=0.9,scale_parameter=True,clip_threshold=0.5"
t "a first moment" train first 1 $first
resumes first " with it" $first
for how in "1" "2 $first" "3"; do
    set -- $how
    of=one; [ $# = 1 ] || of=first
    t "two ranks, stage $1" train some 2 --zero-stage "$@"
    t "stage $1: the losses of one rank to 1e-6" near some $of 1e-6
    back some again
    t "stage $1: they go on" train again 2 --zero-stage "$@" --resume-from-checkpoint latest
    t "stage $1: to the same bits" same_state some again
    back some again
    t "stage $1: one rank goes on" train again 1 "${@:2}" --resume-from-checkpoint latest
    t "stage $1: to the same losses" near again $of 1e-6
    back $of again
    t "stage $1: from one rank" train again 2 --zero-stage "$@" --resume-from-checkpoint latest
    t "stage $1: likewise" near again $of 1e-6
    t "stage $1: its shards merge" ckpt-merge -q "$T/some/checkpoint-4" -o "$T/merged-$1"
    rm -rf "$T/some"
done
t "bfloat16, sharded" train half 2 --bf16 --zero-stage 2
back half again
t "bfloat16: goes on" train again 2 --bf16 --zero-stage 2 --resume-from-checkpoint latest
t "bfloat16: to the same bits" same_state half again
t "an adapter, sharded" train lora 2 --zero-stage 3 --lora-rank 4 --target-modules all-linear
back lora again
t "an adapter goes on with one rank" train again 1 --lora-rank 4 --target-modules all-linear --resume-from-checkpoint latest
t "an adapter: to the same losses" near again lora 1e-6
t "a rate of its own" train relative 1 --learning-rate 5e-5 --max-steps 1 --optim-args scale_parameter=True --lr-for mlp=1e-4
expect_says 78 "a key it has not" "momentum is no key of adafactor" train x 1 --optim-args momentum=0.9
expect_says 78 "warmup_init alone" "warmup_init needs relative_step=True" train x 1 --optim-args warmup_init=True
expect_says 78 "a learning rate beside its own" "is not used with relative_step=True" train x 1 --optim-args relative_step=True
expect_says 78 "AdamW's betas" "whose --optim-args has beta1, eps1 and eps2" train x 1 --adam-beta1 0.8
expect_says 78 "states on the host" "are not for it" train x 1 --offload-optimizer cpu
expect_says 78 "a distributed checkpoint" "has no place for the rows and columns" train x 1 --checkpoint-format dcp
expect 65 "AdamW does not go on from it" train x 1 --optim adamw_torch --resume-from-checkpoint "$T/one/checkpoint-2"
t "--dry-run plans it" bash -c "ckpt-train --model $T/base --train-file $T/train.jsonl --max-steps 1 --optim adafactor --dry-run -o $T/dry 2>&1 | grep -q 'optimizer 0\.'"
# Files that are not what they seem.
broken() {      # STATUS NAME TEXT OPTION... - optimizer.pt written anew with those options, in a checkpoint without a manifest
    local want=$1 name=$2 text=$3; shift 3
    rm -rf "$T/bad"; cp -r "$T/one" "$T/bad"; rm "$T/bad/checkpoint-4/MANIFEST.json" "$T/bad/checkpoint-4/optimizer.pt"
    ckpt-merge -q --to torch "$@" -o "$T/bad/checkpoint-4/optimizer.pt" "$T/one/checkpoint-4/optimizer.pt" >/dev/null
    expect_says "$want" "$name" "$text" train bad 1 --max-steps 6 --resume-from-checkpoint "$T/bad/checkpoint-4"
}
broken 65 "columns that are missing" "state.0.exp_avg_sq_col is absent" --exclude 'state.0.exp_avg_sq_col'
broken 65 "rows of another shape" "state.0.exp_avg_sq_row has another shape" --exclude 'state.0.exp_avg_sq_row' --rename state.0.exp_avg_sq_col=state.0.exp_avg_sq_row
broken 65 "rows of another type" "state.0.exp_avg_sq_row has another shape" --dtype 'state.0.exp_avg_sq_row=bf16'
cp "$T/one/checkpoint-4/optimizer.pt" "$T/bad/checkpoint-4/optimizer.pt"
printf 'xxxxxxxx' | dd of="$T/bad/checkpoint-4/optimizer.pt" bs=1 seek=$(($(stat -c %s "$T/bad/checkpoint-4/optimizer.pt") / 2)) conv=notrunc 2>/dev/null
expect 65 "bytes that were changed" train bad 1 --max-steps 6 --resume-from-checkpoint "$T/bad/checkpoint-4"
truncate -s -1000 "$T/bad/checkpoint-4/optimizer.pt"
expect 65 "a file that ends early" train bad 1 --max-steps 6 --resume-from-checkpoint "$T/bad/checkpoint-4"
echo '{"model_type": "mixtral", "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 2,
    "num_local_experts": 4, "num_experts_per_tok": 2, "hidden_act": "silu", "max_position_embeddings": 64, "vocab_size": 4096}' >"$T/experts.json"
t "a model with experts" ckpt-train -q --init "$T/experts.json" --tokenizer $R/tokenizer --init-only -o "$T/experts"
export BASE=$T/experts
t "experts" train moe 1 $first
t "all of a layer are one tensor" bash -c "ckpt-inspect $T/moe/checkpoint-4/optimizer.pt | grep -qE 'exp_avg_sq_row +F32 +.4, 72. ' && ckpt-inspect $T/moe/checkpoint-4/optimizer.pt | grep -qE 'exp_avg_sq_col +F32 +.4, 36. '"
resumes moe ", experts" $first
for stage in 1 3; do
    t "experts, stage $stage" train some 2 --zero-stage $stage $first
    t "experts, stage $stage: the losses of one rank" near some moe 1e-6
    back some again
    t "experts, stage $stage: one rank goes on" train again 1 $first --resume-from-checkpoint latest
    t "experts, stage $stage: to the same losses" near again moe 1e-6
    rm -rf "$T/some"
done
expect_says 78 "experts with rates of their own" "are of one tensor" train x 1 --lr-for 'experts\.1\.w1=1e-4'
t "gate and up apart from down" train rates 1 --max-steps 1 --lr-for 'experts\.\d+\.w2=1e-4'

