# Runs that are stopped at random moments, by a signal to one process or by a kill of one or all, again and again, and
# each time go on: they end with the bytes of a run that nobody stopped.
#   CYCLES=N  stops (12; make check-cycles: 1000)    SEED=N  of the moments
[ -w /dev/shm ] && export TMPDIR=/dev/shm
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/broken.sh"
RANDOM=${SEED:-7}
command=(--model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 --threads 1 --learning-rate 1e-3 --lr-scheduler-type cosine
    --gradient-accumulation-steps 2 --max-steps 50 --save-steps 5 --logging-steps 3 --save-total-limit 2 -o run -q)
pick() { local n=$((RANDOM % $# + 1)); echo "${!n}"; }
# One of what a run may be.
a_kind() {
    kind=(--async-save "$(pick true false)" --seed "$(pick 1 2)")
    case $((RANDOM % 7)) in
    0) ;;
    1) kind+=(--bf16 --optim adamw_8bit) ;;
    2) kind+=(--lora-rank 2 --target-modules all-linear --lora-dropout 0.2) ;;
    3) kind+=(--nproc 2 --zero-stage "$(pick 0 1)") ;;
    4) kind+=(--nproc 2 --zero-stage "$(pick 2 3)" --bf16) ;;
    5) kind+=(--packing --save-steps 1) ;;
    6) kind+=(--nproc 2 --zero-stage 2 --lora-rank 2 --target-modules all-linear --lora-dropout 0.2) ;;
    esac
}
group() { pgrep -g "$1" | tr '\n' ' '; }
# stopped - the run goes on from the newest until it is stopped at a random moment: 0, or ends: 1.
stopped() {
    local how pid got all
    setsid "$B/ckpt-train" "${command[@]}" "${kind[@]}" --resume-from-checkpoint auto >out 2>err </dev/null &
    pid=$!
    sleep "0.$(printf %03d $((RANDOM % 250)))"
    how=$(pick TERM INT HUP KILL one all all)
    all=$(group $pid)
    case $how in
    all) kill -KILL -- -$pid ;;
    one) kill -KILL $(pick $all) ;;
    *)   kill -s "$how" $pid ;;
    esac 2>/dev/null
    wait $pid 2>/dev/null; got=$?
    for _ in $(seq 100); do [ -n "$(group $pid)" ] || break; sleep 0.05; done
    [ -z "$(group $pid)" ] || { echo "$how: left over: $(group $pid)"; return 2; }
    case $how:$got in
    *:0) return 1 ;;
    TERM:75|TERM:143|INT:75|INT:130|HUP:75|HUP:129|KILL:137|all:137|one:137|one:7[15]) return 0 ;;
    esac
    echo "$how: status $got"; cat err; return 2
}
cycles() {
    local n=0 runs=0 got key
    while [ $n -lt "$1" ]; do
        a_kind
        key=$(tr -c 'a-z0-9\n' _ <<<"${kind[*]}")
        if [ ! -d "$T/want-$key" ]; then
            mkdir "$T/want-$key"; cd "$T/want-$key" || return 1
            ckpt-train "${command[@]}" "${kind[@]}" >/dev/null 2>"$T/err" || { cat "$T/err"; return 1; }
        fi
        rm -rf "$T/d"; mkdir "$T/d"; cd "$T/d" || return 1
        while :; do
            stopped; got=$?
            [ $got = 0 ] || break
            n=$((n + 1))
            whole || { echo "after $n: ${kind[*]}"; return 1; }
        done
        [ $got = 1 ] && same_as_unbroken "$T/want-$key" || { echo "run $runs, $n stops: ${kind[*]}"; return 1; }
        runs=$((runs + 1))
    done
    echo "$n stops of $runs runs"
}
t "${CYCLES:=12} stops at random moments" cycles "$CYCLES"
tail -n 1 "$T/.t"
