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

# RANKS_OVER: ranks of --nproc talk over gloo, or are started by mpirun (mpi), whatever the script.
case ${RANKS_OVER:=} in
gloo) export CKPT_COMM=gloo ;;
mpi)
    mkdir "$T/over"
    cat >"$T/over/ckpt-train" <<'END'
#!/usr/bin/env bash
n=1 args=()
while [ $# -gt 0 ]; do
    case $1 in
    --nproc) n=$2; shift ;;
    --dry-run|--max-restarts) exec "$REAL_TRAIN" --nproc "$n" "${args[@]}" "$@" ;;
    *) args+=("$1") ;;
    esac
    shift
done
[ "$n" -gt 1 ] || exec "$REAL_TRAIN" "${args[@]}"
exec mpirun --oversubscribe --bind-to none --quiet -np "$n" "$REAL_TRAIN" "${args[@]}"
END
    chmod +x "$T/over/ckpt-train"
    export REAL_TRAIN=$B/ckpt-train PATH=$T/over:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none ;;
esac

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
expect() { expect_in "" "" "$@"; }
# expect_says STATUS NAME TEXT command... - and stderr has this text; expect_prints: stdout has it.
expect_says() { expect_in .err "$3" "$1" "$2" "${@:4}"; }
expect_prints() { expect_in .out "$3" "$1" "$2" "${@:4}"; }
expect_in() {
    local where=$1 text=$2 want=$3 name=$4 got; shift 4
    "$@" >"$T/.out" 2>"$T/.err"; got=$?
    if [ "$got" != "$want" ]; then
        fail "$name: status $got, $want expected" "$T/.out" "$T/.err"
    elif [ "$want" -gt 1 ] && ! grep -v '^hint: ' "$T/.err" | one_line '^ckpt-[a-z]+: .'; then
        fail "$name: not one line of error" "$T/.err"
    elif [ -n "$where" ] && ! grep -qF -- "$text" "$T/$where"; then
        fail "$name: no \"$text\"" "$T/$where"
    else
        echo "ok $name"
    fi
}
one_line() { local n; n=$(tee "$T/.lines" | wc -l); [ "$n" = 1 ] && grep -qE "$1" "$T/.lines"; }

# foretold STATUS NAME TOOL ARG... - in $T/way, TOOL --dry-run creates nothing and tells how TOOL then ends: status and errors.
foretold() {
    local status=$1 name=$2 tool=$3 before dry got; shift 3
    before=$(cd "$T/way" && ls -AR)
    (cd "$T/way" && "$tool" --dry-run "$@") >"$T/.out" 2>"$T/foretold"; dry=$?
    [ "$(cd "$T/way" && ls -AR)" = "$before" ] && echo "ok $name: nothing is created" || echo "not ok $name: nothing is created"
    (cd "$T/way" && "$tool" "$@") >/dev/null 2>"$T/.err"; got=$?
    if [ "$dry $got" = "$status $status" ] && cmp -s "$T/foretold" "$T/.err"; then echo "ok $name"
    else fail "$name (status $dry, then $got)" "$T/foretold" "$T/.err"; fi
}

says() { grep -qF -- "$1" "$T/.err"; }          # after expect: stderr has this text
prints() { grep -qF -- "$1" "$T/.out"; }        # after expect: stdout has this text
sums() { (cd "$1" && find . -type f | sort | xargs sha256sum); }
same_files() { diff <(sums "$1") <(sums "$2"); }

# wait_for CONDITION - until it holds, ten seconds at most.
wait_for() { for _ in $(seq 200); do eval "$1" && return 0; sleep 0.05; done; return 1; }

# noise N - so many random bytes, the first of which begins no pickle: one in a hundred random files does, and is refused.
noise() { printf w; head -c $(($1 - 1)) /dev/urandom; }

# -- pages in a browser; browser is empty where there is none ------------------------------------
browser=$(command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome)
# opened PAGE - the document that it is once its script has run.
opened() { timeout 60 "$browser" --headless --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir="$T/browser" --window-size=2000,1000 --dump-dom "file://$1" 2>/dev/null; }
# asked PAGE WIDTH EXPRESSION - what it is of the page's document d and window w, in one of so many pixels.
asked() {
    cat >"$T/frame.html" <<END
<!DOCTYPE html><iframe id="f" src="$1" style="width:${2}px;height:900px;border:0"></iframe>
<script>onload = () => { const w = document.getElementById('f').contentWindow, d = w.document; document.body.textContent = 'it is ' + ($3) + '.'; };</script>
END
    opened "$T/frame.html" | sed -n 's/.*it is \(.*\)\..*/\1/p'
}
# fits_window PAGE WIDTH - nothing of it goes beyond a window of so many pixels.
fits_window() { [ "$(asked "$1" "$2" 'd.documentElement.scrollWidth - d.documentElement.clientWidth')" = 0 ]; }

# -- models and runs; RUN is a folder of $T -----------------------------------------------------
# score FILE MODEL... - the loss of evaluation; loss_of cuts it out of ckpt-eval's JSON.
score() { ckpt-eval -q --json --eval-file "$@" 2>"$T/.err" | loss_of; }
loss_of() { sed -n 's/.*"loss": \([0-9.e+-]*\),.*/\1/p'; }
# near A B [PART] - A is B but for a part of it.
near() { awk -v a="$1" -v b="$2" -v r="${3:-2e-6}" 'BEGIN { d = (a - b) / b; exit !(a != "" && d < r && d > -r) }'; }
# losses RUN - of its steps; there are some.
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl" | grep .; }
same_losses() { losses "$1" > "$T/a" && losses "$2" > "$T/b" && diff "$T/a" "$T/b"; }
# losses_near RUN RUN PART N - N steps whose losses differ by no more than a part of themselves.
losses_near() { paste <(losses "$1") <(losses "$2") | awk -v most="$3" -v n="$4" '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) bad = 1 } END { exit bad || NR != n }'; }
# newest RUN - its checkpoint with the highest step.
newest() { ls -d "$T/$1"/checkpoint-*[0-9] | sort -V | tail -n 1; }
# state RUN - digests of its newest checkpoint, without the files that name the run.
state() { (cd "$(newest "$1")" && find . -type f ! -name MANIFEST.json ! -name training_args.bin ! -name trainer_state.json | sort | xargs sha256sum); }
same_state() { diff <(state "$1") <(state "$2"); }
# rewind RUN OTHER - a copy of the run without its newest checkpoint.
rewind() { cp -r "$T/$1" "$T/$2" && rm -r "$(newest "$2")"; }
# part PREFIX FILE OUT - the tensors of that prefix, without it, as a file.
part() { rm -rf "$3"; ckpt-merge -q --include "$1.*" --rename "$1.=" --to safetensors -o "$3" "$2"; }
# within FILE FILE PART - no tensor sets the two apart by more than a part of itself, noise (1e-7) left out.
within() {
    ckpt-inspect --json --diff "$1" "$2" > "$T/diff" 2>"$T/.err"
    grep -q '"differences"' "$T/diff" || { cat "$T/.err"; return 1; }
    grep '"name"' "$T/diff" | tee "$T/bad" |
        awk -v most="$3" '{ r = m = $0; sub(/.*"relative": /, "", r); sub(/.*"max_abs": /, "", m)
            if (!/"difference": "values"/ || (r + 0 > most && m + 0 > 1e-7)) bad = 1 } END { exit bad }'
}
