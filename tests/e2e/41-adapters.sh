# ckpt-merge with adapters: every kind against PEFT's own merge, weights, refusals.
. "$(dirname "$0")/lib.sh"
# merged.safetensors has the tensors as PEFT's merge_and_unload leaves them, in f32.  Sums of a few
# products in another order differ in the last place of numbers below 1: 2^-22 is the bound.
as_peft() {
    ckpt-inspect --diff "$T/$1" "$G/lora/$1/merged.safetensors" > "$T/diff" 2>"$T/.err"
    awk '/ only in the second|dtype|shape/ { bad = 1 }
         / values / { n++; if ($NF > 2.4e-7) bad = 1 }
         /^equal tensors: / { n += $3 }
         END { exit bad || !n }' "$T/diff" || { cat "$T/diff"; return 1; }
}
changed() { ckpt-inspect --diff "$G/lora/$1/base" "$T/$1" > /dev/null 2>&1; [ $? = 1 ]; }
merge() { ckpt-merge -q --provenance none "$@"; }
for l in bloom-qkv gpt2-conv1d llama-all-linear llama-dora llama-embed llama-patterns llama-tokens t5-qv \
    mixtral-attn mixtral-experts qwen3moe-experts gptoss-experts mixtral-gate qwen2-lora-bias opt-bias-all \
    llama-dora-embed gpt2-dora llama-resized-save llama-resized-tied llama-resized-tokens llama-tied-both \
    mixtral-saved gpt2-saved llama-resized-tied-rows llama-resized-tied-lora llama-tied-rows; do
    t "$l" merge --adapter "$G/lora/$l/adapter" -o "$T/$l" "$G/lora/$l/base"
    t "$l is what PEFT gives" as_peft $l
    t "$l is not its base" changed $l
    t "$l, from the adapter" merge --base "$G/lora/$l/base" -o "$T/$l-2" "$G/lora/$l/adapter"
    t "$l, the same bytes" same_files "$T/$l" "$T/$l-2"
done
t "side files come along" test -e "$T/bloom-qkv/config.json"
cp -r "$G/lora/bloom-qkv/base" "$T/linked"; mv "$T/linked/config.json" "$T/linked/model.safetensors" "$T"; ln -s ../config.json ../model.safetensors "$T/linked"
expect_says 65 "weights behind a link" "hint: $T/linked/model.safetensors is no regular file; --follow-symlinks follows links" merge -o "$T/no-model" "$T/linked"
rm "$T/linked/model.safetensors"; cp "$T/model.safetensors" "$T/linked"
t "a side file behind a link" bash -c "ckpt-merge --provenance none -o $T/linked1 $T/linked 2>$T/.err"
t "is told" grep -q "warning: $T/linked/config.json: not read: no regular file; --follow-symlinks follows links" "$T/.err"
t "followed" merge --follow-symlinks -o "$T/linked2" "$T/linked"
t "it comes along" cmp "$T/config.json" "$T/linked2/config.json"
t "more tokens: config.json counts them" grep -q '"vocab_size": 64' "$T/llama-resized-tokens/config.json"
mkdir "$T/no"
t "a head that the adapter did not tie: config.json says so" grep -q '"tie_word_embeddings": false' "$T/gpt2-saved/config.json"
t "another head than the embedding: config.json says so" grep -q '"tie_word_embeddings": false' "$T/llama-resized-tied-lora/config.json"
t "one with the same rows: it says tied" grep -q '"tie_word_embeddings": true' "$T/llama-resized-tied-rows/config.json"
t "an adapter with more tokens, without those of the head" merge --no-merge --to peft --exclude '*lm_head*' -o "$T/halved" "$G/lora/llama-resized-lora/adapter"
expect_says 65 "gives no model" "model.embed_tokens.weight has 64 rows with the adapter, the head 60" merge --adapter "$T/halved" -o "$T/no/w" "$G/lora/llama-resized-lora/base"
t "a base with an expert less" merge --exclude '*.experts.2.*' -o "$T/fewer" "$G/lora/mixtral-saved/base"
expect_says 65 "a saved stack of other experts" "is not the shape of the base's experts" \
    merge --adapter "$G/lora/mixtral-saved/adapter" -o "$T/no/w" "$T/fewer"
# T5's config.json says tied in any case: a base that stores its head has it apart, another one does not.
B5=$G/lora/t5-qv/base; mkdir "$T/t5" "$T/t5-head"
cp "$B5/config.json" "$T/t5"; cp "$B5/model.safetensors" "$T/t5/model-00001-of-00002.safetensors"
t "a head" merge --include shared.weight --rename shared=lm_head -o "$T/t5/model-00002-of-00002.safetensors" "$B5"
for i in 1 2; do ckpt-inspect --json "$T/t5/model-0000$i-of-00002.safetensors" | grep -o '"name": "[^"]*"' | sed "s/\"name\": \(.*\)/\1: \"model-0000$i-of-00002.safetensors\"/"; done |
    paste -sd, | sed 's/.*/{"metadata": {}, "weight_map": {&}}/' > "$T/t5/model.safetensors.index.json"
cp "$G/lora/t5-qv/adapter/adapter_config.json" "$T/t5-head"
t "another head, of an adapter" merge --include shared.weight --rename shared=base_model.model.lm_head --dtype bf16 -o "$T/t5-head/adapter_model.safetensors" "$B5"
t "T5 with a head of its own gets it" merge --adapter "$T/t5-head" -o "$T/t5-m" "$T/t5"
t "config.json says what it said" same_files "$T/t5/config.json" "$T/t5-m/config.json"
expect_says 65 "T5 without one" "changes one of two tied embeddings of an encoder-decoder" merge --adapter "$T/t5-head" -o "$T/no/w" "$B5"
# Several, with weights: the sum of their changes, whatever the order; taken away again.
A=$G/lora/two-adapters
t "two with weights" merge --adapter "$A/adapter:0.7" --adapter "$A/second:-0.3" -o "$T/two-adapters" "$A/base"
t "two adapters with weights give PEFT's weighted adapter" as_peft two-adapters
t "the first as the input" merge --base "$A/base" --adapter "$A/second:0.5" -o "$T/both" "$A/adapter"
t "one with a weight" merge --adapter "$A/second:0.5" -o "$T/half" "$A/base"
t "merged" merge --adapter "$A/second" -o "$T/whole" "$A/base"
t "half of it taken away" merge --adapter "$A/second:-0.5" -o "$T/half2" "$T/whole"
close_to() { ckpt-inspect --diff "$1" "$2" | awk '/ values / && $NF > 2.4e-7 { exit 1 } / only |dtype|shape/ { exit 1 }'; }
t "leaves half of it" close_to "$T/half" "$T/half2"
t "all of it taken away" merge --adapter "$A/second:-1" -o "$T/none" "$T/whole"
t "leaves the base" close_to "$A/base" "$T/none"
cp -r "$A/second" "$T/second:2"
t "a directory may be called like that" merge --adapter "$T/second:2" -o "$T/named" "$A/base"
t "a complete path is an adapter without a weight" same_files "$T/whole" "$T/named"
# Computed in f32 and rounded once, to what --dtype wants; what rounding to 16 bits loses is told.
t "a base of 16 bits" merge --dtype bf16 -o "$T/narrow" "$A/base"
t "the same values in 32" merge --dtype f32 -o "$T/wide" "$T/narrow"
quiet() { ! grep -q warning "$T/.err"; }
small() { ckpt-merge --provenance none --adapter "$A/adapter:$1" "${@:2}" 2>"$T/.err"; }
t "an adapter into 32 bits" small 0.01 -o "$T/wide1" "$T/wide"
t "nothing is lost" quiet
t "into 16, as 32" small 0.01 --dtype f32 -o "$T/wide2" "$T/narrow"
t "nothing is lost there" quiet
t "the same bytes, though the base has 16" same_files "$T/wide1" "$T/wide2"
t "with a name changed" small 0.01 --dtype 'm.*=f32' --dtype 'lm_head*=f32' --rename model.=m. -o "$T/wide3" "$T/narrow"
t "and back" merge --rename m.=model. -o "$T/wide4" "$T/wide3"
t "the rule is of the new name" ckpt-inspect -q --diff "$T/wide1" "$T/wide4"
t "as f16, rounded once" small 0.01 --dtype f16 -o "$T/half3" "$T/narrow"
t "of 32 bits" merge --dtype f16 -o "$T/half4" "$T/wide1"
t "the same" same_files "$T/half3" "$T/half4"
t "a small one into 16 bits" small 0.01 -o "$T/lossy" "$T/narrow"
t "what is lost is told" grep -q 'warning: BF16 keeps [0-9]* % of the change by the adapter, the rest is lost in rounding; F32 keeps all' "$T/.err"
t "a part of it" small 0.01 --include '*.layers.1.*' -o "$T/part" "$T/narrow"
t "says nothing of the whole" quiet
t "a large one" small 30 -o "$T/large" "$T/narrow"
t "is kept" quiet
mean() { merge --average "$@" "$T/lossy" "$T/large"; }
t "a mean of 16 bits as 32" mean --dtype f32 -o "$T/mean1"
for i in lossy large; do t "$i in 32" merge --dtype f32 -o "$T/$i-32" "$T/$i"; done
t "their mean" merge --average -o "$T/mean2" "$T/lossy-32" "$T/large-32"
t "has the same bytes" same_files "$T/mean1" "$T/mean2"
# One that was trained tied changes the head too, which another one unties.
B2=$G/lora/llama-tied-both; cp -r "$B2/adapter" "$T/apart"; sed -i 's/"ensure_weight_tying": true/"ensure_weight_tying": false/' "$T/apart/adapter_config.json"
t "an embedding without its head" merge --no-merge --to peft --exclude '*lm_head*' -o "$T/apart1" "$T/apart"
t "a tied one beside one that is not" merge --adapter "$B2/adapter:0.5" --adapter "$T/apart1:0.5" -o "$T/tied2" "$B2/base"
t "alone" merge --adapter "$B2/adapter:0.5" -o "$T/tied1" "$B2/base"
t "its head" merge --include model.embed_tokens.weight --rename model.embed_tokens=lm_head -o "$T/head1.safetensors" "$T/tied1"
t "is that of both" merge --include lm_head.weight -o "$T/head2.safetensors" "$T/tied2"
t "the same values" close_to "$T/head1.safetensors" "$T/head2.safetensors"
# Without --base: what the adapter's config names, from here or beside the adapter, or a refusal.
t "LoRA, its base found beside it" ckpt-merge -q --provenance none -o "$T/found" "$G/lora/bloom-qkv/adapter"
t "LoRA, the same bytes again" same_files "$T/found" "$T/bloom-qkv"
cp -r "$G/lora/bloom-qkv/adapter" "$T/alone"
expect 64 "an adapter whose base is not here" ckpt-merge -o "$T/no/w" "$T/alone"
t "the missing base is named" says "$T/alone: an adapter, its base model ../base is no directory here"
t "the hint names --base" says "hint: --base PATH names it"
sed -i 's#"base_model_name_or_path": "../base"#"base_model_name_or_path": null#' "$T/alone/adapter_config.json"
expect_says 64 "an adapter that names no base" "$T/alone: an adapter, and its adapter_config.json names no base model" ckpt-merge -o "$T/no/w" "$T/alone"
expect 0 "an adapter as it is" ckpt-merge -q --no-merge -o "$T/alone.safetensors" "$T/alone"
mkdir "$T/prompt"; sed 's/"LORA"/"PROMPT_TUNING"/' "$T/alone/adapter_config.json" > "$T/prompt/adapter_config.json"
t "a prompt's tensors" ckpt-merge -q --provenance none --rename base_model.model.transformer.=prompt_embeddings. -o "$T/prompt/adapter_model.safetensors" "$T/alone.safetensors"
expect_says 65 "are not merged" "peft_type PROMPT_TUNING is not merged, only LORA" merge --adapter "$T/prompt" -o "$T/no/w" "$A/base"
t "but copied" merge --no-merge -o "$T/prompt2" "$T/prompt"
t "as they are" same_files "$T/prompt" "$T/prompt2"
t "--no-merge writes the adapter's own tensors" bash -c "ckpt-inspect $T/alone.safetensors | grep -q lora_A"
# What the base has no place for is an error, unless it is named.
t "a base without layer 1" merge --exclude 'model.layers.1.*' -o "$T/short" "$G/lora/llama-patterns/base"
expect 65 "its adapter has more" merge --adapter "$G/lora/llama-patterns/adapter" -o "$T/no/w" "$T/short"
t "the missing layers are named" says "the base has no model.layers.1."
named() { merge --exclude 'base_model.model.model.layers.1.*' --adapter "$G/lora/llama-patterns/adapter" "$@"; }
t "named, it is left out" named -o "$T/named1" "$T/short"
t "of a whole base too" named -o "$T/named2" "$G/lora/llama-patterns/base"
t "the other layer is merged" bash -c "ckpt-inspect --compare '$T/llama-patterns' '$T/named2' | grep -q 'layers.1' && ! ckpt-inspect --compare '$T/llama-patterns' '$T/named2' | grep 'layers.0'"
expect 66 "a name that no adapter has" merge --exclude 'base_model.nothing' --adapter "$A/second" -o "$T/no/w" "$A/base"
expect 66 "a name without an adapter" merge --exclude 'base_model.nothing' -o "$T/no/w" "$A/base"
# Adapters as files: PEFT's own, byte by byte; and what a model changed of its base.
for l in bloom-qkv llama-dora qwen3moe-experts llama-resized-tokens; do
    t "$l as an adapter" merge --to peft -o "$T/$l-a" "$G/lora/$l/adapter"
    t "$l has PEFT's files" same_files "$G/lora/$l/adapter" "$T/$l-a"
done
extract() { merge --extract-adapter "$@"; }
for l in bloom-qkv gpt2-conv1d llama-all-linear llama-resized-tied mixtral-experts; do
    t "$l extracted" extract 8 --base "$G/lora/$l/base" -o "$T/$l-e" "$T/$l"
    t "$l again" extract 8 --base "$G/lora/$l/base" -o "$T/$l-e2" "$T/$l"
    t "$l, the same bytes" same_files "$T/$l-e" "$T/$l-e2"
    t "$l folded in" merge --adapter "$T/$l-e" -o "$T/$l-b" "$G/lora/$l/base"
    t "$l is what it was" close_to "$T/$l" "$T/$l-b"
done
t "in bf16, verified" extract 4 --dtype bf16 --verify --base "$G/lora/bloom-qkv/base" -o "$T/e16" "$T/bloom-qkv"
t "--dtype bf16 gives BF16 factors" bash -c "ckpt-inspect $T/e16 | grep -q 'lora_A.weight *BF16'"
t "only some layers" extract 4 --include '*h.0.*' --base "$G/lora/bloom-qkv/base" -o "$T/e0" "$T/bloom-qkv"
t "modules are named one by one" grep -q '"transformer.h.0.self_attention.query_key_value"' "$T/e0/adapter_config.json"
expect 64 "extracted from what" extract 4 -o "$T/w" "$T/bloom-qkv"
expect 64 "not as a model" extract 4 --to hf --base "$G/lora/bloom-qkv/base" -o "$T/w" "$T/bloom-qkv"
expect 65 "from another base" extract 4 --base "$G/lora/llama-embed/base" -o "$T/w" "$T/bloom-qkv"
expect 66 "where nothing changed" extract 4 --base "$G/lora/bloom-qkv/base" -o "$T/w" "$G/lora/bloom-qkv/base"
t "equal models give no adapter" says "the model is its base: nothing differs"
expect 65 "a model is no adapter" merge --to peft -o "$T/w" "$T/bloom-qkv"
t "none of these left anything" test ! -e "$T/w"
expect 64 "a weight that is no number" merge --adapter "$A/second:much" -o "$T/no/w" "$A/base"
expect 65 "lengths are not taken away" merge --adapter "$G/lora/llama-dora/adapter:-1" -o "$T/no/w" "$T/llama-dora"
t "a DoRA adapter is refused a negative weight" says "gives its outputs other lengths, which is not taken away again"
expect 65 "an adapter of another base" merge --adapter "$G/lora/llama-patterns/adapter" -o "$T/no/w" "$G/lora/bloom-qkv/base"
t "the base's missing layer is named" says "the base has no model.layers.0."
expect 65 "and of another size" merge --adapter "$A/adapter" -o "$T/no/w" "$G/lora/llama-all-linear/base"
t "both shapes are named" says "the base has ["
cp -r "$A/adapter" "$T/other"; sed -i 's/"use_qalora": false/"use_qalora": true/' "$T/other/adapter_config.json"
expect 65 "another kind of adapter" merge --adapter "$T/other" -o "$T/no/w" "$A/base"
t "the setting that cannot be merged is named" says "adapters with use_qalora are not merged"
# What makes values that are not finite, of values that are, is refused.
broken() { rm -rf "$T/broken"; cp -r "$A/adapter" "$T/broken"; }
broken; sed -i 's/"lora_alpha": [0-9]*/"lora_alpha": 1e300/' "$T/broken/adapter_config.json"
expect_says 65 "an alpha that f32 does not hold" " is inf with the adapter, which is no finite F32, and " merge --adapter "$T/broken" -o "$T/no/w" "$A/base"
sed -i 's/1e300/1e8/' "$T/broken/adapter_config.json"
t "a base of f16" merge --dtype f16 -o "$T/f16" "$A/base"
expect_says 65 "an alpha whose values f16 does not hold" "which is no finite F16" merge --adapter "$T/broken" -o "$T/no/w" "$T/f16"
t "f32 holds them" merge --adapter "$T/broken" --dtype f32 -o "$T/far" "$T/f16"
broken; printf '\0\0\300\177' | dd of="$T/broken/adapter_model.safetensors" bs=1 seek=$(($(stat -c %s "$T/broken/adapter_model.safetensors") - 4)) conv=notrunc 2>/dev/null
expect_says 65 "a factor with NaN" " is nan with the adapter" merge --adapter "$T/broken" -o "$T/no/w" "$A/base"
broken; sed -i 's/"r": [0-9]*/"r": 0/' "$T/broken/adapter_config.json"
scored() { ckpt-eval -q --adapter "$T/broken" --eval-file "$G/lora/llama-all-linear/rows.jsonl" "$A/base"; }
expect_says 78 "a rank of 0 is no adapter to score" "$T/broken: adapter_config.json: r is 0, 1 to 65536 is wanted" scored
t "nothing is left of refused merges" [ -z "$(ls -A "$T/no")" ]
