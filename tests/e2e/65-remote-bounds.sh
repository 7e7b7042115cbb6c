# What pushing and fetching take of memory, however large and many the files; an address that expires while it is read;
# an archive at an address as a model.  [A6, B6, D5]
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../serve/hub.sh"
export HF_TOKEN=hf_canary CKPT_DEVICE=cpu HF_HUB_DOWNLOAD_TIMEOUT=30     # no server stalls here but for want of a CPU
MOST=65536                              # KiB resident
peak() { /usr/bin/time -o "$T/peak" -f %M "$@" >"$T/said" 2>&1 || { cat "$T/said" "$T/peak"; return 1; }; }
# What a sanitizer keeps beside the memory that is used, freed blocks among it, has no such limit.
case $B in */asan) limited=false ;; *) limited=true ;; esac
within() { peak "$@" && { ! $limited || [ "$(tail -n 1 "$T/peak")" -le "$MOST" ] || { echo "$(tail -n 1 "$T/peak") KiB resident"; false; }; }; }

# -- memory ---------------------------------------------------------------------------------------
serve --unproved=1 --page=1000 --multipart=16777216 --chunk=16777216
mkdir "$T/large" "$T/few" "$T/many"
truncate -s 200M "$T/large/sparse.safetensors"; head -c 40000000 /dev/urandom >"$T/large/w.safetensors"
t "a push of large files in 64 MiB" within ckpt-push -q --create hf://acme/large "$T/large"
rm -rf "$CKPT_CACHE"
t "B6 fetching them in 64 MiB" within env HF_HUB_CACHE=/proc/none ckpt-push -q "$T/got" hf://acme/large
t "they are the same" diff -r "$T/large" "$T/got"
rm -rf "$T/got" "$T/large" "$R/repos/models/acme/large"
head -c 450000 /dev/urandom | base64 -w 0 | split -b 600 -a 4 - "$T/few/f"; head -c 2925000 /dev/urandom | base64 -w 0 | split -b 600 -a 4 - "$T/many/f"
t "few small files" within ckpt-push -q --create hf://acme/few "$T/few"
# 5,500 more: 1.2 KiB each at most, where samples and lines in memory took 3; of 100,000 it is 0.35.
MOST=$(($(tail -n 1 "$T/peak") + 6500)) t "many small files take hardly more" within ckpt-push -q --create hf://acme/many "$T/many"
head -c 24000000 /dev/urandom >"$T/many/notes.txt"; rm "$T/many"/f*
t "a regular file takes no more, in one commit" within ckpt-push -q hf://acme/many "$T/many"

# -- addresses that expire ------------------------------------------------------------------------
mkdir -p "$T/big" "$R/git"; noise 20000000 >"$T/big/w.bin"
export HOME=$T GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git config --global credential.helper '!f() { test "$1" = get && printf "username=user\npassword=hf_canary\n"; }; f'
git init -q -b main "$T/w"; git init -q --bare -b main "$R/git/a.git"; git -C "$R/git/a.git" config http.receivepack true
(cd "$T/w" && printf '[lfs]\n\turl = http://127.0.0.1:%s/acme/few.git/info/lfs\n' "$P" >.lfsconfig && git add . && git commit -qm lfs && git push -q "$R/git/a.git" main)
U=git+http://127.0.0.1:$P/git/a.git
expect 0 "a large object of Git LFS" ckpt-push -q --allow-pickles "$U" "$T/big"
count() { [ "$(grep -cE "$2" "$L")" = "$1" ] || { cat "$L"; false; }; }
again() { serve --ports="$P,$S" "$@"; rm -rf "$CKPT_CACHE" "$T/got"; }
again 'expired:5+1@/lfs/*'
expect 0 "D5 an address that expires while it is read" ckpt-push -q "$T/got" "$U"
t "what came is whole" cmp "$T/got/w.bin" "$T/big/w.bin"
t "another was asked for, once" count 2 'POST .*objects/batch'
t "and no piece came twice" count 5 'GET /lfs.* 206 (4194304|3222784)$'
again 'expired:2+1000@/lfs/*'
expect_says 77 "one that no other address helps" "Request has expired" ckpt-push -q "$T/got" "$U"
t "leaves nothing" [ ! -e "$T/got" ]
ckpt-push -q --create hf://acme/big "$T/big" --allow-pickles >/dev/null
again 'expired:3+1@/lfs/*'
expect 0 "the Hub's, which is led to again" ckpt-push -q "$T/got" hf://acme/big
t "is whole" cmp "$T/got/w.bin" "$T/big/w.bin"

# -- archives -------------------------------------------------------------------------------------
D=tools/recipes/demo; "$D/wordnet.sh" "$T" 300 >/dev/null
ckpt-train -q --init "$D/config.json" --tokenizer "$D/tokenizer" --init-only -o "$T/base" >/dev/null
head -n 6 "$T/eval.jsonl" >"$T/e.jsonl"; head -n 20 "$T/train.jsonl" >"$T/t.jsonl"; mkdir -p "$R/web"
tar -C "$T" -cf "$R/web/base.tar" base; gzip -k "$R/web/base.tar"; serve
loss() { ckpt-eval -q --json -t "$T/e.jsonl" "$1" | grep -oE '"loss": [0-9.]+'; }
trained() { rm -rf "$T/run"; ckpt-train -q --model "$1" --train-file "$T/t.jsonl" --max-seq-length 32 --max-steps 2 -o "$T/run" >"$T/.t" 2>&1 || { cat "$T/.t"; return; }; sha256sum <"$T/run/model.safetensors"; }
want=$(loss "$T/base") made=$(trained "$T/base")
t "an archive at an address is evaluated" [ "$(loss "$W/base.tar")" = "$want" ]
t "trained" [ "$(trained "$W/base.tar")" = "$made" ]
t "packed too" [ "$(trained "$W/base.tar.gz")" = "$made" ]
t "as one on the disk" [ "$(trained "$R/web/base.tar")" = "$made" ]
