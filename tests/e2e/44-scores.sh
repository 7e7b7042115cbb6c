# Predictions in files are scored without a model: figures, intervals, another system beside them.  [C7, D6, E7, X3]
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1
printf '%s\n' '{"prediction": "The cat sat on the mat.", "references": ["A cat sat on the mat.", "the cat"]}' \
    '{"predict": "Paris", "label": "paris"}' '{"prediction_text": "42", "answers": {"text": ["42", "forty-two"], "answer_start": [0, 1]}}' >p.jsonl
printf '%s\n' '{"prediction": "dog", "references": ["A cat sat on the mat.", "the cat"]}' \
    '{"prediction": "London", "label": "paris"}' '{"prediction": "7", "references": ["42", "forty-two"]}' >b.jsonl
value() { ckpt-eval --json "$@" | sed -nE 's/.*"figure": "([^"]*)", "value": ([^,]*),.*/\1=\2/p' | tr '\n' ' '; }

t "exact match and F1" [ "$(value --predictions p.jsonl --metric squad)" = "exact_match=100.0 f1=100.0 " ]
t "several metrics" [ "$(value --predictions p.jsonl --metric labels --metric sql)" = "accuracy=0.3333333333333333 f1_macro=0.2 f1_micro=0.3333333333333333 f1_weighted=0.3333333333333333 mcc=0.3333333333333333 sql_match=0.6666666666666666 sql_exact=0.3333333333333333 " ]
expect_prints 0 "BLEU" '"signature": "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"' ckpt-eval --json --predictions p.jsonl --metric bleu
expect_prints 0 "a table" "rougeLsum" ckpt-eval --predictions p.jsonl --metric rouge
t "another system" bash -c 'ckpt-eval --json --predictions p.jsonl --base-predictions b.jsonl --metric rouge | grep -qE "\"figure\": \"rouge1\", \"value\": 0\.9[0-9]*, .*\"base\": 0\.0, \"difference\": 0\.[0-9]+, \"p\": 0\.[0-9]+, "'
t "predictions of a pipe" bash -c '[ "$(ckpt-eval --json --predictions - --metric squad <p.jsonl)" = "$(ckpt-eval --json --predictions p.jsonl --metric squad)" ]'

expect 64 "no metric" ckpt-eval --predictions p.jsonl
expect 64 "one that is not known" ckpt-eval --predictions p.jsonl --metric meteor
t "says which are" says "squad_v2 rouge rouge_stem bleu"
expect_says 64 "before anything else" '--metric: "meteor" is none of: squad' ckpt-eval --metric meteor --eval-file absent.jsonl absent
t "shells complete it" bash -c 'ckpt-eval --completion bash | grep -q "squad_v2 rouge rouge_stem"'
expect_says 64 "a bound on a figure of another metric" "hint: figures: exact_match f1; --metric rouge gives it" ckpt-eval --predictions absent.jsonl --metric squad --fail-below rouge1=2
expect_says 64 "on one that is none, before any work" "hint: figures: loss perplexity" ckpt-eval --fail-above los=3 --eval-file absent.jsonl absent
expect 64 "a metric of nothing" ckpt-eval --metric bleu --prompt x "$G/models/opt-a"
expect 64 "a model beside them" ckpt-eval --predictions p.jsonl --metric bleu "$G/models/opt-a"
head -n 2 b.jsonl >short.jsonl
expect_says 65 "fewer rows" "2 rows, and the predictions have 3" ckpt-eval --predictions p.jsonl --base-predictions short.jsonl --metric bleu
echo '{"prediction": "x"}' >none.jsonl
expect_says 65 "no reference" "none.jsonl: record 1: no field references" ckpt-eval --predictions none.jsonl --metric bleu
echo '{"reference": "x"}' >none.jsonl
expect_says 65 "no prediction" "no text in a field prediction" ckpt-eval --predictions none.jsonl --metric bleu
: >empty.jsonl
expect 65 "no row" ckpt-eval --predictions empty.jsonl --metric bleu
expect 66 "no file" ckpt-eval --predictions absent.jsonl --metric bleu
t "nothing is printed beside an error" [ ! -s "$T/.out" ]

# -- rows of two systems are paired by index or id, not by place: they are written as they finish
printf '%s\n' '{"index": 0, "prediction": "a b", "reference": "a"}' '{"index": 1, "prediction": "yes", "reference": "yes"}' '{"index": 2, "prediction": "no", "reference": "c"}' >i.jsonl
tac i.jsonl >j.jsonl
same() { ckpt-eval --json --predictions i.jsonl --base-predictions "$1" --metric squad --metric rouge | grep -c '"difference": 0.0, "p": 1.0'; }
t "C7 the same rows in another order do not differ" [ "$(same j.jsonl)" = 6 ]
sed 's/"index": /"place": /' j.jsonl >k.jsonl
expect_says 65 "rows without a common key are those of their places" "row 1 has other references" ckpt-eval --predictions i.jsonl --base-predictions k.jsonl --metric squad
sed 's/"index": 2/"index": 5/' j.jsonl >k.jsonl
expect_says 65 "a row that is not there" "--base-predictions: no row with the index 2" ckpt-eval --predictions i.jsonl --base-predictions k.jsonl --metric squad
cat i.jsonl j.jsonl >twice.jsonl
expect_prints 0 "rows that are there twice count" "rows: 6" ckpt-eval --predictions twice.jsonl --metric squad
t "and are told" says "twice.jsonl: the index of record 4 is an earlier record's too, and so it is with 3 in all: each counts"
expect 1 "which is a failure for those who want it" ckpt-eval --strict --predictions twice.jsonl --metric squad
t "not those of two files" bash -c 'ckpt-eval --strict --predictions i.jsonl --predictions j.jsonl --metric squad'

# -- odd files: one clear line, or right numbers
odd() { printf "$1" >odd.jsonl; expect_says 65 "$2" "odd.jsonl: record $3" ckpt-eval --predictions odd.jsonl --metric squad; }
good='{"prediction": "x", "reference": "x"}\n'
odd "$good"'{"prediction": "x", "reference": null}\n' "a reference that is null" "2: reference 1 is no text"
odd "$good"'{"prediction": null, "reference": "x"}\n' "a prediction that is null" "2: no text in a field prediction"
odd "$good"'{"prediction": "x", "reference": []}\n' "no reference in a list" "2: there is no reference"
odd "$good"'{"prediction": "x", "reference": {"a": 1}}\n' "an object" "2: reference 1 is no text"
odd '{"prediction": "a \377", "reference": "a"}\n' "bytes that are no UTF-8" "1: line 1: json: byte 18 of 39 is 0xff"
odd "$good"'{"prediction": "\\ud800", "reference": "x"}\n' "half a character" "2: line 2: json"
odd '{"prediction": "a", "reference": "x", "prediction": "b"}\n' "a field twice" "1: line 1: json: column 50: duplicate object key"
odd '[1]\n' "a list" "1: line 1: not a JSON object"
fine() { printf "$1" >odd.jsonl; t "$2" [ "$(value --predictions odd.jsonl --metric squad)" = "exact_match=100.0 f1=100.0 " ]; }
fine '\357\273\277'"$good" "a byte order mark"
fine '{"prediction": "x", "reference": "x"}\r\n\r\n'"$good" "CRLF and empty lines"
fine '{"prediction": 5, "reference": [5, true, 2.5]}\n' "numbers"
printf '%s\n' '{"prediction": "", "answers": {"text": [], "answer_start": []}}' '{"prediction": "x", "answers": {"text": [], "answer_start": []}}' >v2.jsonl
t "questions without an answer, as SQuAD 2 has them" [ "$(value --predictions v2.jsonl --metric squad_v2)" = "exact_match=50.0 f1=50.0 " ]
awk 'BEGIN { printf "{\"reference\": \"a\", \"prediction\": \""; for (i = 0; i < 500000; i++) printf "a b "; print "\"}" }' >long.jsonl
t "a line of two million bytes" [ "$(value --predictions long.jsonl --metric squad | cut -d' ' -f1)" = "exact_match=0.0" ]
awk 'BEGIN { printf "{\"reference\": \""; for (i = 0; i < 20000; i++) printf "a b "; printf "\", \"prediction\": \""; for (i = 0; i < 20000; i++) printf "a b "; print "\"}" }' >long.jsonl
expect_says 65 "texts too long to compare" "row 1: ROUGE-L of texts of 40000 and 40000 words: a table of" ckpt-eval --predictions long.jsonl --metric rouge

# -- BERTScore, by an encoder: the figures of bert_score (make_bertscore.py).  [E7, X3]
cp -r "$G/models/bert-a" enc && cp "$G"/bertscore/* enc
tr -d '\n' <"$G/bertscore.json" | sed -E 's/^\{"rows": \[//; s/\],"of": .*//; s/\]\},\{"prediction"/]}\n{"prediction"/g' >bert.jsonl
t "the rows are there" [ "$(wc -l <bert.jsonl)" = 9 ]
# bert FIGURE [option ...] - and its golden by LAYER IDF NAME.
bert() { ckpt-eval -q --json --predictions bert.jsonl --metric bertscore --bertscore-model enc "${@:2}" 2>.err | sed -nE "s/.*\"figure\": \"bertscore_$1\", \"value\": ([^,]*),.*/\1/p"; }
golden() { tr -d '\n' <"$G/bertscore.json" | grep -oE "\"layer\": $1,\"idf\": $2,[^}]*" | sed -E "s/.*\"$3\": ([0-9.]+).*/\1/"; }
for layer in 1 2 3; do
    t "E7 X3 layer $layer" near "$(bert f1 --bertscore-layer $layer)" "$(golden $layer false f)" 1e-5
    t "layer $layer with idf" near "$(bert p --bertscore-layer $layer --bertscore-idf)" "$(golden $layer true p)" 1e-5
done
sed -i.full -E 's/("model_max_length": )40/\116/' enc/tokenizer_config.json
t "texts are cut to the tokenizer's length" near "$(bert f1 --bertscore-layer 2)" "$(golden 216 false f)" 1e-5
mv enc/tokenizer_config.json.full enc/tokenizer_config.json
t "recall" near "$(bert r --bertscore-layer 3)" "$(golden 3 false r)" 1e-5
printf 'LAYER,P,R,F\n2,0.1,0.2,0.3\n3,0.5,0.5,0.5\n' >baseline.csv
t "rescaled by a baseline" near "$(bert f1 --bertscore-layer 2 --bertscore-baseline baseline.csv)" "$(awk -v f="$(golden 2 false f)" 'BEGIN { printf "%.9f", (f - 0.3) / 0.7 }')" 2e-5
expect_says 65 "a baseline without the layer" "no line of layer 1" ckpt-eval --predictions bert.jsonl --metric bertscore --bertscore-model enc --bertscore-layer 1 --bertscore-baseline baseline.csv
expect_says 64 "no layer for this name" "enc: which layer's states" ckpt-eval --predictions bert.jsonl --metric bertscore --bertscore-model enc
expect 64 "a layer that it has not" ckpt-eval --predictions bert.jsonl --metric bertscore --bertscore-model enc --bertscore-layer 9
expect 64 "no encoder" ckpt-eval --predictions bert.jsonl --metric bertscore
expect 65 "a decoder" ckpt-eval --predictions bert.jsonl --metric bertscore --bertscore-model "$G/models/opt-a" --bertscore-layer 1
