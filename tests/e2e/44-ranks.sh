# Ranks share the rows of an evaluation: losses, likelihoods, continuations and files are one rank's, bit by bit.  [D6, E7, C3, X3]
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 200 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 48 --learning-rate 3e-3 --max-steps 3 --save-steps 3 \
    --per-device-train-batch-size 4 --lora-rank 4 --lora-target-modules query_key_value -o "$T/lora" >/dev/null 2>&1
cd "$T" || exit 1
ckpt-merge -q -o model lora >/dev/null 2>&1
head -n 7 eval.jsonl >e.jsonl
for i in 1 2 3 4 5; do printf '{"question": "What is %s?", "choices": ["a river", "one of %s things"], "answer": %s}\n' $i $i $((i % 2)); done >arc.jsonl
# with RANKS NAME [option ...] - an evaluation; its files are NAME.RANKS..., seconds left out.
with() {
    local n=$1 name=$2; shift 2
    ckpt-eval -q --json --device cpu --nproc "$n" "$@" 2>"$name.$n.err" | sed 's/"seconds": [0-9.]*/"seconds": 0/' >"$name.$n"
    return "${PIPESTATUS[0]}"
}
# alike N TEXT NAME [option ...] - what N ranks print is what one prints.
alike() {
    local n=$1 text=$2 name=$3; shift 3
    with 0 "$name" "$@" || cat "$name.0.err"
    with "$n" "$name" "$@"
    t "$text, $n ranks" bash -c "[ -s $name.0 ] && cmp $name.0 $name.$n"
}
draw="--max-new-tokens 8 --min-new-tokens 4 --do-sample --top-p 0.9"
alike 3 "D6 losses beside the base" loss --eval-file e.jsonl --batch-size 2 --base base model
alike 2 "windows of long rows" stride --eval-file e.jsonl --max-seq-length 8 --stride 4 model
alike 2 "an adapter applied in memory" adapter --eval-file e.jsonl --adapter lora --batch-size 2 base
alike 3 "C3 continuations, beside the base's" texts --eval-file e.jsonl --generate 5 --prompt x $draw --base base model
alike 3 "more ranks than rows" few --prompt one --prompt two --max-new-tokens 3 model
alike 2 "X3 a metric of all rows" rouge --eval-file e.jsonl --metric rouge $draw model
alike 3 "a search with beams" beams --eval-file e.jsonl --generate 4 --num-beams 2 --max-new-tokens 4 model
alike 2 "questions with choices" arc --eval-file arc.jsonl --task multiple-choice --batch-size 3 --base base model
alike 2 "several models" both --eval-file e.jsonl base model
for n in 0 2 3; do
    with $n files --eval-file e.jsonl $draw --logprobs 2 --in-order --predictions-out rows.$n --html page.$n --base base model
done
t "E7 a file of rows, in their order" bash -c "[ \$(wc -l <rows.0) = 7 ] && cmp rows.0 rows.2 && cmp rows.0 rows.3"
t "a page" bash -c "cmp page.0 page.2 && cmp page.0 page.3"
t "rows come to standard output" bash -c "ckpt-eval -q --nproc 2 --eval-file e.jsonl $draw --logprobs 2 --predictions-out - --base base model | cmp - rows.0"
t "each choice to a file" bash -c "ckpt-eval -q --task multiple-choice --eval-file arc.jsonl --predictions-out c.0 model && ckpt-eval -q --nproc 2 --task multiple-choice --eval-file arc.jsonl --predictions-out c.2 model && cmp c.0 c.2"
t "data and models on standard input" bash -c "printf '%s\n' base model | ckpt-eval -q --nproc 2 --eval-file e.jsonl --json | sed 's/\"seconds\": [0-9.]*/\"seconds\": 0/' | cmp - both.0 && ckpt-eval -q --nproc 2 --eval-file - --json base model <e.jsonl | sed 's/\"seconds\": [0-9.]*/\"seconds\": 0/' | cmp - both.0"
t "a model's bytes there" bash -c "[ \"\$(ckpt-merge -q -o - model | ckpt-eval -q --nproc 2 --eval-file e.jsonl --tokenizer base --json | grep -o '\"loss\": [0-9.]*')\" = \"\$(ckpt-eval -q --eval-file e.jsonl --json model | grep -o '\"loss\": [0-9.]*')\" ]"
loss() { grep -o '"loss": [0-9.]*'; }
piped() { diff <(ckpt-eval -q "$@" --eval-file e.jsonl --json --base <(ckpt-merge -q -o - --to hf base) <(ckpt-merge -q -o - --to hf model) | loss) <(ckpt-eval -q --eval-file e.jsonl --json --base base model | loss); }
t "models of a shell's <(...), read once for all ranks" piped --nproc 2
t "and for one" piped

# -- one line of error, and its status -----------------------------------------------------------
expect_says 66 "no data" "ckpt-eval: nosuch.jsonl: no such file or directory" ckpt-eval -q --nproc 2 --eval-file nosuch.jsonl model
expect_says 66 "no model" "ckpt-eval: nosuch: no such file or directory" ckpt-eval -q --nproc 2 --eval-file e.jsonl nosuch
t "another one is evaluated after it" bash -c "ckpt-eval -q --nproc 2 --eval-file e.jsonl nosuch model 2>/dev/null | grep -q '^loss'"
expect_says 73 "a file in no folder" "ckpt-eval: nosuch/rows: its folder: No such file or directory" ckpt-eval -q --nproc 2 --prompt x --prompt y --max-new-tokens 2 --predictions-out nosuch/rows model
expect_says 1 "a bound" "model: loss is " ckpt-eval -q --nproc 2 --eval-file e.jsonl --fail-above loss=1 model
expect 0 "one that holds" ckpt-eval -q --nproc 2 --eval-file e.jsonl --fail-worse-than-base 1% --base base --pass-through model
t "the path passes" prints model
expect 64 "states of one rank" ckpt-eval -q --nproc 2 --prompt x --hidden h base
expect_says 78 "a GPU by its number" "needs one rank, there are 2" ckpt-eval -q --nproc 2 --device cuda:0 --prompt x model
killed() {
    ckpt-eval -q --nproc 2 --eval-file e.jsonl --max-new-tokens 2000 --min-new-tokens 1900 --predictions-out "$1" model >/dev/null 2>.err &
    wait_for "[ -e $1.part ]" && "$2" $!; wait $!; echo $? >status
}
one_rank() { kill -9 "$(ps --ppid "$1" -o pid= | tail -n 1)"; }
killed k one_rank
t "a rank that is killed: one line, with its name" bash -c "[ \$(cat status) = 75 ] && grep -v ^hint .err | grep -qE '^ckpt-eval: rank 1 on [^ ]+, process [0-9]+: killed by SIGKILL in: evaluation\$' && [ \$(grep -vc ^hint .err) = 1 ]"
t "nothing speaks of resuming" bash -c "! grep -q resume .err"
t "no rank is left" bash -c "! pgrep -f -- '--predictions-out [k] model'"
interrupted() { kill -INT "$1"; }
killed i interrupted
t "a signal ends all: one line" bash -c "[ \$(cat status) = 75 ] && one=\$(cat .err) && [ \"\$one\" = 'ckpt-eval: stopped by SIGINT before all was done' ]"
