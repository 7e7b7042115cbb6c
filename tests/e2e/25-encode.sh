# ckpt-inspect --encode and --decode: every golden line of every tokenizer, there and back.
. "$(dirname "$0")/lib.sh"
TOK=$G/tokenizers
# fields FILE KEY - the ids, or offsets flat, of each line.
ids() { sed -E 's/^.*"ids":\[([0-9,]*)\].*$/\1/' "$1"; }
flat() { sed -E 's/^.*"offsets":(\[[0-9,[]*([][0-9,]*\])?\]),"tokens".*$/\1/; s/[][]//g' "$1"; }
off() { sed -E 's/^.*"off":\[([0-9,]*)\].*$/\1/' "$1"; }
golden() {
    ckpt-inspect --encode "$TOK/strings.jsonl" "$TOK/$1" > "$T/out" || return 1
    [ "$(wc -l < "$T/out")" = 412 ] && diff <(ids "$TOK/$1/golden.jsonl") <(ids "$T/out") &&
        diff <(off "$TOK/$1/golden.jsonl") <(flat "$T/out")
}
for name in bert bloom gpt2 llama2 llama3 mistral qwen roberta t5 zoo; do t "$name: ids and offsets" golden "$name"; done
t "threads give the same lines" bash -c "
    for i in \$(seq 50); do cat $TOK/strings.jsonl; done > $T/many.jsonl
    diff <(ckpt-inspect -j1 --encode $T/many.jsonl $TOK/t5) <(ckpt-inspect -j8 --encode $T/many.jsonl $TOK/t5)"
t "and back" bash -c "
    ckpt-inspect --encode $TOK/strings.jsonl $TOK/gpt2 > $T/a && ckpt-inspect --decode $T/a $TOK/gpt2 > $T/b &&
    cp $T/b $T/b.jsonl &&
    ckpt-inspect --encode $T/b.jsonl $TOK/gpt2 | diff $T/a -"
t "arrays of ids" bash -c "[ \"\$(echo '[1, 2]' | ckpt-inspect --decode - $TOK/bloom)\" = '\"<s></s>\"' ]"
t "without special tokens" bash -c "[ \"\$(echo '[1, 2]' | ckpt-inspect --no-special-tokens --decode - $TOK/bloom)\" = '\"\"' ]"
t "plain lines, the last one without an end" bash -c "[ \"\$(printf 'a\nb' | ckpt-inspect --encode - $TOK/roberta | wc -l)\" = 2 ]"
t "a file of a tokenizer" bash -c "echo Hello | ckpt-inspect --encode - $TOK/t5/spiece.model | grep -q '\"decoded\":\"Hello\"'"
t "other files than tokenizer.json" bash -c "echo Hello | ckpt-inspect --encode - $TOK/files/vocab-txt | grep -q '^{\"ids\":\[2,'"
printf '"ok"\n{}\n' > "$T/bad.jsonl"
expect_says 65 "a line that is no string" "bad.jsonl:2: not a JSON string" ckpt-inspect --encode "$T/bad.jsonl" "$TOK/gpt2"
expect 65 "a line that is no UTF-8" bash -c "printf 'a\n\377\n' | ckpt-inspect --encode - $TOK/gpt2"
t "is named" says "stdin:2: text is not UTF-8 at byte 0"
expect 65 "an id that there is not" bash -c "echo '[99999]' | ckpt-inspect --decode - $TOK/gpt2"
expect 64 "two paths" ckpt-inspect --encode - "$TOK/gpt2" "$TOK/t5"
expect 64 "both ways at once" ckpt-inspect --encode - --decode - "$TOK/gpt2"
expect_says 66 "no tokenizer there" "no tokenizer" bash -c "ckpt-inspect --encode - $G/torch < /dev/null"
