# Folders as transformers leaves them, nothing cut: what it reads in them is read here, and its numbers come out.  [B6, B7]
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

# A clone of T5 as it lies: spiece.model alone, what it ends with is in config.json, and rows of the model without a token.
t5=$S/t5-clone
printf '%s\n' "translate: one two three" "a <extra_id_0> b <extra_id_99>" | ckpt-inspect --encode - "$t5" > "$T/out"
t "T5 without tokenizer_config.json: its end of texts" grep -q '^{"ids":\[3,112,40,4,23,86,41,111,5,3,8,46,12,3,73,38,5,1\]' "$T/out"
t "its sentinels" grep -q '^{"ids":\[20,699,3,35,600,1\]' "$T/out"
echo '{"prompt":"translate: one two three","completion":"eins zwei drei"}' > "$T/t5.jsonl"
t5_loss() { ckpt-eval --json -q --eval-file "$T/t5.jsonl" "$1" | grep -q '"loss": 7.40784[01]'; }
t "B6 its loss is transformers'" t5_loss "$t5"
t "B6 of one file with the config.json beside it" t5_loss "$t5/model.safetensors"
t "B6 of another" t5_loss "$t5/pytorch_model.bin"
t "such a file is trained" ckpt-train -q --model "$t5/pytorch_model.bin" --train-file "$T/t5.jsonl" --max-steps 1 -o "$T/t5"
t "a T5 checkpoint has its tokenizer" test -s "$T/t5/checkpoint-1/spiece.model"
t "ids without a text do not end an evaluation" ckpt-eval -q --prompt "translate: one" --max-new-tokens 20 "$t5"
cp -r "$S/llama" "$T/bare"; rm "$T/bare/tokenizer_config.json"
t "eos of config.json where no tokenizer_config.json says it" ckpt-train -q --model "$T/bare" --train-file "$T/train.jsonl" --max-steps 1 -o "$T/bared"

# Texts, tokenizers and models that do not belong together.
small() { cp -r "$S/llama" "$T/$1"; sed -i 's/"vocab_size": [0-9]*/"vocab_size": '"$2"'/' "$T/$1/config.json"; }
echo '{"text": 5}' > "$T/five.jsonl"
expect 65 "a text that is a number" ckpt-train --model "$S/llama" --train-file "$T/five.jsonl" -o "$T/no"
t "a value of the wrong type is named with its type" says 'record 1: "text" is an integer, a string wanted'
small many 600
expect 65 "a tokenizer of more ids than the model" ckpt-train --model "$T/many" --train-file "$T/train.jsonl" -o "$T/no"
t "the error has the numbers of ids and of the model's rows" says "ids, the model 600 (vocab_size)"
expect 65 "in an evaluation too" ckpt-eval --prompt x "$T/many"
cp -r "$S/llama" "$T/added"; n=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' "$S/llama/config.json")
sed -i "0,/\"added_tokens\": \[/s/\"added_tokens\": \[/&{\"id\": $n, \"content\": \"<more>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true},/" "$T/added/tokenizer.json"
expect 0 "an added token that no text needs" ckpt-train --model "$T/added" --train-file "$T/train.jsonl" --max-steps 1 -o "$T/with"
t "tokens beyond the model's rows give a warning" says "tokens were added up to id $n, the model has $n"
echo '{"text": "one <more>"}' > "$T/more.jsonl"
expect 65 "one that a text needs" ckpt-train -q --model "$T/added" --train-file "$T/more.jsonl" -o "$T/no"
t "an id beyond the model is found before the first batch, with its record" says "more.jsonl: record 1: token"
t "the error has the id and the model's size" says "has id $n (<more>), the model has $n (vocab_size)"

# What options name by "-" and by pipes.
rows "$S/llama" > "$T/train.jsonl"
same_run() { cmp "$T/$1/checkpoint-2/model.safetensors" "$T/plain/checkpoint-2/model.safetensors"; }
run() { local out=$1; shift; ckpt-train -q --model "$S/llama" --max-steps 2 --per-device-train-batch-size 2 -o "$T/$out" "$@"; }
t "a run by files" run plain --train-file "$T/train.jsonl" --eval-file "$T/train.jsonl"
t "the data from -" bash -c "$(declare -f run); S='$S'; T='$T'; cat $T/train.jsonl | run stdin --train-file -"
t "records from stdin give the same weights" same_run stdin
t "the data from <(...)" bash -c "$(declare -f run); S='$S'; T='$T'; run pipe --train-file <(cat $T/train.jsonl) --eval-file <(cat $T/train.jsonl)"
t "records from a pipe give the same weights" same_run pipe
mkfifo "$T/named"; cat "$T/train.jsonl" > "$T/named" &
t "from a FIFO" run fifo --train-file "$T/named"
t "records from a fifo give the same weights" same_run fifo
t "from standard input that is a file" bash -c "$(declare -f run); S='$S'; T='$T'; run redirected --train-file - < $T/train.jsonl"
t "redirected records give the same weights" same_run redirected
printf 'train-file: %s\nmax-steps: 2\nper-device-train-batch-size: 2\n' "$T/train.jsonl" > "$T/run.yaml"
t "a run file from -" bash -c "cat $T/run.yaml | ckpt-train -q --config - --model $S/llama -o $T/yaml"
t "a run file from a pipe gives the same weights" same_run yaml
t "a run file from <(...)" bash -c "ckpt-train -q --config <(cat $T/run.yaml) --model $S/llama -o $T/yaml2"
t "with two ranks from one pipe" bash -c "$(declare -f run); S='$S'; T='$T'; cat $T/train.jsonl | run ranks --train-file - --nproc 2 --per-device-train-batch-size 1"
t "as from a file" bash -c "$(declare -f run); S='$S'; T='$T'; run ranks2 --train-file $T/train.jsonl --nproc 2 --per-device-train-batch-size 1 && cmp $T/ranks*/checkpoint-2/model.safetensors"
expect 64 "ranks that others start cannot read one pipe" bash -c "cat $T/train.jsonl | WORLD_SIZE=2 RANK=0 ckpt-train --model $S/llama --train-file - -o $T/no"
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' > "$T/chat.jsonl"
plain_template='{% for m in messages %}{% if m.role == "assistant" %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}'
t "ckpt-eval: data and template from pipes" bash -c "ckpt-eval -q --eval-file <(cat $T/chat.jsonl) --chat-template <(echo '$plain_template') $S/llama"
t "ckpt-eval: data from -" bash -c "cat $T/train.jsonl | ckpt-eval -q --eval-file - $S/llama"
expect 64 "both data and models from -" bash -c "cat $T/train.jsonl | ckpt-eval -q --eval-file -"
t "--eval-file - without models is refused" says "--eval-file - takes standard input: name the models"

# What libyaml would take minutes for.
awk 'BEGIN { printf "model: "; for (i = 0; i < 60000; i++) printf "["; print "" }' > "$T/deep.yaml"
expect 65 "a deep run file, at once" timeout 5 ckpt-train --config "$T/deep.yaml"
t "YAML nested too deeply is refused with its line" says "deep.yaml: line 1: nested deeper than 64 levels"
mkdir "$T/set"; cp "$T/train.jsonl" "$T/set"
{ echo ---; cat "$T/deep.yaml"; echo ---; } > "$T/set/README.md"
expect 65 "a data set's deep README.md" timeout 5 ckpt-train --model "$S/llama" --train-file "$T/set" -o "$T/no"
t "a README.md nested too deeply is refused with its line" says "README.md: line 2: nested deeper than 64 levels"
printf '{"text": "a"}\n{"text": 1 x}\n' > "$T/brk.jsonl"
expect 65 "a line that is no JSON" ckpt-train --model "$S/llama" --train-file "$T/brk.jsonl" -o "$T/no"
t "a bad record's error is one line" says "brk.jsonl: record 2: line 2: json: column 12: "

# polynomial ends where transformers' does.
t "polynomial" ckpt-train -q --model "$S/llama" --train-file "$T/train.jsonl" --lr-scheduler-type polynomial --learning-rate 3e-4 --max-steps 4 --logging-steps 1 -o "$T/poly"
t "a polynomial schedule ends at 1e-7" grep -q '7.5075e-05' "$T/poly/metrics.jsonl"
expect 78 "it cannot end above its beginning" ckpt-train --model "$S/llama" --train-file "$T/train.jsonl" --lr-scheduler-type polynomial --learning-rate 3e-4 --min-lr 3e-4 -o "$T/no"
t "--min-lr above --learning-rate is refused with both" says "polynomial ends at --min-lr 0.0003: it must be smaller than --learning-rate 0.0003"

# Blanks that added tokens take are no part of their offsets where a post-processor trims these.
strips() { ckpt-inspect --encode "$1/texts.jsonl" "$1" | sed 's/,"tokens":.*$/}/' | diff - "$1/wanted.jsonl"; }
t "offsets of tokens with lstrip and rstrip" strips "$G/tokenizers/files/strips"

# The loss in the file of --logits is the one that is printed, the router's of a batch within.
printf '{"input_ids":[5,9,3,7]}\n{"input_ids":[8,2,30,21,4,4,17,9,10]}\n{"input_ids":[1,1,2,40]}\n' > "$T/ids.jsonl"
routed() {
    ckpt-eval --json -q --eval-file "$T/ids.jsonl" --batch-size 3 --logits "$T/routed.safetensors" "$G/models/mixtral-aux" > "$T/scored" &&
        ckpt-inspect --tensor loss "$T/routed.safetensors" | sed -n '/first values/{n;p}' > "$T/within" &&
        awk -v a="$(sed -n 's/.*"loss": \([0-9.]*\),.*/\1/p' "$T/scored")" '{ d = $1 - a; exit !(d < 1e-6 && d > -1e-6) }' "$T/within"
}
t "--logits with a router's loss" routed

# -- loss on padding too: labels that are copies of padded inputs (tests/golden/make_padding.py) ---
# wanted "MODEL SIDE" - its losses, a line each.
wanted() { sed -n "/\"$1\": \[/,/\]/p" "$G/padding/losses.json" | grep -oE '[0-9]+\.[0-9]+'; }
# padded NAME MODEL SIDE OPTION... - six steps, then an evaluation of the first samples.
padded() {
    local name=$1 model=$2 side=$3; shift 3
    head -n 4 "$G/padding/rows.jsonl" > "$T/first.jsonl"
    ckpt-train -q --device cpu --model "$G/models/$model" --train-file "$G/padding/rows.jsonl" --eval-file "$T/first.jsonl" --train-sampling-strategy sequential \
        --max-steps 6 --learning-rate 1e-3 --lr-scheduler-type constant --logging-steps 1 --max-seq-length 12 --loss-on-padding --padding-side "$side" \
        --no-final-model -o "$T/$name" "$@" >/dev/null || return 1
    grep -oE '"(eval_)?loss":[0-9.]+' "$T/$name/metrics.jsonl" | cut -d: -f2 | paste - <(wanted "$model $side") |
        awk '{ d = ($1 - $2) / $2; if (d > 1e-6 || d < -1e-6) { bad = 1; print } } END { exit bad || NR != 7 }'
}
for case in "bloom-a left" "bloom-b left" "bloom-a right" "llama-a right"; do
    t "C7 loss on padding: $case" padded "pad ${case// /-}" ${case% *} ${case#* } --per-device-train-batch-size 4
done
t "of ranks, accumulated, sharded" padded pad-ranks bloom-a left --per-device-train-batch-size 1 --gradient-accumulation-steps 2 --nproc 2 --zero-stage 3
t "recomputed" padded pad-full bloom-a left --per-device-train-batch-size 2 --gradient-accumulation-steps 2 --gradient-checkpointing
pads() { ckpt-train -q --device cpu --train-file "$G/padding/rows.jsonl" --max-steps 2 --max-seq-length 12 --loss-on-padding -o "$T/no" "$@"; }
expect_says 78 "packing leaves no padding" "--packing leaves no padding: --loss-on-padding excludes it" pads --model "$G/models/bloom-a" --packing
expect_says 78 "an encoder's padding" "--loss-on-padding is not done for t5" pads --model "$G/models/t5-v11"
expect_says 78 "padding that a window hides" "--loss-on-padding is not done for mistral" pads --model "$G/models/mistral-sw"
expect_says 78 "left padding of rotary positions" "--padding-side left is done for ALiBi alone" pads --model "$G/models/llama-a" --padding-side left
expect_says 78 "a model without padding" "says which id pads" pads --model "$G/models/gpt2-a"
expect_says 78 "a side without padding" "--padding-side needs --loss-on-padding" ckpt-train --model "$G/models/bloom-a" --train-file "$G/padding/rows.jsonl" --padding-side left -o "$T/no"
expect 64 "a side that is none" pads --model "$G/models/bloom-a" --padding-side up
t "a plan for it" pads --model "$G/models/bloom-a" --dry-run
