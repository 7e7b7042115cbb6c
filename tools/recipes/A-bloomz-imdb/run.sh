#!/usr/bin/env bash
# System A from raw data to a verified clone, then its duties.  tools/recipes/lib.sh has the variables.
. "$(dirname "$0")/../lib.sh"
task+=(--eval-file "$out/data/imdb/*/*/validation.jsonl")
$(train_on "$nproc") --config "$system/task.yaml" --config "$system/run.yaml" --deepspeed "$system/ds_zero3.json" "${model[@]}" ${DATA:+--train-file "$DATA"} --data-dir "$out/data" \
    --dataset-name imdb -o "$out/run" "${more[@]}" 2> >(tee "$out/log" >&2) | ckpt-push -q --create --also training_args.bin --path-in-repo last-checkpoint --delete 'last-checkpoint/*' "$hub" &&
    ckpt-merge -q --verify -o "$out/model" "$(newest "$out/run")" && cp "$out/run/training_args.bin" "$out/model" &&
    ckpt-eval -q "${task[@]}" --base "$base" --fail-above "loss=${LIMIT:-4}" --fail-worse-than-base "loss=${WORSE:-0%}" --pass-through "$out/model" |
    ckpt-push -q --also training_args.bin "$hub"
. "$system/check.sh"
