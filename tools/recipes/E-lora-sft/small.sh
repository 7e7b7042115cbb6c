# A tiny Qwen3 and 300 definitions; an evaluation every four of twelve steps.
[ ${#model[@]} -gt 0 ] || model=(--model "$golden/saved/qwen3")
[ -n "${DATA:-}" ] || { "$top/tools/recipes/demo/wordnet.sh" "$out/data" 300; DATA=$out/data/train.jsonl; }
[ -n "${BERTSCORE:-}" ] || { BERTSCORE=$out/encoder BERTSCORE_LAYER=2; mkdir "$BERTSCORE"; cp "$golden"/models/bert-a/{config.json,model.safetensors} "$golden"/bertscore/tokenizer* "$BERTSCORE"; }
more=(--max-steps 12 --eval-steps 4 --logging-steps 2 --max-seq-length 64 --learning-rate 5e-3 "${more[@]}"); LIMIT=${LIMIT:-9}
