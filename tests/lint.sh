#!/usr/bin/env bash
# lint.sh - the rules of the house that a machine can hold: floors, banned functions, lengths.
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
say "header without a guard" "$(for f in $(grep -E '\.(h|cuh)$' <<<"$rooms"); do
    g=$(sed -nE 's/^#ifndef (CKPT_[A-Z0-9_]+_H)$/\1/p' "$f" | head -1)
    [ -n "$g" ] && grep -q "^#define $g\$" "$f" || echo "$f:1:"
done)"
say "white space at the end of a line" "$(find_in '[[:space:]]+$' $rooms Makefile \
    $(files tests/unit tests/agree tests/fault tests/fuzz) $(git ls-files -- 'tests/*.sh' man))"
say "line over 100 columns" "$(awk 'length($0) > 100 { print FILENAME ":" FNR ":" }' $rooms)"
say "word of unfinished work" "$(find_in 'TODO|FIXME|XXX' $rooms)"
say "shell syntax" "$(for f in $(git ls-files -- 'tests/*.sh' 'tools/*.sh' .ci/run); do
    bash -n "$f" 2>&1 | sed -E "s|^[^:]*: line ([0-9]+): |$f:\1:|"; done)"
[ $bad = 0 ] && echo "lint: clean"
exit $bad
