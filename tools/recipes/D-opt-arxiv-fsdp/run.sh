#!/usr/bin/env bash
# System D from abstracts to a verified clone, two slices of the data, then its duties.  tools/recipes/lib.sh has the variables; SLICE is rows.
. "$(dirname "$0")/../lib.sh"
for n in 1 2; do
    $(train_on "${NPROC:-2}") "${task[@]}" --config "$system/fsdp.yaml" --config "$system/run.yaml" "${model[@]}" --train-file "$DATA" $(slice_of $n) --num-train-epochs $n -o "$out/$n" \
        "${more[@]}" 2> >(tee "$out/$n.log" >&2) | ckpt-merge -q --verify -o "$out/merged" | grep checkpoint- | tee "$out/newest" |
        ckpt-eval -q "${task[@]}" --eval-file "$EVAL" --base "$base" --fail-above "loss=${LIMIT:-4}" --fail-worse-than-base "loss=${WORSE:-0%}" --pass-through |
        ckpt-push -q --create --path-in-repo "slice-$n/{name}" "$hub" && ckpt-push -q "$hub" "$out/$n/"*.pt || exit
done
. "$system/check.sh"
