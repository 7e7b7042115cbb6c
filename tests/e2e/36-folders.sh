# A run's folder: damage found before it is trained on, one writer, nothing overwritten, nothing lost.  A4 A5 A7 A13
. "$(dirname "$0")/lib.sh"
M=$G/lora/bloom-qkv SAY=-q
train() {       # train OUT MORE...: ten steps, a checkpoint each five
    local out=$1; shift
    ckpt-train $SAY --model "$M/base" --train-file "$M/rows.jsonl" --per-device-train-batch-size 2 --learning-rate 1e-3 \
        --max-steps 10 --save-steps 5 --logging-steps 1 -o "$T/$out" "$@"
}
two() { local out=$1; shift; train "$out" --nproc 2 --zero-stage 3 --per-device-train-batch-size 1 "$@"; }
# flip FILE [AT]: another bit in the middle of a file.
flip() {
    local at=${2:-$(($(stat -c %s "$1") / 2))} was
    was=$(od -An -tu1 -j "$at" -N 1 "$1")
    printf "\\x$(printf %x $((was ^ 1)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}
warnings() { [ "$(grep -c 'is passed over' "$T/.err")" = "$1" ]; }

t "ten steps" train a
t "the same on two ranks" two z

# Damage: bits as well as sizes, in weights, optimizer, state and shards; the run ends as if there had been none.
damage() {      # damage NAME FROM FILE how...
    local name=$1 from=$2 file=$3; shift 3
    rm -rf "$T/d"; cp -r "$T/$from" "$T/d"; "$@" "$T/d/$file"
    SAY= expect 0 "$name: passed over" "${run[@]}" d --resume-from-checkpoint latest
    t "with one warning" warnings 1
    t "and made anew, the same bits" same_state "$from" d
    t "which proves" ckpt-inspect --verify "$T/d/checkpoint-10"
    t "so that it can be gone on from" "${run[@]}" d --resume-from-checkpoint latest
}
run=(train)
damage "a bit of the weights" a checkpoint-10/model.safetensors flip
damage "a bit of the optimizer" a checkpoint-10/optimizer.pt flip
damage "a cut optimizer" a checkpoint-10/optimizer.pt truncate -s 1000
damage "a bit of the state" a checkpoint-10/trainer_state.json flip
damage "a manifest cut short" a checkpoint-10/MANIFEST.json truncate -s 300
damage "no weights" a checkpoint-10/model.safetensors rm
run=(two)
damage "a bit of a shard" z checkpoint-10/global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt flip
damage "a cut shard" z checkpoint-10/global_step10/zero_pp_rank_0_mp_rank_00_model_states.pt truncate -s 5000

adapted() { train "$@" --lora-rank 2 --target-modules query_key_value; }
adapted2() { two "$@" --lora-rank 2 --target-modules query_key_value; }
t "an adapter" adapted la; t "one on two ranks" adapted2 lz
run=(adapted)
damage "a bit of an adapter" la checkpoint-10/adapter_model.safetensors flip
run=(adapted2)
damage "a bit of its shards" lz checkpoint-10/global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt flip

# A checkpoint that is named is refused, and the folder stays as it was.
refuse() { sums "$T/d" > "$T/was"; expect 65 "$@"; sums "$T/d" | grep -v ' ./.lock$' | diff - <(grep -v ' ./.lock$' "$T/was") > "$T/.t" && echo "ok nothing was written" || fail "nothing was written" "$T/.t"; }
rm -r "$T/d"; cp -r "$T/a" "$T/d"; flip "$T/d/checkpoint-10/model.safetensors"
refuse "a named checkpoint with a wrong bit" train d --max-steps 20 --resume-from-checkpoint "$T/d/checkpoint-10"
t "by its file" says "checkpoint-10: model.safetensors: sha-256 is"
rm "$T/d/checkpoint-10/MANIFEST.json"; flip "$T/d/checkpoint-10/model.safetensors"; flip "$T/d/checkpoint-10/optimizer.pt"
refuse "without a manifest an archive's own checksums count" train d --max-steps 20 --resume-from-checkpoint "$T/d/checkpoint-10"
expect 73 "latest does not replace what has no manifest" train d --resume-from-checkpoint latest
t "nor is it lost" [ -e "$T/d/checkpoint-10/model.safetensors" ]
cp "$T/a/checkpoint-10/MANIFEST.json" "$T/d/checkpoint-10"
flip "$T/d/checkpoint-5/optimizer.pt"
refuse "nothing whole is left" train d --resume-from-checkpoint latest
t "which is said" says "none of its 2 checkpoints is complete"
rm -r "$T/d"; cp -r "$T/z" "$T/d"; flip "$T/d/checkpoint-10/global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt"
refuse "a named one of two ranks" two d --max-steps 20 --resume-from-checkpoint "$T/d/checkpoint-10"
t "by its shard" says "zero_pp_rank_0_mp_rank_00_optim_states.pt: sha-256 is"

# One writer.  The first saves each step and goes on until it is told otherwise.
long=(ckpt-train -q --model "$M/base" --train-file "$M/rows.jsonl" --per-device-train-batch-size 2 --max-steps 1000000 --save-steps 2
    --save-total-limit 2 --logging-steps 1 --lr-scheduler-type constant -o "$T/l")
last_step() { ls "$T/l" | sed -n 's/^checkpoint-//p' | sort -n | tail -1; }
"${long[@]}" >"$T/l.out" 2>&1 & first=$!
t "one writer" wait_for 'compgen -G "$T/l/checkpoint-[1-9]*" > "$T/.t"'
expect_says 73 "a second one" "process $first on " "${long[@]}" --resume-from-checkpoint latest
expect_says 73 "of two ranks" "process $first on " "${long[@]}" --resume-from-checkpoint latest --nproc 2
kill -9 $first; wait $first 2>/dev/null
expect 0 "after a crash the folder is free" "${long[@]}" --max-steps $(($(last_step) + 3)) --resume-from-checkpoint latest
lock_is_nobodys() {
    [ -e "$T/a/.lock" ] && [ "$(ckpt-inspect --json --scan "$T/a" | tr -d ' \n' | sed 's/.*"files":\([0-9]*\).*/\1/')" = "$(find "$T/a" -type f ! -name .lock | wc -l)" ] && ! ckpt-inspect --json "$T/a" | grep -q '\.lock' && ! ckpt-inspect --scan "$T/a" | grep -q '\.lock' &&
        ckpt-merge -q -o "$T/m" "$T/a" && [ ! -e "$T/m/.lock" ] && mkdir "$T/p" && ckpt-push -q "$T/p" "$T/a" && [ ! -e "$T/p/.lock" ]
}
t "the lock is part of nothing" lock_is_nobodys

# A folder with checkpoints of an earlier run: known before the first step.
refused() {     # refused NAME STATUS command...: and not a step was made
    local name=$1 lines; shift; lines=$(wc -l < "$T/a/metrics.jsonl")
    expect 73 "$name" "$@"; t "before the first step" [ "$lines" = "$(wc -l < "$T/a/metrics.jsonl")" ]
}
refused "a fresh run where one was" train a
t "says how to go on" says "--resume-from-checkpoint latest"
refused "going back behind a newer checkpoint" train a --resume-from-checkpoint "$T/a/checkpoint-5"
refused "another run's names, two ranks" two a --save-steps 3
expect_says 73 "a dry run is refused, too" "exists already, of an earlier run" train a --dry-run
cp -r "$T/a" "$T/o"
t "--overwrite-output-dir begins anew" train o --overwrite-output-dir --max-steps 6 --save-steps 3
t "the earlier run's checkpoints are gone" bash -c "[ \"\$(ls -d $T/o/checkpoint-* | xargs -n 1 basename | tr '\n' ' ')\" = 'checkpoint-3 checkpoint-6 ' ]"
runs() { grep -c '"start_step":' "$T/$1/metrics.jsonl"; }
t "two runs in one metrics.jsonl" [ "$(runs o)" = 2 ]
t "each row with its time" bash -c "! grep -v '\"time\":[0-9]' $T/o/metrics.jsonl"
last() { ckpt-inspect --compare --json "$T/$1" | tr -d ' \n' | grep -o '"step":[0-9.]*' | head -1; }
t "the newest is compared" [ "$(last o)" = '"step":6.0' ]
t "and drawn" bash -c "ckpt-inspect --plot $T/o/metrics.jsonl | grep -q '^loss.*1 to 6'"
sums "$T/o" > "$T/was"
SAY= expect 0 "nothing to do" train o --max-steps 6 --resume-from-checkpoint latest
t "is said" says "nothing to do: $T/o/checkpoint-6 is at step 6"
t "and nothing is written" bash -c "cd $T/o && grep -v '/.lock' $T/was | sha256sum --quiet -c"
t "going on writes its own summary" train o --max-steps 8 --save-steps 0 --resume-from-checkpoint latest
curve() { ckpt-inspect --json --compare --plot "$T/$1" 2>/dev/null | tr -d ' \n'; }
t "on the same curve" bash -c "ckpt-inspect --plot $T/o/metrics.jsonl | grep -q '^loss.*1 to 8'"
printf '{"epoch":1,"loss":1' >> "$T/o/metrics.jsonl"
t "a torn line is no harm" train o --max-steps 9 --resume-from-checkpoint latest
t "to the next run's" [ "$(runs o)" = 4 ]
counted() { tr -d ' \n' < "$T/a/checkpoint-10/trainer_state.json" | sed -n 's/.*"num_input_tokens_seen":\([0-9]*\),.*"total_flos":\([0-9.]*\),.*/\1 \2/p'; }
t "floating point operations as HF counts them" bash -c "read tokens flos <<< '$(counted)'; [ \"\$tokens\" -gt 0 ] && awk -v t=\$tokens -v f=\$flos 'BEGIN { n = f / t / 6; exit n != 14544 }'"
SAY= expect_says 0 "a run that diverges" "the run diverged" train v --learning-rate 900
t "in columns" bash -c "! grep -qE '[0-9]{12}' $T/.err"

# What stays of --save-total-limit, as HF Trainer's rule has it: the best counts, and beside it the newest stays.
held() { train "$@" --save-steps 2 --eval-steps 2 --eval-file "$M/rows.jsonl"; }
left() { ls "$T/$1" | sed -n 's/^checkpoint-//p' | sort -n | tr '\n' ' '; }
t "the newest is the best" held p1 --save-total-limit 2
t "two stay" [ "$(left p1)" = "8 10 " ]
t "a limit of one" held p2 --save-total-limit 1
t "one stays" [ "$(left p2)" = "10 " ]
t "the first is the best" held p3 --save-total-limit 1 --learning-rate 30 --metric-for-best-model eval_loss
t "it stays, and the newest" [ "$(left p3)" = "2 10 " ]
t "of three" held p4 --save-total-limit 3 --learning-rate 30 --metric-for-best-model loss
t "it is one of them" [ "$(left p4)" = "2 8 10 " ]
t "however the folder is spelt" held p4 --save-total-limit 2 --learning-rate 30 --metric-for-best-model loss --max-steps 14 --resume-from-checkpoint latest -o "$T/./p4"
t "the best is known" [ "$(left p4)" = "2 14 " ]
# Nothing is pruned while somebody reads it; a later save, or run, does.
cp -r "$T/a" "$T/r"; rm -rf "$T/r/checkpoint-10"
exec 9<"$T/r/checkpoint-5"; flock -s 9
SAY= expect 0 "beside a reader" train r --save-total-limit 1 --resume-from-checkpoint latest
t "what is read stays" [ "$(left r)" = "5 10 " ]
t "which is said" says "checkpoint-5 stays beyond --save-total-limit"
expect_says 73 "nor is it overwritten" "another process reads it" train r --overwrite-output-dir
exec 9<&-
t "read to its end" train r --max-steps 12 --save-total-limit 1 --resume-from-checkpoint latest
t "it goes" [ "$(left r)" = "12 " ]
t "and nothing of it is left" bash -c "! ls -A $T/r | grep trash"

# A published checkpoint may lack what is private: it is gone on from with the same bits.
git lfs install --skip-repo >/dev/null 2>&1
published() {   # published FROM how...: pushed, cloned, gone on from
    local from=$1; shift
    ckpt-push -q --create --exclude training_args.bin "$T/$from.git" "$T/$from/checkpoint-5" && git clone -q "$T/$from.git" "$T/$from-clone" &&
        [ ! -e "$T/$from-clone/training_args.bin" ] && SAY= "$@" "$from-on" --resume-from-checkpoint "$T/$from-clone" && same_state "$from" "$from-on"
}
t "a published checkpoint" published a train
t "one of two ranks" published z two
SAY= expect 0 "is gone on from" train n --resume-from-checkpoint "$T/a-clone"
t "a note names what it lacks" says "continuing without training_args.bin, which resuming does not need"
echo "edited" > "$T/a-clone/README.md"; rm "$T/a-clone/scheduler.pt"
t "a card may be edited, the schedule follows from settings" train n2 --resume-from-checkpoint "$T/a-clone"
t "and the same bits" same_state a n2
rm "$T/a-clone/trainer_state.json"
expect_says 65 "without its state it is none" "trainer_state.json: absent" train n3 --resume-from-checkpoint "$T/a-clone"

# Doors.
t "latest in a folder that is not there yet, with parents" train new/deep/x --resume-from-checkpoint latest
printf 'resume_from_checkpoint: true\n' > "$T/true.yaml"; printf 'resume_from_checkpoint: false\n' > "$T/false.yaml"
SAY= expect 0 "true, as a run file has it" train new/y --config "$T/true.yaml"
t "says that it starts afresh" says "$T/new/y: no checkpoint to go on from yet: starting afresh"
SAY= expect 0 "the same command again" train new/y --config "$T/true.yaml" --max-steps 12
t "goes on" says "resuming from $T/new/y/checkpoint-10, step 10"
expect 73 "false is a fresh run" train new/y --config "$T/false.yaml"
expect 78 "anew from nothing" ckpt-train --train-file "$M/rows.jsonl" --resume-from-checkpoint latest -o "$T/new/z"
t "makes nothing" [ ! -e "$T/new/z" ]
expect 66 "a checkpoint that is not there" train new/z --resume-from-checkpoint "$T/nothing"
t "is named once" says "$T/nothing: no such checkpoint"
t "a run's folder is its newest checkpoint" ckpt-train -q --model "$T/a" --train-file "$M/rows.jsonl" --max-steps 1 -o "$T/f"
t "to go on from" train f2 --max-steps 11 --resume-from-checkpoint "$T/a"
t "to evaluate" ckpt-eval -q --eval-file "$M/rows.jsonl" "$T/a"
t "of an adapter" train ad --lora-rank 2 --target-modules query_key_value
t "to evaluate it" ckpt-eval -q --eval-file "$M/rows.jsonl" --base "$M/base" "$T/ad"
t "to train it on" ckpt-train -q --adapter "$T/ad" --train-file "$M/rows.jsonl" --max-steps 1 -o "$T/ad2"
t "which names its base" grep -q "bloom-qkv/base" "$T/ad2/checkpoint-1/adapter_config.json"
t "fresh weights below folders that are missing" ckpt-train -q --init tools/recipes/demo/config.json --tokenizer tools/recipes/demo/tokenizer --init-only -o "$T/new/w/v"

# Cards and licences go along, an adapter has its own card.
cp -r "$M/base" "$T/carded"; echo card > "$T/carded/README.md"; echo free > "$T/carded/LICENSE.txt"; echo "{}" > "$T/carded/trainer_state.json"
carded() { train "$1" --model "$T/carded" --max-steps 2 "${@:2}"; }
t "a model with a card" carded card
t "keeps it" cmp "$T/carded/README.md" "$T/card/checkpoint-2/README.md"
t "and its licence" cmp "$T/carded/LICENSE.txt" "$T/card/checkpoint-2/LICENSE.txt"
t "once resumed too" carded card --max-steps 3 --resume-from-checkpoint latest
t "from itself" ckpt-train -q --train-file "$M/rows.jsonl" --per-device-train-batch-size 2 --max-steps 4 --resume-from-checkpoint "$T/card" -o "$T/card2"
t "it has them" cmp "$T/carded/README.md" "$T/card2/checkpoint-4/README.md"
t "an adapter of it" carded card3 --lora-rank 2 --target-modules query_key_value
t "has the licence alone" bash -c "[ -e $T/card3/checkpoint-2/LICENSE.txt ] && [ ! -e $T/card3/checkpoint-2/README.md ]"

# A dry run writes nothing, and tells.
dry() { (cd "$T/dry" && TMPDIR=$T/dry ckpt-train --dry-run --model "$M/base" --train-file "$T/more.jsonl" --max-seq-length 16 "$@"); }
mkdir "$T/dry"; for i in 1 2 3 4 5 6; do cat "$M/rows.jsonl"; done > "$T/more.jsonl"
expect 0 "a dry run that cuts its data" dry --train-split-ratio 0.5
t "writes nothing" [ -z "$(ls -A "$T/dry")" ]
expect 0 "of ten steps" dry --max-steps 10
t "tells rows and tokens" grep -qE "data: [0-9]+ rows, [0-9]+ tokens in 10 steps; [0-9.e+]+ epochs of [0-9]+ steps" "$T/.err"
expect 71 "of more than the host has" dry --max-seq-length 1048576 --per-device-train-batch-size 1024
t "is refused with figures" grep -qE "this host has [0-9.]+ GiB, [0-9.]+ are needed" "$T/.err"
t "and what would help" says "hint: less is worked on at once"

# Names that lead nowhere are told as they were typed.
model() { ckpt-train -q --model "$1" --train-file "$M/rows.jsonl" -o "$T/none"; }
scored() { ckpt-eval -q --prompt x "$1"; }
for tool in model scored; do
    expect_says 66 "$tool: nothing there" ": nosuch-model: no such file or directory" $tool nosuch-model
    t "perhaps of the Hub" says "hint: a model of the Hub is named hf://OWNER/nosuch-model"
    expect_says 66 "$tool: of the Hub" "hint: a model of the Hub is named hf://Qwen/Qwen3-8B" $tool Qwen/Qwen3-8B
    expect_says 65 "$tool: records" "rows.jsonl: a file of records, a model is wanted here" $tool "$M/rows.jsonl"
    cp "$M/base/model.safetensors" "$T/alone.safetensors"
    expect_says 66 "$tool: weights alone" "alone.safetensors: no config.json lies beside it" $tool "$T/alone.safetensors"
    mkdir -p "$T/killed"; cp "$T/a/metrics.jsonl" "$T/killed"
    expect_says 66 "$tool: a run that saved nothing" "the folder of a run that has saved no checkpoint" $tool "$T/killed"
done
expect 65 "ckpt-inspect: a run that saved nothing" ckpt-inspect "$T/killed"
t "is called that too" says "the log of a run that has saved no checkpoint"

# The whole model as one torch file beside the checkpoints, under a name of the user's.  [D3]
(
M=$G/lora/bloom-qkv
train() {       # OUT OPTION...
    local out=$1; shift
    ckpt-train -q --device cpu --model "$M/base" --train-file "$M/rows.jsonl" --per-device-train-batch-size 1 --learning-rate 1e-3 --max-steps 4 --save-steps 2 -o "$T/$out" "$@"
}
for how in "--nproc 2 --zero-stage 0" "--nproc 2 --zero-stage 1" "--nproc 2 --zero-stage 3" ""; do
    rm -rf "$T"/a "$T"/m "$T"/n
    # shellcheck disable=SC2086
    expect 0 "a name with words${how:+, $how}" train a $how --state-dict-file 'tiny_{start}-{end}-epoch-{n}-{step}.pt' --start-idx 1 --end-idx 7
    file=$(ls "$T/a" | grep -- '-4.pt')
    t "the slice, the epoch and the step are in it" [ "${file%%-epoch*}" = tiny_1-7 ]
    t "one for each save" [ "$(ls "$T"/a/*.pt | wc -l)" = 2 ]
    t "it is announced after the checkpoint" [ "$(tail -n 1 "$T/.out")" = "$T/a/$file" ]
    t "and proves" ckpt-inspect --verify "$T/a/$file"
    t "the tied head is in it" bash -c "ckpt-inspect --json '$T/a/$file' | grep -q lm_head.weight"
    t "its weights" ckpt-merge -q -o "$T/m" "$T/a/checkpoint-4"
    ckpt-inspect --diff "$T/m/model.safetensors" "$T/a/$file" >"$T/diff" 2>/dev/null
    t "are the checkpoint's" bash -c "grep -q 'lm_head.weight *only in the second' $T/diff && grep -q 'unequal tensors: 1$' $T/diff && grep -q '^equal tensors: [1-9]' $T/diff"
done
t "a name of every save is replaced" train b --state-dict-file last.pt
t "so one is left" [ "$(ls "$T"/b/*.pt)" = "$T/b/last.pt" ]
refused() { expect_says 78 "$1" "$2" train c "${@:3}"; t "before anything is written" [ ! -e "$T/c" ]; }
refused "another word" "not {rank}" --state-dict-file 'a{rank}.pt'
refused "an end that is not known" "--end-idx" --state-dict-file 'a-{end}.pt'
refused "a path" "the name of a file" --state-dict-file '../a.pt'
refused "another kind of file" "the name of a file" --state-dict-file 'a.bin'
refused "an adapter" "an adapter is trained" --state-dict-file a.pt --lora-rank 2 --target-modules query_key_value
)
