# Several ranks on this host: whatever happens to one of them is told once, with its status, soon, and nobody is left.
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 600 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
ranks() { local n=$1; shift; timeout -s KILL 60 ckpt-train -q --model "$T/base" --max-seq-length 64 --per-device-train-batch-size 2 --nproc "$n" "$@"; }
now() { date +%s%N; }
mark=$$.$RANDOM
# Processes of run NAME, found by a mark in their environment; with a rank, that rank's.
pids() {
    local p
    for p in $(grep -lsaz "^RANKS_TEST=$mark.$1\$" /proc/[0-9]*/environ 2>/dev/null); do
        p=${p%/environ}
        [ -z "${2:-}" ] || grep -qsaz "^OMPI_COMM_WORLD_RANK=$2\$" "$p/environ" || continue
        echo "${p#/proc/}"
    done
}
# The one that answers for the ranks: no launcher told it a rank, and it is neither mpirun nor timeout.
supervisor() { local p; for p in $(pids "$1"); do [ "$(cat "/proc/$p/comm" 2>/dev/null)" = ckpt-train ] && ! grep -qsaz '^OMPI_COMM_WORLD_RANK=' "/proc/$p/environ" && echo "$p"; done | head -n 1; }
# start NAME OPTION... - a run of two ranks in the background that goes on until something happens.
start() {
    local name=$1; shift
    rm -rf "$T/$name"
    RANKS_TEST=$mark.$name ranks 2 --train-file "$T/train.jsonl" --max-steps 100000 -o "$T/$name" "$@" >"$T/$name.out" 2>"$T/$name.err" &
    run=$!
}
# until_seen SECONDS command... - wait until the command succeeds.
until_seen() { local end=$(($(now) + $1 * 1000000000)); shift; until "$@"; do [ "$(now)" -lt $end ] || return 1; sleep 0.02; done; }
there() { [ -n "$(pids "$@")" ]; }
steps() { [ -s "$T/$1/metrics.jsonl" ]; }
# ended NAME STATUS PATTERN - the run ends within five seconds of $since with the status and one line of error; nobody is left.
ended() {
    local got ms left
    wait $run; got=$?
    ms=$((($(now) - since) / 1000000)); left=$(pids "$1")
    [ $got = "$2" ] && [ $ms -lt 5000 ] && [ -z "$left" ] && grep -v '^hint: ' "$T/$1.err" | one_line "^ckpt-train: $3" && return
    echo "status $got after $ms ms, left: ${left:-none}"; cat "$T/$1.err"; return 1
}
# hit NAME SIGNAL STATUS PATTERN - send rank 1 of the run a signal.
hit() { since=$(now); kill -s "$2" "$(pids "$1" 1 | head -n 1)" && ended "$1" "$3" "$4"; }

# A record that only one rank comes to.  A3
(head -n 60 "$T/train.jsonl"; echo '{"instruction": 5'; tail -n 60 "$T/train.jsonl") >"$T/bad.jsonl"
for n in 2 3; do
    for i in 1 2; do
        expect 65 "a bad record, $n ranks, start $i" ranks $n --train-file "$T/bad.jsonl" --max-steps 100 -o "$T/bad"
        grep -q "^ckpt-train: rank [0-9].*bad.jsonl: record 61: " "$T/.err" && echo "ok it is named" || fail "it is named" "$T/.err"
    done
done

(head -n 60 "$T/train.jsonl"; echo '{"instruction": "a"}') >"$T/few.jsonl"
expect 65 "a record without its fields" ranks 2 --train-file "$T/few.jsonl" --max-steps 100 -o "$T/bad"
mpi() { local n=$1; shift; env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none timeout -s KILL 60 mpirun --oversubscribe --bind-to none --quiet -np "$n" "$@"; }
expect 65 "the same under mpirun" mpi 2 ckpt-train -q --model "$T/base" --train-file "$T/few.jsonl" --max-steps 100 -o "$T/bad"

# What goes wrong while ranks start is never lost.
starts() {
    local i
    for i in $(seq "$1"); do
        ranks "$2" --train-file "$T/train.jsonl" --offload-optimizer cpu -o "$T/none" >"$T/.out" 2>"$T/.err"
        [ $? = 78 ] && one_line "^ckpt-train: rank 0: --offload-optimizer cpu is of one rank, there are $2\$" <"$T/.err" || { echo "start $i:"; cat "$T/.err"; return 1; }
    done
}
t "20 starts of four ranks, the same error of all" starts 20 4
mkdir "$T/empty"
expect 66 "no model" ranks 2 --model "$T/empty" --train-file "$T/train.jsonl" -o "$T/none"
expect 69 "no mpirun" env PATH="$B" "$B/ckpt-train" -q --model "$T/base" --train-file "$T/train.jsonl" --nproc 2 -o "$T/none"

# A rank that dies or stands still, at any time.
start k1; until_seen 5 there k1 1; t "killed while it starts" hit k1 KILL 75 'rank 1 on [^ ]*, process [0-9]*: killed by SIGKILL in: start-up|mpirun ended .*signal 9'
start k2; until_seen 9 there k2 1; sleep 0.4; t "killed a little later" hit k2 KILL 75 'rank 1 on [^ ]*, process [0-9]*: killed by SIGKILL in: '
start k3 --logging-steps 1; until_seen 9 steps k3; t "killed in a step" hit k3 KILL 75 'rank 1 .*: killed by SIGKILL in: train step [0-9]+$'
start k4 --save-steps 1; until_seen 9 [ -d "$T/k4/checkpoint-2" ]; t "killed in a run that saves" hit k4 KILL 75 'rank 1 .*: killed by SIGKILL in: '
t "and goes on" ranks 2 --train-file "$T/train.jsonl" --max-steps 4 -o "$T/k4" --resume-from-checkpoint latest
start k5 --eval-file "$T/eval.jsonl" --eval-steps 1; until_seen 9 steps k5; t "killed in a run that evaluates" hit k5 KILL 75 'rank 1 .*: killed by SIGKILL in: '
start k6 --logging-steps 1; until_seen 9 steps k6; t "a crash is no reason to try again" hit k6 TRAP 75 'rank 1 .*: killed by SIGTRAP in: '
start s1; until_seen 5 there s1 1; sleep 0.3; t "stopped while it starts" hit s1 STOP 75 'rank 1 on [^ ]*, process [0-9]*: stopped, not heard for [0-9]* s, in: '
start s2 --save-steps 1 --logging-steps 1; until_seen 9 steps s2; t "stopped later" hit s2 STOP 75 'rank 1 .*: stopped, not heard for [0-9]* s, in: '

# Signals are the run's: it saves, and says so with its own status.
saved() { since=$(now); kill -s "$2" "$(supervisor "$1")" && ended "$1" 75 'stopped at step [0-9]+, saved: ' && [ -n "$(ls -d "$T/$1"/checkpoint-*)" ]; }
for sig in INT TERM HUP USR1 USR2; do
    start "g$sig"; until_seen 9 there "g$sig" 1; sleep 0.$((RANDOM % 9)); t "SIG$sig after a while" saved "g$sig" "$sig"
done
twice() { kill -s TERM "$(supervisor "$1")"; sleep 0.2; kill -s TERM "$(supervisor "$1")" 2>/dev/null; since=$(now); ended "$1" 75 'stopped at step'; }
start tw --logging-steps 1; until_seen 9 steps tw; t "the same signal at once is one request" twice tw
again() { kill -s STOP "$(pids "$1" 0 | head -n 1)"; kill -s INT "$(supervisor "$1")"; sleep 1.1; since=$(now); kill -s INT "$(supervisor "$1")"; ended "$1" 130 'SIGINT again: '; }
start ag --logging-steps 1; until_seen 9 steps ag; t "a second one later ends all" again ag
gone() { kill -s KILL "$(supervisor "$1")"; until_seen 5 none "$1"; }
none() { [ -z "$(pids "$1")" ]; }
start o1 --logging-steps 1; until_seen 9 steps o1; t "ranks end with their supervisor" gone o1; wait $run 2>/dev/null
start o2; until_seen 5 there o2 1; t "also while they start" gone o2; wait $run 2>/dev/null
lone() { since=$(now); for p in $(pids "$1"); do [ "$(cat "/proc/$p/comm" 2>/dev/null)" = mpirun ] && kill -s KILL "$p"; done; ended "$1" 75 'mpirun ended by SIGKILL, '; }
start m1 --logging-steps 1; until_seen 9 steps m1; t "and with mpirun" lone m1
