#!/usr/bin/env bash
# reports.sh PYTHON - what ckpt-train reports, TensorBoard and wandb load: the same numbers.
# PYTHON has tensorboard and wandb, or gets them; the tools are found in PATH.
set -eu
cd "$(dirname "$0")/../.."
R=tools/recipes/demo
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
"$1" -c 'import tensorboard, wandb' 2>/dev/null || "$1" -m pip install -q tensorboard wandb
$R/wordnet.sh "$T" 200 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
head -n 8 "$T/eval.jsonl" > "$T/held.jsonl"
# train OPTION... - six steps, or those after a checkpoint, on two ranks.
train() {
    WANDB_PROJECT=peers WANDB_TAGS=a,b ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --eval-file "$T/held.jsonl" \
        --max-seq-length 64 --max-steps 6 --save-steps 3 --eval-steps 3 --logging-steps 1 --per-device-train-batch-size 2 --nproc 2 \
        --zero-stage 3 --report-to all --histogram-steps 2 --run-name "a run" -o "$T/run" "$@" >/dev/null
}
train
rm -r "$T/run/checkpoint-6"
train --resume-from-checkpoint latest
WANDB_LOG_MODEL=checkpoint ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 4 --save-steps 2 \
    --nproc 2 --zero-stage 3 --report-to wandb -o "$T/artifacts" >/dev/null
"$1" -P tests/peers/reports.py "$T/run" "$T/artifacts" 2>/dev/null
