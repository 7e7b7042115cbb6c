# What ckpt-formats(5) says is refused, and how.
. "$(dirname "$0")/lib.sh"
mkdir "$T/in" "$T/out"
# refused STATUS WORDS NAME PATH - inspected and merged: that status, those words, nothing written.
refused() {
    expect_says "$1" "$3 is not inspected" "$2" ckpt-inspect "$4"
    expect_says "$1" "$3 is not merged" "$2" ckpt-merge -q -o "$T/out/x.safetensors" "$4"
    t "$3: nothing is written" [ -z "$(ls -A "$T/out")" ]
}
# made NAME BYTES WORDS - the same for a file of these bytes, as printf writes them.
made() { printf "$2" > "$T/in/$1"; refused 65 "$3" "$1" "$T/in/$1"; }
made pointer 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n' 'a Git LFS pointer'
made page.safetensors '<!DOCTYPE html><html><body>404</body></html>' 'an HTML page'
made empty.pt '' 'is empty'
made x.pt.gz '\x1f\x8b\x08\x00\x00\x00\x00\x00' 'begins as compressed'
made x.zst '\x28\xb5\x2f\xfd\x00\x00\x00\x00' 'damaged'
made x.7z '7z\xbc\xaf\x27\x1c\x00\x00' 'a 7z archive'
made x.gguf 'GGUF\x03\x00\x00\x00' 'the number of tensors needs 8 bytes at 8, the file has 8'
made old.gguf 'GGUF\x01\x00\x00\x00' 'GGUF version 1, 2 and 3 are read'
made x.parquet 'PAR1\x15\x04\x15\x00' 'parquet file'
# Formats of other programs: the name, and a hint that says what converts them.
foreign() { refused 65 "$1, which is not read" "$2" "$3"; t "$2: what converts it" grep -q '^hint: ' "$T/.err"; }
bytes() { printf "$2" > "$T/in/$1"; foreign "$3" "$1" "$T/in/$1"; }
folder() { mkdir -p "$T/in/$1"; for f in $3; do mkdir -p "$T/in/$1/$(dirname "$f")"; echo x > "$T/in/$1/$f"; done; foreign "$2" "$1" "$T/in/$1"; }
bytes model.onnx '\x08\x07\x12\x07pytorch\x1a\x052.1.0' 'an ONNX model'
bytes graph '\x08\x07\x12\x07pytorch\x1a\x052.1.0' 'an ONNX model'
bytes x.tflite '\x1c\x00\x00\x00TFL3\x00\x00' 'a TFLite model'
bytes x.pte '\x1c\x00\x00\x00ET12\x00\x00' 'an ExecuTorch program'
bytes x.mlmodel '\x08\x05\x12\x02\x0a\x00' 'a CoreML model'
bytes ggml.bin 'lmgg\x00\x7d\x00\x00' 'an old ggml file'
bytes ggmf.bin 'fmgg\x01\x00\x00\x00' 'an old ggml file (ggmf)'
bytes ggjt.bin 'tjgg\x03\x00\x00\x00' 'an old ggml file (ggjt)'
bytes flax_model.msgpack '\x81\xa6params\x80' 'Flax weights in msgpack'
bytes x.h5 '\x89HDF\r\n\x1a\n\x00\x00' 'an HDF5 file, of Keras or another program'
bytes saved_model.pb '\x08\x01\x12\x00' 'the graph of a TensorFlow SavedModel'
folder saved 'a TensorFlow SavedModel' 'saved_model.pb variables/variables.index'
folder tf 'a TensorFlow checkpoint' 'checkpoint model.ckpt-1.index model.ckpt-1.data-00000-of-00001'
folder keras 'a Keras model' 'metadata.json config.json model.weights.h5'
folder flax "transformers' Flax weights in msgpack" 'config.json flax_model.msgpack'
folder old-tf "transformers' TensorFlow weights" 'config.json tf_model.h5'
folder orbax 'an Orbax checkpoint' '_CHECKPOINT_METADATA manifest.ocdbt d/x'
folder x.mlpackage 'a CoreML package' 'Manifest.json Data/com.apple.CoreML/model.mlmodel'
folder iter_0000001 'a Megatron-LM checkpoint in parts of a model' 'mp_rank_00/model_optim_rng.pt'
folder onnx 'a folder of ONNX models' 'config.json model.onnx'
mkdir -p "$T/in/megatron/iter_0000001"; echo 1 > "$T/in/megatron/latest_checkpointed_iteration.txt"
refused 65 "the root of Megatron-LM's checkpoints" 'a Megatron root' "$T/in/megatron"
refused 77 'object.npy: is an array of Python objects' 'an array of objects' "$G/numpy/object.npy"
refused 77 'b.npy: is an array of Python objects' 'one in an archive' "$G/numpy/object.npz"
refused 65 'elements of |V2 are not read' 'elements that numpy does not know' "$G/numpy/void.npy"
mkdir "$T/in/dir"; refused 65 'the directory is empty' 'an empty directory' "$T/in/dir"
refused 65 'such addresses are not read' 'an address' 'gs://bucket/model'
# The containers of before 1.6 open, and hold what torch loads from them.
for f in legacy legacy_t24 legacy_proto4; do
    expect 0 "$f.pt holds what torch loads" ckpt-inspect --diff "$G/torch/$f.expected.safetensors" "$G/torch/$f.pt"
done
# Tensors of kinds that are not read are named, and do not keep the others from being read.
expect 0 "kinds that are listed only" ckpt-inspect --stats --verify "$G/torch/unread.pt"
t "by what they are" bash -c "[ \$(grep -cE '^(coo +sparse_coo|csr +sparse_csr|nested +nested|meta +meta|q4 +QUInt4x2) ' $T/.out) = 5 ]"
t "the others read to their end" prints "tensors that read to their end: 6"
expect 65 "they are not merged" ckpt-merge -q -o "$T/out/x.safetensors" "$G/torch/unread.pt"
t "but named" says "unread.pt: tensor coo: of kind sparse_coo, which is not read"
expect 65 "nor are quantised ones of 4 bits" ckpt-merge -q -o "$T/out/x.safetensors" --include q4 "$G/torch/unread.pt"
t "by name" says "tensor q4: of kind QUInt4x2, which is not read"
expect 0 "nor do they stop the others" ckpt-merge -q -o "$T/out/x.safetensors" --include w --include b "$G/torch/unread.pt"
t "which are whole" ckpt-inspect -q --diff "$T/out/x.safetensors" "$G/torch/unread.expected.safetensors"
rm "$T/out/x.safetensors"
# A class that is in no table: its file is looked at, and not loaded.
expect 77 "a class of the user" ckpt-inspect "$G/torch/param_od.pt"
t "tensors are listed beside it" bash -c "grep -qE '^weight +F32 +\[3, 2\]' $T/.out && grep -q '^refused: .*__main__.Sub' $T/.out"
refused 77 '__main__.Sub' 'a class of the user' "$G/torch/param_od.pt"
for f in module module_legacy; do
    refused 77 'asks for torch.nn.modules.container.Sequential' "$f.pt" "$G/torch/$f.pt"
    t "what to do about it" says 'a module was saved: load it where its code is, and save its state_dict()'
    t "its tensors are listed" bash -c "ckpt-inspect $G/torch/$f.pt 2>/dev/null | grep -q '^_modules.0._parameters.weight *F32 '"
done
# A model is told for what it is where one is to be trained or evaluated, too.
no_model() {
    expect "$1" "training $3" ckpt-train --model "$3" --train-file "$G/lora/bloom-qkv/rows.jsonl" --max-steps 1 -o "$T/out/run"
    t "training $3: why" says "$2"
    expect_says "$1" "evaluating $3" "$2" ckpt-eval --prompt a "$3"
    t "$3: nothing is written" [ -z "$(ls -A "$T/out")" ]
}
mkdir "$T/in/beside"; cp "$T/in/model.onnx" "$T/in/beside"; cp "$G/lora/bloom-qkv/base/config.json" "$T/in/beside"
no_model 65 'model.onnx: is an ONNX model, which is not read' "$T/in/model.onnx"
t "and what converts it" says 'hint: onnx.numpy_helper'
no_model 65 'model.onnx: is an ONNX model, which is not read' "$T/in/beside/model.onnx"
no_model 65 'beside: is a folder of ONNX models, which is not read' "$T/in/beside"
no_model 65 'saved: is a TensorFlow SavedModel, which is not read' "$T/in/saved"
no_model 65 'an HTML page' "$T/in/page.safetensors"
no_model 77 'asks for torch.nn.modules.container.Sequential' "$G/torch/module_legacy.pt"
for p in 2 3 4 5; do
    t "arrays of numpy, protocol $p" bash -c "ckpt-merge -q --exclude arrays.c16 -o $T/a$p.safetensors $G/torch/arrays_p$p.pt && ckpt-inspect -q --diff $T/a$p.safetensors $G/torch/arrays.expected.safetensors"
done
LEGACY=$G/deepspeed/0.19-s1_w2_legacy
t "checkpoint_serialization: false is merged" ckpt-merge -q -o "$T/legacy.safetensors" "$LEGACY/ckpt"
expect 0 "and holds what DeepSpeed's converter gives" ckpt-inspect --diff "$LEGACY/expected.safetensors" "$T/legacy.safetensors"
expect 0 "a TorchScript module's tensors are those of its state dict" ckpt-inspect --compare "$G/torch/script.expected.safetensors" "$G/torch/script.pt"
t "and it is called that" bash -c "ckpt-inspect $G/torch/script.pt | grep -qx 'container: TorchScript'"
expect 0 "its compressed code is proved" ckpt-inspect --verify "$G/torch/script.pt"
refused 77 'bare pickle' 'a bare pickle' "$G/malicious/pt/bare_pickle_call.pt"
refused 65 'compressed' 'a compressed member' "$G/malicious/pt/zip_deflate.pt"
refused 65 'overlaps' 'an overlapping member' "$G/malicious/pt/zip_overlap.pt"
refused 65 'appears twice' 'a member that appears twice' "$G/malicious/pt/zip_dup_entry.pt"
DS=$G/deepspeed/0.19-s3_w2_bf16/ckpt
cp -r "$DS" "$T/in/gap"; rm "$T"/in/gap/global_step4/*rank_0_*optim_states.pt
refused 65 'rank 0 of 2: its zero_pp_rank_0_mp_rank_00_optim_states.pt is absent' 'a rank missing' "$T/in/gap"
cp -r "$DS" "$T/in/last"; rm "$T"/in/last/global_step4/*rank_1_*
refused 65 'rank 1 of 2: its zero_pp_rank_1_mp_rank_00_model_states.pt is absent' 'the last rank missing' "$T/in/last"
cp -r "$DS" "$T/in/tp"; cp "$T"/in/tp/global_step4/zero_pp_rank_0_mp_rank_00_model_states.pt "$T/in/tp/global_step4/mp_rank_01_model_states.pt"
refused 65 'of a tensor-parallel checkpoint' 'a tensor-parallel run' "$T/in/tp"
DCP=$G/fsdp/2.15-fsdp2_w2/dcp
cp -r "$DCP" "$T/in/dcp1"; rm "$T/in/dcp1/__1_0.distcp"
refused 65 '__1_0.distcp is not there' 'a distributed checkpoint without a rank' "$T/in/dcp1"
cp -r "$DCP" "$T/in/dcp2"; rm "$T/in/dcp2/.metadata"
refused 65 'has no .metadata' 'a distributed checkpoint without its index' "$T/in/dcp2"
cp -r "$DCP" "$T/in/dcp3"; sed -i 's/__0_0.distcp/..\/..\/..\/etc/' "$T/in/dcp3/.metadata"
refused 77 'no clean relative path' 'a path out of a distributed checkpoint' "$T/in/dcp3"
ckpt-merge -q -o "$T/out/dcp.safetensors" "$DCP" >/dev/null
t 'a distributed checkpoint merges to the live weights' ckpt-inspect -q --diff "$T/out/dcp.safetensors" "$G/fsdp/2.15-fsdp2_w2/expected.safetensors"
t 'a distributed checkpoint is written' ckpt-merge -q --to dcp --optimizer keep --tied keep --verify -o "$T/out/dcp" "$DS"
t 'it has an index' [ -f "$T/out/dcp/.metadata" ]
t 'and the same values' ckpt-inspect -q --compare "$T/out/dcp" "$DS"
expect 73 'a directory that exists is not written over' ckpt-merge -q --to dcp -o "$T/out/dcp" "$DS"
t 'a stream is a tar of it' bash -c "ckpt-merge -q --to dcp --tied keep -o - '$DS' | ckpt-merge -q --tied keep -o '$T/out/streamed.safetensors' && ckpt-inspect -q --diff '$T/out/dcp' '$T/out/streamed.safetensors'"
RANKS=$G/fsdp/2.15-fsdp1_w2; rm -rf "$T"/out/*
mkdir "$T/in/fsdp"; cp "$RANKS/sharded_rank1.pt" "$T/in/fsdp/"
refused 65 'but only 1 files of its set' 'a file of a rank without the others' "$T/in/fsdp/sharded_rank1.pt"
refused 65 'their shapes are not in the files' 'flattened parameters without a base' "$RANKS/local_rank0.pt"
ckpt-merge -q --base "$RANKS/full.pt" -o "$T/out/local.safetensors" "$RANKS/local_rank0.pt" >/dev/null
t 'flattened parameters with a base are the live weights' ckpt-inspect -q --diff "$T/out/local.safetensors" "$RANKS/expected.safetensors"
