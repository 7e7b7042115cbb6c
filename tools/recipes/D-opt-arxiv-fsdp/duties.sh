#!/usr/bin/env bash
# What D's runs left, held against their duties: duties.sh SLICE...
. "$(dirname "$0")/../duties.sh"
first=$OUT/$1 last=$OUT/${*: -1}
clone_hub
one=$(ls "$last"/opt_1.3B_*.pt)
wandb=$(ls "$last"/wandb/offline-run-*/*.wandb)
goes_on() {     # the second slice's first step follows the first slice's last; so does its epoch
    local a b
    a=$(number "$first/trainer_state.json" global_step) b=$(grep -m 1 '"loss":' "$last/metrics.jsonl" | sed 's/.*"step":\([0-9]*\).*/\1/')
    [ "$b" = $((a + 1)) ] && [ "$(number "$last/all_results.json" epoch | cut -d. -f1)" = $# ]
}
beside() { has 'loss +perplexity' "$OUT/scores.txt" && [ "$(grep -cE '^1 +[^ ]' "$OUT/scores.txt")" -ge 3 ]; }
duty D1 "FULL_SHARD over two workers, fp16, recomputation, clipping at 1.0" all has '"zero_stage": *3' "$(newest "$last")/MANIFEST.json" ";" has '"world_size": *2' "$(newest "$last")/MANIFEST.json" ";" setting fp16 true ";" setting gradient_checkpointing true ";" setting max_grad_norm 1
duty D2 "slices of the data; 4 × 16 × 2" all has '^# ?start_idx|^start_idx' "$OUT/config.yaml" ";" has 'per_device_train_batch_size: 4' "$here/run.yaml" ";" has 'gradient_accumulation_steps: 16' "$here/run.yaml"
duty D3 "opt_1.3B_START-END-epoch-N.pt: the whole state dict, tied head included" all has "opt_1.3B_${2%-*}-${2#*-}-epoch-2.pt" <(echo "$one") ";" has 'lm_head.weight' <(ckpt-inspect "$one") ";" tensors "$one"
duty D4 "the next slice goes on from such a file, with step and epoch" goes_on "$@"
duty D5 "W&B with histograms of parameters and gradients, checkpoints as artifacts, each published" all ckpt-inspect -q "$wandb" ";" has 'gradients/|parameters/' <(ckpt-inspect "$wandb") ";" has "checkpoint_global_step_" "$wandb" ";" there "$OUT"/clone/checkpoint-*/model.safetensors
duty D6 "beside the base: loss on held-out text, and texts" beside
duty D8 "DistributedSampler's order; every checkpoint stays, side by side; strict loading; the next slice goes on" all setting train_sampling_strategy distributed ";" [ "$(ls -d "$OUT"/clone/checkpoint-* | wc -l)" = $# ] ";" goes_on "$@"
duty X1 "train | merge | push was one line" [ "$(commits .)" -ge $# ]
duties_end
