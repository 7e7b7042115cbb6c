# Folders as transformers leaves them, nothing cut: what it reads in them is read here, and its numbers come out.
. "$(dirname "$0")/lib.sh"
S=$G/saved

# rows DIR - its expected rows as JSON lines; losses DIR - their losses (tests/golden/make_saved.py).
rows() { sed -n '/^ "loss": {/,$s/^  \(".*"\): [0-9.]*,*$/{"text": \1}/p' "$1/expected.json"; }
losses() { sed -n '/^ "loss": {/,$s/^  ".*": \([0-9.]*\),*$/\1/p' "$1/expected.json"; }
score() {
    local n=0
    while read -r row && read -r want <&3; do
        echo "$row" > "$T/row.jsonl"
        ckpt-eval --json -q --no-add-eos-token --eval-file "$T/row.jsonl" "$1" > "$T/scored" || return 1
        sed -n 's/.*"loss": \([0-9.]*\),.*/\1/p' "$T/scored" |
            awk -v want="$want" '{ d = $1 - want; if (d < 0) d = -d; exit !(d < 2e-6 * want) }' || { cat "$T/scored"; echo "wanted $want"; return 1; }
        n=$((n + 1))
    done < <(rows "$1") 3< <(losses "$1")
    [ $n = 4 ]
}
ids() {
    sed -n '/^ "ids": {/,/^ }/s/^  \(".*"\): \[$/\1/p' "$1/expected.json" > "$T/texts.jsonl"
    sed -n '/^ "ids": {/,/^ }/p' "$1/expected.json" | tr -d ' \n' | grep -o '\[[0-9,]*\]' > "$T/wanted"
    ckpt-inspect --encode "$T/texts.jsonl" "$1" | sed -E 's/^.*"ids":(\[[0-9,]*\]).*$/\1/' | diff "$T/wanted" - && [ "$(wc -l < "$T/wanted")" = 6 ]
}
for name in bloom gpt2 llama qwen3; do
    t "$name: ids are transformers'" ids "$S/$name"
    t "$name: losses too" score "$S/$name"
    rows "$S/$name" > "$T/train.jsonl"
    t "$name: it trains" ckpt-train -q --model "$S/$name" --train-file "$T/train.jsonl" --max-steps 1 -o "$T/$name"
    t "$name: what was trained is scored" ckpt-eval -q --eval-file "$T/train.jsonl" "$T/$name/checkpoint-1"
    t "$name: as GGUF" bash -c "cd $T && ckpt-merge -q --to gguf -o $name.gguf $S/$name >/dev/null && [ -s $name.gguf ]"
done
t "a length limit of 10^30 is one that there is not" grep -q 1000000000000000019884624838656 "$S/llama/tokenizer_config.json"
