#!/usr/bin/env bash
# run.sh SECONDS [NAME...] - each fuzz target for so long, seeded from tests/golden, under address
# and undefined-behaviour sanitizers (clang with libFuzzer).  A crash is left in build/fuzz/NAME/,
# and is tried first the next time, until it is none any more.  Backends are left
# out: no target computes.
set -u
cd "$(dirname "$0")/../.."
secs=${1:-60}; shift || true
command -v clang >/dev/null || { echo "fuzz: clang is not there (packages clang, libclang-rt-dev)" >&2; exit 69; }
mkdir -p build/fuzz
flags="-g -O1 -std=gnu11 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -I. -D_GNU_SOURCE -fopenmp=libgomp $(pkg-config --cflags jansson libarchive libgit2 libpcre2-8 libutf8proc)"
newest=$(find libckpt formats trainer tests/fuzz -name '*.h' -printf '%T@ %p\n' | sort -rn | head -1 | cut -d' ' -f2)
for f in $(find libckpt formats trainer -name '*.c' ! -path 'trainer/cpu/*' ! -path 'trainer/cuda/*' ! -name comm_mpi.c); do
    o=build/fuzz/obj/${f%.c}.o; mkdir -p "${o%/*}"
    [ "$o" -nt "$f" ] && [ "$o" -nt "$newest" ] || printf '%s %s\n' "$o" "$f"
done | xargs -r -n 2 -P 2 clang $flags -c -o || exit 1
rm -f build/fuzz/all.a; find build/fuzz/obj -name '*.o' -exec ar rcs build/fuzz/all.a {} + || exit 1
seeds() {
    case $1 in
    safetensors) find tests/golden/malicious/safetensors tests/golden/lora -name '*.safetensors' -size -20k ;;
    bnb)         find tests/golden/bnb -name '*.safetensors' -size -20k ;;
    quant)       mkdir -p build/fuzz/quant/made
                 for q in gptq awq ct-pack ct-int8 ct-float; do
                     { cat tests/golden/quant/$q/config.json; printf '\0'; cat tests/golden/quant/$q/model.safetensors; } >build/fuzz/quant/made/$q
                 done; find build/fuzz/quant/made -type f ;;
    npy)         find tests/golden/numpy -name '*.npy' ;;
    gguf)        find tests/golden/gguf -name '*.gguf' -size -65k ;;
    torch)       find tests/golden/torch tests/golden/malicious/pt -name '*.pt' -size -20k
                 find tests/fuzz/seeds/pickle -type f ;;
    zip)         find tests/golden/torch tests/golden/malicious/pt -name '*.pt' -size -20k; find tests/fuzz/seeds/zip -type f ;;
    arrow)       find tests/golden/parquet -name "*.arrow" -size -20k ;;
    parquet)     find tests/golden/parquet -name "*.parquet" -size -20k ;;
    tfevents)    find tests/golden/logs -name "*tfevents*" ! -name "*.json" ;;
    nvidia_smi)  find tests/golden/logs -name "*.csv" ;;
    wandb)       find tests/golden/logs -name "*.wandb" -size -20k ;;
    card)        find tests/golden/hf-imdb -name README.md; find tests/fuzz/seeds/card -type f ;;
    csv)         find tests/golden/data/flat -name "*.?sv" ;;
    json_doc)    find tests/golden/data -name "*.json" -size -20k; find tests/golden/data/flat -name "*.jsonl" ;;
    tokenizer_json) find tests/golden/tokenizers tests/fuzz/seeds/tokenizer_json -name 'tokenizer*.json' -size -40k ;;
    json|config) find tests/golden -name '*.json' -size -20k ;;
    *)           find "tests/fuzz/seeds/$1" -type f 2>/dev/null ;;
    esac
}
dict() {
    case $1 in
    torch|pickle|deepspeed) echo -dict=tests/fuzz/pickle.dict ;;
    zip)          echo -dict=tests/fuzz/zip.dict ;;
    esac
}
bad=0
for t in ${@:-$(ls tests/fuzz/fuzz_*.c | sed 's/.*fuzz_//; s/\.c$//')}; do
    d=build/fuzz/$t; mkdir -p "$d/corpus"
    seeds "$t" | while read -r s; do cp -n "$s" "$d/corpus/$(echo "$s" | tr / _)"; done
    clang $flags -fsanitize=fuzzer,address,undefined -o "$d/run" "tests/fuzz/fuzz_$t.c" build/fuzz/all.a \
        $(pkg-config --libs jansson libarchive libcrypto zlib libxxhash libutf8proc libpcre2-8 libgit2 snappy libzstd liblz4 libbrotlidec yaml-0.1) -lopenblas -lgomp -ldl -lpthread -lm || exit 1
    echo "== $t"
    limits="-timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=512"
    for old in "$d"/crash-* "$d"/leak-* "$d"/timeout-* "$d"/oom-*; do
        [ ! -e "$old" ] || ! "$d/run" $limits "$old" >/dev/null 2>&1 || rm "$old"
    done
    "$d/run" "$d/corpus" $limits $(dict "$t") -artifact_prefix="$d/" -max_len=65536 -max_total_time="$secs" -print_final_stats=1 >"$d/log" 2>&1 || bad=1
    grep -E 'ERROR|SUMMARY|stat::number_of_executed|Test unit' "$d/log"
    ls "$d"/crash-* "$d"/leak-* "$d"/timeout-* "$d"/oom-* 2>/dev/null && bad=1
done
exit $bad
