#!/usr/bin/env bash
# trainer.sh PYTHON - does HF Trainer go through the same losses as ckpt-train, for a hundred steps?
#
# The same fresh weights, data, seed and options for both (trainer.py holds its half of them).  The
# tools come from PATH.  Exit status 1 when a loss differs by more than 1e-4 of itself.
set -euo pipefail
cd "$(dirname "$0")/../.."
PEERS=$1 R=tools/recipes/demo
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
$R/wordnet.sh "$T" 600 >/dev/null
mkdir "$T/llama.config"
cat > "$T/llama.config/config.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 352,
 "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "vocab_size": 4096, "max_position_embeddings": 512, "hidden_act": "silu",
 "initializer_range": 0.02, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2}
END
mkdir "$T/t5.config" "$T/qwen3.config"
cat > "$T/t5.config/config.json" <<'END'
{"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 96, "d_kv": 16, "d_ff": 192,
 "num_layers": 2, "num_decoder_layers": 2, "num_heads": 6, "relative_attention_num_buckets": 32,
 "relative_attention_max_distance": 128, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0, "vocab_size": 4096,
 "layer_norm_epsilon": 1e-6, "initializer_factor": 0.1, "tie_word_embeddings": false, "is_encoder_decoder": true,
 "pad_token_id": 3, "eos_token_id": 2, "decoder_start_token_id": 3}
END
cat > "$T/qwen3.config/config.json" <<'END'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 96, "intermediate_size": 256,
 "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "rms_norm_eps": 1e-6,
 "rope_theta": 1000000.0, "vocab_size": 4096, "max_position_embeddings": 512, "hidden_act": "silu",
 "initializer_range": 0.02, "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2}
END
# The options are those of trainer.py.
train() {
    ckpt-train -q "$@" --train-file "$T/train.jsonl" --prompt-template '{instruction} ' --completion-template '{output}' \
        --max-seq-length 64 --learning-rate 5e-4 --lr-scheduler-type linear --warmup-steps 10 --weight-decay 0.01 \
        --max-grad-norm 1 --seed 42 --max-steps 100 --logging-steps 1 --per-device-train-batch-size 4 >/dev/null
}
fresh() { ckpt-train -q --init "$2" --tokenizer $R/tokenizer --init-only -o "$T/$1" >/dev/null; }
same() { "$PEERS" -P tests/peers/trainer.py "$T/$1" "$T/train.jsonl" "$T/$2/metrics.jsonl" "${@:3}" 2>/dev/null | grep ok; }
fresh bloom $R/config.json
for model in llama t5 qwen3; do fresh $model "$T/$model.config"; done
for model in bloom llama t5; do
    train --model "$T/$model" -o "$T/$model.run"
    same "$model" "$model.run"
done
"$PEERS" -P - "$T/qwen3" "$T/adapter" 2>/dev/null <<'END'
import sys
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
torch.manual_seed(3)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
get_peft_model(model, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules="all-linear",
                                 task_type="CAUSAL_LM")).save_pretrained(sys.argv[2])
END
train --model "$T/qwen3" --adapter "$T/adapter" -o "$T/qwen3.run"
same qwen3 qwen3.run --lora "$T/adapter"
