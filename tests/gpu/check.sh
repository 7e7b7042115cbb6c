#!/usr/bin/env bash
# check.sh BUILD [PATTERN] - everything on a GPU against the CPU: operations, golden models, whole
# runs.  Prints each program's failures and "N passed, N failed".  SANITIZE=1 runs the operations
# under compute-sanitizer's memcheck and racecheck too (nothing is timed there: no cache).
set -u
cd "$(dirname "$0")/../.."
build=$1 only=${2:-}
passed=0 failed=0
log=$(mktemp); trap 'rm -f "$log"' EXIT
count() {       # NAME RC
    local p f
    p=$(grep -cE '^\[       OK|^ok ' "$log"); f=$(grep -cE '^\[  FAILED  \] [a-z_0-9]+$|^not ok ' "$log")
    [ "$f" -gt 1 ] && grep -q '^\[  FAILED' "$log" && f=$(((f + 1) / 2))
    [ "$2" -ne 0 ] && [ "$f" = 0 ] && f=1
    [ "$2" -eq 0 ] && [ "$p" = 0 ] && { echo "$1: ran nothing"; f=1; }
    passed=$((passed + p)) failed=$((failed + f))
    printf '%-52s %4d passed %3d failed %5d s\n' "$1" "$p" "$f" "$((SECONDS - began))"
    [ "$f" = 0 ] || grep -vE '^\[ (RUN|      OK)|^ok ' "$log" | head -30 | sed 's/^/    /'
}
for t in "$build"/gpu/test_*; do
    case $t in *.o|*.d) continue ;; *${only}*) ;; *) continue ;; esac
    began=$SECONDS
    timeout 300 "$t" >"$log" 2>&1; count "${t#"$build"/}" $?
    [ -n "${SANITIZE:-}" ] && [ "${t##*/}" != test_failures ] || continue
    for tool in memcheck racecheck; do
        began=$SECONDS
        CKPT_CACHE=/proc/none timeout 600 compute-sanitizer --tool $tool --error-exitcode 9 "$t" >"$log" 2>&1
        count "$tool ${t#"$build"/}" $?
    done
done
for t in tests/gpu/[0-9]*.sh; do
    case $t in *${only}*) ;; *) continue ;; esac
    [ -e "$t" ] || continue
    began=$SECONDS
    BUILD=$build timeout 300 bash "$t" >"$log" 2>&1; count "$t" $?
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
