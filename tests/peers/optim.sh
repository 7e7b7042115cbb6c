#!/usr/bin/env bash
# optim.sh PYTHON - do torch, transformers and bitsandbytes take the optimizer.pt and scaler.pt that ckpt-train writes, and it theirs?
#
# The tools come from PATH.  Exit status 1 when one disagrees (optim.py tells).
set -euo pipefail
cd "$(dirname "$0")/../.."
PEERS=$1 R=tools/recipes/demo
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
$R/wordnet.sh "$T" 300 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
train() {
    ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps "$2" --save-steps 2 \
        --per-device-train-batch-size 4 --lr-scheduler-type constant -o "$T/$1" "${@:3}" >/dev/null
}
train coded 2 --optim adamw_8bit
train bf16 2 --optim adamw_anyprecision
train half 2 --fp16
"$PEERS" -P tests/peers/optim.py "$T"
train coded 3 --optim adamw_8bit --resume-from-checkpoint "$T/coded/checkpoint-2"       # now with their optimizer.pt
echo "ok a run goes on from what bitsandbytes saved"
# Adafactor: transformers loads ours, and ours goes on from its file as from its own, bit for bit.
train factored 3 --device cpu --optim adafactor --save-steps 1
cp "$T/factored/checkpoint-3/model.safetensors" "$T/whole.safetensors"
rm -r "$T/factored/checkpoint-3"
"$PEERS" -P tests/peers/adafactor.py "$T"
train factored 3 --device cpu --optim adafactor --save-steps 1 --resume-from-checkpoint "$T/factored/checkpoint-2"
cmp "$T/factored/checkpoint-3/model.safetensors" "$T/whole.safetensors"
echo "ok a run goes on from what transformers' Adafactor saved, bit for bit"
# Muon: torch's class makes the same step from ours, and ours goes on from its states, bit for bit.
train muon 3 --device cpu --optim muon --save-steps 1
cp "$T/muon/checkpoint-3/model.safetensors" "$T/whole.safetensors"
"$PEERS" -P tests/peers/muon.py "$T"
rm -r "$T/muon/checkpoint-3"
train muon 3 --device cpu --optim muon --save-steps 1 --resume-from-checkpoint "$T/muon/checkpoint-2"
cmp "$T/muon/checkpoint-3/model.safetensors" "$T/whole.safetensors"
echo "ok a run goes on from what torch's Muon and AdamW saved, bit for bit"
