#!/usr/bin/env bash
# run.sh SECONDS [NAME...] - each fuzz target for so long, under address and undefined-behaviour
# sanitizers (clang with libFuzzer), JOBS (2) at once; ONLY names the targets too.
#
# A target starts from the seeds of tests/golden and tests/fuzz/seeds and from what it kept:
# build/fuzz/corpus/NAME, which is minimised after each run to inputs that reach something no
# other does.  An input that fails is left in build/fuzz/found/NAME/, is tried first the next time,
# and is removed when it does not fail any more; status 1 while there is one.  Prints a line a
# target: runs, runs a second, inputs kept, inputs that fail.  Backends are left out: no target
# computes.
set -u
cd "$(dirname "$0")/../.."
export LC_ALL=C.UTF-8
# What is freed comes back sooner than by default: memory that stays in the cache is twice as fast.
export ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=8:allocator_release_to_os_interval_ms=-1
one() {                                 # one TARGET SECONDS, when it is built
    local t=$1 run=build/fuzz/bin/$1 corpus=build/fuzz/corpus/$1 found=build/fuzz/found/$1 old n
    local limits="-timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=512"
    mkdir -p "$corpus" "$found" build/fuzz/log
    for old in "$found"/*; do
        [ ! -e "$old" ] || ! "$run" $limits "$old" >/dev/null 2>&1 || rm "$old"
    done
    "$run" "$corpus" build/fuzz/seeds/"$t" $limits $(dict "$t") -artifact_prefix="$found/" \
        -max_len="$(longest "$t")" -max_total_time="$2" -print_final_stats=1 >build/fuzz/log/"$t" 2>&1
    rm -rf "$corpus.new"; mkdir "$corpus.new"
    "$run" -merge=1 $limits -max_len="$(longest "$t")" "$corpus.new" build/fuzz/seeds/"$t" "$corpus" >build/fuzz/log/"$t".merge 2>&1 &&
        rm -rf "$corpus" && mv "$corpus.new" "$corpus"
    n=$(find "$found" -type f | wc -l)
    awk -v t="$t" -v kept="$(find "$corpus" -type f | wc -l)" -v bad="$n" '
        /stat::number_of_executed_units/ { runs = $2 } /stat::average_exec_per_sec/ { rate = $2 }
        END { printf "%-16s %10d runs %7d a second %6d kept %3d fail\n", t, runs, rate, kept, bad }' \
        build/fuzz/log/"$t"
    [ "$n" = 0 ] || { find "$found" -type f; grep -aE '^SUMMARY|ERROR:' build/fuzz/log/"$t" | head -3; return 1; }
}
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
    scan)        find tests/golden/malicious/scan tests/golden/malicious/pt -type f -size -8k; find tests/fuzz/seeds/pickle tests/fuzz/seeds/scan -type f ;;
    arrow)       find tests/golden/parquet -name "*.arrow" -size -20k ;;
    parquet)     find tests/golden/parquet -name "*.parquet" -size -20k ;;
    tfevents)    find tests/golden/logs -name "*tfevents*" ! -name "*.json" ;;
    nvidia_smi)  find tests/golden/logs -name "*.csv" ;;
    wandb)       find tests/golden/logs -name "*.wandb" -size -20k ;;
    card)        find tests/golden/hf-imdb -name README.md; find tests/fuzz/seeds/card -type f ;;
    csv)         find tests/golden/data/flat -name "*.?sv" ;;
    ray_run)     find tests/golden/wholes -name checkpoint_manager_snapshot.json; find tests/fuzz/seeds/ray_run -type f ;;
    json_doc)    find tests/golden/data -name "*.json" -size -20k; find tests/golden/data/flat -name "*.jsonl" ;;
    tokenizer_json) find tests/golden/tokenizers tests/fuzz/seeds/tokenizer_json -name 'tokenizer*.json' -size -40k ;;
    run_file)    find tests/golden/recipes tests/golden/ds_configs -name '*.[jy]*'; find tests/fuzz/seeds/run_file -type f ;;
    sign)        find tests/golden/sign -name '*.sig'; find tests/fuzz/seeds/sign -type f ;;
    choice_row)  mkdir -p build/fuzz/choices/made
                 tr -d '\n' <tests/golden/choices.json | grep -oE '\{"(activity_label|id|question)"[^{}]*(\{[^{}]*\})?[^{}]*\}' |
                     awk '{ print > ("build/fuzz/choices/made/" NR) }'
                 find build/fuzz/choices/made tests/fuzz/seeds/choice_row -type f ;;
    json|config) find tests/golden -name '*.json' -size -20k ;;
    *)           find "tests/fuzz/seeds/$1" -type f 2>/dev/null ;;
    esac
}
dict() {
    case $1 in
    torch|pickle|deepspeed|scan) echo -dict=tests/fuzz/lib/pickle.dict ;;
    zip)          echo -dict=tests/fuzz/lib/zip.dict ;;
    esac
}
# Inputs of rows: more of them are more of the same, and the number of a bad one is counted anew.
longest() {
    case $1 in
    csv) echo 2048 ;;
    run_file) echo 8192 ;;
    jsonl|json_doc|nvidia_smi|field|card|hostfile) echo 4096 ;;
    deepspeed) echo 8192 ;;
    fsdp|dcp) echo 16384 ;;
    *) echo 65536 ;;
    esac
}
if [ "${1:-}" = --one ]; then one "$2" "$3"; exit; fi

secs=${1:-60}; shift || true
command -v clang >/dev/null || { echo "fuzz: clang is not there (packages clang, libclang-rt-dev)" >&2; exit 69; }
targets=${*:-${ONLY:-$(ls tests/fuzz/fuzz_*.c | sed 's/.*fuzz_//; s/\.c$//')}}
flags="-g -O1 -std=gnu11 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -I. -Ibuild/release -D_GNU_SOURCE -fopenmp=libgomp $(pkg-config --cflags jansson libarchive libgit2 libpcre2-8 libutf8proc)"
libs="$(pkg-config --libs jansson libarchive libcrypto zlib libxxhash libutf8proc libpcre2-8 libgit2 snappy libzstd liblz4 libbrotlidec yaml-0.1) -lopenblas -lgomp -ldl -lpthread -lm"
mkdir -p build/fuzz/bin
find build/fuzz/obj -name '*.o' 2>/dev/null | while read -r o; do f=${o#build/fuzz/obj/}; [ -e "${f%.o}.c" ] || rm "$o" build/fuzz/all.a; done 2>/dev/null     # of rooms that moved
newest=$(find libckpt formats trainer tools tests/fuzz -name '*.h' -printf '%T@ %p\n' | sort -rn | head -1 | cut -d' ' -f2)
for f in $(find libckpt formats trainer tools/*.c tools/eval tools/opt tools/push tools/train -name '*.c' ! -name 'ckpt-*' ! -path 'trainer/cpu/*' ! -path 'trainer/cuda/*' ! -path trainer/comm/mpi.c); do
    o=build/fuzz/obj/${f%.c}.o; mkdir -p "${o%/*}"
    [ "$o" -nt "$f" ] && [ "$o" -nt "$newest" ] || printf '%s %s\n' "$o" "$f"
done | xargs -r -n 2 -P 2 $(command -v ccache) clang $flags -c -o || exit 1
if [ -n "$(find build/fuzz/obj -name '*.o' -newer build/fuzz/all.a 2>/dev/null | head -1)" ] || [ ! -e build/fuzz/all.a ]; then
    rm -f build/fuzz/all.a; find build/fuzz/obj -name "*.o" -exec ar qcs build/fuzz/all.a {} + || exit 1
fi
for t in $targets; do
    [ -e "tests/fuzz/fuzz_$t.c" ] || { echo "fuzz: no target $t" >&2; exit 64; }
    [ "build/fuzz/bin/$t" -nt build/fuzz/all.a ] && [ "build/fuzz/bin/$t" -nt "tests/fuzz/fuzz_$t.c" ] || echo "$t"
    rm -rf "build/fuzz/seeds/$t"; mkdir -p "build/fuzz/seeds/$t"
    seeds "$t" | while read -r s; do cp "$s" "build/fuzz/seeds/$t/$(echo "$s" | tr / _)"; done
done | xargs -r -P 2 -I@ clang $flags -fsanitize=fuzzer,address,undefined -o build/fuzz/bin/@ tests/fuzz/fuzz_@.c build/fuzz/all.a $libs || exit 1
printf '%s\n' $targets | xargs -P "${JOBS:-2}" -I@ "$0" --one @ "$secs" || exit 1
