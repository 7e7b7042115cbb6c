#!/usr/bin/env bash
# A checkpoint that was published as it is by default resumes: from a folder, and from a clone of a bare
# repository with LFS, in each layout.  [A6, E9]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export GIT_CONFIG_GLOBAL=$T/gitconfig GIT_CONFIG_NOSYSTEM=1 HOME=$T
git lfs install >/dev/null 2>&1
go() {          # OUT OPTION...
    local out=$1; shift
    ckpt-train -q --device cpu --model "$G/models/llama-a" --train-file "$G/resume/data.jsonl" --per-device-train-batch-size 2 --nproc 2 --learning-rate 3e-3 \
        --logging-steps 1 --no-final-model --max-steps 4 --save-steps 2 -o "$T/$out" "$@"
}
published() {   # NAME OPTION...
    local name=$1; shift
    t "$name: a run" go run "$@"
    rm -rf "$T"/{folder,hub.git,clone}; mkdir "$T/folder"
    t "$name: published to a folder" ckpt-push -q "$T/folder/ckpt" "$T/run/checkpoint-2"
    t "$name: whole" same_files "$T/run/checkpoint-2" "$T/folder/ckpt"
    t "$name: and to git" ckpt-push -q --create "$T/hub.git" "$T/run/checkpoint-2"
    t "$name: cloned" git clone -q "$T/hub.git" "$T/clone"
    for from in folder/ckpt clone; do
        rm -rf "$T/next"
        t "$name: resumed from $from" go next "$@" --resume-from-checkpoint "$T/$from"
        t "$name: with the same bits" same_state run next
        rm -rf "$T/next"; rm -f "$T/$from/training_args.bin"
        t "$name: without the settings too" go next "$@" --resume-from-checkpoint "$T/$from"
        t "$name: with the same bits" same_state run next
    done
    rm -rf "$T"/{run,next}
}
published "HF Trainer's layout"
published "A8 DeepSpeed's" --zero-stage 2
published "a distributed checkpoint" --zero-stage 3 --checkpoint-format dcp
published "an adapter" --lora-rank 4 --target-modules all-linear --zero-stage 1

# Those of other programs, that have no manifest.
foreign() {     # NAME CHECKPOINT OPTION... - the losses from the clone are those from where it was
    local name=$1 from=$2; shift 2
    rm -rf "$T"/{hub.git,clone,one,two}
    t "$name is published" ckpt-push -q --create "$T/hub.git" "$from"
    t "$name: cloned" git clone -q "$T/hub.git" "$T/clone"
    for how in "one $from" "two $T/clone"; do
        t "$name: resumed" ckpt-train -q --device cpu --train-file "$G/resume/data.jsonl" --per-device-train-batch-size 2 --logging-steps 1 --max-steps 8 \
            --no-final-model --ignore-data-skip -o "$T/${how%% *}" --resume-from-checkpoint "${how#* }" "$@"
    done
    t "$name: with the same losses" same_losses one two
}
foreign "HF Trainer's own" "$G/hf-trainer/plain_w1/run/checkpoint-2"
foreign "FSDP's" "$G/fsdp/trainer/run/checkpoint-4" --model "$G/resume/model"
foreign "accelerate's" "$G/resume/accelerate" --model "$G/resume/model" --initial-step -1
