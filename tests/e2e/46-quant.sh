# Quantised weights: values wherever values are used, as they are in a copy, named where they are not read.
. "$(dirname "$0")/lib.sh"
Q=$G/quant L=$G/lora/bloom-qkv
merge() { ckpt-merge -q --provenance none "$@"; }
same() { ckpt-inspect --diff "$@" >"$T/diff" 2>&1 || { cat "$T/diff"; return 1; }; }

for q in fp8 ct-float ct-int8 ct-pack gptq gptq-sym gptq-v2 awq; do
    t "$q into values" merge --verify --dtype 'norm.weight=bf16' -o "$T/$q" "$Q/$q"
    t "$q: those of its library" same "$Q/$q.expected.safetensors" "$T/$q"
    t "$q: packed and values are the same model" same "$Q/$q" "$T/$q"
    t "$q: config.json no longer says so" bash -c "! grep -q quantization_config '$T/$q/config.json'"
    t "$q: a copy stays as it is" merge --verify -o "$T/$q-copy" "$Q/$q"
    t "$q: codes, scales and config" bash -c "cmp '$Q/$q/config.json' '$T/$q-copy/config.json' && cmp '$Q/$q/model.safetensors' '$T/$q-copy/model.safetensors' ||
        [ \$(ckpt-inspect --json '$Q/$q' | grep -c I32) = \$(ckpt-inspect --json '$T/$q-copy' | grep -c I32) ]"
    expect_prints 0 "$q: a look" "quantised: " ckpt-inspect "$Q/$q"
done
expect 0 "a copy says what it keeps" ckpt-merge -o "$T/said" "$Q/fp8"
t "by name" says "8 tensors are quantised (FP8 with block scales) and stay so; --dtype writes their values"
expect_prints 0 "values of one" "dtype: BF16" ckpt-inspect --tensor one.weight "$Q/fp8"
expect_prints 0 "a scale by its name" "dtype: F32" ckpt-inspect --tensor one.weight_scale_inv "$Q/fp8"

# A model of FP8 is the model of its values, whatever is done with it.
M=$Q/model V=$Q/model.expected
t "values of a model" merge --dtype bf16 -o "$T/m" "$M"
t "dequantised weights are the expected ones" same "$V" "$T/m"
t "an adapter is folded into values" merge --adapter "$L/adapter" -o "$T/ma" "$M"
merge --adapter "$L/adapter" -o "$T/va" "$V" >/dev/null
t "as into the values themselves" same "$T/va" "$T/ma"
t "config.json says bf16, without quantisation" bash -c "grep -q bfloat16 '$T/ma/config.json' && ! grep -q quantization '$T/ma/config.json'"
t "an average is one of values" merge --average -o "$T/av" "$M" "$V"
t "of the same model" same "$V" "$T/av"
t "GGUF has values" merge --to gguf --dtype bf16 -o "$T/m.gguf" "$M"
merge --to gguf --dtype bf16 -o "$T/v.gguf" "$V" >/dev/null
t "a GGUF file has the dequantised values" same "$T/v.gguf" "$T/m.gguf"
a=$(score "$L/rows.jsonl" "$M") b=$(score "$L/rows.jsonl" "$V")
t "evaluation computes with values ($a, $b)" test -n "$a" -a "$a" = "$b"
train() { ckpt-train -q --model "$1" --train-file "$L/rows.jsonl" --max-steps 2 --save-steps 2 --seed 1 -o "$2"; }
t "training begins from values" train "$M" "$T/tm"
train "$V" "$T/tv" >/dev/null 2>&1
t "training ends with the same weights" same "$T/tv/checkpoint-2" "$T/tm/checkpoint-2"
t "what is saved is not quantised" bash -c "! grep -q quantization '$T/tm/checkpoint-2/config.json'"
t "a LoRA on top of it" ckpt-train -q --model "$M" --train-file "$L/rows.jsonl" --lora-rank 2 --max-steps 1 -o "$T/tl"

# pytorch_model.bin may hold arrays, and tensors that are only listed, as a lone file may.
mkdir "$T/bin"; echo '{"model_type":"x"}' > "$T/bin/config.json"; cp "$G/torch/arrays_p2.pt" "$T/bin/pytorch_model.bin"
t "arrays in a model's pickle" merge --exclude arrays.c16 -o "$T/bin.safetensors" "$T/bin"
t "numpy arrays are read" same "$G/torch/arrays.expected.safetensors" "$T/bin.safetensors"
cp "$G/torch/unread.pt" "$T/bin/pytorch_model.bin"
expect 65 "a model with tensors that are only listed" ckpt-merge --exclude q --exclude qc -o "$T/no" "$T/bin"
t "sparse tensors are refused by name" says "tensor coo: of kind sparse_coo, which is not read"

# torch's own quantised tensors are their values, in either container, as a file and as a model.
t "values of torch's own" merge --verify --tied keep -o "$T/own.safetensors" "$G/torch/quantised_legacy.pt"
t "torch's quantised tensors have torch's values" same "$G/torch/quantised.expected.safetensors" "$T/own.safetensors"
cp "$G/torch/quantised.pt" "$T/bin/pytorch_model.bin"
for to in own.pt own-model; do
    t "$to of a model's pickle" merge --tied keep -o "$T/$to" "$T/bin"
    t "$to has the values" same "$G/torch/quantised.expected.safetensors" "$T/$to"
done
merge --dtype bf16 --tied keep -o "$T/own16" "$G/torch/quantised.expected.safetensors" >/dev/null
t "their cast" merge --dtype bf16 --tied keep -o "$T/own16.safetensors" "$T/bin"
t "is that of the values" same "$T/own16" "$T/own16.safetensors"
expect_prints 0 "one of them" "dtype: QI8" ckpt-inspect --tensor row "$G/torch/quantised.pt"
expect 65 "a scheme that torch does not save" ckpt-merge -o "$T/no" "$G/torch/quantised_scheme.pt"
t "is named" says "tensor q: a quantised tensor of torch, per_tensor_symmetric, which is not read"

# What is not read is named wherever a value is used, and copied.
refuse() {
    local name=$1; shift
    expect_says 65 "$name" "quantised by MLX, which is not read" "$@"
}
mkdir "$T/mlx"; cp "$M/model.safetensors" "$T/mlx"
printf '{"model_type": "bloom", "quantization": {"group_size": 64, "bits": 4}}' >"$T/mlx/config.json"
refuse "a cast of what is not read" ckpt-merge --dtype bf16 -o "$T/no" "$T/mlx"
refuse "an adapter on it" ckpt-merge --adapter "$L/adapter" -o "$T/no" "$T/mlx"
refuse "an average with it" ckpt-merge --average -o "$T/no" "$T/mlx" "$V"
refuse "a GGUF of it" ckpt-merge --to gguf -o "$T/no.gguf" "$T/mlx"
refuse "a difference of it" ckpt-inspect --diff "$T/mlx" "$V"
refuse "statistics of it" ckpt-inspect --stats "$T/mlx"
refuse "training it" ckpt-train --model "$T/mlx" --train-file "$L/rows.jsonl" --max-steps 1 -o "$T/no"
refuse "evaluating it" ckpt-eval --eval-file "$L/rows.jsonl" "$T/mlx"
expect_says 0 "a copy of it" "(MLX) and stay so" ckpt-merge -o "$T/mlx2" "$T/mlx"
expect_prints 0 "a look at it" "MLX, which is not read" ckpt-inspect "$T/mlx"
t "nothing was written" test ! -e "$T/no" -a ! -e "$T/no.gguf"
