#!/usr/bin/env bash
# bench_ranks.sh BUILD - training steps on several GPUs of this host beside one: tokens/s of all, and
# how many times one GPU's.  A table in Markdown; what each program said is kept.
#
#   LINES="1b1 opt"    only these of the table below
#   STEPS=12           steps of each, behind those that warm up
#   RANKS=2            GPUs (default: all there are); 0: none
#   SIMULATE="2 8 64"  beside them one rank of so many, on one GPU, its collectives simulated
#   ALONE=0            not on one GPU
#   SETS="--zero 3"    only these options of several ranks, sets by ";"
#   PROFILE=1          where a step's time goes on rank 0, in DIR/NAME.log
#   DIR=...            where logs go, default build/bench-ranks
#
# A line: name | options of bench_gpu | options of several ranks, sets by ";".
set -u
cd "$(dirname "$0")/../.."
case $1 in /*) B=$1 ;; *) B=$PWD/$1 ;; esac
export CKPT_PLUGIN_PATH=$B OMP_NUM_THREADS=8
DIR=${DIR:-build/bench-ranks} STEPS=${STEPS:-12}
n=${RANKS:-$(nvidia-smi -L | grep -c '^GPU ')}
mkdir -p "$DIR" || exit 73
table='
1b1        | bloomz-1b1 --batch 16 --accumulate 8                                  | --zero 3;--zero 2;--zero 0
1b1-short  | bloomz-1b1 --batch 16                                                 | --zero 3;--zero 3 --reduce bf16;--zero 3 --reshard true
opt        | opt-1.3b --batch 8 --length 2048 --accumulate 4                       | --zero 3;--zero 3 --reshard true
qwen-full  | qwen3-8b --batch 2 --length 2048 --accumulate 4 --recompute norms --moments 8bit | --zero 3;--zero 3 --reduce bf16;--zero 3 --moments f32
qwen-lora  | qwen3-8b --lora --batch 4 --length 2048                               | --zero 3;--zero 3 --reshard true
'
of() { tr ' ' '\n' <"$2" | sed -n "s/^$1=//p" | tail -n 1; }
# ranks LOG OPTION... - one process a GPU, met by the environment.
ranks() {
    local log=$1 r pids=(); shift
    for ((r = 0; r < n; r++)); do
        RANK=$r LOCAL_RANK=$r WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=${PORT:-29531} \
            "$B/gpu/bench_gpu" "$@" >"$log.$r" 2>&1 &
        pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || bad=1; done
    cat "$log".? >"$log"; rm -f "$log".?
}
# row NAME OPTIONS ONE LOG [MORE] - ONE: tokens/s of one GPU.
row() {
    local all; all=$(of tok_s "$4")
    echo "| $1 | $2 | ${3:--} | ${all:-failed} | $(awk -v a="${3:-0}" -v b="${all:-0}" 'BEGIN { if (a) printf "%.3f", b / a; else print "-" }') | $(of gib "$4") | $(of median_ms "$4")${5:-} |"
    [ -n "$all" ] || tail -n 3 "$4" >&2
}
echo "| work | options | one GPU | all, tok/s | times | GiB each | ms a step |"
echo "|---|---|---|---|---|---|---|"
while IFS='|' read -r name alone sets; do
    name=${name// /}
    [ -n "$name" ] && { [ -z "${LINES:-}" ] || [[ " $LINES " == *" $name "* ]]; } || continue
    one=
    # shellcheck disable=SC2086
    [ "${ALONE:-1}" = 0 ] || { "$B/gpu/bench_gpu" $alone --steps "$STEPS" >"$DIR/$name-one.log" 2>&1; one=$(of tok_s "$DIR/$name-one.log"); }
    k=0 sets=${SETS:-$sets}
    while read -r -d ';' set; do
        log=$DIR/$name-$n-$k.log
        # shellcheck disable=SC2086
        [ "$n" = 0 ] || { ranks "$log" $alone $set --steps "$STEPS" ${PROFILE:+--profile}; row "$name" "$set" "$one" "$log"; }
        for world in ${SIMULATE:-}; do
            log=$DIR/$name-simulated-$world-$k.log
            # shellcheck disable=SC2086
            "$B/gpu/bench_gpu" $alone $set --steps "$STEPS" --simulate "$world" >"$log" 2>&1 || bad=1
            row "$name, $world simulated" "$set" "$one" "$log" " of them $(of exposed_ms "$log") exposed communication"
        done
        k=$((k + 1))
    done <<<"$sets;"
done <<<"$table"
exit "${bad:-0}"
