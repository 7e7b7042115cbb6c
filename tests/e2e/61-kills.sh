# A run that is killed at its n-th system call on its output folder: no half checkpoint, none that was announced is
# lost, and the run that goes on ends with the same bytes, and leaves nothing else.
#   KILLS=N     calls of each kind of run that are tried (4); all: every one (make check-kills)
#   ONLY_RUNS=PATTERN   the kinds of runs
[ -w /dev/shm ] && export TMPDIR=/dev/shm
. "$(dirname "$0")/lib.sh"
[ -x "$B/kill_at" ] || { echo "not ok kill_at is built in $B"; exit 1; }
"$B/kill_at" 0 "$T" true 2>/dev/null || { echo "ok no process may be traced here"; exit 0; }
. "$(dirname "$0")/shared/broken.sh"
train() { ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 --threads 1 --max-steps 3 --save-steps 1 --save-total-limit 2 -o run "$@"; }
export -f train; export T

# goes_on OPTION... - the run is resumed from the newest.
goes_on() {
    local from; from=$(newest_step)
    train --resume-from-checkpoint auto "$@" >out 2>err || { echo "status $?"; cat err; return 1; }
    [ "$from" = 3 ] || tail -n 8 run/metrics.jsonl | grep -q "\"start_step\":$from,.*\"max_steps\"" || { echo "not from $from"; return 1; }
    same_as_unbroken "$T/want"
}
# killed HOW OPTION... - at each n in turn; HOW: of kill_at.
killed() {
    local how=$1 n=1 all calls=${KILLS:-4} tried=0; shift
    [ "$calls" != all ] || calls=1000000
    rm -rf "$T/want"; mkdir "$T/want"; cd "$T/want" || return 1
    "$B/kill_at" -l "$T/calls" 0 . bash -c 'exec < /dev/null; train "$@"' - "$@" >/dev/null || return 1
    all=$(wc -l < "$T/calls")
    while :; do
        rm -rf "$T/d"; mkdir "$T/d"; cd "$T/d" || return 1
        "$B/kill_at" $how -l "$T/call" "$n" . bash -c 'exec < /dev/null; train "$@"' - "$@" >out 2>err
        [ -s "$T/call" ] || break
        { whole && goes_on "$@"; } >"$T/why" 2>&1 || { echo "call $n of $all:"; cat "$T/call" "$T/why" err; return 1; }
        tried=$((tried + 1))
        n=$((all > calls ? n + all / calls : n + 1))
    done
    echo "$tried of $all calls" | tee -a "$T/tried"
    [ "$tried" -ge 4 ]
}
kind() {
    case $1 in *${ONLY_RUNS:-}*) t "killed: $1" killed "${@:2}"; [ -z "${KILLS:-}" ] || tail -n 1 "$T/tried" ;; esac
}
two="--nproc 2 --zero-stage 2"
lora="--lora-rank 2 --target-modules all-linear"
kind "a save at once" "" --async-save false
kind "behind the steps" "" --async-save true
kind "an adapter, at once" "" $lora --async-save false
kind "an adapter, behind the steps" "" $lora --async-save true
kind "two ranks, at once" "" $two --async-save false
kind "two ranks, behind the steps" "" $two --async-save true
kind "one of two ranks" -1 $two --async-save true
kind "an adapter of two ranks, behind the steps" "" $two $lora --async-save true
