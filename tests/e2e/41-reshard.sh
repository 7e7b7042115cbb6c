#!/usr/bin/env bash
# DeepSpeed runs cut for other ranks and stages: the same tensors, the same bytes each time.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
DS=$G/deepspeed/0.19-s3_w2_bf16/ckpt
mkdir "$T/no"
expect 0 "a run of two ranks cut for five" ckpt-merge -q --verify --world 5 --stage 2 -o "$T/five" "$DS"
t "five ranks' files are there" bash -c "[ \$(ls $T/five/global_step4 | grep -c '^bf16_zero_pp_rank_[0-4]_mp_rank_00_optim_states.pt') = 5 ]"
ckpt-merge -q --world 5 --stage 2 -o "$T/five-2" "$DS" >/dev/null
t "the same cut again gives the same bytes" same_files "$T/five" "$T/five-2"
expect 0 "and back" ckpt-merge -q --world 2 --stage 3 -o "$T/two" "$T/five"
for d in "$DS" "$T/five" "$T/two"; do ckpt-merge -q --provenance none --optimizer keep -o "$T/flat-${d##*/}.safetensors" "$d" >/dev/null; done
t "weights and moments are the same throughout" bash -c "cmp $T/flat-ckpt.safetensors $T/flat-five.safetensors && cmp $T/flat-ckpt.safetensors $T/flat-two.safetensors"
t "one folder of a run is cut too" ckpt-merge -q --world 3 -o "$T/three" "$DS/global_step4"
t "the folder is named by its step" [ "$(cat "$T/three/latest")" = global_step4 ]
# A run of HF Trainer goes on with what it needs beside the weights.
H=$G/hf-trainer/ds3_w2_bf16; [ -d "$H/run" ] && H=$(ls -d "$H"/run/checkpoint-*)
t "a run of HF Trainer is cut" ckpt-merge -q --world 3 -o "$T/trainer" "$H"
for f in config.json trainer_state.json scheduler.pt training_args.bin rng_state_1.pth; do t "with its $f" cmp "$H/$f" "$T/trainer/$f"; done
t "on one rank" ckpt-merge -q --world 1 -o "$T/trainer1" "$H"
t "without random states of ranks that are none" bash -c "! ls $T/trainer1 | grep -q rng_state_"
# A run that was saved without its frozen weights: they come from the base, with a note.
N=$G/deepspeed/0.19-s2_w2_nofrozen/ckpt
ckpt-merge -q -o "$T/base.safetensors" "$G/deepspeed/0.19-s2_w2_bf16/ckpt" >/dev/null
expect 0 "frozen weights from a base" ckpt-merge --base "$T/base.safetensors" -o "$T/full.safetensors" "$N"
t "tensors from the base are noted" says "frozen_vec: absent, taken from $T/base.safetensors"
t "tensors from the base are in the output" bash -c "[ \$(ckpt-inspect $T/full.safetensors | grep -cE '^(frozen_vec|l1.base.weight) ') = 2 ]"
ckpt-merge -q --exclude 'frozen*' --exclude l1.base.weight -o "$T/part.safetensors" "$T/full.safetensors" >/dev/null
ckpt-merge -q -o "$T/alone.safetensors" "$N" >/dev/null
t "what the run has stays its own" ckpt-inspect --compare "$T/alone.safetensors" "$T/part.safetensors"
expect_says 0 "a base of which nothing is absent" "base.safetensors: the input lacks none of its weights, nothing is taken from it" ckpt-merge --base "$T/base.safetensors" -o "$T/again" "$T/full.safetensors"
t "is no part of the output" bash -c "ckpt-merge -q -o $T/again2 $T/full.safetensors && diff -r $T/again $T/again2"
expect 65 "another model as base" ckpt-merge -q --base "$G/deepspeed/0.19-s1_w2_universal/expected.safetensors" -o "$T/no/w" "$N"
t "another model's base is refused" says "has no tensor of the input's names"
# By way of a universal checkpoint, ours and the one of ds_to_universal.
expect 0 "a universal checkpoint" ckpt-merge -q --verify --to universal -o "$T/uni" "$DS"
t "latest_universal names the folder" [ "$(cat "$T/uni/latest_universal")" = global_step4_universal ]
expect 0 "is cut" ckpt-merge -q --world 3 --stage 1 -o "$T/from-uni" "$T/uni"
ckpt-merge -q --provenance none --optimizer keep -o "$T/flat-uni.safetensors" "$T/from-uni" >/dev/null
t "the universal checkpoint holds the run's tensors" cmp "$T/flat-ckpt.safetensors" "$T/flat-uni.safetensors"
U=$G/deepspeed/0.19-s1_w2_universal
t "a checkpoint of ds_to_universal is read by its tag" ckpt-merge -q --tied keep --tag global_step4_universal -o "$T/theirs.safetensors" "$U/ckpt"
t "it holds what zero_to_fp32 gives" ckpt-inspect --compare "$U/expected.safetensors" "$T/theirs.safetensors"
expect 64 "ranks for a universal checkpoint" ckpt-merge --to universal --world 3 -o "$T/no/w" "$DS"
expect_says 64 "ranks for another format" "cut a DeepSpeed checkpoint" ckpt-merge --to hf --world 3 -o "$T/no/w" "$DS"
expect 64 "no ranks" ckpt-merge --world 0 -o "$T/no/w" "$DS"
expect 65 "a model as a DeepSpeed run" ckpt-merge --to deepspeed -o "$T/no/w" "$G/lora/bloom-qkv/base"
t "the error names what the model lacks" says "lacks optimizer and schedule"
expect 65 "a run without its moments" ckpt-merge -q --world 3 --optimizer drop -o "$T/no/w" "$DS"
t "the missing moment is named" says "|exp_avg: is left out"
t "nothing is left of refused cuts" [ -z "$(ls -A "$T/no")" ]

# Runs of other programs are gone on from: the losses of their next steps are theirs, one rank or two.
(
R=$G/resume HF=$G/hf-trainer SAY=-q
go() {          # OUT OPTION...
    local out=$1; shift
    ckpt-train $SAY --device cpu --train-file "$R/data.jsonl" --per-device-train-batch-size 2 --learning-rate 3e-3 --logging-steps 1 --warmup-steps 1 \
        --no-final-model -o "$T/$out" "$@"
}
plain() { go "$@" --max-steps 8 --weight-decay 0.01 --train-sampling-strategy sequential --model "$R/model"; }
two() { plain "$@" --nproc 2 --per-device-train-batch-size 1; }
# theirs RUN LIST FIRST - the losses of the run are those of losses.json from the FIRSTth on.
theirs() { paste <(losses "$1") <(sed -n "/\"$2\"/,/]/p" "$R/losses.json" | grep -o '[0-9]\.[0-9]*' | tail -n +"$3") |
    awk '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > 1e-5 || NF != 2) bad = 1 } END { exit bad || NR != '"$4"' }'; }
hf() { go "$@" --max-steps 4 --lr-scheduler-type cosine --weight-decay 0.01 --max-grad-norm 0.5 --seed 100; }
hf_losses() { [ "$(losses "$1" | tail -n 2 | cut -c 1-6 | tr '\n' ' ')" = "3.7126 3.7027 " ]; }

for v in plain_w1 plain_w1_444; do
    SAYS=$HF/$v/run/checkpoint-2
    t "the Trainer's $v" hf "h-$v" --resume-from-checkpoint "$SAYS"
    t "with its losses" hf_losses "h-$v"
    SAY= expect_says 0 "its learning rate counts, $v" "base learning rate, 0.003" hf "r-$v" --learning-rate 1e-5 --resume-from-checkpoint "$SAYS"
    t "so that its losses stay" hf_losses "r-$v"
    SAY= expect_says 0 "other settings are named, $v" "changed from here on: --max-grad-norm 0.5 -> 1" go "o-$v" --max-steps 4 --weight-decay 0.01 --seed 100 --resume-from-checkpoint "$SAYS"
    t "each of them, $v" grep -qF "changed from here on: --lr-scheduler-type cosine -> linear" "$T/.err"
done
mkdir "$T/root"; cp -r "$HF/plain_w1/run/checkpoint-2" "$T/root/checkpoint-2"; mkdir "$T/root/checkpoint-3"
expect_says 73 "a save that the Trainer did not end is in the way" "checkpoint-3 exists already" hf root --resume-from-checkpoint auto
rm -r "$T/root/checkpoint-3"; mkdir "$T/root/checkpoint-1"
t "a folder of the Trainer's is gone on in" hf root --resume-from-checkpoint auto --save-steps 4
t "from its newest that is whole" hf_losses root
t "and then from ours" hf root --resume-from-checkpoint auto --save-steps 4 --max-steps 5
expect 65 "a schedule cut short is refused" bash -c "cp -r '$HF/plain_w1/run/checkpoint-2' '$T/cut' && truncate -s 900 '$T/cut/scheduler.pt' && ckpt-train -q --device cpu --train-file '$R/data.jsonl' -o '$T/no' --resume-from-checkpoint '$T/cut'"
t "by its name" says "cut/scheduler.pt: zip"
rm "$T/cut/scheduler.pt" "$T/cut/optimizer.pt"
SAY= expect_says 0 "without moments the optimizer starts anew" "starts anew at step 2" hf fresh --resume-from-checkpoint "$T/cut"

for how in accelerate dcp; do
    t "$how" plain "$how" --resume-from-checkpoint "$R/$how" --save-steps 6
    t "with its losses" theirs "$how" losses 5 4
    t "$how, two ranks at stage 3" two "$how-2" --resume-from-checkpoint "$R/$how" --zero-stage 3
    t "with its losses" theirs "$how-2" losses 5 4
    rm -r "$T/$how/checkpoint-8"
    t "the checkpoint of that is gone on from" plain "$how" --resume-from-checkpoint auto
    t "with the same losses" [ "$(losses "$how" | sed -n 3,4p)" = "$(losses "$how" | sed -n 5,6p)" ]
done
expect_says 78 "a folder that describes no model" "no config.json tells what model" go nothing --max-steps 8 --resume-from-checkpoint "$R/dcp"

# Weights alone, as a state dict: the optimizer counts from its own beginning, in later checkpoints too.  [D4]
t "a file of weights" plain f --resume-file "$R/full.pt" --initial-step 4 --save-steps 6
t "goes on as with a new optimizer there" theirs f fresh 1 4
t "two ranks" two f2 --resume-file "$R/full.pt" --initial-step 4 --zero-stage 2 --save-steps 6
t "do the same" theirs f2 fresh 1 4
for f in f f2; do
    run=(plain); [ $f = f ] || run=(two)
    rm -r "$T/$f/checkpoint-8"; : > "$T/$f/metrics.jsonl"
    t "its checkpoint is gone on from, the file given still" "${run[@]}" $f --resume-from-checkpoint auto --resume-file "$R/full.pt" --initial-step 4
    t "with the losses that it had" theirs $f fresh 3 2
done
t "weights of a whole epoch" go e --model "$R/model" --resume-file "$R/full.pt" --initial-epoch 1 --num-train-epochs 2
t "go on in the next" grep -q '"epoch":1.0833333333333333,.*"step":13' "$T/e/metrics.jsonl"
expect_says 78 "an epoch without a file" "need --resume-file" plain no --initial-epoch 1
expect_says 78 "a file as a checkpoint" "a file, not a checkpoint's folder" plain no --resume-from-checkpoint "$R/full.pt"

# DeepSpeed's engine alone leaves no state of the Trainer's.
t "a run at stage 2" two ds --zero-stage 2 --resume-file "$R/full.pt" --initial-step 0 --save-steps 4
cp -r "$T/ds" "$T/ds2"; rm -r "$T/ds2/checkpoint-8"; (cd "$T/ds2/checkpoint-4" && rm MANIFEST.json trainer_state.json scheduler.pt training_args.bin rng_state*)
: > "$T/ds2/metrics.jsonl"; losses ds | tail -n 4 > "$T/want"
t "its shards say the step" two ds2 --zero-stage 1 --resume-from-checkpoint "$T/ds2/checkpoint-4"
t "with its losses" bash -c "diff <(sed -n 's/.*\"loss\":\([0-9.e+-]*\),.*/\1/p' '$T/ds2/metrics.jsonl') '$T/want'"

# The next slice of the data, more epochs: only when it is said.  [D4]
slice() { local out=$1; shift; go "$out" --resume-from-checkpoint auto --model "$HF/plain_w1/run/checkpoint-2" --save-steps 4 "$@"; }
t "a slice" slice n --end-idx 9 --num-train-epochs 1
expect_says 65 "another is refused" "--ignore-data-skip goes on with other data" slice n --start-idx 9 --end-idx 24 --num-train-epochs 2
t "unless it is said" slice n --start-idx 9 --end-idx 24 --num-train-epochs 2 --ignore-data-skip
epochs() { sed -n 's/.*"epoch":\([0-9.]*\),.*"loss".*"step":\([0-9]*\).*/\2:\1/p' "$T/$1/metrics.jsonl" | tr '\n' ' '; }
t "steps and epochs go on" bash -c "[[ '$(epochs n)' == *'5:1.0 6:1.125 7:1.25 '*'13:2.0 ' ]]"
cp -r "$T/n" "$T/n2"; rm -r "$T/n2/checkpoint-13" "$T/n2/checkpoint-12"
t "from within the new data" slice n2 --start-idx 9 --end-idx 24 --num-train-epochs 2
t "with the same bits" same_state n n2
rm -r "$T/n2/checkpoint-13" "$T/n2/checkpoint-12"
t "as with the same command once more" slice n2 --start-idx 9 --end-idx 24 --num-train-epochs 2 --ignore-data-skip
t "with the same bits" same_state n n2
t "more epochs of it" slice n2 --start-idx 9 --end-idx 24 --num-train-epochs 3
t "end at their steps" [ -d "$T/n2/checkpoint-21" ]

# What a hub leaves out of a published checkpoint is not missed.
rm -r "$T/n2/checkpoint-21" "$T/n2/checkpoint-20"; : > "$T/n2/metrics.jsonl"; rm "$(newest n2)/training_args.bin"
t "a published checkpoint is gone on from" slice n2 --start-idx 9 --end-idx 24 --num-train-epochs 3
)
