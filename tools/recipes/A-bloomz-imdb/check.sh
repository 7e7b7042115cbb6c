# The duties of system A, as its run left them.
clone=$out/clone L=$out/clone/last-checkpoint S=$(basename "$(newest "$out/run")") ; S=${S#checkpoint-}
state() { grep -oE "\"$1\": [0-9.e+-]+" "$out/run/all_results.json" | cut -d' ' -f2; }
all() { local f; for f; do [ -s "$f" ] || { echo "$f: absent"; return 1; }; done; }
shards() { [ "$(find "$L/global_step$S" -name 'zero_pp_rank_[01]_mp_rank_00_*_states.pt' | wc -l)" = 4 ] && ckpt-inspect -q --verify "$L" && all "$L/model.safetensors"; }
batches() {
    awk -v t="$(wc -l <"$out"/data/imdb/*/*/training.jsonl)" -v v="$(wc -l <"$out"/data/imdb/*/*/validation.jsonl)" -v s="$S" \
        'BEGIN { r = t / (t + v); exit !(r > 0.89 && r < 0.91 && (s == int((t + 15) / 16) || t > 10000)) }' &&
        ckpt-inspect --args "$L" | grep -qE '^learning_rate +2e-05$'
}
plan() {        # bloomz-1b1, two GPUs of 16 GB of which 15 are used
    ckpt-train --dry-run --config "$system/task.yaml" --config "$system/run.yaml" --deepspeed "$system/ds_zero3.json" --nproc 2 --init "$top/tools/recipes/configs/bloomz-1b1.json" --tokenizer "$golden/saved/bloom" \
        --train-file "${DATA:-$golden/hf-imdb/data/train-*}" --train-split-ratio 0 --eval-strategy no --device-memory-limit 15G -o "$out/none" "$@" 2>&1
}
states() { grep -oE 'optimizer [0-9.]+' <<<"$1" | head -n 1 | cut -d' ' -f2; }
fits() {        # moments of a byte but for the embedding, beside masters of four
    local paged whole; paged=$(plan) && whole=$(plan --optim adamw_torch) || return
    echo "$paged"; awk -v a="$(states "$paged")" -v b="$(states "$whole")" 'BEGIN { exit !(a > 0 && a <= 0.7 * b) }'
}
asked() { ckpt-inspect --args "$L" >"$out/.args" && grep -qiE '^fp16 +true' "$out/.args" && grep -qiE '^gradient_checkpointing +true' "$out/.args" && grep -qE '^optim .*paged_adamw_8bit' "$out/.args"; }
scaled() { [ -s "$L/scaler.pt" ] || ckpt-inspect --tree "$L/global_step$S/zero_pp_rank_0_mp_rank_00_optim_states.pt" | grep -q loss_scale; }
told() { grep -qE 'trained [0-9]+ steps in .* s, mean loss [0-9.]+' "$out/log" && [ -n "$(state train_loss)" ] && [ -n "$(state eval_loss)" ] && grep -q '"grad_norm":.*"learning_rate":' "$out/run/metrics.jsonl"; }
reports() { [ "$(find "$out/run/wandb" -name 'run-*.wandb' | wc -l)$(find "$out/run/runs" -name 'events*' | wc -l)" = 11 ] && ckpt-inspect -q "$out"/run/wandb/offline*/run-*.wandb "$out"/run/runs/*/events* >/dev/null; }
published() {
    all "$clone"/{model.safetensors,config.json,tokenizer.json,tokenizer_config.json,training_args.bin} \
        "$L"/{model.safetensors,config.json,trainer_state.json,rng_state_0.pth,rng_state_1.pth,scheduler.pt,zero_to_fp32.py,latest,training_args.bin} &&
        [ "$(cat "$L/latest")" = "global_step$S" ] && shards && ! ls "$L" | grep -v "global_step$S" | grep global_step
}
commits() { local n; n=$(git --git-dir "$hub" log --format=%s main -- last-checkpoint | wc -l); [ "$n" -ge 2 ] && [ "$(git --git-dir "$hub" ls-tree --name-only main:last-checkpoint | grep -c global_step)" = 1 ]; }
loss() { ckpt-eval -q --json "${task[@]}" "$1" | loss_of; }
inference() { ckpt-eval -q --prompt "Review: good
Sentiment:" --max-new-tokens 4 "$clone" && [ "$(loss "$clone")" = "$(loss "$out/model")" ] && [ -n "$(loss "$clone")" ]; }
# From the first save to the end once more, then from the clone five steps beyond the end: the same bits as from here.
further() { ckpt-train -q --config "$system/task.yaml" --config "$system/run.yaml" --deepspeed "$system/ds_zero3.json" --nproc "$nproc" "${model[@]}" ${DATA:+--train-file "$DATA"} --data-dir "$out/data" --dataset-name imdb \
    --report-to none --no-final-model "${more[@]}" --num-train-epochs 2 --max-steps $((S + 3)) --resume-from-checkpoint "$1" -o "$2"; }
resumes() { further "$L" "$out/a" && further "$(newest "$out/run")" "$out/b" && same_state "$out/a/checkpoint-$((S + 3))" "$out/b/checkpoint-$((S + 3))"; }
root() { (cd "$out/model" && find . -type f | sort | xargs sha256sum) | (cd "$clone" && sha256sum -c --quiet); }
looks() { find "$clone" "$out/run" -type f \( -name '*.pt' -o -name '*.pth' -o -name '*.bin' -o -name '*.safetensors' -o -name 'trainer_state.json' -o -name 'events*' -o -name '*.wandb' \) -print0 | ckpt-inspect -q -0 >/dev/null; }

judged() { beside accuracy --task multiple-choice --choice 0 --choice 1 --prompt-template "Review: {text}
Sentiment:" --max-seq-length 512 "${task[@]:2}" "$out/model"; }
# Two steps laid out as Ray Train does; GPUs tell NCCL's variables.  The run's own evaluation has its time and throughput.
ray_layout() {
    NCCL_P2P_DISABLE=1 ckpt-train --config "$system/task.yaml" --config "$system/run.yaml" --deepspeed "$system/ds_zero3.json" --nproc "$nproc" "${model[@]}" ${DATA:+--train-file "$DATA"} --data-dir "$out/data" --dataset-name imdb \
        --report-to none --no-final-model "${more[@]}" --save-steps 1 --max-steps 2 --output-layout ray -o "$out/ray" >"$out/.paths" 2>"$out/.ray" || { cat "$out/.ray"; return 1; }
    diff "$out/.paths" <(ls -d "$out"/ray/TorchTrainer_*/checkpoint_00000[01]) && ckpt-inspect -q "$out/ray" >/dev/null && ckpt-merge -q -o "$out/of-ray" "$out/ray" && all "$out"/of-ray/{model.safetensors,config.json,tokenizer.json} &&
        { [ -n "${SMALL:-}" ] || grep -q "NCCL's environment:.* NCCL_P2P_DISABLE=1" "$out/.ray"; } && rm -rf "$out"/{ray,of-ray}
}
driven() { grep -q 'ZeRO stage 3' "$out/log" && [ -n "$(state eval_runtime)" ] && [ -n "$(state eval_samples_per_second)" ]; }
cloned "$hub" "$clone"
duty A1 "two workers, ZeRO-3: four files of shards, and the gathered weights beside them" shards
duty A2 "fp16 with a scale that adapts, recomputed blocks, paged 8-bit AdamW; bloomz-1b1's plan is within 15 GB" eval 'asked && scaled && fits'
duty A3 "texts with labels, split 90/10, 16 texts a step over one epoch, rate 2e-5" batches
duty A4 "time, mean loss, evaluation; gradient norm and learning rate of each line" told
duty A5 "one W&B run, one TensorBoard file" reports
duty A6 "the clone has every file of the root and of last-checkpoint/" published
duty A7 "each save was one commit that replaced last-checkpoint/" commits
duty A8 "the clone's root scores as what was sent; last-checkpoint/ goes on to the same bits" eval 'inference && resumes'
duty A10 "ds_zero3.json drives it, NCCL's variables are told, Ray Train's layout is written and read, an evaluation has its throughput" eval 'driven && ray_layout'
duty X3 "accuracy of the labels beside the base's, by likelihood; every prediction is kept" judged
duty X1 "one line: train, publish each save, merge, evaluate, publish the model; the clone has its bytes" root
duty X2 "every file left behind is inspected" looks
ticks
