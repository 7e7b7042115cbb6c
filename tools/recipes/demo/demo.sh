#!/usr/bin/env bash
# demo.sh BUILD - the whole pipeline once, on real text, on the CPU: train on two ZeRO-3 ranks,
# merge, inspect, evaluate against the base, push to a local git + LFS remote, clone, verify.
#
#   DEMO_MODEL=DIR    start from this model directory (bloom-560m, say) instead of a fresh one
#   DEMO_DATA=FILE    train on these JSON lines instead of WordNet's names (every 20th row is held out)
#   DEMO_STEPS=N      optimizer steps (default 1500), of 512 tokens for WordNet, of 2048 for other data
#   DEMO_DIR=DIR      where everything goes (default: build/demo, and build/demo-own with a model or data
#                     of one's own); an earlier demo there is replaced, anything else is left alone
set -euo pipefail
cd "$(dirname "$0")/../../.."
export PATH="$PWD/$1:$PATH" LC_ALL=C.UTF-8 GIT_CONFIG_NOSYSTEM=1
here=tools/recipes/demo
own=${DEMO_MODEL:-}${DEMO_DATA:-}
dir=${DEMO_DIR:-build/demo${own:+-own}}
steps=${DEMO_STEPS:-1500}
# Some held-out names that people know; the first that are continued.
asked='Illinois River|Mojave Desert|capital of Indonesia|James Clerk Maxwell|Lake Winnipeg'
start=$(date +%s)
bold= dim= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$(printf '\033[1m') dim=$(printf '\033[2m') plain=$(printf '\033[0m')
fi
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
# A command as it could be typed; a word | joins two.
show() {
    local word line= shown=
    for word; do
        case $word in '|') ;; *[!A-Za-z0-9_./:=,+%-]*) word="'$word'" ;; esac
        case $word in -*|'|')
            if [ "$word" = '|' ] || [ $((${#line} + ${#word})) -gt 90 ]; then shown="$shown$line \\"$'\n' line="   "; fi ;;
        esac
        line="$line $word"
    done
    printf '%s$%s%s\n' "$dim" "$shown$line" "$plain" >&2
}
run() { show "$@"; "$@"; }
size() { du -sh "$1" | cut -f1; }
# refuse STATUS TEXT - before anything is touched.
refuse() { echo "demo.sh: $2" >&2; exit "$1"; }
within() { case $(realpath -m "$1")/ in "$(realpath -m "$dir")"/*) true ;; *) false ;; esac }

if [ -n "${DEMO_DATA:-}" ]; then
    [ -r "$DEMO_DATA" ] && [ ! -d "$DEMO_DATA" ] || refuse 66 "DEMO_DATA=$DEMO_DATA: no such file"
    within "$DEMO_DATA" && refuse 64 "DEMO_DATA=$DEMO_DATA: lies in $dir, which is emptied"
    [ "$(head -c 1 "$DEMO_DATA")" = "{" ] || refuse 65 "DEMO_DATA=$DEMO_DATA: begins with no {; JSON lines are wanted"
    rows=$(wc -l <"$DEMO_DATA")
    [ "$rows" -ge 20 ] || refuse 65 "DEMO_DATA=$DEMO_DATA: $rows rows; 20 or more are wanted, every 20th is held out"
fi
if [ -n "${DEMO_MODEL:-}" ]; then
    ckpt-inspect -q "$DEMO_MODEL" >/dev/null || refuse $? "DEMO_MODEL=$DEMO_MODEL: is no model that can be read"
    within "$DEMO_MODEL" && refuse 64 "DEMO_MODEL=$DEMO_MODEL: lies in $dir, which is emptied"
fi
if [ -n "$(ls -A "$dir" 2>/dev/null)" ]; then
    case $dir in build/demo|build/demo-own) ;; *)
        [ -e "$dir/.demo" ] || refuse 73 "DEMO_DIR=$dir: is not empty, and holds no earlier demo" ;;
    esac
    echo "$dir: the earlier demo there is replaced"
    rm -rf "$dir"
fi
mkdir -p "$dir"
touch "$dir/.demo"
echo "The tools are in $1. To type the commands below: export PATH=\"\$PWD/$1:\$PATH\""

say "1. Data: instruction -> output pairs"
if [ -n "${DEMO_DATA:-}" ]; then
    awk -v d="$dir" '{ print > (d (NR % 20 ? "/train.jsonl" : "/eval.jsonl")) }' "$DEMO_DATA"
    batch=8
else
    run $here/names.sh "$dir"
    mv "$dir/eval.jsonl" "$dir/all"
    { grep -E "\"($asked)\"" "$dir/all"; grep -vE "\"($asked)\"" "$dir/all"; } > "$dir/eval.jsonl"
    rm "$dir/all"
    batch=2
fi
echo "$(wc -l <"$dir/train.jsonl") rows to learn in $dir/train.jsonl, $(wc -l <"$dir/eval.jsonl") held out in $dir/eval.jsonl, such as"
sed -n 1,2p "$dir/eval.jsonl" | cut -c 1-150

if [ -n "${DEMO_MODEL:-}" ]; then say "2. The base model"; else say "2. The base model: a small one with random weights"; fi
if [ -n "${DEMO_MODEL:-}" ]; then
    base=$DEMO_MODEL
else
    base=$dir/base
    run ckpt-train --init $here/small.json --tokenizer $here/tokenizer --init-only -o "$base"
fi
run ckpt-inspect --tree "$base" | sed -n 1,6p

say "3. Train on two ZeRO-3 ranks, merging each checkpoint as it appears"
part() { echo $((steps / $1 > 0 ? steps / $1 : 1)); }
train=(ckpt-train --model "$base" --train-file "$dir/train.jsonl" --eval-file "$dir/eval.jsonl" \
    --nproc 2 --zero-stage 3 --packing --max-seq-length 128 --per-device-train-batch-size $batch \
    --per-device-eval-batch-size 32 --learning-rate "${DEMO_LR:-4e-3}" --warmup-steps 20 --lr-scheduler-type cosine \
    --weight-decay 0.01 --max-steps "$steps" --logging-steps "$(part 15)" --eval-steps "$(part 5)" --save-steps "$(part 2)" \
    -o "$dir/run")
show "${train[@]}" '|' ckpt-merge --verify
"${train[@]}" | ckpt-merge --verify | tee "$dir/merged.txt"
checkpoint=$dir/run/checkpoint-$steps
merged=$(tail -n 1 "$dir/merged.txt")

say "4. What the run left behind"
run ckpt-inspect --plot "$checkpoint"
run ckpt-inspect --html "$dir/run.html" "$checkpoint"

say "5. Against the base: the loss of held-out rows, and what both say of some of them"
run ckpt-eval --base "$base" --eval-file "$dir/eval.jsonl" --generate 5 --max-new-tokens 28 --do-sample \
    --temperature 0.7 --top-p 0.8 --repetition-penalty 1.1 --seed "${DEMO_SEED:-1}" --html "$dir/answers.html" "$merged"

say "6. Push to a git + LFS remote, clone it back, verify"
run ckpt-push --create "$dir/hub.git" "$merged"
show git clone "$dir/hub.git" "$dir/clone"
# git-lfs by options: this machine's git may not know it.
GIT_LFS_SKIP_SMUDGE=0 git -c protocol.file.allow=always \
    -c filter.lfs.smudge='git-lfs smudge -- %f' -c filter.lfs.process='git-lfs filter-process' \
    -c filter.lfs.required=true clone -q "$dir/hub.git" "$dir/clone"
(cd "$merged" && find . -type f | sort | xargs sha256sum) > "$dir/sent.sha256"
(cd "$dir/clone" && sha256sum -c --quiet) < "$dir/sent.sha256"
echo "all $(wc -l < "$dir/sent.sha256") files of the clone have the digests of what was sent"

# FIGURE of the base, then of the trained model.
ckpt-eval -q --json --differences 0 --base "$base" --eval-file "$dir/eval.jsonl" "$merged" >"$dir/scores.json"
score() { sed -n '/"scores"/,/\]/s/.*"'"$1"'": \([0-9.e+-]*\).*/\1/p' "$dir/scores.json" | xargs printf '%.4g -> %.4g'; }
row() { printf '%6s  %-*s  %s\n' "$(size "$1")" $((${#merged})) "$1" "$2"; }
if [ -n "${DEMO_DATA:-}" ]; then ask="--eval-file $dir/eval.jsonl --generate 20"
else ask="--prompt \$'Colorado River\\n' --do-sample --top-p 0.8 --temperature 0.7"; fi
manual="man ./man/ckpt-eval.1"
command -v man >/dev/null || manual="mandoc -l man/ckpt-eval.1"
say "Done in $(($(date +%s) - start)) s"
cat <<END
loss on held-out rows: $(score loss) after $steps steps (perplexity $(score perplexity))

$(row "$dir/run" "checkpoints of both ranks, and what was merged of each")
$(row "$merged" "a model directory, as transformers loads it")
$(row "$dir/hub.git" "a git repository with it, its weights in LFS")
$(row "$dir/run.html" "the run as a page: open it in a browser")
$(row "$dir/answers.html" "what base and model answer, side by side")

What next:
  $1/ckpt-eval $ask $merged
  $1/ckpt-merge --to gguf --dtype q8_0 -o $dir/model.gguf $merged
  $manual
The first asks the model more, the second writes it for llama.cpp; manuals of all tools are in man/.
A model and JSON lines of your own: DEMO_MODEL=DIR DEMO_DATA=FILE make demo
END
