# The duties of system C, as its runs left them.
all() { local f; for f; do [ -s "$f" ] || { echo "$f: absent"; return 1; }; done; }
rest=${settings#baseline }
# near RUN RUN [BOUND] - the same losses, within their relative difference, as far as the first goes.
near() { paste <(losses "$1") <(losses "$2" | head -n "$(losses "$1" | wc -l)") | awk -v most="${3:-2e-3}" '{ d = ($1 - $2) / $1; if (d > most || d < -most) { bad = 1; print } } END { exit bad || NR < 2 }'; }
# The system's numbers, as its files come to them (a rehearsal is smaller by options); what a text looks like.
asked() {
    ckpt-train "${task[@]}" --config "$system/run.yaml" --print-config | sed 's/^# //; s/  # .*//' | sort >"$out/.values"
    local want
    while read -r want; do grep -qxF -- "$want" "$out/.values" || { echo "no $want"; return 1; }; done <<'END'
train_split: "train[:500]"
num_train_epochs: 3
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
learning_rate: 5.0e-05
weight_decay: 0.01
fp16: true
eval_strategy: epoch
save_strategy: epoch
max_seq_length: 512
train_on_prompt: true
prompt_template: "Question: {question} Context: {context} Answer: "
END
}
baseline() {
    local each; each=$(grep -c '"eval_loss"' "$out/baseline/metrics.jsonl")
    [ "$each" = 3 ] && [ "$(find "$out/baseline" -maxdepth 1 -name 'checkpoint-*' | wc -l)" = 3 ] && ckpt-inspect --args "$(newest "$out/baseline")" >"$out/.args" &&
        grep -qE '^num_train_epochs +3' "$out/.args" && grep -qE '^weight_decay +0.01' "$out/.args" && grep -qE '^learning_rate +5e-05' "$out/.args" && grep -qiE '^fp16 +true' "$out/.args"
}
# The same losses without ZeRO; by the files' schedule, whose first step has a rate of 0 where the baseline's has the whole.
stages() {
    local s
    $(train_on "$nproc") -q "${task[@]}" --config "$system/run.yaml" --lr-scheduler-type WarmupDecayLR "${model[@]}" --train-file "$DATA" --eval-strategy no --save-strategy no --no-final-model -o "$out/plain" "${more[@]}" || return
    for s in $rest; do near "$out/plain" "$out/$s" || { echo "$s"; return 1; }; done
}
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
# Every batch script asks for two nodes and gives srun the setting's options; a stand-in for srun plans the run.  One of them trains,
# in two tasks with the variables of Slurm, to the losses of --nproc.
batch() {
    local s; mkdir -p "$out/bin" && cat >"$out/bin/srun" <<'END' && chmod +x "$out/bin/srun" || return
#!/bin/sh
while [ "$1" != ckpt-train ]; do shift; done
echo "$*"
[ "$TASKS" = 2 ] || exec "$@" --dry-run
task() { SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$1 SLURM_LOCALID=$1 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=$(hostname) "$BUILD/$2" $3; }
all=$*; all=${all#ckpt-train }
task 1 ckpt-train "$all" & one=$!
task 0 ckpt-train "$all" && wait $one
END
    sbatch() { (cd "$out" && BUILD=$(dirname "$(command -v ckpt-train)") SLURM_SUBMIT_DIR=$top SLURM_JOB_ID=$((5000 + RANDOM)) PATH=$out/bin:$PATH bash "$system/slurm/$1.sbatch" "${model[@]}" --train-file "$DATA" --eval-file "$DATA" "${more[@]}" "${@:2}") >"$out/.sbatch" 2>&1 || { cat "$out/.sbatch"; return 1; }; }
    for s in $settings; do
        grep -q '^#SBATCH --nodes=2' "$system/slurm/$s.sbatch" && sbatch "$s" && { [ "$s" = baseline ] || grep -q -- "--deepspeed [^ ]*/$s.json -o squad-$s" "$out/.sbatch"; } || { echo "$s"; return 1; }
    done
    s=${rest%% *}; TASKS=2 sbatch "$s" && near "$out/squad-$s" "$out/$s" && rm -rf "$out/squad-$s"
}
devices=(); [ -z "${SMALL:-}" ] || devices=(--device cpu)
few=("${task[@]}" --config "$system/run.yaml" --deepspeed "$system/zero2.json" "${model[@]}" --train-file "$DATA" --eval-file "$DATA" "${more[@]}" --max-steps 2)
launchers() {
    printf 'localhost slots=2\n' >"$out/hosts"
    CKPT_SSH=/nowhere ckpt-train -q "${few[@]}" --hostfile "$out/hosts" -o "$out/hosted" || return
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none mpirun --oversubscribe --bind-to none -np 2 ckpt-train -q "${few[@]}" -o "$out/mpi" &&
        near "$out/hosted" "$out/mpi" && rm -rf "$out"/{hosted,mpi}
}
choices() {     # slots, and some of them
    printf 'localhost slots=3\n' >"$out/hosts3"
    CKPT_SSH=/nowhere ckpt-train "${few[@]}" --hostfile "$out/hosts3" --include localhost:0,2 --dry-run -o "$out/none" 2>&1 | grep -q 'ranks: 2 ' &&
        ckpt-train "${few[@]}" --hostfile "$out/hosts3" --num-gpus 2 --dry-run -o "$out/none" 2>&1 | grep -q 'ranks: 2 ' &&
        ckpt-train "${few[@]}" --hostfile "$out/hosts3" --exclude localhost:1 --dry-run -o "$out/none" 2>&1 | grep -q 'ranks: 2 '
}
final() { all "$out/baseline"/{model.safetensors,config.json,tokenizer.json} && grep -qE ' loss=[0-9.]+' "$out/baseline.log" && grep -qE ' eval_loss=[0-9.]+' "$out/baseline.log"; }
padded() {      # a loss on padding is another one
    local two=($(train_on "$nproc") -q "${few[@]:0:4}" "${model[@]}" --train-file "$DATA" --eval-strategy no --save-strategy no --no-final-model "${more[@]}" --max-steps 2)
    "${two[@]}" -o "$out/same" && near "$out/same" "$out/baseline" 1e-4 && "${two[@]}" --loss-on-padding --padding-side left -o "$out/padded" && ! near "$out/padded" "$out/baseline" 1e-4 >/dev/null
}
# The file's optimizer, schedule, clipping and automatic sizes; one rank beside two in one table.
obeyed() {
    ckpt-train "${few[@]}" --max-grad-norm 0.5 --warmup-steps 3 --print-config | sed 's/^# //; s/  # .*//' >"$out/.config" && grep -qx 'lr_scheduler_type: WarmupDecayLR' "$out/.config" &&
        grep -qx 'weight_decay: 0.01' "$out/.config" && grep -qx 'max_grad_norm: 0.5' "$out/.config" || return
    # A file of numbers instead of auto is the options that say the same, to the same losses; and not those of the run before.
    printf '{"optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}}, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 1, "total_num_steps": 2}},
        "gradient_clipping": 0.05, "train_batch_size": 8, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}}' >"$out/numbers.json"
    two=("${task[@]}" "${model[@]}" --train-file "$DATA" --max-seq-length 64 --max-steps 2 --logging-steps 1 --nproc 2 "${devices[@]}")
    ckpt-train -q "${two[@]}" --deepspeed "$out/numbers.json" -o "$out/said" && ckpt-train -q "${two[@]}" --learning-rate 1e-3 --adam-beta1 0.8 --adam-beta2 0.95 --adam-epsilon 1e-6 --weight-decay 0.1 --lr-scheduler-type WarmupDecayLR --warmup-steps 1 \
        --max-grad-norm 0.05 --per-device-train-batch-size 2 --gradient-accumulation-steps 2 --zero-stage 2 -o "$out/options" && diff <(losses "$out/said") <(losses "$out/options") && [ "$(losses "$out/said" | wc -l)" = 2 ] && rm -rf "$out"/{said,options} || return
    ckpt-train -q "${few[@]}" -o "$out/alone" && ckpt-inspect --compare "$out/alone" "$out/zero2" >"$out/.two" && [ "$(grep -cE '/(alone|zero2) ' "$out/.two")" -ge 2 ] && rm -rf "$out/alone"
}
judged() { beside f1 "${task[@]}" --eval-file "$EVAL" --max-eval-samples 100 --metric squad --max-new-tokens 32 "$(cat "$out/newest")" && grep -q '"figure": "exact_match"' "$out/f1.json" && grep -q '"prompt": "Question: .* Context: .* Answer: *"' "$out/predictions.jsonl"; }
cloned "$hub" "$out/clone"
root() { [ "$(ls "$out/clone" | wc -w)" = "$(wc -w <<<"$settings")" ] && (cd "$(cat "$out/newest")" && find . -type f | sort | xargs sha256sum) | (cd "$out/clone/$s" && sha256sum -c --quiet); }
looks() { ckpt-inspect -q "$(newest "$out/zero3")" "$out/zero3/memory.csv" >/dev/null && ckpt-inspect -q --optimizer "$(newest "$out/zero1")" >/dev/null; }

duty C1 "a baseline of 3 epochs, rate 5e-5, decay 0.01, fp16; evaluated and saved each epoch" eval 'asked && baseline'
duty C2 "ds_config.json with auto: stages 1, 2, 3, optimizer and parameters on the host; the baseline's losses" stages
duty C3 "losses by epoch, samples per second of training and evaluation, steps per epoch" summary
duty C4 "memory as nvidia-smi's CSV; peaks in one table, all settings in one plot" memory
duty C5 "a batch script a setting for two nodes, one run by two tasks; mpirun and a file of hosts" eval 'batch && launchers'
duty C6 "slots, include, exclude, a number of them" choices
duty C7 "model and tokenizer in the root; loss= and eval_loss= lines; a loss on padding" eval 'final && padded'
duty C8 "optimizer, schedule, clipping, automatic sizes obeyed; one rank beside two" obeyed
duty X3 "exact match and F1 of SQuAD beside the base's; predictions are kept" judged
duty X1 "one line: train, merge, evaluate, publish; the clone has the bytes of each" root
duty X2 "shards, optimizer and memory are inspected" looks
ticks
