#!/usr/bin/env bash
# System B from parquet to a verified clone, on 1, 2 and 3 workers, then its duties.  tools/recipes/lib.sh has the variables.
. "$(dirname "$0")/../lib.sh"
for n in ${WORKERS:-1 2 3}; do
    $(train_on "$n") "${task[@]}" --config "$system/run.yaml" "${model[@]}" --train-file "$DATA" -o "$out/w$n" "${more[@]}" 2> >(tee "$out/w$n.log" >&2) |
        ckpt-merge -q --verify -o "$out/merged/w$n" | tail -n 1 | tee "$out/newest" |
        ckpt-eval -q "${task[@]}" --eval-file "$DATA" --base "$base" --fail-above "loss=${LIMIT:-6}" --fail-worse-than-base "loss=${WORSE:-0%}" --pass-through |
        ckpt-push -q --create --path-in-repo "w$n" "$hub" || exit
done
. "$system/check.sh"
