#!/usr/bin/env bash
# What C's runs left, held against its duties: duties.sh SETTING...
. "$(dirname "$0")/../duties.sh"
clone_hub
last=${*: -1} with=("$@")
[ "$1" != 0 ] || with=("${@:2}")
each() { local s; for s in "${with[@]}"; do "$@" "$OUT/$s" || return 1; done; }     # COMMAND... with each run under ZeRO
number_in() { number "$3/$1" "$2"; }
# the losses of all settings are those of the first
alike() { diff <(losses "$OUT/${with[0]}") <(losses "$1"); }
stages() { local s; for s in "${with[@]}"; do has "\"zero_stage\": *${s%%-*}" "$(newest "$OUT/$s")/MANIFEST.json" || return 1; done; }
# its own loss: labels that are padded inputs
padded() { again "$OUT/padded" --loss-on-padding --max-steps 2 --eval-strategy no --save-strategy no && losses "$OUT/padded"; }
# obeyed SETTING VALUE - of the ds_config.
obeyed() { OUT=$tmp setting "$@"; }
ckpt-train --print-config --config "$here/run.yaml" --model "$MODEL" --train-file "$DATA" --deepspeed "$OUT/ds_$last.json" --nproc "$NPROC" -o "$OUT/none" >"$tmp/config.yaml" 2>/dev/null
duty C1 "the baseline: 500 examples, 512 tokens, 3 epochs, 4 × 4, 5e-5, 0.01, fp16, evaluated and saved by epoch" all there "$OUT/0/all_results.json" ";" setting num_train_epochs 3 ";" setting per_device_train_batch_size 4 ";" setting learning_rate 5.0e-05 ";" setting weight_decay 0.01 ";" setting fp16 true ";" setting eval_strategy epoch ";" setting save_strategy epoch ";" has 'max_seq_length: 512' "$here/run.yaml"
duty C2 "one ds_config.json with auto drives each stage, with and without offload, to the same losses" all stages ";" each alike
duty C3 "a table: final loss, evaluations, samples a second, steps" all has 'last loss +mean loss +eval loss' "$OUT/table.txt" ";" has 'samples/s' "$OUT/table.txt" ";" each number_in all_results.json train_loss ";" has 'evaluations' "$OUT/$last.log"
duty C4 "memory in nvidia-smi's columns; its peak, mean and least; one table and one plot" all has '^timestamp, index, name, memory.used \[MiB\]' "$OUT/$last/memory.csv" ";" has 'peak MiB +mean MiB +least MiB' "$OUT/table.txt" ";" has '^memory.used \[MiB\] by seconds' "$OUT/table.txt" ";" there "$OUT/table.html"
duty C7 "model and tokenizer at the root; loss on padding on request; lines that grep finds" all there "$OUT/$last"/{model.safetensors,config.json,tokenizer.json} ";" padded ";" has '(^| )loss=[0-9.]+' "$OUT/$last.log" ";" has 'eval_loss=[0-9.]+' "$OUT/$last.log"
duty C8 "optimizer, schedule, clipping and batch of the ds_config are obeyed" all obeyed optim adamw_torch ";" obeyed lr_scheduler_type WarmupLR ";" obeyed zero_stage "${last%%-*}" ";" obeyed max_grad_norm 1
duty X1 "train | merge | push was one line" [ "$(commits "zero-$last/model.safetensors")" -ge 1 ]
duties_end
