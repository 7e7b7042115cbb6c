# Weights of bfloat16 alone, rounded stochastically: resumed bit for bit, the same bits at every stage, less memory; refusals.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/optim.sh"
COMMON="--bf16 --no-master-weights"
t "one rank" train one 1
resumes one ""
for how in "0 2" "1 2" "2 2" "3 2"; do
    set -- $how
    t "$2 ranks, stage $1" train "some-$1" "$2" --zero-stage "$1"
    back "some-$1" again
    t "stage $1: they go on" train again "$2" --zero-stage "$1" --resume-from-checkpoint latest
    t "stage $1: to the same bits" same_state "some-$1" again
    t "stage $1: the same losses" same_losses some-0 "some-$1"
    t "stage $1: one rank goes on" train again 1 --max-steps 6 --resume-from-checkpoint latest
done
for kind in adamw_8bit adamw_anyprecision sgd lion_32bit; do
    t "$kind" train $kind 1 --optim $kind
    back $kind again
    t "$kind goes on" train again 1 --optim $kind --resume-from-checkpoint latest
    t "$kind: to the same bits" same_state $kind again
done
t "an adapter" train lora 2 --zero-stage 3 --lora-rank 4 --target-modules all-linear
dry() { SAY= train dry 1 --dry-run 2>"$T/said" && grep -q "weights in bfloat16 alone, rounded stochastically: [1-9][0-9.]* MiB less than with float32 masters" "$T/said"; }
t "--dry-run tells what it saves" dry
expect_says 78 "without bfloat16" "--master-weights false needs --bf16" train x 1 --no-bf16
expect_says 78 "states on the host" "excludes --offload-optimizer" train x 1 --offload-optimizer cpu
expect_says 78 "Adafactor" "is not done with --optim adafactor" train x 1 --optim adafactor
expect_says 78 "Muon" "--master-weights false is not done with --optim muon" train x 1 --optim muon
