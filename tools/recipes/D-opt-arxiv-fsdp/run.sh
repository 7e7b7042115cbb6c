#!/usr/bin/env bash
# System D from abstracts to a verified clone, two slices of the data, then its duties.  tools/recipes/lib.sh has the variables; SLICE is rows.
. "$(dirname "$0")/../lib.sh"
for n in 1 2; do
    ckpt-train "${task[@]}" --config "$system/fsdp.yaml" --config "$system/run.yaml" "${model[@]}" --train-file "$DATA" $(slice_of $n) --num-train-epochs $n -o "$out/$n" \
        "${more[@]}" 2> >(tee "$out/$n.log" >&2) | ckpt-merge -q --verify -o "$out/merged" | grep checkpoint- | tee "$out/newest" | xargs ckpt-eval -q --json "${task[@]}" \
        --eval-file "$EVAL" | below "${LIMIT:-4}" && ckpt-push -q --create --path-in-repo "slice-$n/{name}" "$hub" "$(cat "$out/newest")" && ckpt-push -q "$hub" "$out/$n/"*.pt || exit
done
. "$system/check.sh"
