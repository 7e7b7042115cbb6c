# Ray as the launcher (tools/recipes/ray_launch.py): its actors start ranks, hand on what they print, signals and how they end.  [A9]
# Ray itself is stood in for by shared/ray.py: actors are processes of this host, without a cluster; make check-peers takes the
# real one.  The launcher, the ranks and how these meet are the real ones.
. "$(dirname "$0")/lib.sh"
R=tools/recipes
export PYTHONPATH=$PWD/tests/e2e/shared PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
$R/demo/wordnet.sh "$T" 600 >/dev/null
ckpt-train -q --init $R/demo/config.json --tokenizer $R/demo/tokenizer --init-only -o "$T/base" >/dev/null
tiny=(ckpt-train --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --per-device-train-batch-size 2 --logging-steps 1 --zero-stage 3)
launch() { timeout -s KILL 60 python3 $R/ray_launch.py "$@"; }
expect 0 "two actors, a rank each" launch --ranks 2 -- "${tiny[@]}" --max-steps 6 -o "$T/ray"
t "A9 train together, sharded" grep -qE 'ranks: 2 \(gloo\).*ZeRO stage 3' "$T/.err"
t "A9 their checkpoint is announced once, alone" [ "$(cat "$T/.out")" = "$T/ray/checkpoint-6" ]
t "the same with --nproc" "${tiny[@]}" -q --nproc 2 --max-steps 6 -o "$T/own"
t "A9 has the same bits" same_state ray own
t "A9 each rank has the usual environment" bash -c '[ "$(sort "$1")" = "0 of 2, 0, 127.0.0.1
1 of 2, 1, 127.0.0.1" ]' - <(launch --ranks 2 -- sh -c 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK, $MASTER_ADDR"')
t "A9 and sees the GPUs of its node's ranks" [ "$(RAY_GPUS=2 launch --gpu --ranks 2 -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"' | sort -u)" = 0,1 ]
t "E10 a cluster that is there is attached to" [ "$(RAY_CLUSTER=10.0.0.1:6379 launch --address 10.0.0.1:6379 -- echo there)" = there ]
t "by RAY_ADDRESS too" [ "$(RAY_CLUSTER=10.0.0.1:6379 RAY_ADDRESS=10.0.0.1:6379 launch -- echo there)" = there ]
t "one that is not is told" bash -c "! RAY_ADDRESS=10.0.0.2:6379 python3 $R/ray_launch.py -- echo there 2>&1 | tee /dev/stderr | grep -qx there"
mkdir "$T/rayless"; echo 'raise ImportError("No module named ray")' >"$T/rayless/ray.py"
PYTHONPATH=$T/rayless expect 69 "no Ray is one line" bash -c "python3 $R/ray_launch.py -- true 2>&1 | sed 's/^/ckpt-ray: /' >&2; exit \${PIPESTATUS[0]}"
t "which names the package" says "ray_launch.py: No module named ray: pip install ray"
# How a run ends is how the launcher ends.
fails() { local got=$1; shift; launch "$@" >"$T/.out" 2>"$T/.err"; [ $? = "$got" ]; }
t "A9 no room in the cluster is status 75" fails 75 --room 0.1 --place STRICT_SPREAD --ranks 2 -- true
t "and told" says "no room for 2 ranks within 0.1 s"
t "A9 the status of a rank that fails is the launcher's" fails 66 --ranks 2 -- "${tiny[@]}" --train-file "$T/none.jsonl" -o "$T/none"
t "with what it said" says "none.jsonl: no such file"
mark=RAY_TEST=$$.$RANDOM
ours() { grep -lsaz "^$mark.$1\$" /proc/[0-9]*/environ | cut -d/ -f3; }
ranks_of() { local p; for p in $(ours "$1"); do [ "$(cat "/proc/$p/comm" 2>/dev/null)" = ckpt-train ] && echo "$p"; done; }
begin() { env "$mark.$1" python3 $R/ray_launch.py --ranks 2 -- "${tiny[@]}" --max-steps 1000000 -o "$T/$1" >"$T/.out" 2>"$T/.err" & run=$!; wait_for "[ -s '$T/$1/metrics.jsonl' ]"; }
ends() { local got; wait $run; got=$?; [ $got = "$1" ] || { echo "status $got"; return 1; }; }
left() { wait_for "[ -z \"\$(ranks_of $1)\" ]"; }
t "ranks that go on and on" begin killed
kill -s KILL "$(ranks_of killed | tail -n 1)"
t "A9 a killed rank ends the run with 75" ends 75
t "and nobody is left" left killed
t "ranks again" begin told
kill -s INT $run
t "A9 INT makes all ranks save and end with 75" ends 75
t "they did" says "saved: go on"
t "ranks once more" begin torn
kill -s KILL $run; wait $run 2>/dev/null
t "A9 no rank outlives the launcher" left torn
