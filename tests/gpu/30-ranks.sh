# Ranks on GPUs, one each: the gradients of all are summed over NCCL.  Two GPUs of one host.
# PART=1: stages of every kind of run; PART=2: all else.
. "$(dirname "$0")/../e2e/lib.sh"
R=tools/recipes/demo
export OMP_NUM_THREADS=4
n=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || n=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
[ "$n" -ge 2 ] || { echo "ok skipped: two GPUs are needed, there are $n"; exit 0; }
grep -E '.{40}' README.md man/ckpt-train.1 | sed 's/^[^:]*://; s/[\\"]//g' | head -200 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' | tr -d '\t\r' >"$T/train.jsonl"
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
train() {       # OUT RANKS OPTION... - batches of eight, whatever the ranks
    local out=$1 ranks=$2; shift 2
    timeout 120 ckpt-train -q --device cuda --nproc "$ranks" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 5e-4 \
        --weight-decay 0.01 --max-steps 6 --logging-steps 1 --save-steps 3 --per-device-train-batch-size $((8 / ranks)) -o "$T/$out" "$@"
}
# The same, where each kernel and each collective ends before the next begins.
alone() { CUDA_LAUNCH_BLOCKING=1 train "$@"; }
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl"; }
# near RUN OTHER BOUND [LAST] - the last six losses agree, or so many.
near() { paste <(losses "$1" | tail -n "${4:-6}") <(losses "$2" | tail -n "${4:-6}") | awk -v b="$3" -v n="${4:-6}" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= b)) { bad = 1; print $1, $2, d }; k++ } END { exit bad || k != n }'; }
state() { find "$T/$1/checkpoint-6" -type f ! -name MANIFEST.json ! -name training_args.bin ! -name trainer_state.json -printf '%P\n' | sort | (cd "$T/$1/checkpoint-6" && xargs sha256sum); }
# Every stage of every kind of run: the losses of one GPU.  Of stage 3 also the same bits again, and
# its checkpoint goes on on one GPU.
kinds=("" "--bf16" "--bf16 --lora-rank 4 --target-modules all-linear" "--bf16 --optim adamw_8bit" "--bf16 --fp8")
[ "${PART:-1}" = 1 ] || kinds=()
for how in "${kinds[@]}"; do
    bound=1e-6
    [ -z "$how" ] || bound=2e-3
    rm -rf "$T/one"
    # shellcheck disable=SC2086
    t "one GPU${how:+, $how}" train one 1 $how
    for stage in 0 1 2 3 "3 --reshard-after-forward true"; do
        rm -rf "$T"/{two,again,on}
        # shellcheck disable=SC2086
        {
            t "two GPUs, stage $stage" train two 2 $how --zero-stage $stage
            t "the same losses within $bound" near two one $bound
            case $stage in 1 | 2) continue ;; esac
            t "once more, nothing beside anything" alone again 2 $how --zero-stage $stage
            t "the same bits" diff <(state two) <(state again)
            cp -r "$T/two" "$T/on"; rm -r "$T/on/checkpoint-6"
            t "the checkpoint goes on on one GPU" train on 1 $how --resume-from-checkpoint latest
            t "to the same losses" near on one $bound 3
        }
    done
done
[ "${PART:-2}" = 2 ] || exit 0
# Groups: of one GPU each, which replicate, and of two, which is none.
rm -rf "$T"/{one,two}
t "two GPUs shard together" train two 2 --zero-stage 3
for stage in 1 2 3; do
    rm -rf "$T"/{split,again,on}
    t "two GPUs in groups of one, stage $stage" train split 2 --zero-stage $stage --hybrid-shard-size 1
    t "the same losses" near split two 1e-6
    t "once more" train again 2 --zero-stage $stage --hybrid-shard-size 1
    t "the same bits" diff <(state split) <(state again)
    t "one GPU writes the shards" [ "$(find "$T/split/checkpoint-6" -name 'zero_pp_rank_*_optim_states.pt' | wc -l)" = 1 ]
    cp -r "$T/split" "$T/on"; rm -r "$T/on/checkpoint-6"
    t "the checkpoint goes on on two GPUs that shard together" train on 2 --zero-stage 3 --resume-from-checkpoint latest
    t "to the same losses" near on two 1e-6 3
done
rm -rf "$T/group"
t "a group of two" train group 2 --zero-stage 3 --hybrid-shard-size 2
t "has the bits of two that shard together" diff <(state group) <(state two)
expect 78 "gradients of 16 bits in groups of one" train no 2 --zero-stage 3 --hybrid-shard-size 1 --reduce-dtype bfloat16
expect 78 "groups of three of two GPUs" train no 2 --zero-stage 3 --hybrid-shard-size 3

# What lies on the host: each rank's own part.  The bits of the GPU's own memory.
rm -rf "$T"/{one,two,again,on}
t "two GPUs, layers gathered in each pass" train two 2 --bf16 --zero-stage 3 --reshard-after-forward true
for how in "--offload-optimizer cpu" "--offload-param cpu"; do
    rm -rf "$T"/{again,on}
    # shellcheck disable=SC2086
    t "two GPUs, $how" train again 2 --bf16 --zero-stage 3 --reshard-after-forward true $how
    t "the same bits" diff <(state two) <(state again)
    cp -r "$T/again" "$T/on"; rm -r "$T/on/checkpoint-6"
    t "the checkpoint goes on on one GPU" train on 1 --bf16 --resume-from-checkpoint latest
    t "to the same losses" near on two 2e-3 3
done
for how in "--zero-stage 1" "--zero-stage 2 --reduce-dtype bfloat16" "--zero-stage 3 --gradient-accumulation-steps 2 --per-device-train-batch-size 2" \
    "--zero-stage 3 --lora-rank 4 --target-modules all-linear" "--zero-stage 3 --optim adamw_8bit" "--zero-stage 3 --gradient-checkpointing"; do
    rm -rf "$T"/{two,again}
    # shellcheck disable=SC2086
    {
        t "two GPUs, $how" train two 2 --bf16 $how
        t "weights and gradients on the host" train again 2 --bf16 $how --offload-param cpu
        t "the same losses" near again two 2e-3
    }
done
# Moments in bf16, sharded: what is drawn for them does not depend on ranks.
rm -rf "$T"/{one,two,again}
t "one GPU, moments in bf16" train one 1 --optim adamw_anyprecision
for stage in 0 1 2 3; do
    rm -rf "$T/two"
    t "two GPUs, moments in bf16, stage $stage" train two 2 --optim adamw_anyprecision --zero-stage $stage
    t "the same losses" near two one 1e-4
done
cp -r "$T/two" "$T/again"; rm -r "$T/again/checkpoint-6"
t "they go on" train again 2 --optim adamw_anyprecision --zero-stage 3 --resume-from-checkpoint latest
t "to the same bits" diff <(state two) <(state again)
expect 78 "more ranks than GPUs" train many $((n + 1))
t "they are counted" says "this host has $n GPUs"

# The paths of communication, under memcheck.
if command -v compute-sanitizer >/dev/null; then
    for how in "3 --reshard-after-forward true" "1 --bf16"; do
        rm -rf "$T/two"
        # shellcheck disable=SC2086
        t "memcheck over two ranks, stage $how" timeout 240 compute-sanitizer --tool memcheck --target-processes all --error-exitcode 9 --report-api-errors no \
            ckpt-train -q --device cuda --nproc 2 --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 2 --per-device-train-batch-size 2 \
            --save-strategy no --no-final-model --zero-stage $how -o "$T/two"
    done
fi

# What a rank held is free again soon after it is killed.
used() { nvidia-smi ${CUDA_VISIBLE_DEVICES:+-i "$CUDA_VISIBLE_DEVICES"} --query-gpu=memory.used --format=csv,noheader,nounits | awk '{ s += $1 } END { print s }'; }
before=$(used)
train long 2 --max-steps 1000000 >"$T/long.out" 2>"$T/long.err" &
run=$!
for _ in $(seq 300); do [ -s "$T/long/metrics.jsonl" ] && break; sleep 0.1; done
kill -KILL "$(pgrep -f "^ckpt-train .*$T/long" | tail -n 1)"
began=$(date +%s%N)
wait $run; status=$?
took=$((($(date +%s%N) - began) / 1000000))
[ $status = 75 ] && [ $took -lt 5000 ] && grep -q 'killed by SIGKILL' "$T/long.err" && echo "ok a killed rank ends all, by name" ||
    { echo "status $status after $took ms" >>"$T/long.err"; fail "a killed rank ends all, by name" "$T/long.err"; }
for _ in $(seq 50); do [ "$(used)" -le $((before + 64)) ] && break; sleep 0.1; done
[ "$(used)" -le $((before + 64)) ] && echo "ok its memory is free again" || fail "its memory is free again" "$T/long.err"
