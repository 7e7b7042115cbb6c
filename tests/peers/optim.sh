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
# Experts: three steps from the start are transformers' own, of one tensor for all experts of a layer.
awk 'BEGIN { for (r = 0; r < 4; r++) { s = ""; for (k = 0; k < 24; k++) s = s (k ? "," : "") (7 * r + 131 * k * (r + 3)) % 4000 + 5
    print "{\"input_ids\": [" s "], \"labels\": [" s "]}" } }' >"$T/four.jsonl"
cat >"$T/experts.json" <<'END'
{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 3,
 "num_key_value_heads": 1, "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "hidden_act": "silu",
 "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "initializer_range": 0.1, "vocab_size": 4096, "tie_word_embeddings": false}
END
ckpt-train -q --init "$T/experts.json" --tokenizer $R/tokenizer --init-only -o "$T/moe-base" >/dev/null
moe() {         # RANKS OPTION...
    ckpt-train -q --device cpu --nproc "$1" --zero-stage $(($1 == 1 ? 0 : 3)) --model "$T/moe-base" --train-file "$T/four.jsonl" --max-seq-length 48 \
        --max-steps 3 --logging-steps 1 --save-steps 1 --per-device-train-batch-size $((4 / $1)) --learning-rate 1e-3 --lr-scheduler-type constant \
        --weight-decay 0.01 --max-grad-norm 1 --optim adafactor --optim-args beta1=0.9,scale_parameter=True,clip_threshold=0.5 -o "$T/moe-$1" "${@:2}" >/dev/null
}
moe 1
moe 2
"$PEERS" -P tests/peers/adafactor.py "$T" experts
# Its second checkpoint has the states of experts one by one now, as transformers 4 saves them.
cp "$T/moe-1/checkpoint-3/model.safetensors" "$T/whole.safetensors"
rm -r "$T/moe-1/checkpoint-3"
moe 1 --resume-from-checkpoint "$T/moe-1/checkpoint-2"
cmp "$T/moe-1/checkpoint-3/model.safetensors" "$T/whole.safetensors"
echo "ok a run goes on from states of experts one by one, bit for bit"
# Muon: torch's class makes the same step from ours, and ours goes on from its states, bit for bit.
train muon 3 --device cpu --optim muon --save-steps 1
cp "$T/muon/checkpoint-3/model.safetensors" "$T/whole.safetensors"
"$PEERS" -P tests/peers/muon.py "$T"
rm -r "$T/muon/checkpoint-3"
train muon 3 --device cpu --optim muon --save-steps 1 --resume-from-checkpoint "$T/muon/checkpoint-2"
cmp "$T/muon/checkpoint-3/model.safetensors" "$T/whole.safetensors"
echo "ok a run goes on from what torch's Muon and AdamW saved, bit for bit"
