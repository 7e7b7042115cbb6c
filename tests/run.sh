#!/usr/bin/env bash
# run.sh MODE:GROUP... - run groups of tests (release:units release:e2e asan:units asan:e2e) and
# print "N passed, N failed".  Units are the suites (files) of tests/{unit/*,agree,fault,emulate}, each a
# process of its folder's program in build/MODE/units; e2e are tests/e2e/NN-*.sh, whose table of
# duties (tests/duties.awk) comes before that line.
#
#   ONLY=pattern  those whose path has it: ONLY=test_lock, ONLY=unit/text, ONLY=40-merge
#   JOBS=N        units at once (as many as cores); scripts, some of which time things, run alone
#
# Exit status 1 when anything failed.  The slowest of the last run start first (build/MODE/.ms).
#
# asan:e2e runs the scripts named in `sanitized`, or those that ONLY names.  Whatever a sanitizer
# reports fails the script, also where the tool's failure was expected or its status was lost;
# only what Open MPI and libgit2 leak for themselves is left out (tests/lsan.supp).  Of the others, 35-ranks
# cannot pass as a whole: it limits address space and the seconds within which a run ends.
set -u
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
export OMP_WAIT_POLICY=passive          # a thread that waits leaves its core to other suites
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
sanitized='10-cli 20-inspect 40-merge 41-adapters 41-reshard 42-gguf-bnb
           46-quant 50-push 58-push-dav'    # quick, and every tool in them
# Scripts that are run again with their ranks over something else than shared memory (lib.sh).
over='35-zero:gloo 38-tied-rows:gloo 38-tied-rows:mpi 38-rank-errors:gloo 41-reshard:mpi'
script() { BUILD=$build RANKS_OVER=$(sed -n 's/.*\.sh://p' <<<"$1") timeout 600 bash "${1%%:*}"; }
sanitized_script() {
    export ASAN_OPTIONS=detect_leaks=1:fast_unwind_on_malloc=0:allocator_may_return_null=1
    ASAN_OPTIONS+=:log_path=$tmp/report
    export UBSAN_OPTIONS=print_stacktrace=1:exitcode=99    # it writes no log; no script expects 99
    export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
    local rc r
    rm -f "$tmp"/report.*
    script "$1"; rc=$?
    for r in "$tmp"/report.*; do
        grep -qsE 'ERROR: |runtime error: ' "$r" || continue
        echo "not ok a sanitizer reports"; head -n 30 "$r"; rc=1
    done
    return $rc
}
# suite tests/unit/libckpt/test_lock.c - by its folder's program.
suite() {
    local folder=${1%/*}
    timeout 600 "$build/units/${folder##*/}" "$(basename "$1" .c)"
}
# one TEST LOG - runs it; prints its line (and what failed), and adds its counts to $tmp/counts.
one() {
    local t=$1 log=$2 start rc ms p f s=0 name
    start=$(date +%s%N)
    case $mode:$group in
    asan:e2e) (sanitized_script "$t") >"$log" 2>&1 ;;
    *:e2e)    script "$t" >"$log" 2>&1 ;;
    *)        suite "$t" >"$log" 2>&1 ;;
    esac
    rc=$?
    ms=$(( ($(date +%s%N) - start) / 1000000 ))
    if [ "$group" = e2e ]; then
        name=$t p=$(grep -c '^ok ' "$log") f=$(grep -c '^not ok ' "$log")
    else
        name=${t#tests/} name=${name%.c}
        p=$(grep -c '^\[       OK' "$log") f=$(grep -cE '^\[  FAILED  \] [a-z_0-9]+$' "$log")
        s=$(grep -cE '^\[  SKIPPED \] [a-z_0-9]+$' "$log") s=$((s / 2))
        [ "$f" -gt 1 ] && f=$(((f + 1) / 2))
    fi
    [ $rc -ne 0 ] && [ "$f" = 0 ] && f=1
    [ $rc -eq 0 ] && [ "$p" = 0 ] && [ "$s" = 0 ] && { echo "$t: ran nothing" >>"$log"; f=1; }
    echo "$p $f $s" >>"$tmp/counts"
    echo "$ms $t" >>"$tmp/ms"
    {
        printf '%-7s %-44s %4d passed %3d failed %7d ms\n' "$mode" "$name" "$p" "$f" "$ms"
        [ "$f" = 0 ] || grep -vE '^\[ (RUN|      OK)|^ok ' "$log" | tail -40 | sed 's/^/    /'
    } >"$log.told"
    cat "$log.told"
}
for pair in "$@"; do
    mode=${pair%%:*} group=${pair#*:} build=build/${pair%%:*}
    case $group in
    units) list=$(ls tests/{unit/*,agree,fault,emulate}/test_*.c) at_once=$jobs
           # threads that switch stacks are none for a sanitizer
           case $mode in release|debug) ;; *) list=$(grep -v '^tests/emulate/' <<<"$list") ;; esac ;;
    e2e)   list=$(ls tests/e2e/[0-9]*.sh; printf 'tests/e2e/%s\n' $over | sed 's/:/.sh:/') at_once=1
           [ "$mode" = asan ] && [ -z "${ONLY:-}" ] && list=$(printf 'tests/e2e/%s.sh\n' $sanitized) ;;
    *)     echo "run.sh: unknown group $group" >&2; exit 64 ;;
    esac
    [ "$at_once" -gt 1 ] && list=$(awk 'FNR == NR { ms[$2] = $1; next } { print ms[$1] + 0, $1 }' \
        <(cat "$build/.ms" 2>/dev/null; echo) - <<<"$list" | sort -k1,1nr -s | cut -d' ' -f2)
    i=0
    for t in $list; do
        case $t in *"${ONLY:-}"*) ;; *) continue ;; esac
        while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
        i=$((i + 1))
        one "$t" "$tmp/$mode-$group-$i" &
    done
    wait
    [ -z "${ONLY:-}" ] && [ "$at_once" -gt 1 ] && mv "$tmp/ms" "$build/.ms"
    rm -f "$tmp/ms"
done
touch "$tmp/counts"
logs=$(ls "$tmp"/*-e2e-* 2>/dev/null | grep -v '\.told$')
# shellcheck disable=SC2086
[ -z "$logs" ] || awk -f tests/duties.awk tests/duties.tsv tests/e2e/[0-9]*.sh $logs
awk '{ p += $1; f += $2; s += $3 }
     END {
         if (s) print s " tests skipped: they need another build mode"
         print p + 0 " passed, " f + 0 " failed"
         exit f || !p
     }' "$tmp/counts"
