#!/usr/bin/env bash
# launchers.sh PYTHON BUILD - check the recipes with the real launchers: torchrun restarts a killed rank, Ray starts ranks and passes
# on signals and statuses, Kubernetes' schemas accept the manifest.  tests/e2e/36-launchers.sh checks Slurm; run as root, this
# script installs Slurm's packages first.
#
# PYTHON is that of a venv with torch, ray and kubernetes-validate.  Exit status 1 when one disagrees.
set -u
cd "$(dirname "$0")/../.." || exit
PEERS=$1 B=$2 R=tools/recipes
export OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$$.$RANDOM.launchers PYTHONWARNINGS=ignore
PATH=$B:$(dirname "$PEERS"):$PATH
T=$(mktemp -d); bad=0 mark=$$.$RANDOM
cluster=
trap 'kill $cluster 2>/dev/null; wait; rm -rf "$T"' EXIT
check() {       # NAME command...
    if "${@:2}" >"$T/.check" 2>&1; then echo "ok $1"; return; fi
    echo "not ok $1"; bad=1
    tail -q -n 15 "$T/.check" "$T/.out" "$T/.err" 2>/dev/null | sed 's/^/    /'
}
# until_so SECONDS command... - wait until it succeeds
until_so() { local end=$((SECONDS + $1)); shift; until "$@"; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done; }
$R/demo/wordnet.sh "$T" 600 >/dev/null
ckpt-train -q --init $R/demo/config.json --tokenizer $R/demo/tokenizer --init-only -o "$T/base" >/dev/null
tiny=(ckpt-train --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --per-device-train-batch-size 2 --logging-steps 1 --resume-from-checkpoint latest)
bits() { (cd "$T/$1" && find . -type f ! -name '*.json' ! -name training_args.bin | sort | xargs sha256sum | grep .); }
same_bits() { diff <(bits "$1") <(bits "$2"); }
steps() { grep -qs '"loss"' "$T/$1/metrics.jsonl"; }
# rank_of NAME RANK - the process; only those of this script are looked at
rank_of() {
    local p
    for p in $(grep -lsaz "^LAUNCHERS_TEST=$mark.$1\$" /proc/[0-9]*/environ); do
        p=${p%/environ}
        [ "$(cat "$p/comm" 2>/dev/null)" = ckpt-train ] && grep -qsaz "^RANK=$2\$" "$p/environ" && echo "${p#/proc/}"
    done
}
gone() { [ -z "$(rank_of "$1" 0)$(rank_of "$1" 1)" ]; }
"${tiny[@]}" -q --nproc 2 --max-steps 40 -o "$T/whole" >/dev/null
# ends STATUS TEXT - the run of `start` ends so, says so, and none of its ranks is left
ends() { local got; wait $run; got=$?; [ $got = "$1" ] && grep -qE "$2" "$T/.out" "$T/.err" && until_so 10 gone "$name" || { echo "status $got, ranks: $(rank_of "$name" 0) $(rank_of "$name" 1)"; return 1; }; }

# -- torchrun: a rank is killed in the first try, the second resumes -----------------------------
start() { name=$1; LAUNCHERS_TEST=$mark.$name timeout -s KILL 120 "${@:2}" >"$T/.out" 2>"$T/.err" & run=$!; }
start torchrun torchrun --nproc-per-node 2 --no-python --max-restarts 1 --monitor-interval 0.2 "${tiny[@]}" --max-steps 40 --save-steps 10 -o "$T/torchrun"
saved() { [ -e "$T/$1/checkpoint-10/MANIFEST.json" ]; }
check "torchrun starts ranks" until_so 60 saved torchrun
kill -s KILL "$(rank_of torchrun 1)"
check "torchrun restarts ranks after one was killed" ends 0 'resuming from .*checkpoint-[1-3]0, step '
check "torchrun: the checkpoint is bit-equal to that of --nproc" same_bits torchrun/checkpoint-40 whole/checkpoint-40
start torchrun torchrun --nproc-per-node 2 --no-python "${tiny[@]}" --train-file "$T/none.jsonl" -o "$T/none"
check "torchrun fails when a rank fails" ends 1 'none.jsonl: no such file'

# -- Ray ----------------------------------------------------------------------------------------
launch() { start "$1" python $R/ray_launch.py "${@:2}"; }
launch fresh --address local --ranks 2 -- "${tiny[@]}" --max-steps 40 -o "$T/fresh"
check "Ray: ranks train on a local cluster" ends 0 'ranks: 2 \(gloo\)'
check "Ray: stdout has checkpoint paths alone" test "$(cat "$T/.out")" = "$T/fresh/checkpoint-40"
check "Ray: the checkpoint is bit-equal to that of --nproc" same_bits fresh/checkpoint-40 whole/checkpoint-40
ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --per-device-train-batch-size 2 --logging-steps 1 --learning-rate 1e-3 \
    --max-steps 4 --save-steps 2 --output-layout ray -o "$T/experiment" >/dev/null
result() { RAY_TRAIN_V2_ENABLED=0 python -P tests/peers/ray_result.py "$T"/experiment/TorchTrainer_* 4 "$(sed -n 's/.*"loss": *\([0-9.e-]*\),.*/\1/p' "$T"/experiment/TorchTrainer_*/metrics.jsonl | tail -n 1)"; }
check "Ray: Result.from_path reads what --output-layout ray wrote" result
# A cluster of two CPUs that claims two GPUs.  Other clusters of this host are not touched.
export RAY_ADDRESS=127.0.0.1:$((20000 + $$ % 10000))
ray start --head --block --port="${RAY_ADDRESS#*:}" --num-cpus 2 --num-gpus 2 --temp-dir="$T/ray" \
    --disable-usage-stats --include-dashboard=false >"$T/ray.out" 2>&1 & cluster=$!
up() { grep -q 'Ray runtime started' "$T/ray.out"; }
check "Ray: a cluster starts" until_so 60 up
launch gpus --gpu --ranks 2 -- sh -c 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK on $CUDA_VISIBLE_DEVICES, $PWD"'
check "Ray: rank 0 sees the GPUs of its host's ranks" ends 0 "^0 of 2, 0 on 0,1, $PWD"
check "Ray: rank 1 has LOCAL_RANK 1" grep -qE "^1 of 2, 1 on 0,1, " "$T/.out"
launch room --room 2 --place STRICT_SPREAD --ranks 2 -- true
check "Ray: too small a cluster is status 75" ends 75 'no room for 2 ranks within 2 s'
launch fails --ranks 2 -- "${tiny[@]}" --train-file "$T/none.jsonl" -o "$T/none"
check "Ray: status 66 of a rank is passed on" ends 66 'none.jsonl: no such file'
launch killed --ranks 2 -- "${tiny[@]}" --max-steps 100000 -o "$T/killed"
check "Ray: ranks train on a running cluster" until_so 60 steps killed
kill -s KILL "$(rank_of killed 1)"
check "Ray: a killed rank ends the run with 75" ends 75 'rank 0: ended: rank 1 on .*: not heard for 3 s'
launch told --ranks 2 -- "${tiny[@]}" --max-steps 100000 -o "$T/told"
until_so 60 steps told
launcher() { grep -lsaz "^LAUNCHERS_TEST=$mark.$1\$" /proc/[0-9]*/environ | while IFS=/ read -r _ _ p _; do
    tr '\0' ' ' <"/proc/$p/cmdline" | grep -q '^python .*ray_launch' && echo "$p"; done; }
kill -s INT "$(launcher told)"
check "Ray: INT makes the ranks save and end with 75" ends 75 'stopped at step [0-9]+, saved: go on'
launch torn --ranks 2 -- "${tiny[@]}" --max-steps 100000 -o "$T/torn"
until_so 60 steps torn
kill -s KILL "$(launcher torn)"
check "Ray: ranks end when the launcher is killed" until_so 10 gone torn
wait $run 2>/dev/null

# -- Kubernetes ---------------------------------------------------------------------------------
for version in 1.31.0 1.37.0; do
    check "Kubernetes $version: the manifest is valid" kubernetes-validate -k $version --strict $R/kubernetes.yaml
done
"$PEERS" -P tests/peers/kubernetes.py $R/kubernetes.yaml "$T/meet.sh" >"$T/words" 2>"$T/.err"
check "Kubernetes: names, counts and statuses agree" test $? = 0
sed -i "s|/data/model|$T/base|; s|/data/train.jsonl|$T/train.jsonl|; s|/data/run|$T/pod|" "$T/words"
mapfile -t words <"$T/words"
check "Kubernetes: ckpt-train accepts the arguments" "${words[@]}" --dry-run --max-seq-length 64
# The init container, with a stub of getent: no answer first, then the address of an earlier pod.
mkdir "$T/bin"
printf '#!/bin/sh\necho >>"%s"; case $(wc -l <"%s") in 1) exit 2 ;; 2) echo "10.0.0.1 x" ;; *) echo "10.0.0.2 x" ;; esac\n' "$T/asked" "$T/asked" >"$T/bin/getent"
chmod +x "$T/bin/getent"
meets() { rm -f "$T/asked"; env PATH="$T/bin:$PATH" PAUSE=0 RANK="$1" POD_IP=10.0.0.2 MASTER_ADDR=x timeout 20 sh "$T/meet.sh" && [ "$(wc -l <"$T/asked")" = "$2" ]; }
check "Kubernetes: rank 0 waits until its name is its own address" meets 0 3
check "Kubernetes: rank 1 waits until rank 0 has a name" meets 1 2

# -- Docker -------------------------------------------------------------------------------------
if docker info >/dev/null 2>&1; then
    chmod -R a+rX "$T"; mkdir -m 777 "$T/image"
    in_image() { docker run --rm -v "$T":"$T" "$@"; }
    check "the image is built" docker build -q -f $R/Dockerfile -t ckpt-test .
    check "all tools start in it" in_image ckpt-test sh -ec 'for t in train merge inspect eval push; do ckpt-$t --version; done'
    check "two ranks train in it as user 1000" in_image ckpt-test "${tiny[@]}" --nproc 2 --max-steps 2 -o "$T/image/run"
    curl_is() { in_image ckpt-test ckpt-inspect https://127.0.0.1:9/x >"$T/.out" 2>&1; grep -q '127.0.0.1' "$T/.out" && ! grep libcurl "$T/.out"; }
    check "addresses are read" curl_is
else
    echo "ok skipped: the image, no docker here"
fi

# -- Slurm --------------------------------------------------------------------------------------
if [ "$(id -u)" = 0 ] && ! command -v slurmctld >/dev/null && command -v apt-get >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge iproute2 >/dev/null
fi
BUILD=$B bash tests/e2e/36-launchers.sh | tee "$T/slurm"
! grep -q '^not ok' "$T/slurm" || bad=1
exit $bad
