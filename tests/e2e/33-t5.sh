# T5 on text records: fresh weights, training, going on, one rank and two, scores and generations.  B1, C1, D2
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 60 >/dev/null 2>&1
cat > "$T/t5.json" <<'END'
{"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2,
 "num_heads": 4, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.1, "vocab_size": 4096, "initializer_factor": 0.1,
 "tie_word_embeddings": false, "pad_token_id": 3, "eos_token_id": 2, "decoder_start_token_id": 3}
END
text="--prompt-template {instruction} --completion-template {output} --max-seq-length 48"
t "a fresh model" ckpt-train -q --init "$T/t5.json" --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {
    ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --eval-file "$T/eval.jsonl" --eval-steps 4 $text --learning-rate 5e-3 \
        --max-steps 4 --save-steps 2 --logging-steps 1 --per-device-train-batch-size $((4 / $2)) --nproc "$2" --zero-stage "$3" -o "$T/$1" "${@:4}"
}
t "trains on text" train one 1 0
t "is scored on the way" grep -q eval_loss "$T/one/metrics.jsonl"
t "goes on" train again 1 0 --resume-from-checkpoint "$T/one/checkpoint-2"
t "to the same bits" cmp "$T/one/checkpoint-4/model.safetensors" "$T/again/checkpoint-4/model.safetensors"
t "with the same moments" cmp "$T/one/checkpoint-4/optimizer.pt" "$T/again/checkpoint-4/optimizer.pt"
t "on two ranks, sharded" train two 2 3
t "and goes on there" train two-again 2 3 --resume-from-checkpoint "$T/two/checkpoint-2"
t "to the same bits" bash -c "for d in two two-again; do ckpt-merge -q -o $T/\$d-m $T/\$d/checkpoint-4 || exit 1; done; cmp $T/two-m/model.safetensors $T/two-again-m/model.safetensors"
scores() { ckpt-eval -q --json --eval-file "$T/eval.jsonl" $text "$@"; }
better() {
    awk -v a="$(scores "$T/base" | loss_of)" -v b="$(scores "$T/one/checkpoint-4" | loss_of)" 'BEGIN { exit !(b > 0 && b < a) }'
}
t "scores better than it began" better
answers() { scores --generate 2 --max-new-tokens 6 "$@" "$T/one/checkpoint-4" | grep '"who"' | grep -v '"prompt"\|"reference"'; }
t "answers two records" bash -c '[ "$(echo "$1" | wc -l)" = 2 ]' - "$(answers)"
t "and with beams" bash -c '[ "$(echo "$1" | wc -l)" = 2 ]' - "$(answers --num-beams 3)"
# Lengths of their own for what is read and what is learnt.
tokens() { sed -n 's/.*"num_input_tokens_seen":\([0-9]*\).*/\1/p' "$T/$1/metrics.jsonl" | tail -n 1; }
t "targets of three tokens" train short 1 0 --max-target-length 3 --include-num-input-tokens-seen all
t "of any length" train long 1 0 --include-num-input-tokens-seen all
t "B1 are shorter, the sources not" bash -c "[ $(tokens short) -lt $(tokens long) ]"
t "one longer than what bounds both is refused" bash -c "! ckpt-train -q --model $T/base --train-file $T/train.jsonl --max-seq-length 48 --max-target-length 100 --max-steps 1 -o $T/no 2>&1 | tee /dev/stderr | grep -qv 'bounds both parts'"
expect_says 78 "of a model without an encoder" "the model has no encoder" ckpt-train -q --model "$G/models/bloom-a" --train-file "$G/models/bloom-a/rows.jsonl" --max-steps 1 \
    --max-target-length 4 -o "$T/no"
