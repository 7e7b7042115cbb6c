#!/usr/bin/env bash
# full.sh SYSTEM - a system (A to E) at full size on this machine's GPUs, without a network: weights of random numbers in the
# published model's shape, data of the right shape, few steps.  STEPS=N, NPROC=N, OUT=DIR; WORKERS and SETTINGS as run.sh has them.
#
# Each ends with the duties that few steps can show; small tokenizers stand in for the published ones.
# Space, at most, in GB: A 180, B 330, C 240 with five settings and 380 with all eight, D 130, E 320.
set -euo pipefail
cd "$(dirname "$0")/../.."
steps=${STEPS:-8} golden=$PWD/tests/golden
export OUT=${OUT:-$PWD/build/full-$1} LIMIT=99 WORSE=10% NPROC=${NPROC:-gpu}
rows=$OUT.jsonl; mkdir -p "$(dirname "$OUT")"
# texts N WORDS - so many lines of so many words, in JSON's quotes.
texts() { awk -v n="$1" -v words="$2" 'BEGIN { srand(7); for (i = 0; i < n; i++) { s = ""; for (j = 0; j < words; j++) s = s (j ? " " : "") "word" int(999 * rand()); print "\"" s "\"" } }'; }
case $1 in
A) system=A-bloomz-imdb INIT=tools/recipes/configs/bloomz-1b1.json TOKENIZER=$golden/saved/bloom
   texts $((16 * steps * 10 / 9 + 2)) 200 | awk '{ printf "{\"text\": %s, \"label\": %d}\n", $0, NR % 2 }' >"$rows"; ARGS="--save-steps $(((steps + 1) / 2)) --device-memory-limit 15G" ;;
B) system=B-t5-wikisql INIT=tools/recipes/configs/t5-3b.json TOKENIZER=$golden/saved/t5-clone rows=$golden/parquet/instructions.parquet ARGS="--max-steps $steps"
   WORKERS=${WORKERS:-1 2} ;;
C) system=C-bloom-squad-zero INIT=tools/recipes/configs/bloom-560m.json TOKENIZER=$golden/saved/bloom
   { texts 32 200; texts 32 60; } | awk '{ printf "{\"id\": \"%d\", \"context\": %s, \"question\": \"What is it?\", \"answers\": {\"text\": [\"a %d\"], \"answer_start\": [0]}}\n", NR, $0, NR }' >"$rows"; ARGS= SETTINGS=${SETTINGS:-} ;;
D) system=D-opt-arxiv-fsdp INIT=tools/recipes/configs/opt-1.3b.json TOKENIZER=$golden/saved/gpt2 SLICE=256
   texts 512 150 | awk '{ printf "{\"id\": \"%d\", \"abstract\": %s}\n", NR, $0 }' >"$rows"; head -n 16 "$rows" >"$OUT.eval.jsonl"; EVAL=$OUT.eval.jsonl ARGS= ;;
E) system=E-lora-sft INIT=tools/recipes/configs/Qwen3-8B.json TOKENIZER=$golden/saved/qwen3
   export BERTSCORE=$OUT.encoder BERTSCORE_LAYER=2; rm -rf "$BERTSCORE"; mkdir "$BERTSCORE"; cp "$golden"/models/bert-a/{config.json,model.safetensors} "$golden"/bertscore/tokenizer* "$BERTSCORE"
   texts 200 220 | awk '{ printf "{\"instruction\": %s, \"output\": \"answer %d\"}\n", $0, NR }' >"$rows"; ARGS="--max-steps $steps --eval-steps $((steps / 2))" ;;
*) echo "usage: full.sh A|B|C|D|E" >&2; exit 64 ;;
esac
export INIT TOKENIZER ARGS DATA=$rows EVAL=${EVAL:-} SLICE=${SLICE:-} WORKERS=${WORKERS:-} SETTINGS=${SETTINGS:-}
exec "tools/recipes/$system/run.sh"
