#!/usr/bin/env bash
# C: BLOOM-560m on SQuAD without ZeRO, and under each stage of it, with and without offload, from one ds_config.json.  The settings end
# in one table and one plot; the run of SETTINGS' last word is published.  What is held against the duties comes last.
#
#   MODEL=hf://bigscience/bloom-560m DATA='hf://datasets/rajpurkar/squad/plain_text/train-*' OUT=C SETTINGS="0 1 2 3" run.sh [ckpt-train's options]
set -euo pipefail
. "$(dirname "$0")/../begin.sh" C-bloom-squad-zero hf://bigscience/bloom-560m 'hf://datasets/rajpurkar/squad/plain_text/train-*'
settings=${SETTINGS:-0 1 1-cpu 2 2-cpu 3 3-cpu}

train=(--config "$here/run.yaml" --model "$MODEL" --train-file "$DATA" --data-dir "$OUT/datasets" "$@")
ckpt-train --print-config "${train[@]}" -o "$OUT/0" >"$OUT/config.yaml"
for s in $settings; do
    edit="s/\"stage\": 2/\"stage\": ${s%%-*}/"
    case $s in 3-cpu) edit+='; s/"device": "none"/"device": "cpu"/g' ;; *-cpu) edit+='; s/"offload_optimizer": {"device": "none"/"offload_optimizer": {"device": "cpu"/' ;; esac
    sed "$edit" "$here/ds_config.json" >"$OUT/ds_$s.json"
    ckpt-train "${train[@]}" $([ "$s" = 0 ] || echo "--deepspeed $OUT/ds_$s.json --nproc $NPROC") -o "$OUT/$s" 2>"$OUT/$s.log" | ckpt-merge -q | ckpt-push -q --create --latest --path-in-repo "zero-$s" "$HUB"
done
ckpt-inspect --compare --plot $(printf "$OUT/%s " $settings) | tee "$OUT/table.txt"
ckpt-inspect --compare --html "$OUT/table.html" --overwrite $(printf "$OUT/%s " $settings)
"$here/duties.sh" $settings
