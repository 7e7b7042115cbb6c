#!/usr/bin/env bash
# run.sh MODE:GROUP... - run groups of tests (release:units asan:units release:e2e) and print
# "N passed, N failed".  Units are cmocka programs under build/MODE/{unit,agree,fault}; e2e are
# tests/e2e/NN-*.sh.  ONLY=pattern limits both.  Exit status 1 when anything failed.
set -u
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0
log=$(mktemp); trap 'rm -f "$log"' EXIT
for pair in "$@"; do
    mode=${pair%%:*} group=${pair#*:} build=build/${pair%%:*}
    case $group in
    units) list=$(for f in tests/{unit,agree,fault}/test_*.c; do [ -e "$f" ] && f=${f#tests/} && echo "$build/${f%.c}"; done) ;;
    e2e)   list=$(ls tests/e2e/[0-9]*.sh 2>/dev/null) ;;
    *)     echo "run.sh: unknown group $group" >&2; exit 64 ;;
    esac
    for t in $list; do
        case $t in *${ONLY:-}*) ;; *) continue ;; esac
        start=$(date +%s%N)
        if [ "$group" = e2e ]; then BUILD=$build timeout 600 bash "$t" >"$log" 2>&1; else timeout 600 "$t" >"$log" 2>&1; fi
        rc=$?
        ms=$(( ($(date +%s%N) - start) / 1000000 ))
        if [ "$group" = e2e ]; then
            p=$(grep -c '^ok ' "$log"); f=$(grep -c '^not ok ' "$log"); s=0
        else
            p=$(grep -c '^\[       OK' "$log"); f=$(grep -cE '^\[  FAILED  \] [a-z_0-9]+$' "$log")
            s=$(grep -cE '^\[  SKIPPED \] [a-z_0-9]+$' "$log"); s=$((s / 2))
            [ "$f" -gt 1 ] && f=$(((f + 1) / 2))
        fi
        [ $rc -ne 0 ] && [ "$f" = 0 ] && f=1
        [ $rc -eq 0 ] && [ "$p" = 0 ] && [ "$s" = 0 ] && { echo "$t: ran nothing" >>"$log"; f=1; }
        passed=$((passed + p)); failed=$((failed + f)); skipped=$((skipped + s))
        printf '%-7s %-44s %4d passed %3d failed %7d ms\n' "$mode" "${t#"$build"/}" "$p" "$f" "$ms"
        [ "$f" != 0 ] && grep -vE '^\[ (RUN|      OK)|^ok ' "$log" | tail -40 | sed 's/^/    /'
    done
done
[ "$skipped" != 0 ] && echo "$skipped tests skipped: they need another build mode"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
