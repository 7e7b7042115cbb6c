# A tiny Qwen3 and 300 definitions; an evaluation every four of twelve steps.
[ ${#model[@]} -gt 0 ] || model=(--model "$golden/saved/qwen3")
[ -n "${DATA:-}" ] || { "$top/tools/recipes/demo/wordnet.sh" "$out/data" 300; DATA=$out/data/train.jsonl; }
more=(--max-steps 12 --eval-steps 4 --logging-steps 2 --max-seq-length 64 --learning-rate 5e-3 "${more[@]}"); LIMIT=${LIMIT:-9}
