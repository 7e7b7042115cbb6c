# lib.sh - sourced by every script here: `ok NAME` and `not ok NAME` lines that tests/run.sh counts.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
B=$PWD/${BUILD:-build/release}
export PATH="$B:$PATH" LC_ALL=C.UTF-8 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
G=$PWD/tests/golden

# t NAME command... - the command succeeds.
t() {
    local name=$1; shift
    if "$@" >"$T/.out" 2>&1; then echo "ok $name"; else echo "not ok $name (status $?)"; sed 's/^/    /' "$T/.out" | tail -15; fi
}
# expect STATUS NAME command... - the command ends with that status and, when it fails, one line
# (and at most a hint) on stderr.
expect() {
    local want=$1 name=$2 got; shift 2
    "$@" >"$T/.out" 2>"$T/.err"; got=$?
    if [ "$got" != "$want" ]; then
        echo "not ok $name: status $got, $want expected"; sed 's/^/    /' "$T/.err" | tail -5
    elif [ "$want" -gt 1 ] && [ "$(grep -vc '^hint: ' "$T/.err")" -gt 1 ]; then
        echo "not ok $name: more than one line of error"; sed 's/^/    /' "$T/.err" | tail -5
    else
        echo "ok $name"
    fi
}
says() { grep -qF -- "$1" "$T/.err"; }          # after expect: stderr has this text
same_files() { diff <(cd "$1" && find . -type f | sort | xargs sha256sum) <(cd "$2" && find . -type f | sort | xargs sha256sum); }
