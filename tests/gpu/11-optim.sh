# How moments are kept and losses scaled, and every optimizer, on a GPU beside the CPU; on two GPUs beside one.
. "$(dirname "$0")/../e2e/lib.sh"
R=tools/recipes/demo
export OMP_NUM_THREADS=4
grep -E '.{40}' README.md man/ckpt-train.1 | sed 's/^[^:]*://; s/[\\"]//g' | head -200 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' | tr -d '\t\r' > "$T/train.jsonl"
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
n=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || n=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
train() {       # OUT DEVICE OPTION... - RANKS: so many share the batches of eight
    local out=$1 device=$2; shift 2
    ckpt-train ${SAY--q} --device "$device" --nproc "${RANKS:-1}" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 5e-4 \
        --max-steps 6 --logging-steps 1 --save-steps 3 --per-device-train-batch-size $((8 / ${RANKS:-1})) -o "$T/$out" "$@"
}
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl"; }
near() { paste <(losses "$1" | tail -"$4") <(losses "$2" | tail -"$4") | awk -v n="$4" -v b="$3" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= b)) { bad = 1; print $1, $2, d }; k++ } END { exit bad || k != n }'; }
state() { (cd "$T/$1/checkpoint-6" && find . -type f ! -name MANIFEST.json ! -name training_args.bin ! -name trainer_state.json | sort | xargs sha256sum); }
goon() { cp -r "$T/$1" "$T/$2" && rm -r "$T/$2/checkpoint-6" && train "$2" "$3" "${@:4}" --resume-from-checkpoint latest; }
t "float32" train f32 cuda
t "float16" train half cuda --fp16
t "losses within its rounding" near half f32 5e-3 6
t "again" train half2 cuda --fp16
t "the same bits" diff <(state half) <(state half2)
t "on the CPU" train half-cpu cpu --fp16
t "near the GPU's" near half-cpu half 5e-3 6
large() { SAY= train "$1" "$2" --fp16 --initial-scale-power 34 --hysteresis 1 --max-steps 30 --save-steps 15 --logging-steps 1 "${@:3}" 2>"$T/said"; }
t "a scale that is much too large" large large cuda
t "skips steps and says so" grep -q "step 1: .*skipped, the scale is 8.58993e+09 now" "$T/said"
t "until it fits" bash -c "tail -n 3 $T/large/metrics.jsonl | grep -q '\"loss\"'"
large_on() { mkdir "$T/on" && cp -r "$T/large/checkpoint-15" "$T/on" && large on cuda --resume-from-checkpoint latest; }
t "a run goes on with the scale and the count of steps" large_on
t "to the same bits" cmp "$T/on/checkpoint-30/model.safetensors" "$T/large/checkpoint-30/model.safetensors"
t "8 bits and float16 with blocks made again" train small cuda --fp16 --optim adamw_8bit --gradient-checkpointing --per-device-train-batch-size 1
for kind in adamw_8bit adamw_anyprecision; do
    t "$kind on the CPU" train "$kind-cpu" cpu --optim $kind
    t "$kind on the GPU" train "$kind" cuda --optim $kind
    # a code or a bfloat16 that lies at a border may be its neighbour there: a percent of one moment
    t "losses agree to 1e-4" near "$kind" "$kind-cpu" 1e-4 6
    t "a checkpoint goes on on the GPU" goon "$kind" "$kind-gg" cuda --optim $kind
    t "bit for bit" diff <(state "$kind") <(state "$kind-gg")
    t "the CPU's goes on on the GPU" goon "$kind-cpu" "$kind-cg" cuda --optim $kind
    t "to the same losses" near "$kind-cg" "$kind-cpu" 1e-4 3
    t "the GPU's goes on on the CPU" goon "$kind" "$kind-gc" cpu --optim $kind
    t "to the same losses too" near "$kind-gc" "$kind" 1e-4 3
done
pair() { RANKS=2 train "$@"; }
back() { rm -rf "${T:?}/$2"; cp -r "$T/$1" "$T/$2"; rm -r "$T/$2/checkpoint-6"; }
# rule BOUND OPTION... - the CPU's losses, the same bits on resume, and the losses of one GPU on two.
rule() {
    local bound=$1 stage; shift
    set -- "$@" --weight-decay 0.01
    rm -rf "$T"/{cpu,one,two,on}
    t "$*: on the CPU" train cpu cpu "$@"
    t "on a GPU" train one cuda "$@"
    t "the same losses within $bound" near one cpu "$bound" 6
    back one on
    t "it goes on" train on cuda "$@" --resume-from-checkpoint latest
    t "to the same bits" diff <(state one) <(state on)
    back cpu on
    t "the CPU's goes on on the GPU" train on cuda "$@" --resume-from-checkpoint latest
    t "to the same losses" near on cpu "$bound" 3
    [ "$n" -ge 2 ] || return
    for stage in 0 2 "3 --reshard-after-forward true"; do
        rm -rf "$T/two"
        # shellcheck disable=SC2086
        t "two GPUs, stage $stage" pair two cuda "$@" --zero-stage $stage
        t "the same losses on two" near two one "$bound" 6
        back two on
        # shellcheck disable=SC2086
        t "two go on" pair on cuda "$@" --zero-stage $stage --resume-from-checkpoint latest
        t "two: to the same bits" diff <(state two) <(state on)
    done
    back two on
    t "one goes on from two" train on cuda "$@" --resume-from-checkpoint latest
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
