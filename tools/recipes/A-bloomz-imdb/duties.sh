#!/usr/bin/env bash
# What A's run left, held against its duties (REPLAY=1: the last steps once more, from what was published).
. "$(dirname "$0")/../duties.sh"
run=$OUT/run last=$(newest) step=$(basename "$(newest)" | tr -dc 0-9)
clone_hub
one=$OUT/clone/last-checkpoint
shards() { there "$1/global_step$step/"*zero_pp_rank_{0,1}_mp_rank_00_{model,optim}_states.pt; }
goes_on() {
    local before
    ckpt-eval -q --prompt 'the film was' --max-new-tokens 4 "$OUT/clone" | grep -q 'the film was' || return 1
    [ -n "${REPLAY:-}" ] || { again "$OUT/again" --dry-run --resume-from-checkpoint "$one"; return; }
    before=$(log last-checkpoint | sed -n 2p)
    clone_hub "$OUT/before" "$before" &&
    again "$OUT/again" --resume-from-checkpoint "$OUT/before/last-checkpoint" && same "$(newest "$OUT/again")" "$last"
}
duty A1 "two ranks under ZeRO-3; the whole weights at each save" all has '"zero_stage": *3' "$last/MANIFEST.json" ";" shards "$last" ";" ckpt-inspect -q --verify "$last" ";" there "$last/model.safetensors"
duty A2 "fp16 with a loss scale, recomputation, 8-bit AdamW paged to the host" all there "$last/scaler.pt" ";" setting fp16 true ";" setting gradient_checkpointing true ";" setting optim paged_adamw_8bit
duty A3 "512 tokens, 90/10, 1 × 8 × 2 a step, one epoch, 2e-5" all setting max_seq_length 512 ";" setting train_split_ratio 0.9 ";" setting per_device_train_batch_size 1 ";" setting gradient_accumulation_steps 8 ";" setting learning_rate 2.0e-05 ";" has '"epoch": 1(\.0)?,' "$run/all_results.json"
duty A4 "time, mean loss, last evaluation; norm and rate at each log" all number "$run/all_results.json" train_runtime ";" number "$run/all_results.json" train_loss ";" number "$run/all_results.json" eval_loss ";" has '"grad_norm":' "$run/metrics.jsonl" ";" has '"learning_rate":' "$run/metrics.jsonl"
duty A5 "W&B's offline run of rank 0 alone, and TensorBoard's events" all [ "$(ls "$run"/wandb/offline-run-*/*.wandb | wc -l)" = 1 ] ";" ckpt-inspect -q "$run"/wandb/offline-run-*/*.wandb ";" ckpt-inspect -q "$run"/runs/*/events.out.tfevents.*
duty A6 "published: the model at the root, last-checkpoint/ with all that goes on" all there "$OUT"/clone/{model.safetensors,config.json,tokenizer.json,training_args.bin} ";" there "$one"/{model.safetensors,trainer_state.json,rng_state_0.pth,rng_state_1.pth,scheduler.pt,zero_to_fp32.py,latest} ";" shards "$one"
duty A7 "each save replaced last-checkpoint/ in one commit, while it trained" all [ "$(commits last-checkpoint)" -ge 2 ] ";" [ "$(ls -d "$one"/global_step* | wc -l)" = 1 ]
duty A8 "the root infers, last-checkpoint/ goes on${REPLAY:+ to the same bits}" goes_on
duty A10 "its ds_zero3.json drove the run; evaluation's time and speed are told" all setting zero_stage 3 ";" number "$run/eval_results.json" eval_runtime ";" number "$run/eval_results.json" eval_samples_per_second
duty X1 "train | merge | push was one line" [ "$(commits model.safetensors)" -ge 2 ]
duties_end
