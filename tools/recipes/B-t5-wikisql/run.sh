#!/usr/bin/env bash
# System B from parquet to a verified clone, on 1, 2 and 3 workers, then its duties.  tools/recipes/lib.sh has the variables.
. "$(dirname "$0")/../lib.sh"
for n in ${WORKERS:-1 2 3}; do
    ckpt-train "${task[@]}" --config "$system/run.yaml" --nproc "$n" "${model[@]}" --train-file "$DATA" -o "$out/w$n" "${more[@]}" 2> >(tee "$out/w$n.log" >&2) |
        ckpt-merge -q --verify -o "$out/merged/w$n" | tail -n 1 | tee "$out/newest" | xargs ckpt-eval -q --json "${task[@]}" --eval-file "$DATA" |
        below "${LIMIT:-6}" && ckpt-push -q --create --path-in-repo "w$n" "$hub" "$(cat "$out/newest")" || exit
done
. "$system/check.sh"
