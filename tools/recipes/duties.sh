# duties.sh - sourced by the recipes' duties.sh: what a system has to do, checked and told.
#
#   duty ID TEXT COMMAND...   prints "ID ✓ TEXT" if the command succeeds, else "ID ✗ TEXT" and the end of its output
#   duties_end                ends the script with 0 if all succeeded
#
# For the commands: $OUT is the folder of the run.
unmet=0
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
duty() {
    local id=$1 text=$2; shift 2
    if "$@" >"$tmp/said" 2>&1; then
        echo "$id ✓ $text"
    else
        echo "$id ✗ $text"; tail -n 5 "$tmp/said" | sed 's/^/    /'
        unmet=$((unmet + 1))
    fi
}
duties_end() { [ $unmet = 0 ] || { echo "$unmet not met" >&2; exit 1; }; }

# all COMMAND... ";" COMMAND... - every one of them succeeds.
all() {
    local one=() word
    for word in "$@" ";"; do
        if [ "$word" = ";" ]; then "${one[@]}" || { echo "failed: ${one[*]}"; return 1; }; one=(); else one+=("$word"); fi
    done
}
there() { local f; for f; do compgen -G "$f" >/dev/null || { echo "$f is absent"; return 1; }; done; }
has() { grep -qaE -- "$1" "$2" || { echo "no $1 in $2"; return 1; }; }
newest() { ls -d "${1:-$OUT/run}"/checkpoint-*[0-9] | sort -V | tail -n 1; }
# number FILE NAME - of a member of a JSON file, the last one there.
number() { tr ',{}' '\n\n\n' <"$1" | sed -n "s/^ *\"$2\": *\([0-9.eE+-]*\) *$/\1/p" | tail -n 1 | grep .; }
# tensors FILE - can be read, to the last byte, and are finite.
tensors() { ckpt-inspect -q --stats "$1"; }
# losses RUN [FROM STEP] - of its log, behind that step.
losses() { awk -v from="${2:-0}" 'match($0, /"step":[0-9]+/) && substr($0, RSTART + 7, RLENGTH - 7) > from && match($0, /"loss":[0-9.e+-]+/) { print substr($0, RSTART, RLENGTH) }' "$1/metrics.jsonl" | grep .; }
# setting NAME VALUE - what the run's options, files and defaults came to.
setting() { grep -E "^(# )?$1: " "$OUT/config.yaml" | grep -qF -- "$1: $2  #" || { grep -E "^(# )?$1: " "$OUT/config.yaml"; return 1; }; }
# again FOLDER OPTION... - the run's options once more, into another folder.
again() {
    grep -vE '^(output_dir|report_to|logging_dir|run_name):' "$OUT/config.yaml" >"$tmp/again.yaml"
    rm -rf "$1"; ckpt-train -q --config "$tmp/again.yaml" --output-dir "$@" >/dev/null
}
# clone_hub [FOLDER [COMMIT]] - what was published, as anyone fetches it, in $OUT/clone.  Without git-lfs ckpt-push fetches it.
clone_hub() {
    local url=$HUB to=${1:-$OUT/clone}
    case $url in hf://*) url=${HF_ENDPOINT:-https://huggingface.co}/${url#hf://} ;; esac
    rm -rf "$to"
    if command -v git-lfs >/dev/null; then
        lfs clone -q --no-checkout "$url" "$to" && (cd "$to" && lfs checkout -q "${2:-HEAD}")
    else
        ckpt-push -q "$to" "$HUB${2:+@$2}" >/dev/null
    fi
}
lfs() { GIT_LFS_SKIP_SMUDGE=0 git -c protocol.file.allow=always -c filter.lfs.smudge='git-lfs smudge -- %f' -c filter.lfs.process='git-lfs filter-process' -c filter.lfs.required=true "$@"; }
# commits PATH - of the clone, that touched it.
commits() { log "$1" | wc -l; }
log() { git -C "$([ -e "$OUT/clone/.git" ] && echo "$OUT/clone" || echo "$HUB")" log --format=%H -- "$1"; }
# same CHECKPOINT CHECKPOINT - file by file, but for those that name the run.
same() {
    local of
    for of in "$1" "$2"; do (cd "$of" && find . -type f ! -name MANIFEST.json ! -name training_args.bin ! -name trainer_state.json -print0 | sort -z | xargs -0 sha256sum) >"$tmp/${of//\//_}"; done
    diff "$tmp/${1//\//_}" "$tmp/${2//\//_}"
}
here=$(cd "$(dirname "$0")" && pwd)
