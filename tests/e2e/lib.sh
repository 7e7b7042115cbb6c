# lib.sh - sourced by every script here: `ok NAME` and `not ok NAME` lines that tests/run.sh counts.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case ${BUILD:=build/release} in /*) B=$BUILD ;; *) B=$PWD/$BUILD ;; esac
export PATH="$B:$PATH" LC_ALL=C.UTF-8 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
[ -x "$B/ckpt-merge" ] || { echo "not ok tools are built in $B"; exit 1; }
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
G=$PWD/tests/golden
export CKPT_CACHE=$T/cache          # nothing of a test stays, nothing of before it is found

# fail TEXT FILE... - a test that failed, with the end of what was printed.
fail() { echo "not ok $1"; shift; tail -q -n 15 "$@" | sed 's/^/    /'; }

# t NAME command... - the command succeeds.
t() {
    local name=$1 got; shift
    "$@" >"$T/.t" 2>&1; got=$?
    if [ "$got" = 0 ]; then echo "ok $name"; else fail "$name (status $got)" "$T/.t"; fi
}

# expect STATUS NAME command... - the command ends with that status and, when the status tells a
# failure, stderr is one line that begins with the tool's name, and at most a hint.
expect() {
    local want=$1 name=$2 got; shift 2
    "$@" >"$T/.out" 2>"$T/.err"; got=$?
    if [ "$got" != "$want" ]; then
        fail "$name: status $got, $want expected" "$T/.out" "$T/.err"
    elif [ "$want" -gt 1 ] && ! grep -v '^hint: ' "$T/.err" | one_line '^ckpt-[a-z]+: .'; then
        fail "$name: not one line of error" "$T/.err"
    else
        echo "ok $name"
    fi
}
one_line() { local n; n=$(tee "$T/.lines" | wc -l); [ "$n" = 1 ] && grep -qE "$1" "$T/.lines"; }

says() { grep -qF -- "$1" "$T/.err"; }          # after expect: stderr has this text
prints() { grep -qF -- "$1" "$T/.out"; }        # after expect: stdout has this text
sums() { (cd "$1" && find . -type f | sort | xargs sha256sum); }
same_files() { diff <(sums "$1") <(sums "$2"); }
