#!/usr/bin/env bash
# E: LoRA on any data set, by templates, sharded over the ranks; the best adapter is merged, held against its base, and published.
# What is held against its duties comes last.
#
#   MODEL=hf://Qwen/Qwen3-8B DATA=hf://datasets/owner/rows NAME=rows HUB=hf://me/qwen3-rows OUT=E run.sh \
#       --prompt-template 'Question: {question} Answer: ' --completion-template '{answer}' [ckpt-train's options]
set -euo pipefail
. "$(dirname "$0")/../begin.sh" E-lora-sft hf://Qwen/Qwen3-8B hf://datasets/openai/gsm8k
results=$OUT/results/$(basename "$MODEL")

train=(--config "$here/../lora-sft.yaml" --model "$MODEL" --train-file "$DATA" --dataset-name "${NAME:-data}" --data-dir "$OUT/datasets" --nproc "$NPROC"
    -o "$results" --logging-dir "$results/logs" "$@")
ckpt-train --print-config "${train[@]}" >"$OUT/config.yaml"
ckpt-train "${train[@]}" | ckpt-merge --verify --dtype bf16 | ckpt-push --create --latest "$HUB"
best=$(ls -d "$results"/checkpoint-*[0-9] | sort -V | tail -n 1)
ckpt-merge -o "$OUT/model" "$best"
ckpt-eval --base "$MODEL" --eval-file "$(ls "$OUT"/datasets/*/*/*/test.jsonl)" --max-eval-samples 64 --generate 8 --max-new-tokens 32 "$OUT/model" | tee "$OUT/scores.txt"
"$here/duties.sh"
