# One row for each format that is read, and one for each that is written: the values are those
# that the program gives which wrote the file, and those that went in.  A format that the manual
# or ckpt-merge lists and that has no row fails.
. "$(dirname "$0")/lib.sh"
D=$G/deepspeed F=$G/fsdp W=$G/wholes P=$G/torch H=$G/hf-trainer
# reads FORMAT WHAT EXPECTED OPTION... INPUT
reads() {
    local format=$1 what=$2 want=$3; shift 3
    echo "$format" >> "$T/reads"
    rm -rf "$T/o"; mkdir "$T/o"
    ckpt-merge -q --tied keep -o "$T/o/x.safetensors" "$@" >/dev/null 2>"$T/.e"
    alike "$want" "$T/o/x.safetensors"
    if [ $? = 0 ]; then echo "ok read: $what"; else fail "read: $what" "$T/.c" "$T/.e"; fi
}
# alike FIRST SECOND - what the first holds is in the second, to the last bit or as near as $near;
# where only the dtype differs, its numbers are.  The second may hold more.
near=0
alike() {
    ckpt-inspect -q --compare "$1" "$2" >"$T/.c" 2>>"$T/.e"
    awk -v near="$near" '
        /^equal tensors: [1-9]/ { seen = 1 }
        /^tensor /, /^equal tensors/ {
            if (/^tensor |^equal tensors|only in the second/) next
            if ($(NF - 2) ~ /^[0-9.e+-]+$/ && $(NF - 2) + 0 <= near) seen = 1
            else { print; bad = 1 }
        }
        END { exit bad || !seen }' "$T/.c"
}
# writes FORMAT NAME INPUT OPTION... - written, read back by --verify, and equal to its input.
writes() {
    local format=$1 name=$2 input=$3; shift 3
    echo "$format" >> "$T/writes"
    rm -rf "$T/o"; mkdir "$T/o"
    t "write: $format as $name" ckpt-merge -q --verify --tied keep "$@" -o "$T/o/$name" "$input"
    t "write: $format as $name: what went in" alike "$input" "$T/o/$name"
}
# elsewhere FILE TEST - proved by that test of another file.
elsewhere() { t "$2 is tested by $1" grep -qF "$2" "tests/$1"; }

X=$P/shared.expected.safetensors
reads safetensors "a file" "$X" "$X"
reads hf "shards and their index" "$G/hf/sharded/model-00001-of-00002.safetensors" "$G/hf/sharded"
reads hf "pytorch_model.bin" "$G/hf/bin" "$G/hf/bin"
for f in shared noncontig zero_d dtypes state_dict proto2 proto3 proto4_t24 proto5 big_endian no_byteorder_addrkeys legacy legacy_proto4 tar script unread arrays_p2 arrays_p5 training two_models; do
    case $f in proto*) want=$P/$f ;; arrays*) want=$P/arrays ;; *) want=$P/$f ;; esac
    case $f in
    unread) reads torch "$f" "$want.expected.safetensors" --include w --include b "$P/$f.pt" ;;
    arrays*) reads torch "$f" "$want.expected.safetensors" --exclude arrays.c16 "$P/$f.pt" ;;
    *) reads torch "$f" "$want.expected.safetensors" "$P/$f.pt" ;;
    esac
done
for d in "$D"/*/; do
    [ -f "$d/expected.safetensors" ] && reads deepspeed "$(basename "$d")" "$d/expected.safetensors" "$d/ckpt"
done
for d in 2.15-fsdp2_w2 2.15-fsdp2_w2_bf16 2.15-fsdp2_hsdp_w4; do
    for k in dcp dcp_hf; do reads dcp "$d/$k" "$F/$d/expected.safetensors" "$F/$d/$k"; done
    reads dcp "$d/dcp_flat" "$F/$d/expected.safetensors" --rename model.= "$F/$d/dcp_flat"
done
reads dcp "FSDP1's sharded" "$F/2.15-fsdp1_w2/expected.safetensors" "$F/2.15-fsdp1_w2/dcp_sharded"
reads fsdp "full" "$F/2.15-fsdp1_w2/expected.safetensors" "$F/2.15-fsdp1_w2/full.pt"
reads fsdp "ShardedTensor" "$F/2.15-fsdp1_w2/expected.safetensors" "$F/2.15-fsdp1_w2/sharded_rank0.pt"
reads fsdp "flattened, with a base" "$F/2.15-fsdp1_w2/expected.safetensors" --base "$F/2.15-fsdp1_w2/full.pt" "$F/2.15-fsdp1_w2/local_rank0.pt"
reads fsdp "DTensor" "$F/2.15-fsdp2_w2/expected.safetensors" "$F/2.15-fsdp2_w2/dtensor_rank0.pt"
reads fsdp "a mesh of two axes" "$P/mesh_w4/expected.safetensors" "$P/mesh_w4"
reads torch "torch.export" "$P/export.expected.safetensors" "$P/export.pt2"
for f in conj conj_legacy; do reads torch "$f" "$P/conj.expected.pt" "$P/$f.pt"; done
reads checkpoint-N "HF Trainer" "$H/plain_w1/run/checkpoint-4/model.safetensors" "$H/plain_w1/run"
reads checkpoint-N "HF Trainer with DeepSpeed" "$H/ds3_w2_bf16/expected.safetensors" "$H/ds3_w2_bf16/run/checkpoint-4"
reads checkpoint-N "HF Trainer with FSDP" "$F/trainer/expected.safetensors" "$F/trainer/run/checkpoint-4"
reads save_state "accelerate" "$W/expected.safetensors" "$W/accelerate"
reads folders "Ray Train" "$W/expected_steps.safetensors" "$W/ray-train"
reads folders "Tune" "$W/expected_steps.safetensors" "$W/ray-tune"
reads Lightning "Lightning" "$W/expected_ckpt.safetensors" "$W/lightning"
near=2e-6       # sums of products in another order than torch's
for d in "$G"/lora/*/; do
    case $d in */two-adapters/) continue ;; esac           # see 41-adapters.sh
    [ -f "$d/merged.safetensors" ] && reads peft "$(basename "$d")" "$d/merged.safetensors" --base "$d/base" "$d/adapter"
done
near=0
reads quantised "FP8 with block scales" "$G/quant/fp8.expected.safetensors" --dtype bf16 "$G/quant/fp8"
reads numpy "an archive" "$G/numpy/all.expected.safetensors" "$G/numpy/all.npz"
reads numpy "a packed archive" "$G/numpy/all.expected.safetensors" "$G/numpy/packed.npz"
reads numpy "an array" "$G/numpy/one.expected.safetensors" "$G/numpy/one.npy"
reads bitsandbytes "packed weights" "$G/bnb/weights.expected.safetensors" --dtype "l.0.wide.weight=bf16" "$G/bnb/weights.safetensors"
ckpt-merge -q --exclude BF16 -o "$T/types.safetensors" "$G/gguf/types.safetensors" >/dev/null       # as U16 there
reads gguf "every type that is read" "$T/types.safetensors" --exclude 'IQ[123]*' "$G/gguf/types.gguf"
for a in tar tar.zst zip; do
    ckpt-merge -q --to dcp -o "$T/packed.$a" "$X" >/dev/null
    reads archives "$a" "$X" "$T/packed.$a"
    reads archives "$a through a pipe" "$X" - < "$T/packed.$a"
done

R=$D/0.19-s3_w2_bf16/ckpt
writes safetensors x.safetensors "$R"
writes hf x "$R" --max-shard-size 4KB
writes torch x.pt "$R"
writes dcp x "$R" --to dcp --optimizer keep
writes deepspeed x "$R" --to deepspeed --world 3 --stage 2
writes universal x "$R" --to universal
writes gguf x.gguf "$P/state_dict.expected.safetensors"
writes peft x "$G/lora/bloom-qkv/adapter" --to peft
for a in tar tar.zst zip; do writes archives "x.$a" "$R"; done
elsewhere unit/formats/test_peft.c merged.safetensors
elsewhere unit/formats/test_gguf_model.c "TEST(there_and_back_is_the_same_model)"
elsewhere unit/formats/test_bnb_optim.c bnb_optimizer_file_write
elsewhere e2e/30-train.sh checkpoint-6
elsewhere unit/formats/test_trainer_files.c rng_state
elsewhere agree/test_any_to_any.c "TEST(every_pair)"

listed() { sed -n '/^\.Sh CHECKPOINTS/,/^\.Sh LOGS/s/^\.It Sy \([^ ]*\).*/\1/p' man/ckpt-formats.5; }
listed > "$T/listed"
t "the manual lists formats" [ "$(wc -l < "$T/listed")" -ge 12 ]
t "each format of the manual is read here" bash -c "! sort -u $T/reads | grep -vxf - $T/listed"
t "each format of --to is written here" bash -c "! ckpt-merge --help all | sed -n '/--to FORMAT/,/one of/s/.*one of: //p' | tr ' ' '\n' | grep -vxFf $T/writes"
