#!/usr/bin/env bash
# System C from SQuAD's JSON to a verified clone, a baseline and each ZeRO stage, then its duties.  tools/recipes/lib.sh has the variables.
. "$(dirname "$0")/../lib.sh"
for s in ${settings:=${SETTINGS:-baseline zero1 zero1-offload zero2 zero2-offload zero3 zero3-offload zero3-offload-all}}; do
    $(train_on "$nproc") "${task[@]}" --config "$system/run.yaml" $(setting "$s") "${model[@]}" --train-file "$DATA" --eval-file "$EVAL" -o "$out/$s" \
        "${more[@]}" 2> >(tee "$out/$s.log" >&2) | ckpt-merge -q --verify -o "$out/merged/$s" | tail -n 1 | tee "$out/newest" |
        ckpt-eval -q "${task[@]}" --eval-file "$EVAL" --base "$base" --fail-above "loss=${LIMIT:-4}" --fail-worse-than-base "loss=${WORSE:-0%}" --pass-through |
        ckpt-push -q --create --path-in-repo "$s" "$hub" || exit
done
. "$system/check.sh"
