#!/usr/bin/env bash
# adapters.sh PYTHON - adapters written and extracted here, loaded by PEFT over their base.
# PYTHON has torch, transformers and peft; ckpt-merge is found in PATH.
set -eu
cd "$(dirname "$0")/../.."
G=tests/golden/lora
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
for name in bloom-qkv gpt2-conv1d gpt2-dora llama-all-linear llama-embed llama-patterns llama-dora t5-qv mixtral-attn \
    qwen2-lora-bias opt-bias-all llama-resized-tied llama-resized-lora llama-tied-save; do
    rank=8
    case $name in *dora) rank=24 ;; esac
    ckpt-merge -q --adapter "$G/$name/adapter" -o "$T/$name-full" "$G/$name/base" >/dev/null
    ckpt-merge -q --extract-adapter $rank --base "$G/$name/base" -o "$T/$name-adapter" "$T/$name-full" >/dev/null
    ckpt-merge -q --to peft -o "$T/$name-same" "$G/$name/adapter" >/dev/null
done
"$1" -P tests/peers/adapters.py "$G" "$T"
