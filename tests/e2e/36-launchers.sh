# Ranks on two hosts, started by hand and by a real Slurm (tools/recipes/slurm).  The hosts are network namespaces of this
# machine, joined by a veth pair; namespaces and daemons end with this script.  Needs root, and Slurm's packages for Slurm.  [C5, C6, D7]
. "$(dirname "$0")/lib.sh"
recipe=$PWD/tools/recipes/slurm/train.sbatch
skip() { echo "ok skipped: $1"; exit; }
if [ -z "${LAUNCHERS_INSIDE:-}" ]; then
    # How the batch script handles statuses of srun; stubs stand for srun and scontrol.
    mkdir "$T/bin"
    printf '#!/bin/sh\n%s\n' 'cat "$SAYS"; echo "$SRUN_CPUS_PER_TASK $*" >"$SAYS.args"; exit "$ENDS"' >"$T/bin/srun"
    printf '#!/bin/sh\n%s\n' 'echo "scontrol $*"' >"$T/bin/scontrol"
    chmod +x "$T"/bin/*
    # as STATUS REQUEUED STATUS_OF_SRUN RESTARTS TEXT - the script ends so, and requeues the job (1) or not (0)
    as() {
        local got
        printf '%b' "$5" >"$T/says"
        env PATH="$T/bin:$PATH" SAYS="$T/says" ENDS="$3" SLURM_JOB_ID=7 SLURM_RESTART_COUNT="$4" SLURM_CPUS_PER_TASK=5 bash "$recipe" --config a.yaml >"$T/.out" 2>&1; got=$?
        [ $got = "$1" ] && [ "$(grep -c '^scontrol requeue 7$' "$T/.out")" = "$2" ] && return
        echo "status $got"; cat "$T/.out"; return 1
    }
    bad='srun: error: n1: task 0: Exited with exit code'
    t "batch script: status 0 ends the job" as 0 0 0 0 'run/checkpoint-9\n'
    t "C5 batch script: CPUs and options reach srun" grep -qE '^5 .*ckpt-train --resume-from-checkpoint latest --config a.yaml$' "$T/says.args"
    t "batch script: a saved checkpoint and 75 requeue the job" as 0 1 75 40 "run/checkpoint-9\n$bad 75\n"
    t "batch script: a killed rank requeues the job" as 0 1 137 0 'srun: error: n2: task 1: Killed\n'
    t "batch script: the fourth try without a checkpoint ends the job" as 75 0 75 3 "$bad 75\n"
    t "batch script: status 65 of one rank ends the job with 65" as 65 0 75 0 "run/checkpoint-9\nsrun: error: n2: task 1: Exited with exit code 65\n$bad 75\n"
    t "batch script: an error of srun ends the job" as 1 0 1 0 'srun: error: Unable to create step\n'
    [ "$(id -u)" = 0 ] || skip "namespaces need root"
    command -v ip >/dev/null || skip "no ip: package iproute2"
    own=(unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc)
    "${own[@]}" ip link add v1 type veth peer name v2 2>/dev/null || skip "no namespaces or no veth here"
    rm -rf "$T"
    exec env LAUNCHERS_INSIDE=1 BUILD="$B" "${own[@]}" bash "$0"
fi
trap 'exit 143' TERM INT HUP
chmod 755 "$T"

# Host n1 is this shell, n2 is where on2 runs commands.
printf '127.0.0.1 localhost\n10.77.0.1 n1\n10.77.0.2 n2\n' >"$T/hosts"
mount --bind "$T/hosts" /etc/hosts
unshare --net --uts sleep infinity & second=$!
on2() { nsenter --net --uts -t $second "$@"; }
apart() { [ "$(readlink /proc/$second/ns/uts)" != "$(readlink /proc/self/ns/uts)" ]; }
wait_for apart
hostname n1; on2 hostname n2
ip link add v1 type veth peer name v2; ip link set v2 netns $second
ip addr add 10.77.0.1/24 dev v1; ip link set v1 up; ip link set lo up
on2 ip addr add 10.77.0.2/24 dev v2; on2 ip link set v2 up; on2 ip link set lo up

R=tools/recipes/demo
$R/wordnet.sh "$T" 600 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
tiny=(--model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --per-device-train-batch-size 2)
now() { date +%s%N; }
steps() { grep -qs '"loss"' "$T/$1/metrics.jsonl"; }
bits() { (cd "$T/$1" && find . -type f ! -name '*.json' ! -name training_args.bin | sort | xargs sha256sum | grep .); }
same_bits() { diff <(bits "$1") <(bits "$2"); }

# -- by hand ------------------------------------------------------------------------------------
port=29500
rank() { env RANK="$1" WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.77.0.1 MASTER_PORT=$port timeout 60 ckpt-train "${tiny[@]}" --logging-steps 1 "${@:2}"; }
rank1() { on2 env RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.77.0.1 MASTER_PORT=$port timeout 60 ckpt-train "${tiny[@]}" --logging-steps 1 "$@"; }
# both NAME OPTION... - a rank on each host; their words in NAME.0 and NAME.1, their statuses in first and other
both() {
    local name=$1 pid; shift
    port=$((port + 1))
    rank1 -o "$T/$name" "$@" >"$T/$name.1" 2>&1 & pid=$!
    rank 0 -o "$T/$name" "$@" >"$T/$name.0" 2>&1; first=$?
    wait $pid; other=$?
}
well() { both "$@"; [ $first$other = 00 ] || { echo "status $first and $other"; cat "$T/$1".[01]; return 1; }; }
for stage in 0 3; do
    t "two hosts, stage $stage" well "far$stage" --zero-stage $stage --max-steps 4
    t "one host, stage $stage" ckpt-train -q "${tiny[@]}" --nproc 2 --logging-steps 1 --zero-stage $stage --max-steps 4 -o "$T/near$stage"
    t "stage $stage: the losses are those of one host" same_losses "far$stage" "near$stage"
    t "stage $stage: the checkpoint is bit-equal to that of one host" same_bits "far$stage/checkpoint-4" "near$stage/checkpoint-4"
done

# The master's name is known late, and is another host's address at first, as in Kubernetes.
named() {
    local pid
    printf '127.0.0.1 localhost\n10.77.0.1 n1\n10.77.0.2 n2\n' >"$T/hosts"
    on2 env RANK=1 WORLD_SIZE=2 MASTER_ADDR=pod-0 MASTER_PORT=29400 timeout 60 ckpt-train "${tiny[@]}" --max-steps 2 --ddp-timeout 40 -o "$T/named" >"$T/named.1" 2>&1 & pid=$!
    (sleep 4; echo '10.77.0.9 pod-0' >>"$T/hosts"; sleep 4; sed 's/10.77.0.9/10.77.0.1/' "$T/hosts" >"$T/hosts.new"; cat "$T/hosts.new" >"$T/hosts") &
    env RANK=0 WORLD_SIZE=2 MASTER_ADDR=pod-0 MASTER_PORT=29400 timeout 60 ckpt-train "${tiny[@]}" --max-steps 2 --ddp-timeout 40 -o "$T/named" >"$T/named.0" 2>&1; first=$?
    wait $pid; other=$?
    [ $first$other = 00 ] && [ "$(grep -c 'warning: waiting for pod-0 to be an address of this host, [0-9]* s more at most: ' "$T/named.0")" = 1 ] &&
        [ "$(grep -c 'warning: rank 1: waiting for the store at pod-0:29400, [0-9]* s more at most: ' "$T/named.1")" = 1 ] || { echo "status $first and $other"; cat "$T"/named.[01]; return 1; }
}
t "a name that resolves late, to a stale address first" named

# The link between the hosts goes down during training.
pulled() {
    local name=$1 pid ms
    port=$((port + 1)); shift
    rank1 -o "$T/$name" "$@" --max-steps 100000 >"$T/$name.1" 2>&1 & other=$!
    rank 0 -o "$T/$name" "$@" --max-steps 100000 >"$T/$name.0" 2>&1 & pid=$!
    wait_for "steps $name" || { cat "$T/$name".[01]; return 1; }
    ip link set v1 down; since=$(now)
    wait $pid; first=$?
    wait $other; other=$?
    ms=$((($(now) - since) / 1000000))
    ip link set v1 up
    [ $first$other = 7575 ] && [ $ms -lt 5000 ] || { echo "status $first and $other after $ms ms"; tail -n 3 "$T/$name".[01]; return 1; }
}
for stage in 0 3; do
    t "stage $stage: link down ends both hosts with 75 within 5 s" pulled cut$stage --zero-stage $stage
    t "stage $stage: rank 0 names rank 1 and its host" grep -qE '^ckpt-train: (error: )?rank 0: ended: rank 1 on n2: not heard for 3 s, in: ' "$T/cut$stage.0"
    t "stage $stage: rank 1 names rank 0 and its address" grep -qE '^ckpt-train: (error: )?rank 1: ended: rank 0 is gone: store at 10\.77\.0\.1:' "$T/cut$stage.1"
done

# -- Slurm --------------------------------------------------------------------------------------
for program in slurmctld slurmd munged srun sbatch; do
    command -v $program >/dev/null || skip "Slurm, no $program: packages slurmctld, slurmd, slurm-client, munge"
done
mkdir "$T/ctl" "$T/d"
head -c 1024 /dev/urandom >"$T/munge.key"; chmod 400 "$T/munge.key"
cat >"$T/slurm.conf" <<EOF
ClusterName=ckpt
SlurmctldHost=n1
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$T/munge,cred_expire=5
CredType=cred/munge
StateSaveLocation=$T/ctl
SlurmctldPidFile=$T/ctl.pid
SlurmctldLogFile=$T/ctl.log
SlurmdSpoolDir=$T/d/%n
SlurmdPidFile=$T/d-%n.pid
SlurmdLogFile=$T/d-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
MpiDefault=none
SwitchType=switch/none
NodeName=n[1-2] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
EOF
export SLURM_CONF=$T/slurm.conf
munged --force --socket="$T/munge" --key-file="$T/munge.key" --pid-file="$T/munged.pid" --log-file="$T/munged.log" --seed-file="$T/munge.seed" 2>"$T/munged.err"
slurmctld -c; slurmd -N n1; on2 slurmd -N n2
wait_for '[ "$(sinfo -h -o %T 2>/dev/null | sort -u)" = idle ]'; check() { t "$1" test "$2" = 0; }
check "slurmctld has two idle nodes" $?
# sends NAME OPTION_OF_SBATCH... - the recipe as a job of that name; prints its number.  Its log is NAME.log.
sends() { sbatch --parsable --cpus-per-task=1 --output="$T/%x.log" --job-name="$1" "${@:2}"; }
field() { scontrol show job "$1" | sed -n "s/.*\b$2=\([^ ]*\).*/\1/p"; }
# until_is SECONDS JOB FIELD VALUE
until_is() { local end=$(($(now) + $1 * 1000000000)); until [ "$(field "$2" "$3")" = "$4" ]; do [ "$(now)" -lt $end ] || { scontrol show job "$2"; return 1; }; sleep 0.1; done; }
log_has() { grep -qE "$2" "$T/$1.log" || { cat "$T/$1.log"; return 1; }; }

# A job with a time limit of one minute runs beside the other jobs; its checks are at the end.
limited=$(sends limited --time=1 "$recipe" "${tiny[@]}" --logging-steps 1 --max-steps 100000 -o "$T/limited")

# Three tries: in the first a rank is killed, the second is told to save, the third ends.
t "one host, uninterrupted" ckpt-train -q "${tiny[@]}" --nproc 2 --logging-steps 1 --max-steps 80 -o "$T/whole"
job=$(sends broken "$recipe" "${tiny[@]}" --logging-steps 1 --max-steps 80 -o "$T/broken")
rank_of() { grep -lsaz "^SLURM_JOB_NAME=$1\$" /proc/[0-9]*/environ | while IFS=/ read -r _ _ p _; do
    [ "$(cat "/proc/$p/comm" 2>/dev/null)" = ckpt-train ] && grep -qsaz "^SLURM_PROCID=$2\$" "/proc/$p/environ" && echo "$p"; done; }
t "C5 Slurm: a job of two nodes trains" wait_for 'steps broken'
t "Slurm: rank 1 is killed" kill -s KILL "$(rank_of broken 1)"
t "Slurm: the killed rank requeues the job" until_is 20 "$job" Restarts 1
rm -f "$T/broken/metrics.jsonl"
t "Slurm: the second try runs" until_is 30 "$job" JobState RUNNING
wait_for 'steps broken'
t "Slurm: scancel --signal=USR1 is sent" scancel --signal=USR1 "$job"
t "Slurm: USR1 requeues the job" until_is 20 "$job" Restarts 2
t "Slurm: the third try completes" until_is 40 "$job" JobState COMPLETED
t "Slurm: the log names the lost rank" log_has broken 'rank 0: ended: rank 1 on n2: not heard for 3 s, in: '
t "Slurm: the third try resumes" log_has broken 'resuming from .*/checkpoint-[0-9]+, step '
t "Slurm: the checkpoint is bit-equal to the uninterrupted one" same_bits broken/checkpoint-80 whole/checkpoint-80

(head -n 60 "$T/train.jsonl"; echo '{"instruction": 5'; tail -n 60 "$T/train.jsonl") >"$T/bad.jsonl"
job=$(sends bad "$recipe" "${tiny[@]}" --train-file "$T/bad.jsonl" --max-steps 100 --data-cache off -o "$T/bad")
t "Slurm: a damaged record on one rank fails the job" until_is 20 "$job" JobState FAILED
t "Slurm: the job ends with 65 and is not requeued" test "$(field "$job" ExitCode) $(field "$job" Restarts)" = "65:0 0"
t "Slurm: the log names the record" log_has bad 'bad.jsonl: record 61: '
no_75() { ! grep 'Exited with exit code 75' "$T/bad.log"; }
t "Slurm: no rank ends with another status" no_75

# It may have been requeued more than once by now.
restarted() { local end=$(($(now) + 40000000000)); until [ "$(field "$limited" Restarts)" -ge 1 ]; do [ "$(now)" -lt $end ] || { scontrol show job "$limited"; return 1; }; sleep 0.1; done; }
t "time limit: the job saves and is requeued" restarted
t "time limit: the second try runs" until_is 20 "$limited" JobState RUNNING
went_on() { sed '1,/resuming from .*checkpoint-[0-9]*, step /d' "$T/limited.log" | grep -qE '^ckpt-train: +[0-9]+/100000 .*e-'; }
t "time limit: the second try resumes and trains" wait_for went_on
had=$(newest limited)
scancel "$limited"
t "scancel ends the job" until_is 20 "$limited" JobState CANCELLED
idle() { [ "$(sinfo -h -o %T | sort -u)" = idle ] && ! pgrep -x ckpt-train; }
t "scancel leaves no process" wait_for idle
saved() { [ "$had" != "$(newest limited)" ] && ckpt-train -q --dry-run "${tiny[@]}" --resume-from-checkpoint "$(newest limited)" -o "$T/none"; }
t "scancel: the ranks have saved a checkpoint" saved
