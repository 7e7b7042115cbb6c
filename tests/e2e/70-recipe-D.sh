# System D by its recipe, small, on two ranks of the CPU: slice after slice, to a clone of what was published.  D1 to D8
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/recipes.sh"
cat >"$T/opt.json" <<'END'
{"model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 128, "vocab_size": 4096,
 "max_position_embeddings": 256, "word_embed_proj_dim": 64, "do_layer_norm_before": true, "activation_function": "relu", "dropout": 0.0, "attention_dropout": 0.0,
 "pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": true}
END
small opt "$T/opt.json" demo
awk 'BEGIN { for (i = 0; i < 60; i++) printf "{\"id\":\"%d\",\"abstract\":\"We study the flow of river %d and find that it grows with the square of %d.\"}\n", i, i, i % 9 }' >"$T/abstracts.jsonl"
tail -n 12 "$T/abstracts.jsonl" >"$T/heldout.jsonl"
EVAL=$T/heldout.jsonl SLICES="0-24 24-48" recipe D-opt-arxiv-fsdp "$T/abstracts.jsonl" --per-device-train-batch-size 2 --gradient-accumulation-steps 2 --max-seq-length 64 \
    --histogram-steps 2
