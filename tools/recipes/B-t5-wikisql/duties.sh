#!/usr/bin/env bash
# What B's runs left, held against their duties: duties.sh WORKERS...
. "$(dirname "$0")/../duties.sh"
last=$OUT/${*: -1}
clone_hub
each() { local n; for n in "${workers[@]}"; do "$@" "$OUT/$n" || return 1; done; }
workers=("$@")
plan() {        # WORKERS STATUS - of T5-11b on ranks of 80 GiB
    ckpt-train --dry-run --config "$here/run.yaml" --init "$here/t5-11b.json" --tokenizer "$MODEL" --train-file "$DATA" --per-device-train-batch-size 1 --per-device-eval-batch-size 1 --nproc "$1" --device-memory-limit 80G \
        -o "$OUT/none" >"$tmp/plan" 2>&1; [ $? = "$2" ]
}
assembled() {   # each node's disk has what its ranks wrote; together they are the checkpoint
    local one; one=$(newest "$last")
    rm -rf "$tmp"/node*; mkdir -p "$tmp/node0" "$tmp/node1"
    cp -r "$one" "$tmp/node0/"; cp -r "$one" "$tmp/node1/"
    rm "$tmp"/node0/*/global_step*/*rank_1_mp* "$tmp"/node1/*/global_step*/*rank_0_mp* "$tmp"/node*/*/MANIFEST.json
    ckpt-merge -q -o "$tmp/whole" "$one" && ckpt-merge -q --together -o "$tmp/joined" "$tmp/node0/$(basename "$one")" "$tmp/node1/$(basename "$one")" &&
    ckpt-inspect -q --diff "$tmp/whole" "$tmp/joined"
}
pointer() {     # a clone without its large files
    GIT_LFS_SKIP_SMUDGE=1 git -c protocol.file.allow=always clone -q "$HUB" "$tmp/pointers"
    ! ckpt-merge -q -o "$tmp/no" "$tmp/pointers" 2>"$tmp/why" && has 'LFS pointer' "$tmp/why"
}
viewed() { ckpt-inspect "$(ls $DATA | head -n 1)" >"$tmp/view" && has '^rows: [0-9]+' "$tmp/view" && has '^column ' "$tmp/view" && has '^\{"' "$tmp/view"; }
duty B1 "an encoder and a decoder with relative bias; instruction, input, output; a length for each side" all setting max_seq_length 512 ";" setting max_target_length 128 ";" has '"model_type": *"t5"' "$(newest "$last")/config.json" ";" each losses
duty B2 "straight from parquet, which the viewer shows" all viewed ";" has 'train_file: .*parquet' "$OUT/config.yaml"
duty B3 "bf16 on one to three workers, their times in one table" all setting bf16 true ";" has 'seconds +samples/s' "$OUT/table.txt" ";" [ "$(grep -c "^$OUT/" "$OUT/table.txt")" = $# ]
duty B4 "T5-11b: one GPU is refused with the numbers, three under ZeRO-3 are shown to fit" all plan 1 71 ";" has 'are needed .*weights .*gradients .*optimizer' "$tmp/plan" ";" plan 3 0 ";" has 'memory of a rank: .* of .*MiB' "$tmp/plan"
[ $# -lt 2 ] || duty B5 "each worker's shards on its own disk; together they are the checkpoint" assembled
duty B6 "a git-LFS clone as it is; a pointer instead of data has its own message" pointer
duty B7 "spiece.model alone, with tf_model.h5 beside it; the share of communication in the table" all there "$MODEL/spiece.model" ";" [ ! -e "$MODEL/tokenizer.json" ] ";" [ ! -e "$MODEL/tokenizer_config.json" ] ";" there "$MODEL/tf_model.h5" ";" has 'communication' "$OUT/table.txt"
duty X1 "train | merge | push was one line" [ "$(commits model.safetensors)" -ge 1 ]
duties_end
