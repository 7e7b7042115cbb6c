#!/usr/bin/env bash
# lora.sh PYTHON - adapters in training: what ckpt-train saved, PEFT loads, and what PEFT saved,
# ckpt-eval puts beside the model, in every family: the same logits.
# PYTHON has torch, transformers and peft; the tools are found in PATH.
set -eu
cd "$(dirname "$0")/../.."
M=tests/golden/models
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
models="bloom-a opt-a opt-350m opt-bare gpt2-b llama-a mistral-sw qwen2-a qwen3-a phi3-a mixtral-a qwen3moe-a t5-v10 t5-v11"
eval_with() { ckpt-eval -q --eval-file "$M/$1/rows.jsonl" --adapter "$2" --logits "$T/$3.safetensors" "$M/$1" >/dev/null; }
make() {
    ckpt-train -q --model "$M/$1" --train-file "$M/$1/rows.jsonl" --learning-rate 5e-2 --max-steps 2 --per-device-train-batch-size 1 \
        --lora-rank 4 --lora-alpha 12 --lora-dropout 0 "${@:3}" -o "$T/run" >/dev/null
    mv "$T/run/checkpoint-2" "$T/$2.ours"
    rm -r "$T/run"
}
for m in $models; do
    # The experts of these are no modules of their own in transformers 5.
    case $m in mixtral-* | qwen3moe-*) targets="q_proj,v_proj,o_proj" ;; *) targets=all-linear ;; esac
    make "$m" "$m@plain" --target-modules "$targets"
    make "$m" "$m@rs" --target-modules "$targets" --use-rslora
    case $m in gpt2-b | llama-a | qwen3-a | t5-v11) make "$m" "$m@dora" --target-modules "$targets" --use-dora ;; esac
done
make llama-a llama-a@saved --target-modules q_proj,v_proj --modules-to-save lm_head
make qwen2-a qwen2-a@rows --target-modules q_proj --trainable-token-indices 7,9,30
make llama-a llama-a@embed --target-modules q_proj,embed_tokens
make bloom-a bloom-a@bias --target-modules query_key_value,dense --lora-bias lora_only
make qwen3-a qwen3-a@ranks --target-modules all-linear --rank-pattern q_proj=2 --alpha-pattern v_proj=3
"$1" -P tests/peers/lora.py make "$M" "$T" 2>/dev/null
for a in "$T"/*.ours "$T"/*.theirs; do
    name=$(basename "$a")
    eval_with "${name%%@*}" "$a" "$name"
done
"$1" -P tests/peers/lora.py check "$M" "$T" 2>/dev/null
