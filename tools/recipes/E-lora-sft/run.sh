#!/usr/bin/env bash
# System E from any data set to a verified clone, then its duties.  tools/recipes/lib.sh has the variables; NAME is the data's.
. "$(dirname "$0")/../lib.sh"
id=${ID:-Qwen3-8B} name=${NAME:-sft} results=$out/results/${ID:-Qwen3-8B}
ckpt-train --config "$top/tools/recipes/lora-sft.yaml" "${task[@]}" --nproc "$nproc" "${model[@]}" --train-file "$DATA" --dataset-name "$name" \
    --data-dir "$out/datasets" -o "$results" --logging-dir "$results/logs" --max-restarts 2 "${more[@]}" 2> >(tee "$out/log" >&2) |
    ckpt-merge -q --verify -o "$out/merged" | tail -n 1 | tee "$out/newest" | xargs ckpt-eval -q --json "${task[@]}" \
    --eval-file "$out/datasets/$name/*/*/test.jsonl" | below "${LIMIT:-4}" && ckpt-push -q --create "$hub" "$(cat "$out/newest")"
. "$system/check.sh"
