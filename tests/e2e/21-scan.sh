# --scan: every hostile file by its status and what is told of it, harmless ones by 0, and no other
# view of a hostile file that reads as fine.
. "$(dirname "$0")/lib.sh"
S=$G/malicious/scan
# each - every line of expected.txt: status, path, a text among the findings.
each() {
    local want path text got
    while IFS=$'\t' read -r want path text; do
        ckpt-inspect -q --json --scan "$S/$path" > "$T/.o" 2> "$T/.e"; got=$?
        if [ "$got" != "$want" ]; then echo "not ok --scan $path: status $got, $want expected"; tail -n 3 "$T/.o"; cat "$T/.e"
        elif [ -n "$text" ] && ! grep -qF -e "$text" -e "${text//\"/}" "$T/.o"; then echo "not ok --scan $path: does not tell $text"; head -n 12 "$T/.o"
        else echo "ok --scan $path: $want"; fi
    done < "$S/expected.txt"
}
each
row() { grep -qE -- "$1" "$T/.out"; }
# Folders: all the way down, links and git's files told, what cannot be read told.
cp -r "$S/text/custom" "$T/m"; mkdir -p "$T/m/.git/hooks"; cp "$S/pickles/inst.pkl" "$T/m/.git/hooks/post-checkout"
expect 1 "git's own files are no part of the model" ckpt-inspect --scan "$T/m"
t "and are noted" row '^\.git +git.s own folder +note'
t "remote code is named with its file" row '^modeling_x.py +modeling_x.py +suspicious'
t "and its auto_map" row '^config.json +auto_map: .*modeling_x.X.* +suspicious'
deep=$T/m/x/sub/deep; mkdir -p "$deep"; cp "$S/pickles/inst.pkl" "$deep/m.bin"
expect 77 "three folders down" ckpt-inspect --scan "$T/m"
t "by its path" row '^x/sub/deep/m.bin +os.system +[0-9]+ +called +dangerous'
mkdir "$T/l"; ln -s ../m/x/sub/deep/m.bin "$T/l/m.bin"; ln -s ../m "$T/l/d"; echo '{}' > "$T/l/config.json"
expect 77 "links are not followed" ckpt-inspect --scan "$T/l"
t "but told, those to folders too" bash -c "[ \$(grep -c 'a symbolic link' $T/.out) = 2 ]"
expect 77 "and followed when asked to" ckpt-inspect --follow-symlinks --scan "$T/l"
t "with what they lead to" row '^d/x/sub/deep/m.bin +os.system'
mkdir "$T/round"; cp "$T/l/config.json" "$T/round"; for k in 1 2 3; do ln -s . "$T/round/$k"; done
expect 0 "links that lead in circles" timeout 20 ckpt-inspect --follow-symlinks --scan "$T/round"
t "are followed once" row '^2 +a folder of several names +note +was looked at under another'
d=$T/n; for _ in $(seq 70); do d=$d/a; done; mkdir -p "$d"; echo hello > "$T/n/a.txt"
expect 65 "folders deeper than 64 are told" ckpt-inspect --scan "$T/n"
mkdir "$T/empty"; expect 65 "a folder of nothing is not clean" ckpt-inspect --scan "$T/empty"
mkdir "$T/f"; mkfifo "$T/f/model.bin"; echo hi > "$T/f/a.txt"
expect 65 "nor what is no regular file" ckpt-inspect --scan "$T/f"
expect 66 "nor what is not there" ckpt-inspect --scan "$T/none"
t "of which nothing is said to be 0" bash -c "! grep -q dangerous $T/.out"
ln -s nowhere "$T/w1"; mkdir "$T/d1"; mv "$T/w1" "$T/d1"
expect 65 "a link that leads nowhere, followed" ckpt-inspect --follow-symlinks --scan "$T/d1"
# More than is read at once: each pickle of a stream is told once.
for _ in $(seq 200); do cat "$S/pickles/second.pkl"; done > "$T/200"; for _ in $(seq 100); do cat "$T/200"; done > "$T/many.pkl"
ckpt-inspect -q --json --scan "$T/many.pkl" > "$T/.out" 2>/dev/null
t "20,000 hostile pickles in a row" row '"dangerous": 20000,'
# Each of these pairs of bytes could begin a pickle that goes on to the end.
{ printf '\377\376\0\1'; yes $'\x80\x02' | tr -d '\n' | head -c 1000000; } | gzip > "$T/starts.gz"
expect 65 "half a million beginnings of pickles" timeout 60 ckpt-inspect --scan "$T/starts.gz"
t "are not all followed" row 'places where a pickle could begin +[0-9]+ +unjudged +more than are followed'
truncate -s 90000000000 "$T/long.npy"; printf '\223NUMPY\1\0v\0%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (22499999968,), }" | dd of="$T/long.npy" conv=notrunc 2>/dev/null
t "what takes long ends when it is told to" bash -c "timeout 0.3 ckpt-inspect --stats $T/long.npy; [ \$? = 124 ]"
rm "$T/long.npy"
LC_ALL=C sed 's/byteorderPK\x01\x02/byteorderPK\x01\x03/' "$G/torch/dtypes.pt" > "$T/torn.pt"
expect 65 "a zip file whose directory is torn in the middle" ckpt-inspect --scan "$T/torn.pt"
mkdir "$T/ix"; echo '{"weight_map": {"a": "../../m.bin", "b": "model-1.safetensors"}}' > "$T/ix/pytorch_model.bin.index.json"
expect 77 "an index of files elsewhere" ckpt-inspect --scan "$T/ix"
t "and which" row 'a: ../../m.bin +dangerous +names a file that is not in the folder'
# Programs get one object a finding.
ckpt-inspect -q --json --scan "$S/packed/a.tar.gz" > "$T/.out" 2>/dev/null
t "path, name, place, reason in JSON" row '"path": "a.tar.gz!inner/m.bin!m/data.pkl", "file": "a.tar.gz", "member": "inner/m.bin!m/data.pkl", "what": "posix.system", "at": 2, "use": "called", "verdict": "dangerous", "reason": "runs programs"'
# The worst decides: dangerous, then damaged or not judged, then suspicious.
mkdir "$T/w"; cp "$S/text/run.sh" "$T/w"; expect 1 "suspicious" ckpt-inspect --scan "$T/w"
cp "$S/numbers/unknown.bin1" "$T/w"; expect 65 "not judged is worse" ckpt-inspect --scan "$T/w"
t "and says so" says "1 that could not be judged"
cp "$S/pickles/inst.pkl" "$T/w"; expect 77 "dangerous is worst" ckpt-inspect --scan "$T/w"
# Other views of a hostile file.
for v in --tree --verify --state --args --rng ''; do
    ckpt-inspect $v "$G/malicious/pt/functools_partial.pt" >/dev/null 2>"$T/.e"; got=$?
    t "inspect $v of a hostile file is no success" [ "$got" != 0 ]
done
expect 77 "--tree of a hostile file" ckpt-inspect --tree "$G/malicious/pt/functools_partial.pt"
t "shows it" row 'functools.partial'
t "with the word" row '^refused: .*functools.partial'
t "and where more is told" says "--scan tells all"
expect 77 "a template in JSON" ckpt-inspect "$S/text/ssti1/tokenizer_config.json"
expect 77 "a template in GGUF" ckpt-inspect "$S/numbers/ssti.gguf"
cp -r "$G/hf-trainer/plain_w1/run/checkpoint-2" "$T/c"; expect 0 "a checkpoint" ckpt-inspect --verify "$T/c"
cp "$S/pickles/inst.pkl" "$T/c/notes.dat"; expect 77 "--verify of a folder with a hostile file" ckpt-inspect --verify "$T/c"
t "names it" says "notes.dat: os.system: runs programs"
for f in hf-trainer/ds3_w2_bf16/run hf-saved gguf models tokenizers wholes fsdp bnb logs; do
    expect 0 "what the real tools wrote is clean: $f" ckpt-inspect --scan "$G/$f"
done
