# The five systems from raw data to a verified clone, each by the script that users have (tools/recipes), at small size on two
# ranks.  What a script ticks are the tests, by the duties' ids.
. "$(dirname "$0")/lib.sh"
export HOME=$T GIT_CONFIG_NOSYSTEM=1
for system in tools/recipes/[A-E]-*; do
    name=${system##*/}
    [ "$(wc -l <"$system/run.sh")" -le 10 ] && echo "ok $name: ten lines" || echo "not ok $name: ten lines"
    start=; [ "${name%%-*}" != A ] || start=ray         # as system A has it; Ray is stood in for by shared/ray.py
    START=$start PYTHONPATH=$PWD/tests/e2e/shared PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore SMALL=1 OUT=$T/out BUILD=$B timeout 120 "$system/run.sh" >"$T/.out" 2>"$T/.err"; got=$?
    sed -nE 's/^([A-EX()0-9]+) ✓ /ok \1 /p; s/^([A-EX()0-9]+) ✗ /not ok \1 /p' "$T/.out"
    if [ $got = 0 ] && grep -q '^X1 ✓' "$T/.out"; then echo "ok $name: all its duties"; else fail "$name: all its duties (status $got)" "$T/.err"; fi
    [ -z "$start" ] || t "A9 E10 $name: its ranks were started by Ray" grep -q 'ranks: 2 (gloo)' "$T/out/log"
done
# A duty that is not met is told, and is the status.
SMALL=1 OUT=$T/out BUILD=$B ARGS="--learning-rate 1e-4" tools/recipes/A-bloomz-imdb/run.sh >"$T/.out" 2>"$T/.err"; got=$?
t "a rate that is not the system's is no A3" bash -c "[ $got = 1 ] && grep -q '^A3 ✗' $T/.out && grep -q '^A5 ✓' $T/.out"
# What the gate refuses is not published.
SMALL=1 OUT=$T/out BUILD=$B LIMIT=1 tools/recipes/E-lora-sft/run.sh >"$T/.out" 2>"$T/.err"; got=$?
t "a loss above the limit ends the line" [ $got != 0 ]
t "and nothing is published" [ ! -e "$T/out/hub.git" ]
