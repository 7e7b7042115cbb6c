#!/usr/bin/env bash
# demo.sh BUILD - the whole pipeline once, on real text, on the CPU: train on two ZeRO-3 ranks,
# merge, inspect, evaluate against the base, push to a local git + LFS remote, clone, verify.
#
#   DEMO_MODEL=DIR    start from this model directory (bloom-560m, say) instead of a fresh one
#   DEMO_DATA=FILE    train on this JSONL instead of WordNet's names (every 20th row is held out)
#   DEMO_STEPS=N      optimizer steps (default 1500), of 512 tokens for WordNet, of 2048 for other data
#   DEMO_DIR=DIR      where everything goes (default: build/demo; it is emptied first)
set -euo pipefail
cd "$(dirname "$0")/../../.."
export PATH="$PWD/$1:$PATH" LC_ALL=C.UTF-8 GIT_CONFIG_NOSYSTEM=1
here=tools/recipes/demo
dir=${DEMO_DIR:-build/demo}
steps=${DEMO_STEPS:-1500}
# Some held-out names that people know; the first that are continued.
asked='Illinois River|Mojave Desert|capital of Indonesia|James Clerk Maxwell|Lake Winnipeg'
start=$(date +%s)
bold= dim= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$(printf '\033[1m') dim=$(printf '\033[2m') plain=$(printf '\033[0m')
fi
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
# A command as it could be typed.
show() {
    local word line=
    for word; do
        case $word in *[!A-Za-z0-9_./:=,+%-]*) line="$line '$word'" ;; *) line="$line $word" ;; esac
    done
    printf '%s$%s%s\n' "$dim" "$line" "$plain" >&2
}
run() { show "$@"; "$@"; }
size() { du -sh "$1" | cut -f1; }

rm -rf "$dir"
mkdir -p "$dir"

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
wc -l "$dir"/train.jsonl "$dir"/eval.jsonl | sed '$d'
sed -n 1,2p "$dir/eval.jsonl" | cut -c 1-150

say "2. The base model"
if [ -n "${DEMO_MODEL:-}" ]; then
    base=$DEMO_MODEL
else
    base=$dir/base
    run ckpt-train --init $here/small.json --tokenizer $here/tokenizer --init-only -o "$base"
fi
run ckpt-inspect --tree "$base" | sed -n 1,6p

say "3. Train on two ZeRO-3 ranks, merging each checkpoint as it appears"
part() { echo $((steps / $1 > 0 ? steps / $1 : 1)); }
run ckpt-train --model "$base" --train-file "$dir/train.jsonl" --eval-file "$dir/eval.jsonl" \
    --nproc 2 --zero-stage 3 --packing --max-seq-length 128 --per-device-train-batch-size $batch \
    --per-device-eval-batch-size 32 --learning-rate "${DEMO_LR:-4e-3}" --warmup-steps 20 --lr-scheduler-type cosine \
    --weight-decay 0.01 --max-steps "$steps" --logging-steps "$(part 15)" --eval-steps "$(part 5)" --save-steps "$(part 2)" \
    -o "$dir/run" | run ckpt-merge --verify | tee "$dir/merged.txt"
checkpoint=$dir/run/checkpoint-$steps
merged=$(tail -n 1 "$dir/merged.txt")

say "4. What the run left behind"
run ckpt-inspect --plot "$checkpoint"
run ckpt-inspect --html "$dir/run.html" "$checkpoint"

say "5. Against the base: the loss of held-out rows, and what both say of some of them"
run ckpt-eval --base "$base" --eval-file "$dir/eval.jsonl" --generate 5 --max-new-tokens 28 --do-sample \
    --temperature 0.7 --top-p 0.8 --repetition-penalty 1.1 --seed "${DEMO_SEED:-1}" --html "$dir/answers.html" "$merged" | tee "$dir/scores.txt"

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

# Of the base, then of the trained model.
score() { awk -v row="$1" -v column="$2" '$2 ~ /^[0-9.]+$/ && ++n == row { print $column }' "$dir/scores.txt"; }
say "Done in $(($(date +%s) - start)) s"
cat <<END
loss on held-out rows: $(score 1 2) -> $(score 2 2) after $steps steps (perplexity $(score 1 3) -> $(score 2 3))

$(size "$dir/run")	$dir/run	checkpoints of both ranks, and what was merged of each
$(size "$merged")	$merged	a model directory, as transformers loads it
$(size "$dir/hub.git")	$dir/hub.git	a git repository with it, its weights in LFS
$(size "$dir/run.html")	$dir/run.html	the run as a page: open it in a browser
$(size "$dir/answers.html")	$dir/answers.html	what base and model answer, side by side

What next:
  $1/ckpt-eval --prompt "Colorado River" --do-sample --top-p 0.8 --temperature 0.7 $merged
  DEMO_MODEL=bloom-560m DEMO_DATA=my.jsonl make demo    # a model and texts of your own
  man ./man/ckpt-train.1                                # and its siblings
END
