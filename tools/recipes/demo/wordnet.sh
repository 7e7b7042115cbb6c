#!/bin/sh
# wordnet.sh DIR [ROWS] - WordNet's glosses as instruction -> output pairs.
#
# Writes DIR/train.jsonl and DIR/eval.jsonl: ROWS rows (default 20000) spread evenly over all
# synsets of the Debian package wordnet-base, every 20th held out for evaluation.  The same
# ROWS give the same bytes.  WORDNET=DIR names another place of data.noun and its siblings.
#
# A synset's line (wndb(5)): offset file type words(hex) word id [word id ...] ... | gloss,
# where the gloss is the definition, then examples in quotes; the licence stands in lines that
# begin with a blank.
set -eu
export LC_ALL=C
out=${1:?usage: wordnet.sh DIR [ROWS]}
rows=${2:-20000}
from=${WORDNET:-/usr/share/wordnet}
set -- "$from/data.noun" "$from/data.verb" "$from/data.adj" "$from/data.adv"
for f; do [ -r "$f" ] || { echo "wordnet.sh: $f: not there (package wordnet-base)" >&2; exit 66; }; done
total=$(cat "$@" | grep -c '^[0-9]')
mkdir -p "$out"

cat "$@" | awk -v want="$rows" -v total="$total" -v dir="$out" '
function json(s) {
    gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); gsub(/\t/, "\\t", s)
    gsub(/[\001-\037]/, " ", s)
    return "\"" s "\""
}
BEGIN { kind["n"] = "noun"; kind["v"] = "verb"; kind["a"] = kind["s"] = "adjective"; kind["r"] = "adverb" }
/^[0-9]/ {
    seen++
    if (int(seen * want / total) == int((seen - 1) * want / total)) next
    word = $5; gsub(/_/, " ", word); sub(/\([a-z]+\)$/, "", word)
    gloss = substr($0, index($0, "| ") + 2)
    sub(/; *".*/, "", gloss); gsub(/^ +| +$/, "", gloss)
    n++
    print "{\"instruction\": " json("Define the " kind[$3] ": " word) ", \"input\": \"\", \"output\": " json(gloss) "}" \
        > (dir (n % 20 ? "/train.jsonl" : "/eval.jsonl"))
}
END { if (!n) exit 65 }'
