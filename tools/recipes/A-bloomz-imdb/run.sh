#!/usr/bin/env bash
# A: BLOOMZ-1b1 on IMDB over two ZeRO-3 workers.  While it trains, each save replaces last-checkpoint/ in HUB, and the merged
# model HUB's root; at the end the root gets the card and the figures.  What is held against its duties comes last.
#
#   MODEL=hf://bigscience/bloomz-1b1 DATA='hf://datasets/stanfordnlp/imdb/plain_text/train-*' HUB=hf://me/bloomz-imdb OUT=A run.sh [ckpt-train's options]
set -euo pipefail
. "$(dirname "$0")/../begin.sh" A-bloomz-imdb hf://bigscience/bloomz-1b1 'hf://datasets/stanfordnlp/imdb/plain_text/train-*'

train=(--config "$here/run.yaml" --deepspeed "$here/ds_zero3.json" --model "$MODEL" --train-file "$DATA" --nproc "$NPROC" -o "$OUT/run" "$@")
ckpt-train --print-config "${train[@]}" >"$OUT/config.yaml"
ckpt-push --create --path-in-repo last-checkpoint --delete 'last-checkpoint/*' "$HUB" <"$OUT/saved" >&2 &
ckpt-train "${train[@]}" | tee "$OUT/saved" | ckpt-merge --verify | ckpt-push --create --latest "$HUB"
wait $!
ckpt-push --exclude 'checkpoint-*' --exclude 'runs/*' --exclude 'wandb/*' -m 'The trained model' "$HUB" "$OUT/run"
"$here/duties.sh"
