# What fails on a GPU: one line, a status, and an end in time.
. "$(dirname "$0")/../e2e/lib.sh"
R=tools/recipes/demo
export OMP_NUM_THREADS=4
unset CKPT_PLUGIN_PATH              # plug-ins that fail are put beside a copy of the program
mkdir -p "$T/lib" "$T/old" "$T/bin"
gcc -shared -o "$T/lib/libcuda.so.1" -x c /dev/null
gcc -shared -Wl,-soname,libcublasLt.so.13 -o "$T/old/libcublasLt.so.13" -x c /dev/null
cp "$B/ckpt-train" "$B/ckpt-eval" "$T/bin"
plugin() { cp "$B/gpu/$1" "$T/bin/libckpt_cuda.so"; }
sed 's/[\\"]//g' README.md | tr -d '\t\r' | grep -E '.{40}' | head -60 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' >"$T/train.jsonl"
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
train() {       # OUT OPTION...
    local out=$1; shift
    timeout 60 "$T/bin/ckpt-train" -q --device cuda --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --max-steps 3 \
        --save-steps 2 --zero-stage 0 -o "$T/$out" "$@"
}
told() { says "$1" && echo "ok it says $1" || fail "it says $1" "$T/.err"; }
export REAL=$B/libckpt_cuda.so
t "a plug-in around the true one" plugin fault_plugin.so
t "three steps" train good
planned() { FAULT=late: train "$@"; }
t "nothing is allocated once steps have begun" planned good2 --bf16 --eval-file "$T/train.jsonl" --eval-steps 2
t "nor beside an adapter" planned good3 --bf16 --lora-rank 4 --target-modules all-linear
t "nor in 8 bits, paged" planned good4 --bf16 --optim paged_adamw_8bit --gradient-checkpointing
for n in 1 20; do         # of nine a step
    FAULT=norm_fwd:$n expect 69 "a kernel fails (call $n)" train "f$n"
    told "illegal memory access"
    told "CUDA_LAUNCH_BLOCKING=1"
done
FAULT=norm_fwd:1 CUDA_LAUNCH_BLOCKING=1 expect 69 "and is asked for" train f
told "GPU 0, norm_fwd: an illegal memory access"
for n in 1 2 3 4; do
    FAULT=alloc:$n expect 71 "more memory than there is, allocation $n" train "a$n"
    told "no memory for"
done
FAULT=norm_fwd:3 expect 69 "generation" timeout 60 "$T/bin/ckpt-eval" --device cuda --prompt a --max-new-tokens 4 "$T/base"
plugin fault_plugin_other.so
expect 69 "a plug-in of another version" train v
told "of another version"
cp "$REAL" "$T/bin/libckpt_cuda.so"
CKPT_CUDA_PATH=$T/old expect 69 "a cuBLASLt without what the plug-in needs" train c
told "CUDA cannot be used"
expect 69 "a driver that is none" env LD_LIBRARY_PATH="$T/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" timeout 60 "$T/bin/ckpt-train" -q --device cuda --model "$T/base" \
    --train-file "$T/train.jsonl" -o "$T/d"
expect 71 "too little memory by the limit" train l --device-memory-limit 1M
