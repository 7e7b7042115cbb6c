#!/usr/bin/env bash
# check.sh BUILD [PATTERN] - everything on a GPU against the CPU: operations, golden models, runs of
# ckpt-train; and the operations under compute-sanitizer's memcheck and racecheck, if installed.
# Prints a line for each program, the output of those that fail, and "N passed, N failed".
#
#   SANITIZE=0   not under the sanitizer; SANITIZE=1: nothing else
#   P=8          programs at once (default: half of the cores); runs go one by one
#   LIMIT=300    seconds for each
#
# Under the sanitizer a test tries its awkward shapes alone (SMALL, see gpu.h), and nothing is timed
# to choose algorithms (the cache cannot be written), except in the tests of choices.  API errors
# are not reported: tests provoke them and check their results.  Hazards inside cuBLAS's own
# kernels (nvjet_* reports some that its barriers order) are counted and are no failure.  Excluding
# those kernels by --kernel-name-exclude ends in a hardware exception (13.0).
set -u
cd "$(dirname "$0")/../.."
build=$1 only=${2:-}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
cores=$(nproc)
case $build in /*) CKPT_PLUGIN_PATH=$build ;; *) CKPT_PLUGIN_PATH=$PWD/$build ;; esac
export CKPT_PLUGIN_PATH             # the tests are in a folder below it
export build dir LIMIT=${LIMIT:-300} MOST=400 OMP_WAIT_POLICY=passive

# hazards LOG - our hazards and the number of cuBLAS's, to LOG.hazards; fails when there are some of
# ours, when the tool did not finish, or when its list is full.  Ours have names: where cuBLAS has
# hazards, a single one without a name counts with them, as the tool now and then omits a name.
hazards() {
    awk '
        function judge() {
            if (names ~ /(nvjet|xmma|cutlass|cublas|sgemm)/) theirs++
            else if (names != "") { if (++mine <= 4) found = found text }
            else if (text != "") { nameless++; blank = blank text }
            names = text = ""
        }
        /^=+ (Error|Warning): / { judge(); on = 1 }
        /^=+ .*Internal Sanitizer Error/ { judge(); names = text = $0 "\n"; on = 0 }
        /^=+ RACECHECK SUMMARY/ { judge(); ended = 1; on = 0 }
        /^=+ *$/ { on = 0 }
        on {
            text = text $0 "\n"
            name = $0
            if (sub(/.* access at +/, "", name) && name ~ /^[^[ ]/) names = names name "\n"
            else if ($0 ~ /^=+ (Error|Warning): / && $0 !~ / access at/) names = names $0 "\n"
        }
        END {
            judge()
            if (nameless == 1 && theirs) theirs++
            else if (nameless) { mine += nameless; found = found blank }
            if (theirs) print theirs " hazards of cuBLAS"
            if (mine) print "ours: " mine "\n" found
            if (!ended) print "racecheck did not end"
            full = mine + theirs >= most
            if (full) print "more hazards than are printed: " most
            exit mine || !ended || full
        }' most="$MOST" "$1" >"$1.hazards"
}

# one HOW PROGRAM - runs it and prints its result; the counts go to a file of their own.
one() {
    local how=$1 program=$2 began=$SECONDS p f rc log
    local small=(env CKPT_CACHE=/proc/none OPENBLAS_NUM_THREADS=1 timeout "$LIMIT" compute-sanitizer --tool "$how" --print-limit "$MOST")
    log=$dir/$how.${program##*/}
    case $how in
    memcheck) SMALL=1 "${small[@]}" --error-exitcode 9 --report-api-errors no "$program" ;;
    racecheck) SMALL=2 "${small[@]}" "$program" ;;
    runs) BUILD=$build timeout "$LIMIT" bash "$program" ;;
    *) timeout "$LIMIT" "$program" ;;
    esac >"$log" 2>&1
    rc=$?
    if [ "$how" = racecheck ] && [ "$rc" != 124 ]; then
        hazards "$log" || rc=9
        sed -i '/^=====* /d' "$log"; cat "$log.hazards" >>"$log"
    fi
    p=$(grep -cE '^\[       OK|^ok ' "$log"); f=$(grep -cE '^\[  FAILED  \] [a-z_0-9]+$|^not ok ' "$log")
    [ "$f" -gt 1 ] && grep -q '^\[  FAILED' "$log" && f=$(((f + 1) / 2))
    [ "$rc" -ne 0 ] && [ "$f" = 0 ] && f=1
    [ "$rc" -eq 0 ] && [ "$p" = 0 ] && { echo "ran nothing" >>"$log"; f=1; }
    echo "$p $f" >"$log.counts"
    [ "$how" = runs ] || [ "$how" = plain ] || program="$how ${program##*/}"
    {
        printf '%-52s %4d passed %3d failed %5d s%s\n' "${program#"$build"/}" "$p" "$f" "$((SECONDS - began))" \
            "$([ "$rc" = 124 ] && echo ', out of time')$(sed -n 's/^[0-9]* hazards of cuBLAS$/, &/p' "$log")"
        [ "$f" = 0 ] || grep -vE '^\[ (RUN|      OK)|^ok |^=+$' "$log" | head -30 | cut -c1-200 | sed 's/^/    /'
    } >"$log.summary"
    cat "$log.summary"
}
export -f one hazards

# jobs_of HOW FILE... - the jobs whose file matches the pattern.
jobs_of() {
    local how=$1 t; shift
    for t; do
        case $t in *.o|*.d) ;; *${only}*) [ ! -e "$t" ] || printf '%s\0%s\0' "$how" "$t" ;; esac
    done
}
operations=()
for t in "$build"/gpu/test_*; do        # a model takes a hundred times as long there
    case ${t##*/} in *.*|test_models|test_decode|test_generation|test_failures) ;; *) operations+=("$t") ;; esac
done
sanitize=${SANITIZE:-}
[ -n "$sanitize" ] || { command -v compute-sanitizer >/dev/null && sanitize=2 || sanitize=0; }
# beside P - run the jobs from stdin, so many at once.
beside() { xargs -0 -r -n 2 -P "$1" bash -c 'one "$1" "$2"' one; }
# Alone: runs, since one with a memory limit takes memory in use on the chip at its start, up to
# 1 GiB, for its own context; and kernels that fail on purpose.
[ "$sanitize" = 1 ] || { jobs_of runs tests/gpu/[0-9]*.sh; jobs_of plain "$build"/gpu/test_failures; } | beside 1
{
    for t in "$build"/gpu/test_*; do
        [ "$sanitize" = 1 ] || [ "${t##*/}" = test_failures ] || jobs_of plain "$t"
    done
    if [ "$sanitize" != 0 ]; then
        for t in "${operations[@]}"; do     # these two time kernels of cuBLAS's; test_experts has tiles
            case ${t##*/} in test_choices|test_tiles) ;; *) jobs_of racecheck "$t" ;; esac
        done
        jobs_of memcheck "${operations[@]}"
    fi
} | beside "${P:-$(((cores + 1) / 2))}"
[ "$sanitize" != 0 ] || echo "not under compute-sanitizer"
cat "$dir"/*.counts 2>/dev/null | awk '{ p += $1; f += $2 } END { printf "%d passed, %d failed\n", p, f; exit !(p && !f) }'
