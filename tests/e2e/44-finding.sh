# The checkpoint to test and the data are found; what was not merged is loaded as it lies.  [A8, B6, D6, E7, E8]
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 200 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
train() {
    ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 48 --learning-rate 3e-3 --max-steps 2 \
        --save-steps 1 --per-device-train-batch-size 4 -o "$T/$1" "${@:2}" >/dev/null 2>"$T/log" || cat "$T/log"
}
train results/me/model
train results/other --lora-rank 4 --lora-target-modules query_key_value
cd "$T" || exit 1
head -n 4 eval.jsonl >e.jsonl
mkdir -p datasets/a/x datasets/b/y
head -n 2 e.jsonl >datasets/b/y/test.jsonl
cp e.jsonl datasets/a/x/test.jsonl
touch -d '1 hour ago' datasets/b/y/test.jsonl
of() { ckpt-eval -q --json "$@" 2>.err | sed -nE 's/^ *"model": "(.*)",/\1/p;s/.*"loss": ([0-9.]+),.*"samples": ([0-9]+).*/\1 \2/p' | xargs; }
touch -d '1 hour ago' results/other/checkpoint-2
t "E7 the newest checkpoint, and the newest data" [ "$(of --results results --datasets datasets)" = "results/me/model/checkpoint-2 $(of -t e.jsonl results/me/model/checkpoint-2 | cut -d' ' -f2-)" ]
touch -d '1 hour ago' results/me/model/checkpoint-2; touch results/other/checkpoint-2
t "E7 of whatever run was saved last, also an adapter" [ "$(of --results results -t e.jsonl)" = "results/other/checkpoint-2 $(of -t e.jsonl results/other/checkpoint-2 | cut -d' ' -f2-)" ]
t "a run itself is a folder of results" [ "$(of --results results/me/model -t e.jsonl | cut -d' ' -f1)" = results/me/model/checkpoint-2 ]
mkdir ray ray/two ray/one ray/one/TorchTrainer_1
for n in 0 1; do cp -r results/me/model/checkpoint-$((n + 1)) ray/two/checkpoint_2025-01-01_00-00-0$n; cp -r results/me/model/checkpoint-$((n + 1)) ray/one/TorchTrainer_1/checkpoint_00000$n; done
echo '{"checkpoint_results": [{"checkpoint_dir_name": "checkpoint_2025-01-01_00-00-01", "metrics": {}}, {"checkpoint_dir_name": "checkpoint_2025-01-01_00-00-00", "metrics": {}}],
    "latest_checkpoint_result": {"checkpoint_dir_name": "checkpoint_2025-01-01_00-00-01", "metrics": {}}}' >ray/two/checkpoint_manager_snapshot.json
touch -d '1 hour ago' ray/one/*/checkpoint_*
found() { of --results "$@" -t e.jsonl | cut -d' ' -f1; }
t "E7 the latest of a run of Ray Train 2" [ "$(found ray)" = ray/two/checkpoint_2025-01-01_00-00-01 ]
t "its best, by its index" [ "$(found ray --best)" = ray/two/checkpoint_2025-01-01_00-00-00 ]
t "the newest of an experiment of Ray" [ "$(found ray/one)" = ray/one/TorchTrainer_1/checkpoint_000001 ]
touch ray/one/TorchTrainer_1/checkpoint_000001; touch -d '1 hour ago' ray/two/checkpoint_*
t "of all that was saved last" [ "$(found ray)" = ray/one/TorchTrainer_1/checkpoint_000001 ]
expect_says 66 "no run" "no run's checkpoint in it" ckpt-eval --results datasets -t e.jsonl
expect_says 66 "no data" "no test.jsonl in it" ckpt-eval --datasets results base
expect 64 "a model beside the one to find" ckpt-eval --results results -t e.jsonl base
expect 66 "no folder" ckpt-eval --results nosuch -t e.jsonl

expect_says 66 "a run without a best checkpoint" "names no best checkpoint" ckpt-eval --best -t e.jsonl results/me/model
sed -i -E 's|"best_model_checkpoint": *null|"best_model_checkpoint": "somewhere/model/checkpoint-1"|' results/me/model/checkpoint-2/trainer_state.json
cp -r results/me/model run; one=$(of -t e.jsonl run/checkpoint-1 | cut -d' ' -f2)
t "the best one" [ "$(of --best -t e.jsonl run | cut -d' ' -f2)" = "$one" ]
t "is not the newest" [ "$(of -t e.jsonl run/checkpoint-2 | cut -d' ' -f2)" != "$one" ]
t "of results too" [ "$(of --results results/me --best -t e.jsonl | cut -d' ' -f1)" = results/me/model/checkpoint-1 ]
t "of a merge" bash -c 'ckpt-merge -q --best --optimizer drop -o best run && cmp best/model.safetensors run/checkpoint-1/model.safetensors || ckpt-inspect --diff best run/checkpoint-1'
t "of an inspection" [ "$(ckpt-inspect --json --best run | sed -nE 's/^ *"path": "(.*)",/\1/p')" = run/checkpoint-1 ]
t "and of a push" bash -c 'ckpt-push -q --best --dry-run --create x.git run >plan 2>&1; grep -q "trainer_state.json" plan && ! grep -q checkpoint-2 plan'
sed -i 's|model/checkpoint-1|model/../../etc|' run/checkpoint-2/trainer_state.json
expect 66 "a best one outside the run" ckpt-eval --best -t e.jsonl run

# -- not merged -----------------------------------------------------------------------------------
# same NAME CHECKPOINT - it has the loss of the model that a merge makes of it.
same() {
    ckpt-merge -q -o "${2%%/*}-merged" "$2" >/dev/null 2>.err
    t "$1" near "$(of -t e.jsonl "$2" | cut -d' ' -f2)" "$(of -t e.jsonl --tokenizer base "${2%%/*}-merged" | cut -d' ' -f2)" 1e-5
}
cd - >/dev/null || exit 1
train zero3 --nproc 2 --zero-stage 3
train zero2 --nproc 2 --zero-stage 2
train zero1 --nproc 2 --zero-stage 1
train dcp --nproc 2 --zero-stage 3 --checkpoint-format dcp
train lora3 --nproc 2 --zero-stage 3 --lora-rank 4 --lora-target-modules query_key_value
cd "$T" || exit 1
for z in zero3 zero2 zero1 dcp; do rm -f $z/checkpoint-2/*.safetensors; done
same "shards of ZeRO 3" zero3/checkpoint-2
same "of ZeRO 2" zero2/checkpoint-2
same "of ZeRO 1" zero1/checkpoint-2
same "of torch.distributed.checkpoint" dcp/checkpoint-2
same "an adapter" lora3/checkpoint-2
rm zero3/checkpoint-2/config.json
t "without a description, the run's or the base's is taken" near "$(of -t e.jsonl --base base zero3/checkpoint-2 | cut -d' ' -f4)" "$(of -t e.jsonl zero3-merged | cut -d' ' -f2)" 1e-5

# What HF Trainer left, by DeepSpeed and by FSDP: beside what torch gathers of the same shards.
H=$G/hf-trainer P=$G/hf-trainer/plain_w1/run/checkpoint-4
printf '{"input_ids": [1, 2, 3, 4, 5, 6, 7]}\n{"input_ids": [9, 8, 7, 3]}\n' >ids.jsonl
loss() { ckpt-eval -q --json -t ids.jsonl "$@" 2>.err | sed -nE 's/.*"loss": ([0-9.]+),.*"samples".*/\1/p' | tail -n 1; }
# gathered NAME WEIGHTS - the loss of these weights in a model directory.
gathered() { mkdir "$1" && cp "$P/config.json" "$1" && cp "$2" "$1/model.safetensors" && loss "$1"; }
t "D6 ZeRO-3 shards of HF Trainer" near "$(loss "$H/ds3_w2_bf16/run/checkpoint-4")" "$(gathered ds3 "$H/ds3_w2_bf16/expected.safetensors")"
cp -r "$G/fsdp/trainer/run" fsrun; cp "$P/config.json" fsrun; want=$(gathered fs "$G/fsdp/trainer/expected.safetensors")
t "D6 FSDP shards of HF Trainer, described by the run's folder" near "$(loss fsrun/checkpoint-4)" "$want"
t "described by the base" near "$(loss --base fs "$G/fsdp/trainer/run/checkpoint-4")" "$want"
expect_says 66 "by nothing" "config.json: no such file or directory" ckpt-eval -t ids.jsonl "$G/fsdp/trainer/run/checkpoint-4"
t "the error says what may describe it" says "hint: weights without a config.json: --tokenizer DIR or --base MODEL may have it"
ckpt-merge -q --to safetensors -o weights.safetensors fs >/dev/null
mkdir alone && mv weights.safetensors alone && cp base/model.safetensors alone
t "a file of weights, described by the base" near "$(loss --base fs alone/weights.safetensors)" "$want"
t "or by the tokenizer's folder" near "$(of -t e.jsonl --tokenizer base alone/model.safetensors | cut -d' ' -f2)" "$(of -t e.jsonl base | cut -d' ' -f2)"
expect_says 66 "by nothing either" "hint: --tokenizer DIR or --base MODEL may have it" ckpt-eval -t ids.jsonl alone/weights.safetensors
expect_says 66 "weights on standard input, by nothing" 'of ckpt-merge, `--to hf -o -` sends it too' ckpt-eval -t ids.jsonl - <alone/weights.safetensors
expect_says 65 "data of nothing from a pipe" "/dev/stdin: is empty" ckpt-eval -t - fs </dev/null
cp -r fs odd; sed -i 's/"model_type": "[a-z0-9]*"/"model_type": "nosuch"/' odd/config.json
expect_says 65 "a family that is not known is told with its file" "odd/config.json: model_type nosuch is not known here" ckpt-eval -t ids.jsonl odd
: >none.jsonl
expect_says 65 "data without a record is named" "none.jsonl: no records" ckpt-eval -t none.jsonl fs
expect_says 65 "and a part without one" "ids.jsonl: no records in test[2:]" ckpt-eval -t ids.jsonl --eval-split 'test[2:]' fs
expect 0 "rows that are too long" ckpt-eval -t ids.jsonl --max-seq-length 5 --base fs fs
t "the note says how many are cut, once" [ "$(grep -cxF 'ckpt-eval: 1 of 2 samples are cut to 5 tokens (--max-seq-length)' "$T/.err")" = 1 ]
cp -r "$H/lora_ds3_w2/run/checkpoint-4" shards; rm shards/adapter_model.safetensors     # which is empty under ZeRO 3
mkdir peft; cp "$H/lora_ds3_w2/saved/adapter_model.safetensors" shards/adapter_config.json peft
want=$(loss --adapter peft "$P")
t "A8 D6 an adapter in shards of ZeRO-3, beside PEFT's" near "$(loss --adapter shards "$P")" "$want"
t "is not the base" bash -c "[ $want != $(loss "$P") ]"
t "so it is among two ranks" near "$(loss --nproc 2 --adapter shards "$P")" "$want"
