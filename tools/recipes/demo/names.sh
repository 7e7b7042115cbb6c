#!/bin/sh
# names.sh DIR - the people, places and events of WordNet, and what each of them is, as instruction
# -> output pairs.
#
# Writes DIR/train.jsonl and DIR/eval.jsonl, every 20th of some 7,700 rows held out for evaluation;
# always the same bytes.  WORDNET=DIR names another place of the Debian package's data.noun.
#
# A synset's line is as wordnet.sh tells; one that is an instance, not a kind, has a pointer "@i".
# The longest of its words says most (Lake Geneva, not Geneva), and the gloss up to the first
# semicolon is what people would say first.
set -eu
export LC_ALL=C
out=${1:?usage: names.sh DIR}
nouns=${WORDNET:-/usr/share/wordnet}/data.noun
[ -r "$nouns" ] || { echo "names.sh: $nouns: not there (package wordnet-base)" >&2; exit 66; }
mkdir -p "$out"

awk -v dir="$out" '
function json(s) {
    gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); gsub(/\t/, "\\t", s)
    return "\"" s "\""
}
function hex(s,    i, n) {
    for (i = 1; i <= length(s); i++) n = 16 * n + index("0123456789abcdef", substr(s, i, 1)) - 1
    return n
}
/^[0-9]/ && / @i / {
    name = ""
    for (i = hex($4) - 1; i >= 0; i--)
        if (length($(5 + 2 * i)) >= length(name)) name = $(5 + 2 * i)
    gsub(/_/, " ", name)
    gloss = substr($0, index($0, "| ") + 2)
    sub(/;.*/, "", gloss); gsub(/^ +| +$/, "", gloss)
    n++
    print "{\"instruction\": " json(name) ", \"input\": \"\", \"output\": " json(gloss) "}" \
        > (dir (n % 20 ? "/train.jsonl" : "/eval.jsonl"))
}
END { if (!n) exit 65 }' "$nouns"
