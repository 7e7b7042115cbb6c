# Several ranks on this host: whatever happens to one of them is told once, with its status, soon, and nobody is left.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/ranks.sh"

# A record that only one rank comes to.  A3
(head -n 60 "$T/train.jsonl"; echo '{"instruction": 5'; tail -n 60 "$T/train.jsonl") >"$T/bad.jsonl"
for n in 2 3; do
    for i in 1 2 3; do
        [ $n$i = 32 ] && break
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
        ranks "$2" --train-file "$T/train.jsonl" --bf16 --offload-param cpu -o "$T/none" >"$T/.out" 2>"$T/.err"
        [ $? = 78 ] && one_line "^ckpt-train: rank 0: --offload-param cpu of $2 ranks needs --zero-stage 1, 2 or 3\$" <"$T/.err" || { echo "start $i:"; cat "$T/.err"; return 1; }
    done
}
# STARTS of each kind and SIGNALS: few here, all of them by make check-ranks.
for n in 4 8; do
    aside "f$n" t "${STARTS:=6} starts of $n ranks, the same error of all" starts "$STARTS" $n &
done
wait
mkdir "$T/empty"
expect 66 "no model" ranks 2 --model "$T/empty" --train-file "$T/train.jsonl" -o "$T/none"
mkdir "$T/alone"; cp "$B/ckpt-train" "$T/alone"
expect 69 "no plug-in" env PATH=/nowhere CKPT_COMM=gloo "$T/alone/ckpt-train" -q --model "$T/base" --train-file "$T/train.jsonl" --nproc 2 -o "$T/none"
expect 0 "ranks of one host need none" env PATH=/nowhere CKPT_COMM=shared "$T/alone/ckpt-train" -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 1 --nproc 2 -o "$T/alone/run"
expect_says 78 "no other way to talk" 'CKPT_COMM: "pigeons" is neither shared nor gloo' env CKPT_COMM=pigeons ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --nproc 2 -o "$T/none"

# A rank that dies or stands still, at any time.
k1() { start k1; until_seen 5 there k1 1; t "killed while it starts" hit k1 KILL 75 'rank 1 on [^ ]*, process [0-9]*: killed by SIGKILL in: '; }
k4() {
    start k4 --save-steps 1; until_seen 9 [ -d "$T/k4/checkpoint-2" ]; t "killed in a run that saves" hit k4 KILL 75 'rank 1 .*: killed by SIGKILL in: '
    t "and goes on" ranks 2 --train-file "$T/train.jsonl" --max-steps 4 -o "$T/k4" --resume-from-checkpoint latest
}
k5() { start k5 --eval-file "$T/eval.jsonl" --eval-steps 1; until_seen 9 steps k5; t "killed in a run that evaluates" hit k5 KILL 75 'rank 1 .*: killed by SIGKILL in: '; }
k6() { start k6 --logging-steps 1; until_seen 9 steps k6; t "a crash is no reason to try again" hit k6 ILL 70 'rank 1 .*: killed by SIGILL in: train step [0-9]+$'; }
s1() { start s1; until_seen 5 there s1 1; sleep 0.3; t "stopped while it starts" hit s1 STOP 75 'rank 1 on [^ ]*, process [0-9]*: stopped, not heard for [0-9]* s, in: '; }
s2() { start s2 --save-steps 1 --logging-steps 1; until_seen 9 steps s2; t "stopped later" hit s2 STOP 75 'rank 1 .*: stopped, not heard for [0-9]* s, in: '; }
for two in "k4 k1" "k5 k6" "s1 s2"; do
    for one in $two; do aside "$one" "$one" & done
    wait
done

# Signals are the run's: it saves, and says so with its own status.
saved() { since=$(now); kill -s "$2" "$(supervisor "$1")" && ended "$1" 75 'stopped at step [0-9]+, saved: ' && [ -n "$(ls -d "$T/$1"/checkpoint-*)" ]; }
signalled() { start "g$1"; until_seen 9 there "g$1" 1; sleep 0.$((RANDOM % 9)); t "SIG$1 after a while" saved "g$1" "$1"; }
for two in "INT TERM" "HUP USR1" USR2; do
    for sig in $two; do aside "g$sig" signalled "$sig" & done
    wait
done
moments() {     # N - runs, each with a signal at another moment of its first two seconds
    local i sig
    for i in $(seq "$1"); do
        sig=$(shuf -n 1 -e INT TERM HUP USR1 USR2)
        start "m$i"; until_seen 9 there "m$i" 1; sleep $((RANDOM % 2)).$((RANDOM % 1000))
        saved "m$i" $sig || { echo "run $i, SIG$sig"; return 1; }
    done
}
[ "${SIGNALS:=2}" = 0 ] || t "$SIGNALS signals at random moments" moments "$SIGNALS"
twice() { kill -s TERM "$(supervisor "$1")"; sleep 0.2; kill -s TERM "$(supervisor "$1")" 2>/dev/null; since=$(now); ended "$1" 75 'stopped at step'; }
tw() { start tw --logging-steps 1; until_seen 9 steps tw; t "the same signal at once is one request" twice tw; }
again() { kill -s STOP "$(pids "$1" 0 | head -n 1)"; kill -s INT "$(supervisor "$1")"; sleep 1.1; since=$(now); kill -s INT "$(supervisor "$1")"; ended "$1" 130 'SIGINT again: '; }
ag() { start ag --logging-steps 1; until_seen 9 steps ag; t "a second one later ends all" again ag; }
gone() { kill -s KILL "$(supervisor "$1")"; until_seen 5 none "$1"; }
none() { [ -z "$(pids "$1")" ]; }
o1() { start o1 --logging-steps 1; until_seen 9 steps o1; t "ranks end with their supervisor" gone o1; wait $run 2>/dev/null; }
o2() { start o2; until_seen 5 there o2 1; t "also while they start" gone o2; wait $run 2>/dev/null; }
for two in "tw ag" "o1 o2"; do
    for one in $two; do aside "$one" "$one" & done
    wait
done

# What a job says of ranks, and whether they were started.  A11
one() { timeout 60 ckpt-train --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 1 "$@"; }
check() { [ "$2" = 0 ] && echo "ok $1" || fail "$1" "$T/.out" "$T/.err"; }
expect 0 "an evaluation is never one of ranks" env SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=0 WORLD_SIZE=2 RANK=1 OMPI_COMM_WORLD_SIZE=2 ckpt-eval -q --max-eval-samples 4 --eval-file "$T/eval.jsonl" "$T/base"
t "nor is a look" env SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=0 WORLD_SIZE=2 RANK=1 OMPI_COMM_WORLD_SIZE=2 ckpt-inspect "$T/base"
job() { env "${@:2}" timeout 60 ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 1 -o "$T/$1"; }
expect 78 "ranks without a place to meet" job j1 RANK=1 WORLD_SIZE=2
says "WORLD_SIZE says 2 ranks (torchrun), but neither MASTER_ADDR and MASTER_PORT nor MPI"; check "what was found where" $?
says "hint: --nproc 2 on one host, torchrun --no-python, mpirun -np 2 or srun start ranks"; check "and what starts them" $?
expect 78 "a number of ranks alone" job j1 WORLD_SIZE=2
expect_says 78 "a number that is none" 'WORLD_SIZE is "two": a number of ranks is wanted' job j1 WORLD_SIZE=two RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
expect_says 78 "a rank of no number of ranks" 'RANK is "1", but no WORLD_SIZE says how many ranks there are' job j1 RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
expect_says 78 "a port that is none" 'MASTER_PORT is "99999": 1 to 65535 is wanted' job j1 RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=99999
expect 78 "tasks of srun without their hosts" job j1 SLURM_NTASKS=8 SLURM_PROCID=3 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=8

# Ranks that meet through a store: torchrun's variables, by hand; srun's, without any MPI.  A1 D1
port=$((15000 + RANDOM % 15000))
# rank R WORLD PORT OPTION... - one of them
rank() { env RANK="$1" WORLD_SIZE="$2" LOCAL_RANK="$1" MASTER_ADDR=127.0.0.1 MASTER_PORT="$3" timeout 60 ckpt-train --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --per-device-train-batch-size 2 --max-steps 2 "${@:4}"; }
# both NAME - rank 1 beside rank 0 of two; their statuses, their words in NAME.0 and NAME.1
both() {
    local name=$1 second; shift
    port=$((port + 1))
    rank 1 2 $port -o "$T/$name" "$@" >"$T/$name.1" 2>&1 & second=$!
    rank 0 2 $port -o "$T/$name" "$@" >"$T/$name.0" 2>&1; first=$?
    wait $second; second=$?
    [ $first$second = 00 ] || { echo "status $first and $second"; cat "$T/$name".[01]; return 1; }
}
for stage in 0 3; do
    t "D7 ranks by hand, stage $stage" both "hand$stage" --zero-stage $stage
    t "as --nproc has them" ranks 2 --train-file "$T/train.jsonl" --max-steps 2 --zero-stage $stage -o "$T/nproc$stage"
    t "the same bits" bash -c "diff -r $T/hand$stage/checkpoint-2 $T/nproc$stage/checkpoint-2 -x '*.json' -x training_args.bin"
done
step() { env SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID="$1" SLURM_LOCALID="$1" SLURM_STEP_ID=0 SLURM_JOB_ID=$((port + $$)) SLURM_STEP_NODELIST="$(hostname)" timeout 60 ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 1 -o "$T/step"; }
steps_meet() { local p; step 1 & p=$!; step 0 && wait $p; }
t "C5 tasks of srun without PMI" steps_meet
other() {       # OPTION... - rank 1 of two with these options besides
    local second; port=$((port + 1))
    rank 1 2 $port -q -o "$T/none" "$@" >"$T/other.1" 2>&1 & second=$!
    rank 0 2 $port -q -o "$T/none"; first=$?
    wait $second
    return $first
}
t "a template of two lines" ranks 2 --train-file "$T/train.jsonl" --prompt-template "$(printf "{instruction}\n\nAnswer:")" --completion-template " {output}" --max-steps 1 -o "$T/lines"
expect 78 "ranks of other settings" other --learning-rate 1e-4
says "rank 1: --learning-rate is 0.0001 here"; check "are named" $?
says "rank 0 has 5e-05"; check "with both values" $?

unequal() {       # rank 1 of three beside rank 0 of two
    local second first; port=$((port + 1))
    rank 1 3 $port -q -o "$T/none" >"$T/unequal.1" 2>&1 & second=$!
    rank 0 2 $port -q -o "$T/none"; first=$?
    wait $second && return 1
    return $first
}
expect_says 78 "ranks of worlds of different sizes" "rank 0: rank 1 is one of 3 ranks, rank 0 of 2" unequal
t "both are told" grep -qx 'ckpt-train: rank 1: rank 0: rank 1 is one of 3 ranks, rank 0 of 2' "$T/unequal.1"

# Of ranks that nobody answers for, all end with the status of the one that failed, by its words: srun shows the largest.
told() {        # RANKS - rank 0 alone cannot write its files of a checkpoint
    local r pid=() status
    port=$((port + 1)); rm -rf "$T/told"
    for r in $(seq 0 $(($1 - 1))); do
        (ulimit -f $((r == 0 ? 8 : 1000000)); rank "$r" "$1" $port -q --max-steps 100000 --logging-steps 1 --save-steps 3 -o "$T/told") >"$T/told.$r" 2>&1 & pid[r]=$!
    done
    for r in $(seq 0 $(($1 - 1))); do
        wait "${pid[r]}"; status=$?
        [ $status = 74 ] || { echo "rank $r: status $status"; cat "$T/told.$r"; return 1; }
    done
    cat "$T"/told.? | grep -qE 'rank 0: .*File too large'
}
t "two ranks by hand, a checkpoint that one cannot write: both end with 74" told 2
t "three ranks" told 3

# Nobody answers for them: they watch each other.
trainer() { local p; for p in $(pids "$@"); do [ "$(cat "/proc/$p/comm" 2>/dev/null)" = ckpt-train ] && echo "$p"; done; }
watched() {     # SIGNAL RANK STATUS TEXT - of three ranks one gets the signal; the others end within five seconds, by name
    local name=w$1$2 r pid=() left status
    port=$((port + 1))
    for r in 0 1 2; do CKPT_TEST_RUN=$mark.$name rank $r 3 $port -q --max-steps 100000 --logging-steps 1 -o "$T/$name" >"$T/$name.$r" 2>&1 & pid[r]=$!; done
    until_seen 20 steps "$name" || return 1
    since=$(now); kill -s "$1" "$(trainer "$name" "$2")"
    for r in 0 1 2; do
        [ $r = "$2" ] && continue
        wait "${pid[r]}"; status=$?
        [ $status = "$3" ] && grep -qE "^ckpt-train: (error: )?rank $r: ended: $4" "$T/$name.$r" || { echo "rank $r: status $status"; cat "$T/$name.$r"; left=1; }
    done
    [ $((($(now) - since) / 1000000)) -lt 5000 ] || { echo "after $((($(now) - since) / 1000000)) ms"; left=1; }
    [ "$1" = KILL ] || kill -s KILL "$(trainer "$name" "$2")"
    wait "${pid[$2]}" 2>/dev/null
    [ -z "${left:-}" ]
}
# Rank 2 dies as it connects with the others: rank 1 finds that, rank 0 waits for a connection.
cat >"$T/die.c" <<'END'
#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static void die(void)
{
    const char *rank = getenv("RANK");
    if (rank && strcmp(rank, "2") == 0)
        kill(getpid(), SIGKILL);
}
int connect(int fd, const struct sockaddr *to, socklen_t n)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (to->sa_family == AF_INET && ntohs(((const struct sockaddr_in *)to)->sin_port) != atoi(getenv("MASTER_PORT")))
        die();
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "connect");
    return real(fd, to, n);
}
int accept(int fd, struct sockaddr *from, socklen_t *n)
{
    die();
    return accept4(fd, from, n, 0);
}
END
connecting() {
    local r pid=() bad=0
    gcc -D_GNU_SOURCE -shared -fPIC -o "$T/die.so" "$T/die.c" -ldl || return 1
    port=$((port + 1)) since=$(now)
    for r in 0 1 2; do LD_PRELOAD=$T/die.so rank $r 3 $port -q --ddp-timeout 30 -o "$T/none" >"$T/die.$r" 2>&1 & pid[r]=$!; done
    for r in 0 1; do
        wait "${pid[r]}"; [ $? = 75 ] && grep -v '^hint: ' "$T/die.$r" | one_line "^ckpt-train: (error: )?rank $r: ended: rank 2 on [^ ]*: not heard for 3 s, in: start-up\$" || bad=1
    done
    wait "${pid[2]}" 2>/dev/null
    [ $bad = 0 ] && [ $((($(now) - since) / 1000000)) -lt 7000 ] || { echo "$((($(now) - since) / 1000000)) ms"; tail "$T"/die.[012]; return 1; }
}
paused() {      # all ranks of a job stop for longer than one may be silent, and go on
    local r pid=() bad=0
    port=$((port + 1))
    for r in 0 1; do CKPT_TEST_RUN=$mark.paused rank $r 2 $port -q --max-steps 100000 --logging-steps 1 -o "$T/paused" >"$T/paused.$r" 2>&1 & pid[r]=$!; done
    until_seen 20 steps paused || return 1
    kill -s STOP $(trainer paused); sleep 4; kill -s CONT $(trainer paused); sleep 2
    kill -s INT $(trainer paused)
    for r in 0 1; do wait "${pid[r]}" || [ $? = 75 ] && grep -q 'ended: ' "$T/paused.$r" && bad=1; done
    grep -q 'saved: go on' "$T/paused.0" && [ $bad = 0 ] || { cat "$T"/paused.[01]; return 1; }
}
t "a job that is stopped and goes on is not ended" paused
t "one dies while they connect" connecting
t "one is killed" watched KILL 1 75 'rank 1 on [^ ]*: not heard for 3 s, in: '
t "one is stopped" watched STOP 2 75 'rank 2 on [^ ]*: not heard for 3 s, in: '
t "the one with the store is killed" watched KILL 0 75 'rank 0 is gone: store at '
t "or stopped" watched STOP 0 75 'rank 0 is gone: store at '
short() { rank "$@" -q --ddp-timeout 1 -o "$T/none"; }
expect 75 "a master that never comes" short 1 2 9
says "rank 1: store at 127.0.0.1:9: nobody answered for 1 s"; check "is named" $?
expect 75 "a rank that never comes" short 0 2 $((port + 10))
says "rank 1 of 2 did not come within 1 s"; check "is named too" $?
expect 78 "a master that is another host" env RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 MASTER_PORT=29500 timeout 60 ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --ddp-timeout 1 -o "$T/none"
expect 78 "a port in use" bash -c "$(declare -f rank); T='$T'; rank 0 2 $port --ddp-timeout 3 -q -o '$T/none' 2>/dev/null & sleep 0.5; rank 0 2 $port -q -o '$T/none'"
twice_there() { short 1 3 $((port + 20)) >/dev/null 2>&1 & short 1 3 $((port + 20)) >/dev/null 2>&1 & short 0 3 $((port + 20)); }
expect 75 "a rank that is missing while another comes twice" twice_there
expect 78 "ranks of another MPI" job j1 PMI_SIZE=2 PMI_RANK=0
says "MPI found 1"; check "it is told" $?
expect 0 "one process in a batch script" env SLURM_NTASKS=8 SLURM_PROCID=0 timeout 60 ckpt-train --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 1 -o "$T/j2"
says "SLURM_NTASKS says 8 tasks, but srun did not start this process: running one rank"; check "says so" $?
expect 0 "a step of one task" job j3 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1
expect 0 "WORLD_SIZE=1" job j4 WORLD_SIZE=1 RANK=0
expect 78 "ranks of ranks" env OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=1 ckpt-train -q --nproc 2 --model "$T/base" --train-file "$T/train.jsonl" -o "$T/j1"

# Plans, and more ranks than there is room for.  A9
expect 0 "a plan for many ranks starts none" timeout 5 ckpt-train --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --zero-stage 3 --nproc 60 --dry-run -o "$T/none"
says "ranks: 60 (planned), ZeRO stage 3"; check "it is of so many" $?
shard() { ckpt-train --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --zero-stage 3 --dry-run --nproc "$1" -o "$T/none" 2>&1 | sed -n 's/.*optimizer \([0-9.]*\),.*/\1/p'; }
t "a rank's part of the optimizer" awk -v a="$(shard 1)" -v b="$(shard 4)" 'BEGIN { exit !(a > 0 && b > 0.2 * a && b < 0.3 * a) }'
expect 78 "more ranks than the host has room for" ranks 999 --train-file "$T/train.jsonl" --max-steps 1 -o "$T/none"
expect 78 "ranks on one GPU" ranks 2 --train-file "$T/train.jsonl" --device cuda:0 --dry-run -o "$T/none"
says "--device cuda:0 needs one rank, there are 2: --device cuda gives each a GPU of its own"; check "what gives each its own" $?
mkdir -p "$T/lib" "$T/bin"; cp "$B/ckpt-train" "$B/libckpt_gloo.so" "$T/bin"
for so in libcuda.so.1 libcublasLt.so.13; do gcc -shared -o "$T/lib/$so" -x c /dev/null; done
case $BUILD in *asan*) san=-fsanitize=address,undefined ;; *) san= ;; esac
gcc -shared -fPIC -O1 $san -I. -D_GNU_SOURCE -o "$T/bin/libckpt_cuda.so" tests/gpu/fault_plugin.c "$B/libtrain.a" "$B/libckpt.a" \
    $(pkg-config --libs jansson libcrypto) -lopenblas -fopenmp -ldl -lm
expect 78 "more ranks than GPUs" env LD_LIBRARY_PATH="$T/lib" timeout 60 "$T/bin/ckpt-train" --model "$T/base" --train-file "$T/train.jsonl" \
    --max-seq-length 64 --max-steps 1 --nproc 2 -o "$T/beside"
says "rank 1 is number 1 on its host, which has 1 GPU"; check "are refused by name" $?
expect 0 "unless they leave it alone" env LD_LIBRARY_PATH="$T/lib" timeout 60 "$T/bin/ckpt-train" --model "$T/base" --train-file "$T/train.jsonl" \
    --max-seq-length 64 --max-steps 1 --nproc 2 --device cpu -o "$T/beside"
expect 71 "a plan that does not fit" ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --eval-file "$T/eval.jsonl" --max-seq-length 64 \
    --per-device-train-batch-size 1 --per-device-eval-batch-size 64 --device-memory-limit 1100M --dry-run -o "$T/none"
grep -qE '^hint: --per-device-eval-batch-size [0-9]+ makes it' "$T/.err"; check "what would fit is named" $?
expect 71 "another" ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --per-device-train-batch-size 1 --device-memory-limit 1030M --dry-run -o "$T/none"
! says batch-size; check "no smaller batch where there is none" $?

# A starved address space: refused with a line, never waited for.  R5
starved() {
    local kib threads got
    for kib in 120000 200000 240000 280000 300000 320000 360000 500000 700000; do
        for threads in 1 3; do
            rm -rf "$T/v"
            (ulimit -v $kib; OMP_NUM_THREADS=$threads timeout -s KILL 20 "$@" --threads $threads) >"$T/.out" 2>"$T/.err"; got=$?
            [ $got = 0 ] && continue
            [ $got = 71 ] && grep -v '^hint: ' "$T/.err" | one_line '^ckpt-[a-z]+: ' || { echo "ulimit -v $kib, $threads threads: status $got"; cat "$T/.err"; return 1; }
        done
    done
}
t "training" starved ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 1 -o "$T/v"
t "evaluation" starved ckpt-eval -q --max-eval-samples 2 --eval-file "$T/eval.jsonl" "$T/base"
# What needs little: from where its libraries can be loaded (127 below that).
narrow() {
    local kib got
    for kib in 56000 57000 58000 59000 60000 62000 64000 68000 72000 80000 90000 110000; do
        rm -rf "$T/v"
        (ulimit -v $kib; timeout -s KILL 20 "$@") >"$T/.out" 2>"$T/.err"; got=$?
        case $got in 0 | 127) continue ;; esac
        [ $got = 71 ] && grep -v '^hint: ' "$T/.err" | one_line '^ckpt-[a-z]+: ' || { echo "ulimit -v $kib: status $got"; cat "$T/.err"; return 1; }
    done
}
t "merging" narrow ckpt-merge -q -o "$T/v" "$T/base"
t "inspecting" narrow ckpt-inspect -q --verify "$T/base"
t "publishing" narrow ckpt-push -q "$T/v" "$T/base"

# Plug-ins run as they are opened: none is taken from where others may put one.  S7
mkdir -p "$T/up/in" "$T/up/lib/ckpt" "$T/env"; cp "$B/ckpt-train" "$T/up/in"
echo "#include <stdio.h>
__attribute__((constructor)) static void run(void) { fclose(fopen(\"$T/ran\", \"w\")); }" >"$T/planted.c"
gcc -shared -fPIC -o "$T/planted.so" "$T/planted.c"
planted() {     # DIR STATUS TEXT [VAR=VALUE] - with the library planted there the tool ends so, and it did not run
    local dir=$1 want=$2 text=$3 got; shift 3
    cp "$T/planted.so" "$dir/libckpt_mpi.so"
    (cd "$T/up" && env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$@" timeout 30 "$T/up/in/ckpt-train" -q --model "$T/base" --train-file "$T/train.jsonl" -o "$T/none") >"$T/.out" 2>"$T/.err"; got=$?
    rm "$dir/libckpt_mpi.so"
    [ $got = "$want" ] && says "$text" && [ ! -e "$T/ran" ] && return
    cat "$T/.err"; [ ! -e "$T/ran" ] || { echo "it ran"; rm "$T/ran"; }; return 1
}
t "above the program" planted "$T/up" 69 "not found beside the program"
t "in a lib/ckpt that is no prefix of it" planted "$T/up/lib/ckpt" 69 "not found beside the program"
t "in the working directory, by a relative path" planted "$T/up" 69 "no absolute path" CKPT_PLUGIN_PATH=.
chmod 777 "$T/env"
t "in a folder that everybody may write to" planted "$T/env" 69 "everybody may write to it" CKPT_PLUGIN_PATH="$T/env"
chmod 755 "$T/env"
runs() { planted "$T/env" 69 "of another version" CKPT_PLUGIN_PATH="$T/env"; [ $? = 1 ] && grep -qF "of another version" "$T/.err"; }
t "a folder that is named is looked into" runs
t "and serves" env CKPT_PLUGIN_PATH="$B" timeout 60 "$T/up/in/ckpt-train" -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 1 --nproc 2 -o "$T/served"

# Every rank's own disk is tried before the first step.
unwritable() {  # a rank that may write no file: as on a full disk of its own
    mpi 2 env OMPI_MCA_btl=self,tcp bash -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || ulimit -f 0; exec ckpt-train "$@"' - -q --model "$T/base" \
        --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 100000 --data-cache off -o "$T/disk"
}
expect 73 "a rank that cannot write" unwritable
grep -qE "^ckpt-train: rank 1 on [^ ]*: $T/disk: cannot write a file here: File too large" "$T/.err"; check "is named with its host" $?
t "before anything was trained" bash -c "[ ! -s $T/disk/metrics.jsonl ] && [ -z \"\$(ls -A $T/disk | grep try)\" ]"

# Nodes whose output is on their own disks: found before the first step, each folder gets its ranks' shards, and all
# together are the checkpoint of one folder.  Two nodes are two ranks that are started by hand.  [B5]
(
M=$G/lora/bloom-qkv port=29700
opts=(--device cpu --model "$M/base" --train-file "$M/rows.jsonl" --per-device-train-batch-size 1 --learning-rate 1e-3 --max-steps 4 --save-steps 2 --logging-steps 1)
rank() { env RANK="$1" WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 60 ckpt-train "${opts[@]}" "${@:2}"; }
# nodes NAME OPTION... - each rank into its own NAME.0 or NAME.1; their words in NAME.out and NAME.err
nodes() {
    local name=$1 pid other; shift
    port=$((port + 1))
    rank 1 -o "$T/$name.1" "$@" >"$T/$name.out1" 2>"$T/$name.err1" & pid=$!
    rank 0 -o "$T/$name.0" "$@" >"$T/.out" 2>"$T/.err"; first=$?
    wait $pid; other=$?
    [ $first$other = 00 ] || { echo "status $first and $other"; cat "$T/.err" "$T/$name.err1"; return 1; }
}
one() { ckpt-train -q "${opts[@]}" --nproc 2 -o "$T/$1" "${@:2}" >"$T/$1.out"; }
together() { ckpt-merge -q "$@" >"$T/.out"; }
for stage in 1 2 3; do
    n=s$stage C=checkpoint-4
    t "stage $stage, one folder" one "$n" --zero-stage $stage
    t "stage $stage, two" nodes "$n" --zero-stage $stage
    t "which is said" says "the output is not one folder but 2, each on its nodes' own disk"
    t "with the ranks" grep -q "$n.1: ranks 1" "$T/.err"
    t "the same losses" same_losses "$n" "$n.0"
    t "no part is announced as finished" [ ! -s "$T/.out" ] && [ ! -s "$T/$n.out1" ]
    t "rank 0's shard lies in its folder alone" bash -c "cmp $T/$n/$C/global_step4/zero_pp_rank_0_mp_rank_00_optim_states.pt $T/$n.0/$C/global_step4/zero_pp_rank_0_mp_rank_00_optim_states.pt && [ ! -e $T/$n.1/$C/global_step4/zero_pp_rank_0_mp_rank_00_optim_states.pt ]"
    t "rank 1's in the other" bash -c "cmp $T/$n/$C/global_step4/zero_pp_rank_1_mp_rank_00_optim_states.pt $T/$n.1/$C/global_step4/zero_pp_rank_1_mp_rank_00_optim_states.pt && [ ! -e $T/$n.0/$C/global_step4/zero_pp_rank_1_mp_rank_00_optim_states.pt ]"
    expect 65 "a part lacks files" ckpt-inspect --verify "$T/$n.1/$C"
    t "B5 both together prove" ckpt-inspect --verify --together "$T/$n.0/$C" "$T/$n.1/$C"
    t "the model of one folder" together -o "$T/$n.one" "$T/$n/$C"
    t "and of both together" together --together -o "$T/$n.both" "$T/$n.0/$C" "$T/$n.1/$C"
    t "B5 are the same" cmp "$T/$n.one/model.safetensors" "$T/$n.both/model.safetensors"
    expect 65 "half of it is no model" ckpt-merge -q -o "$T/$n.half" "$T/$n.1/$C"
    port=$((port + 1))
    rank 1 -q -o "$T/$n.1" --max-steps 6 --zero-stage $stage --resume-from-checkpoint latest >/dev/null 2>"$T/other" &
    expect_says 65 "going on needs all" "one of 2 folders" rank 0 -q -o "$T/$n.0" --max-steps 6 --zero-stage $stage --resume-from-checkpoint latest
    t "and names what lacks" says "is absent"
    wait
    cp -n "$T/$n.0/$C/global_step4"/* "$T/$n.1/$C/global_step4"; cp -n "$T/$n.1/$C/global_step4"/* "$T/$n.0/$C/global_step4"
    t "once each has all, both go on" nodes "$n" --max-steps 6 --zero-stage $stage --resume-from-checkpoint latest
    t "one folder goes on" one "$n" --max-steps 6 --zero-stage $stage --resume-from-checkpoint latest
    t "to the same losses" same_losses "$n" "$n.0"
done
t "stage 0: each folder is whole" nodes s0 --zero-stage 0
t "both are the same weights" cmp "$T/s0.0/checkpoint-4/model.safetensors" "$T/s0.1/checkpoint-4/model.safetensors"
t "and announced" grep -q "s0.0/checkpoint-4$" "$T/.out"
t "each goes on by itself" nodes s0 --max-steps 6 --zero-stage 0 --resume-from-checkpoint latest
t "old ones go from both" nodes s0 --max-steps 8 --zero-stage 0 --save-total-limit 1 --resume-from-checkpoint latest
t "the newest is left" bash -c "[ \"\$(ls -d $T/s0.[01]/checkpoint-* | wc -l)\" = 2 ] && [ -d $T/s0.1/checkpoint-8 ]"
t "nothing else is left" bash -c "! ls -A $T/s0.0 $T/s0.1 $T/s3.0 $T/s3.1 | grep -q folder"
# A kill between the renames of one save: the newest that all folders have is gone on from, to the same end.
killed() {      # NODE - whose folder has no checkpoint-4 yet
    rm -rf "$T"/cut.[01]; cp -r "$T/all.0" "$T/cut.0"; cp -r "$T/all.1" "$T/cut.1"
    mv "$T/cut.$1/checkpoint-4" "$T/cut.$1/.checkpoint-4.staging-0123456789abcdef"
    nodes cut --zero-stage 0 --async-save true --resume-from-checkpoint auto || return
    cat "$T/.err" "$T/cut.err1" | grep -q "cut.$((1 - $1))/checkpoint-4 is passed over: it is not in the folders of all ranks" || return
    for n in 0 1; do
        cmp "$T/all.$n/checkpoint-4/model.safetensors" "$T/cut.$n/checkpoint-4/model.safetensors" &&
            cmp "$T/all.$n/checkpoint-4/optimizer.pt" "$T/cut.$n/checkpoint-4/optimizer.pt" || return
    done
    ! ls -A "$T"/cut.[01] | grep -E 'staging|trash'
}
t "saves behind the steps, in two folders" nodes all --zero-stage 0 --async-save true
t "B5 a save that rank 0's folder lacks is made anew" killed 0
t "B5 or the other one's" killed 1
# A node whose disk refuses: before the first step, by rank.
touch "$T/file"
refused() {
    port=$((port + 1))
    rank 1 -q -o "$T/file" --zero-stage 3 >/dev/null 2>&1 &
    rank 0 -q -o "$T/ref" --zero-stage 3; local got=$?; wait; return $got
}
expect_says 73 "an output that cannot be made" "rank 1" refused
t "before the first step" [ ! -e "$T/ref/metrics.jsonl" ]
)
