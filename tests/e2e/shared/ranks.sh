# ranks.sh - sourced after lib.sh by scripts that start ranks: a small model and data, runs in the
# background, their processes, and how they end.
R=tools/recipes/demo
$R/wordnet.sh "$T" 600 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
ranks() { local n=$1; shift; timeout -s KILL 60 ckpt-train -q --model "$T/base" --max-seq-length 64 --per-device-train-batch-size 2 --nproc "$n" "$@"; }
now() { date +%s%N; }
mark=$$.$RANDOM
# Processes of run NAME, found by a mark in their environment; with a rank, that rank's.
pids() {
    local p
    for p in $(grep -lsaz "^CKPT_TEST_RUN=$mark.$1\$" /proc/[0-9]*/environ 2>/dev/null); do
        p=${p%/environ}
        [ -z "${2:-}" ] || grep -qsaz "^RANK=$2\$" "$p/environ" || continue
        echo "${p#/proc/}"
    done
}
# The one that answers for the ranks: no launcher told it a rank, and it is not timeout.
supervisor() { local p; for p in $(pids "$1"); do [ "$(cat "/proc/$p/comm" 2>/dev/null)" = ckpt-train ] && ! grep -qsaz '^RANK=' "/proc/$p/environ" && echo "$p"; done | head -n 1; }
# start NAME OPTION... - a run of two ranks in the background that goes on until something happens.
start() {
    local name=$1; shift
    rm -rf "$T/$name"
    CKPT_TEST_RUN=$mark.$name ranks 2 --train-file "$T/train.jsonl" --max-steps 100000 -o "$T/$name" "$@" >"$T/$name.out" 2>"$T/$name.err" &
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
# aside NAME command... - in a folder of its own, so that another one can go on beside it.
aside() {
    mkdir "$T/by-$1"; ln -s "$T"/{base,train.jsonl,eval.jsonl} "$T/by-$1"
    (T=$T/by-$1; shift; "$@")
}
# hit NAME SIGNAL STATUS PATTERN - send rank 1 of the run a signal.
hit() { since=$(now); kill -s "$2" "$(pids "$1" 1 | head -n 1)" && ended "$1" "$3" "$4"; }
