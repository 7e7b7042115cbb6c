# What a person sees first: options that count or are refused, hints, help, widths, colours, demo.
. "$(dirname "$0")/lib.sh"
HF=$G/hf-trainer/plain_w1/run
DSC=$G/hf-trainer/ds3_w2_bf16/run/checkpoint-4
BASE=$G/lora/bloom-qkv/base

# No option is ignored: of every two options of ckpt-inspect, either both change what is told, or
# the pair is refused and both are named.
names=(glob tensor stats digest optimizer state args rng scan diff compare together verify tree plot html overwrite tag encode decode special-tokens)
declare -A given=([glob]='--glob *norm*' [tensor]='--tensor model.norm.weight' [tag]='--tag global_step9'
    [encode]="--encode $T/texts" [decode]="--decode $T/ids" [html]="--html $T/page" [special-tokens]=--no-special-tokens)
echo one > "$T/texts"; echo '[0]' > "$T/ids"
# What the other shows anyhow; a page that is not there need not be replaced; tensors that both
# tags have alike.
same_anyhow=' tensor+stats tensor+digest stats+html html+overwrite tensor+optimizer tensor+tag tree+tag '
# A checkpoint with a second tag, and one that two nodes kept.
cp -r "$DSC" "$T/p"; cp -r "$T/p/global_step4" "$T/p/global_step9"
cp -r "$DSC" "$T/n0"; mkdir -p "$T/n1/global_step4"
mv "$T/n0"/global_step4/*_rank_1_* "$T/n1/global_step4"; mv "$T/n0/rng_state_1.pth" "$T/n1"
# told NAME TOGETHER OPTION... - status, output and page of them, in $T/NAME.
told() {
    local to=$1 path=("$T/p"); [ "$2" ] && path=("$T/n0"); shift 2
    case " $* " in
    *' --diff '*) path=("$T/p" "$DSC") ;; *' --compare '*) path=("$HF" "$HF") ;;
    *' --together '*) path=("$T/n0" "$T/n1") ;; *code\ *) path=("$G/tokenizers/roberta") ;;
    esac
    rm -f "$T/page"
    ckpt-inspect "$@" "${path[@]}" > "$T/$to" 2>"$T/$to.err" < /dev/null; echo $? >> "$T/$to"
    cat "$T/$to.err" "$T/page" >> "$T/$to" 2>/dev/null
}
all_pairs() {
    local i k a b x two; set -f
    for ((i = 0; i < ${#names[@]}; i++)); do for ((k = i + 1; k < ${#names[@]}; k++)); do
        a=${names[i]} b=${names[k]} two=; case $a$b in *together*) two=1 ;; esac
        told pair "$two" ${given[$a]:---$a} ${given[$b]:---$b}
        if grep -qx 64 "$T/pair"; then
            grep -qE -- "--$a\b.*--$b\b|--$b\b.*--$a\b|--(special-tokens|overwrite) .*without" "$T/pair.err" ||
                echo "--$a --$b: $(cat "$T/pair.err")"
            continue
        fi
        case $same_anyhow in *" $a+$b "*) continue ;; esac
        for x in "$a" "$b"; do
            told alone "$two" ${given[$x]:---$x}
            cmp -s "$T/pair" "$T/alone" && echo "--$a --$b: tells what --$x tells alone"
        done
    done; done | tee "$T/bad"
    [ ! -s "$T/bad" ]
}
t "no two options of ckpt-inspect where one is ignored" all_pairs
expect 66 "a tensor of a tag that is not there" ckpt-inspect --tensor model.norm.weight --tag none "$T/p"
expect 66 "modules of one" ckpt-inspect --tree --tag none "$T/p"
expect 66 "a moment, of tensors without the optimizer's" ckpt-inspect --tensor 'model.norm.weight|exp_avg' "$T/p"
expect 0 "with them" ckpt-inspect --optimizer --tensor 'model.norm.weight|exp_avg' "$T/p"
expect 64 "a curve for programs" bash -c "ckpt-inspect --plot --json $HF/checkpoint-4 2>$T/e; s=\$?; echo ckpt-inspect: \$(cat $T/e) >&2; exit \$s"
t "the error for --plot with --json names --json" says "--plot has no effect with --json"
expect 64 "a choice of tensors of runs" ckpt-inspect --compare --glob x "$HF" "$HF"
expect 64 "a curve of what is no run" ckpt-inspect --compare --plot "$BASE" "$BASE"
expect_says 66 "a curve of what is not there" "$T/none/trainer_state.json: no such file or directory" ckpt-inspect --plot "$T/none/trainer_state.json"
expect_says 66 "rows of it" "$T/none.jsonl: no such file or directory" ckpt-inspect --rows 2 "$T/none.jsonl"
expect 0 "a page of a difference" ckpt-inspect --diff --html "$T/diff.html" "$BASE" "$BASE"
t "the page of --diff names both" grep -q '<h1>base and base</h1>' "$T/diff.html"
expect 1 "of one that is there" ckpt-inspect --diff --html "$T/differ.html" "$HF/checkpoint-2" "$HF/checkpoint-4"
t "the page of --diff is written although there are differences" grep -q 'Tensors that differ' "$T/differ.html"
t "differences have bars, the largest first" bash -c "[ \$(grep -c 'class=.bar' $T/differ.html) -gt 5 ] && grep -o 'bar\"><i style=\"width:[0-9]*' $T/differ.html | grep -o '[0-9]*$' | sort -c -r -n"
mkdir "$T/run"; printf '{"step": %s, "loss": %s}\n' 1 3 2 2 3 1 > "$T/run/metrics.jsonl"
printf '{"step": %s, "loss": %s}\n' 2 2.5 3 2.25 >> "$T/run/metrics.jsonl"
expect 0 "a page of runs" ckpt-inspect --compare --html "$T/runs.html" "$T/run" "$HF"
t "the page of --compare has a curve a run, each step once" bash -c "grep -q 'data-name=.run (1). data-colour=.0. data-points=.1,3 2,2.5 3,2.25\"' $T/runs.html"
t "a run has its colour in every chart" bash -c "[ \$(grep -c 'data-name=.run (2). data-colour=.1' $T/runs.html) = 3 ]"
sed 's/loss": [0-9.]*/loss": 7/' "$T/run/metrics.jsonl" > "$T/m"; mkdir -p "$T/other"; cp "$T/m" "$T/other/metrics.jsonl"
echo '{"n_layer": 2, "vocab_size": 9}' > "$T/run/config.json"; echo '{"n_layer": 3, "vocab_size": 9}' > "$T/other/config.json"
t "settings that differ" bash -c "ckpt-inspect --compare --overwrite --html $T/runs.html $T/run $T/other >/dev/null && grep -A9 'Settings that differ' $T/runs.html | grep -q '<td>n_layer</td><td class=.n. data-v=.2.>2</td><td class=.n. data-v=.3.>3</td>' && ! grep -q vocab_size $T/runs.html"
echo '{"settings": {"z_loss": 0.5, "packing": true}}' > "$T/run/MANIFEST.json"; echo '{"settings": {"z_loss": 0, "packing": true}}' > "$T/other/MANIFEST.json"
t "those of manifests too" bash -c "ckpt-inspect --compare --overwrite --html $T/runs.html $T/run $T/other >/dev/null && grep -A9 'Settings that differ' $T/runs.html | grep -q '<td>z_loss</td><td class=.n. data-v=.0.5.>0.5</td><td class=.n. data-v=.0.>0</td>' && ! grep -q packing $T/runs.html"
echo '{"settings": [1, "x"]}' > "$T/run/MANIFEST.json"
expect 0 "a manifest of other members" ckpt-inspect --compare --overwrite --html "$T/runs.html" "$T/run" "$T/other"
rm "$T/run/MANIFEST.json" "$T/other/MANIFEST.json"
expect 0 "a page of a run" ckpt-inspect --html "$T/ck.html" "$HF/checkpoint-4"
page() { grep -q "$1" "$T/ck.html"; }
t "fetches nothing" bash -c "! grep -oE '(https?:)?//[a-z][a-z0-9.]+' $T/ck.html | grep -v '^http://www.w3.org'"
t "the page has styles for light and dark" page 'prefers-color-scheme: dark'
t "the page has its log" page '<h2>Log</h2>'
printf '{"step": %s, "eval_loss": %s}\n' 2 2.75 3 2.5 >> "$T/run/metrics.jsonl"
ckpt-inspect --overwrite --html "$T/both.html" "$T/run" > /dev/null
t "both losses lie in one pair of axes, with ticks" bash -c "sed -n '/<h3>Loss/,/<\/figure>/p' $T/both.html > $T/fig && [ \$(grep -c '<polyline' $T/fig) = 2 ] && grep -q 'data-name=.train' $T/fig && grep -q 'data-name=.eval' $T/fig && [ \$(grep -o 'class=.y. ' $T/fig | wc -l) -ge 3 ]"
t "the page has cards of the arguments and the model" bash -c "grep -q '<dt>Learning rate</dt><dd>0.003</dd>' $T/ck.html && grep -q '<dt>Hidden size</dt><dd>16</dd>' $T/ck.html"
expect 0 "a page of a run without weights of its own" bash -c "mkdir $T/bare && cp -r $HF/checkpoint-2 $HF/checkpoint-4 $T/bare && ckpt-inspect --html $T/bare.html $T/bare"
t "it is that of its newest checkpoint" bash -c "grep -q '<h3>Loss' $T/bare.html && grep -q 'bare/checkpoint-4<' $T/bare.html"
# Where there is a browser, the script changes nothing but headings and fields.
if [ -n "$browser" ]; then
    drawn() {
        opened "$T/ck.html" > "$T/dom"
        grep -q 'class="sorts\|sorts"' "$T/dom" && grep -q 'show rows that contain' "$T/dom"
    }
    t "the script of the page runs" drawn
fi
# The same of the other tools.
alone() { expect 64 "$2 alone" "$@" && { says "$2 has no effect with" || { echo "not ok says so: $2"; cat "$T/.err"; }; }; }
alone ckpt-merge --weights 1,2 "$BASE" "$BASE"
alone ckpt-eval --max-eval-samples 3 --prompt x "$BASE"
alone ckpt-eval --batch-size 3 "$BASE"
alone ckpt-eval --text-field x --prompt x "$BASE"
alone ckpt-eval --max-new-tokens 3 --eval-file "$T/texts" "$BASE"
alone ckpt-eval --logits x --prompt x "$BASE"
alone ckpt-eval --overwrite --prompt x "$BASE"
ckpt-train -q --init tools/recipes/demo/config.json --tokenizer tools/recipes/demo/tokenizer --init-only -o "$T/demo" > "$T/.t" 2>&1
alone ckpt-eval --temperature 2 --prompt x "$T/demo"
alone ckpt-eval --length-penalty 2 --prompt x "$T/demo"
alone ckpt-train --data-dir x --model "$BASE" --train-file x
alone ckpt-eval --batch-size 8 "$BASE"
alone ckpt-eval --seed 42 --eval-file "$T/texts" "$BASE"
alone ckpt-train --val-test-split-ratio 0.5 --model "$BASE" --train-file x
for o in '--lora-alpha 8' '--lora-alpha 16' '--lora-bias none'; do
    expect 78 "${o% *} without an adapter, the default or not" ckpt-train --model "$BASE" --train-file x $o
    t "the error names --lora-rank" says "ckpt-train: ${o% *} needs --lora-rank N"
done
echo 'fp8_format: hybrid' > "$T/train.yaml"
expect 78 "a default in a run file" ckpt-train --config "$T/train.yaml" --model "$BASE" --train-file x
t "--fp8-format is refused without --fp8" says "ckpt-train: --fp8-format needs --fp8"
echo 'use_dora: false' > "$T/train.yaml"
expect 66 "a flag that is off is nothing" ckpt-train --config "$T/train.yaml" --model "$BASE" --train-file x
alone ckpt-train --learning-rate 1 --init x --init-only --tokenizer x
expect 64 "ZeRO's stage of what has none" ckpt-merge --stage 2 --to hf "$BASE"
expect 64 "shards of one file" ckpt-merge --max-shard-size 1GB -o "$T/x.pt" "$BASE"
t "the error names the format" says "--max-shard-size has no effect with --to torch"
echo 'top_k: 3' > "$T/eval.yaml"
expect 64 "in a run file too" ckpt-eval --config "$T/eval.yaml" --eval-file "$T/texts" "$BASE"
t "the error names the options that --top-k needs" says "--top-k has no effect without --prompt, --generate, --metric or --predictions-out"
# Options as other programs spell them: the one that is meant, or what to do instead.
hinted() { # STATUS HINT COMMAND...
    local want=$1 hint=$2; shift 2
    expect "$want" "${*: -1}" "$@"; t "the error has a hint" says "hint: $hint"
}
hinted 64 'did you mean --learning-rate?' ckpt-train --lr
hinted 64 'did you mean --num-train-epochs?' ckpt-train --epochs
hinted 64 'did you mean --per-device-train-batch-size?' ckpt-train --batch-size
hinted 64 'did you mean --train-file?' ckpt-train --dataset
hinted 64 'did you mean --eval-file?' ckpt-eval --dataset
hinted 64 'did you mean --report-to?' ckpt-train --wandb
expect_says 64 "another" '--push_to_hub true: ckpt-push publishes' ckpt-train --push_to_hub
expect_says 64 "a field without its value" '--deepspeed needs a value' ckpt-train --deepspeed
for name in accumulation accum ga grad-acc grad_accum_step; do hinted 64 'did you mean --gradient-accumulation-steps?' ckpt-train --$name 4; done
hinted 64 '--lora-rank N trains an adapter, --adapter DIR goes on with one' ckpt-train --lora
hinted 64 'did you mean --adapter?' ckpt-eval --lora
for name in muon adamw; do hinted 64 'did you mean --optim?' ckpt-train --$name; done
hinted 64 'did you mean --optim-args?' ckpt-train --momentum 0.9
hinted 64 'did you mean --target-modules?' ckpt-train --lora-target all
hinted 64 'did you mean --zero-stage?' ckpt-train --zero3
hinted 64 'did you mean --lr-scheduler-type?' ckpt-train --cosine
hinted 64 'did you mean --overwrite?' ckpt-merge --force
hinted 64 'ckpt-push --help lists them' ckpt-push --zzzzzzzzzzzz
printf 'model_name: a\n' > "$T/hf.yaml"
expect_says 78 "a key of others in a run file" "hint: did you mean model?" ckpt-train --config "$T/hf.yaml"
printf 'output_dir: a\ngroup_texts: true\n' > "$T/hf.yaml"
expect_says 78 "one that nothing stands for" "leave it out" ckpt-train --config "$T/hf.yaml"
expect_says 78 "a model's config.json for options" "hint: --init $G/models/llama-a/config.json starts such a model with random weights, --model FOLDER" ckpt-train --config $G/models/llama-a/config.json
expect_says 78 "also of a tool without models" "is a model's config.json, not a file of options" ckpt-push --config $G/models/llama-a/config.json
expect 64 "one checkpoint to compare" ckpt-inspect --diff "$BASE"
t "the error says that two paths are needed" says "--diff: 1 path; two are wanted, a checkpoint and the one to hold against it"
expect 66 "a tensor by half its name" ckpt-inspect --tensor ln_f.weight "$BASE"
t "a hint names the tensor's full name" says "hint: did you mean transformer.ln_f.weight?"
expect 66 "a tensor with a slip" ckpt-inspect --tensor transformer.lnf.weight "$BASE"
t "a hint names the nearest tensor" says "hint: did you mean transformer.ln_f.weight?"
# Widths: what a terminal of so many columns shows fits it; a pipe gets everything whole.
# on COLUMNS COMMAND... - what the command shows on a terminal of that width, in $T/tty.
on() {
    local cols=$1; shift
    TERM=${TERM_IS:-xterm} script -qec "stty cols $cols rows 24; $(printf '%q ' "$@")" /dev/null < /dev/null | tr -d '\r' > "$T/tty"
    sed -E 's/\x1b\[[0-9;]*[mK]//g' "$T/tty" > "$T/plain"
}
fits() { on "$@"; [ -s "$T/plain" ] && ! grep -vE '^[a-z ]+: ' "$T/plain" | grep -E "^.{$(($1 + 1)),}"; }
DS=$T/p
for tool in ckpt-train ckpt-merge ckpt-push ckpt-inspect ckpt-eval; do
    for cols in 60 80 100; do t "$tool --help in $cols columns" fits $cols $tool --help; done
    t "$tool --help in a pipe: 80" bash -c "! $tool --help | grep -E '^.{81,}'"
done
t "a wide terminal is used" bash -c "[ \$(sed 's/\x1b[^m]*m//g' $T/plain | wc -L) -gt 90 ]"
on 200 env COLUMNS=60 ckpt-train --help
t "COLUMNS wins over the terminal" bash -c "grep -q offload $T/plain && ! grep -E '^.{61,}' $T/plain"
for cols in 40 60 80 120; do
    t "tensors in $cols columns" fits $cols ckpt-inspect --glob '*' "$BASE"
    t "statistics in $cols columns" fits $cols ckpt-inspect --stats --digest "$BASE"
    t "runs in $cols columns" fits $cols ckpt-inspect --compare "$HF" "$HF/checkpoint-2" "$HF/checkpoint-4"
done
on 80 ckpt-inspect --stats "$BASE"
t "columns without room are named" bash -c "tr '\n' ' ' < $T/plain | grep -qE '\(a wider terminal shows: .*histogram\) $'"
on 80 ckpt-inspect "$BASE"
t "a long name keeps its end" grep -q '….*query_key_value.weight' "$T/plain"
t "a pipe cuts nothing" bash -c "ckpt-inspect $BASE | grep -q '^transformer.h.0.self_attention.query_key_value.weight '"
# Colours: headings on a terminal, nowhere else.
esc=$(printf '\033')
on 80 ckpt-inspect "$BASE"; t "a terminal has bold headings" grep -q "$esc\[1m" "$T/tty"
t "a pipe has none" bash -c "! ckpt-inspect $BASE | grep -q $esc && ! ckpt-train --help | grep -q $esc"
export NO_COLOR=1; on 80 ckpt-inspect "$BASE"; t "NO_COLOR has no bold headings" bash -c "! grep -q $esc $T/tty"; unset NO_COLOR
TERM_IS=dumb; on 80 ckpt-inspect "$BASE"; t "a dumb terminal has no bold headings" bash -c "! grep -q $esc $T/tty"; unset TERM_IS
# Progress: a line on a terminal, gone at the end; in a pipe none, but of what takes long.
for i in $(seq 400); do printf '{"text": "%s one two three four five six seven eight nine ten eleven twelve thirteen"}\n' $i; done > "$T/texts.jsonl"
on 80 ckpt-train --model "$T/demo" --train-file "$T/texts.jsonl" --eval-file "$T/texts.jsonl" --max-steps 30 --logging-steps 10 --data-cache off -o "$T/tr"
t "training shows its progress" grep -qE 'training +[0-9]+% \[[#.]+\] [0-9]+/30 ' "$T/plain"
t "an evaluation shows its progress" grep -qE 'evaluation +[0-9]+% \[[#.]+\] [0-9]+/50 batches' "$T/plain"
sed -E "s/^.*$esc\[K//" "$T/tty" > "$T/left"          # what stays on the screen
t "no progress line stays on the terminal" bash -c "grep -q 'trained 30 steps' $T/left && ! grep -E '\[[#.]+\]' $T/left"
on 80 ckpt-train -q --model "$T/demo" --train-file "$T/texts.jsonl" --max-steps 10 --data-cache off -o "$T/tr2"
t "-q shows no progress" bash -c "! grep -qE '\[[#.]+\]' $T/tty"
TERM_IS=dumb; on 80 ckpt-train --model "$T/demo" --train-file "$T/texts.jsonl" --max-steps 10 --data-cache off -o "$T/tr3"; unset TERM_IS
t "a dumb terminal shows no progress line" bash -c "! grep -qE \"\[[#.]+\]|of 10 steps|$esc\" $T/tty"
ckpt-train --model "$T/demo" --train-file "$T/texts.jsonl" --max-steps 10 --data-cache off -o "$T/tr4" > "$T/out" 2>&1
t "a pipe gets no progress line" bash -c "! grep -E \"\[[#.]+\]|of 10 steps|$esc\" $T/out"
on 80 ckpt-eval --eval-file "$T/texts.jsonl" --generate 20 --max-new-tokens 64 --do-sample --seed 1 "$T/demo"
t "ckpt-eval shows its progress" grep -qE 'evaluation +[0-9]+% ' "$T/plain"
# So does reading a file, of 1.2 GB that take no room, with its digest.
header='{"x":{"dtype":"F32","shape":[300000000],"data_offsets":[0,1200000000]}}'
printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" > "$T/zeros.safetensors"
truncate -s $((8 + ${#header} + 1200000000)) "$T/zeros.safetensors"
on 80 ckpt-inspect --digest -j1 "$T/zeros.safetensors"
t "reading tensors shows its progress" grep -qE 'reading tensors +[0-9]+% \[[#.]+\] [0-9.]+/1.20 GB' "$T/plain"
rm "$T/zeros.safetensors"
# make: a line a folder, whole commands with V=1; the demo, short, in a pipe.
t "make V=1 shows whole commands" bash -c "make --no-print-directory -n V=1 B=$T/built MPI=0 CUDA=0 all | grep -qE '^[a-z]*cc .* -c -o .*/trainer/run/run.o'"
seq 60 | sed 's/.*/{"instruction": "Count to &", "input": "", "output": "one, two & three"}/' > "$T/rows.jsonl"
expect 0 "a short demo" env DEMO_DATA="$T/rows.jsonl" DEMO_STEPS=4 DEMO_DIR="$T/demo.d" tools/recipes/demo/demo.sh "${BUILD#"$PWD"/}"
t "the demo's output in a pipe has no colour" bash -c "! grep -q $esc $T/.out $T/.err"
t "the demo does not list all tensors" bash -c "[ \$(grep -c 'transformer.h.[0-9]' $T/.out) = 0 ]"
t "the demo closes with what it made" bash -c "tail -n 16 $T/.out | grep -q '^loss on held-out rows: [0-9.]* -> [0-9.]* after 4 steps (perplexity [0-9.]* -> [0-9.]*)' && tail -n 6 $T/.out | head -n 1 | grep -q 'What next:'"
one=$(ckpt-eval -q --json --eval-file "$T/demo.d/eval.jsonl" "$T/demo.d/base" | loss_of | head -n 1)
t "its first loss is the base's" prints "loss on held-out rows: $(printf %.4g "$one") -> "
sed -n '/^What next:/,$s/^  //p' "$T/.out" > "$T/next"
t "three commands to type" [ "$(wc -l < "$T/next")" = 3 ]
t "the first asks the model more" bash -c "$(sed -n 1p "$T/next")"
t "the second writes it for llama.cpp" bash -c "$(sed -n 2p "$T/next") && test -s $T/demo.d/model.gguf"
t "the third shows a manual" bash -c "$(sed -n 3p "$T/next") | grep -q ckpt-eval"
t "what it shows is a whole pipe that can be typed" grep -qxF '    | ckpt-merge --verify' "$T/.err"
t "base and trained model have answered the same questions" [ "$(grep -cE '^[1-3] .*(base|checkpoint-4-merged) ' "$T/.out")" = 6 ]
t "the demo's pages and repository exist" test -s "$T/demo.d/run.html" -a -s "$T/demo.d/answers.html" -a -d "$T/demo.d/hub.git"
if [ -n "$browser" ]; then
    for page in run answers; do
        t "a browser opens the demo's $page.html: nothing is wider than a phone's window" fits_window "$T/demo.d/$page.html" 420
        t "nor than a large one" fits_window "$T/demo.d/$page.html" 1920
    done
    opened "$T/demo.d/answers.html" > "$T/dom"
    t "the answers are in it, row by row" [ "$(grep -c '<article' "$T/dom")" = 3 ]
fi
# What cannot be is refused before anything is emptied; what is no demo's is never emptied.
demo() { env "$@" DEMO_STEPS=1 tools/recipes/demo/demo.sh "${BUILD#"$PWD"/}" >"$T/.out" 2>"$T/.err"; }
refused() { demo "${@:3}"; [ $? = "$1" ] && says "$2" && [ -s "$T/demo.d/run.html" ]; }
t "a demo of no data" refused 66 "DEMO_DATA=none.jsonl: no such file" DEMO_DATA=none.jsonl DEMO_DIR="$T/demo.d"
head -n 19 "$T/rows.jsonl" > "$T/few.jsonl"
t "of too few rows" refused 65 "19 rows; 20 or more are wanted" DEMO_DATA="$T/few.jsonl" DEMO_DIR="$T/demo.d"
t "of no model" refused 66 "no-model: no such file" DEMO_MODEL=no-model DEMO_DIR="$T/demo.d"
t "of a model that would be emptied" refused 64 "which is emptied" DEMO_MODEL="$T/demo.d/base" DEMO_DIR="$T/demo.d"
mkdir "$T/mine"; touch "$T/mine/file"
t "a folder of something else" refused 73 "is not empty, and holds no earlier demo" DEMO_DIR="$T/mine"
t "its files stay" test -e "$T/mine/file"
tools/recipes/demo/names.sh "$T/names"
t "the demo's own data: a name, and what it is" grep -qxF '{"instruction": "Lake Winnipeg", "input": "", "output": "a lake in southern Canada in Manitoba"}' "$T/names/eval.jsonl"
t "names of the demo are held out" [ "$(grep -cE "\"instruction\": \"($(sed -n "s/^asked='\(.*\)'/\1/p" tools/recipes/demo/demo.sh))\"" "$T/names/eval.jsonl")" = 5 ]
