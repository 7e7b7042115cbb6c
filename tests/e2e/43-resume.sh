#!/usr/bin/env bash
# What a resumed run goes on with: every optimizer at one, two and three ranks, several rates, schedules
# that are behind the steps; SGD and Lion from HF Trainer; the next slice of the data.  [C1, A6, D4]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
R=$G/resume SAY=-q
go() {          # OUT OPTION...
    local out=$1; shift
    ckpt-train $SAY --device cpu --train-file "$R/data.jsonl" --per-device-train-batch-size 2 --learning-rate 3e-3 --logging-steps 1 --no-final-model -o "$T/$out" "$@"
}
run() { local out=$1; shift; go "$out" --model "$G/models/llama-a" --max-steps 4 --save-steps 2 "$@"; }
exact() {       # NAME OPTION... - two steps, a stop, two more are four, bit for bit
    local name=$1; shift
    rm -rf "$T"/{whole,half}
    t "$name" run whole "$@"
    rewind whole half
    t "$name: resumed" run half "$@" --resume-from-checkpoint auto
    t "$name: with the same bits" same_state whole half
}

# -- each optimizer, by ranks ------------------------------------------------------------------------
ckpt-train --help | sed -n '/--optim NAME/,/--optim-args/p' | sed -n '/one of:/,$p' | grep -ow '[a-z_0-9]*adamw[a-z_0-9]*\|sgd\|[a-z_]*lion[a-z_0-9]*' | sort -u > "$T/optims"
for optim in adamw_torch adamw_torch_fused adamw_8bit adamw_bnb_8bit adamw_anyprecision paged_adamw paged_adamw_32bit paged_adamw_8bit \
    "sgd --optim-args momentum=0.9" lion_32bit lion_8bit paged_lion_32bit paged_lion_8bit; do
    sed -i "/^${optim%% *}\$/d" "$T/optims"
    for ranks in "1 --zero-stage 0" "2 --zero-stage 2" "3 --zero-stage 3"; do
        exact "${optim%% *}, ranks $ranks" --optim $optim --nproc $ranks
    done
done

t "that is all of them" [ ! -s "$T/optims" ]

# -- several rates, and schedules ----------------------------------------------------------------------
rates() { grep -o '"learning_rate":[^,]*' "$T/$1/metrics.jsonl"; }
lora=(--lora-rank 4 --target-modules all-linear --loraplus-lr-ratio 16)
for ranks in "1 --zero-stage 0" "2 --zero-stage 1" "3 --zero-stage 3 --checkpoint-format dcp"; do
    exact "rates by pattern, ranks $ranks" --lr-for mlp=2e-3 --lr-for norm=1e-4 --weight-decay-for mlp=0.5 --nproc $ranks
    exact "LoRA+, ranks $ranks" "${lora[@]}" --nproc $ranks
done
t "LoRA+'s rates are in the schedule" bash -c "ckpt-inspect '$T/whole/checkpoint-4' | grep -q '^scheduler.pt .*lr'"
SAY= expect_says 0 "with another ratio the run's own counts" "its groups of parameters go on with their base learning rates" \
    run other "${lora[@]}" --loraplus-lr-ratio 8 --nproc 3 --zero-stage 3 --checkpoint-format dcp --resume-from-checkpoint "$T/whole/checkpoint-2"
t "to the same bits" same_state other whole
for how in "cosine_with_min_lr --lr-scheduler-kwargs min_lr=1e-4" "warmup_stable_decay --lr-scheduler-kwargs num_decay_steps=2" "WarmupDecayLR --warmup-steps 2"; do
    # Steps that fp16 skips: schedule and optimizer are behind the run's steps.
    exact "skipped steps, ${how%% *}" --lr-scheduler-type $how --fp16 --initial-scale-power 129 --hysteresis 1 --loss-scale-window 2
    t "some were skipped" bash -c "ckpt-inspect --tree '$T/whole/checkpoint-4/scheduler.pt' | grep -qE '(last_epoch|last_batch_iteration).* [12],?$'"
    # An optimizer that began later than the schedule.
    rm -rf "$T"/{whole,half}
    late=(--resume-file "$R/full.pt" --initial-step 4 --model "$R/model" --max-steps 8 --save-steps 6 --lr-scheduler-type $how --nproc 2 --zero-stage 2)
    t "a fresh optimizer at step 4, ${how%% *}" go whole "${late[@]}"
    rewind whole half
    t "resumed" go half "${late[@]}" --resume-from-checkpoint auto
    t "with the same bits" same_state whole half
    t "and rates" bash -c "diff <(grep -o '\"learning_rate\":[^,]*' '$T/whole/metrics.jsonl' | tail -n 2) <(grep -o '\"learning_rate\":[^,]*' '$T/half/metrics.jsonl' | tail -n 2)"
done

# -- HF Trainer's runs of other optimizers -----------------------------------------------------------
# theirs RUN LIST - losses of steps 5 to 8 are those of losses.json.
theirs() { paste <(losses "$1") <(sed -n "/\"$2\"/,/]/p" "$R/losses.json" | grep -o '[0-9]\.[0-9]*' | tail -n 4) |
    awk '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > 1e-6 || NF != 2) bad = 1 } END { exit bad || NR != 4 }'; }
for how in "sgd --optim sgd --optim-args momentum=0.9" "lion --optim lion_32bit"; do
    set -- $how
    hf=(--weight-decay 0.01 --warmup-steps 1 --seed 1 --train-sampling-strategy sequential --max-steps 8 --save-steps 6 --resume-from-checkpoint "$R/$1" "${@:2}")
    t "$1 of HF Trainer" go "$1" "${hf[@]}"
    t "with its losses" theirs "$1" "$1"
    for stage in 1 3; do
        t "$1, two ranks at stage $stage" go "$1-$stage" "${hf[@]}" --nproc 2 --per-device-train-batch-size 1 --zero-stage $stage
        t "with its losses" theirs "$1-$stage" "$1"
    done
    expect_says 65 "$1 is not AdamW's" "" go no "${hf[@]}" --optim adamw_torch --optim-args ""
done

# -- what is other than in the saved run -----------------------------------------------------------
t "a run to go on from" run was --warmup-steps 1
# told WANT OPTION... - a run that goes on from its second step with these options warns of WANT alone.
told() {
    local want=$1; shift
    rm -rf "$T/is" && rewind was is
    SAY= run is --warmup-steps 1 "$@" --resume-from-checkpoint auto >"$T/.out" 2>"$T/.err" || { cat "$T/.err"; return 1; }
    sed -n 's/^ckpt-train: warning: .*checkpoint-2: changed from here on: //p' "$T/.err" | tr '\n' ';' >"$T/a"
    [ "$(cat "$T/a")" = "$want" ] && [ "$(grep -c warning: "$T/.err")" = "$(grep -o ';' "$T/a" | wc -l)" ] || { cat "$T/.err"; return 1; }
}
t "nothing" told ""
t "another schedule is told" told "--lr-scheduler-type linear -> cosine;" --lr-scheduler-type cosine
t "another precision" told "--bf16 false -> true;" --bf16
t "another length of the run" told "--max-steps 4 -> 8;" --max-steps 8
t "another warmup" told "--warmup-steps 1 -> 3;" --warmup-steps 3
t "the same, told otherwise" told "" --warmup-steps 0 --warmup-ratio 0.25
kwargs() {      # WANT FIRST... -- THEN... - the same for a run that began with other options
    local want=$1 first=(); shift
    while [ "$1" != -- ]; do first+=("$1"); shift; done
    rm -rf "$T/was" && run was --warmup-steps 1 "${first[@]}" >/dev/null && shift && told "$want" "$@"
}
t "each of several in a line of its own" told "--weight-decay 0 -> 0.1;--adam-beta2 0.999 -> 0.95;--max-grad-norm 1 -> 0;" --weight-decay 0.1 --adam-beta2 0.95 --max-grad-norm 0
t "another batch" told "--train-batch-size 2 -> 4;" --per-device-train-batch-size 4
t "but not the same of two ranks" told "" --nproc 2 --per-device-train-batch-size 1
t "what changes no update" told "" --logging-steps 2 --save-steps 4 --save-total-limit 3 --threads 2
t "another least rate" kwargs "--min-lr 0.0001 -> 0.001;" --lr-scheduler-type cosine_with_min_lr --min-lr 1e-4 -- --lr-scheduler-type cosine_with_min_lr --min-lr 1e-3
t "the same, told otherwise" told "" --lr-scheduler-type cosine_with_min_lr --lr-scheduler-kwargs min_lr=1e-4
t "numbers of the schedule" told "--lr-scheduler-kwargs num_cycles=0.5 -> num_cycles=1;" --lr-scheduler-type cosine_with_min_lr --lr-scheduler-kwargs num_cycles=1,min_lr=1e-4
t "and its words" kwargs "--lr-scheduler-kwargs num_decay_steps=2 -> num_decay_steps=1;--lr-scheduler-kwargs decay_type=cosine -> decay_type=1-sqrt;" \
    --lr-scheduler-type warmup_stable_decay --lr-scheduler-kwargs num_decay_steps=2 -- --lr-scheduler-type warmup_stable_decay --lr-scheduler-kwargs num_decay_steps=1,decay_type=1-sqrt
t "a constant rate" run was --lr-scheduler-type constant --overwrite-output-dir
t "has no length" told "" --lr-scheduler-type constant --max-steps 8 --warmup-steps 0
rm "$T/was/checkpoint-2/training_args.bin"
t "without arguments there is nothing to compare" told "" --lr-scheduler-type constant --weight-decay 0.1

# -- the next slice of the data, more epochs ------------------------------------------------------------
# epochs RUN - step:epoch of each logged step.
epochs() { sed -n 's/.*"epoch":\([0-9.]*\),.*"loss".*"step":\([0-9]*\).*/\2:\1/p' "$T/$1/metrics.jsonl" | tr '\n' ' '; }
is() { [ "$(epochs "$1")" = "$2" ] || { epochs "$1"; return 1; }; }
slice() { local out=$1; shift; go "$out" --model "$G/models/bloom-a" --state-dict-file 'w_{start}-{end}-epoch-{n}.pt' --save-strategy epoch "$@"; }
t "a slice" slice s --end-idx 8 --num-train-epochs 1
t "its steps" is s "1:0.25 2:0.5 3:0.75 4:1.0 "
t "D3 its file of weights" [ -s "$T/s/w_0-8-epoch-1.pt" ]
t "D3 has the weights of the run, by the names of its model" bash -c "ckpt-merge -q -o '$T/s.safetensors' '$T/s/w_0-8-epoch-1.pt' && ckpt-inspect -q --diff '$T/s.safetensors' '$T/s/checkpoint-4/model.safetensors'"
t "D3 its tied head too" bash -c "ckpt-merge -q --tied keep -o '$T/head.safetensors' '$T/s/w_0-8-epoch-1.pt' && ckpt-inspect '$T/head.safetensors' | grep -q '^lm_head.weight '"
t "D3 runs nothing when torch loads it" ckpt-inspect --scan "$T/s/w_0-8-epoch-1.pt"
t "D3 and any other name" eval "slice s0 --state-dict-file 'my-{step}.of-{n}.pt' --end-idx 8 --num-train-epochs 1 && ckpt-inspect -q --diff '$T/s/w_0-8-epoch-1.pt' '$T/s0/my-4.of-1.pt'"
t "D4 the next slice goes on from that" slice s2 --resume-file "$T/s/w_0-8-epoch-1.pt" --initial-epoch 1 --start-idx 8 --end-idx 16 --num-train-epochs 2
t "D4 D8 in the next epoch" is s2 "5:1.25 6:1.5 7:1.75 8:2.0 "
t "D3 to the next file" [ -s "$T/s2/w_8-16-epoch-2.pt" ]
t "one more epoch of the same data" slice s3 --resume-file "$T/s2/w_8-16-epoch-2.pt" --initial-epoch 2 --start-idx 8 --end-idx 16 --num-train-epochs 3 --nproc 2 \
    --per-device-train-batch-size 1 --zero-stage 3
t "D4 goes on too" is s3 "9:2.25 10:2.5 11:2.75 12:3.0 "
t "its checkpoint counts its own steps" bash -c "ckpt-inspect '$T/s3/checkpoint-12' | grep -q '^optimizer_step: 4\$'"
cp -r "$T/s" "$T/n"; cp -r "$T/s" "$T/m"
t "a checkpoint and the next slice" slice n --resume-from-checkpoint auto --ignore-data-skip --start-idx 8 --end-idx 16 --num-train-epochs 2
t "in the next epoch" is n "1:0.25 2:0.5 3:0.75 4:1.0 5:1.25 6:1.5 7:1.75 8:2.0 "
t "weights as far" bash -c "ckpt-merge -q -o '$T/w.safetensors' '$T/n/w_8-16-epoch-2.pt' && ckpt-inspect -q --compare '$T/w.safetensors' '$T/n/checkpoint-8/model.safetensors'"
t "a checkpoint and more epochs" slice m --resume-from-checkpoint auto --end-idx 8 --num-train-epochs 2
t "go on" is m "1:0.25 2:0.5 3:0.75 4:1.0 5:1.25 6:1.5 7:1.75 8:2.0 "
t "of the whole run's bits" bash -c "cmp '$T/m/w_0-8-epoch-1.pt' '$T/s/w_0-8-epoch-1.pt'"

# -- what all ranks find, one says -----------------------------------------------------------------
rm -rf "$T"/{whole,half}
run whole --nproc 2 >/dev/null && rewind whole half
SAY='' run half --nproc 2 --fp16 --resume-from-checkpoint auto 2>"$T/said" >/dev/null
t "a scale that begins anew is told once" [ "$(grep -c 'no scaler.pt: the loss scale starts at' "$T/said")" = 1 ]
