# Families through ckpt-train on a GPU beside the CPU, adapters too, and the chip's memory by time.  B1, C4, E1
. "$(dirname "$0")/../e2e/lib.sh"
export OMP_NUM_THREADS=4
M=$G/models GPU=${GPU:-cuda}            # GPU=cpu: what this script itself is worth, without one
train() {       # MODEL OUT DEVICE OPTION...
    cat "$M/$1/rows.jsonl" "$M/$1/rows.jsonl" | head -n 4 >"$T/rows.jsonl"
    ckpt-train -q --device "$3" --model "$M/$1" --train-file "$T/rows.jsonl" --learning-rate 1e-3 --max-steps 4 --logging-steps 1 \
        --per-device-train-batch-size 2 --save-steps 4 -o "$T/$2" "${@:4}"
}
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl"; }
near() { paste <(losses "$1") <(losses "$2") | awk -v b="$3" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= b)) { bad = 1; print $1, $2, d }; k++ } END { exit bad || k != 4 }'; }
same() { cmp "$T/$1/checkpoint-4/model.safetensors" "$T/$2/checkpoint-4/model.safetensors"; }
for m in opt-350m opt-bare gpt2-b llama-a phi3-a mixtral-a qwen3moe-a t5-v11; do
    t "$m on the CPU" train $m $m-cpu cpu
    t "$m on the GPU" train $m $m "$GPU"
    # four steps with a rate that doubles what differs in each
    t "the same losses" near $m $m-cpu 1e-4
done
for m in llama-a mixtral-a t5-v11; do
    t "$m in bf16" train $m $m-half "$GPU" --bf16
    t "once more" train $m $m-again "$GPU" --bf16
    t "to the same bits" same $m-half $m-again
    t "an adapter of $m on the CPU" train $m $m-lora-cpu cpu --lora-rank 4
    t "and on the GPU" train $m $m-lora "$GPU" --lora-rank 4
    t "the same losses" near $m-lora $m-lora-cpu 1e-4
done
t "memory by time" train llama-a mem "$GPU" --memory-log 0.02
t "in nvidia-smi's columns" bash -c "head -1 $T/mem/memory.csv | grep -q '^timestamp, index, name, memory.used .MiB., '"
t "of the chip" bash -c "[ $GPU = cpu ] || sed -n 2p $T/mem/memory.csv | grep -qE ', [0-9]+, NVIDIA'"
t "compared by its peak" bash -c "ckpt-inspect --compare '$T/mem' '$T/llama-a' | grep -q 'peak MiB'"

# -- a loss on padding: transformers' losses of the same steps (tests/e2e/37-fidelity.sh) ----------
wanted() { sed -n "/\"$1\": \[/,/\]/p" "$G/padding/losses.json" | grep -oE '[0-9]+\.[0-9]+'; }
padded() {      # OUT MODEL SIDE OPTION...
    head -n 4 "$G/padding/rows.jsonl" >"$T/first.jsonl"
    ckpt-train -q --device "$GPU" --model "$M/$2" --train-file "$G/padding/rows.jsonl" --eval-file "$T/first.jsonl" --train-sampling-strategy sequential --max-steps 6 \
        --learning-rate 1e-3 --lr-scheduler-type constant --logging-steps 1 --max-seq-length 12 --loss-on-padding --padding-side "$3" -o "$T/$1" "${@:4}"
}
as_wanted() {   # OUT MODEL SIDE BOUND
    grep -oE '"(eval_)?loss":[0-9.]+' "$T/$1/metrics.jsonl" | cut -d: -f2 | paste - <(wanted "$2 $3") |
        awk -v b="$4" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= b)) { bad = 1; print } } END { exit bad || NR != 7 }'
}
for case in "bloom-a left" "bloom-b left" "bloom-a right" "llama-a right"; do
    out=pad-${case/ /-}
    t "C7 loss on padding: $case" padded $out $case --per-device-train-batch-size 4
    t "transformers' losses" as_wanted $out $case 1e-5
    t "in bf16, accumulated" padded $out-half $case --per-device-train-batch-size 2 --gradient-accumulation-steps 2 --bf16
    t "the losses within its rounding" as_wanted $out-half $case 2e-2
done
