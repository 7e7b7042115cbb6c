# A disk that fills, a sync that fails, a kill at every write: old or new, never half.
# Uses the sanitizer build, which has failure injection compiled in.
. "$(dirname "$0")/lib.sh"
A=$PWD/build/asan
[ -x "$A/ckpt-merge" ] || { echo "not ok the asan build is there"; exit 1; }
DS=$G/deepspeed/0.19-s3_w2_bf16/ckpt
ckpt-merge -q -o "$T/whole" "$DS" >/dev/null
# Every n-th operation of a kind fails, or kills, until a run passes untouched.
walk() {
    local kind=$1 action=$2 n rc
    for n in $(seq 1 400); do
        rm -rf "$T/out"
        CKPT_FAULT=$kind:$n$action "$A/ckpt-merge" -q -j1 --max-shard-size 4KB -o "$T/out" "$DS" >"$T/.o" 2>"$T/.e"; rc=$?
        if [ -d "$T/out" ]; then
            ckpt-inspect -q --diff "$T/whole" "$T/out" >/dev/null || { echo "$kind $n: half an output"; return 1; }
        elif [ -z "$action" ] && ls -A "$T" | grep -q 'out\.staging'; then
            echo "$kind $n: staging left behind"; return 1
        fi
        grep -q 'ERROR: AddressSanitizer\|runtime error' "$T/.e" && { cat "$T/.e"; return 1; }
        [ $rc = 0 ] && { [ -d "$T/out" ] && [ "$n" -gt 1 ]; return; }
    done
    echo "$kind: 400 operations were not enough"; return 1
}
for kind in write sync rename open read; do t "merge: every $kind failing once" walk $kind ""; done
for kind in write sync rename; do t "merge: killed at every $kind" walk $kind :kill; done
t "the next run cleans up and succeeds" bash -c "rm -rf $T/out; $A/ckpt-merge -q -o $T/out $DS && ! ls -A $T | grep -q 'out\.staging'"
# A save of the trainer, killed at every rename: the older checkpoint stays, what is there verifies.
R=tools/recipes/demo
$R/wordnet.sh "$T" 200 >/dev/null
mkdir "$T/tiny"; cat > "$T/tiny/config.json" <<J
{"model_type": "bloom", "vocab_size": 4096, "hidden_size": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
J
ckpt-train -q --init "$T/tiny" --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
save_killed() {
    local n rc c
    for n in $(seq 1 60); do
        rm -rf "$T/run"
        (CKPT_FAULT=$1:$n:kill "$A/ckpt-train" -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 \
            --max-steps 2 --save-steps 1 --threads 1 -o "$T/run" >"$T/named" 2>"$T/.e") 2>/dev/null; rc=$?
        for c in "$T"/run/checkpoint-*; do [ -d "$c" ] && { ckpt-inspect -q --verify "$c" >/dev/null || { echo "$1 $n: $c is half"; return 1; }; }; done
        while read -r c; do ckpt-inspect -q --verify "$c" >/dev/null || { echo "$1 $n: $c was announced and is not there"; return 1; }; done < "$T/named"
        [ $rc = 0 ] && return 0
    done
    echo "60 operations were not enough"; return 1
}
t "training: killed at every rename of a save" save_killed rename
# A small file system that fills up.
if mkdir "$T/small" && mount -t tmpfs -o size=64k none "$T/small" 2>/dev/null; then
    expect 74 "a full disk" ckpt-merge -q -o "$T/small/y.safetensors" "$T/base"
    t "leaves nothing" bash -c "[ -z \"\$(ls -A $T/small)\" ]"
    umount "$T/small"
fi
expect 74 "stdout that is full" bash -c "ckpt-merge -q -o $T/z.safetensors $DS >/dev/full"
expect 74 "a stream that is full" bash -c "ckpt-merge -q -o - $DS >/dev/full"
