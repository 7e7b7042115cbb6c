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
expect_says 66 "no run" "no checkpoint-<n> in it" ckpt-eval --results datasets -t e.jsonl
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
train dcp --nproc 2 --zero-stage 3 --checkpoint-format dcp
train lora3 --nproc 2 --zero-stage 3 --lora-rank 4 --lora-target-modules query_key_value
cd "$T" || exit 1
for z in zero3 zero2 dcp; do rm -f $z/checkpoint-2/*.safetensors; done
same "shards of ZeRO 3" zero3/checkpoint-2
same "of ZeRO 2" zero2/checkpoint-2
same "of torch.distributed.checkpoint" dcp/checkpoint-2
same "an adapter" lora3/checkpoint-2
rm zero3/checkpoint-2/config.json
t "without a description, the run's or the base's is taken" near "$(of -t e.jsonl --base base zero3/checkpoint-2 | cut -d' ' -f4)" "$(of -t e.jsonl zero3-merged | cut -d' ' -f2)" 1e-5
