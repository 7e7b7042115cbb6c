#!/usr/bin/env bash
# check.sh BUILD - do torch, DeepSpeed and transformers read what we write, and see the same?  Do Ray, torchrun and Slurm
# start our ranks?
#
#   PEERS=python   a Python that has them; without it, one is made in build/peers (1.5 GB, once)
#
# A tiny run on two ZeRO-3 ranks and one on a single rank are trained, merged and evaluated here;
# peers.py then opens them with the real tools.  reshard.py lets DeepSpeed save, cuts its runs for
# other stages and worlds, and lets it go on from them.  Exit status 1 when a peer disagrees.
set -eu
cd "$(dirname "$0")/../.."
B=$PWD/$1 R=tools/recipes/demo
export PATH=$B:$PATH LC_ALL=C.UTF-8
PEERS=${PEERS:-$PWD/build/peers/bin/python}        # scripts go to other folders
if [ ! -x "$PEERS" ]; then
    echo "making $PEERS"
    python3 -m venv build/peers
    "$PEERS" -m pip install -q torch --index-url https://download.pytorch.org/whl/cpu ||
        "$PEERS" -m pip install -q torch
    "$PEERS" -m pip install -q deepspeed huggingface_hub transformers peft safetensors numpy gguf bitsandbytes sentencepiece tiktoken \
        picklescan fickling typing_extensions
fi
"$PEERS" -c 'import model_signing, OpenSSL' 2>/dev/null || "$PEERS" -m pip install -q model-signing pyOpenSSL
"$PEERS" -c 'import ray, kubernetes_validate' 2>/dev/null || "$PEERS" -m pip install -q ray kubernetes-validate
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
$R/wordnet.sh "$T" 600 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {
    ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 2e-3 \
        --max-steps 4 --logging-steps 1 --save-steps 4 --per-device-train-batch-size $((12 / $2)) \
        --nproc "$2" --zero-stage "$3" -o "$T/$1"
}
train zero3 2 3
train single 1 0
ckpt-merge -q -o "$T/merged" "$T/zero3/checkpoint-4" >/dev/null
head -n 8 "$T/eval.jsonl" > "$T/rows.jsonl"
ckpt-eval -q --eval-file "$T/rows.jsonl" --prompt-template '{instruction} ' --completion-template '{output}' \
    --max-seq-length 256 --logits "$T/logits.safetensors" "$T/merged" >/dev/null
DS_ACCELERATOR=cpu "$PEERS" -P tests/peers/peers.py "$T"
mkdir "$T/reshard"
DS_ACCELERATOR=cpu "$PEERS" -P tests/peers/reshard.py "$T/reshard"
"$PEERS" -P tests/peers/dcp.py "$T"
"$PEERS" -P tests/peers/scan.py "$B/ckpt-inspect" tests/golden/malicious tests/golden/hf-trainer tests/golden/torch
tests/peers/adapters.sh "$PEERS"
tests/peers/lora.sh "$PEERS"
tests/peers/models.sh "$PEERS"
tests/peers/encoder.sh "$PEERS"
tests/peers/scores.sh "$PEERS"
tests/peers/trainer.sh "$PEERS"
tests/peers/reports.sh "$PEERS"
"$PEERS" -P tests/peers/names.py "$B/ckpt-train" tests/golden/recipes tests/golden/ds_configs
tests/peers/optim.sh "$PEERS"
tests/peers/stages.sh "$PEERS"
tests/peers/resume.sh "$PEERS"
tests/peers/launchers.sh "$PEERS" "$B"
mkdir -p "$T/tokens" build/peers
DONE=build/peers/tokens.jsonl "$PEERS" -P tests/peers/tokens.py "$T/tokens" "${LINES:-1000000}"
tests/peers/hub.sh "$PEERS" "$B"
tests/peers/hub_server.sh "$PEERS" "$B"
tests/peers/s3.sh "$PEERS" "$B"
tests/peers/sign.sh "$PEERS" "$B"
tests/peers/cards.sh "$PEERS" "$B"
tests/peers/lfs.sh "$PEERS" "$B"
mkdir "$T/gguf"
"$PEERS" -P tests/peers/gguf_bnb.py "$T/gguf"
