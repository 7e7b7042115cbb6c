#!/usr/bin/env bash
# resume.sh PYTHON - does HF Trainer go on from what ckpt-train saved after it had gone on from another program?
#
# A run of ckpt-train resumes from a checkpoint of HF Trainer, accelerate, FSDP, torch.distributed.checkpoint or
# DeepSpeed, saves its sixth step and goes on to the eighth; the Trainer takes the same two steps from there, alone,
# with FSDP and with DeepSpeed.  The tools come from PATH.  Exit status 1 when a loss differs by more than 1e-5 of itself.
set -euo pipefail
cd "$(dirname "$0")/../.."
PEERS=$1 G=$PWD/tests/golden R=tests/golden/resume
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
failed=0
# run NAME CHECKPOINT OPTION... - from there to step 8, saving 6
run() {
    local name=$1 from=$2; shift 2
    ckpt-train -q --device cpu --train-file $R/data.jsonl --per-device-train-batch-size 2 --learning-rate 3e-3 --warmup-steps 1 --weight-decay 0.01 \
        --seed 1 --train-sampling-strategy sequential --logging-steps 1 --max-steps 8 --save-steps 6 --no-final-model \
        -o "$T/$name" --resume-from-checkpoint "$from" "$@" >/dev/null
}
two=(--nproc 2 --per-device-train-batch-size 1)
on() { "$PEERS" -P tests/peers/resume.py "$T/$1" "${@:2}" || failed=1; }
model=(--model $R/model)

run accelerate $R/accelerate "${model[@]}"
on accelerate 6 plain 1
run accelerate-dcp $R/accelerate "${model[@]}" "${two[@]}" --zero-stage 3 --checkpoint-format dcp
on accelerate-dcp 6 fsdp 2
run dcp $R/dcp "${model[@]}" "${two[@]}" --zero-stage 2 --checkpoint-format dcp
on dcp 6 fsdp 2
run dcp-ds $R/dcp "${model[@]}" "${two[@]}" --zero-stage 2
on dcp-ds 6 ds2 2
mv "$T/dcp-ds/checkpoint-6" "$T/engine"; rm "$T/engine"/{MANIFEST.json,training_args.bin,rng_state*}
run deepspeed "$T/engine" "${two[@]}" --zero-stage 3 --save-steps 7
on deepspeed 7 ds3 2
run sgd $R/sgd --optim sgd --optim-args momentum=0.9
on sgd 6 plain 1 optim=sgd optim_args=momentum=0.9
run sgd-dcp $R/sgd --optim sgd --optim-args momentum=0.9 --checkpoint-format dcp
on sgd-dcp 6 fsdp 2 optim=sgd optim_args=momentum=0.9
if "$PEERS" -c 'import bitsandbytes' 2>/dev/null; then
    run lion $R/lion --optim lion_32bit
    on lion 6 plain 1 optim=lion_32bit
fi
exit $failed
