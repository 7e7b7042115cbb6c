#!/usr/bin/env bash
# lint.sh - the rules of the house that a machine can hold: floors, banned functions, lengths.
cd "$(dirname "$0")/.."
bad=0
say() { [ -n "$2" ] && { echo "$1:"; echo "$2" | sed 's/^/    /'; bad=1; }; }
files() { git ls-files -- "$@" | grep -E '\.(c|h)$'; }
say "includes that run upstairs" "$( { grep -nE '#include "(formats|trainer|tools|tests)/' $(files libckpt) /dev/null; grep -nE '#include "(trainer|tools|tests)/' $(files formats) /dev/null; grep -nE '#include "(tools|tests)/' $(files trainer) /dev/null; } )"
say "includes that do not say the floor" "$(grep -nE '#include "' $(files libckpt formats trainer tools) | grep -vE '#include "(libckpt|formats|trainer|tools)/')"
say "model/ sees a backend" "$(grep -nE '#include "trainer/(cpu|cuda)/' $(files trainer/model trainer/data trainer/shard) /dev/null)"
say "a backend sees model/" "$(grep -nE '#include "trainer/model/' $(files trainer/cpu) /dev/null)"
say "banned functions" "$(grep -nE '\b(strcpy|strcat|sprintf|strtok|atoi|atof|gets|alloca|system|popen|tmpnam|mktemp)\(' $(files libckpt formats trainer tools))"
say "rooms over 600 lines" "$(wc -l $(files libckpt formats trainer tools) | awk '$2 != "total" && $1 > 600 { print $2 ": " $1 }')"
say "headers without a guard" "$(for f in $(files libckpt formats trainer tools | grep '\.h$'); do grep -q '^#ifndef CKPT_.*_H$' "$f" || echo "$f"; done)"
say "white space at the end of a line" "$(grep -nE '[[:space:]]+$' $(files libckpt formats trainer tools tests/unit tests/agree tests/fault tests/fuzz) Makefile)"
say "lines over 100 columns" "$(awk 'length($0) > 100 { print FILENAME ":" FNR }' $(files libckpt formats trainer tools))"
say "words of unfinished work" "$(grep -nE 'TODO|FIXME|XXX' $(files libckpt formats trainer tools))"
say "wrong shell syntax" "$(for f in $(git ls-files -- 'tests/*.sh' 'tools/*.sh' .ci/run); do bash -n "$f" 2>&1; done)"
[ $bad = 0 ] && echo "lint: clean"
exit $bad
