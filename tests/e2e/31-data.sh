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
same() { losses "$1" > "$T/a" && losses "$2" > "$T/b" && diff "$T/a" "$T/b"; }
t "has the same losses" same lines rows
t "a run of two ranks on parquet" train two "$D.parquet" 2
mkdir "$T/dir"; cp "$D.parquet" "$T/dir/train-00000-of-00001.parquet"
t "a run on a directory of parquet files" train dir "$T/dir"
t "has them too" same lines dir
score() { ckpt-eval -q --json --eval-file "$1" "$T/lines/checkpoint-3" | grep -oE '"(loss|perplexity)": ?[0-9.e+-]+' | grep .; }
scores() { score "$1" > "$T/a" && score "$2" > "$T/b" && diff "$T/a" "$T/b"; }
t "scores agree" scores "$D.jsonl" "$D.parquet"
head -c 3000 "$D.parquet" > "$T/cut.parquet"
expect 65 "a cut file" train x "$T/cut.parquet"
t "says so" says "cut.parquet: does not end in PAR1"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n' > "$T/pointer.parquet"
expect 65 "a Git LFS pointer" train x "$T/pointer.parquet"
t "says what it is" says "pointer.parquet: is a Git LFS pointer"
expect 73 "no place for the rows" env TMPDIR=/nowhere/at/all ckpt-eval -q --eval-file "$D.parquet" "$T/lines/checkpoint-3"
# What datasets' save_to_disk leaves, and a repository as it lies on the Hub.
train_text() {
    ckpt-train -q --model "$T/base" --train-file "$2" --max-seq-length 64 --max-steps 2 \
        --logging-steps 1 --per-device-train-batch-size 8 -o "$T/$1"
}
t "a run on a saved data set" train_text saved "$G/hf-saved/train"
t "a run on its parquet files" train_text repo "$G/hf-imdb/data/train-*"
t "has the same losses" same saved repo
expect 64 "a data set of two splits" train_text x "$G/hf-saved"
t "says how to name one" says "hint: name one of them, as in $G/hf-saved/train"
expect 64 "a folder with files of two splits" train_text x "$G/hf-imdb"
t "says so" says "files of several splits"
