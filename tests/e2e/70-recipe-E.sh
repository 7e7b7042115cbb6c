# System E by its recipe, small, on two ranks of the CPU: from raw data to a clone of what was published.  E1 to E10
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/recipes.sh"
cat >"$T/qwen.json" <<'END'
{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "head_dim": 16, "intermediate_size": 128, "vocab_size": 4096, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
 "tie_word_embeddings": false, "hidden_act": "silu", "attention_bias": false, "bos_token_id": 1, "eos_token_id": 2}
END
small qwen "$T/qwen.json" demo
awk 'BEGIN { for (i = 0; i < 100; i++) printf "{\"question\":\"what is %d plus %d\",\"answer\":\"%d\"}\n", i, i % 7, i + i % 7 }' >"$T/sums.jsonl"
NAME=sums recipe E-lora-sft "$T/sums.jsonl" --prompt-template 'Question: {question} Answer: ' --completion-template '{answer}' --max-steps 8 --eval-strategy steps \
    --eval-steps 2 --max-seq-length 64 --logging-steps 1 --learning-rate 1e-3
