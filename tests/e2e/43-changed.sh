#!/usr/bin/env bash
# A resumed run names what it does otherwise than the run that saved its checkpoint: settings that training_args.bin has no field for,
# which MANIFEST.json keeps.  What training_args.bin has is in 43-resume.sh.  [A8, D4]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
R=tools/recipes/demo
t "a model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
printf '%s' "{% for m in messages %}# {{ m.role }}
{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}

{% endfor %}{% if add_generation_prompt %}# assistant
{% endif %}" > "$T/base/chat_template.jinja"
sed 's/# /## /g' "$T/base/chat_template.jinja" > "$T/own.jinja"
for n in one two three four five six seven eight; do
    printf '{"q":"Define %s.","a":"%s is a number.","b":"No, %s is a word."}\n' "$n" "$n" "$n" >&3
    printf '{"messages":[{"role":"user","content":"Define %s."},{"role":"assistant","content":"%s is a number."}]}\n' "$n" "$n" >&4
done 3> "$T/rows.jsonl" 4> "$T/chat.jsonl"
run() {         # OUT OPTION...
    local out=$1; shift
    ckpt-train --device cpu --model "$T/base" --learning-rate 1e-3 --max-steps 2 --save-steps 1 --per-device-train-batch-size 2 --threads 1 --no-final-model -o "$T/$out" "$@"
}
qa=(--train-file "$T/rows.jsonl" --prompt-template "{q}" --completion-template "{a}" --max-seq-length 32)
# began OPTION... - a run to go on from, without its last checkpoint.
began() { rm -rf "$T/was"; run was -q "$@" >/dev/null && rm -r "$T/was/checkpoint-2"; }
# told WANT OPTION... - a run that goes on from it with these options warns of WANT alone.
told() {
    local want=$1; shift
    rm -rf "$T/is"; cp -r "$T/was" "$T/is"
    run is --resume-from-checkpoint auto "$@" >"$T/.out" 2>"$T/.err" || { cat "$T/.err"; return 1; }
    sed -n 's/^ckpt-train: warning: .*checkpoint-1: changed from here on: //p' "$T/.err" | sed 's/\(xxh128:\)[0-9a-f]\{32\}/\1/g' >"$T/a"
    [ "$(tr '\n' ';' <"$T/a")" = "$want" ] && [ "$(grep -c warning: "$T/.err")" = "$(wc -l <"$T/a")" ] || { grep warning: "$T/.err"; return 1; }
}

# -- the optimizer -----------------------------------------------------------------------------------
t "a run" began "${qa[@]}"
t "nothing" told "" "${qa[@]}"
t "another optimizer" told "--optim adamw_torch -> adamw_8bit;" "${qa[@]}" --optim adamw_8bit
t "but not one that steps alike" told "" "${qa[@]}" --optim adamw_torch_fused
t "the loss" told "--z-loss 0 -> 0.001;" "${qa[@]}" --z-loss 1e-3
t "how numbers are rounded" told "--bf16 false -> true;--master-weights true -> false;" "${qa[@]}" --bf16 --no-master-weights
t "a run of SGD" began "${qa[@]}" --optim sgd --optim-args momentum=0.9
t "its numbers" told "--optim-args momentum=0.9 -> momentum=0.8;--optim-args nesterov=False -> nesterov=True;" "${qa[@]}" --optim sgd --optim-args momentum=0.8,nesterov=true
t "the same, told otherwise" told "" "${qa[@]}" --optim sgd --optim-args '{"momentum": 0.90, "dampening": 0}'
t "decay by pattern" began "${qa[@]}" --weight-decay-for mlp=0.3 --weight-decay-for attention=0.1
t "by other numbers" told "--weight-decay-for mlp=0.3,attention=0.1 -> mlp=0.4,attention=0.1;" "${qa[@]}" --weight-decay-for mlp=0.4 --weight-decay-for attention=0.1
t "rates by pattern, sharded" began "${qa[@]}" --lr-for mlp=1e-4 --nproc 2 --zero-stage 2
t "for other parameters" told "--lr-for mlp=1e-4 -> attention=1e-4;" "${qa[@]}" --lr-for attention=1e-4 --nproc 2 --zero-stage 2
t "a scaled loss" began "${qa[@]}" --fp16
t "its scale" told "--loss-scale-window 1000 -> 3;--hysteresis 2 -> 1;" "${qa[@]}" --fp16 --loss-scale-window 3 --hysteresis 1

# -- DeepSpeed's schedules ---------------------------------------------------------------------------
t "WarmupLR" began "${qa[@]}" --lr-scheduler-type WarmupLR --warmup-steps 2
t "nothing of it" told "" "${qa[@]}" --lr-scheduler-type WarmupLR --warmup-steps 2
t "its numbers" told "--warmup-min-lr 0 -> 1e-05;--warmup-type log -> linear;" "${qa[@]}" --lr-scheduler-type WarmupLR --warmup-steps 2 --warmup-min-lr 1e-5 --warmup-type linear
t "the same as kwargs" told "--warmup-min-lr 0 -> 1e-05;" "${qa[@]}" --lr-scheduler-type WarmupLR --warmup-steps 2 --lr-scheduler-kwargs warmup_min_lr=1e-5
t "another one" told "--lr-scheduler-type WarmupLR -> WarmupDecayLR;" "${qa[@]}" --lr-scheduler-type WarmupDecayLR --warmup-steps 2
t "one of transformers" told "--lr-scheduler-type WarmupLR -> linear;" "${qa[@]}" --lr-scheduler-type linear --warmup-steps 2
t "WarmupCosineLR" began "${qa[@]}" --lr-scheduler-type WarmupCosineLR --total-num-steps 8
t "its end" told "--total-num-steps 8 -> 9;--cos-min-ratio 0.0001 -> 0.1;" "${qa[@]}" --lr-scheduler-type WarmupCosineLR --total-num-steps 9 --cos-min-ratio 0.1
t "OneCycle" began "${qa[@]}" --lr-scheduler-type OneCycle --lr-scheduler-kwargs cycle_min_lr=1e-5
t "its numbers" told "--lr-scheduler-kwargs cycle_min_lr=1e-05 -> cycle_min_lr=2e-05;" "${qa[@]}" --lr-scheduler-type OneCycle --lr-scheduler-kwargs cycle_min_lr=2e-5

# -- the model ---------------------------------------------------------------------------------------
t "a model with dropout" eval "cp -r '$T/base' '$T/noisy' && sed -i 's/\"hidden_dropout\": 0.0/\"hidden_dropout\": 0.1/' '$T/noisy/config.json'"
t "a run" began "${qa[@]}"
t "another config.json is told" told '`hidden_dropout` 0 -> 0.1;' "${qa[@]}" --model "$T/noisy"

# -- the data ----------------------------------------------------------------------------------------
t "a run" began "${qa[@]}"
t "the order of samples" told "--data-seed 42 -> 7;--train-sampling-strategy random -> sequential;--dataloader-drop-last false -> true;--packing false -> true;" \
    "${qa[@]}" --data-seed 7 --train-sampling-strategy sequential --dataloader-drop-last --packing
t "the seed by another name" told "" "${qa[@]}" --data-seed 42
t "another order of the same data goes on in it" grep -q "step 1" "$T/.err"
other=("${qa[@]}" --ignore-data-skip)
t "columns" told "--completion-template {a} -> {b};" "${other[@]}" --completion-template "{b}"
t "which samples, and how long" told "--start-idx 0 -> 2;--max-train-samples 0 -> 4;--max-seq-length 32 -> 16;--excess-length-strategy truncate -> drop;" \
    "${other[@]}" --start-idx 2 --max-train-samples 4 --max-seq-length 16 --excess-length-strategy drop
t "what is learned" told "--train-on-prompt false -> true;--truncation-side right -> left;--add-eos-token true -> false;" "${other[@]}" --train-on-prompt --truncation-side left --no-add-eos-token
t "a split" told "--train-split-ratio 0 -> 0.5;" "${other[@]}" --train-split-ratio 0.5 --data-dir "$T/data"
t "padding" told "--loss-on-padding false -> true;--padding-side auto -> left;--pad-token none -> <pad>;" "${other[@]}" --loss-on-padding --padding-side left
t "the token that ends texts" told "--eos-token </s> -> <s>;" "${other[@]}" --eos-token '<s>'
cp "$T/rows.jsonl" "$T/again.jsonl"
t "but not the name of a file" told "" --train-file "$T/again.jsonl" "${qa[@]:2}"
long=$(printf 'Please answer at length: %.0s' 1 2 3 4 5 6 7 8)
t "a long text" began "${qa[@]}" --max-seq-length 256 --prompt-template "$long{q} $long"
t "is shown around the first difference" told "--prompt-template ... answer at length: {q} Please answer at length: Please answe... -> ... answer at length: {b} Please answer at length: Please answe...;" \
    "${other[@]}" --max-seq-length 256 --prompt-template "$long{b} $long"
expect_says 65 "other data is refused" "the run had other training data (or data settings) than this one: --prompt-template " run is2 --resume-from-checkpoint "$T/was/checkpoint-1" "${qa[@]}" --max-seq-length 256
expect_says 65 "naming settings of samples alone" "than this one: --prompt-template " run is2 --resume-from-checkpoint "$T/was/checkpoint-1" "${qa[@]}" --max-seq-length 256 --z-loss 0.1 --packing
t "and none that is as before" bash -c "! grep -q 'z-loss\|packing\|max-seq' '$T/.err'"
t "chats" began --train-file "$T/chat.jsonl"
t "another template" told "--chat-template xxh128: -> xxh128:;" --train-file "$T/chat.jsonl" --chat-template "$T/own.jinja" --ignore-data-skip
cp "$T/base/chat_template.jinja" "$T/same.jinja"
t "the same, in a file" told "" --train-file "$T/chat.jsonl" --chat-template "$T/same.jinja"
t "their last turn" told "--mask-history false -> true;" --train-file "$T/chat.jsonl" --mask-history --ignore-data-skip

# -- an adapter --------------------------------------------------------------------------------------
lora=("${qa[@]}" --lora-rank 2)
t "an adapter" began "${lora[@]}" --target-modules query_key_value,dense
t "of the same modules" told "" "${lora[@]}" --target-modules dense --target-modules query_key_value
t "which options need not name" told "" "${lora[@]}"
rm -rf "$T/is"; cp -r "$T/was" "$T/is"
expect_says 0 "it keeps its own" "checkpoint-1: the adapter goes on with its own modules, not with --target-modules of this run" run is --resume-from-checkpoint auto "${lora[@]}" --target-modules query_key_value
rm -rf "$T/is"; cp -r "$T/was" "$T/is"
expect_says 0 "and those that it leaves out" "not with --exclude-modules of this run" run is --resume-from-checkpoint auto "${lora[@]}" --exclude-modules dense
rm -rf "$T/is"; cp -r "$T/was" "$T/is"
expect_says 65 "its dropout stays" "another lora_dropout than the options" run is --resume-from-checkpoint auto "${lora[@]}" --lora-dropout 0.1

# -- the file ----------------------------------------------------------------------------------------
t "a run with names of files, places and tokens of the user's" eval "PASSWORD=hunter2 WANDB_API_KEY=hunter2 run was -q --overwrite-output-dir \"\${qa[@]}\" --run-name hunter2 --on-end 'true hunter2' --logging-dir '$T/hunter2'"
t "keeps none of them" bash -c "[ -s '$T/was/checkpoint-1/MANIFEST.json' ] && ! grep -E 'hunter2|jsonl|$T' '$T/was/checkpoint-1/MANIFEST.json'"
