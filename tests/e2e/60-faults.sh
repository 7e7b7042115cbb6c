# A disk that fills, a sync that fails, a kill at every write: old or new, never half.
# Uses the sanitizer build, which has failure injection compiled in.
# On a file system in memory: thousands of files are synced.
[ -w /dev/shm ] && export TMPDIR=/dev/shm
. "$(dirname "$0")/lib.sh"
A=$PWD/build/asan
[ -x "$A/ckpt-merge" ] || { echo "not ok the asan build is there"; exit 1; }
DS=$G/deepspeed/0.19-s3_w2_bf16/ckpt
ckpt-merge -q --max-shard-size 4KB -o "$T/whole" "$DS" >/dev/null
# Every n-th operation of a kind fails, or kills, until a run passes untouched.
walk() {
    local kind=$1 action=$2 n rc
    for n in $(seq 1 400); do
        rm -rf "$T/out"
        CKPT_FAULT=$kind:$n$action "$A/ckpt-merge" -q -j1 --max-shard-size 4KB -o "$T/out" "$DS" >"$T/.o" 2>"$T/.e"; rc=$?
        if [ -d "$T/out" ]; then
            diff -rq "$T/whole" "$T/out" || { echo "$kind $n: not what an undisturbed run writes"; return 1; }
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
# Every writer, each from what it needs: at the first operations of a kind, and further apart from
# there on.  What stands afterwards is what an undisturbed run writes, byte for byte, or nothing.
writers() {
    local st=$T/base.safetensors lora=$G/lora/bloom-qkv
    "$1" safetensors x.safetensors "$DS"
    "$1" "a model directory" x --max-shard-size 4KB "$DS"
    "$1" torch x.pt "$DS"
    "$1" dcp x --to dcp --optimizer keep "$DS"
    "$1" deepspeed x --world 3 --stage 2 "$DS"
    "$1" universal x --to universal "$DS"
    "$1" "an adapter" x --to peft "$lora/adapter"
    "$1" "a merged adapter" x --adapter "$lora/adapter" "$lora/base"
    "$1" gguf x.gguf "$G/gguf/llama"
    "$1" tar x.tar "$DS"
    "$1" tar.zst x.tar.zst "$DS"
    "$1" zip x.zip "$DS"
}
# struck KIND ACTION OUT ARGUMENT... - the n-th operation of a kind fails, or kills.
struck() {
    local kind=$1 action=$2 out=$3 n=1 rc; shift 3
    while [ "$n" -lt 10000 ]; do
        rm -rf "$T/w"; mkdir "$T/w"
        (CKPT_FAULT=$kind:$n$action "$A/ckpt-merge" -q -j1 -o "$T/w/$out" "$@" >"$T/.o" 2>"$T/.e") 2>/dev/null; rc=$?
        grep -q 'ERROR: AddressSanitizer\|runtime error' "$T/.e" && { cat "$T/.e"; return 1; }
        if [ -e "$T/w/$out" ]; then
            diff -rq "$T/want/$out" "$T/w/$out" || { echo "$kind $n: half an output"; return 1; }
        elif [ $rc = 0 ]; then
            echo "$kind $n: nothing was written"; return 1
        fi
        [ $rc = 0 ] && { [ -s "$T/.o" ] && [ "$n" -gt 1 ]; return; }
        [ -s "$T/.o" ] && { echo "$kind $n: it was announced"; return 1; }
        if [ -z "$action" ] && { [ "$rc" != 74 ] && [ "$rc" != 73 ] || [ "$(ls -A "$T/w")" != "$(ls "$T/w" | grep -x "$out")" ]; }; then
            echo "$kind $n: status $rc, left: $(ls -A "$T/w")"; cat "$T/.e"; return 1
        fi
        n=$((n < 5 ? n + 1 : n * 2))
    done
    echo "$kind: 10000 operations were not enough"; return 1
}
strike() {
    local name=$1 out=$2 kind; shift 2
    rm -rf "$T/want"; mkdir "$T/want"; ckpt-merge -q -j1 -o "$T/want/$out" "$@" >/dev/null
    for kind in write sync rename; do
        t "$name: a $kind fails" struck $kind "" "$out" "$@"
        t "$name: killed at a $kind" struck $kind :kill "$out" "$@"
    done
    # The last kill left its staging; who comes next takes it away.
    rm -rf "$T/w"; mkdir "$T/w"
    (CKPT_FAULT=rename:1:kill "$A/ckpt-merge" -q -o "$T/w/$out" "$@" >/dev/null 2>&1; :) 2>/dev/null
    t "$name: the next run cleans up and succeeds" bash -c "ckpt-merge -q -o $T/w/$out ${*@Q} && [ \"\$(ls -A $T/w)\" = $out ]"
}
writers strike
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
            --max-steps 2 --save-steps 1 --threads 1 --async-save "$2" -o "$T/run" >"$T/named" 2>"$T/.e") 2>/dev/null; rc=$?
        for c in "$T"/run/checkpoint-*; do [ -d "$c" ] && { ckpt-inspect -q --verify "$c" >/dev/null || { echo "$1 $n: $c is half"; return 1; }; }; done
        while read -r c; do ckpt-inspect -q --verify "$c" >/dev/null || { echo "$1 $n: $c was announced and is not there"; return 1; }; done < "$T/named"
        [ $rc = 0 ] && return 0
    done
    echo "60 operations were not enough"; return 1
}
t "training: killed at every rename of a save" save_killed rename false
t "training: and of one behind the steps" save_killed rename true
# A sync that fails, in a thread of its own: the run ends, or goes on to its next checkpoint.
save_fails() {
    local n rc c
    for n in $(seq 1 9 40); do
        rm -rf "$T/run"
        CKPT_FAULT=sync:$n "$A/ckpt-train" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 \
            --max-steps 3 --save-steps 1 --threads 1 --no-final-model --async-save true --on-save-error "$1" -o "$T/run" >"$T/named" 2>"$T/.e"; rc=$?
        for c in "$T"/run/checkpoint-*; do [ -d "$c" ] && { ckpt-inspect -q --verify "$c" >/dev/null || { echo "sync $n: $c is half"; return 1; }; }; done
        ls -A "$T/run" | grep -q staging && { echo "sync $n: staging left"; return 1; }
        case $1:$rc in end:74|end:0|continue:0) ;; *) echo "sync $n: status $rc"; cat "$T/.e"; return 1 ;; esac
        [ $rc = 74 ] && failed=1
        [ "$1:$n" != continue:1 ] || { [ "$(wc -l <"$T/named")" = 2 ] && grep -q 'is not saved, the run continues' "$T/.e"; } || { echo "told otherwise"; cat "$T/.e"; return 1; }
    done
    [ "$1" != end ] || [ -n "${failed:-}" ] || { echo "none failed"; return 1; }
}
t "training: a sync behind the steps fails, which ends the run" save_fails end
t "training: or does not" save_fails continue
# A small file system that fills up.
fill() {
    local name=$1 out=$2; shift 2
    expect 74 "$name: a full disk" ckpt-merge -q -o "$T/small/$out" "$@"
    t "$name: leaves nothing there" bash -c "[ -z \"\$(ls -A $T/small)\" ]"
}
if mkdir "$T/small" && mount -t tmpfs -o size=4k none "$T/small" 2>/dev/null; then
    writers fill
    umount "$T/small"
    for kib in 4 12 20; do
        mount -t tmpfs -o size=${kib}k none "$T/small"
        expect 74 "a repository on a disk of $kib KiB" ckpt-push -q --create "$T/small/g.git" "$G/lora/bloom-qkv/base"
        t "is not begun" [ -z "$(ls -A "$T/small")" ]
        umount "$T/small"
    done
fi
expect 74 "stdout that is full" bash -c "ckpt-merge -q -o $T/z.safetensors $DS >/dev/full"
expect 74 "a stream that is full" bash -c "ckpt-merge -q -o - $DS >/dev/full"
