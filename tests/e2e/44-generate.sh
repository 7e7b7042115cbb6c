# Continuations: the same whatever the batch, rows as they finish, texts that end one, log-probabilities.  C3, C5
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 200 >/dev/null 2>&1
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 4e-3 --max-steps 30 \
    --save-steps 30 --logging-steps 30 --per-device-train-batch-size 16 -o "$T/run" >/dev/null 2>&1
M=$T/run/checkpoint-30
gen() { ckpt-eval -q --device cpu --eval-file "$T/eval.jsonl" --generate 10 --min-new-tokens 16 --max-new-tokens 24 "$@" "$M" >"$T/.out" 2>"$T/.err"; }
field() { sed -nE "s/.*\"$1\": (\"([^\"\\\\]|\\\\.)*\"|[^,}]*).*/\\1/p"; }
n=$(($(wc -l <"$T/eval.jsonl") < 10 ? $(wc -l <"$T/eval.jsonl") : 10))

t "greedy rows" gen --predictions-out "$T/one.jsonl" --batch-size 1 --in-order --logprobs 2
t "all of them" [ "$(wc -l <"$T/one.jsonl")" = "$n" ]
t "in their order" [ "$(sed -E 's/^\{"index": ([0-9]+),.*/\1/' "$T/one.jsonl" | tr '\n' ' ')" = "$(seq -s ' ' 0 $((n - 1))) " ]
t "by three" gen --predictions-out "$T/three.jsonl" --batch-size 3 --in-order --logprobs 2
t "to the same bits" cmp "$T/one.jsonl" "$T/three.jsonl"
t "by 64" gen --predictions-out "$T/all.jsonl" --in-order --logprobs 2
t "to the same bits" cmp "$T/one.jsonl" "$T/all.jsonl"
t "two threads" env OMP_NUM_THREADS=2 ckpt-eval -q --threads 2 --eval-file "$T/eval.jsonl" --generate 10 --min-new-tokens 16 --max-new-tokens 24 --predictions-out "$T/two.jsonl" --in-order --logprobs 2 "$M"
t "to the same bits" cmp "$T/one.jsonl" "$T/two.jsonl"
t "as they come" gen --predictions-out "$T/come.jsonl" --batch-size 2 --logprobs 2
t "the same rows" diff <(sort "$T/one.jsonl") <(sort "$T/come.jsonl")
draw="--do-sample --temperature 0.9 --top-k 40 --top-p 0.95 --seed 3"
t "drawn" gen $draw --predictions-out "$T/d1.jsonl" --batch-size 1 --in-order
t "drawn by four" gen $draw --predictions-out "$T/d4.jsonl" --batch-size 4 --in-order
t "to the same bits" cmp "$T/d1.jsonl" "$T/d4.jsonl"
t "other than greedy" bash -c "! cmp -s $T/d1.jsonl $T/one.jsonl"
t "are scored without a model" ckpt-eval --predictions "$T/d1.jsonl" --metric rouge
t "no part is left" [ ! -e "$T/one.jsonl.part" ]
t "a log-probability of each token" bash -c "[ \$(head -1 $T/one.jsonl | grep -o '\"top\": ' | wc -l) = \$(head -1 $T/one.jsonl | sed -E 's/.*\"tokens\": ([0-9]+).*/\1/') ]"
ckpt-eval --tag zz --prompt x --max-new-tokens 1 "$M" >/dev/null 2>"$T/told"; t "a --tag that picks nothing is told once" [ "$(grep -c -- '--tag zz picks nothing' "$T/told")" = 1 ]
expect 73 "not over a file" ckpt-eval -q --prompt x --predictions-out "$T/one.jsonl" "$M"
t "but with --overwrite" ckpt-eval -q --prompt x --max-new-tokens 1 --predictions-out "$T/come.jsonl" --overwrite "$M"
expect_says 64 "not of two models" "is one model's, and there are several" ckpt-eval -q --prompt x --max-new-tokens 1 --predictions-out "$T/two-models" --overwrite "$M" "$M"
expect_says 64 "nor is a page" "--html $T/two.html: is one model's" ckpt-eval -q --prompt x --max-new-tokens 1 --html "$T/two.html" "$M" "$M"
several_lines() { printf '%s\n' "$M" "$T/base" | ckpt-eval -q --prompt x --max-new-tokens 1 --predictions-out "$T/lines" --html "$T/lines.html" --overwrite >/dev/null; }
expect_says 64 "nor of models that come as lines" "--predictions-out $T/lines: is one model's" several_lines
t "the first one's are whole" bash -c "ckpt-eval -q --prompt x --max-new-tokens 1 --predictions-out - --in-order $M | cmp - $T/lines && grep -q '<article' $T/lines.html"
t "several to standard output" [ "$(ckpt-eval -q --prompt x --prompt y --max-new-tokens 1 --in-order --predictions-out - "$M" "$T/base" | sed -E 's/^\{"index": ([0-9]+),.*/\1/' | xargs)" = "0 1 0 1" ]
t "to a pipe" bash -c "ckpt-eval -q --prompt a --prompt b --max-new-tokens 3 --predictions-out - --in-order $M | diff - <(ckpt-eval -q --prompt a --prompt b --max-new-tokens 3 --predictions-out $T/ab.jsonl --in-order $M >/dev/null; cat $T/ab.jsonl)"
t "the base beside it" bash -c "ckpt-eval -q --prompt a --max-new-tokens 3 --predictions-out - --base $T/base $M | grep -q '\"base\": \"'"

# Log-probabilities at another temperature take all logits to the host: an eos that comes too early is left out there and here.
all="--do-sample --temperature 0.8 --top-k 0 --top-p 0.6 --seed 5 --in-order"
t "drawn from all tokens, of the likeliest alone" gen $all --predictions-out "$T/a1.jsonl"
t "of all logits" gen $all --logprobs 0 --predictions-out "$T/a2.jsonl"
t "no eos comes too early, the rest is the same" bash -c "cmp $T/a1.jsonl <(sed -E 's/, \"logprobs\": \[.*\]\}\$/}/' $T/a2.jsonl)"
t "of sixteen tokens at least" bash -c "! sed -E 's/.*\"tokens\": ([0-9]+).*/\1/' $T/a1.jsonl | grep -vqE '^(1[6-9]|2[0-4])\$'"

text=$(head -1 "$T/d1.jsonl" | field prediction | sed 's/^"//; s/"$//')
stop=${text:5:4}                            # letters that may begin in one token and end in another
t "ends at a text" gen $draw --stop "$stop" --predictions-out "$T/stop.jsonl" --in-order
t "which is cut off" [ "$(head -1 "$T/stop.jsonl" | field prediction)" = "\"${text%%"$stop"*}\"" ]
t "with a reason" [ "$(head -1 "$T/stop.jsonl" | field finish_reason)" = '"stop"' ]
t "after fewer tokens" [ "$(head -1 "$T/stop.jsonl" | field tokens)" -lt "$(head -1 "$T/d1.jsonl" | field tokens)" ]
expect 64 "an empty text" ckpt-eval --prompt x --stop "" "$M"
expect 64 "not in a search" ckpt-eval --prompt x --stop a --num-beams 2 "$M"

# A vocabulary padded beyond the tokenizer's: ids without a token are marks.
sed 's/"vocab_size": *[0-9]*/"vocab_size": 6000/' $R/config.json >"$T/padded.json"
ckpt-train -q --init "$T/padded.json" --tokenizer $R/tokenizer --init-only -o "$T/padded" >/dev/null
t "padded vocabulary" bash -c "ckpt-eval -q --prompt a --do-sample --temperature 5 --top-k 0 --max-new-tokens 40 --predictions-out - $T/padded | grep -q '<id:[45][0-9]*>'"

t "a page" gen --html "$T/page.html" --base "$T/base"
t "of all rows" [ "$(grep -c '<article' "$T/page.html")" = "$n" ]
well_formed() { ! command -v xmllint >/dev/null || xmllint --noout "$1"; }
t "is well-formed" well_formed "$T/page.html"
t "fetches nothing" bash -c "! grep -qE '(src|href)=|url\\(|@import' $T/page.html"
expect 73 "not over a file" ckpt-eval -q --prompt x --max-new-tokens 1 --html "$T/page.html" "$M"

# Seven of the rows are right: four of the model, three of the base.
draws() { ckpt-eval -q --device cpu --eval-file "$1" --generate 10 --min-new-tokens 16 --max-new-tokens 24 $draw --base "$T/base" "${@:2}" "$M" >/dev/null; }
t "drawn beside the base" draws "$T/eval.jsonl" --predictions-out "$T/beside.jsonl" --in-order
paste -d '\t' <(field prompt <"$T/beside.jsonl") <(field prediction <"$T/beside.jsonl") <(field base <"$T/beside.jsonl") |
    awk -F '\t' '{ printf "{\"prompt\": %s, \"completion\": %s}\n", $1, NR <= 4 ? $2 : NR <= 7 ? $3 : "\"none\"" }' >"$T/judged.jsonl"
t "a page of rows that one of them has right" draws "$T/judged.jsonl" --html "$T/judged.html"
if [ -n "$browser" ]; then
    for width in 420 1920; do t "fits into $width pixels" fits_window "$T/judged.html" $width; done
    # shown DO - how many rows are seen after that.
    shown() { asked "$T/judged.html" 1000 "($1, [...d.querySelectorAll('.row')].filter(r => w.getComputedStyle(r).display != 'none').length)"; }
    sought() { shown "(b => { b.value = '$1'; b.oninput() })(d.querySelector('input[type=search]'))"; }
    t "all rows are seen at first" [ "$(shown 0)" = 10 ]
    t "those that the model has right" [ "$(shown "d.getElementById('better').click()")" = 4 ]
    t "those that the base has" [ "$(shown "d.getElementById('worse').click()")" = 3 ]
    t "those that have a word" [ "$(sought none)" = 3 ]
    t "or none" [ "$(sought "no such word")" = 0 ]
fi

# A signal within the one step that reads a prompt of 60,000 tokens, which takes a minute: rows that were done stay.
{ echo '{"prompt": "a", "completion": "b"}'; awk 'BEGIN { printf "{\"prompt\": \""; for (i = 0; i < 40000; i++) printf "noun " i % 10 " "; print "\", \"completion\": \"b\"}" }'; } >"$T/deep.jsonl"
ckpt-eval -q --device cpu --eval-file "$T/deep.jsonl" --generate 2 --max-new-tokens 1 --batch-size 1 --predictions-out "$T/deep" "$M" >/dev/null 2>"$T/.err" &
deep=$!
wait_for '[ -s "$T/deep.part" ]' && kill -INT $deep
ended() { ! kill -0 $deep 2>/dev/null; }
t "a signal ends it within a long prompt" wait_for ended
kill -9 $deep 2>/dev/null
wait $deep
t "as stopped" [ $? = 75 ]
t "in one line" [ "$(cat "$T/.err")" = "ckpt-eval: stopped by SIGINT before all was done" ]
t "with the row before it" [ "$(field prompt <"$T/deep.part")" = '"a"' ]
