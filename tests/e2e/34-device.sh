# What a device that cannot be used, or fails, comes to: one line, a status, nothing half written.
# The plug-in for GPUs is stood in for by one that wraps the CPU (tests/gpu/fault_plugin.c), its
# driver and library by empty ones.
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
mkdir -p "$T/lib" "$T/bin" "$T/bare"
for so in libcuda.so.1 libcublasLt.so.13; do gcc -shared -o "$T/lib/$so" -x c /dev/null; done
cp "$B/ckpt-train" "$B/ckpt-eval" "$T/bin"; cp "$B/ckpt-train" "$T/bare"
case $BUILD in *asan*) san=-fsanitize=address,undefined ;; *) san= ;; esac
plugin() {      # FLAG... - the plug-in beside the programs
    rm -f "$T/bin/libckpt_cuda.so"
    gcc -shared -fPIC -O1 $san -I. -D_GNU_SOURCE "$@" -o "$T/bin/libckpt_cuda.so" tests/gpu/fault_plugin.c \
        "$B/libtrain.a" "$B/libckpt.a" $(pkg-config --libs jansson libcrypto) -lopenblas -fopenmp -ldl -lm
}
here() { env LD_LIBRARY_PATH="$T/lib" "$@"; }
sed 's/[\\"]//g' README.md | tr -d '\t\r' | grep -E '.{40}' | head -60 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' >"$T/train.jsonl"
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
train() {       # DIR OUT OPTION...
    local dir=$1 out=$2; shift 2
    timeout 120 "$dir/ckpt-train" -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --max-steps 3 --save-steps 2 \
        --zero-stage 0 -o "$T/$out" "$@"
}
export -f train; export T
run() { here bash -c 'train "$@"' - "$@"; }

[ -e /usr/local/nvidia/lib64/libcuda.so.1 ] || ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1' || {
    expect 69 "no driver" "$T/bin/ckpt-train" --device cuda --model "$T/base" --train-file "$T/train.jsonl" -o "$T/x"
    says "there is no NVIDIA driver" && echo "ok it is named" || echo "not ok it is named"
}
expect 69 "no plug-in" run "$T/bare" x --device cuda
says "libckpt_cuda.so: not found" && echo "ok it is named too" || echo "not ok it is named too"
t "a plug-in that stands in" plugin
t "what it computes is the CPU's" run "$T/bin" good --device cuda
ckpt-train -q --device cpu --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --max-steps 3 --save-steps 2 --zero-stage 0 -o "$T/plain" >/dev/null
t "loss by loss" same_losses good plain
late_alloc() { FAULT=late: run "$T/bin" "$@"; }
t "nothing is allocated once steps have begun" late_alloc planned --device cuda --eval-file "$T/train.jsonl" --eval-steps 2
plugin -DFAULT_VERSION=CUDA_PLUGIN_VERSION+1
expect 69 "a plug-in of another version" run "$T/bin" x --device cuda
says "libckpt_cuda.so is of another version" && echo "ok the plug-in is told" || echo "not ok the plug-in is told"
t "without a wish the CPU does it" run "$T/bin" auto
plugin -DFAULT_COUNT=0
t "no GPU behind the driver: the CPU" run "$T/bin" auto0
printf 'no library' >"$T/bin/libckpt_cuda.so"
expect 69 "a plug-in that is none" run "$T/bin" x --device cuda
printf 'extern int cublasLtOfTomorrow(void); int (*use)(void) = cublasLtOfTomorrow; int cuda_plugin;' >"$T/new.c"
gcc -shared -fPIC -o "$T/bin/libckpt_cuda.so" "$T/new.c"
expect 69 "a library too old for the plug-in" run "$T/bin" x --device cuda
says "cublasLtOfTomorrow" && echo "ok what it lacks is named" || echo "not ok what it lacks is named"
plugin
expect 78 "no such device name" run "$T/bin" x --device gpu
# An operation that fails in the midst: told once, and the steps before it stand.
FAULT=norm_fwd:3 expect 69 "an operation fails in the first step" run "$T/bin" f1 --device cuda
says "GPU 0, norm_fwd: it was made to fail" && echo "ok it is the one that is named" || echo "not ok it is the one that is named"
[ "$(grep -c 'made to fail' "$T/.err")" = 1 ] && echo "ok once" || echo "not ok once"
[ ! -e "$T/f1/checkpoint-2" ] && echo "ok nothing is saved of it" || echo "not ok nothing is saved of it"
# The first call from 8 on, by halves more each time, that comes after a checkpoint.
late() {
    local n=8 rc
    while [ $n -lt 2000 ]; do
        rm -rf "$T/f3"; FAULT=norm_fwd:$n run "$T/bin" f3 --device cuda >"$T/.out" 2>"$T/.err"; rc=$?
        [ $rc = 69 ] || { echo "call $n: status $rc"; return 1; }
        [ -d "$T/f3/checkpoint-2" ] && { grep -q 'GPU 0, norm_fwd' "$T/.err" && ckpt-inspect --verify "$T/f3/checkpoint-2"; return; }
        n=$((n * 3 / 2))
    done
    return 1
}
t "an operation fails behind a checkpoint, which is whole" late
t "and goes on from there" run "$T/bin" f3 --device cuda --resume-from-checkpoint latest
FAULT=sync:1 expect 69 "work that comes to nothing" run "$T/bin" f2 --device cuda
for n in 1 2 3 4 5; do
    FAULT=alloc:$n expect 71 "no memory at allocation $n" run "$T/bin" "a$n" --device cuda
done
FAULT=alloc:1 expect 71 "no memory to generate" here timeout 60 "$T/bin/ckpt-eval" --device cuda --prompt a --max-new-tokens 4 "$T/base"
