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
libs() { pkg-config --libs jansson libcrypto zlib libxxhash libutf8proc libpcre2-8 libgit2 libarchive snappy libzstd liblz4 libbrotlidec; }
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
# zeros FLAGS... - seconds for as many zeros.
zeros() { local s; s=$(now); dd if=/dev/zero of="$DIR/dd" bs=4M count=$((GIB * 256)) "$@" status=none; since "$s"; rm -f "$DIR/dd"; }
cached=$(zeros conv=fsync) direct=$(zeros oflag=direct conv=fsync)
disk=$(awk -v a="$cached" -v b="$direct" 'BEGIN { print (a < b ? a : b) }')
echo "disk: $GIB GiB of zeros written and synced in $cached s, past the page cache in $direct s"
# What is large goes past the cache: inputs are read once before they are timed, for us and the peer.
warm() { find "$@" -type f -exec cat {} + >/dev/null; }
# timed COMMAND... - run it, its stdout thrown away; ours is the seconds, peak the MiB resident.
timed() {
    local s r pid
    sync; s=$(now); "$@" >/dev/null & pid=$!; peak=0
    while kill -0 $pid 2>/dev/null; do
        r=$(awk '/VmHWM/ { print $2 }' /proc/$pid/status 2>/dev/null); [ "${r:-0}" -gt $peak ] && peak=$r; sleep 0.02
    done
    wait $pid || echo "FAILED: $*"
    ours=$(since "$s") peak=$((peak / 1024))
}
against_disk() { awk -v d="$disk" -v o="$ours" -v w="$1" 'BEGIN { printf "merge: %s: %.0f %% of the speed at which the disk takes zeros\n", w, 100 * d / o }'; }
# against_peer WHAT PROGRAM - the same in Python, synced.
against_peer() {
    local s peer
    sync; s=$(now); DS_ACCELERATOR=cpu "$PEERS" -c "$2" >/dev/null 2>&1 || { echo "merge: no peer for $1"; return; }
    sync; peer=$(since "$s")
    echo "merge: $1: the peer takes $peer s, ckpt-merge $ours s: $(awk -v a="$peer" -v b="$ours" 'BEGIN { printf "%.1f", a / b }') times as fast"
}
rm -rf "$DIR/out.safetensors" "$DIR/out.pt"
warm "$DIR/zero3-$GIB"
timed ckpt-merge -q -o "$DIR/out.safetensors" "$DIR/zero3-$GIB"
echo "merge: ZeRO-3 to safetensors, $GIB GiB in $ours s, durable; peak $peak MiB resident"
against_disk "ZeRO-3 to safetensors"
against_peer "ZeRO-3 to safetensors" "
from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict as c
c('$DIR/zero3-$GIB', '$DIR/peer', safe_serialization=True)"
rm -rf "$DIR/peer"; [ -n "${KEEP:-}" ] || rm -rf "$DIR/zero3-$GIB"

ckpt-merge -q -o "$DIR/out.pt" "$DIR/out.safetensors" >/dev/null; rm -f "$DIR/out.safetensors"
warm "$DIR/out.pt"
timed ckpt-merge -q -o "$DIR/out.safetensors" "$DIR/out.pt"
echo "merge: torch archive to safetensors, $GIB GiB in $ours s, durable; peak $peak MiB resident"
against_disk "torch archive to safetensors"
against_peer "torch archive to safetensors" "
import torch, safetensors.torch as s
s.save_file(torch.load('$DIR/out.pt', mmap=True, weights_only=True), '$DIR/peer.safetensors', {'format': 'pt'})"
rm -f "$DIR/peer.safetensors" "$DIR/out.pt"
# Statistics of what lies in the cache, against what the cores can read of memory; best of three.
gcc -O3 -march=native -o "$DIR/bench_memory" tests/perf/bench_memory.c -lpthread
best=1e9; memory=0; warm "$DIR/out.safetensors"
for _ in 1 2 3; do
    timed ckpt-inspect --stats "$DIR/out.safetensors"
    best=$(awk -v a="$best" -v b="$ours" 'BEGIN { print (a < b ? a : b) }')
    memory=$("$DIR/bench_memory" "$(nproc)" 1 | awk -v m="$memory" '{ print (m > $1 ? m : $1) }')
done
awk -v s="$best" -v m="$memory" -v n="$(stat -c %s "$DIR/out.safetensors")" -v p="$peak" \
    'BEGIN { printf "inspect --stats: %.1f GB/s, memory %.1f GB/s: %.0f %%; peak %d MiB resident\n", n / s / 1e9, m, n / s / m / 1e7, p }'
rm -rf "$DIR/dcp"
timed ckpt-merge -q --provenance none --to dcp -o "$DIR/dcp" "$DIR/out.safetensors"
echo "merge: safetensors to distributed checkpoint, $GIB GiB in $ours s, durable; peak $peak MiB resident"
against_disk "safetensors to distributed checkpoint"
warm "$DIR/dcp"
timed ckpt-merge -q -o "$DIR/again.safetensors" "$DIR/dcp"
echo "merge: distributed checkpoint to safetensors, $GIB GiB in $ours s, durable; peak $peak MiB resident"
against_disk "distributed checkpoint to safetensors"
against_peer "distributed checkpoint to safetensors" "
import torch, safetensors.torch as s
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save('$DIR/dcp', '$DIR/peer.pt')
s.save_file(torch.load('$DIR/peer.pt', mmap=True, weights_only=True)['model'], '$DIR/peer.safetensors', {'format': 'pt'})"
rm -rf "$DIR/dcp" "$DIR/again.safetensors" "$DIR/peer.pt" "$DIR/peer.safetensors"
timed ckpt-merge -q --dtype bf16 -o "$DIR/half.safetensors" "$DIR/out.safetensors"
echo "merge: f32 to bf16, $GIB GiB read in $ours s, durable; peak $peak MiB resident"
rm -f "$DIR/out.safetensors" "$DIR/half.safetensors"

# A LoRA of rank 32 on all linear layers of a bf16 model.
prog make_lora && "$DIR/make_lora" "$DIR/lora" "$GIB"
warm "$DIR/lora/base"
timed ckpt-merge -q --provenance none --adapter "$DIR/lora/adapter" -o "$DIR/lora/merged" "$DIR/lora/base"
echo "merge: LoRA into $GIB GiB of bf16 in $ours s, durable; peak $peak MiB resident"
against_disk "LoRA"
against_peer "LoRA" "
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM as M
m = M.from_pretrained('$DIR/lora/base', dtype=torch.bfloat16)
PeftModel.from_pretrained(m, '$DIR/lora/adapter').merge_and_unload().save_pretrained('$DIR/peer')"
timed ckpt-merge -q --provenance none --extract-adapter 32 --include '*layers.0.*' --base "$DIR/lora/base" \
    -o "$DIR/lora/extracted" "$DIR/lora/merged"
echo "merge: adapter of rank 32 extracted from one of its layers (67 M parameters) in $ours s; peak $peak MiB resident"
rm -rf "$DIR/lora" "$DIR/peer"

# 100 GB that take no room on the disk.
mkdir -p "$DIR/sparse"; prog make_sparse && "$DIR/make_sparse" "$DIR/sparse"
ckpt-inspect "$DIR/sparse" >/dev/null; timed ckpt-inspect "$DIR/sparse"
echo "inspect: 100 GB in 20 shards listed in $ours s; peak $peak MiB resident"
timed ckpt-merge -q --provenance none --dtype bf16 -o - "$DIR/sparse"
echo "merge: 100 GB of f32 to a stream of bf16 in $ours s; peak $peak MiB resident"
rm -rf "$DIR/sparse"

prog bench_tokens
cat /usr/share/common-licenses/* > "$DIR/english.txt" 2>/dev/null
for t in gpt2 llama2 t5 bert; do
    echo "tokenizer $t: $("$DIR/bench_tokens" tests/golden/tokenizers/$t/tokenizer.json "$DIR/english.txt")"
    "$PEERS" tests/perf/bench_tokens.py tests/golden/tokenizers/$t/tokenizer.json "$DIR/english.txt" 2>/dev/null || echo "tokenizer $t: no peer"
done
