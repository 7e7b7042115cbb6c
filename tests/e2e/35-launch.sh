# Ranks that are counted, started again and started on several hosts; and those that wait for ever.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/ranks.sh"
. tests/e2e/shared/sshd.sh
check() { [ "$2" = 0 ] && echo "ok $1" || fail "$1" "$T/.out" "$T/.err"; }
# loud N OPTION... - as ranks, but with its notes and warnings.
loud() { local n=$1; shift; timeout -s KILL 60 ckpt-train --model "$T/base" --max-seq-length 64 --per-device-train-batch-size 2 --nproc "$n" --train-file "$T/train.jsonl" "$@"; }
# begin NAME command... - in the background, with what it says in NAME.out and NAME.err
begin() { local name=$1; shift; rm -rf "$T/$name"; CKPT_TEST_RUN=$mark.$name "$@" -o "$T/$name" >"$T/$name.out" 2>"$T/$name.err" & run=$!; }
# came NAME STATUS TEXT... - it ends so, has said all this, and nobody is left
came() {
    local name=$1 want=$2 got text bad=0; shift 2
    wait $run; got=$?
    [ $got = "$want" ] && [ -z "$(pids "$name")" ] || bad=1
    for text in "$@"; do grep -qE -- "$text" "$T/$name.err" || { echo "not said: $text"; bad=1; }; done
    [ $bad = 0 ] || { echo "status $got, left: $(pids "$name")"; tail -n 12 "$T/$name.err"; return 1; }
}
saw() { grep -qE -- "$2" "$T/$1.err"; }
at() { [ -d "$T/$1/checkpoint-$2" ]; }
strike() { kill -s "$2" "$(pids "$1" "${3:-1}" | head -n 1)"; }     # NAME SIGNAL [RANK]

# One rank for each GPU; more than there are are refused before one starts.
mkdir -p "$T/lib" "$T/one" "$T/two"
for so in libcuda.so.1 libcublasLt.so.13; do gcc -shared -o "$T/lib/$so" -x c /dev/null; done
case $BUILD in *asan*) san=-fsanitize=address,undefined ;; *) san= ;; esac
plugin() {      # DIR GPUS - the program in DIR finds so many
    cp "$B/ckpt-train" "$B/libckpt_gloo.so" "$1"
    gcc -shared -fPIC -O1 $san -I. -D_GNU_SOURCE -DFAULT_COUNT="$2" -o "$1/libckpt_cuda.so" tests/gpu/fault_plugin.c "$B/libtrain.a" "$B/libckpt.a" \
        $(pkg-config --libs jansson libcrypto) -lopenblas -fopenmp -ldl -lm
}
plugin "$T/one" 1; plugin "$T/two" 2
gpus() { local dir=$1; shift; env LD_LIBRARY_PATH="$T/lib" timeout 60 "$T/$dir/ckpt-train" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 1 -o "$T/gpus" "$@"; }
expect_says 69 "no GPU, none started" "--nproc gpu: no GPU can be used here" loud gpu -o "$T/none"
expect_says 69 "nor with --device cuda" "--device cuda: no GPU can be used here" loud 2 --device cuda -o "$T/none"
expect_says 78 "GPUs that are not used" "--nproc gpu gives each rank a GPU, but there is --device cpu" loud gpu --device cpu -o "$T/none"
expect_says 64 "no other word" '--nproc: "cpu" is no whole number' loud cpu -o "$T/none"
expect_says 78 "more ranks than GPUs" "--nproc 3 with --device cuda: this host has 2 GPUs" gpus two --nproc 3 --device cuda
expect_says 0 "D8 as many as there are" "ranks: 2 (planned)" gpus two --nproc gpu --dry-run
expect_says 0 "one of one" "saved $T/gpus/checkpoint-1" gpus one --nproc gpu

# What fails may be tried again, from the newest checkpoint, with the same end.
again() {
    begin again loud 2 --max-restarts 2 --save-steps 3 --max-steps 40
    until_seen 20 at again 6 && strike again KILL && until_seen 20 at again 18 && strike again SEGV
    came again 0 'warning: rank 1 .*: killed by SIGKILL in: ' 'warning: try 2 of 3 in 1 s: 2 ranks, from step [0-9]+$' "resuming from $T/again/checkpoint-" \
        'killed by SIGSEGV in' 'try 3 of 3 in 2 s: 2 ranks, from step (18|21|24|27)' || return 1
    ranks 2 --train-file "$T/train.jsonl" --save-steps 3 --max-steps 40 -o "$T/through" && same_state again through
}
# The same in the middle of a save behind the steps: from the last whole one, and nothing unfinished is left.
unfinished() { ls -A "$T/$1" 2>/dev/null | grep -qE '^\.checkpoint-(1[0-9]|[4-9])\.staging-'; }
behind() {
    local opts=(--async-save true --save-steps 1 --save-total-limit 3 --max-steps 30)
    begin behind loud 2 --max-restarts 2 "${opts[@]}" "$@"
    until_seen 20 unfinished behind && strike behind KILL
    came behind 0 'warning: rank 1 .*: killed by SIGKILL in: ' 'try 2 of 3 in 1 s: 2 ranks, from step [0-9]+$' "resuming from $T/behind/checkpoint-" || return 1
    ! ls -A "$T/behind" | grep -E 'staging|trash|tmp$' || return 1
    rm -rf "$T/through"; ranks 2 --train-file "$T/train.jsonl" "${opts[@]}" "$@" -o "$T/through" && same_state behind through
}
# Nothing was saved yet: where the first try began, whatever lies in the folder.
first() {
    begin first loud 2 --max-restarts 1 --resume-from-checkpoint "$T/early/checkpoint-2" --max-steps 100000
    until_seen 20 saw first 'resuming from' && strike first KILL && until_seen 20 eval '[ "$(grep -c "resuming from $T/early/checkpoint-2" "$T/first.err")" = 2 ]' && strike first KILL
    came first 75 'from where the first began' 'no try is left of 2|not tried again'
}
older() {
    begin older true; wait $run; cp -r "$T/early" "$T/older"
    CKPT_TEST_RUN=$mark.older loud 2 --max-restarts 1 --overwrite-output-dir --max-steps 4 -o "$T/older" >"$T/older.out" 2>"$T/older.err" & run=$!
    until_seen 9 there older 1 && strike older KILL
    came older 0 'try 2 of 2' && ! saw older 'resuming from'
}
ranks 2 --train-file "$T/train.jsonl" --max-steps 2 -o "$T/early" >/dev/null
t "E9 killed and crashed, and the same in the end" again
t "E9 killed in a save behind the steps" behind --zero-stage 0
t "E9 or in one of shards" behind --zero-stage 3
t "before the first save, where it began" first
t "never from another run's checkpoint" older
(head -n 60 "$T/train.jsonl"; echo '{"instruction": 5'; tail -n 60 "$T/train.jsonl") >"$T/bad.jsonl"
bad() { begin bad ckpt-train --nproc 2 --model "$T/base" --max-seq-length 64 --max-restarts 3 --train-file "$T/bad.jsonl" --max-steps 100; came bad 65 'rank [0-9].*bad.jsonl: record 61: ' && ! saw bad 'try 2'; }
t "bad data is not" bad
asked() { begin asked loud 2 --max-restarts 3 --logging-steps 1 --max-steps 100000; until_seen 9 steps asked; kill -s TERM "$(supervisor asked)"; came asked 75 'stopped at step [0-9]+, saved: ' && ! saw asked 'try 2'; }
t "nor is a run that was asked to stop" asked
pause() { begin pause loud 2 --max-restarts 3 --logging-steps 1 --max-steps 100000; until_seen 9 steps pause; strike pause KILL; until_seen 9 saw pause 'try 2'; kill -s TERM "$(supervisor pause)"; came pause 75 'SIGTERM before try 2: go on with --resume-from-checkpoint latest' && ! saw pause 'resuming'; }
t "a signal ends the pause" pause

# Rank 1 dies, or waits for ever, once the file is there: in a product, as user code would.
cat >"$T/stuck.c" <<'END'
#include <cblas.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void cblas_sgemm(CBLAS_ORDER o, CBLAS_TRANSPOSE a, CBLAS_TRANSPOSE b, blasint m, blasint n, blasint k, float x, const float *A, blasint la, const float *B,
                 blasint lb, float y, float *C, blasint lc)
{
    static void (*real)(CBLAS_ORDER, CBLAS_TRANSPOSE, CBLAS_TRANSPOSE, blasint, blasint, blasint, float, const float *, blasint, const float *, blasint,
                        float, float *, blasint);
    const char *rank = getenv("RANK");
    if (rank && strcmp(rank, "1") == 0 && access(getenv("STUCK"), F_OK) == 0)
        for (kill(getpid(), atoi(getenv("STUCK_SIGNAL"))); ; pause())
            ;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "cblas_sgemm");
    real(o, a, b, m, n, k, x, A, la, B, lb, y, C, lc);
}
END
gcc -shared -fPIC -o "$T/stuck.so" "$T/stuck.c" -ldl
stuck() { env LD_PRELOAD="$T/stuck.so" STUCK="$T/stuck" STUCK_SIGNAL="$1" "${@:2}"; }
export -f loud
loudly() { stuck "$1" bash -c 'T=$0; loud "$@"' "$T" "${@:2}"; }
touch "$T/stuck"
place() { begin place loudly 9 2 --max-restarts 9 --max-steps 4; came place 75 'try 2 of 10 in 1 s' 'not tried again: nothing was saved since a try that ended in the same way' 'rank 1 .*: killed by SIGKILL in: train step 1$' && ! saw place 'try 3'; }
t "the same place twice is the last" place
fewer() { begin fewer loudly 9 2 --max-restarts 9 --min-ranks 1 --max-steps 4; came fewer 0 'try 3 of 10 in 2 s: 1 rank, from where' 'trained 4 steps'; }
t "unless fewer ranks are allowed" fewer
expect_says 78 "more than there are" "--min-ranks 3 of 2 ranks" loud 2 --max-restarts 1 --min-ranks 3 -o "$T/none"
expect 64 "tries of what is not started" ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-restarts 1 -o "$T/none"
rm "$T/stuck"
hung() {
    begin hung loudly 0 2 --ddp-timeout 2 --logging-steps 1 --max-steps 100000
    until_seen 20 steps hung; touch "$T/stuck"
    came hung 75 'ckpt-train: rank 1 on [^ ]*, process [0-9]+: no progress for 2 s in: train step [0-9]+; rank 0 waits in [a-z_]+$' 'hint: --ddp-timeout is the limit'; local rc=$?
    rm "$T/stuck"; return $rc
}
t "a rank that is stuck ends all, by name" hung
# Ranks that have not come as far as to look at signals end of them, which is no fault of theirs.
printf '%s\n' '#include <stdlib.h>' '#include <unistd.h>' '__attribute__((constructor)) static void late(void) { if (getenv("RANK")) sleep(4); }' >"$T/late.c"
gcc -shared -fPIC -o "$T/late.so" "$T/late.c"
late() { begin late env LD_PRELOAD="$T/late.so" bash -c 'T=$0; loud "$@"' "$T" 2 --max-restarts 2 --max-steps 4; until_seen 9 there late 1; kill -s "$1" "$(supervisor late)"; came late 75 "^ckpt-train: SIG$1 in: start-up: ended, nothing was begun\$" && ! saw late 'killed by'; }
for sig in USR1 TERM; do t "SIG$sig before they look at signals" late $sig; done
port=$((15000 + RANDOM % 15000))
byhand() {
    local r pid=() bad=0
    for r in 0 1; do
        RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$port CKPT_STORE_WORD=sesame CKPT_TEST_RUN=$mark.byhand stuck 0 timeout -s KILL 60 ckpt-train -q \
            --model "$T/base" --max-seq-length 64 --train-file "$T/train.jsonl" --ddp-timeout 3 --logging-steps 1 --max-steps 100000 -o "$T/byhand" >"$T/byhand.$r" 2>&1 & pid[r]=$!
    done
    until_seen 20 steps byhand; touch "$T/stuck"
    for r in 0 1; do
        wait "${pid[r]}"; [ $? = 75 ] && grep -qE "^ckpt-train: (error: )?rank $r: ended: rank 1 on [^ ]*: no progress for 3 s in: train step [0-9]+, others wait for it$" "$T/byhand.$r" || bad=1
    done
    rm "$T/stuck"
    [ $bad = 0 ] && [ -z "$(pids byhand)" ] || { cat "$T"/byhand.[01]; return 1; }
}
t "also of ranks that nobody answers for" byhand
# A rank whose others have not come yet is asked to stop once.
waits() {
    local r p got=0 bad=0
    for r in 0 1; do
        RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 3 + r)) CKPT_TEST_RUN=$mark.waits$r timeout -s KILL 20 ckpt-train -q \
            --model "$T/base" --max-seq-length 64 --train-file "$T/train.jsonl" --max-steps 1 -o "$T/waits" >"$T/waits.$r" 2>&1 & p=$!
        until_seen 9 there waits$r; sleep 0.5; kill -s TERM "$(pids waits$r | tail -n 1)"; wait $p; got=$?
        [ $got = 75 ] && one_line "^ckpt-train: rank $r: store at 127.0.0.1:[0-9]+: stopped while the ranks were awaited\$" <"$T/waits.$r" || { echo "rank $r: $got"; cat "$T/waits.$r"; bad=1; }
    done
    return $bad
}
t "a rank that waits for others stops when it is asked to" waits
other_word() {
    RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) CKPT_STORE_WORD=sesam timeout 20 ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --ddp-timeout 2 -o "$T/none" >/dev/null 2>&1 &
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) CKPT_STORE_WORD=sesame timeout 20 ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --ddp-timeout 2 -o "$T/none"
}
expect_says 75 "one with another word is not let in" "rank 1 of 2 did not come within 2 s" other_word
theirs() {      # ranks that something else started: it decides about tries
    local r p
    for r in 1 0; do
        RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 2)) timeout 60 ckpt-train --model "$T/base" --max-seq-length 64 --train-file "$T/train.jsonl" --nproc 2 --max-restarts 2 --max-steps 1 \
            -o "$T/theirs" >"$T/theirs.$r" 2>&1 & p[r]=$!
    done
    wait "${p[0]}" && wait "${p[1]}" && grep -qF 'warning: --max-restarts 2: torchrun started the ranks, and decides about other tries' "$T/theirs.0"
}
t "torchrun's tries are its own" theirs

# Several hosts: ssh is a script that has this one answer to every name, with an environment of its own.
cat >"$T/ssh" <<END
#!/usr/bin/env bash
echo "\$*" >>"$T/ssh.log"
while [ \$# -gt 2 ]; do shift; done
case \$1 in slow*) exec sleep 60 ;; dead*) echo "ssh: connect to host \$1 port 22: Connection refused" >&2; exit 255 ;; esac
cd / && exec env -i HOME="\$HOME" LC_ALL=C.UTF-8 sh -c "\$2"
END
chmod +x "$T/ssh"
export CKPT_SSH=$T/ssh
printf '# two\nworker-0 slots=1\nworker-1 slots=2 # more\n' >"$T/hosts"
printf 'worker-0 slots=1\nslow-1 slots=1\n' >"$T/slow"
printf 'worker-0 slots=2\ndead-1 slots=2\n' >"$T/lost"
hosts() { port=$((port + 3)); timeout -s KILL 60 ckpt-train --hostfile "$T/hosts" --master-addr 127.0.0.1 --master-port $port --model "$T/base" --max-seq-length 64 --per-device-train-batch-size 2 --train-file "$T/train.jsonl" "$@"; }
three() {
    rm -f "$T/ssh.log"; begin three hosts --zero-stage 3 --ssh-port 2222 --max-steps 3
    came three 0 '^worker-0: ckpt-train: ranks: 3 \(gloo\)' || return 1
    [ "$(cat "$T/three.out")" = "$T/three/checkpoint-3" ] && [ "$(grep -c -- '-p 2222 worker-[01] cd ' "$T/ssh.log")" = 2 ] || { cat "$T/three.out" "$T/ssh.log"; return 1; }
    ranks 3 --train-file "$T/train.jsonl" --zero-stage 3 --max-steps 3 -o "$T/local" && same_state three local
}
t "C5 C6 three ranks of two hosts, as of one" three
nuls() { hosts -0 --save-steps 1 --max-steps 2 -o "$T/nuls" >"$T/nuls.out" && printf '%s\0' "$T/nuls/checkpoint-1" "$T/nuls/checkpoint-2" | cmp - "$T/nuls.out"; }
t "paths of another host end with NUL where that is wanted" nuls
printf 'worker-0 slots=2\nworker-1 slots=2\n' >"$T/two-each"
pairs() {
    begin pairs hosts --hostfile "$T/two-each" --fsdp hybrid_shard --max-steps 3
    came pairs 0 '^worker-0: ckpt-train: ranks: 4 \(gloo\), ZeRO stage 3 in groups of 2,' || return 1
    ranks 4 --train-file "$T/train.jsonl" --zero-stage 3 --hybrid-shard-size 2 --max-steps 3 -o "$T/grouped" && same_state pairs grouped
}
t "two hosts are two groups" pairs
word() { begin word hosts --logging-steps 1 --max-steps 100000; until_seen 20 steps word; local p bad=0; for p in $(pids word); do tr '\0' '\n' <"/proc/$p/cmdline" | grep -qF WORD && bad=1; done; [ "$(pids word 2 | wc -l)" = 1 ] && tr '\0' '\n' <"/proc/$(pids word 2)/environ" | grep -qx 'CUDA_VISIBLE_DEVICES=0,1' || bad=1; kill -s TERM "$(launcher word)"; came word 75 'ckpt-train: worker-0: stopped at step [0-9]+, saved: ' && [ $bad = 0 ]; }
# The one that was started here: it has no rank, and is the child of none that has it.
launcher() { local p; for p in $(pids "$1"); do [ "$(cat "/proc/$p/comm")" = ckpt-train ] && ! grep -qsaz '^RANK=' "/proc/$p/environ" && grep -qsaz '^CKPT_SSH=' "/proc/$p/environ" && echo "$p"; done | head -n 1; }
t "each has its slots, and a signal is passed on" word
lose() {        # NAME RANK HOST
    begin "$1" hosts --logging-steps 1 --max-steps 100000; until_seen 20 steps "$1"; since=$(now); strike "$1" KILL "$2"
    came "$1" 75 "^ckpt-train: $3: rank $2 on .*: killed by SIGKILL in: " && [ $((($(now) - since) / 1000000)) -lt 5000 ] && [ "$(grep -vc '^worker-0: \|^hint: ' "$T/$1.err")" = 1 ] || { cat "$T/$1.err"; return 1; }
}
t "a rank is killed" lose lose2 2 worker-1
t "the one with the store is" lose lose0 0 worker-0
orphan() { begin orphan hosts --logging-steps 1 --max-steps 100000; until_seen 20 steps orphan; kill -s KILL "$(launcher orphan)"; until_seen 5 eval '[ -z "$(pids orphan)" ]'; wait $run 2>/dev/null; [ -z "$(pids orphan)" ]; }
t "all end with the launcher" orphan
wrong() { port=$((port + 3)); begin wrong ckpt-train --hostfile "$T/hosts" --master-addr 127.0.0.1 --master-port $port --model "$T/base" --max-seq-length 64 --train-file "$T/bad.jsonl" --max-restarts 2 --max-steps 100; came wrong 65 '^ckpt-train: worker-[01]: rank [0-2].*bad.jsonl: record ' && ! saw wrong 'try 2'; }
t "bad data on one of them" wrong
renew() { begin renew hosts --max-restarts 2 --save-steps 2 --max-steps 30; until_seen 20 at renew 4; strike renew KILL 2; came renew 0 'warning: worker-1: rank 2 on .*: killed by SIGKILL' 'try 2 of 3 in 1 s: 3 ranks, from step [0-9]+$' "worker-0: .*resuming from $T/renew/checkpoint-" 'trained'; }
t "tried again" renew
away() { begin away hosts --hostfile "$T/lost" --max-restarts 2 --min-ranks 1 --max-steps 2; came away 0 '^dead-1: ssh: connect to host' 'warning: dead-1: the connection was not made, or broke' 'try 2 of 3 in 1 s: 2 ranks'; }
t "without a host that is not there" away
own() { local rc; "$@" 2>"$T/own"; rc=$?; grep -vE '^(worker|dead)-[0-9]: ' "$T/own" >&2; return $rc; }      # without what hosts say
expect_says 75 "C6 which is told" "dead-1: the connection was not made, or broke" own hosts -q --hostfile "$T/lost" --include dead-1 --max-steps 2 -o "$T/none"
expect_says 0 "C6 slots of a host, without another" "ranks: 2 (planned)" hosts --dry-run --exclude worker-0 -o "$T/none"
expect_says 0 "C6 some slots of it" "ranks: 1 (single)" hosts --dry-run --include worker-1:1 -o "$T/none"
expect_says 0 "C6 the first slots of each host" "ranks: 2 (planned)" hosts --dry-run --num-gpus 1 -o "$T/none"
expect_says 0 "C6 the first host" "ranks: 1 (single)" hosts --dry-run --num-nodes 1 -o "$T/none"
nossh() { CKPT_SSH=/nowhere/ssh own hosts -q --max-steps 1 -o "$T/none"; }
expect_says 69 "ssh itself is not" "ckpt-train did not start there: status 127" nossh
meeting() { begin meeting hosts --hostfile "$T/slow" --max-steps 1; until_seen 9 there meeting 0; sleep 0.5; kill -s TERM "$(launcher meeting)"; came meeting 75 'ckpt-train: worker-0: (rank 0: store at [^ ]*: stopped while the ranks were awaited|SIGTERM in: start-up: ended, nothing was begun)'; }
t "a signal while they wait for each other" meeting
printf 'localhost slots=2\n' >"$T/this"
here() { begin here ckpt-train --hostfile "$T/this" --model "$T/base" --max-seq-length 64 --train-file "$T/train.jsonl" --max-steps 1; came here 0 '^ckpt-train: ranks: 2 \(shared memory\)'; }
t "one host, this one, needs no ssh" env CKPT_SSH=/nowhere/ssh bash -c "$(declare -f here begin came pids); T=$T; mark=$mark; here"

# Two hosts with addresses of their own, and the cable between them cut.  (Where namespaces are allowed.)
net=ck$$
apart() {
    local side
    for side in 0 1; do ip netns add $net-$side || return 1; done
    ip link add v0 netns $net-0 type veth peer name v1 netns $net-1 || return 1
    for side in 0 1; do ip -n $net-$side addr add 10.77.0.$((side + 1))/24 dev v$side && ip -n $net-$side link set v$side up && ip -n $net-$side link set lo up || return 1; done
}
sed 's|^cd / && exec|cd / \&\& exec ip netns exec '$net'-${1#worker-}|' "$T/ssh" >"$T/ssh-net"; chmod +x "$T/ssh-net"
far() { CKPT_SSH=$T/ssh-net hosts --master-addr 10.77.0.1 "$@"; }
cut() {
    begin cut far --logging-steps 1 --max-steps 100000; until_seen 20 steps cut || return 1
    since=$(now); ip -n $net-0 link set v0 down
    came cut 75 '^ckpt-train: worker-[01]: rank [0-2].*(not heard for 3 s, in: |rank 0 is gone: )' && [ $((($(now) - since) / 1000000)) -lt 9000 ] || { cat "$T/cut.err"; return 1; }
}
if [ "$(id -u)" = 0 ] && apart 2>/dev/null; then
    t "two hosts apart" far --max-steps 2 -o "$T/far"
    t "and cut off" cut
fi
for side in 0 1; do ip netns del $net-$side; done 2>/dev/null

# Which hosts and slots.
plan() { hosts --dry-run -o "$T/none" "$@"; }
expect_says 0 "all" "ranks: 3 (planned)" plan
expect_says 0 "the first host" "ranks: 1 (" plan --num-nodes 1
expect_says 0 "the first slots" "ranks: 2 (planned)" plan --num-gpus 1
expect_says 0 "some slots" "ranks: 2 (planned)" plan --include worker-0@worker-1:1
expect_says 0 "all but some" "ranks: 2 (planned)" plan --exclude worker-1:0
expect_says 78 "an unknown host" '"worker-7" is no host of the host file' plan --include worker-7
expect_says 78 "an unknown slot" 'worker-1: there is no slot "2", the host file has 2' plan --exclude worker-1:2
expect_says 78 "nothing left" 'leaves no host' plan --exclude worker-0@worker-1
expect_says 78 "more hosts than there are" "--num-nodes 3: the host file has 2" plan --num-nodes 3
expect_says 78 "more slots" "--num-gpus 2: worker-0 has 1 slots" plan --num-gpus 2
expect 64 "both at once" plan --include worker-0 --exclude worker-1
expect 64 "a number of ranks beside hosts" plan --nproc 2
expect 64 "a choice among no hosts" ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --include worker-0 -o "$T/none"
expect 66 "no such file" plan --hostfile "$T/nosuch"
printf 'worker-0 slots=1\nworker-1 slots=many\n' >"$T/many"
expect_says 78 "a file that is none" "$T/many: line 2: the number of slots is no whole number up to 1024: worker-1 slots=many" plan --hostfile "$T/many"
printf 'localhost slots=1\nworker-1 slots=1\n' >"$T/unnamed"
nomaster() { ckpt-train -q --hostfile "$T/unnamed" --model "$T/base" --train-file "$T/train.jsonl" --max-steps 1 -o "$T/none"; }
expect_says 78 "a first host that no other reaches" "the first host is localhost: no other reaches it by that name" nomaster
piped() { hosts -q --train-file - --max-steps 1 -o "$T/none" <"$T/train.jsonl"; }
expect_says 78 "data of a pipe" "other hosts cannot read a pipe of this one: a file is wanted" piped
expect_says 78 "hosts of a rank" "--hostfile starts ranks, but this process is one of 2 ranks" env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port ckpt-train -q --hostfile "$T/hosts" --model "$T/base" --train-file "$T/train.jsonl" --max-steps 1 -o "$T/none"

# -- a real sshd on loopback, with keys and settings of its own; the real mpirun --------------------------
# train HOSTFILE OPTION... - NAME is the run's folder
train() { timeout -s KILL 60 ckpt-train --hostfile "$1" --model "$T/base" --max-seq-length 64 --per-device-train-batch-size 2 --train-file "$T/train.jsonl" "${@:2}"; }
begin() { local name=$1; shift; rm -rf "$T/$name"; CKPT_TEST_RUN=$mark.$name "$@" -o "$T/$name" >"$T/$name.out" 2>"$T/$name.err" & run=$!; }
# came NAME STATUS TEXT... - it ends so, has said all this, and nobody is left
came() {
    local name=$1 want=$2 got text bad=0; shift 2
    wait $run; got=$?
    until_seen 5 eval '[ -z "$(pids "$name")" ]' || bad=1
    [ $got = "$want" ] || bad=1
    for text in "$@"; do grep -qE -- "$text" "$T/$name.err" || { echo "not said: $text"; bad=1; }; done
    [ $bad = 0 ] || { echo "status $got, left: $(pids "$name")"; tail -n 12 "$T/$name.err"; return 1; }
}
# The one that was started here: the oldest of its processes.
launcher() { local p; for p in $(pids "$1"); do [ "$(cat "/proc/$p/comm")" = ckpt-train ] && ! grep -qsazE '^(RANK|OMPI_COMM_WORLD_RANK|SSH_CONNECTION)=' "/proc/$p/environ" && echo "$p"; done | head -n 1; }
ranks 3 --train-file "$T/train.jsonl" --zero-stage 3 --max-steps 3 -o "$T/local3" >/dev/null

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none

# -- sshd ---------------------------------------------------------------------------------------
printf '127.0.0.2 slots=1\n127.0.0.3 slots=2\n' >"$T/hosts"
over_ssh() { port=$((port + 1)); CKPT_SSH=$T/ssh train "$T/hosts" --master-addr 127.0.0.2 --master-port $port --ssh-port $sport "$@"; }
three() { begin three over_ssh --zero-stage 3 --max-steps 3; came three 0 '^127.0.0.2: ckpt-train: ranks: 3 \(gloo\)' && [ "$(cat "$T/three.out")" = "$T/three/checkpoint-3" ] && same_state three local3; }
asked() { begin asked over_ssh --logging-steps 1 --max-steps 100000; until_seen 20 steps asked; kill -s TERM "$(launcher asked)"; came asked 75 'ckpt-train: 127.0.0.2: stopped at step [0-9]+, saved: '; }
killed() { begin killed over_ssh --logging-steps 1 --max-steps 100000; until_seen 20 steps killed; kill -s KILL "$(rank_there killed 2)"; came killed 75 '^ckpt-train: 127.0.0.3: rank 2 on .*: killed by SIGKILL in: '; }
# What sshd starts has its environment from the launcher's line alone: found by its arguments.
rank_there() { local p; for p in $(pgrep -f -- "-o $T/$1\$"); do grep -qsaz "^RANK=$2\$" "/proc/$p/environ" && echo "$p"; done | head -n 1; }
none_there() { ! pgrep -f -- "-o $T/$1\$" >/dev/null; }
cable() { begin cable over_ssh --logging-steps 1 --max-steps 100000; until_seen 20 steps cable; kill -s KILL $(pgrep -f "ssh .*127.0.0.3 .*$T/cable"); came cable 75 '^ckpt-train: 127.0.0.3: the connection was not made, or broke|killed by SIGKILL|is gone: |not heard for' && until_seen 5 none_there cable; }
mkdir -m 700 "$T/ssh.d"; ssh-keygen -q -t ed25519 -N '' -f "$T/ssh.d/user"; cp "$T/ssh.d/user.pub" "$T/keys"
if ! sshd_start 127.0.0.2 127.0.0.3; then
    echo "ok skipped: no sshd: package openssh-server"
else
    trap 'kill $sshd 2>/dev/null; rm -rf "$T"' EXIT
    printf '%s\n' "Host *" "IdentityFile $T/ssh.d/user" "IdentitiesOnly yes" "UserKnownHostsFile $T/ssh.d/known" "StrictHostKeyChecking accept-new" "LogLevel ERROR" >"$T/ssh.d/config"
    printf '#!/bin/sh\nexec ssh -F %s/ssh.d/config "$@"\n' "$T" >"$T/ssh"; chmod +x "$T/ssh"
    t "sshd answers" wait_for '"$T/ssh" -o BatchMode=yes -p $sport 127.0.0.2 true 2>/dev/null'
    t "three ranks of two hosts over ssh, as of one" three
    t "a signal is passed on, and all is saved" asked
    t "a rank is killed there" killed
    t "a connection is lost" cable
    printf 'localhost slots=1\n127.0.0.2 slots=1\n' >"$T/far.hosts"
    far() { CKPT_SSH=$T/ssh begin far train "$T/far.hosts" --launcher mpirun --ssh-port $sport --zero-stage 3 --max-steps 3; came far 0 'ranks: 2 \(mpi\), ZeRO stage 3' && [ "$(cat "$T/far.out")" = "$T/far/checkpoint-3" ]; }
    t "mpirun's ranks of two hosts over ssh" far
    : >"$T/keys"
    refused() { over_ssh -q --max-steps 1 -o "$T/none" 2>"$T/refused"; local rc=$?; grep -v '^127.0.0' "$T/refused" >&2; return $rc; }
    expect_says 75 "a key that is not let in" "the connection was not made, or broke" refused
    says "hint: ssh without a password, from here to every host, is needed" && echo "ok is told" || fail "is told" "$T/.err"
    kill $sshd; wait $sshd 2>/dev/null
fi

# -- mpirun -------------------------------------------------------------------------------------
printf 'localhost slots=1\n127.0.0.1 slots=1\n' >"$T/mpi"
over_mpi() { train "$T/mpi" --launcher mpirun "$@"; }
two() { begin two over_mpi --zero-stage 3 --max-steps 3; came two 0 '^ckpt-train: ranks: 2 \(mpi\), ZeRO stage 3' && [ "$(cat "$T/two.out")" = "$T/two/checkpoint-3" ] && ranks 2 --train-file "$T/train.jsonl" --zero-stage 3 --max-steps 3 -o "$T/pair" && same_state two pair; }
t "two ranks through mpirun, as of --nproc" two
saved() { begin saved over_mpi --logging-steps 1 --max-steps 100000; until_seen 20 steps saved; kill -s TERM "$(launcher saved)"; came saved 75 'stopped at step [0-9]+, saved: ' && [ -n "$(ls -d "$T/saved"/checkpoint-*)" ]; }
t "a signal is passed on, and the run is saved" saved
lost() { begin lost over_mpi --logging-steps 1 --max-steps 100000; until_seen 20 steps lost; since=$(now); kill -s KILL "$(mpi_rank lost 1)"; came lost 137 && [ $((($(now) - since) / 1000000)) -lt 5000 ]; }
mpi_rank() { local p; for p in $(pids "$1"); do grep -qsaz "^OMPI_COMM_WORLD_RANK=$2\$" "/proc/$p/environ" && echo "$p"; done | head -n 1; }
t "a rank that is killed ends all" lost
(head -n 60 "$T/train.jsonl"; echo '{"instruction": 5'; tail -n 60 "$T/train.jsonl") >"$T/bad.jsonl"
bad() { begin bad over_mpi --train-file "$T/bad.jsonl" --max-steps 100; came bad 65 'bad.jsonl: record 61: '; }
t "bad data: its status" bad
end() { begin end over_mpi --logging-steps 1 --max-steps 100000; until_seen 20 steps end; kill -s KILL "$(launcher end)"; wait $run 2>/dev/null; until_seen 5 eval '[ -z "$(pids end)" ]'; }
t "all end with the launcher" end
mkdir "$T/few"; ln -s "$(command -v timeout)" "$T/few"; ln -s "$B/ckpt-train" "$T/few"
bare() { PATH=$T/few over_mpi -q --max-steps 1 -o "$T/none"; }
expect_says 69 "no mpirun" "--launcher mpirun: mpirun does not start: No such file or directory" bare
expect_says 78 "another try is not mpirun's" "--max-restarts 2 with --launcher mpirun: mpirun makes no other try" over_mpi --max-restarts 2 -o "$T/none"
expect_says 64 "another launcher" '--launcher' train "$T/mpi" --launcher pdsh -o "$T/none"
expect 64 "a launcher of no hosts" ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --launcher mpirun -o "$T/none"
