# A tiny OPT of fresh weights and 540 abstracts, of which slices of 256 are two steps of 128 each.
[ -n "${DATA:-}" ] || { DATA=$out/data/abstracts.jsonl EVAL=$out/data/held.jsonl; words 540 | awk '{ printf "{\"id\": \"%d\", \"abstract\": %s}\n", NR, $0 }' >"$DATA"; tail -n 20 "$DATA" >"$EVAL"; }
printf '{"model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64, "vocab_size": 4096, "max_position_embeddings": 128, "word_embed_proj_dim": 32, "dropout": 0.0, "do_layer_norm_before": true, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}' >"$out/opt.json"
[ ${#model[@]} -gt 0 ] || fresh "$out/opt.json" "$top/tools/recipes/demo/tokenizer"
more=(--max-seq-length 48 --learning-rate 1e-3 "${more[@]}"); SLICE=256 LIMIT=${LIMIT:-9}
