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
