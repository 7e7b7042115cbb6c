#!/usr/bin/env bash
# D: OPT-1.3b on slices of arXiv abstracts, FULL_SHARD; each slice goes on with step and epoch where the one before ended, from its one
# file opt_1.3B_START-END-epoch-N.pt.  Every checkpoint stays in HUB, side by side.  What is held against the duties comes last.
#
#   MODEL=hf://facebook/opt-1.3b DATA=abstracts.jsonl EVAL=heldout.jsonl HUB=hf://me/opt-arxiv OUT=D SLICES="0-10000 10000-20000" run.sh [ckpt-train's options]
set -euo pipefail
. "$(dirname "$0")/../begin.sh" D-opt-arxiv-fsdp hf://facebook/opt-1.3b abstracts.jsonl
export WANDB_LOG_MODEL=checkpoint
slices=${SLICES:-0-10000 10000-20000} file= epoch=0 step=0

train=(--config "$here/run.yaml" --model "$MODEL" --train-file "$DATA" --nproc "$NPROC" "$@")
ckpt-train --print-config "${train[@]}" -o "$OUT/none" >"$OUT/config.yaml"
for s in $slices; do
    ckpt-train "${train[@]}" --start-idx "${s%-*}" --end-idx "${s#*-}" ${file:+--resume-file "$file" --initial-epoch $epoch --initial-step $step} --num-train-epochs $((epoch + 1)) -o "$OUT/$s" |
        grep -v '\.pt$' | ckpt-merge --verify | ckpt-push --create --path-in-repo '{name}' "$HUB"
    file=$(ls -t "$OUT/$s"/opt_1.3B_*.pt | head -n 1) epoch=$((epoch + 1)) step=$(ls -d "$OUT/$s"/checkpoint-* | sed 's/.*-//' | sort -n | tail -n 1)
done
ckpt-eval --base "$MODEL" --eval-file "${EVAL:-$DATA}" --text-field abstract --max-eval-samples 64 --generate 4 --max-new-tokens 32 "$OUT/$s" | tee "$OUT/scores.txt"
"$here/duties.sh" $slices
