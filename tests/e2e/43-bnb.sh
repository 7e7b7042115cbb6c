# What bitsandbytes packs: told, passed on, made into values.
. "$(dirname "$0")/lib.sh"
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
