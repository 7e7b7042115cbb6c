# Checkpoints packed, piped, and in several folders: read as the directory they were, written as
# one archive with the same bytes each time, hostile ones refused, nothing left behind.
. "$(dirname "$0")/lib.sh"
export TMPDIR=$T/spool; mkdir "$TMPDIR"
DS=$G/deepspeed/0.14-s3_w2_bf16/ckpt
HF=$T/hf; ckpt-merge -q --max-shard-size 4KB -o "$HF" "$DS" >/dev/null
clean() { t "$1: nothing is left" [ -z "$(ls -A "$TMPDIR")" ]; }

# -- reading ---------------------------------------------------------------------------------
tar -cf "$T/named.tar" -C "$(dirname "$DS")" ckpt
tar -cf "$T/here.tar" -C "$DS" .
tar --format=ustar -cf "$T/ustar.tar" -C "$DS" latest global_step4
tar --format=v7 -cf "$T/v7.tar" -C "$DS" .
tar --format=pax -cf "$T/pax.tar" -C "$DS" .
tar --sort=name -czf "$T/packed.tgz" -C "$DS" .
cp "$T/packed.tgz" "$T/any-name"
for f in named.tar here.tar ustar.tar v7.tar pax.tar packed.tgz any-name; do
    expect 0 "$f is the directory" ckpt-inspect --diff "$T/$f" "$DS"
    t "$f through a pipe" bash -c "cat '$T/$f' | ckpt-merge -q --to hf --max-shard-size 4KB -o '$T/p' - && ckpt-inspect --diff '$T/p' '$HF'"
    t "$f on stdin" bash -c "rm -r '$T/p'; ckpt-merge -q --to hf --max-shard-size 4KB -o '$T/p' < '$T/$f' && ckpt-inspect --diff '$T/p' '$HF'"
    rm -rf "$T/p"
done
# A tar header of another locale's name, and files of one thing.
tar -cf "$T/one.tar" -C "$G/torch" legacy_t24.pt
expect 0 "an archive of one file is that file" ckpt-inspect --diff "$T/one.tar" "$G/torch/legacy_t24.pt"
gzip -nc "$G/torch/legacy_t24.pt" > "$T/x.pt.gz"
expect 0 "a compressed file is that file" ckpt-inspect --diff "$T/x.pt.gz" "$G/torch/legacy_t24.pt"
tar -cf "$T/deep.tar" -C "$(dirname "$(dirname "$DS")")" 0.14-s3_w2_bf16/ckpt
expect 0 "folders around it are entered" ckpt-inspect --diff "$T/deep.tar" "$DS"
cp "$G/gguf/q8_0.gguf" "$T/stdin.gguf"
for f in "$G/gguf/q8_0.gguf" "$G/torch/legacy_t24.pt" "$HF/$(ls "$HF" | grep -m1 '^model-.*safetensors$')"; do
    t "${f##*/} on stdin is inspected" bash -c "diff <(cat '$f' | ckpt-inspect -q --digest | grep -oE '[0-9a-f]{64}') <(ckpt-inspect -q --digest '$f' | grep -oE '[0-9a-f]{64}')"
done
expect 0 "--verify reads an archive" ckpt-inspect -q --verify "$T/packed.tgz"
expect 0 "and stdin" bash -c "ckpt-inspect -q --verify - < '$T/named.tar'"
t "a list of paths is a list of paths" [ "$(printf '%s\n%s\n' "$DS" "$HF" | ckpt-inspect -q - | grep -c '^path: ')" = 2 ]
t "with -0 too" [ "$(printf '%s\0%s\0' "$DS" "$HF" | ckpt-inspect -q -0 - | grep -c '^path: ')" = 2 ]
# A signal ends the wait for a stream that does not end.
stopped() {
    mkfifo "$T/stream"; ckpt-inspect -q - < "$T/stream" 2> "$T/.err" & local pid=$!
    exec 8> "$T/stream"; head -c 4096 "$T/named.tar" >&8; sleep 1; kill -TERM $pid; wait $pid; local rc=$?
    exec 8>&-; rm "$T/stream"; [ $rc = 143 ]
}
t "a stream that does not end can be stopped" stopped
# A path is worked on when it comes, not when the next one or the end does.
arrives() {
    mkfifo "$T/paths"; ckpt-inspect -q $1 - < "$T/paths" > "$T/seen" & exec 8> "$T/paths"
    printf "%s$2" "$DS" >&8
    for _ in $(seq 100); do grep -q '^path: ' "$T/seen" && break; sleep 0.1; done
    grep -q '^path: ' "$T/seen"; local rc=$?
    exec 8>&-; wait $!; rm "$T/paths"; return $rc
}
t "a path is taken as it arrives" arrives "" '\n'
t "with -0 too" arrives -0 '\0'
expect 64 "stdin has no name to write beside" bash -c "cat '$T/named.tar' | ckpt-merge -q"
t "run facts of an archive" bash -c "cp -r '$G/hf-trainer' '$T/run' && d=\$(dirname \$(find '$T/run' -name trainer_state.json | head -1)) && tar -cf '$T/run.tar' -C \$d . && diff <(ckpt-inspect -q '$T/run.tar' | tail -n +2) <(ckpt-inspect -q \$d | tail -n +2)"
python3 -c "
import zipfile, sys
z = zipfile.ZipFile(sys.argv[1], 'w'); z.writestr('archive/version', '3'); z.writestr('archive/data/0', 'abcd'); z.close()
z = zipfile.ZipFile(sys.argv[2], 'w'); z.writestr('notes/today', 'none'); z.close()" "$T/cut.pt" "$T/notes.zip"
expect_says 65 "a torch archive without its pickle" "cut.pt: a torch archive without data.pkl, which says what its tensors are" ckpt-inspect "$T/cut.pt"
expect_says 65 "an archive of something else" "notes.zip: no checkpoint is recognised in this archive" ckpt-inspect "$T/notes.zip"
clean "reading"

# -- writing ---------------------------------------------------------------------------------
for f in x.tar x.tar.gz x.tgz x.tar.bz2 x.tar.xz x.tar.zst x.zip; do
    expect 0 "$f is written" ckpt-merge -q --verify --max-shard-size 4KB -o "$T/$f" "$DS"
    t "$f: its path is told" [ "$(cat "$T/.out")" = "$T/$f" ]
    expect 0 "$f holds the model" ckpt-inspect --diff "$T/$f" "$HF"
    sleep 0.01; ckpt-merge -q --max-shard-size 4KB -o "$T/again.${f#x.}" "$DS" >/dev/null
    t "$f: the same bytes each time" cmp "$T/$f" "$T/again.${f#x.}"
    expect 73 "$f: is not replaced" ckpt-merge -q -o "$T/$f" "$DS"
    expect 0 "$f: is replaced when told" ckpt-merge -q --overwrite -o "$T/$f" "$DS"
done
mkdir "$T/un"; tar -xf "$T/again.tar" -C "$T/un"
t "tar unpacks the same files" same_files "$T/un" "$HF"
ckpt-merge -q -o - --to hf --max-shard-size 4KB "$DS" > "$T/stream.tar"
ckpt-merge -q --overwrite -o "$T/again.tar" --to hf --max-shard-size 4KB "$DS" >/dev/null
t "a stream has the same bytes" cmp "$T/stream.tar" "$T/again.tar"
t "a stream of a stream" bash -c "ckpt-merge -q -o - --to hf '$DS' | ckpt-merge -q -o - --to hf - | ckpt-merge -q --to hf --max-shard-size 4KB -o '$T/s' && ckpt-inspect --diff '$T/s' '$HF'"
expect 0 "DeepSpeed into an archive" ckpt-merge -q --to deepspeed -o "$T/ds.tar" "$DS"
expect 0 "is one" ckpt-inspect -q --diff "$T/ds.tar" "$DS"
expect 64 "a file does not go into an archive" ckpt-merge -q --to torch -o "$T/t.tar" "$DS"
expect 64 "nor a torch file into a stream" ckpt-merge -q --to torch -o - "$DS"
expect 74 "a full stream" bash -c "ckpt-merge -q --to hf -o - '$DS' >/dev/full"
expect 73 "a device is not replaced" ckpt-merge -q --overwrite --to hf -o /dev/null "$DS"
t "and is one still" [ -c /dev/null ]
clean "writing"
t "nor beside the outputs" [ -z "$(ls -A "$T" | grep -E 'staging|tmp$|unpacked')" ]
A=$PWD/build/asan
if [ -x "$A/ckpt-merge" ]; then
    killed() {
        for n in 1 3 5 7; do (CKPT_FAULT=$1:$n:kill "$A/ckpt-merge" -q -o "$T/k.tar.zst" "$DS") >/dev/null 2>&1; done 2>/dev/null
        [ ! -e "$T/k.tar.zst" ] || ckpt-inspect -q --diff "$T/k.tar.zst" "$HF" || return 1
        rm -f "$T/k.tar.zst"; ckpt-merge -q -o "$T/k.tar.zst" "$DS" >/dev/null && rm "$T/k.tar.zst" && [ -z "$(ls -A "$T" | grep -F .k.tar)" ]
    }
    for kind in write sync rename; do t "killed at a $kind, the next run cleans up" killed $kind; done
    (CKPT_FAULT=write:2:kill "$A/ckpt-inspect" -q "$T/packed.tgz") >/dev/null 2>&1
    clean "killed while unpacking"
fi

# -- the record of it -------------------------------------------------------------------------
record() { tail -c +9 "$1" | head -c 1500 | grep -aoE 'name[\\]*":[\\]*"[^"\\]*' | sed 's/.*"//' | sort; }
ckpt-merge -q -o "$T/r.safetensors" "$DS" >/dev/null; ckpt-merge -q -o "$T/rs.safetensors" - < "$T/here.tar" >/dev/null
t "the record names every file, however it came" [ "$(record "$T/r.safetensors" | grep -v '^ckpt$')" = "$(record "$T/rs.safetensors" | grep -v '^-$')" ]
t "four of them" [ "$(record "$T/r.safetensors" | grep -c _states.pt)" = 4 ]

# -- what is refused --------------------------------------------------------------------------
mkdir -p "$T/in/d"; cp "$HF"/* "$T/in/"; echo out > "$T/outside"
hostile() {
    expect_says "$1" "$2" "$3" ckpt-inspect -q "$T/evil.tar"
    expect "$1" "$2: not merged" ckpt-merge -q -o "$T/evil-out" "$T/evil.tar"
    t "$2: nothing is written" [ ! -e "$T/evil-out" ]
}
tar -P -cf "$T/evil.tar" "$T/outside" -C "$T/in" .;                    hostile 77 "an absolute name" 'has a name that leads out'
tar -P --transform 's,^./config.json,../x,' -cf "$T/evil.tar" -C "$T/in" .
tar -P --transform 's,^outside,../outside,' -cf "$T/evil.tar" -C "$T" outside; hostile 77 "a name with .." 'has a name that leads out'
ln -s "$T/outside" "$T/in/link"; tar -cf "$T/evil.tar" -C "$T/in" .;     hostile 77 "a link that leads out" 'is a symbolic link that leads out'
rm "$T/in/link"; ln -s ../../outside "$T/in/d/link"; tar -cf "$T/evil.tar" -C "$T/in" .; hostile 77 "a relative one" 'is a symbolic link that leads out'
rm "$T/in/d/link"; mkfifo "$T/in/fifo"; tar -cf "$T/evil.tar" -C "$T/in" .; hostile 77 "a fifo" 'is a device, a fifo or a socket'
rm "$T/in/fifo"
tar -cf "$T/evil.tar" -C "$HF" . && tar -rf "$T/evil.tar" -C "$HF" .;    hostile 65 "a name twice" 'is there twice'
head -c 3000 "$T/named.tar" > "$T/evil.tar";                          hostile 65 "a cut archive" 'the file has 3000'
(cat "$T/named.tar" "$T/here.tar") > "$T/evil.tar";                   hostile 65 "two archives in one file" "bytes after the archive's end"
head -c 3000 "$T/packed.tgz" > "$T/evil.tar";                         hostile 65 "a cut compressed one" 'damaged at byte'
mkdir "$T/bad"; cp "$G/malicious/pt/obj_system.pt" "$T/bad/pytorch_model.bin"; echo '{}' > "$T/bad/config.json"
tar -cf "$T/evil.tar" -C "$T/bad" .;                                  hostile 77 "a pickle that would run something" 'system'
truncate -s 1M "$T/in/sparse"; tar -S -cf "$T/evil.tar" -C "$T/in" .;    hostile 65 "a sparse member" 'is stored sparse'
t "nothing came out" [ "$(cat "$T/outside")" = out ]
clean "refusing"
if mkdir "$T/small" && mount -t tmpfs -o size=16k none "$T/small" 2>/dev/null; then
    expect_says 74 "no room to unpack" 'No space left' env TMPDIR="$T/small" ckpt-inspect -q "$T/packed.tgz"
    umount "$T/small"
fi
expect 73 "no place to unpack" env TMPDIR="$T/absent" ckpt-inspect -q "$T/packed.tgz"

# -- folders together -------------------------------------------------------------------------
for n in 0 1; do
    mkdir -p "$T/n$n/global_step4"; cp "$DS/latest" "$T/n$n"
    cp "$DS"/global_step4/*zero_pp_rank_${n}_* "$T/n$n/global_step4"
done
expect 65 "half a checkpoint is none" ckpt-inspect -q "$T/n0"
expect 0 "two halves are one" ckpt-merge -q --together --max-shard-size 4KB -o "$T/both" "$T/n0" "$T/n1"
expect 0 "the same" ckpt-inspect --diff "$T/both" "$HF"
t "in any order, by inspect" bash -c "diff <(ckpt-inspect -q --together --digest '$T/n1' '$T/n0' | tail -n +2) <(ckpt-inspect -q --digest '$DS' | tail -n +2)"
expect 0 "--verify of both" ckpt-inspect -q --together --verify "$T/n0" "$T/n1"
tar -cf "$T/n1.tar" -C "$T" n1
expect 0 "one of them an archive" ckpt-merge -q --together --overwrite -o "$T/both2" "$T/n0" "$T/n1.tar"
t "paths from stdin" bash -c "printf '%s\n' '$T/n0' '$T/n1' | ckpt-inspect -q --together"
expect 64 "one is not two" ckpt-merge -q --together -o "$T/both3" "$T/n0"
expect 64 "together and the mean" ckpt-merge -q --together --average -o "$T/both3" "$T/n0" "$T/n1"
echo -n global_step5 > "$T/n1/latest"
expect 65 "folders that disagree" ckpt-merge -q --together -o "$T/both3" "$T/n0" "$T/n1"
t "are told" says "$T/n0/latest and $T/n1/latest differ"
t "nothing is written" [ ! -e "$T/both3" ]
t "the record names the folders" grep -qE '"name":"n0".*"name":"global_step4/zero_pp_rank_1.*"with":."n1".' "$T/both/ckpt_provenance.json"
