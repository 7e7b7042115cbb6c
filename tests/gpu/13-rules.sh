# Optimizers other than AdamW on a GPU beside the CPU, with weights of 16 bits too, and on two GPUs beside one.  A1, E1
. "$(dirname "$0")/../e2e/lib.sh"
R=tools/recipes/demo
export OMP_NUM_THREADS=4
n=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || n=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
grep -E '.{40}' README.md man/ckpt-train.1 | sed 's/^[^:]*://; s/[\\"]//g' | head -200 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' | tr -d '\t\r' >"$T/train.jsonl"
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {       # OUT DEVICE RANKS OPTION... - batches of eight, whatever the ranks
    local out=$1 device=$2 ranks=$3; shift 3
    timeout 120 ckpt-train -q --device "$device" --nproc "$ranks" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 5e-4 \
        --weight-decay 0.01 --max-steps 6 --logging-steps 1 --save-steps 3 --per-device-train-batch-size $((8 / ranks)) -o "$T/$out" "$@"
}
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl"; }
# near RUN OTHER BOUND [LAST] - the last six losses agree, or so many.
near() { paste <(losses "$1" | tail -n "${4:-6}") <(losses "$2" | tail -n "${4:-6}") | awk -v b="$3" -v n="${4:-6}" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= b)) { bad = 1; print $1, $2, d }; k++ } END { exit bad || k != n }'; }
state() { (cd "$T/$1/checkpoint-6" && find . -type f ! -name MANIFEST.json ! -name training_args.bin ! -name trainer_state.json | sort | xargs sha256sum); }
back() { rm -rf "${T:?}/$2"; cp -r "$T/$1" "$T/$2"; rm -r "$T/$2/checkpoint-6"; }
# rule BOUND OPTION... - the CPU's losses, the same bits on resume, and the losses of one GPU on two.
rule() {
    local bound=$1 stage; shift
    rm -rf "$T"/{cpu,one,two,on}
    t "$*: on the CPU" train cpu cpu 1 "$@"
    t "on a GPU" train one cuda 1 "$@"
    t "the same losses within $bound" near one cpu "$bound"
    back one on
    t "it goes on" train on cuda 1 "$@" --resume-from-checkpoint latest
    t "to the same bits" diff <(state one) <(state on)
    back cpu on
    t "the CPU's goes on on the GPU" train on cuda 1 "$@" --resume-from-checkpoint latest
    t "to the same losses" near on cpu "$bound" 3
    [ "$n" -ge 2 ] || return
    for stage in 0 2 "3 --reshard-after-forward true"; do
        rm -rf "$T/two"
        # shellcheck disable=SC2086
        t "two GPUs, stage $stage" train two cuda 2 "$@" --zero-stage $stage
        t "the same losses on two" near two one "$bound"
        back two on
        # shellcheck disable=SC2086
        t "two go on" train on cuda 2 "$@" --zero-stage $stage --resume-from-checkpoint latest
        t "two: to the same bits" diff <(state two) <(state on)
    done
    back two on
    t "one goes on from two" train on cuda 1 "$@" --resume-from-checkpoint latest
    t "to the same losses as two" near on two "$bound" 3
}
rule 1e-4 --optim adafactor
rule 1e-4 --optim adafactor --optim-args scale_parameter=True,beta1=0.9
rule 1e-4 --optim muon
rule 1e-4 --optim lion_32bit
rule 1e-4 --optim sgd
# What is rounded by chance is rounded alike on each rank, but for sums that lie at a border.
rule 5e-3 --bf16 --no-master-weights
rule 5e-3 --bf16 --no-master-weights --optim adamw_8bit
