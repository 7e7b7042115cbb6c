# GGUF in and out: as llama.cpp has it, back as it was, refusals.
. "$(dirname "$0")/lib.sh"
L=$G/gguf/llama
t "a model to GGUF, verified" ckpt-merge -q --verify -o "$T/l.gguf" "$L"
t "again: the same bytes" bash -c "ckpt-merge -q -o $T/l2.gguf $L && cmp $T/l.gguf $T/l2.gguf"
t "GGUF back to a model directory, verified" ckpt-merge -q --verify -o "$T/back" "$T/l.gguf"
expect 0 "holds what it held" ckpt-inspect --diff "$L" "$T/back"
for f in config.json generation_config.json tokenizer.json tokenizer_config.json; do
    t "$f is what it was" cmp "$L/$f" "$T/back/$f"
done
expect_prints 0 "a look at it" "architecture: llama" ckpt-inspect "$T/l.gguf"
t "names are llama.cpp's" prints "blk.1.attn_q.weight"
expect_prints 0 "its keys" '"llama.attention.head_count_kv": 2,' ckpt-inspect --json "$T/l.gguf"
cp -r "$L" "$T/odd"; printf 'a\377' > "$T/odd/chat_template.jinja"
t "a template that is no UTF-8 is left out" ckpt-merge -q -o "$T/odd.gguf" "$T/odd"
t "q8_0, verified" ckpt-merge -q --verify --to gguf --dtype q8_0 -o "$T/q.gguf" "$L"
expect_prints 0 "blocks are told" "Q8_0" ckpt-inspect "$T/q.gguf"
expect 0 "they are the reference's" ckpt-inspect --diff "$G/gguf/llama.q8_0.gguf" "$T/q.gguf"
expect 0 "what would be written" ckpt-merge --dry-run --dtype '*.mlp.*=q8_0' -o "$T/d.gguf" "$L"
t "a packed tensor is listed by its blocks" grep -qE '^blk.0.ffn_up.weight +Q8_0 ' "$T/.out"
t "where they are asked for" grep -qE '^blk.0.attn_q.weight +BF16 ' "$T/.out"
t "one GGUF file into another, verified" ckpt-merge -q --verify --provenance none --dtype f16 -o "$T/g.gguf" "$G/gguf/llama.q8_0.gguf"
expect_prints 0 "its keys" '"general.file_type": 1,' ckpt-inspect --json "$T/g.gguf"
t "the vocabulary is kept" prints '"tokenizer.ggml.tokens": "string[712]"'
expect 0 "as it was" ckpt-inspect "$T/g.gguf"
t "norms are" grep -qE '^blk.0.attn_norm.weight +F32 ' "$T/.out"
t "matrices are what was asked" grep -qE '^blk.0.attn_q.weight +F16 ' "$T/.out"
t "unchanged" ckpt-merge -q --verify --provenance none -o "$T/g2.gguf" "$G/gguf/llama.q8_0.gguf"
expect 0 "it holds the same blocks" ckpt-inspect --diff "$G/gguf/llama.q8_0.gguf" "$T/g2.gguf"
t "the requantised file has llama.cpp's size" [ "$(stat -c %s "$T/g2.gguf")" = "$(stat -c %s "$G/gguf/llama.q8_0.gguf")" ]
t "types of all kinds" ckpt-merge -q --verify --exclude IQ2_XXS -o "$T/z.gguf" "$G/gguf/types.gguf"
t "one safetensors file of one" ckpt-merge -q --verify -o "$T/l.safetensors" "$T/q.gguf"
expect_prints 0 "with the model's names" "model.layers.0.self_attn.q_proj.weight" ckpt-inspect "$T/l.safetensors"
t "a zoo of types as values" ckpt-merge -q --exclude IQ2_XXS -o "$T/z.safetensors" "$G/gguf/types.gguf"
expect 65 "values that are not worked out" ckpt-merge -q -o "$T/y.safetensors" "$G/gguf/types.gguf"
t "by the name of their blocks" says "the values of IQ2_XXS blocks are not read"
expect_says 64 "q8_0 elsewhere" "goes into a GGUF file, not into hf" ckpt-merge -q --dtype q8_0 -o "$T/no" "$L"
expect 64 "a name of another format" ckpt-merge -q --to hf -o "$T/no.gguf" "$L"
expect 64 "a stream" ckpt-merge -q --to gguf -o - "$L"
expect 65 "a tensor the family has no name for" ckpt-merge -q --rename model.norm=model.gnorm -o "$T/no.gguf" "$L"
t "by its name" says "model.gnorm.weight: llama.cpp's llama has no name for it"
head -c 4000 "$T/l.gguf" > "$T/cut.gguf"
expect 65 "a file cut short" ckpt-inspect "$T/cut.gguf"
t "nothing was left of all that" [ -z "$(ls -A "$T" | grep -E '^no|staging')" ]
# A file that llama.cpp wrote becomes a model with its vocabulary.
t "the model in a file of llama.cpp" ckpt-merge -q -o "$T/foreign" "$G/gguf/llama.q8_0.gguf"
t "a foreign file's model has a tokenizer" bash -c "grep -q '\"ignore_merges\": true' $T/foreign/tokenizer.json && grep -q '\"bos_token\": \"<|begin_of_text|>\"' $T/foreign/tokenizer_config.json"
expect 0 "and is evaluated with it" ckpt-eval --eval-file "$G/half.txt" --max-seq-length 32 --threads 1 "$T/foreign"

# -- bitsandbytes
rm -rf "${T:?}"/*
# What bitsandbytes packs: told, passed on, made into values.
W=$G/bnb/weights.safetensors
expect_prints 0 "a look at packed weights" "packed by bitsandbytes: 7 tensors, " ckpt-inspect "$W"
expect 0 "a look at packed states" ckpt-inspect "$G/bnb/AdamW8bit.pt"
t "inspect names the packed tensors" prints "packed by bitsandbytes: 2 tensors, 8-bit optimizer"
t "they pass as they are" ckpt-merge -q --verify -o "$T/same.safetensors" "$W"
expect 0 "all of them" ckpt-inspect --diff "$W" "$T/same.safetensors"
expect 66 "a pattern of nothing" ckpt-merge -q --dtype 'no.such=f32' -o "$T/no.safetensors" "$W"
t "values" ckpt-merge -q --verify --dtype '*.norm.weight=bf16' -o "$T/v2.safetensors" "$W"
expect 0 "those of the kernels" ckpt-inspect --diff "$G/bnb/weights.expected.safetensors" "$T/v2.safetensors"
for o in AdamW8bit Lion8bit AdEMAMix8bit; do
    t "states of $o" ckpt-merge -q --verify --dtype f32 -o "$T/$o.safetensors" "$G/bnb/$o.pt"
    expect 0 "as torch would keep them" ckpt-inspect --diff "$G/bnb/$o.expected.safetensors" "$T/$o.safetensors"
done
mkdir "$T/m"; cp "$W" "$T/m/model.safetensors"
echo '{"model_type":"x","quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true},"a":1}' > "$T/m/config.json"
t "a model stays what it is" ckpt-merge -q -o "$T/m2" "$T/m"
t "a copy keeps quantization_config" grep -q quantization_config "$T/m2/config.json"
t "or is none any more" ckpt-merge -q --dtype bf16 -o "$T/m3" "$T/m"
t "dequantised weights have no quantization_config" bash -c "! grep -q quantization_config $T/m3/config.json && grep -q '\"a\": *1' $T/m3/config.json"
