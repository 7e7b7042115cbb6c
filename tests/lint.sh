#!/usr/bin/env bash
# lint.sh - the rules of the house that a machine can hold: floors, guards, names, banned functions
# and returns, lengths of lines, rooms and folders, paths that are spoken of.
# Prints `file:line: what: text` for every finding; status 1 when there is one.
cd "$(dirname "$0")/.."
bad=0
# say WHAT FINDINGS - findings are lines `file:line:text`, as grep -n gives them.
say() { [ -z "$2" ] || { bad=1; sed -E "s|^([^:]+):([0-9]+):?|\1:\2: $1: |; s/: +$//" <<<"$2"; }; }
files() { git ls-files -- "$@" | grep -E '\.(c|h|cu|cuh)$'; }
# grep with file names even when there is one file, and no wait on stdin when there is none.
find_in() { local what=$1; shift; grep -nE "$what" "$@" /dev/null; }

inc='^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]'
rooms=$(files libckpt formats trainer tools)
[ -n "$rooms" ] || { echo "lint: no rooms: git ls-files gives none" >&2; exit 1; }

say "includes what is upstairs" "$(find_in "$inc(formats|trainer|tools|tests)/" $(files libckpt)
    find_in "$inc(trainer|tools|tests)/" $(files formats)
    find_in "$inc(tools|tests)/" $(files trainer)
    find_in "${inc}tests/" $(files tools))"
say "include does not say the floor" "$(find_in "$inc" $rooms | grep -E 'include[[:space:]]*"' |
    grep -vE '"(libckpt|formats|trainer|tools)/')"
say "include climbs" "$(find_in "$inc.*\.\./" $rooms)"
say "model/ sees a backend" \
    "$(find_in "${inc}trainer/(cpu|cuda)/" $(files trainer/model trainer/data trainer/shard))"
say "a backend sees model/" "$(find_in "${inc}trainer/model/" $(files trainer/cpu trainer/cuda))"
banned='strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|gets|alloca|system|popen|tmpnam|mktemp'
say "banned function" "$(find_in "\b($banned)[[:space:]]*\(" $rooms)"
say "managed memory" "$(find_in 'cudaMallocManaged|cuMemAllocManaged|__managed__' $rooms)"
say "room over 600 lines" \
    "$(wc -l $rooms | awk '$2 != "total" && $1 > 600 { print $2 ":" $1 ":" }')"
headers=$(git ls-files -- libckpt formats trainer tools tests | grep -E '\.(h|cuh)$')
say "guard is not the path" "$(for f in $headers; do
    g=CKPT_$(tr a-z/.- A-Z___ <<<"${f%.*}")_H
    [ "$(grep -cE "^#(ifndef|define) $g\$" "$f")" = 2 ] || echo "$f:1:$g"
done)"
say "struct defined in two headers" "$(grep -nE '^struct [a-z_0-9]+ \{' $(grep -v ^tests/ <<<"$headers") |
    awk -F'[: ]' '{ if (n[$4]++) print at[$4] "\n" $1 ":" $2 ":" $4; else at[$4] = $1 ":" $2 ":" $4 }')"
say "not of the top level" "$(git -c core.quotePath=false ls-files | sed 's|/.*||' | sort -u |
    grep -vxE '\.ci|\.clang-format|\.editorconfig|\.gitattributes|\.gitignore|CHANGELOG\.md|LICENSE|Makefile|README\.md|formats|libckpt|man|tests|tools|trainer')"
say "folder over 40 files" "$(git ls-files | grep -vE '^tests/(golden|fuzz|e2e)/' | awk '
    sub("/[^/]*$", "") { n[$0]++ } END { for (d in n) if (n[d] > 40) print d ":" n[d] ":" }')"

say "name begins with neither room nor folder" "$(h=$(grep -v ^tests/ <<<"$headers")
    awk -f tests/names.awk $h $h)"
say "returns err->code" "$(find_in '\breturn [^;"]*\berr->code;' $rooms)"

# What is called a file somewhere is one.  Placeholders have capitals; what make builds is under build/.
say "no such file" "$(grep -noE '(^|[^A-Za-z0-9_./<-])(libckpt|formats|trainer|tools|tests|man)/[a-z0-9_./-]+\.(c|h|cu|cuh|sh|awk|md|[1-7])\b' \
        README.md CHANGELOG.md tests/README.md Makefile man/*.[1-7] $rooms $(git ls-files -- 'tests/*.[ch]' 'tests/*.sh') |
    while IFS=: read -r f n p; do
        p=${p#"${p%%[a-z]*}"}; [ -e "$p" ] || echo "$f:$n:$p"
    done)"
say "white space at the end of a line" "$(find_in '[[:space:]]+$' $rooms Makefile \
    $(files tests/unit tests/agree tests/fault tests/fuzz) $(git ls-files -- 'tests/*.sh' man))"
say "line over 100 columns" "$(awk 'length($0) > 100 { print FILENAME ":" FNR ":" }' $rooms)"
say "word of unfinished work" "$(find_in 'TODO|FIXME|XXX' $rooms)"
say "shell syntax" "$(for f in $(git ls-files -- 'tests/*.sh' 'tools/*.sh' .ci/run); do
    bash -n "$f" 2>&1 | sed -E "s|^[^:]*: line ([0-9]+): |$f:\1:|"; done)"
[ $bad = 0 ] && echo "lint: clean"
exit $bad
