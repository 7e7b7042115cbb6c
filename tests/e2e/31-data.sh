# Training and evaluation take the same rows from parquet files as from JSON lines.  [B2, E2, E3]
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
D=$G/parquet/instructions
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {
    ckpt-train -q --model "$T/base" --train-file "$2" --max-seq-length 64 --learning-rate 2e-3 --max-steps 3 \
        --logging-steps 1 --per-device-train-batch-size 8 --nproc "${3:-1}" -o "$T/$1"
}
t "a run on JSON lines" train lines "$D.jsonl"
t "B2 a run on parquet" train rows "$D.parquet"
t "B2 JSON lines and parquet give the same losses" same_losses lines rows
t "a run of two ranks on parquet" train two "$D.parquet" 2
mkdir "$T/dir"; cp "$D.parquet" "$T/dir/train-00000-of-00001.parquet"
t "a run on a directory of parquet files" train dir "$T/dir"
t "a directory of parquet files gives the same losses" same_losses lines dir
score() { ckpt-eval -q --json --eval-file "$1" "$T/lines/checkpoint-3" | grep -oE '"(loss|perplexity)": ?[0-9.e+-]+' | grep .; }
scores() { score "$1" > "$T/a" && score "$2" > "$T/b" && diff "$T/a" "$T/b"; }
t "scores agree" scores "$D.jsonl" "$D.parquet"
head -c 3000 "$D.parquet" > "$T/cut.parquet"
expect_says 65 "a cut file" "cut.parquet: does not end in PAR1" train x "$T/cut.parquet"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n' > "$T/pointer.parquet"
expect_says 65 "B6 a Git LFS pointer" "pointer.parquet: is a Git LFS pointer" train x "$T/pointer.parquet"
expect 73 "no place for the rows" env TMPDIR=/nowhere/at/all ckpt-eval -q --eval-file "$D.parquet" "$T/lines/checkpoint-3"
tar cf "$T/rows.tar" -C "$T" pointer.parquet
expect_says 65 "data in an archive" "hint: it is an archive: unpack it" train x "$T/rows.tar"
# What datasets' save_to_disk leaves, and a repository as it lies on the Hub.
train_text() {
    ckpt-train -q --model "$T/base" --train-file "$2" --max-seq-length 64 --max-steps 2 \
        --logging-steps 1 --per-device-train-batch-size 8 -o "$T/$1"
}
t "a run on a saved data set" train_text saved "$G/hf-saved/train"
t "a run on its parquet files" train_text repo "$G/hf-imdb/data/train-*"
t "a saved data set gives the losses of its parquet files" same_losses saved repo
expect_says 64 "a data set of two splits" "hint: name one of them, as in $G/hf-saved/train" train_text x "$G/hf-saved"
expect_says 64 "a folder with files of two splits" "files of several splits" train_text x "$G/hf-imdb"
mkdir "$T/mixed"; for f in more train test; do echo '{"text":"a"}' > "$T/mixed/$f.jsonl"; done
expect_says 64 "and one of none before them" "files of several splits, test.jsonl and train.jsonl" train_text x "$T/mixed"
# Every way to write the same rows, the same losses.
F=$G/data/flat
train_rows() { # NAME FILE [option ...]
    local name=$1 file=$2; shift 2
    ckpt-train -q --model "$T/base" --train-file "$file" --max-seq-length 64 --max-steps 2 --logging-steps 1 \
        --per-device-train-batch-size 4 -o "$T/$name" "$@"
}
t "a run on JSON lines of instructions" train_rows flat "$F/rows.jsonl"
for f in array.json columns.json field-data.json rows.csv rows.tsv bom.csv rows.jsonl.gz; do
    t "a run on $f" train_rows "flat-$f" "$F/$f"
    t "has the same losses" same_losses flat "flat-$f"
done
mkdir "$T/kinds"; cp "$F/rows.jsonl" "$T/kinds/a.jsonl"; printf 'text\na\n' >"$T/kinds/b.csv"; echo notes >"$T/kinds/README.txt"
kinds() { ckpt-train --dry-run --model "$T/base" --train-file "$T/kinds" 2>"$T/said" && grep -qxF "ckpt-train: $T/kinds: files of one kind are read, a.jsonl and its like; left out: b.csv" "$T/said"; }
t "files of another kind in a folder are named" kinds
same_rows() { ckpt-train --dry-run --model "$T/base" --train-file "$F/rows.jsonl" --eval-split test 2>"$T/said" && grep -qF "warning: --eval-split test: $F/rows.jsonl has no splits: evaluations are of the records that are trained on" "$T/said"; }
t "a split of a file that has none is no other data" same_rows
printf '{"prompt": "q", "chosen": "a", "rejected": "b"}\n' >"$T/pairs.jsonl"
printf '{"prompt": "q", "completion": "a", "label": false}\n' >"$T/kto.jsonl"
judged() { ckpt-train --dry-run --model "$T/base" --train-file "$T/kto.jsonl" 2>"$T/said" && grep -qF "has no effect: completions are trained on where it is false, too" "$T/said"; }
t "answers that were judged" judged
expect_says 65 "pairs of preferences" "hint: pairs of preferences are not trained on; what was chosen is, with --prompt-template '{prompt}' and --completion-template '{chosen}'" train_rows x "$T/pairs.jsonl"
printf '{"text": "a b c"}\n{"prompt": "a", "completion": "b"}\n' >"$T/mixed.jsonl"
expect_says 65 "records of several shapes" 'mixed.jsonl: record 2: field "text" is absent or null; there are: prompt, completion' train_rows x "$T/mixed.jsonl"
: >"$T/none.jsonl"
expect_says 65 "an empty file" "none.jsonl: no records to train on" train_rows x "$T/none.jsonl"
t "a split of a folder" train_rows split "$G/hf-imdb" --train-split 'train[:50%]+test' --eval-split test
t "E2 a split of a folder is trained and scored" grep -q eval_loss "$T/split/metrics.jsonl"
t "slices" train_rows slice "$F/rows.jsonl" --start-idx 4 --end-idx 8
sed -n 5,8p "$F/rows.jsonl" > "$T/four.jsonl"
t "the same rows as a file" train_rows four "$T/four.jsonl"
t "D2 a slice gives the losses of its rows" same_losses slice four
t "a shard" train_rows shard "$F/rows.jsonl" --num-shards 7 --shard-index 1 --max-train-samples 4
sed -n 6,9p "$F/rows.jsonl" > "$T/shard.jsonl"
t "the same rows as a file" train_rows sharded "$T/shard.jsonl"
t "a shard gives the losses of its rows" same_losses shard sharded
t "a shard of every seventh row" train_rows strided "$F/rows.jsonl" --num-shards 7 --shard-index 1 --shard-strided
sed -n '2~7p' "$F/rows.jsonl" > "$T/strided-rows.jsonl"
t "the same rows as a file" train_rows every "$T/strided-rows.jsonl"
t "a strided shard gives the losses of its rows" same_losses strided every
expect 78 "a shard that is not there" train_rows x "$F/rows.jsonl" --num-shards 7 --shard-index 7
t "samples of like lengths together" train_rows lengths "$F/rows.jsonl" --train-sampling-strategy group_by_length
expect 78 "but not packed" train_rows x "$F/rows.jsonl" --train-sampling-strategy group_by_length --packing
t "other names for columns" train_rows named "$F/rows.jsonl" --field-mapping '{"prompt": "instruction", "completion": "output"}'
sed 's/"instruction"/"prompt"/;s/"output"/"completion"/' "$F/rows.jsonl" > "$T/named.jsonl"
t "the same names in the file" train_rows renamed "$T/named.jsonl"
t "E2 mapped columns give the losses of renamed ones" same_losses named renamed
printf 'field_mapping:\n  prompt: instruction\n  completion: output\n' > "$T/columns.yaml"
t "other names as a mapping of a run file" train_rows named-file "$F/rows.jsonl" --config "$T/columns.yaml"
t "which is the same" same_losses named named-file
expect_says 78 "a mapping that is no JSON is a wrong setting" "field mapping: json: line 1" train_rows x "$F/rows.jsonl" --field-mapping '{"prompt":'
expect 65 "a column that is not there" train_rows x "$F/rows.jsonl" --field-mapping '{"prompt": "nothing"}'
t "a missing column is named" says 'record 1: no column "nothing" for field "prompt"'
t "samples that lose their beginning" train_rows left "$F/rows.jsonl" --max-seq-length 16 --truncation-side left
# Data that is cut once and kept.
cut() { train_rows "$1" "$F/rows.jsonl" --train-split-ratio 0.8 --data-dir "$T/sets" "${@:2}"; }
t "data cut by ratios" cut cut --eval-steps 1
d="$T/sets/rows.jsonl/default/train=0.8-val=0.1-test=0.1"
t "E3 the cut is stored" test -f "$d/.data_ready"
t "E2 E3 the cut has 24, 3 and 3 rows" [ "$(cat "$d"/{training,validation,test}.jsonl | wc -l) $(wc -l < "$d/training.jsonl")" = "30 24" ]
t "the cut has all rows once" diff <(cat "$d"/*.jsonl | sed -E 's/.*"n":([0-9]+),.*/\1/' | sort -n) <(seq 0 29)
t "the cut's validation part is scored" grep -q eval_loss "$T/cut/metrics.jsonl"
touch -d 2001-01-01 "$d/training.jsonl"
t "a second run" cut again
t "E3 a second run uses the stored cut" [ "$(stat -c %Y "$d/training.jsonl")" -lt 1000000000 ]
t "E3 the second run has the same losses" same_losses cut again
expect_says 78 "another seed" "was made of 30 records with seed 42, not of 30 with seed 7" cut other --seed 7
expect_says 64 "a split that is wrong" 'is wrong at byte' train_rows x "$F/rows.jsonl" --train-split 'train[5'
printf 'a,b\n1,2\n3,4,5\n' > "$T/bad.csv"
expect 65 "a CSV row of too many fields" train_rows x "$T/bad.csv" --prompt-template '{a}' --completion-template '{b}'
t "a bad row is named by file and record" says "bad.csv: record 2: at byte 8: 3 fields"
t "a bad row is skipped with --skip-bad-rows" train_rows skip "$T/bad.csv" --prompt-template '{a}' --completion-template '{b}' --skip-bad-rows 1
# Evaluation takes every option of data that training takes.
data_options() { $1 --help | sed -n '/^ *--data-field/,/^ *--skip-bad-rows/p' | grep .; }
same_options() { data_options ckpt-train > "$T/a" && data_options ckpt-eval > "$T/b" && diff "$T/a" "$T/b"; }
t "training and evaluation have the same options of data" same_options
score() { ckpt-eval -q --json --eval-file "$1" "${@:2}" "$T/flat/checkpoint-2" | grep -oE '"(loss|perplexity)": ?[0-9.e+-]+' | grep .; }
for f in field-data.json rows.csv rows.tsv rows.jsonl.gz; do t "scores of $f agree" scores "$F/rows.jsonl" "$F/$f"; done
agree() { score "${@:2}" > "$T/a" && score "$1" > "$T/b" && diff "$T/a" "$T/b"; }
t "scores of a part" agree "$T/four.jsonl" "$F/rows.jsonl" --eval-split 'train[4:8]'
head -n 4 "$F/rows.jsonl" > "$T/first.jsonl"
t "scores of the first records" agree "$T/first.jsonl" "$F/rows.jsonl" --max-eval-samples 4
t "scores of columns with other names" agree "$T/named.jsonl" "$F/rows.jsonl" --field-mapping '{"prompt": "instruction", "completion": "output"}'
{ sed -n 1,2p "$F/rows.jsonl"; echo '{"instruction": 5}'; sed -n 3,4p "$F/rows.jsonl"; } > "$T/spoilt.jsonl"
expect 65 "a bad row in evaluation" ckpt-eval -q --eval-file "$T/spoilt.jsonl" "$T/flat/checkpoint-2"
t "ckpt-eval names a bad row" says 'spoilt.jsonl: record 3:'
t "ckpt-eval skips a bad row with --skip-bad-rows" agree "$T/first.jsonl" "$T/spoilt.jsonl" --skip-bad-rows 1
# Records that are too long.
long() { # LENGTH WHAT [option ...]
    ckpt-train --device cpu --model "$T/base" -t "$F/rows.jsonl" --max-seq-length "$1" --excess-length-strategy "$2" --max-steps 2 --per-device-train-batch-size 4 \
        --logging-steps 1 --overwrite-output-dir -o "$T/long-$2" "${@:3}"
}
longer=$(long 40 truncate -q --json --dry-run | sed -nE 's/.*"truncated_share": ?([0-9.e-]+).*/\1/p' | awk '{ printf "%d", $1 * 30 + 0.5 }')
t "some records are too long" [ "$longer" -gt 0 -a "$longer" -lt 30 ]
planned() { long 40 drop --dry-run --json 2>"$T/said" | grep -qE "\"rows_dropped\": ?$longer\b" && grep -q "data: .* rows ($longer longer ones are dropped)" "$T/said"; }
t "a plan without them" planned
expect 0 "a run without them, on two ranks" long 40 drop --nproc 2
t "says once how many they are" [ "$(grep -c "$longer of 30 records to train on are dropped: they have more tokens than --max-seq-length 40" "$T/.err")" = 1 ]
expect_says 65 "none is left" "all 30 records have more tokens than --max-seq-length 4, and are dropped" long 4 drop -q
expect_says 65 "a record that is too long" "more tokens than --max-seq-length 40" long 40 raise -q
t "names the ways out" says "hint: --excess-length-strategy drop leaves such records out, truncate cuts them"
expect 0 "none is too long" long 512 raise -q
# Samples that were kept are those of the records.
for i in $(seq 40); do cat "$F/rows.jsonl"; done > "$T/many.jsonl"
keep() { train_rows "$1" "$T/many.jsonl" --max-seq-length 64 --data-cache "$2" "${@:3}"; }
none() { [ -z "$(ls "$CKPT_CACHE/objects" 2>/dev/null | grep ^samples-)" ]; }
t "a run without kept samples" keep off off
t "--data-cache off stores no samples" none
t "a run of one pass" keep auto auto
t "a run of one pass stores no samples by default" none
expect 0 "a run that keeps its samples" keep on on
t "stored samples give the same losses" same_losses off on
kept=$(echo "$CKPT_CACHE"/objects/samples-*)
t "the samples are stored" test -f "$kept"
was=$(stat -c %i "$kept")
t "a run that finds them, on two ranks" keep kept-two auto --nproc 2
t "a run that finds them" keep found auto
t "a run that finds samples has the same losses" same_losses off found
t "leaves them as they are" [ "$(stat -c %i "$kept")" = "$was" ]
t "a packed run of them" keep packed auto --packing
t "and of the records" keep unkept off --packing
t "packed samples give the losses of packed records" same_losses unkept packed
printf x | dd of="$kept" bs=1 seek=40 conv=notrunc status=none
t "a run on a damaged file" keep damaged auto
t "a damaged file of samples gives the same losses" same_losses off damaged
t "the damaged file is removed" none
rm -rf "$CKPT_CACHE"
t "a run of two passes and two ranks" train_rows twice "$T/many.jsonl" --per-device-train-batch-size 300 --max-seq-length 64 \
    --max-steps 0 --num-train-epochs 2 --nproc 2
t "two ranks store the samples once" [ "$(ls "$CKPT_CACHE"/objects/samples-* | wc -l)" = 1 ]
