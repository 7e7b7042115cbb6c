# Training: ranks agree, resuming is bit-exact, at another world too, errors are one line.  A1, C4
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 600 >/dev/null
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
cp $R/config.json "$T/tiny.json"
other_name() { ckpt-train -q --init "$T/tiny.json" --tokenizer $R/tokenizer --init-only -o "$T/tiny" && same_files "$T/tiny" "$T/base"; }
t "whatever the name of the config" other_name
train() {
    local out=$1 stage=$2 ranks=$3; shift 3
    ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 2e-3 \
        --lr-scheduler-type cosine --warmup-steps 2 --weight-decay 0.01 --max-steps 6 --logging-steps 1 --save-steps 3 \
        --per-device-train-batch-size $((12 / ranks)) --nproc "$ranks" --zero-stage "$stage" -o "$T/$out" "$@"
}
t "one rank" train r1 0 1
t "two ranks, stage 0" train r2z0 0 2
t "two ranks, stage 3" train r2z3 3 2
t "three ranks, stage 3" train r3z3 3 3
t "memory by time" train mem 0 2 --memory-log 0.05
t "C4 memory of both ranks" bash -c "[ \$(wc -l < $T/mem/memory.csv) -gt 3 ] && [ \$(wc -l < $T/mem/memory-1.csv) -gt 3 ] && head -1 $T/mem/memory.csv | grep -q '^timestamp, index, name, memory.used .MiB., '"
t "which can be read" bash -c "ckpt-inspect --json '$T/mem/memory.csv' | grep -q '0/memory.used'"
t "C4 compared" bash -c "ckpt-inspect --compare '$T/mem' '$T/r1' | grep -q 'peak MiB'"
t "C4 drawn together" bash -c "ckpt-inspect --compare --plot '$T/mem' '$T/r1' > $T/drawn && grep -q '^loss by step, 1 to 6' $T/drawn && grep -q '^memory.used' $T/drawn && grep -q '^  b  .*r1' $T/drawn"
for run in r2z0 r2z3 r3z3; do t "A1 B3 losses of $run equal one rank's to 1e-6" losses_near r1 $run 1e-6 6; done
resume() { rewind "$1" "$1-again" && train "$1-again" "$2" "$3" --resume-from-checkpoint latest && same_state "$1" "$1-again"; }
t "3 steps, stop, 3 more = 6 steps, bit for bit: stage 0" resume r1 0 1
t "the same: stage 3 on two ranks" resume r2z3 3 2
elastic() { rewind r2z3 el && train el 3 3 --resume-from-checkpoint latest && agree_tail; }
agree_tail() { paste <(losses r1 | tail -3) <(losses el | tail -3) | awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > 1e-6) bad = 1 } END { exit bad }'; }
t "two ranks' checkpoint goes on with three" elastic
cut() {     # both ways from step 3 to 6 on one rank: the shards of two, or those cut for one
    ckpt-merge -q --stage 2 --world 1 -o "$T/cut1" "$T/r2z3/checkpoint-3" >/dev/null || return
    rewind r2z3 way1 && rewind r2z3 way2 || return
    train way1 3 1 --resume-from-checkpoint latest && train way2 3 1 --resume-from-checkpoint "$T/cut1" &&
        same_state way1 way2
}
t "shards that were cut anew go on to the same bits" cut
t "every file of a checkpoint has its manifest's digest" ckpt-inspect --verify "$T/r2z3/checkpoint-6"
t "packing, held-out loss, a limit of checkpoints" ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --eval-file "$T/eval.jsonl" \
    --packing --max-seq-length 64 --max-steps 6 --save-steps 2 --save-total-limit 1 --eval-steps 3 -o "$T/lim"
t "only the newest (and the best) stay" bash -c "[ -d $T/lim/checkpoint-6 ] && [ ! -d $T/lim/checkpoint-2 ]"
expect 65 "other data than the run had" train r1-again 0 1 --resume-from-checkpoint latest --train-file "$T/eval.jsonl"
expect 75 "a run that is told to stop saves first" bash -c "timeout --preserve-status -s TERM 3 ckpt-train -q --model $T/base --train-file $T/train.jsonl --max-seq-length 64 --max-steps 100000 -o $T/term; exit \$?"
[ -n "$(ls -d "$T"/term/checkpoint-* 2>/dev/null)" ] && echo "ok its checkpoint is there" || echo "not ok its checkpoint is there"
t "dry run writes nothing" bash -c "ckpt-train --dry-run --model $T/base --train-file $T/train.jsonl -o $T/dry && [ ! -e $T/dry ]"
printf '{"instruction": "a"}\n' > "$T/bad.jsonl"
expect 65 "a record without its fields" ckpt-train -q --model "$T/base" --train-file "$T/bad.jsonl" -o "$T/x"
head -c 100000 "$T/base/model.safetensors" > "$T/cut.safetensors"; cp -r "$T/base" "$T/cut"; mv "$T/cut.safetensors" "$T/cut/model.safetensors"
expect 65 "a truncated model" ckpt-train -q --model "$T/cut" --train-file "$T/train.jsonl" -o "$T/x"
t "evaluation beside the base" bash -c "ckpt-eval --json --base $T/base --eval-file $T/eval.jsonl --generate 2 --max-new-tokens 4 $T/r1/checkpoint-6 | grep -q perplexity"
t "logits for others to check" bash -c "head -n 3 $T/eval.jsonl > $T/e3.jsonl; ckpt-eval -q --eval-file $T/e3.jsonl --logits $T/l.safetensors $T/r2z3/checkpoint-6 && ckpt-inspect $T/l.safetensors | grep -q row_loss"
cp "$T/l.safetensors" "$T/l.was"
expect 73 "logits that are there" ckpt-eval -q --eval-file "$T/e3.jsonl" --logits "$T/l.safetensors" "$T/r1/checkpoint-6"
t "stay as they were" cmp "$T/l.safetensors" "$T/l.was"
t "unless told" ckpt-eval -q --eval-file "$T/e3.jsonl" --overwrite --logits "$T/l.safetensors" "$T/r1/checkpoint-6"

# How a text is continued is the model's own choice, unless an option says otherwise.
cp -r "$T/r1/checkpoint-6" "$T/says"
say() { echo "{\"eos_token_id\": 2, $1}" > "$T/says/generation_config.json"; }
words() { ckpt-eval -q --json --prompt "Define the noun: cat" "$@" "$T/says" | grep '"who"' | tail -n 1; }
same_words() { [ -n "$1" ] && [ "$1" = "$2" ]; }
say '"max_new_tokens": 5'
short=$(words)
t "the model's own length" same_words "$short" "$(words --max-new-tokens 5)"
t "an option wins" bash -c '[ "$1" != "$2" ]' - "$short" "$(words --max-new-tokens 9)"
say '"max_new_tokens": 9, "do_sample": true, "top_k": 1'
t "drawn from one is the likeliest" same_words "$(words)" "$(words --no-do-sample)"
say '"max_new_tokens": 9, "num_beams": 3, "no_repeat_ngram_size": 2'
t "the model's own search" same_words "$(words)" "$(words --num-beams 3 --no-repeat-ngram-size 2 --max-new-tokens 9)"
say '"guidance_scale": 2.0'
expect_says 65 "a key that is not built" "guidance_scale" ckpt-eval --prompt "Define the noun: cat" "$T/says"
