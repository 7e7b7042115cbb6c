#!/usr/bin/env bash
# cpu_step.sh BUILD - training steps and generation on the CPU, steps against PyTorch's in turn.
#
#   cpu_step.sh -b BUILD   links BUILD/perf/bench_step and test_tiles with the libraries beside them,
#                          so that they run on another machine as that folder is copied there
#   PEERS=python           a Python with torch and transformers
#   THREADS=               of both, default: all CPUs
#   ROUNDS=3 STEPS=3       rounds of all jobs in turn; steps of a job (its median counts)
#   JOBS="llama bloom"  TYPES="f32 bf16"  SIZES="1x512 4x512"
#   TOKENS=20              of a generation; 0: none
#   SHAPE="768 12 12 2048 32000"     hidden size, layers, heads, feed-forward (Llama), vocabulary
#   LARGE="2048 12 16 5632 32000"    the same for generation
set -u
cd "$(dirname "$0")/../.."
if [ "$1" = -b ]; then
    B=$2
    mkdir -p "$B/perf"
    for program in perf/bench_step unit/model/test_tiles; do
        driver=
        [ "$program" = perf/bench_step ] || driver=tests/unit/driver.c
        ${CC:-gcc} -std=c11 -O2 -fopenmp -I. -D_GNU_SOURCE -o "$B/perf/${program##*/}" "tests/$program.c" $driver \
            "$B/libtrain.a" "$B/libckpt.a" -Wl,--as-needed -Wl,-rpath,'$ORIGIN/lib' -l:libjansson.a -l:libutf8proc.a -l:libpcre2-8.a \
            -l:libxxhash.a -l:libz.a -lopenblas -lcmocka -ldl -lpthread -lm || exit
        strip "$B/perf/${program##*/}"
    done
    mkdir -p "$B/perf/lib"
    for lib in $(ldd "$B/perf/test_tiles" | awk '$1 ~ /openblas|cmocka|gomp|gfortran|quadmath/ { print $3 }'); do
        [ "$lib" -ef "$B/perf/lib/${lib##*/}" ] || cp -L "$lib" "$B/perf/lib" || exit
    done
    exit
fi
B=$1 PEERS=${PEERS:-build/peers/bin/python} THREADS=${THREADS:-$(nproc)} ROUNDS=${ROUNDS:-3} STEPS=${STEPS:-3}
SHAPE=${SHAPE:-768 12 12 2048 32000} LARGE=${LARGE:-2048 12 16 5632 32000}
export OMP_NUM_THREADS=$THREADS TOKENIZERS_PARALLELISM=false
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT; trap '' PIPE
echo "cpu: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc --all) CPUs, $THREADS threads; $(
    grep -o -w -m1 -E 'avx2|avx512f|avx512_bf16|amx_tile|amx_bf16' <(grep -m1 ^flags /proc/cpuinfo) | sort -u | xargs); load $(cut -d' ' -f1 /proc/loadavg)"

OPENBLAS_VERBOSE=2 "$B/perf/test_tiles" >"$dir/tiles" 2>&1
echo "test_tiles: exit $?, $(grep -c '^\[       OK' "$dir/tiles") passed, $(($(grep -c '^\[  SKIPPED \] test' "$dir/tiles") / 2)) skipped; OpenBLAS found $(
    sed -n 's/^Core: //p' "$dir/tiles" | paste -s -d, | sed 's/,/, was told /')"
grep -E -m5 ' is .*(wanted|widened weights)|^\[  ERROR|Segm|rror:' "$dir/tiles"

# Two servants that answer a line for a line.
mkfifo "$dir/a" "$dir/b" "$dir/c" "$dir/d"
# shellcheck disable=SC2086
"$B/perf/bench_step" "$THREADS" $SHAPE <"$dir/a" >"$dir/b" &
exec 3>"$dir/a" 4<"$dir/b"
# shellcheck disable=SC2086
"$PEERS" tests/perf/bench_step_torch.py "$THREADS" $SHAPE <"$dir/c" >"$dir/d" 2>"$dir/torch.err" &
exec 5>"$dir/c" 6<"$dir/d"
ours() { local r; echo "$*" >&3; read -r r <&4 || r='nan nan nan'; echo "$r" >>"$dir/ours.$(tr ' ' _ <<<"$*")"; }
peer() { local r; echo "$*" >&5; read -r r <&6 || r='nan nan nan'; echo "$r" >>"$dir/peer.$(tr ' ' _ <<<"$*")"; }
# median FILE COLUMN
median() { sort -g -k"$2" "$1" | awk -v c="$2" '{ x[NR] = $c } END { print x[int((NR + 1) / 2)] }'; }

for round in $(seq "$ROUNDS"); do
    for model in ${JOBS:-llama bloom}; do for type in ${TYPES:-f32 bf16}; do for size in ${SIZES:-1x512 4x512}; do
        job="${size%x*} ${size#*x} $STEPS"
        peer "step $model $type $job"       # first: its start would run beside ours
        ours "step $model $type $job"
        [ "$type" = f32 ] || peer "step $model autocast $job"
    done; done; done
done
for model in ${JOBS:-llama bloom}; do for type in ${TYPES:-f32 bf16}; do for size in ${SIZES:-1x512 4x512}; do
    job="${size%x*}_${size#*x}_$STEPS"
    o=$dir/ours.step_${model}_${type}_$job p=$dir/peer.step_${model}_${type}_$job q=$dir/peer.step_${model}_autocast_$job
    line="step: $model $type $size: ckpt $(median "$o" 1) ms (CPU $(median "$o" 2)), torch $(median "$p" 1) ms (CPU $(median "$p" 2))"
    best=$(median "$p" 1)
    if [ "$type" != f32 ]; then
        line="$line, with autocast $(median "$q" 1) ms (CPU $(median "$q" 2))"
        best=$(printf '%s\n' "$best" "$(median "$q" 1)" | sort -g | head -1)
    fi
    awk -v l="$line" -v a="$(median "$o" 1)" -v b="$best" -v x="$(median "$o" 3)" -v y="$(median "$p" 3)" \
        'BEGIN { printf "%s: %.2f times as fast; losses %s, %s\n", l, b / a, x, y }'
done; done; done
for type in ${TYPES:-f32 bf16}; do
    echo "profile llama $type 1 512 $STEPS" >&3
    read -r line <&4 && echo "profile: llama $type 1x512, ms: $line"
    while read -r line <&4 && echo "$line" && [ "${line%% *}" != all ]; do :; done
done
exec 3>&- 5>&-
[ -s "$dir/torch.err" ] && grep -i -m3 error "$dir/torch.err"
[ "${TOKENS:-20}" != 0 ] || exit 0
for threads in 1 $THREADS; do for type in ${TYPES:-f32 bf16}; do
    # shellcheck disable=SC2086
    echo "decode llama $type ${TOKENS:-20}" | OMP_NUM_THREADS=$threads "$B/perf/bench_step" "$threads" $LARGE |
        awk -v t="$threads" -v y="$type" '{ printf "decode: llama %s, %d threads: %s GB/s of weights, memory %s GB/s: %.0f %%; %s ms a token\n", y, t, $1, $2, 100 * $1 / $2, $3 }'
done; done
