#!/usr/bin/env bash
# scores.sh PYTHON - the figures of ckpt-eval beside those of lm-evaluation-harness and bert_score.
#
# PYTHON has torch, transformers and pip; the tools are found in PATH.
set -eu
cd "$(dirname "$0")/../.."
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
"$1" -c 'import lm_eval, accelerate, bert_score' 2>/dev/null || "$1" -m pip install -q lm_eval accelerate bert_score
HF_HUB_OFFLINE=1 HF_DATASETS_CACHE=$T/cache "$1" -P tests/peers/scores.py "$T" 2>"$T/err" || { tail -n 5 "$T/err"; exit 1; }
