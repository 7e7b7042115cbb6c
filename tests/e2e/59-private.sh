# What is published of a run names no folder of this machine, no user and no token: the files of a checkpoint, of the
# trained model, of what is merged from them, and the records of how they were made.
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
CANARY=hf_canary0123456789abcdefghijklmnopqr
W=$T/home/jane-doe-7/work; mkdir -p "$W"; export HOME=$T/home/jane-doe-7 USER=jane-doe-7 LOGNAME=jane-doe-7 HF_TOKEN=$CANARY
M=$G/lora/bloom-qkv; cp -r "$M/base" "$W/base"; cp "$M/rows.jsonl" "$W/rows.jsonl"; printf -- '---\nlicense: mit\n---\n' >"$W/base/README.md"; echo free >"$W/base/LICENSE"
cd "$W" || exit 1
run() { OUT=$1; shift; ckpt-train -q --model "$W/base" --train-file "$W/rows.jsonl" --eval-file "$W/rows.jsonl" --per-device-train-batch-size 2 --max-seq-length 32 --threads 1 --max-steps 2 --eval-strategy steps --eval-steps 1 --save-steps 1 --load-best-model-at-end --report-to none -o "$W/$OUT" "$@"; }
t "a run by absolute paths" run full
t "one of two ranks" run shards --nproc 2 --zero-stage 3
t "merged" ckpt-merge -q -o "$W/merged" "$W/shards/checkpoint-2"
mkdir "$T/published"
for d in full full/checkpoint-2 shards/checkpoint-2 merged; do
    t "$d is published" ckpt-push -q --path-in-repo "${d//\//-}" "$T/published" "$W/$d"
done
# found WHAT - files that have the text.  Members of torch's archives are stored as they are.
found() { grep -rlaF --exclude-dir=.git -- "$1" "$T/published"; }
none() { local f; f=$(found "$1"); [ -z "$f" ] || { echo "$1 is in:"; echo "$f"; return 1; }; }
t "the run's settings are there" test -s "$T/published/full-checkpoint-2/training_args.bin"
t "what is looked for would be found" test "$(found per_device_train_batch_size | grep -c training_args.bin)" = 5
t "nothing names the working folder" none "$W"
t "nor the home folder" none "$HOME"
t "nor the user" none jane-doe-7
t "nor the folder of the tests" none "$T"
t "nor the token" none "$CANARY"
# An adapter's base is a folder here: published, it is called by its name, and the manifest says so.
t "an adapter's run" run lora --lora-rank 4
t "is published" ckpt-push -q --create "$T/hub.git" "$W/lora/checkpoint-2"
export GIT_CONFIG_NOSYSTEM=1; git config --global safe.directory '*'; git lfs install --skip-repo >/dev/null 2>&1
rm -rf "$T/published"; t "and cloned" git clone -q "$T/hub.git" "$T/published"
t "no folder is in it" none "$T"
t "nor the user" none jane-doe-7
t "the base has its name" grep -q '"base_model_name_or_path": "base"' "$T/published/adapter_config.json"
t "the clone is whole" ckpt-inspect -q --verify "$T/published"
t "a copy on this machine keeps its base" bash -c "ckpt-push -q $T/copy $W/lora/checkpoint-2 && ckpt-merge -q -o $T/folded $T/copy"
ckpt-eval -q --json --eval-file rows.jsonl full/checkpoint-2 >eval.json
t "a checkpoint whose card gets results" ckpt-push -q --card-metrics eval.json --card-dataset a/b "$T/hub2.git" --create "$W/full/checkpoint-2"
t "is cloned" git clone -q "$T/hub2.git" "$T/clone2"
t "and whole, its manifest has the new card" ckpt-inspect -q --verify "$T/clone2"
t "which is there" grep -q model-index "$T/clone2/README.md"
# The best checkpoint is found again from its name, also after the folder moved.
mv "$W/full" "$W/moved"
t "goes on after a move" ckpt-train -q --model "$W/base" --train-file "$W/rows.jsonl" --eval-file "$W/rows.jsonl" --per-device-train-batch-size 2 --max-seq-length 32 --threads 1 --max-steps 3 --eval-strategy steps --eval-steps 1 --save-steps 1 --load-best-model-at-end --report-to none -o "$W/moved" --resume-from-checkpoint latest
t "names the best by run and step" bash -c "grep -qE '\"best_model_checkpoint\": \"moved/checkpoint-[123]\"' $W/moved/checkpoint-3/trainer_state.json"
