#!/usr/bin/env bash
# demo.sh BUILD - the whole pipeline once, on real text, on the CPU: train on two ZeRO-3 ranks,
# merge, inspect, evaluate against the base, push to a local git + LFS remote, clone, verify.
#
#   DEMO_MODEL=DIR    start from this model directory (bloom-560m, say) instead of a fresh one
#   DEMO_DATA=FILE    train on this JSONL instead of WordNet's glosses (every 20th row is held out)
#   DEMO_STEPS=N      optimizer steps (default 240)
#   DEMO_DIR=DIR      where everything goes (default: build/demo; it is emptied first)
set -euo pipefail
cd "$(dirname "$0")/../../.."
export PATH="$PWD/$1:$PATH" LC_ALL=C.UTF-8 GIT_CONFIG_NOSYSTEM=1
here=tools/recipes/demo
dir=${DEMO_DIR:-build/demo}
steps=${DEMO_STEPS:-240}
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
else
    run $here/wordnet.sh "$dir"
fi
wc -l "$dir"/train.jsonl "$dir"/eval.jsonl | sed '$d'
sed -n 1,2p "$dir/train.jsonl" | cut -c 1-150

say "2. The base model"
if [ -n "${DEMO_MODEL:-}" ]; then
    base=$DEMO_MODEL
else
    base=$dir/base
    run ckpt-train --init $here/config.json --tokenizer $here/tokenizer --init-only -o "$base"
fi
run ckpt-inspect --tree "$base"

say "3. Train on two ZeRO-3 ranks, merging each checkpoint as it appears"
run ckpt-train --model "$base" --train-file "$dir/train.jsonl" --eval-file "$dir/eval.jsonl" \
    --nproc 2 --zero-stage 3 --packing --max-seq-length 128 --per-device-train-batch-size 8 \
    --per-device-eval-batch-size 32 --learning-rate "${DEMO_LR:-2e-3}" --warmup-steps 20 --lr-scheduler-type cosine \
    --weight-decay 0.01 --max-steps "$steps" --logging-steps 20 --eval-steps $((steps / 2)) --save-steps $((steps / 2)) \
    -o "$dir/run" | run ckpt-merge --verify | tee "$dir/merged.txt"
checkpoint=$dir/run/checkpoint-$steps
merged=$(tail -n 1 "$dir/merged.txt")

say "4. What the run left behind"
run ckpt-inspect --plot "$checkpoint"
run ckpt-inspect --rng "$checkpoint" | sed -n 1,3p
run ckpt-inspect --html "$dir/run.html" "$checkpoint"

say "5. Against the base, on held-out rows; then some words of its own"
run ckpt-eval --base "$base" --eval-file "$dir/eval.jsonl" "$merged" | tee "$dir/scores.txt"
run ckpt-eval --prompt "Define the noun: river
" --prompt "Define the noun: singer
" --prompt "Define the adjective: quiet
" --max-new-tokens 24 --do-sample --top-p 0.9 --temperature 0.8 --seed 2 "$merged"

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

loss() { awk -v row="$1" '$2 ~ /^[0-9.]+$/ && ++n == row { print $2 }' "$dir/scores.txt"; }
say "Done in $(($(date +%s) - start)) s"
cat <<END
loss on held-out rows: $(loss 1) of the base, $(loss 2) after $steps steps

$(size "$dir/run")	$dir/run	checkpoints of both ranks, and what was merged of each
$(size "$merged")	$merged	a model directory, as transformers loads it
$(size "$dir/hub.git")	$dir/hub.git	a git repository with it, its weights in LFS
$(size "$dir/run.html")	$dir/run.html	the run as a page: open it in a browser

What next:
  $1/ckpt-eval --prompt "Define the noun: hat" --do-sample --top-p 0.9 $merged
  DEMO_MODEL=bloom-560m DEMO_DATA=my.jsonl make demo    # a model and texts of your own
  man ./man/ckpt-train.1                                # and its siblings
END
