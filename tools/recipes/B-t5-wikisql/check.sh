# The duties of system B, as its runs left them.
rows=$(ckpt-inspect --json "$DATA" | sed -n 's/^ *"rows": \([0-9]*\),.*/\1/p' | head -n 1)
shown() { ckpt-inspect "$DATA" | grep -qE '^instruction +string' && ckpt-inspect "$DATA" | grep -qE '^ *0 +\{"instruction":' && [ "$rows" -gt 0 ]; }
# Seconds a step and the share of communication of each number of workers, in bf16.
table() {
    ckpt-inspect --compare --json "$out"/w? >"$out/table.json" && ckpt-inspect --args "$(newest "$out/w1")" | grep -qi '^bf16 *true' &&
        [ "$(ckpt-inspect --compare "$out"/w? | grep -c "^$out/w[0-9]\|/w[0-9] ")" -ge 2 ] && grep -q '"communication_share": 0' "$out/table.json"
}
plan() {        # all in float32: weights 4, gradients 4, Adam 8 bytes of 11.3 G parameters
    ckpt-train --dry-run --init "$top/tools/recipes/configs/t5-11b.json" --tokenizer "$golden/saved/t5-clone" --train-file "$golden/parquet/instructions.parquet" \
        "${task[@]}" --max-seq-length 64 --per-device-train-batch-size 1 --gradient-checkpointing --device-memory-limit 80G -o "$out/none" "$@"
}
arithmetic() {
    local status=0; plan --nproc 1 >"$out/.plan1" 2>&1 || status=$?
    [ $status = 71 ] && grep -qE '1[67][0-9](\.[0-9]+)? GiB are needed|needed.*1[67][0-9]' "$out/.plan1" || { cat "$out/.plan1"; return 1; }
    plan --nproc 3 --zero-stage 3 || return
}
# Two workers, each with a folder and a GPU of its own, as on two nodes: the parts together are the model of one folder.
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES:-0,1}"
worker() { CUDA_VISIBLE_DEVICES=${gpus[$1]} RANK=$1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port ckpt-train -q "${task[@]}" --config "$system/run.yaml" "${model[@]}" --train-file "$DATA" "${more[@]}" --no-final-model --max-steps 2 -o "$2"; }
weights() { (cd "$1" && sha256sum *.safetensors | grep .); }       # one file, or shards
apart() {
    local port=$((15000 + RANDOM % 15000)) pid one two
    worker 1 "$out/disk1" & pid=$!
    worker 0 "$out/disk0" && wait $pid || return
    one=$(newest "$out/disk0") two=$(newest "$out/disk1")
    ckpt-inspect -q --verify --together "$one" "$two" >/dev/null && ckpt-merge -q --together -o "$out/both" "$one" "$two" && ! ckpt-merge -q -o "$out/half" "$two" 2>/dev/null &&
        rm -rf "$out"/disk[01] && ckpt-train -q "${task[@]}" --config "$system/run.yaml" "${model[@]}" --nproc 2 --train-file "$DATA" "${more[@]}" --no-final-model --max-steps 2 -o "$out/one" &&
        ckpt-merge -q -o "$out/single" "$(newest "$out/one")" && one=$(weights "$out/both") && [ "$one" = "$(weights "$out/single")" ] && rm -rf "$out"/{one,both,single}
}
score() { ckpt-eval -q --json "${task[@]}" --eval-file "$DATA" "$1" | loss_of; }
learns() { awk -v a="$(score "${model[1]}")" -v b="$(score "$(cat "$out/newest")")" 'BEGIN { exit !(b > 0 && b < a) }' && ckpt-inspect "$(cat "$out/newest")" | grep -q 'relative_attention_bias'; }
sources() {     # the model as model.safetensors, as pytorch_model.bin, with spiece.model; a pointer by its name
    local f; for f in model.safetensors pytorch_model.bin; do ckpt-eval -q "${task[@]}" --eval-file "$DATA" --max-eval-samples 2 "$golden/saved/t5-clone/$f" || return; done
    mkdir -p "$out/pointer" && cp "$golden/saved/t5-clone"/{config.json,spiece.model} "$out/pointer" &&
        printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 9\n' 0 >"$out/pointer/model.safetensors" || return
    ckpt-eval -q --prompt x "$out/pointer" 2>"$out/.said" && return 1; grep -q 'Git LFS pointer' "$out/.said"
}
# The clone without tokenizer_config.json, of whose other weights only pointers came: the ids, the loss, and nothing of them is passed on.
as_cloned() {
    local c=$out/as-cloned f; rm -rf "$c"; mkdir "$c" && cp "$golden/saved/t5-clone"/{config.json,spiece.model,model.safetensors} "$c" || return
    for f in tf_model.h5 pytorch_model.bin flax_model.msgpack; do cp "$out/pointer/model.safetensors" "$c/$f"; done
    printf 'the model\nlearns\n' >"$out/texts" && [ "$(ckpt-inspect --encode "$out/texts" "$c" | grep -c '"ids": *\[.*1\]')" = 2 ] && [ "$(score "$c")" = "$(score "$golden/saved/t5-clone")" ] &&
        ckpt-train -q "${task[@]}" --config "$system/run.yaml" --model "$c" --train-file "$DATA" "${more[@]}" --max-steps 2 -o "$out/of-clone" && all "$out/of-clone"/{spiece.model,config.json,model.safetensors} &&
        ! find "$out/of-clone" | grep -E 'h5|pytorch_model|msgpack'
}
all() { local f; for f; do [ -s "$f" ] || { echo "$f: absent"; return 1; }; done; }
viewer() {      # head, tail and shape as pandas prints them
    ckpt-inspect "$DATA" >"$out/.view" && grep -q '  first rows$' "$out/.view" && grep -qE "^$((rows - 1)) +\{" "$out/.view" && tail -n 1 "$out/.view" | grep -qE "^\[$rows rows x [0-9]+ columns\]\$" &&
        ckpt-inspect "$golden"/hf-imdb/data/test-*.parquet | grep -q '^huggingface .*"features"'
}
shares() {      # of each number of workers but one, between 0 and 1
    tr -d '\n' <"$out/table.json" | grep -oE '"ranks": [0-9.]+|"communication_share": [0-9.a-z]+' | awk '/ranks/ { n = $2 + 0; w++ } /share/ && n > 1 { bad += !($2 > 0 && $2 < 1); k++ } END { exit bad || k != w - 1 || k < 1 }'
}
judged() { beside sql_match "${task[@]}" --eval-file "$DATA" --max-eval-samples 100 --metric sql --max-new-tokens 64 "$(cat "$out/newest")"; }
cloned "$hub" "$out/clone"
root() { (cd "$(cat "$out/newest")" && find . -type f | sort | xargs sha256sum) | (cd "$out/clone/w$n" && sha256sum -c --quiet); }
looks() { ckpt-inspect -q "$DATA" "$(newest "$out/w2")" >/dev/null && ckpt-inspect -q --optimizer "$(newest "$out/w2")" >/dev/null; }

duty "(B1)" "T5 learns from instruction and input to output; the loss falls" learns
duty B2 "straight from parquet, whose rows and schema are shown" shown
duty B3 "bf16 on 1, 2 and 3 workers, in one table with their times" table
duty B4 "t5-11b in float32 is refused on one GPU of 80 GB with the numbers, and fits on three with ZeRO-3" arithmetic
duty B5 "each worker saves to its own folder; both together merge to the model of one folder" apart
duty B6 "model.safetensors, pytorch_model.bin, spiece.model of a clone; a pointer has its own message" sources
duty B7 "spiece.model alone, other weights as pointers; head, tail, [rows x columns], metadata; the share of communication by workers" eval 'as_cloned && viewer && shares'
duty X3 "queries that are the same but for case, spaces, quotes and order of conditions, beside the base's; predictions are kept" judged
duty X1 "one line: train, merge, evaluate, publish; the clone has the bytes of what was merged" root
duty X2 "parquet, shards and optimizer are inspected" looks
ticks
