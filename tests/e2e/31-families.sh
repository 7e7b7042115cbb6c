# Every family through the tools: scores as transformers', one rank and two agree, what is saved
# scores alike, generations come out.  A3, B1, C1, D2
. "$(dirname "$0")/lib.sh"
M=$G/models
loss() { score "$M/$1/rows.jsonl" "$2"; }
as_reference() { near "$(loss "$1" "$M/$1")" "$(cat "$M/$1/loss.txt")" 1e-6 || { cat "$T/.err"; return 1; }; }
for d in "$M"/*/rows.jsonl; do m=$(basename "$(dirname "$d")"); t "$m scores as in transformers" as_reference "$m"; done

# Four steps on one rank and on two, every weight its third.
train() {
    cat "$M/$1/rows.jsonl" "$M/$1/rows.jsonl" | head -n 4 > "$T/rows.jsonl"
    ckpt-train -q --model "$M/$1" --train-file "$T/rows.jsonl" --learning-rate 1e-3 --max-steps 4 --logging-steps 1 \
        --per-device-train-batch-size $((2 / $3)) --nproc "$3" --zero-stage "$2" --save-steps 2 -o "$T/${4:-$1-$3}" \
        ${5:+--resume-from-checkpoint "$5"}
}
# From the second step on once more: the same bits of weights and moments.
again() {
    train "$1" 0 1 "$1-again" "$T/$1-1/checkpoint-2" &&
        cmp "$T/$1-1/checkpoint-4/model.safetensors" "$T/$1-again/checkpoint-4/model.safetensors" &&
        cmp "$T/$1-1/checkpoint-4/optimizer.pt" "$T/$1-again/checkpoint-4/optimizer.pt"
}
falls() { losses "$1-1" | awk 'NR == 1 { a = $1 } { b = $1 } END { exit !(b < a) }'; }
saved() { ckpt-merge -q -o "$T/$1-merged" "$T/$1-2/checkpoint-4" && near "$(loss "$1" "$T/$1-merged")" "$(loss "$1" "$T/$1-1/checkpoint-4")" 1e-6; }
for m in t5-v10 t5-v11 opt-350m opt-bare gpt2-b qwen2-a qwen3-a phi3-a mixtral-a qwen3moe-a; do
    t "$m trains on one rank" train $m 0 1
    t "$m goes on from a checkpoint to the same bits" again $m
    t "$m trains on two, sharded" train $m 3 2
    t "$m: the same losses" losses_near $m-1 $m-2 1e-6 4
    t "$m: lower at the end" falls $m
    t "$m: merged from shards it scores alike" saved $m
done
sed 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 1/; s/"model_type": "[a-z0-9]*"/"model_type": "frog"/' "$M/llama-a/config.json" > "$T/config.json"
cp -r "$M/llama-a" "$T/frog"; cp "$T/config.json" "$T/frog/config.json"
expect 65 "a family nobody knows" ckpt-eval --eval-file "$M/llama-a/rows.jsonl" "$T/frog"
t "names those that are known" says "bloom, opt, gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, phi3, t5, bert, roberta"
# A head that the file holds beside the embedding it is said to be tied to counts, as in transformers.
cp -r "$M/llama-a" "$T/apart"; sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$T/apart/config.json"
apart() { near "$(loss llama-a "$T/apart")" "$(cat "$M/llama-a/loss.txt")" 1e-6; }
t "a head apart from the embedding counts" apart
expect 0 "with a warning" ckpt-eval --eval-file "$M/llama-a/rows.jsonl" "$T/apart"
t "that says which" says "lm_head.weight differs from the embedding"
t "trained on, it stays apart" bash -c "ckpt-train -q --model $T/apart --train-file $M/llama-a/rows.jsonl --max-steps 1 -o $T/apart-run && grep -q '\"tie_word_embeddings\": false' $T/apart-run/checkpoint-1/config.json"
# An encoder's states of a text; what scores and continues has none.
R=tools/recipes/demo/tokenizer
mkdir "$T/words"        # a tokenizer that fits these models' 256 ids
echo '{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null, "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "x": 5}, "unk_token": "[UNK]"}}' >"$T/words/tokenizer.json"
expect 0 "hidden states" ckpt-eval -q --tokenizer "$T/words" --prompt x --hidden "$T/hidden.safetensors" "$M/bert-a"
layers() { ckpt-inspect --json "$T/hidden.safetensors" | grep -o '"0\.[a-z]*[.0-9]*"' | sort -u | tr -d '"\n'; }
t "of every layer" bash -c '[ "$1" = "$2" ]' - "$(layers)" "0.hidden.00.hidden.10.hidden.20.hidden.30.ids"
expect 73 "not over a file that exists" ckpt-eval -q --tokenizer "$T/words" --prompt x --hidden "$T/hidden.safetensors" "$M/bert-a"
expect 65 "not of a decoder" ckpt-eval -q --tokenizer "$T/words" --prompt x --hidden "$T/none.safetensors" "$M/llama-a"
expect 64 "not without a text" ckpt-eval -q --eval-file "$M/llama-a/rows.jsonl" --hidden "$T/none.safetensors" "$M/bert-a"

# OPT whose norms have neither gain nor bias: transformers' loss, gradients and names; trained, resumed,
# on two ranks; adapters; inspected and merged as any.
M=$G/models/opt-bare
loss() { near "$(score "$M/rows.jsonl" "$M")" "$(cat "$M/loss.txt")"; }
t "the loss is transformers'" loss
train() {
    local out=$1 stage=$2 ranks=$3; shift 3
    ckpt-train -q --model "$M" --train-file "$M/rows.jsonl" --max-steps 4 --save-steps 2 --learning-rate 1e-2 \
        --per-device-train-batch-size $((2 / ranks)) --nproc "$ranks" --zero-stage "$stage" -o "$T/$out" "$@"
}
for how in "0 1" "3 3"; do
    grads() { ckpt-train -q --model "$M" --train-file "$M/rows.jsonl" --per-device-train-batch-size $((3 / $2)) --max-steps 1 \
        --nproc "$2" --zero-stage "$1" --dump-grads "$T/$1.grads" -o "$T/grads-$1"; }
    t "gradients are written ($how)" grads $how
    golden() { part grad "$M/golden.safetensors" "$T/wanted" && within "$T/$1.grads" "$T/wanted" 2e-5; }
    t "they are transformers'" golden $how
done
names() { ckpt-inspect --json "$1" | grep -o '"name": "[^"]*"' | sort; }
same_names() { diff <(names "$M") <(names "$T/$1/checkpoint-4") && ! names "$T/$1/checkpoint-4" | grep -q norm; }
again() { rewind "$1" "$1-again" && train "$1-again" "${@:2}" --resume-from-checkpoint latest &&
    cmp "$T/$1/checkpoint-4/model.safetensors" "$T/$1-again/checkpoint-4/model.safetensors"; }
t "it trains" train one 0 1
t "what is saved has transformers' names" same_names one
t "resumed, the same bits" again one 0 1
t "on two ranks" train two 3 2
whole() { ckpt-merge -q -o "$T/$1-merged" "$T/$1/checkpoint-4"; }
shards_again() { rewind two two-again && train two-again 3 2 --resume-from-checkpoint latest &&
    whole two && whole two-again && cmp "$T/two-merged/model.safetensors" "$T/two-again-merged/model.safetensors"; }
t "resumed there and merged, the same bits" shards_again
merged_names() { diff <(names "$M") <(names "$T/two-merged") && [ -n "$(score "$M/rows.jsonl" "$T/two-merged")" ]; }
t "with transformers' names" merged_names
expect 0 "a plan" ckpt-train --model "$M" --train-file "$M/rows.jsonl" --dry-run -o "$T/none"
t "it is inspected" ckpt-inspect "$M"
t "an adapter on it" train lora 0 1 --lora-rank 2 --target-modules all-linear --lora-bias all
t "from its modules alone" bash -c "! ckpt-inspect '$T/lora/checkpoint-4' | grep -q norm"
gone() { cp -rL "$M" "$T/odd" && chmod -R u+w "$T/odd" && sed -i 's/"layer_norm_elementwise_affine": false/"layer_norm_elementwise_affine": true/' "$T/odd/config.json" &&
    ckpt-eval -q --eval-file "$M/rows.jsonl" "$T/odd"; }
expect_says 65 "a config that promises gains" "layer_norm" gone
