# A tiny BLOOM and 180 texts with labels; a checkpoint every five of ten steps.
[ ${#model[@]} -gt 0 ] || model=(--model "$golden/saved/bloom")
[ -n "${DATA:-}" ] || { DATA=$out/data/reviews.jsonl; words 180 | awk '{ printf "{\"text\": %s, \"label\": %d}\n", $0, NR % 2 }' >"$DATA"; }
more=(--save-steps 5 "${more[@]}"); LIMIT=${LIMIT:-9}
