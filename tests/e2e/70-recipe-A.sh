# System A by its recipe, small, on two ranks of the CPU: from raw data to a clone of what was published.  A1 to A10
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/recipes.sh"
small bloom "$R/demo/config.json" demo
awk 'BEGIN { for (i = 0; i < 80; i++) printf "{\"text\":\"film number %d was %s and I %s it very much\",\"label\":%d}\n", i, i % 2 ? "bad" : "good", i % 2 ? "hated" : "loved", 1 - i % 2 }' >"$T/imdb.jsonl"
REPLAY=1 recipe A-bloomz-imdb "$T/imdb.jsonl" --save-steps 2 --logging-steps 1
