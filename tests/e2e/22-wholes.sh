# The folders that training programs lay around checkpoints stand for the newest one in them.  [A10, E10]
. "$(dirname "$0")/lib.sh"
W=$G/wholes
# holds NAME EXPECTED PATH - it is merged, and holds that.
holds() {       # holds NAME SAFETENSORS WHOLE...
    rm -f "$T/out.safetensors"
    t "$1 is merged" ckpt-merge -q -o "$T/out.safetensors" "${@:3}"
    expect 0 "$1: the weights that were saved" ckpt-inspect --compare "$2" "$T/out.safetensors"
}
holds "accelerate's project folder" "$W/expected.safetensors" "$W/accelerate"
holds "accelerate's checkpoints folder" "$W/expected.safetensors" "$W/accelerate/checkpoints"
holds "a folder of save_state" "$W/expected.safetensors" "$W/accelerate/checkpoints/checkpoint_1"
holds "save_state of pytorch_model.bin" "$W/expected.safetensors" "$W/accelerate-bin"
rm -f "$T/out.safetensors"
expect 0 "which checkpoint of a run" ckpt-merge -o "$T/out.safetensors" "$W/ray-trial"
t "is told" grep -q "ray-trial: a run; its newest checkpoint is read: .*/checkpoint_000001/checkpoint$" "$T/.err"
holds "a trial of Ray Train" "$W/expected_ray.safetensors" "$W/ray-trial"
holds "a run of Ray Train 2" "$W/expected_ray.safetensors" "$W/ray-run"
holds "what Ray Train wrote" "$W/expected_steps.safetensors" "$W/ray-train"
holds "what Tune wrote" "$W/expected_steps.safetensors" "$W/ray-tune"
L=$W/lightning/checkpoints
holds "Lightning's .ckpt" "$W/expected_ckpt.safetensors" "$L/last.ckpt"
holds "Lightning's folder" "$W/expected_ckpt.safetensors" "$W/lightning"
mkdir "$T/lit"; cp "$L"/epoch=* "$T/lit"
holds "Lightning's best, the last by its step" "$W/expected_ckpt.safetensors" "$T/lit"
rm -f "$T/out.safetensors"
t "Lightning's .ckpt is merged with its states" ckpt-merge -q --optimizer keep --tied keep -o "$T/out.safetensors" "$L/last.ckpt"
expect 0 "they are all there" ckpt-inspect --diff "$L/last.ckpt" "$T/out.safetensors"
rm -f "$T/out.safetensors"
t "or those that are named" ckpt-merge -q --include 'optimizer*exp_avg' -o "$T/out.safetensors" "$L/last.ckpt"
t "and no others" bash -c "ckpt-inspect $T/out.safetensors | grep -qx 'tensors: 3'"
expect 0 "accelerate's folder is inspected" ckpt-inspect "$W/accelerate"
t "which checkpoint was taken is told" prints "checkpoint: $W/accelerate/checkpoints/checkpoint_1"
t "its optimizer is told" bash -c "grep -q '^optimizer.bin  *optimizer ' $T/.out"
t "its schedule is told" bash -c "grep -q '^scheduler.bin .*step 4, lr 0.002' $T/.out"
t "its random states are told" bash -c "grep -q '^random_states_0.pkl .*torch seed 3' $T/.out"
expect_prints 0 "Ray's trial is inspected" "step: 4" ckpt-inspect "$W/ray-trial"
expect_prints 0 "Lightning's is inspected" "optimizer_states.0.state.0.exp_avg" ckpt-inspect "$L/last.ckpt"
# accelerate's names for DeepSpeed's folder.
D=$G/deepspeed/0.19-s3_w2_bf16
mkdir -p "$T/ds/checkpoints"; cp -r "$D/ckpt" "$T/ds/checkpoints/checkpoint_0"
mv "$T/ds/checkpoints/checkpoint_0/global_step4" "$T/ds/checkpoints/checkpoint_0/pytorch_model"
printf pytorch_model > "$T/ds/checkpoints/checkpoint_0/latest"
t "save_state of DeepSpeed is merged" ckpt-merge -q --tied keep -o "$T/ds.safetensors" "$T/ds"
expect 0 "save_state of DeepSpeed: the weights that were saved" ckpt-inspect --compare "$D/expected.safetensors" "$T/ds.safetensors"
# FSDP's shards, in a run's folder.
F=$G/fsdp/trainer/run
t "a checkpoint of FSDP's shards is merged" ckpt-merge -q -o "$T/f1.safetensors" "$F/checkpoint-4"
mkdir -p "$T/fsdp"; cp -r "$F/checkpoint-4" "$T/fsdp/checkpoint_4"
holds "save_state of FSDP" "$T/f1.safetensors" "$T/fsdp"
# What is not plain is refused, with the folder that was likely meant.
# doubted WORDS HINT NAME PATH
doubted() {
    expect_says 65 "$3 is refused" "$1" ckpt-merge -q -o "$T/no.safetensors" "$4"
    t "$3: a hint names it" bash -c "grep -q '^hint: .*/$2 looks like one' $T/.err"
}
mkdir "$T/exp"; cp -r "$W/ray-trial" "$T/exp/trial_a"; touch "$T/exp/.validate_storage_marker"
holds "an experiment of one trial" "$W/expected_ray.safetensors" "$T/exp"
cp -r "$W/ray-trial" "$T/exp/trial_b"
doubted "several trials" trial_a "an experiment of two trials" "$T/exp"
cp -r "$W/ray-run" "$T/run"; rm "$T/run/checkpoint_manager_snapshot.json"
doubted "several checkpoints and no" "checkpoint_2026-01-02_03-04-06.000001" "a run without its index" "$T/run"
cp -r "$W/ray-run" "$T/gone"; rm -r "$T/gone/checkpoint_2026-01-02_03-04-05.000002"
expect 65 "an index that names what is gone" ckpt-inspect "$T/gone"
t "the folder that is gone is named" says "names checkpoint_2026-01-02_03-04-05.000002, which is not there"
cp -r "$W/ray-run" "$T/out_of"; sed -i 's|"checkpoint_dir_name": "[^"]*"|"checkpoint_dir_name": "../gone"|g' "$T/out_of/checkpoint_manager_snapshot.json"
expect 77 "an index that leads out of its folder" ckpt-inspect "$T/out_of"
# The best of a run of Ray Train 2: the last of its index, which Ray sorts by the run's score.
saves_of() { ckpt-inspect --json "$@" 2>/dev/null | grep -oE '"checkpoint": "[^"]*"' | grep -oE 'checkpoint_2[^"/]*'; }
t "the newest of a run with scores" [ "$(saves_of "$W/ray-scored")" = checkpoint_2026-11-28_01-31-01.562191 ]
expect_prints 0 "A10 its best" "step: 2" ckpt-inspect --best "$W/ray-scored"
from_pipe() { echo "$W/ray-scored" | ckpt-inspect --best; }
expect_prints 0 "its best, of a path that a pipe brings" "step: 2" from_pipe
expect_prints 66 "a run without one before it" "step: 2" ckpt-inspect --best "$W/ray-trial/checkpoint_000001" "$W/ray-scored"
holds "its best is merged" "$W/ray-scored/checkpoint_2026-11-28_01-30-59.505859/checkpoint/model.safetensors" --best "$W/ray-scored"
mkdir "$T/storage"; cp -r "$W/ray-scored" "$T/storage/run"
expect_prints 0 "the folder around the run" "step: 4" ckpt-inspect "$T/storage"
expect_prints 0 "the best of the run in it" "step: 2" ckpt-inspect --best "$T/storage"
rm -r "$T/storage/run/checkpoint_2026-11-28_01-30-59.505859"
expect_says 65 "a best one that is gone" "names checkpoint_2026-11-28_01-30-59.505859, which is not there" ckpt-inspect --best "$T/storage/run"
expect 77 "a best one out of its folder" ckpt-inspect --best "$T/out_of"
echo '{"checkpoint_results": [], "latest_checkpoint_result": null}' >"$T/storage/run/checkpoint_manager_snapshot.json"
expect_says 65 "nothing reported" "no checkpoint was reported" ckpt-inspect --best "$T/storage/run"
expect_says 66 "a folder of no run" "no checkpoints in it" ckpt-inspect --best "$T/storage/run/checkpoint_2026-11-28_01-31-01.562191/checkpoint"
cp "$L/last.ckpt" "$T/lit/last.ckpt"; cp "$L/last.ckpt" "$T/lit/last-v1.ckpt"
doubted "several .ckpt files" last-v1.ckpt "two that are the last" "$T/lit"
cp -r "$W/ray-train" "$T/two"; for c in "$T"/two/checkpoint_*/; do cp "$c/model.pt" "$c/other.pt"; done
doubted "several files that could be its weights" model.pt "a checkpoint of two models" "$T/two"
cp -r "$W/accelerate" "$T/cut"; rm "$T/cut/checkpoints/checkpoint_1/random_states_0.pkl"
doubted "its save did not end" checkpoint_0 "a save that was cut off" "$T/cut"
# HF Trainer: steps are numbers.
S=$W/ray-trial/checkpoint_000001/checkpoint
mkdir "$T/hf"; cp -r "$W/ray-trial/checkpoint_000000/checkpoint" "$T/hf/checkpoint-9"; cp -r "$S" "$T/hf/checkpoint-10"
holds "a run of HF Trainer" "$W/expected_ray.safetensors" "$T/hf"
rm "$T/hf/checkpoint-10/trainer_state.json"
doubted "has no trainer_state.json" checkpoint-9 "a run whose last save did not end" "$T/hf"
cp -r "$S" "$T/hf/checkpoint_10"
doubted "by two counts" checkpoint-10 "a folder of two programs" "$T/hf"
# Packed, the same holds.
tar -C "$W" -cf "$T/p.tar" accelerate
holds "a packed project folder" "$W/expected.safetensors" "$T/p.tar"
mkdir "$T/none"; touch "$T/none/notes.txt"; mkdir "$T/none/sub"
expect_says 65 "a folder of no checkpoints" "$T/none: no checkpoint is recognised" ckpt-inspect "$T/none"
