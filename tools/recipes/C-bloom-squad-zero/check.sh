# The duties of system C, as its runs left them.
all() { local f; for f; do [ -s "$f" ] || { echo "$f: absent"; return 1; }; done; }
rest=${settings#baseline }
near() { paste <(losses "$1") <(losses "$2") | awk '{ d = ($1 - $2) / $1; if (d > 2e-3 || d < -2e-3) { bad = 1; print } } END { exit bad || NR < 2 }'; }
baseline() {
    local each; each=$(grep -c '"eval_loss"' "$out/baseline/metrics.jsonl")
    [ "$each" = 3 ] && [ "$(find "$out/baseline" -maxdepth 1 -name 'checkpoint-*' | wc -l)" = 3 ] && ckpt-inspect --args "$(newest "$out/baseline")" >"$out/.args" &&
        grep -qE '^num_train_epochs +3' "$out/.args" && grep -qE '^weight_decay +0.01' "$out/.args" && grep -qE '^learning_rate +5e-05' "$out/.args" && grep -qiE '^fp16 +true' "$out/.args"
}
stages() { local s; for s in $rest; do near "$out/baseline" "$out/$s" || { echo "$s"; return 1; }; done; }
summary() {
    local f; for f in train_loss train_samples_per_second eval_samples_per_second eval_loss; do grep -q "\"$f\"" "$out/baseline/all_results.json" || { echo "no $f"; return 1; }; done
    # The table at the end has a line an epoch, each as many steps behind the one before.
    sed -n '/evaluations$/,$p' "$out/baseline.log" | awk '$2 ~ /^[0-9]+$/ && NF == 5 { if (n++ && $2 - last != each) bad = 1; each = each ? each : $2; last = $2 } END { exit bad || n != 3 }' 
}
memory() {
    local s; for s in $settings; do head -n 1 "$out/$s/memory.csv" | grep -q '^timestamp, index, name, memory.used .MiB., ' || { echo "$s"; return 1; }; done
    (cd "$out" && ckpt-inspect --compare --plot $settings >table.txt) && grep -q 'peak MiB' "$out/table.txt" && grep -q '^memory.used' "$out/table.txt" &&
        ckpt-inspect --json "$out/zero3/memory.csv" | grep -qE '"min": .*"max": .*"mean": '
}
# Every batch script: srun gets the setting's options (a stand-in for it plans the run); mpirun; a file of hosts.
batch() {
    local s; mkdir -p "$out/bin"; printf '#!/bin/sh\nwhile [ "$1" != ckpt-train ]; do shift; done; exec "$@" --dry-run\n' >"$out/bin/srun"; chmod +x "$out/bin/srun"
    for s in $settings; do
        (cd "$out" && SLURM_SUBMIT_DIR=$top SLURM_JOB_ID=7 PATH=$out/bin:$PATH bash "$system/slurm/$s.sbatch" "${model[@]}" --train-file "$DATA" --eval-file "$DATA" "${more[@]}") >"$out/.sbatch" 2>&1 || { cat "$out/.sbatch"; return 1; }
    done
}
few=("${task[@]}" --config "$system/run.yaml" --deepspeed "$system/zero2.json" "${model[@]}" --train-file "$DATA" --eval-file "$DATA" "${more[@]}" --max-steps 2)
launchers() {
    printf 'localhost slots=2\n' >"$out/hosts"
    CKPT_SSH=/nowhere ckpt-train -q "${few[@]}" --hostfile "$out/hosts" -o "$out/hosted" || return
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none mpirun --oversubscribe --bind-to none --quiet -np 2 ckpt-train -q "${few[@]}" -o "$out/mpi" &&
        near "$out/hosted" "$out/mpi"
}
choices() {     # slots, and some of them
    printf 'localhost slots=3\n' >"$out/hosts3"
    CKPT_SSH=/nowhere ckpt-train "${few[@]}" --hostfile "$out/hosts3" --include localhost:0,2 --dry-run -o "$out/none" 2>&1 | grep -q 'ranks: 2 ' &&
        ckpt-train "${few[@]}" --hostfile "$out/hosts3" --num-gpus 2 --dry-run -o "$out/none" 2>&1 | grep -q 'ranks: 2 ' &&
        ckpt-train "${few[@]}" --hostfile "$out/hosts3" --exclude localhost:1 --dry-run -o "$out/none" 2>&1 | grep -q 'ranks: 2 '
}
final() { all "$out/baseline"/{model.safetensors,config.json,tokenizer.json} && grep -qE ' loss=[0-9.]+' "$out/baseline.log" && grep -qE ' eval_loss=[0-9.]+' "$out/baseline.log"; }
padded() { ckpt-train -q "${few[@]:0:4}" "${model[@]}" --train-file "$DATA" --eval-file "$DATA" "${more[@]}" --device cpu --loss-on-padding --padding-side left --max-steps 2 -o "$out/padded"; }
# The file's optimizer, schedule, clipping and automatic sizes; one rank beside two in one table.
obeyed() {
    ckpt-train "${few[@]}" --max-grad-norm 0.5 --warmup-steps 3 --print-config | sed 's/^# //; s/  # .*//' >"$out/.config" && grep -qx 'lr_scheduler_type: WarmupDecayLR' "$out/.config" &&
        grep -qx 'weight_decay: 0.01' "$out/.config" && grep -qx 'max_grad_norm: 0.5' "$out/.config" || return
    ckpt-train -q "${few[@]}" -o "$out/alone" && ckpt-inspect --compare "$out/alone" "$out/zero2" >"$out/.two" && [ "$(grep -cE '/(alone|zero2) ' "$out/.two")" -ge 2 ]
}
cloned "$hub" "$out/clone"
root() { [ "$(ls "$out/clone" | wc -w)" = "$(wc -w <<<"$settings")" ] && (cd "$(cat "$out/newest")" && find . -type f | sort | xargs sha256sum) | (cd "$out/clone/$s" && sha256sum -c --quiet); }
looks() { ckpt-inspect -q "$(newest "$out/zero3")" "$out/zero3/memory.csv" >/dev/null && ckpt-inspect -q --optimizer "$(newest "$out/zero1")" >/dev/null; }

duty C1 "a baseline of 3 epochs, rate 5e-5, decay 0.01, fp16; evaluated and saved each epoch" baseline
duty C2 "ds_config.json with auto: stages 1, 2, 3, optimizer and parameters on the host; the baseline's losses" stages
duty C3 "losses by epoch, samples per second of training and evaluation, steps per epoch" summary
duty C4 "memory as nvidia-smi's CSV; peaks in one table, all settings in one plot" memory
duty C5 "a batch script a setting; mpirun and a file of hosts" eval 'batch && launchers'
duty C6 "slots, include, exclude, a number of them" choices
duty C7 "model and tokenizer in the root; loss= and eval_loss= lines; a loss on padding" eval 'final && padded'
duty C8 "optimizer, schedule, clipping, automatic sizes obeyed; one rank beside two" obeyed
duty X1 "one line: train, merge, evaluate, publish; the clone has the bytes of each" root
duty X2 "shards, optimizer and memory are inspected" looks
ticks
