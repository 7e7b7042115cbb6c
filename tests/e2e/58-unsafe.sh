# ckpt-push refuses what runs code when it is loaded, as ckpt-inspect --scan judges it, for every destination.
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
export HF_TOKEN=hf_canary CKPT_HTTP_RETRIES=2
# Each malicious file is refused exactly when the scan calls it dangerous.
agree() {
    local f scan push n=0 bad=0
    for f in "$G"/malicious/pt/[a-l]*.pt; do
        [ -f "$f" ] || continue
        ckpt-inspect -q --scan "$f" >/dev/null 2>&1; scan=$?
        ckpt-push -q --dry-run "$T/nowhere" "$f" >/dev/null 2>&1; push=$?
        [ $scan = 77 ] && n=$((n + 1))
        [ $(( scan == 77 )) = $(( push == 77 )) ] || { echo "$f: scan $scan, push $push"; bad=1; }
    done
    [ $bad = 0 ] && [ $n -gt 5 ] || { echo "$n dangerous"; return 1; }
}
t "what the scan calls dangerous is refused" agree
M=$T/m; cp -r "$G/models/llama-a" "$M"; mkdir "$M/inner"; cp "$G/malicious/pt/inst_system.pt" "$M/inner/optimizer.pt"
tar -C "$M/inner" -czf "$M/packed.tar.gz" optimizer.pt
hub() { ckpt-push -q --create "$@"; }
serve
for to in "$T/folder" "$T/hub.git" hf://acme/unsafe; do
    create=--create; [ "$to" = "$T/folder" ] && create=
    expect_says 77 "$to: file and call are named" "inner/optimizer.pt!archive/data.pkl: posix.system" ckpt-push -q $create "$to" "$M"
done
expect_says 77 "the override is named" "--allow-pickles" ckpt-push -q "$T/folder" "$M"
expect_says 77 "in an archive too" "packed.tar.gz!optimizer.pt!archive/data.pkl: posix.system" ckpt-push -q --exclude 'inner/*' "$T/folder" "$M"
expect_says 77 "a single file" "inst_system.pt!archive/data.pkl: posix.system" ckpt-push -q "$T/folder" "$G/malicious/pt/inst_system.pt"
t "nothing was published" bash -c "[ ! -e $T/folder ] && ! git --git-dir $T/hub.git rev-parse -q --verify main >/dev/null"
expect 0 "unless it is allowed" ckpt-push -q --allow-pickles "$T/folder" "$M"
t "then all of it is" cmp "$M/inner/optimizer.pt" "$T/folder/inner/optimizer.pt"
expect 0 "or left out" ckpt-push -q --exclude 'inner/*' --exclude packed.tar.gz "$T/folder2" "$M"
expect_says 77 "secrets are another matter" "private key" bash -c "rm -r $M/inner $M/packed.tar.gz; openssl ecparam -name prime256v1 -genkey -noout >$M/key.txt; ckpt-push -q --allow-pickles $T/folder3 $M"
# Real checkpoints are not refused.
harmless() {
    local d
    for d in "$G"/hf-trainer/* "$G"/deepspeed/* "$G"/torch "$G"/fsdp/* "$G"/resume/*; do
        [ -d "$d" ] || continue
        ckpt-push -q --dry-run --exclude "*evil*" "$T/nowhere" "$d" >/dev/null 2>"$T/e" || { echo "$d"; cat "$T/e"; return 1; }
    done
}
t "real checkpoints pass" harmless
# A training_args.bin that calls is left out with a word, and refused when it is asked for.
cp -r "$G/models/llama-a" "$T/run"; cp "$G/malicious/pt/inst_system.pt" "$T/run/training_args.bin"
expect 0 "a training_args.bin that calls stays behind" ckpt-push -q "$T/folder4" "$T/run"
t "and does" [ ! -e "$T/folder4/training_args.bin" ]
expect_says 77 "and is refused when it is named" "training_args.bin!archive/data.pkl: posix.system" ckpt-push -q --also training_args.bin "$T/folder4" "$T/run"
