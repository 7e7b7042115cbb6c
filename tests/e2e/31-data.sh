# Training and evaluation take the same rows from parquet files as from JSON lines.
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
D=$G/parquet/instructions
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {
    ckpt-train -q --model "$T/base" --train-file "$2" --max-seq-length 64 --learning-rate 2e-3 --max-steps 3 \
        --logging-steps 1 --per-device-train-batch-size 8 --nproc "${3:-1}" -o "$T/$1"
}
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl" | grep .; }
t "a run on JSON lines" train lines "$D.jsonl"
t "a run on parquet" train rows "$D.parquet"
t "has the same losses" diff <(losses lines) <(losses rows)
t "a run of two ranks on parquet" train two "$D.parquet" 2
mkdir "$T/dir"; cp "$D.parquet" "$T/dir/train-00000-of-00001.parquet"
t "a run on a directory of parquet files" train dir "$T/dir"
t "has them too" diff <(losses lines) <(losses dir)
score() { ckpt-eval -q --json --eval-file "$1" "$T/lines/checkpoint-3" | grep -oE '"(loss|perplexity)": ?[0-9.e+-]+' | grep .; }
t "scores agree" diff <(score "$D.jsonl") <(score "$D.parquet")
head -c 3000 "$D.parquet" > "$T/cut.parquet"
expect 65 "a cut file" train x "$T/cut.parquet"
t "says so" says "cut.parquet: does not end in PAR1"
expect 73 "no place for the rows" env TMPDIR=/nowhere/at/all ckpt-eval -q --eval-file "$D.parquet" "$T/lines/checkpoint-3"
