# A run with LoRA tells the loss of the model that it leaves: its eval loss beside that of ckpt-eval in f32, which applies the
# adapter, and of the merged model.  Four blocks of Qwen3-8B, wide enough that the residual is large beside a new adapter.  E8
. "$(dirname "$0")/../e2e/lib.sh"
export OMP_NUM_THREADS=4
GPU=${GPU:-cuda} shape='s/"num_hidden_layers": 36/"num_hidden_layers": 4/;s/151936/8192/'
# GPU=cpu: what this script itself is worth, without one
[ "$GPU" != cpu ] || shape+=';s/"hidden_size": 4096/"hidden_size": 128/;s/: 12288/: 256/;s/": 32,/": 4,/;s/s": 8,/s": 2,/'
sed "$shape" tools/recipes/configs/Qwen3-8B.json >"$T/shape.json"
row() { awk -v n="$1" 'BEGIN { srand(7); for (i = 0; i < n; i++) { s = ""; for (j = 0; j < 220; j++) s = s (j ? " " : "") "word" int(999 * rand()); printf "{\"instruction\": \"%s\", \"output\": \"answer %d\"}\n", s, i } }'; }
row 80 >"$T/rows.jsonl"; head -n 16 "$T/rows.jsonl" >"$T/eval.jsonl"
task=(--config tools/recipes/E-lora-sft/task.yaml --max-seq-length "$([ "$GPU" = cpu ] && echo 128 || echo 1024)" --truncation-side left)
t "four blocks" ckpt-train -q --init "$T/shape.json" --tokenizer "$G/saved/qwen3" --init-only -o "$T/base"
train() {       # OUT OPTION...
    local out=$1; shift
    ckpt-train -q --device "$GPU" --model "$T/base" "${task[@]}" --train-file "$T/rows.jsonl" --eval-file "$T/eval.jsonl" --bf16 \
        --lora-rank 32 --lora-alpha 32 --target-modules all-linear \
        --per-device-train-batch-size 2 --per-device-eval-batch-size 2 --gradient-accumulation-steps 4 --learning-rate 1e-4 --max-steps 8 \
        --logging-steps 1 --eval-steps 8 --save-steps 8 -o "$T/$out" "$@"
}
run_loss() { sed -n 's/.*"eval_loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl" | tail -n 1; }
loss_of() { ckpt-eval -q --json --device "$GPU" "${task[@]}" --eval-file "$T/eval.jsonl" "$@" | tr -d ' \n' | sed 's/.*"loss":\([0-9.e+-]*\),.*/\1/'; }
near() { awk -v a="$1" -v b="$2" -v part="$3" 'BEGIN { print a " and " b; d = a / b - 1; exit !(a > 0 && b > 0 && d <= part && d >= -part) }'; }
other() { ! near "$@" && [ -n "$1" ] && [ -n "$2" ]; }
of_base=$(loss_of "$T/base")
# tells NAME BOUND OPTION... - the run, then its last loss beside that of its adapter.
tells() {
    local name=$1 bound=$2; shift 2
    t "$name" train "$name" "$@"
    t "$name: a loss that the adapter changed" other "$(run_loss "$name")" "$of_base" 0.01
    t "$name: the loss of its adapter" near "$(run_loss "$name")" "$(loss_of "$T/$name/checkpoint-8")" "$bound"
    [ "$name" = dropout ] || rm -rf "${T:?}/$name"
}
tells dropout 0.003 --lora-dropout 0.1
tells plain 0.003
tells magnitude 0.003 --use-dora
[ "$GPU" = cpu ] || tells 8-bit 0.005 --lora-dropout 0.1 --fp8
tells recomputed 0.003 --lora-dropout 0.1 --recompute full
t "the loss of its adapter in bf16" near "$(loss_of --dtype bfloat16 "$T/dropout/checkpoint-8")" "$(loss_of "$T/dropout/checkpoint-8")" 0.003
t "merged" ckpt-merge -q -o "$T/merged" "$T/dropout"
t "the loss of the merged model" near "$(run_loss dropout)" "$(loss_of "$T/merged")" 0.005
t "of the merged model in bf16" near "$(run_loss dropout)" "$(loss_of --dtype bfloat16 "$T/merged")" 0.005
