#!/usr/bin/env bash
# bench.sh BUILD - figures of speed and memory, ratios against peers in the same run.
#
#   PEERS=python   a Python with torch, deepspeed, transformers (tests/peers/check.sh makes one)
#   GIB=4          size of the checkpoint for the merge; it takes 4 times that on disk
#   DIR=...        where, default build/bench
set -u
cd "$(dirname "$0")/../.."
B=$1 DIR=${DIR:-build/bench} GIB=${GIB:-4} PEERS=${PEERS:-build/peers/bin/python}
export PATH=$PWD/$B:$PATH
mkdir -p "$DIR"
libs() { pkg-config --libs jansson libcrypto zlib libxxhash libutf8proc libpcre2-8 libgit2; }
prog() { gcc -O2 -I. -D_GNU_SOURCE $(pkg-config --cflags jansson) -o "$DIR/$1" "tests/perf/$1.c" "$B/libckpt.a" $(libs) -lpthread -lm; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.2f", b - a }'; }

prog many_tensors && "$DIR/many_tensors" "$DIR/many.safetensors" 10000
ckpt-inspect "$DIR/many.safetensors" >/dev/null
s=$(now); for _ in 1 2 3 4 5 6 7 8 9 10; do ckpt-inspect "$DIR/many.safetensors" >/dev/null; done
echo "inspect, 10000 tensors: $(awk -v t="$(since "$s")" 'BEGIN { printf "%.0f", t * 100 }') ms a run"

prog make_zero3
[ -d "$DIR/zero3-$GIB" ] || "$DIR/make_zero3" "$DIR/zero3-$GIB" "$GIB" 2 || exit 1
sync
s=$(now); dd if=/dev/zero of="$DIR/dd" bs=4M count=$((GIB * 256)) conv=fsync status=none; disk=$(since "$s"); rm -f "$DIR/dd"
echo "disk: $GIB GiB written and synced in $disk s"
rm -rf "$DIR/out.safetensors"; sync
s=$(now); ( ulimit -v unlimited; exec ckpt-merge -q -o "$DIR/out.safetensors" "$DIR/zero3-$GIB" >/dev/null ) & pid=$!
peak=0; while kill -0 $pid 2>/dev/null; do r=$(awk '/VmHWM/ { print $2 }' /proc/$pid/status 2>/dev/null); [ "${r:-0}" -gt $peak ] && peak=$r; sleep 0.05; done; wait $pid
ours=$(since "$s"); echo "merge: ZeRO-3 to safetensors, $GIB GiB in $ours s, durable; peak $((peak / 1024)) MiB resident"
rm -f "$DIR/out.safetensors"
if [ -x "$PEERS" ] && "$PEERS" -c 'import deepspeed' 2>/dev/null; then
    sync; s=$(now)
    DS_ACCELERATOR=cpu "$PEERS" -c "
from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict as c
c('$DIR/zero3-$GIB', '$DIR/peer', safe_serialization=True)" >/dev/null 2>&1; sync
    peer=$(since "$s"); rm -rf "$DIR/peer"
    echo "merge: the peer's zero_to_fp32 to safetensors in $peer s: ckpt-merge is $(awk -v a="$peer" -v b="$ours" 'BEGIN { printf "%.1f", a / b }') times as fast"
fi
awk -v d="$disk" -v o="$ours" 'BEGIN { printf "merge: %.0f %% of the speed at which the disk takes zeros\n", 100 * d / o }'
[ -n "${KEEP:-}" ] || rm -rf "$DIR/zero3-$GIB"
