# Options of ckpt-eval that meet: streams, adapters, references that are read back, odd bytes, long prompts.  C3, C7, E7, X3
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
cp -r "$G/saved/gpt2" "$G/saved/qwen3" "$T"
cd "$T" || exit 1
ev() { ckpt-eval -q "$@"; }
printf '%s\n' '{"prompt": "the one", "completion": "b"}' '{"prompt": "c", "completion": "d"}' >e.jsonl

# -- references of --predictions-out are those of --metric ------------------------------------------
figures() { grep -oE '"figure": "(exact_match|f1|rouge1)", "value": [^,]*' "$1"; }
# read_back NAME file option ... - what was written has the figures that were printed.
read_back() {
    ev --json -t "$2" --metric squad --metric rouge --max-new-tokens 3 --predictions-out p.jsonl --overwrite "${@:3}" >own.json 2>"$T/.err"
    ev --json --predictions p.jsonl --metric squad --metric rouge >read.json 2>>"$T/.err"
    t "$1" bash -c '[ "$1" ] && diff <(echo "$1") <(echo "$2")' - "$(figures own.json)" "$(figures read.json)"
}
said=$(ev -t e.jsonl --max-new-tokens 3 --predictions-out - --in-order base | sed -nE '1s/.*"prediction": "([^"]*)".*/\1/p')
printf '{"prompt": "the one", "completion": "z", "answers": ["no", "%s"]}\n' "$said" >list.jsonl
read_back "a plain list of answers" list.jsonl base
t "has its right one" grep -q '"value": 100' read.json
ev -t list.jsonl -n 1 --max-new-tokens 3 --html list.html base >/dev/null
t "a page takes any of them as right" grep -q 'Equal to the reference</dt><dd>1<' list.html
t "and shows all of them" [ "$(grep -c '>Reference<' list.html)" = 2 ]
echo '{"prompt": "p", "completion": "z", "answers": {"text": [5, "the c"]}}' >numbers.jsonl
read_back "answers that are numbers" numbers.jsonl base
t "as texts" grep -qF '"references": ["5", "the c"]' p.jsonl
printf '%s\n' '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}' \
    '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d e"}]}' >chat.jsonl
read_back "chats" chat.jsonl qwen3
t "have the assistant's last message" grep -q '"reference": "d e"' p.jsonl
read_back "chats made of prompt and completion" e.jsonl --chat-prompts qwen3
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]}' >open.jsonl
t "a chat that waits for an answer has none" bash -c 'ckpt-eval -q -t open.jsonl --max-new-tokens 2 --predictions-out - qwen3 | grep -q "\"reference\": null"'
expect_says 65 "nor can a metric compare it" "open.jsonl: record 1: the chat does not end with an answer" ev -t open.jsonl --metric squad --max-new-tokens 2 qwen3
completion() { printf '{"question": "q", "answers": %s}\n' "$1" >q.jsonl; ev -t q.jsonl --max-new-tokens 1 --predictions-out - base 2>"$T/.err" | grep -oE '"references?": [^,]*'; }
tokens_of() { ev --json -t q.jsonl base | sed -nE 's/.*"tokens": ([0-9]+).*/\1/p'; }
completion '["the one"]' >named
t "the first of a plain list is what is learnt of a question" [ "$(cat named) $(tokens_of)" = "\"references\": [\"the one\"] 3" ]
t "so is a text" [ "$(completion '"the one"')" = '"reference": "the one"' ]
t "SQuAD's empty list stays nothing" [ "$(completion '{"text": []}')" = '"reference": ""' ]
printf '{"question": "q", "answers": {"text": "the one"}}\n' >q.jsonl
expect_says 65 "what is none of these is told" 'q.jsonl: record 1: field "answers" is an object' ev -t q.jsonl base
echo '{"prompt": "p", "completion": "z", "answers": [{"a": 1}]}' >object.jsonl
expect_says 65 "answers of no text are told before anything is generated" "object.jsonl: record 1: reference 1 is no text" ev -t object.jsonl --metric squad --predictions-out none.jsonl base
t "without a metric the completion is the reference" bash -c 'ckpt-eval -q -t object.jsonl --max-new-tokens 1 --predictions-out - base | grep -q "\"reference\": \"z\""'
echo '{"question": "q", "choices": ["x", "y"], "answer": 1}' >choices.jsonl
t "of a task to standard output" [ "$(ev -t choices.jsonl --task multiple-choice --predictions-out - base | grep -c '"references": \["B"\]')" = 1 ]
t "not into a file of that name" [ ! -e ./- ]
expect_says 74 "a full one" "standard output: No space left" bash -c 'exec ckpt-eval -q -t choices.jsonl --task multiple-choice --predictions-out - base >/dev/full'

# -- bytes and lengths ------------------------------------------------------------------------------
nul=$(grep -oE '"Ā": [0-9]+' gpt2/tokenizer.json | grep -oE '[0-9]+')
echo "{\"sequence_bias\": [[[$nul], 60.0]], \"do_sample\": true, \"temperature\": 10.0, \"top_k\": 0}" >gpt2/generation_config.json
ev --prompt hello --max-new-tokens 40 --seed 3 --predictions-out nul.jsonl --logprobs 0 gpt2 >/dev/null
t "a NUL was generated" grep -q "\"id\": $nul," nul.jsonl
t "the text goes on after it" [ "$(sed -E 's/.*"prediction": "(([^"\\]|\\.)*)".*/\1/' nul.jsonl | wc -m)" -gt 60 ]
rm gpt2/generation_config.json
printf '%s\n' '{"prompt": "a b c d e f", "completion": "r"}' '{"prompt": "q", "completion": "r"}' >short.jsonl
tokens() { ev -t short.jsonl --max-new-tokens 500 --predictions-out - --in-order "$@" gpt2 2>"$T/.err" | sed -E 's/.*"finish_reason": "([a-z]*)", "tokens": ([0-9]*).*/\1 \2/' | xargs; }
t "a continuation ends where the model's positions do" [ "$(tokens)" = "length 123 length 128" ]
t "one by one" [ "$(tokens --batch-size 1)" = "length 123 length 128" ]
t "in a search" [ "$(tokens --num-beams 2)" = "length 123 length 128" ]
awk 'BEGIN { print "{\"prompt\": \"q\", \"completion\": \"r\"}"; printf "{\"prompt\": \""; for (i = 0; i < 70; i++) printf "aq"; print "\", \"completion\": \"r\"}" }' >long.jsonl
expect_says 65 "a prompt beyond them is named before anything is generated" "long.jsonl: record 2: the prompt has 140 tokens, the model has positions for 128" ev -t long.jsonl --max-seq-length 128 -n 2 gpt2
expect_says 65 "that of the command line too" "--prompt: the prompt has 140 tokens" ev --prompt "$(printf 'aq%.0s' $(seq 70))" gpt2
echo '{"max_length": 5}' >gpt2/generation_config.json
expect_says 78 "one beyond the model's max_length" "short.jsonl: record 1: max_length 5 of the model leaves no token to generate after the first 6" ev -t short.jsonl -n 2 gpt2
t "with the way out" says "hint: --max-new-tokens takes its place"

# -- standard input is one thing --------------------------------------------------------------------
ckpt-merge -q -o - base >base.st
twice() { expect_says 64 "$1" "--$2 - takes standard input: name $3" bash -c "$4"; }
twice "the base and the model" base "the models" 'ckpt-eval -t e.jsonl --base - --tokenizer base - <base.st'
twice "the base, and no model" base "the models" 'cat base.st | ckpt-eval -t e.jsonl --base - --tokenizer base'
twice "data and the base" eval-file "a file for --base" 'ckpt-eval -t - --base - base <e.jsonl'
twice "data twice" eval-file "a file for --eval-file" 'cat e.jsonl | ckpt-eval -t - -t - base'
twice "data and a template" eval-file "a file for --chat-template" 'cat e.jsonl | ckpt-eval -t - --chat-template - base'
twice "predictions and those of the base" predictions "a file for --base-predictions" 'cat p.jsonl | ckpt-eval --predictions - --base-predictions - --metric squad'
echo 'eval_file: e.jsonl' >e.yaml
t "a run file" bash -c 'ckpt-eval -q --config - base <e.yaml'
expect_says 64 "and no models" "--config - takes standard input: name the paths" bash -c 'cat e.yaml | ckpt-eval --config -'
expect_says 64 "nor paths of another tool" "--config - takes standard input: name the paths" bash -c 'echo "to: hf" | ckpt-merge --config - -o out -'
t "the base alone" [ "$(ev --json -t e.jsonl --base - --tokenizer base base <base.st | grep -c '"difference": 0.0')" -gt 3 ]
t "predictions of the base in a pipe" ev --predictions p.jsonl --base-predictions <(cat p.jsonl) --metric squad

# -- adapters and bases -----------------------------------------------------------------------------
ckpt-train -q --model base --train-file e.jsonl --max-steps 1 --lora-rank 2 --lora-target-modules query_key_value -o lora >/dev/null 2>&1
expect_says 64 "an adapter on an adapter" "lora: an adapter itself, and --adapter lora needs a model" ev -t e.jsonl --adapter lora --base base lora
sed -i 's#"base_model_name_or_path": "[^"]*"#"base_model_name_or_path": "me/none"#' lora/adapter_config.json
expect_says 66 "an adapter whose base is elsewhere" "lora: an adapter, its base model me/none is no directory here" ev -t e.jsonl --base base lora
t "a hint says how it is applied" says 'hint: `--adapter lora MODEL` applies it'
t "and so it is" ev -t e.jsonl --adapter lora base
sed -i 's#"base_model_name_or_path": "me/none"#"base_model_name_or_path": "http://127.0.0.1:1/base"#' lora/adapter_config.json
expect_says 69 "an adapter whose base has an address" "http://127.0.0.1:1/base" ev -t e.jsonl lora
sed -i 's#"base_model_name_or_path": "[^"]*"#"base_model_name_or_path": null#' lora/adapter_config.json
expect_says 66 "an adapter that names no base" "lora: an adapter, and its adapter_config.json names no base model" ev -t e.jsonl lora
# What has no parameters beside the model's is folded into its weights: experts, heads, biases of
# factors, ties.  The values are those of the merged model.
printf '{"input_ids": [5, 7, 9, 3, 2, 11]}\n{"input_ids": [15, 17, 19, 13]}\n' >ids.jsonl
scores() { ev --json -t ids.jsonl "$@" | grep -o '"loss": [^,]*, "perplexity": [^,]*' ; }
for l in mixtral-experts qwen3moe-experts mixtral-saved mixtral-gate qwen2-lora-bias llama-tied-both gpt2-saved \
    llama-resized-save llama-resized-tied llama-resized-tied-rows llama-resized-tied-lora; do
    A=$G/lora/$l
    t "$l merged" ckpt-merge -q --adapter "$A/adapter" -o "$l" "$A/base"
    t "$l in memory" [ "$(scores --adapter "$A/adapter" "$A/base")" = "$(scores "$l")" ]
    t "$l, its base found beside it, in 16 bits" [ "$(scores --dtype bfloat16 "$A/adapter")" = "$(scores --dtype bfloat16 "$l")" ]
    t "$l is not its base" [ "$(scores "$l")" != "$(scores "$A/base")" ]
done
printf '{"input_ids": [5, 61, 63, 3]}\n' >more.jsonl
t "tokens that the adapter added" ev -t more.jsonl --adapter "$G/lora/llama-resized-tied-rows/adapter" "$G/lora/llama-resized-tied-rows/base"
expect_says 65 "and one that it did not" "64 (vocab_size)" ev -t <(echo '{"input_ids": [5, 64]}') --adapter "$G/lora/llama-resized-tied-rows/adapter" "$G/lora/llama-resized-tied-rows/base"
t "two ranks" [ "$(scores --nproc 2 --adapter "$G/lora/mixtral-experts/adapter" "$G/lora/mixtral-experts/base")" = "$(scores mixtral-experts)" ]
# How the factors were started says nothing once they are there.
A=$G/lora/llama-all-linear want=$(scores --adapter "$A/adapter" "$A/base")
for init in eva orthogonal mica; do
    cp -r "$A/adapter" $init; sed -i "s/\"init_lora_weights\": true/\"init_lora_weights\": \"$init\"/" $init/adapter_config.json
    t "factors that were started by $init" [ "$(scores --adapter $init "$A/base")" = "$want" ]
done
sed -i 's/"layer_replication": null/"layer_replication": [[0, 1], [0, 1]]/' eva/adapter_config.json
expect_says 65 "an adapter of repeated layers" 'hint: `ckpt-merge --adapter eva --to hf -o - ' ev -t ids.jsonl --adapter eva "$A/base"

# -- bounds -----------------------------------------------------------------------------------------
printf '%s\n' '{"prediction": "b", "label": "a"}' '{"prediction": "a", "label": "b"}' >wrong.jsonl
printf '%s\n' '{"prediction": "a", "label": "a"}' '{"prediction": "a", "label": "b"}' >none.jsonl
expect_says 1 "a share of a base that is 0" "mcc is -1, 1 worse than the base's 0" ev --predictions wrong.jsonl --base-predictions none.jsonl --metric labels --fail-worse-than-base mcc=1%

# -- questions --------------------------------------------------------------------------------------
question() { printf '%s\n' "$1" >q.jsonl; }
question '{"context": "a", "endings": ["x", "y"], "label": 1}'
expect_says 65 "endings of no context" "q.jsonl: record 1: no text in a field ctx" ev -t q.jsonl --task multiple-choice base
t "but of a template" ev -t q.jsonl --task multiple-choice --prompt-template '{context}' base
question '{"question": "q", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": 1}'
t "a number that is a key" bash -c 'ckpt-eval -q -t q.jsonl --task multiple-choice --predictions-out - base | grep -q "\"references\": \[\"x\"\]"'

# -- a reader that does not read --------------------------------------------------------------------
mkfifo slow
exec 7<>slow
ckpt-eval -q --prompt x --min-new-tokens 300 --max-new-tokens 300 --logprobs 50 --predictions-out - --prompt y base >slow 2>stalled.err 7<&- &
stalled=$!
cpu() { cut -d' ' -f14 "/proc/$stalled/stat"; }
waits() { local a; a=$(cpu); [ "$a" -gt 5 ] && sleep 0.3 && [ "$(cpu)" = "$a" ]; }
wait_for waits
kill -TERM $stalled
gone() { ! kill -0 $stalled 2>/dev/null; }
t "a signal ends it while it waits to write" wait_for gone
kill -9 $stalled 2>/dev/null
wait $stalled
t "as stopped" [ $? = 75 ]
exec 7<&-

# -- a run that trains meanwhile --------------------------------------------------------------------
ckpt-train -q --model base --train-file e.jsonl --max-steps 3 --save-steps 1 -o live/run >/dev/null 2>&1
ckpt-merge -q -o - base >base.st
meanwhile() { ev -t e.jsonl --pass-through --results live --tokenizer base --base <(sleep 0.7; mv live/run/checkpoint-3 gone; cat base.st) 2>"$T/.err"; }
t "the checkpoint that was found goes: the newest that is there" [ "$(meanwhile)" = live/run/checkpoint-2 ]

# -- into a model card ------------------------------------------------------------------------------
card() { ckpt-push -q --create --card-dataset a/b "$@" >/dev/null 2>"$T/.err" && git --git-dir="${*: -2:1}" show HEAD:README.md | grep -A1 'type: loss' | grep -q 'value: [0-9]'; }
t "figures from a pipe" bash -c "$(declare -f card); ckpt-eval -q --json -t e.jsonl base | card --card-metrics - card1.git base"
t "from <(...)" card --card-metrics <(ev --json -t e.jsonl base) card2.git base
expect_says 64 "not where paths come from" "--card-metrics - takes standard input: name the paths" bash -c 'ckpt-push -q --create --card-dataset a/b --card-metrics - card3.git </dev/null'

# -- outputs and what else has their place ----------------------------------------------------------
mkdir dd && cp e.jsonl dd/a.jsonl
for data in dd 'dd/*.jsonl' 'd*'; do
    expect_says 64 "the data of $data as an output" "--predictions-out: dd/a.jsonl is the data" ev -t "$data" --predictions-out dd/a.jsonl --overwrite --max-new-tokens 1 base
done
t "it is as it was" cmp e.jsonl dd/a.jsonl
echo old >dd/page.html
t "another file of that folder can be written" ev -t dd -n 1 --max-new-tokens 1 --html dd/page.html --overwrite base
expect_says 64 "rows and paths in one stream" "standard output is either for rows or for paths" ev -t e.jsonl --predictions-out - --pass-through --max-new-tokens 1 base
expect_says 64 "a page of predictions that are in files, which no model wrote" "--html has no effect with --predictions" ev --predictions wrong.jsonl --metric labels --html p.html

# -- a model that another tool must read first ------------------------------------------------------
expect_says 65 "a GGUF file as a model" "ckpt-merge --to hf -o DIR $G/gguf/llama.q8_0.gguf makes one of it" ev --prompt x "$G/gguf/llama.q8_0.gguf"
t "which it does" bash -c "ckpt-merge -q --to hf -o fromg '$G/gguf/llama.q8_0.gguf' && ckpt-eval -q --prompt x --max-new-tokens 2 fromg"
