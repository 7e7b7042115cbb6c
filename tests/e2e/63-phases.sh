# A signal in each phase of a run, on one rank and on two: its status, and what goes on from there is the unbroken run.
# A disk that is full, and has room again.
[ -w /dev/shm ] && export TMPDIR=/dev/shm
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/broken.sh"
for _ in $(seq 15); do cat "$T/train.jsonl"; done > "$T/many.jsonl"
train() { "$B/ckpt-train" --model ../base --train-file ../train.jsonl --max-seq-length 32 --per-device-train-batch-size 2 --threads 1 --save-steps 2 --logging-steps 1 -o run "$@" >out 2>err; }
eval=(--eval-file ../many.jsonl --eval-steps 2 --metric-for-best-model eval_loss --max-steps 5)
# signalled NAME SIGNAL STATUS WHEN OPTION... - the signal once the condition WHEN holds.
signalled() {
    local name=$1 sig=$2 want=$3 when=$4 p got end; shift 4
    rm -rf "$T/$name"; mkdir "$T/$name"; cd "$T/$name" || return 1
    train "$@" & p=$!
    end=$((SECONDS + 10)); until eval "$when" || [ $SECONDS -gt $end ]; do :; done
    kill -s "$sig" "$(pgrep -P $p -x ckpt-train || echo $p)"; wait $p; got=$?
    [ $got = "$want" ] && ! ls -A . run 2>/dev/null | grep -E 'staging|trash|tmp' || { echo "status $got"; ls -A . run; cat err; return 1; }
}
resumed() { cd "$T/$1" || return 1; shift; train "$@" --resume-from-checkpoint auto || { cat err; return 1; }; }
# Without figures of time.
untimed() { sed '/_runtime\|_per_second/d' "$1/run/checkpoint-5/trainer_state.json"; }
same() { diff <(untimed "$1") <(untimed "$2") && diff -rq -x MANIFEST.json -x trainer_state.json "$1/run/checkpoint-5" "$2/run/checkpoint-5" && cmp "$1/run/model.safetensors" "$2/run/model.safetensors"; }
says_saved() { grep -qE 'stopped at step [0-9]+, saved: go on with --resume-from-checkpoint latest' "$1/err"; }
for ranks in "" "--nproc 2 --zero-stage 2"; do
    of=${ranks:+, two ranks}
    mkdir -p "$T/whole"; cd "$T/whole" || exit 1; rm -rf run; t "an unbroken run$of" train "${eval[@]}" $ranks
    t "a signal while it evaluates$of" signalled ev TERM 75 'grep -q " 2/5 " err' "${eval[@]}" $ranks
    t "ends the evaluation$of" bash -c "! grep -q 'eval loss' '$T/ev/err'"
    t "with a checkpoint$of" says_saved "$T/ev"
    t "from which it goes on$of" resumed ev "${eval[@]}" $ranks
    t "as if nothing had been$of" same "$T/whole" "$T/ev"
    t "before the first step$of" signalled first HUP 75 '[ -s run/metrics.jsonl ]' "${eval[@]}" --eval-on-start $ranks
    t "nothing is saved$of" bash -c "! ls '$T/first/run' | grep -q checkpoint && grep -q 'stopped in the evaluation before step 1: nothing is lost' '$T/first/err'"
    t "while it reads data$of" signalled data INT 75 'grep -q . err' --max-steps 1000 --train-file ../many.jsonl --data-cache off $ranks
    for sig in USR1 USR2; do
        t "SIG$sig while it saves behind the steps$of" signalled save $sig 75 'ls -d run/.checkpoint-[4-9]*.staging-* >/dev/null 2>&1' --async-save true --save-steps 1 --max-steps 100000 --save-total-limit 2 $ranks
        t "has saved$of" says_saved "$T/save"
    done
    t "while it saves the final model$of" signalled final TERM 0 '[ -d run/checkpoint-5 ]' "${eval[@]}" $ranks
    t "which is whole$of" same "$T/whole" "$T/final"
done

# A limit of files that is lifted once a save has failed; a small file system that grows.
room() {        # HOW ASYNC OPTION... - saves fail, and succeed again
    local how=$1 p pid run got; shift
    rm -rf "$T/room"; mkdir "$T/room"; cd "$T/room" || return 1
    if [ "$how" = disk ]; then mkdir run && mount -t tmpfs -o size=400k none run || return 0; fi
    (if [ "$how" = limit ]; then ulimit -Sf 40; fi; train --max-steps 100000 --save-steps 20 --on-save-error continue --save-total-limit 2 --async-save "$@") & p=$!
    wait_for 'run=$(pgrep -P $p -x ckpt-train)'; wait_for 'grep -q "is not saved, the run continues: " err' || { cat err; return 1; }
    if [ "$how" = disk ]; then mount -o remount,size=60m run; else for pid in $run $(pgrep -P $run); do prlimit --pid "$pid" --fsize=unlimited:unlimited; done; fi
    wait_for 'grep -q . out'; kill -TERM $run; wait $p; got=$?
    { [ $got = 75 ] && whole && says_saved . && ! ls -A run | grep -E 'staging|trash|tmp'; } || { got=1; tail err; ls -A run; }
    [ "$how" = limit ] || { cd "$T"; umount room/run; }
    [ $got = 75 ]
}
for async in true false; do
    t "room again after a limit of files, --async-save $async" room limit $async
    t "of two ranks" room limit $async --nproc 2 --zero-stage 2
    t "after a full disk" room disk $async
    t "of two ranks" room disk $async --nproc 2 --zero-stage 2
done
