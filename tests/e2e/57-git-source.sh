# Sources of all five tools: a repository of git with LFS, on this host, over http (git's own http-backend, tests/serve)
# and over ssh (sshd on loopback); archives by https addresses.  B6, X1
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
. tests/e2e/shared/sshd.sh
D=tools/recipes/demo
export HOME=$T/home GIT_CONFIG_NOSYSTEM=1 CKPT_HTTP_RETRIES=0; unset SSH_AUTH_SOCK
mkdir -p "$HOME/.ssh" "$R/git" "$R/web"; chmod 700 "$HOME/.ssh"
git config --global user.email a@b.c; git config --global user.name n; git config --global safe.directory '*'; git config --global init.defaultBranch main
ckpt-train -q --init $D/config.json --tokenizer $D/tokenizer --init-only -o "$T/base" >/dev/null 2>&1
M=$T/base
for i in 1 2 3 4 5 6 7 8; do printf '{"prompt":"a %d ","completion":"b %d"}\n' $i $i; done >"$T/rows.jsonl"
train() { ckpt-train -q --max-steps 1 --max-seq-length 32 --per-device-train-batch-size 2 --train-file "$T/rows.jsonl" --no-final-model "$@"; }
train --model "$M" -o "$T/near" >/dev/null
near_loss=$(score "$T/rows.jsonl" "$M"); t "a loss to compare with" [ -n "$near_loss" ]
# tools NAME ADDRESS - each of the five reads it as it reads the folder.
tools() {
    local name=$1 from=$2
    rm -rf "$T"/{merged,far,pushed,whole}
    t "$name: ckpt-inspect" ckpt-inspect -q --diff "$from" "$M"
    t "$name: ckpt-inspect --verify" ckpt-inspect -q --verify "$from"
    t "$name: ckpt-merge" bash -c "ckpt-merge -q --provenance none -o '$T/merged' '$from' && cmp '$T/merged/model.safetensors' '$M/model.safetensors'"
    t "$name: ckpt-train --model" train --model "$from" -o "$T/far"
    t "$name: to the same weights" ckpt-inspect -q --diff "$T/far/checkpoint-1" "$T/near/checkpoint-1"
    t "$name: ckpt-eval" [ "$(score "$T/rows.jsonl" "$from")" = "$near_loss" ]
    t "$name: ckpt-push" ckpt-push -q "$T/pushed" "$from"
    t "$name: the same files" same_files "$T/pushed" "$T/want"
}
ckpt-push -q "$T/want" "$M" >/dev/null

# -- on this host -------------------------------------------------------------------------------
ckpt-push -q --create "$T/hub.git" "$M" >/dev/null
cp -r "$M" "$T/second"; echo second >"$T/second/notes.txt"
ckpt-push -q -m second --path-in-repo deep/er "$T/hub.git" "$T/second" >/dev/null
git --git-dir "$T/hub.git" tag v1 main~1
tools "a bare repository" "$T/hub.git@v1"
t "its newest commit" ckpt-inspect -q --diff "$T/hub.git/deep/er" "$M"
expect_prints 0 "a file of it" '"model_type"' ckpt-inspect "$T/hub.git/config.json"
expect 0 "by its address" ckpt-inspect -q --diff "git+file://$T/hub.git@v1" "$M"
expect 66 "what a tag does not have" ckpt-inspect "$T/hub.git@v1/deep"
expect_says 66 "a revision that is not there" "has no branch, tag or commit v9" ckpt-inspect "$T/hub.git@v9"
expect_says 66 "an empty repository" "has no commit yet" bash -c "git init -q --bare '$T/empty.git'; exec ckpt-inspect '$T/empty.git'"
for r in '..' '-x' 'a..b' 'main~1' 'a b' '%zz' ''; do expect 64 "revision '$r'" ckpt-inspect "git+file://$T/hub.git@$r"; done
t "what is pushed is read by its printed address" bash -c "ckpt-push -q '$T/hub.git' '$M' | ckpt-inspect -q --verify"
t "and merged in one line" bash -c "ckpt-push -q '$T/hub.git' '$M' | ckpt-merge -q -o '$T/line'"
o=$(find "$T/hub.git/lfs/objects" -type f -size +100k | head -n 1); chmod u+w "$o"
mv "$o" "$T/aside"; expect_says 66 "an object that is not there" "hint: git lfs fetch" env CKPT_CACHE=none ckpt-merge -q -o "$T/no" "$T/hub.git"
cp "$T/aside" "$o"; printf X | dd of="$o" bs=1 seek=5000 conv=notrunc status=none
expect_says 65 "a damaged one" "its object in the repository is damaged" env CKPT_CACHE=none ckpt-merge -q -o "$T/no" "$T/hub.git"
t "nothing is made of them" [ ! -e "$T/no" ]
rm -rf "$T/w"; git init -q "$T/w"; (cd "$T/w" && cp "$M"/*.json . && ln -s config.json link.json && git add . && git commit -qm x)
expect_says 0 "a link in a commit" "link.json: a symbolic link, left out" ckpt-inspect "git+file://$T/w/config.json"
git init -q --bare "$T/plain"; (cd "$T/w" && git push -q "$T/plain" main)
expect 0 "a bare repository of any name" ckpt-inspect "$T/plain/config.json"

# -- over http, with a server of LFS objects ------------------------------------------------------
serve
export HF_TOKEN=hf_canary; ckpt-push -q --create hf://acme/lfs "$G/rows.jsonl" >/dev/null; unset HF_TOKEN
git init -q --bare "$R/git/a.git"; git -C "$R/git/a.git" config http.receivepack true
git config --global credential.helper '!f() { test "$1" = get && printf "username=user\npassword=hf_canary\n"; }; f'
rm -rf "$T/w"; git init -q "$T/w"
(cd "$T/w" && printf '[lfs]\n\turl = http://127.0.0.1:%s/acme/lfs.git/info/lfs\n' "$P" >.lfsconfig && git add . && git commit -qm lfsconfig && git push -q "$R/git/a.git" main)
U=git+http://127.0.0.1:$P/git/a.git
expect 0 "it is published over http" ckpt-push -q "$U" "$M"
git -C "$R/git/a.git" branch side/branch main
rm -rf "$CKPT_CACHE"
tools "over http" "$U"
: >"$L"; expect 0 "again" ckpt-merge -q -o "$T/again" "$U"
t "no object is fetched twice" bash -c "! grep -qE 'GET /lfs|objects/batch' '$L'"
expect 0 "a branch with a slash" ckpt-inspect -q --diff "$U@side%2Fbranch" "$M"
expect 0 "a commit" ckpt-inspect -q --diff "$U@$(git -C "$R/git/a.git" rev-parse main)" "$M"
expect 0 "a file" ckpt-inspect "$U/config.json"
expect_says 66 "a revision" "has no branch, tag or commit v9" ckpt-inspect "$U@v9"
expect_says 66 "a repository that is not there" "no such repository" ckpt-inspect "git+http://127.0.0.1:$P/git/none.git"
rm -rf "$T/again"; expect 0 "offline, from the cache" env CKPT_OFFLINE=1 ckpt-merge -q -o "$T/again" "$U"
expect 69 "offline, what is not in it" env CKPT_OFFLINE=1 ckpt-inspect "$U@other"
rm -rf "$CKPT_CACHE"; mv "$R/repos/models/acme/lfs/lfs" "$T/lfs-away"; mkdir "$R/repos/models/acme/lfs/lfs"
expect_says 66 "an object that the server does not have" "not on the LFS server: Object does not exist" ckpt-merge -q -o "$T/no" "$U"
rm -r "$R/repos/models/acme/lfs/lfs"; mv "$T/lfs-away" "$R/repos/models/acme/lfs/lfs"
serve --ports="$P,$S" 'flip@/lfs/*'; rm -rf "$CKPT_CACHE"
expect_says 65 "one with another byte" "was listed" ckpt-merge -q -o "$T/no" "$U"
serve --ports="$P,$S" 'html@*/objects/batch'; rm -rf "$CKPT_CACHE"
expect 76 "a page for the batch" ckpt-merge -q -o "$T/no" "$U"
t "nothing is made of it" [ ! -e "$T/no" ]
t "the password is in no message, and in no file" bash -c "! grep -rqa hf_canary '$T/.err' '$T/.out' '$CKPT_CACHE'"
git config --global --unset credential.helper; serve --ports="$P,$S"
expect_says 77 "without a password" "refuses the credential, or asks for one" ckpt-inspect "$U"
expect_says 77 "http of another host" "http authenticates neither" ckpt-inspect git+http://example.invalid/a.git

# -- archives by address -------------------------------------------------------------------------
(cd "$T" && tar cf "$R/web/base.tar" base && tar czf "$R/web/base.tar.gz" base)
for a in base.tar base.tar.gz; do
    rm -rf "$CKPT_CACHE" "$T/merged"
    t "$a of a web server: ckpt-inspect" ckpt-inspect -q --diff "$W/$a" "$M"
    t "$a of a web server: ckpt-merge" bash -c "ckpt-merge -q --provenance none -o '$T/merged' '$W/$a' && cmp '$T/merged/model.safetensors' '$M/model.safetensors'"
done

# -- over ssh -----------------------------------------------------------------------------------
ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/id_ed25519"; cp "$HOME/.ssh/id_ed25519.pub" "$T/keys"
sshd_start 127.0.0.1 || { echo "ok skipped: no sshd: package openssh-server"; exit; }
trap 'kill $server $sshd 2>/dev/null; rm -rf "$T"' EXIT
git config --global credential.helper '!f() { test "$1" = get && printf "username=user\npassword=hf_canary\n"; }; f'
echo "[127.0.0.1]:$sport $(cut -d' ' -f1,2 "$T/host.pub")" >"$HOME/.ssh/known_hosts"
expect 0 "over ssh" ckpt-inspect "git+ssh://$(id -un)@127.0.0.1:$sport$R/git/a.git/config.json"
rm "$HOME/.ssh/id_ed25519"
expect 77 "without a key" ckpt-inspect "git+ssh://$(id -un)@127.0.0.1:$sport$R/git/a.git"
