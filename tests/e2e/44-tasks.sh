# A model's own generations are scored, perplexities are those of the usual packages, and bounds on
# figures stop a pipe.  [A4, C3, C7, D6, E7, E10, X3]
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo M=$G/models
$R/wordnet.sh "$T" 300 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 3e-3 --max-steps 3 \
    --per-device-train-batch-size 8 -o "$T/run" >/dev/null 2>&1
cd "$T" || exit 1
head -n 6 eval.jsonl >e.jsonl
# figure NAME command... - the value of a figure in JSON.
figure() { local f=$1; shift; "$@" 2>"$T/.err" | sed -nE "s/.*\"figure\": \"$f\", \"value\": ([^,]*),.*/\1/p"; }

# -- generations ----------------------------------------------------------------------------------
score() { ckpt-eval -q --eval-file e.jsonl --max-new-tokens 6 "$@"; }
score --json --metric rouge --metric squad --predictions-out p.jsonl run >own.json
t "predictions of every row are kept" [ "$(grep -c '^{"index": [0-5], "prompt": "Define the noun: .*", "prediction": ".*", "reference": ".*", "finish_reason": ".*", "tokens": [0-9]*}$' p.jsonl)" = 6 ]
figures() { sed -n '/"figures"/,/\]/p' "$1" | grep -E '"metric": "(rouge|squad)"' | sed 's/ *//;s/,$//'; }
ckpt-eval -q --json --predictions p.jsonl --metric rouge --metric squad >read.json
t "X3 read back, they have the same figures" bash -c 'diff <(echo "$1") <(echo "$2") && [ "$1" ]' - "$(figures own.json)" "$(figures read.json)"
expect 73 "a file that is there" score --metric rouge --predictions-out p.jsonl run
t "unless told" score --metric rouge --predictions-out p.jsonl --overwrite run
score --json --metric rouge --base base run >beside.json
t "X3 beside the base, with a paired test" grep -qE '"figure": "rouge1", .*"base": [0-9.]+, "difference": [-0-9.]+, "p": [0-9.]+' beside.json
t "loss too" grep -qE '"figure": "loss", .*"base": 8\.[0-9]+, "difference": -[0-9.]+, "p": 0\.[0-9]+' beside.json
t "rows where they differ most, the largest first" bash -c 'grep -oE "\"row\": [0-9]+, .*\"difference\": -[0-9.]+, \"text\": \"Define" beside.json | sed -E "s/.*difference\": -([0-9.]+).*/\1/" >d && [ "$(wc -l <d)" = 3 ] && sort -grc d'
t "and all rows of a file are in the figures, the first alone for people" bash -c '[ "$(ckpt-eval -q --json -t e.jsonl -n 2 --metric rouge --max-new-tokens 2 run | grep -c "\"who\": \"run\"")" = 2 ]'
printf '%s\n' '{"question": "Q?", "context": "c", "answers": {"text": ["a b", "the c"], "answer_start": [0, 2]}}' >squad.jsonl
ckpt-eval -q -t squad.jsonl --metric squad --max-new-tokens 2 --predictions-out sp.jsonl run >/dev/null
t "every answer is a reference" grep -qF '"references": ["a b", "the c"]' sp.jsonl
echo '{"text": "plain"}' >plain.jsonl
expect_says 65 "rows without a completion" "the records have no completion" ckpt-eval -t plain.jsonl --metric rouge run
expect 64 "a metric that is not known" ckpt-eval -t e.jsonl --metric meteor --max-new-tokens 1 run

# -- perplexity -----------------------------------------------------------------------------------
bytes=$(sed -nE 's/.*"output": "(.*)"\}/\1/p' e.jsonl | tr -d '\n' | wc -c)
ckpt-eval -q --json -t e.jsonl run >p.json
t "bits are per byte of the completions" bash -c 'awk "/\"loss\":/ { gsub(/.*\"loss\": /, \"\"); split(\$0, f, /[,:]/); l = f[1]; n = f[5] } /bits_per_byte/ { gsub(/.*\"value\": /, \"\"); b = \$0 + 0 } END { d = l * n / log(2) / '"$bytes"' - b; exit !(b > 0 && d < 1e-6 && d > -1e-6) }" p.json'
# golden MODEL WINDOW STRIDE - what transformers' loop makes of the long rows (make_perplexity.py).
sed -n '/"rows"/,/"of"/p' "$G/perplexity.json" | tr -d '\n ' | sed -E 's/^"rows":\[//;s/\],"of".*//;s/\],\[/]\n[/g' | sed 's/.*/{"input_ids": &}/' >long.jsonl
golden() { tr -d '\n ' <"$G/perplexity.json" | grep -oE "\"model\":\"$1\",\"window\":$2,\"stride\":$3,[^}]*" | sed 's/.*perplexity"://'; }
for c in "gpt2-a 16 5" "llama-a 32 8" "opt-a 24 1" "bloom-a 16 16"; do
    set -- $c
    t "windows of $2 tokens, $3 apart, of $1" near "$(figure perplexity ckpt-eval -q --json -t long.jsonl --max-seq-length "$2" --stride "$3" "$M/$1")" "$(golden "$@")" 1e-5
done
for n in 12 40 9; do seq -s, 3 $((n + 2)) | sed 's/.*/{"input_ids": [&]}/'; done >lengths.jsonl       # longrope has other angles beyond 16
batch_of() { ckpt-eval -q --json -t lengths.jsonl --batch-size $1 "$M/phi3-long" | sed -nE 's/.*"loss": ([0-9.]+),.*"samples".*/\1/p'; }
t "a row's loss does not depend on longer ones beside it" near "$(batch_of 1)" "$(batch_of 8)" 1e-7
expect 64 "steps longer than a window" ckpt-eval -t long.jsonl --max-seq-length 16 --stride 17 "$M/gpt2-a"
expect_says 64 "a window beyond the model's positions" "the model has positions for" ckpt-eval -t long.jsonl --max-seq-length 60000 --stride 17 "$M/gpt2-a"
expect 65 "windows of an encoder and decoder" ckpt-eval -t long.jsonl --stride 8 "$M/t5-v10"

# -- the gate -------------------------------------------------------------------------------------
expect_says 1 "a loss above its bound" "ckpt-eval: run: loss is 8" ckpt-eval -t e.jsonl --fail-above loss=3.2 run
t "the figures are printed before" prints perplexity
expect 0 "and one below it" ckpt-eval -t e.jsonl --fail-above loss=30 run
t "lines on standard output, figures on standard error" bash -c 'ckpt-eval -t e.jsonl --max-eval-samples 2 --metric rouge --max-new-tokens 2 --predictions-out - run 2>err.txt | grep -c prediction | grep -qx 2 && grep -q "^rougeLsum " err.txt && ! grep -q reference err.txt'
t "-q: none" bash -c 'ckpt-eval -q -t e.jsonl --max-eval-samples 2 --metric rouge --max-new-tokens 2 --predictions-out - run 2>err.txt >rows.txt; [ ! -s err.txt ] && [ -s rows.txt ]'
expect_says 1 "a score below its bound" "f1 is" ckpt-eval -t e.jsonl --metric squad --max-new-tokens 1 --fail-below f1=80 run
expect 0 "better than the base" ckpt-eval -t e.jsonl --base base --fail-worse-than-base 1% run
expect_says 1 "worse than it" "worse than the base's" ckpt-eval -t e.jsonl --base run --fail-worse-than-base loss=1% base
expect 0 "worse, not by so much" ckpt-eval -t e.jsonl --base run --fail-worse-than-base loss=50% base
expect_says 1 "predictions have bounds too" "rougeL is" ckpt-eval --predictions p.jsonl --metric rouge --fail-below rougeL=0.99
expect 64 "a bound on what is not computed" ckpt-eval -t e.jsonl --fail-below f1=80 run
t "says what is" says "loss perplexity bits_per_byte byte_perplexity"
expect 64 "a bound without a figure" ckpt-eval -t e.jsonl --fail-above 3.2 run
expect 64 "worse than no base" ckpt-eval -t e.jsonl --fail-worse-than-base 1% run
t "models within the bounds go on" [ "$(printf 'run\nbase\n' | ckpt-eval -t e.jsonl --fail-above loss=8.3 --pass-through 2>"$T/.err")" = run ]
t "the report is on stderr then" says perplexity
ckpt-merge -q -o "$T/merged" run | ckpt-eval -q -t e.jsonl --fail-above loss=8.3 --pass-through 2>/dev/null | ckpt-push -q --create pub.git >pushed
t "between merge and push" grep -q "pub.git" pushed
t "and nothing is pushed beyond them" [ -z "$(ckpt-merge -q -o "$T/merged2" run | ckpt-eval -q -t e.jsonl --fail-above loss=2 --pass-through 2>/dev/null)" ]

# -- choices --------------------------------------------------------------------------------------
# rows SHAPE - the records of make_choices.py of that shape, a line each.
rows() { tr -d '\n' <"$G/choices.json" | sed -E "s/.*\"shape\": \"$1\"[^[]*\"rows\": \[(.*)/\1/; s/\],\"each\".*//; s/\},\{\"(activity_label|id|question)\"/}\n{\"\1\"/g"; echo; }
shape() { tr '\n' ' ' <"$G/choices.json" | grep -oE "\"shape\": \"$1\", \"acc\": [0-9.]+, \"acc_norm\": [0-9.]+" | sed 's/[^0-9. ]//g;s/^ *//;s/  */ /g'; }
for s in hellaswag arc mmlu; do
    rows $s >$s.jsonl
    ckpt-eval -q --json -t $s.jsonl --task multiple-choice base >c.json
    t "$s: acc and acc_norm are lm-evaluation-harness's" [ "$(sed -nE 's/.*"figure": "acc[_norm]*", "value": ([0-9.]+),.*/\1/p' c.json | xargs)" = "$(shape $s | xargs)" ]
done
t "they do not depend on the batch" [ "$(figure acc ckpt-eval -q --json -t arc.jsonl --task multiple-choice --batch-size 3 base)" = "$(figure acc ckpt-eval -q --json -t arc.jsonl --task multiple-choice --batch-size 64 base)" ]
expect_prints 0 "beside a base" '"figure": "acc_norm"' ckpt-eval --json -t arc.jsonl --task multiple-choice --base base run
awk 'NR <= 8 { printf "{\"text\": \"Film %d was %s.\", \"label\": %d}\n", NR, NR % 2 ? "good" : "bad", NR % 2 }' <(seq 9) >imdb.jsonl
ckpt-eval -q --json -t imdb.jsonl --task multiple-choice --choice negative --choice positive --prompt-template '{text} It is' --predictions-out labels.jsonl run >c.json
t "X3 labels by likelihood: accuracy, F1, MCC" bash -c 'for f in accuracy f1_macro mcc; do grep -q "\"figure\": \"$f\"" c.json || exit 1; done'
t "the chosen labels are kept" [ "$(ckpt-eval --json --predictions labels.jsonl --metric labels | grep '"accuracy"')" = "$(grep '"accuracy"' c.json)" ]
t "the prompt is the template's" grep -q '"prompt": "Film 1 was good. It is", "prediction": "\(posi\|nega\)tive", "references": \["positive"\]' labels.jsonl
t "figures of several models are told apart" [ "$(ckpt-eval -t imdb.jsonl --task multiple-choice --choice negative --choice positive run base | grep '^model: ' | xargs)" = "model: run model: base" ]
expect_says 78 "text for a model without a tokenizer" "hint: the model's folder has none: --tokenizer names one that has" ckpt-eval -t imdb.jsonl "$G/models/opt-a"
expect_says 73 "a page into a device" "/dev/null: is a device, a fifo or a socket" ckpt-eval --prompt x --html /dev/null --overwrite run
expect_says 73 "a page that is there" "hint: --overwrite replaces it" ckpt-eval --prompt x --html imdb.jsonl run
expect_says 1 "a bound on accuracy" "accuracy is" ckpt-eval -t imdb.jsonl --task multiple-choice --choice negative --choice positive --fail-below accuracy=1.1 run
expect_says 65 "records that are no questions" "no fields of a question with choices" ckpt-eval -t e.jsonl --task multiple-choice run
echo '{"ctx": "a", "endings": ["b", "c"], "label": ""}' >hidden.jsonl
expect_says 65 "a hidden label" "hidden.jsonl: record 1: the right choice is not given: nothing in the field label" ckpt-eval -t hidden.jsonl --task multiple-choice run
printf 'prompt_template: "Question: {question}\\nAnswer:"\ncompletion_template: "{answer}"\nfield_mapping: "{}"\nmax_new_tokens: 3\n' >task.yaml
t "a run file's template of prompts counts, and what it says of training does not" [ "$(figure acc ckpt-eval -q --json --config task.yaml --task multiple-choice -t arc.jsonl base)" = "$(figure acc ckpt-eval -q --json --prompt-template $'Question: {question}\nAnswer:' --task multiple-choice -t arc.jsonl base)" ]
expect_says 64 "said beside the task, it has none" "--completion-template has no effect with --task" ckpt-eval --task multiple-choice -t arc.jsonl --completion-template x base
expect 64 "choices of no task" ckpt-eval -t e.jsonl --choice a run
: >empty.jsonl
expect 65 "no record" ckpt-eval -t empty.jsonl --task multiple-choice run

# -- streams --------------------------------------------------------------------------------------
t "bytes of a merge, described by the tokenizer's folder" [ "$(ckpt-merge -q -o - run | ckpt-eval -q --json -t e.jsonl --tokenizer base - | loss_of)" = "$(ckpt-eval -q --json -t e.jsonl run | loss_of)" ]
t "or by the base's" [ "$(ckpt-merge -q -o - run | ckpt-eval -q --json -t e.jsonl --base base | grep -c '"loss":.*, "perplexity"')" = 2 ]
tar cf base.tar base; gzip -k base.tar
t "an archive of a model" [ "$(ckpt-eval -q --json -t e.jsonl base.tar | loss_of)" = "$(ckpt-eval -q --json -t e.jsonl base | loss_of)" ]
t "one that is compressed, on stdin" [ "$(ckpt-eval -q --json -t e.jsonl <base.tar.gz | loss_of)" = "$(ckpt-eval -q --json -t e.jsonl base | loss_of)" ]
expect_says 66 "bytes without a description" "no config.json" bash -c 'ckpt-merge -q -o - run | ckpt-eval -t e.jsonl -'

# -- weights that are not numbers -----------------------------------------------------------------
cp -r base nan && printf '\000\000\300\177' | dd of=nan/model.safetensors bs=1 seek=$(($(stat -c %s nan/model.safetensors) - 4)) conv=notrunc status=none
expect_says 65 "NaN in the weights: the first row, and what to do" "e.jsonl: record 1: the loss is not a number" ckpt-eval -t e.jsonl nan
t "the hint names the way to find it" says "ckpt-inspect --stats"
expect_says 65 "NaN while generating" "logits after " ckpt-eval --prompt x --max-new-tokens 2 nan
t "the same hint" says "ckpt-inspect --stats"
expect_says 65 "of choices too" "row 1: the likelihood is not a number" ckpt-eval -t arc.jsonl --task multiple-choice nan

# -- outputs that cannot be written are told before the work ------------------------------------
echo old >there; mkdir -p folder
for o in --html --predictions-out; do
    expect_says 73 "$o: a file that is there" "there: exists already" ckpt-eval --prompt x --max-new-tokens 1 $o there nosuch
    expect_says 73 "$o: a folder" "folder: is a directory" ckpt-eval --prompt x --max-new-tokens 1 $o folder --overwrite nosuch
    expect_says 73 "$o: in no folder" "absent/x: its folder: No such file" ckpt-eval --prompt x --max-new-tokens 1 $o absent/x nosuch
done
expect_says 64 "two outputs of one name" "--predictions-out and --html: two is one file" ckpt-eval --prompt x --max-new-tokens 1 --predictions-out two --html two nosuch
expect_says 64 "the data as an output" "--predictions-out: ./e.jsonl is the data" ckpt-eval -t e.jsonl --generate 1 --max-new-tokens 1 --overwrite --predictions-out ./e.jsonl nosuch
expect_says 73 "--logits: a file that is there" "there: exists already" ckpt-eval -t e.jsonl --logits there nosuch
expect_says 64 "--html to standard output" "a name of a file is wanted" ckpt-eval --prompt x --html - nosuch
expect_says 74 "a full disk" "full.part: File too large" bash -c 'ulimit -f 1; exec ckpt-eval -q --prompt x --prompt y --min-new-tokens 200 --max-new-tokens 200 --logprobs 2 --predictions-out full run'
t "keeps what was written" [ -s full.part ]
expect_says 74 "a full standard output" "standard output: No space left" bash -c 'exec ckpt-eval -q --prompt x --max-new-tokens 1 run >/dev/full'
# Of runs into one file one at most writes it, whole: the second comes while the first holds its lock.
(
    exec 9>taken.part && flock 9
    expect_says 73 "a file that another run writes" "taken: another run is writing it" ckpt-eval -q --prompt x --max-new-tokens 1 --predictions-out taken run
)
t "once it has ended it can be written" ckpt-eval -q --prompt x --max-new-tokens 1 --predictions-out taken run

printf '%s\n' '{"prompt": "q", "completion": "a"}' '{"prompt": "", "completion": "a"}' >odd.jsonl
expect_says 65 "a prompt of nothing" "odd.jsonl: record 2: the prompt has no token" ckpt-eval -q -t odd.jsonl --generate 2 base
expect_says 64 "on the command line" "--prompt: the text has no token" ckpt-eval -q --prompt x --prompt '' base
# -- odd questions and data ---------------------------------------------------------------------
choice() { printf '%s\n' "$1" >odd.jsonl; expect_says 65 "$2" "odd.jsonl: record 1: $3" ckpt-eval -q -t odd.jsonl --task multiple-choice base; }
choice '{"prompt": "q", "choices": [], "label": 0}' "no choices" "a list of 2 choices or more"
choice '{"prompt": "q", "choices": ["a", ""], "label": 0}' "an empty choice" "choice 2 is an empty text"
choice '{"prompt": "q", "choices": ["a", null], "label": 0}' "a choice that is null" "choice 2 is no text"
choice '{"prompt": "q", "choices": ["a", "b"], "label": 2}' "a label out of range" "the right choice is not one of 2"
t "the hint says what it is" says "hint: the field label is 2"
choice '{"prompt": "q", "choices": ["a", "b"], "label": -1}' "a negative one" "the right choice is not one of 2"
choice '{"prompt": "q", "choices": ["a", "b"]}' "no label" "no fields of a question with choices"
awk 'BEGIN { printf "{\"prompt\": \"q\", \"label\": 7, \"choices\": [\"c0\""; for (i = 1; i < 3000; i++) printf ", \"c%d\"", i; print "]}" }' >odd.jsonl
t "3,000 choices" [ "$(figure acc ckpt-eval -q --json -t odd.jsonl --task multiple-choice --batch-size 512 base)" != "" ]
expect_says 65 "an unknown field in a template" 'field "nosuch" is absent or null; there are: instruction, ' ckpt-eval -t e.jsonl --prompt-template '{nosuch}' --completion-template '{output}' base
echo '{"prompt": "q", "completion": ""}' >odd.jsonl
expect_says 65 "nothing to learn" "no supervised token in 1 samples" ckpt-eval -t odd.jsonl --no-add-eos-token base
t "a hint says why" says "hint: completions are empty, or cut off after --max-seq-length 512"
: >odd.jsonl
expect_says 65 "no records" "no record" ckpt-eval -t odd.jsonl base
expect 64 "a negative number of tokens" ckpt-eval --prompt x --max-new-tokens -1 base
expect 64 "no token" ckpt-eval --prompt x --max-new-tokens 0 base
echo '{"question": "Q?", "context": "c", "answers": {"text": [], "answer_start": []}}' >odd.jsonl
ckpt-eval -q -t odd.jsonl --metric squad_v2 --max-new-tokens 2 --predictions-out odd.out base >/dev/null
t "a question without an answer can be read back" ckpt-eval -q --predictions odd.out --metric squad_v2

# -- keys of generation_config.json: obeyed, harmless, refused, or told ---------------------------
cp -r base configured
key() { echo "{\"max_new_tokens\": 2, \"eos_token_id\": 2, $1}" >configured/generation_config.json; }
key '"top_h": 0.4, "do_sample": false, "use_cache": true, "pad_token_id": 3, "cache_implementation": "static", "num_assistant_tokens": 20, "transformers_version": "5.24.0"'
t "harmless keys" ckpt-eval --strict -q --prompt x configured
for k in '"guidance_scale": 1.5' '"dola_layers": "low"' '"token_healing": true' '"num_return_sequences": 2' '"max_time": 3.5'; do
    key "$k"
    expect_says 65 "refused: $k" "generation_config.json: key $(echo "$k" | cut -d'"' -f2) changes what is generated" ckpt-eval --prompt x configured
done
key '"nosuch_penalty": 2'
expect 1 "an unknown key" ckpt-eval --strict --prompt x configured
t "is told" says "generation_config.json: key nosuch_penalty is not known, and has no effect"
key '"cache_implementation": "quantized"'
expect 1 "a cache of few bits" ckpt-eval --strict --prompt x configured
t "is told, too" says "key cache_implementation: keys and values are not quantized here"
