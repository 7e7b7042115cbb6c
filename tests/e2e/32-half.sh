# Weights of 16 bits on the CPU: training and evaluation close to float32's, resumed bit for bit.
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 300 >/dev/null
head -n 16 "$T/eval.jsonl" > "$T/few.jsonl"
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {
    local out=$1 stage=$2 ranks=$3; shift 3
    ckpt-train ${SAY--q} --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 1e-3 --max-steps 6 \
        --logging-steps 1 --save-steps 3 --per-device-train-batch-size $((8 / ranks)) --nproc "$ranks" --zero-stage "$stage" -o "$T/$out" "$@"
}
within() { losses_near "$@" 6 && ! same_losses "$1" "$2" > /dev/null; }
for type in bf16 fp16; do
    t "$type, one rank" train $type 0 1 --$type
    t "$type, two ranks with shards" train $type-2 3 2 --$type
done
t "float32" train f32 0 1
t "bf16's losses are float32's to 1 %, and not the same" within f32 bf16 1e-2
t "fp16's to 0.1 %" within f32 fp16 1e-3
t "two ranks' are one rank's to 1e-5" within bf16 bf16-2 1e-5
t "the same with fp16" within fp16 fp16-2 1e-5
resume() {
    rewind "$1" "$1-again" && train "$1-again" "$2" "$3" --bf16 --resume-from-checkpoint latest && same_state "$1" "$1-again"
}
t "3 steps, stop, 3 more = 6 steps, bit for bit" resume bf16 0 1
t "the same with shards" resume bf16-2 3 2
# The loss's scale: a power of two changes nothing on a CPU until it overflows; then steps are skipped and the scale falls.
t "fp16 with a fixed scale of 1" train fixed 0 1 --fp16 --loss-scale 1
same_model() { cmp "$T/$1/checkpoint-6/model.safetensors" "$T/$2/checkpoint-6/model.safetensors"; }
t "is fp16 with a scale that is found" same_model fixed fp16
overflowing() { SAY= train "$1" 0 1 --fp16 --initial-scale-power 133 --hysteresis 1 "${@:2}" 2>"$T/said"; }
t "a scale that is much too large" overflowing large
t "A2 skips steps and says so" grep -q "step 1: .*skipped, the scale is" "$T/said"
t "the skipped are no steps of the optimizer" bash -c "ckpt-inspect --tree $T/large/checkpoint-6/scheduler.pt | grep -q 'last_epoch.*[1-5],'"
again() { rewind large large-again && overflowing large-again --resume-from-checkpoint latest && same_state large large-again; }
t "A2 a resumed run goes on with the scale and the count" again
expect 1 "a fixed scale that overflows ends the run" overflowing y --loss-scale 1e45
expect 78 "a scale without float16" train x 0 1 --bf16 --loss-scale 8
t "the true weights are kept as float32" bash -c "ckpt-inspect $T/bf16/checkpoint-6/model.safetensors | grep -q F32"
t "the arguments say so" bash -c "ckpt-inspect --args $T/bf16/checkpoint-6 | grep -q 'bf16.*[Tt]rue'"
expect 78 "both types at once" train x 0 1 --bf16 --fp16
expect_says 78 "8 bits without bfloat16" "--fp8 needs --bf16" train x 0 1 --fp8
expect 78 "8 bits with float16" train x 0 1 --fp8 --fp16
expect 78 "a format of 8 bits alone" train x 0 1 --bf16 --fp8-format e4m3
t "tf32 where no product is float32" train x 0 1 --tf32 --bf16 --dry-run
expect_says 78 "8 bits on the CPU" "--fp8 needs a GPU" train x 0 1 --device cpu --fp8 --bf16
expect_says 78 "tf32 on the CPU" "--tf32 needs a GPU" train x 0 1 --device cpu --tf32
loss() { score "$T/few.jsonl" "$@" "$T/f32/checkpoint-6"; }
close() { awk -v a="$(loss)" -v b="$(loss --dtype "$1")" -v most="$2" 'BEGIN { d = (a - b) / a; if (d < 0) d = -d; exit !(a > 0 && d > 0 && d < most) }'; }
t "evaluation with bfloat16 is close" close bfloat16 5e-3
t "closer with float16" close float16 5e-4
answer() { ckpt-eval -q --prompt "Define the noun: cat" --max-new-tokens 12 "$@" "$T/f32/checkpoint-6"; }
t "continuations with float16 weights are float32's" bash -c "[ -n '$(answer)' ] && [ '$(answer)' = '$(answer --dtype float16)' ]"
expect 64 "an unknown type" ckpt-eval -q --dtype int8 --prompt a "$T/f32/checkpoint-6"
