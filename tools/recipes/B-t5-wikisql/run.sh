#!/usr/bin/env bash
# B: T5, questions to SQL, straight from parquet: one, two and three workers, each setting's time in one table.  On nodes of their own
# disks each keeps its shards; ckpt-merge --together reads the folders as one.  What is held against the duties comes last.
#
#   MODEL=t5-3b (a git-LFS clone) DATA='wikisql/data/train-*.parquet' OUT=B WORKERS="1 2 3" run.sh [ckpt-train's options]
set -euo pipefail
. "$(dirname "$0")/../begin.sh" B-t5-wikisql hf://google-t5/t5-3b 'wikisql/data/train-*.parquet'
workers=${WORKERS:-1 2 3}

train=(--config "$here/run.yaml" --model "$MODEL" --train-file "$DATA" --data-dir "$OUT/datasets" "$@")
ckpt-train --print-config "${train[@]}" -o "$OUT/none" >"$OUT/config.yaml"
for n in $workers; do
    ckpt-train "${train[@]}" --nproc "$n" -o "$OUT/$n" 2>"$OUT/$n.log" | ckpt-merge -q --verify | ckpt-push -q --create --latest "$HUB"
done
ckpt-inspect --compare $(printf "$OUT/%s " $workers) | tee "$OUT/table.txt"
ckpt-eval --base "$MODEL" --eval-file "$(ls "$OUT"/datasets/*/*/*/test.jsonl)" --generate 4 --max-new-tokens 32 "$OUT/${workers##* }" | tee "$OUT/scores.txt"
"$here/duties.sh" $workers
