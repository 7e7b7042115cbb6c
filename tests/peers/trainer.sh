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
# The options are those of trainer.py.
train() {
    ckpt-train -q "$@" --train-file "$T/train.jsonl" --prompt-template '{instruction} ' --completion-template '{output}' \
        --max-seq-length 64 --learning-rate 5e-4 --lr-scheduler-type linear --warmup-steps 10 --weight-decay 0.01 \
        --max-grad-norm 1 --seed 42 --max-steps 100 --logging-steps 1 --per-device-train-batch-size 4 >/dev/null
}
fresh() { ckpt-train -q --init "$2" --tokenizer $R/tokenizer --init-only -o "$T/$1" >/dev/null; }
same() { "$PEERS" -P tests/peers/trainer.py "$T/$1" "$T/train.jsonl" "$T/$2/metrics.jsonl" "${@:3}" 2>/dev/null | grep ok; }
fresh bloom $R/config.json
fresh llama "$T/llama.config"
for model in bloom llama; do
    train --model "$T/$model" -o "$T/$model.run"
    same "$model" "$model.run"
done
