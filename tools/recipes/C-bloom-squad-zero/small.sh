# A tiny BLOOM, 28 questions in SQuAD's nesting, samples of 64 tokens; a loss on padding too, as the system has it.
[ ${#model[@]} -gt 0 ] || model=(--model "$golden/saved/bloom")
[ -n "${DATA:-}" ] || { DATA=$out/data/squad.json; words 28 | awk 'BEGIN { printf "{\"version\": \"v2.0\", \"data\": [{\"title\": \"t\", \"paragraphs\": [" }
    { printf "%s{\"context\": %s, \"qas\": [{\"id\": \"q%d\", \"question\": \"What is number %d?\", \"answers\": [{\"text\": \"a %d\", \"answer_start\": 0}]}]}", (NR > 1 ? "," : ""), $0, NR, NR, NR }
    END { print "]}]}" }' >"$DATA"; }
more=(--max-seq-length 64 --gradient-accumulation-steps 2 --per-device-train-batch-size 2 "${more[@]}"); LIMIT=${LIMIT:-9}
