#!/usr/bin/env bash
# stages.sh PYTHON - does DeepSpeed itself go on from what ckpt-train saved at each ZeRO stage?
#
# Two ranks train here on the same four rows in every step, save, and go on; stages.py lets real
# engines of the same stage on two ranks load the checkpoint and take the same steps.  The tools come
# from PATH.  Exit status 1 when a loss differs, or a weight that zero_to_fp32 gives.
set -euo pipefail
cd "$(dirname "$0")/../.."
PEERS=$1 R=tools/recipes/demo
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
awk 'BEGIN { srand(7); for (r = 0; r < 4; r++) { s = ""; for (i = 0; i < 32; i++) s = s (i ? "," : "") int(5 + rand() * 4000); print "{\"input_ids\":[" s "],\"labels\":[" s "]}" } }' > "$T/rows.jsonl"
train() {
    ckpt-train -q --model "$T/base" --train-file "$T/rows.jsonl" --max-seq-length 32 --learning-rate 1e-3 --lr-scheduler-type constant \
        --weight-decay 0.1 --max-grad-norm 1 --nproc 2 --per-device-train-batch-size 2 --logging-steps 1 --save-steps 3 \
        --end-idx 4 --state-dict-file 'tiny_{start}-{end}-step-{step}.pt' "$@" >/dev/null
}
failed=0
for how in "1" "2" "3 --stage3-gather-16bit-weights-on-model-save" "1 --bf16"; do
    # shellcheck disable=SC2086
    train --zero-stage $how --max-steps 6 -o "$T/run"
    # shellcheck disable=SC2086
    DS_ACCELERATOR=cpu "$PEERS" -P tests/peers/stages.py "$T" $(sed "s/--stage3.*//; s/--//" <<< "$how") || failed=1
    rm -r "$T/run"
done
exit $failed
