#!/usr/bin/env bash
# models.sh PYTHON - every family beside transformers' own modules: fresh weights are distributed
# alike, the states of optimizer.pt are those of its parameters, generation takes its defaults.
# PYTHON has torch and transformers; the tools are found in PATH.
set -eu
cd "$(dirname "$0")/../.."
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
tools/recipes/demo/wordnet.sh "$T" 40 >/dev/null
for config in tests/golden/models/*/config.json; do
    m=$(basename "$(dirname "$config")")
    case $m in bert-* | roberta-*) continue ;; esac
    # Wide enough for means and deviations to tell something, and for the demo's tokenizer.
    "$1" -P - "$config" "$T/$m.json" <<'END'
import json
import sys
c = json.load(open(sys.argv[1], encoding="utf-8"))
c.update(vocab_size=4096, bos_token_id=1, eos_token_id=2)
c["pad_token_id"] = 3 if c["model_type"] != "t5" else 0
if c["model_type"] == "t5":
    c["initializer_factor"] = 0.5
else:
    c["init_std" if c["model_type"] == "opt" else "initializer_range"] = 0.05
json.dump(c, open(sys.argv[2], "w", encoding="utf-8"))
END
    ckpt-train -q --init "$T/$m.json" --tokenizer tools/recipes/demo/tokenizer --init-only -o "$T/$m" >/dev/null
    ckpt-train -q --model "$T/$m" --train-file "$T/train.jsonl" --prompt-template '{instruction} ' \
        --completion-template '{output}' --max-seq-length 32 --max-steps 1 --per-device-train-batch-size 4 \
        --learning-rate 1e-3 --dump-grads "$T/$m.grads" -o "$T/$m.run" >/dev/null
done
# The routers' loss where the head is tied: a step's gradients beside transformers'.
for m in qwen3moe-a mixtral-a; do
    mkdir "$T/aux.$m"
    sed 's/"tie_word_embeddings": *false/"tie_word_embeddings": true/; s/"output_router_logits": *false/"output_router_logits": true/
         s/"router_aux_loss_coef": *[0-9.e-]*/"router_aux_loss_coef": 0.5/; s/"vocab_size": *[0-9]*/"vocab_size": 4096/' "tests/golden/models/$m/config.json" > "$T/aux.$m/config.json"
    head -n 1 "tests/golden/models/$m/rows.jsonl" > "$T/aux.$m/row.jsonl"
    ckpt-train -q --init "$T/aux.$m/config.json" --tokenizer tools/recipes/demo/tokenizer --init-only -o "$T/aux.$m/model" >/dev/null
    ckpt-train -q --model "$T/aux.$m/model" --train-file "$T/aux.$m/row.jsonl" --max-steps 1 --per-device-train-batch-size 1 \
        --logging-steps 1 --dump-grads "$T/aux.$m/grads" -o "$T/aux.$m/run" >/dev/null
done
"$1" -P tests/peers/models.py "$T" 2>/dev/null
