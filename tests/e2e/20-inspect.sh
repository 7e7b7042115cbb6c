# ckpt-inspect on every kind of file the goldens have.
. "$(dirname "$0")/lib.sh"
for d in "$G"/deepspeed/*/; do
    t "DeepSpeed $(basename "$d")" ckpt-inspect --optimizer "$d/ckpt"
done
for f in "$G"/hf-trainer/*/run/checkpoint-*/{rng_state*.pth,scheduler.pt,training_args.bin,trainer_state.json}; do
    [ -e "$f" ] && t "${f#"$G"/hf-trainer/}" ckpt-inspect --json "$f"
done
t "a checkpoint of HF Trainer with DeepSpeed" bash -c "ckpt-inspect $G/hf-trainer/ds3_w2_bf16/run/checkpoint-4 | grep -q 'random states of a rank'"
t "a decoded generator" bash -c "ckpt-inspect $G/hf-trainer/ds3_w2_bf16/run/checkpoint-4/rng_state_1.pth | grep -q 'python: MT19937'"
t "an adapter" bash -c "ckpt-inspect $G/lora/bloom-qkv/adapter | grep -q 'format: peft'"
t "a model directory" bash -c "ckpt-inspect $G/lora/bloom-qkv/base | grep -q 'format: hf'"
t "statistics" ckpt-inspect --stats --digest "$G/lora/bloom-qkv/base"
t "digests agree across formats" bash -c "
    ckpt-merge -q --tied keep -o $T/x.pt $G/deepspeed/0.19-s3_w2_bf16/ckpt
    d() { ckpt-inspect --json --digest \"\$1\" | sed -nE 's/.*\"name\": (\"[^\"]*\").*\"sha256\": (\"[0-9a-f]{64}\").*/\1 \2/p' | sort | grep .; }
    diff <(d $G/deepspeed/0.19-s3_w2_bf16/ckpt) <(d $T/x.pt)"
expect 0 "equal checkpoints" ckpt-inspect --diff "$G/deepspeed/0.19-s3_w2_bf16/ckpt" "$T/x.pt"
expect 1 "different checkpoints" ckpt-inspect --diff "$G/deepspeed/0.19-s3_w2_fp16/ckpt" "$G/deepspeed/0.19-s3_w1_bf16/ckpt"
row() { grep -qE -- "$1" "$T/.out"; }
expect 1 "a checkpoint and its bf16" bash -c "ckpt-merge -q -o $T/h.safetensors --tied keep --dtype bf16 $T/x.pt && ckpt-inspect --diff --json $T/x.pt $T/h.safetensors"
t "tells both dtypes, a small difference, one direction" row '"difference": "dtype", "first": "F32", "second": "BF16", "elements": [1-9][0-9]*, "relative": 0\.00[0-9]+, "cosine": 0\.9999'
expect 64 "three checkpoints" ckpt-inspect --diff "$T/x.pt" "$T/x.pt" "$T/x.pt"
expect 64 "one checkpoint" ckpt-inspect --diff "$T/x.pt"
expect 64 "two questions" ckpt-inspect --diff --compare "$T/x.pt" "$T/x.pt"
HF=$G/hf-trainer/plain_w1/run
expect 0 "runs side by side" ckpt-inspect --compare "$HF" "$HF/checkpoint-2" "$HF/checkpoint-4"
t "the newest checkpoint's state, and each one's" bash -c "[ \$(grep -cE 'run +4 |checkpoint-4 +4 |checkpoint-2 +2 ' $T/.out) = 3 ]"
expect 0 "two that are no runs" ckpt-inspect --compare "$T/x.pt" "$T/x.pt"
t "are told apart by what they hold" prints "unequal tensors: 0"
expect 66 "one that is none" ckpt-inspect --compare "$HF" "$G/torch" "$HF"
t "says so" says "$G/torch: no run"
expect 0 "statistics as JSON" ckpt-inspect --stats --json "$T/x.pt"
t "with zeros and a histogram" row '"zero_share": 0\.[0-9]+, "nan": 0, "inf": 0, "histogram": \{"low": [^}]*"counts": \[[0-9, ]+\]\}'
expect 0 "a TensorBoard file" ckpt-inspect --json "$G/logs/events.out.tfevents.torch"
t "every number of it" bash -c "[ \$(grep -c '\"tag\": \"train/loss\", \"step\"' $T/.out) = 50 ]"
t "and the sum of each tag" row '"tag": "eval/loss", "kind": "scalar", "count": 5, "first_step": 9, "last_step": 49'
expect 0 "a W&B run" ckpt-inspect --glob 'train/*' "$G/logs/run-gold0001.wandb"
t "with its configuration" row '"learning_rate": 5e-05'
t "and the tags asked for" bash -c "grep -qE '^train/loss +scalar +40 +0 +39 +3 ' $T/.out && ! grep -q '^eval' $T/.out"
expect 0 "a plot of both" ckpt-inspect --plot --glob '*loss' "$G/logs/run-gold0001.wandb" "$G/logs/events.out.tfevents.torch"
t "draws each tag" bash -c "[ \$(grep -cE '^(train|eval).loss, [0-9]+ values, steps' $T/.out) = 4 ]"
expect 64 "tensors of a log" ckpt-inspect --stats "$G/logs/run-gold0001.wandb"
expect 66 "a plot of nothing" ckpt-inspect --plot --glob none "$G/logs/run-gold0001.wandb"
{ cat "$G/logs/events.out.tfevents.tensors"; head -c 20 "$G/logs/events.out.tfevents.tensors"; } > "$T/torn"
expect 0 "a torn event file" ckpt-inspect --verify "$T/torn"
t "says how much is left out" prints "torn end, left out: 20"
{ head -c 400 "$G/logs/events.out.tfevents.tensors"; printf x; tail -c +402 "$G/logs/events.out.tfevents.tensors"; } > "$T/bad"
expect 65 "a damaged event file" ckpt-inspect "$T/bad"
t "says where" says "checksum of an event does not hold"
expect 77 "a pickle that would run something" ckpt-inspect "$G/malicious/pt/bare_pickle_call.pt"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' > "$T/model.safetensors"
expect 65 "a Git LFS pointer" ckpt-inspect "$T/model.safetensors"
t "says what it is" says "Git LFS pointer"
printf '\033[31mx' > "$T/esc"; expect 65 "an escape sequence" ckpt-inspect "$T/esc"
