# What a device that cannot be used, or fails, comes to: one line, a status, nothing half written.
# The plug-in for GPUs is stood in for by one that wraps the CPU (tests/gpu/fault_plugin.c), its
# driver and library by empty ones.  Then a world of many ranks, simulated on one such device.
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
expect_says 64 "no such device name" '--device: "gpu" is none of: auto cpu cuda cuda:N' run "$T/bin" x --device gpu
for n in x -1 1.5 "" 5000; do
    expect_says 64 "no such number as \"$n\"" "--device: \"cuda:$n\" is not cuda:N with a whole number N from 0 to 1023" run "$T/bin" x --device "cuda:$n"
done
expect_says 64 "nor of ckpt-eval" '--device: "cuda:5000" is not cuda:N with a whole number N from 0 to 1023' here "$T/bin/ckpt-eval" --device cuda:5000 --prompt x "$T/base"
expect_says 69 "whether a GPU is there is the device's to say" "CUDA cannot be used: libckpt_cuda.so: not found" run "$T/bare" x --device cuda:7
expect_says 78 "in a run file too" 'device: "gpu" is none of: auto cpu cuda cuda:N' run "$T/bin" x --config <(echo 'device: gpu')
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

# -- a world of many ranks, timed on one GPU ------------------------------------------------------
# The GPU is the CPU again, whose collectives wait as those of a GPU do; tests/gpu/31-simulate.sh has
# the real one.
plugin -DFAULT_DISCRETE=true
plain() { ckpt-train --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 -o "$T/none" "$@"; }
mkdir "$T/tmp"
simulate() {    # N OPTION... - three steps of rank 0 of N
    local n=$1; shift
    TMPDIR=$T/tmp LD_LIBRARY_PATH=$T/lib timeout 120 "$T/bin/ckpt-train" -q --device cuda --model "$T/base" --train-file "$T/train.jsonl" \
        --max-seq-length 32 --per-device-train-batch-size 2 --simulate-world "$n" --max-steps 3 -o "$T/none" "$@"
}
field() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*$/\1/p" "$T/.out"; }     # of --json, after expect
# holds EXPRESSION NAME=VALUE... - the arithmetic is true.
holds() {
    local what=$1 v args=(); shift
    for v; do args+=(-v "$v"); done
    awk "${args[@]}" "BEGIN { exit !($what) }"
}
before=$(find "$T" -type f ! -path "$T/.*" | sort | xargs sha256sum)
for stage in 0 1 2 3 "3 --reshard-after-forward true" "3 --lora-rank 4 --target-modules all-linear" "3 --bf16 --optim adamw_8bit"; do
    for n in 2 1024; do
        case $n$stage in 10241 | 10242) continue ;; esac
        # shellcheck disable=SC2086
        expect 0 "rank 0 of $n, stage $stage" simulate $n --zero-stage $stage --train-split-ratio 0.9
        prints "world: $n ranks on $([ $n = 2 ] && echo 1 node || echo 128 nodes), ZeRO stage ${stage%% *}" && grep -qE '^tokens/s: [0-9]+, [0-9]+ of a rank$' "$T/.out" &&
            grep -qE '^step: [0-9.]+ ms, the mean of 3; the quickest [0-9.]+$' "$T/.out" &&
            grep -qE '^communication: [0-9.]+ ms of a step are exposed \([0-9.]+ %\), of [0-9.]+ ms in [0-9.]+ collectives of [0-9.e+]+ MB together$' "$T/.out" &&
            prints "model: 136 GB/s a GPU in nodes of 8, half of it at 4.07 MB; 50 GB/s a GPU between nodes; 13 us to start" &&
            [ "$(wc -l <"$T/.out")" = 5 ] && echo "ok it is told in five lines" || fail "it is told in five lines" "$T/.out"
    done
done
expect 0 "one node" simulate 8 --zero-stage 3 --json
one=$(field step_seconds); least=$(field step_seconds_least); fast=$(field communication_seconds); rate=$(field tokens_per_second); exposed=$(field exposed_seconds)
t "the world's tokens in a step's time" holds "r * s > 0.5 * 8 * 2 * 8 && r * s <= 8 * 2 * 32" r="$rate" s="$one"
t "exposed is a part of the step" holds "x >= 0 && x <= s" x="$exposed" s="$one"
# So little that a step's own time, and what disturbs it, are small beside it.
expect 0 "two nodes, and little between them" simulate 16 --zero-stage 3 --json --simulate-network 0.002
t "the step is slower by what they take" holds "slow > fast + 0.9 * (c - f) && c > 2 * f" slow="$(field step_seconds_least)" fast="$least" c="$(field communication_seconds)" f="$fast"
t "nothing hides it on a device that does one thing at a time" holds "x > 0.9 * c" x="$(field exposed_seconds)" c="$(field communication_seconds)"
[ "$(field nodes)" = 2 ] && [ "$(field network_bytes_per_second)" = 2000000.0 ] && echo "ok figures in base units" || fail "figures in base units" "$T/.out"
expect 0 "the same in one node" simulate 16 --zero-stage 3 --json --simulate-network 0.002 --simulate-node 16
t "its network does not count" holds "c < 2 * f" c="$(field communication_seconds)" f="$fast"
expect 0 "one node of slow links" simulate 8 --zero-stage 3 --json --simulate-link 0.5
t "its links do" holds "c > 2 * f && l == 5e8" c="$(field communication_seconds)" f="$fast" l="$(field link_bytes_per_second)"
apart=(--reshard-after-forward true --gradient-accumulation-steps 2 --simulate-network 0.02 --json)
expect 0 "two nodes that shard together" simulate 16 --zero-stage 3 "${apart[@]}"
together=$(field communication_seconds)
expect 0 "and two that shard apart" simulate 16 --fsdp hybrid_shard "${apart[@]}"
t "less passes between them" holds "c > 0 && c < 0.9 * t && g == 8" c="$(field communication_seconds)" t="$together" g="$(field shard_size)"
expect 0 "groups of one" simulate 4 --zero-stage 3 --hybrid-shard-size 1
t "are told" prints "world: 4 ranks on 1 node, ZeRO stage 3 in groups of 1"
expect_says 78 "nodes that are not full" "groups of 8 ranks do not fill a world of 12" simulate 12 --fsdp hybrid_shard
[ ! -e "$T/none" ] && [ -z "$(ls "$T/tmp")" ] && [ "$before" = "$(find "$T" -type f ! -path "$T/.*" | sort | xargs sha256sum)" ] &&
    echo "ok nothing was written" || fail "nothing was written" <(find "$T" -newer "$T/base/config.json")
expect 0 "many ranks" simulate 100000 --zero-stage 3
expect_says 0 "too little data for the world" "the data has 60 samples, a step of 1024 ranks takes 8192" simulate 1024 --no-quiet --gradient-accumulation-steps 4
expect_says 78 "weights on the host without shards" "of 2 ranks needs --zero-stage 1, 2 or 3" simulate 2 --bf16 --offload-param cpu
for n in 2 1024; do
    expect 0 "weights on the host, $n ranks" simulate $n --bf16 --offload-param cpu --zero-stage 3 --gradient-accumulation-steps 2
done

# What does not go together, without any device.
expect_says 78 "the CPU" "--simulate-world needs a GPU, the device is the CPU" plain --simulate-world 2 --device cpu
expect_says 78 "one rank" "2 ranks at least" plain --simulate-world 1
expect 64 "too many" plain --simulate-world 100001
expect 64 "no network" plain --simulate-world 2 --simulate-network 0
for more in "--nproc 2" --dry-run --profile "--dump-grads x" "--memory-log 1" "--eval-steps 1" "--save-steps 5" "--save-total-limit 1" \
    "--resume-from-checkpoint latest" --overwrite-output-dir --stage3-gather-16bit-weights-on-model-save; do
    # shellcheck disable=SC2086
    expect_says 64 "beside ${more%% *}" "${more%% *}" plain --simulate-world 2 $more
done
expect_says 64 "a node of nothing" "--simulate-world" plain --simulate-node 4
RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 expect_says 78 "a rank" "--simulate-world times one rank, but this process is one of 2" plain --simulate-world 4
[ -e /usr/local/nvidia/lib64/libcuda.so.1 ] || ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1' ||
    expect_says 78 "no GPU" "--simulate-world needs a GPU, the device is the CPU" plain --simulate-world 2
[ ! -e "$T/none" ] && echo "ok nothing was written then either" || fail "nothing was written then either" "$T/.err"
