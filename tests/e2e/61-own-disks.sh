#!/usr/bin/env bash
# Two nodes that save onto disks of their own, behind the steps, and are started again after a kill in the middle of a save: the
# run goes on from the newest checkpoint that both disks have, ends as an unbroken one, and leaves nothing unfinished.  [B5, E9]
#   KILLS=all   more moments of a save
[ -w /dev/shm ] && export TMPDIR=/dev/shm
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[ -x "$B/kill_at" ] || { echo "not ok kill_at is built in $B"; exit 1; }
"$B/kill_at" 0 "$T" true 2>/dev/null || { echo "ok no process may be traced here"; exit 0; }
. "$(dirname "${BASH_SOURCE[0]}")/shared/broken.sh"
# ssh gives each name a folder of its own for the one that the run was started in.  In the first try the rank on VICTIM is killed
# before its CALL-th system call there.
cat >"$T/ssh" <<'END'
#!/usr/bin/env bash
while [ $# -gt 2 ]; do shift; done
mkdir -p "$PWD/$1"
command=${2/"cd '$PWD'"/"cd '$PWD/$1'"}
kill=()
[ "$1" != "$VICTIM" ] || ! mkdir struck 2>/dev/null || kill=("$KILL_AT" -1 -l "$PWD/call" "$CALL" "$PWD/$1")
exec env -i HOME="$HOME" LC_ALL=C.UTF-8 "${kill[@]}" sh -c "$command"
END
chmod +x "$T/ssh"
export CKPT_SSH=$T/ssh KILL_AT=$B/kill_at
printf 'node-0 slots=1\nnode-1 slots=1\n' >"$T/hosts"
port=$((20000 + RANDOM % 12000))
# run FOLDER VICTIM CALL OPTION...
run() {
    rm -rf "$T/$1"; mkdir "$T/$1"; cd "$T/$1" || return
    port=$((port + 3))
    VICTIM=$2 CALL=$3 timeout -s KILL 60 ckpt-train --hostfile "$T/hosts" --master-addr 127.0.0.1 --master-port $port --model "$T/base" --train-file "$T/train.jsonl" \
        --max-seq-length 32 --per-device-train-batch-size 2 --threads 1 --max-steps 5 --save-steps 1 --save-total-limit 2 --async-save true --max-restarts 1 \
        --logging-steps 1 -o run "${@:4}" >out 2>err
}
# losses_of FOLDER - of each step, as it was trained last.
losses_of() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*"step":\([0-9]*\).*/\2 \1/p' "$1/node-0/run/metrics.jsonl" | sort -k1,1n -s | awk '{ last[$1] = $2 } END { for (i = 1; i <= 5; i++) print i, last[i] }'; }
# goes_on STEP - the try after the kill began there, and came to what the unbroken run came to, on both disks.
goes_on() {
    local n
    grep -q "warning: node-[01]: rank [01] on .*: killed by SIGKILL" err && grep -q "try 2 of 2 in 1 s: 2 ranks" err && grep -q "resuming from run/checkpoint-$1, step $1\$" err || return 1
    diff <(losses_of "$T/want") <(losses_of .) || return 1
    for n in 0 1; do
        diff -rq "$T/want/node-$n/run/checkpoint-5" "node-$n/run/checkpoint-5" && [ "$(ls -d node-$n/run/checkpoint-* | tr '\n' ' ')" = "node-$n/run/checkpoint-4 node-$n/run/checkpoint-5 " ] || return 1
    done
    for n in 4 5; do ckpt-inspect -q --verify --together node-[01]/run/checkpoint-$n >/dev/null || return 1; done
    ! ls -A . node-[01] node-[01]/run | grep -E 'staging|trash|folder|tmp$'
}
# at VICTIM PATTERN - the first of its calls of the unbroken run whose line has that.
at() { grep -nE -m 1 -- "$2" "$T/calls.$1" | cut -d: -f1; }
# killed FROM VICTIM PATTERN - before that call; the run goes on from step FROM.
killed() {
    run got "node-$2" "$(at "$2" "$3")" || { echo "status $?"; tail -n 5 err; return 1; }
    grep -qE -- "$3" call || { echo "another call:"; cat call; return 1; }
    goes_on "$1" || { cat call; grep -v '  ' err | tail -n 12; ls -A node-[01]/run; return 1; }
}
more() { [ "${KILLS:-}" != all ] || t "$@"; }
for n in 0 1; do
    t "no kill, counted on node $n" run want "node-$n" 0
    mv call "$T/calls.$n"
done
t "each folder is whole, which is said" grep -q "not one folder but 2, each on its nodes' own disk: each gets weights and optimizer as a whole," err
for n in 0 1; do
    more "node $n: a save begins" killed 3 $n 'mkdirat .*/\.checkpoint-4\.staging-[0-9a-f]*$'
    [ $n = 0 ] && how=more || how=t
    $how "node $n: weights are written" killed 3 $n 'pwrite64 .*/\.checkpoint-4\.staging-.*/\.model\.safetensors\.'
    more "node $n: the manifest is" killed 3 $n 'fsync .*/\.checkpoint-4\.staging-.*/\.MANIFEST\.json\.'
    t "node $n: the other's has its name" killed 3 $n 'renameat2 .*/\.checkpoint-4\.staging-[0-9a-f]*$'
    more "node $n: an older one goes" killed 4 $n 'renameat2 .*/checkpoint-2$'
done
more "an adapter, not killed" run want node-1 0 --lora-rank 2 --target-modules all-linear
[ ! -e call ] || mv call "$T/calls.1"
adapter() { run got node-1 "$(at 1 'pwrite64 .*/\.checkpoint-4\.staging-.*/\.adapter_model')" --lora-rank 2 --target-modules all-linear && goes_on 3; }
more "and killed" adapter
# What is sharded cannot be read from one folder: the other try ends, and says why.
expect_says 65 "shards on two disks" "hint: it is one of 2 folders that nodes wrote on their own disks: copy the ranks' files of all into each" \
    eval 'run got node-1 1000 --zero-stage 2; s=$?; grep -v "^node-\|warning" err >&2; (exit $s)'
t "as it was said before the first step" grep -q "not one folder but 2, .* and a run resumes, or is tried again, once each has the files of all\$" "$T/got/err"
