#!/usr/bin/env bash
# run.sh SECONDS [NAME...] - each fuzz target for so long, seeded from tests/golden, under address
# and undefined-behaviour sanitizers (clang with libFuzzer).  A crash is left in build/fuzz/NAME/.
set -u
cd "$(dirname "$0")/../.."
secs=${1:-60}; shift || true
command -v clang >/dev/null || { echo "fuzz: clang is not there (packages clang, libclang-rt-dev)" >&2; exit 69; }
mkdir -p build/fuzz
flags="-g -O1 -std=gnu11 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -I. -D_GNU_SOURCE -fopenmp=libgomp"
for f in $(find libckpt formats trainer -name '*.c' ! -path 'trainer/cuda/*' ! -name comm_mpi.c); do
    o=build/fuzz/obj/${f%.c}.o; mkdir -p "${o%/*}"
    [ "$o" -nt "$f" ] || clang $flags $(pkg-config --cflags jansson libgit2 libpcre2-8 libutf8proc) -c -o "$o" "$f" || exit 1
done
rm -f build/fuzz/all.a; ar rcs build/fuzz/all.a $(find build/fuzz/obj -name '*.o')
seeds() {
    case $1 in
    safetensors) find tests/golden/malicious/safetensors tests/golden/lora -name '*.safetensors' -size -20k ;;
    torch|zip)   find tests/golden/torch tests/golden/malicious/pt -name '*.pt' -size -20k ;;
    gguf)        find tests/golden/gguf -name "*.gguf" -size -20k ;;
    json|config) find tests/golden -name '*.json' -size -20k ;;
    *)           find tests/fuzz/seeds/$1 -type f 2>/dev/null ;;
    esac
}
bad=0
for t in ${@:-$(ls tests/fuzz/fuzz_*.c | sed 's/.*fuzz_//; s/\.c$//')}; do
    mkdir -p "build/fuzz/$t/corpus"
    seeds "$t" | while read -r s; do cp -n "$s" "build/fuzz/$t/corpus/$(echo "$s" | tr / _)"; done
    clang $flags -fsanitize=fuzzer,address,undefined $(pkg-config --cflags jansson libgit2) -o "build/fuzz/$t/run" "tests/fuzz/fuzz_$t.c" build/fuzz/all.a \
        $(pkg-config --libs jansson libcrypto zlib libxxhash libutf8proc libpcre2-8 libgit2) -lopenblas -lgomp -ldl -lpthread -lm || exit 1
    echo "== $t"
    (cd "build/fuzz/$t" && ./run corpus -max_len=65536 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=512 -max_total_time="$secs" -print_final_stats=1 2>&1 | grep -E 'ERROR|SUMMARY|stat::number_of_executed|Test unit') || true
    ls build/fuzz/$t/crash-* build/fuzz/$t/timeout-* build/fuzz/$t/oom-* 2>/dev/null && bad=1
done
exit $bad
