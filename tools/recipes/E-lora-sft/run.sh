#!/usr/bin/env bash
# System E from any data set to a verified clone, then its duties.  tools/recipes/lib.sh has the variables; NAME is the data's.
. "$(dirname "$0")/../lib.sh"
id=${ID:-Qwen3-8B} name=${NAME:-sft} results=$out/results/${ID:-Qwen3-8B}
$(train_on "$nproc" --max-restarts 2) --config "$top/tools/recipes/lora-sft.yaml" "${task[@]}" "${model[@]}" --train-file "$DATA" --dataset-name "$name" \
    --data-dir "$out/datasets" -o "$results" --logging-dir "$results/logs" "${more[@]}" 2> >(tee "$out/log" >&2) |
    ckpt-merge -q --verify -o "$out/merged" | tail -n 1 | tee "$out/newest" |
    ckpt-eval -q "${task[@]}" --eval-file "$out/datasets/$name/*/*/test.jsonl" --base "$base" --fail-above "loss=${LIMIT:-4}" --fail-worse-than-base "loss=${WORSE:-0%}" --pass-through |
    ckpt-push -q --create "$hub"
. "$system/check.sh"
