# Readers of a run's output: slow ones, dead ones, and those that never read.  No checkpoint goes before its reader has
# it, no step waits, nothing is lost without a word.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/broken.sh"
cd "$T" || exit 1
export T
train() { ckpt-train --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 --threads 1 --save-steps 1 --save-total-limit 1 -o run $1 2>err; }
count() { ls -d run/checkpoint-* | wc -l; }
export -f train count wait_for
# run OPTIONS READER [STATUS] - a run whose output READER reads.
run() {
    rm -rf run
    bash -c "train '$1' | { $2; }; echo \${PIPESTATUS[0]} > status"
    [ "$(cat status)" = "${3:-0}" ] || { cat status err; return 1; }
}

# A reader that is stopped at first: all that it is to get is there when it comes.
t "a reader that comes late" run "--max-steps 30" "for _ in 1 2 3; do wait_for \"[ -s run/all_results.json ]\" && break; done; count > seen; cat > read"
t "finds every checkpoint" [ "$(cat seen)" = 30 ]
t "gets every path, in order" bash -c "diff read <(seq -f run/checkpoint-%g 30)"
t "says that they stay" bash -c "[ \$(grep -c 'warning: standard output: its reader has not taken [0-9]* checkpoints: they stay beyond --save-total-limit' err) = 1 ]"
t "a reader at once" run "--max-steps 30 --learning-rate 1e-4" "cat > read"
t "no more stay than the limit and what was read last" [ "$(count)" -le 3 ]
# Merge is slower than the run: it has leases of what it read, the run of what lies in the pipe.
keeps='ckpt-merge -q -o merged > read'
rm -rf merged; t "a merge behind the run" run "--max-steps 40 -q" "$keeps"
t "has merged all" [ "$(ls merged | wc -l)" = 40 ]
rm -rf merged; t "with ranks" run "--max-steps 12 -q --nproc 2 --zero-stage 2" "$keeps"
t "has merged all of them" [ "$(ls merged | wc -l)" = 12 ]
stopped='ckpt-merge -q -o merged > read & m=$!; kill -STOP $m; sleep 1; kill -CONT $m; wait $m'
rm -rf merged; t "a merge that was stopped" run "--max-steps 30 -q" "exec 3<&0; { $stopped; } <&3"
# A pipe that is full: lines wait in the run.
t "a full pipe" run "--max-steps 200 -o $(printf 'run/%0200d/%0200d' 0 0)" "for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do wait_for '[ -s run/*/*/all_results.json ]' && break; done; sleep 2; wc -l < run/*/*/metrics.jsonl > seen; grep -c . > read"
t "says that it waits" grep -q 'waiting until the reader of standard output takes the paths of checkpoints' err
t "and loses no line" [ "$(cat read)" = 200 ]
# Readers that left.
t "a reader that left" run "--max-steps 4" "true" 74
t "is one warning, with the first that was lost" bash -c "[ \$(grep -c 'warning: standard output: Broken pipe: no checkpoint is announced any more, from run/checkpoint-[1-4] on' err) = 1 ]"
t "and the error at the end" grep -qx 'ckpt-train: standard output: Broken pipe' err
t "a reader of one line" run "--max-steps 1" "head -n 1 > read" 0
# Paths of what was pruned before the reader came.
rm -rf run; mkdir run; cp -r "$T/base" run/checkpoint-3
gone() { printf '%s\n' run/checkpoint-1 run/checkpoint-2 run/checkpoint-3; }
merge() { rm -rf merged; gone | ckpt-merge -o merged > read 2>err; }
t "merge: pruned ones are skipped" merge
t "with a warning each" bash -c "[ \$(grep -c 'warning: run/checkpoint-[12]: was removed before its path was read, and a later checkpoint is there: skipped' err) = 2 ]"
t "the other one is merged" grep -qx merged/checkpoint-3 read
push() { gone | ckpt-push "$T/pub" > read 2>err; }
t "push: too" push
t "with warnings" bash -c "[ \$(grep -c 'warning: .*: skipped' err) = 2 ]"
expect 66 "a later one that is absent is none of them" bash -c 'printf "run/checkpoint-4\n" | ckpt-push -q pub'
expect 66 "nor is another name" bash -c 'printf "run/checkpoint-1-merged\n" | ckpt-push -q pub'
expect 66 "nor one of the command line" ckpt-push -q pub run/checkpoint-1
