# ckpt-push and the cache where they meet what they did not make: rules of others, names, killed runs.
. "$(dirname "$0")/lib.sh"
M=$G/lora/bloom-qkv/base
export HOME=$T GIT_CONFIG_NOSYSTEM=1
git config --global init.defaultBranch main; git config --global user.email a@b.c; git config --global user.name n; git config --global safe.directory '*'
git lfs install --skip-repo >/dev/null 2>&1 || git lfs install >/dev/null 2>&1
big() { head -c 11000000 /dev/zero | tr '\0' "${2:-a}" >"$1"; }
# same_clone REPO DIR [SUB] - a clone by git and git-lfs has every byte of DIR, and is clean.
same_clone() {
    rm -rf "$T/clone"
    git clone -q "$1" "$T/clone" 2>"$T/clone.err" || { cat "$T/clone.err"; return 1; }
    [ -z "$(git -C "$T/clone" status --porcelain)" ] || { git -C "$T/clone" status; return 1; }
    (cd "$2" && find . -type f ! -path '*/.git*' -print0 | xargs -0 sha256sum -z) >"$T/clone.sums"
    (cd "$T/clone${3:+/$3}" && tr '\0' '\n' <"$T/clone.sums" | sha256sum -c --quiet)
}
how() { git --git-dir "$1" cat-file -p "main:$2" | head -c 100 | grep -q '^oid sha256:' && echo pointer || echo whole; }
is_how() { [ "$(how "$1" "$2")" = "$3" ]; }
# seeded REPO - a bare repository with one commit of what stands in $T/seed.
seeded() {
    rm -rf "$T/w"; git init -q "$T/w"; cp -r "$T/seed/." "$T/w"
    git -C "$T/w" add -A && git -C "$T/w" commit -qm seed && git clone -q --bare "$T/w" "$1"
    cp -r "$T/w/.git/lfs" "$1/" 2>/dev/null; rm -rf "$T/w"
}

# -- what goes by pointer has a rule in the same commit ---------------------------------------
mkdir "$T/seed" "$T/m"; cp -r "$M/." "$T/m"; big "$T/m/tokenizer.json"
printf '*.md text\n' >"$T/seed/.gitattributes"; seeded "$T/a.git"
expect 0 "a repository without a rule for it" ckpt-push -q "$T/a.git" "$T/m"
t "gets one, a clone is the same" same_clone "$T/a.git" "$T/m"
t "and the rules that were there" bash -c "git --git-dir $T/a.git show main:.gitattributes | head -n 1 | grep -qx '\\*.md text'"
expect 0 "a second push" ckpt-push -q "$T/a.git" "$T/m"
t "changes nothing" bash -c "[ \$(git --git-dir $T/a.git rev-list --count main) = 2 ]"
expect 0 "a new repository" ckpt-push -q --create "$T/b.git" "$M"
big "$T/m/new.json" b; mkdir "$T/m/sub"; big "$T/m/sub/a b.txt" c
expect 0 "a second push with new names" ckpt-push -q "$T/b.git" "$T/m"
t "is the same in a clone" same_clone "$T/b.git" "$T/m"
rm "$T/m"/*.json; rm -r "$T/m/sub"
H=$T/m; mkdir "$H/sub dir"
for n in 'a b.bin' 'a*b.bin' 'a?.bin' '[a].bin' 'a\b.bin' '#a.bin' '!a.bin' '"a".bin' '"b.bin' "'c'.bin" '$(id).bin' \
    'ä.bin' '-a.bin' ' a .bin' 'a=b.bin' '[attr]x.bin' 'sub dir/[[:space:]].bin' '~.bin' 'a{1,2}.bin' '**.bin'; do
    printf '%s and more\n' "$n" >"$H/$n"
done
printf 'x\xff.bin' >"$H/$(printf 'x\xff.bin')"
expect 0 "names that patterns are made of" ckpt-push -q "$T/a.git" "$H"
t "are the same in a clone" same_clone "$T/a.git" "$H"
t "by pointer" is_how "$T/a.git" "a*b.bin" pointer
expect 0 "into a folder of such a name" ckpt-push -q --path-in-repo 'x y/[z]' "$T/a.git" "$H"
t "are the same there" same_clone "$T/a.git" "$H" 'x y/[z]'
expect 0 "into a new repository" ckpt-push -q --create "$T/c.git" "$H"
t "are the same there too" same_clone "$T/c.git" "$H"
for c in '\n' '\t' '\r' '\033' '\177'; do
    n=$T/evil; rm -rf "$n"; mkdir "$n"; printf '{}' >"$n/config.json"
    printf x >"$n/$(printf "a${c}*.json filter=evil")"
    before=$(git --git-dir "$T/a.git" rev-parse main)
    expect 77 "a name with $c" ckpt-push -q "$T/a.git" "$n"
    t "is refused before anything moves" [ "$(git --git-dir "$T/a.git" rev-parse main)" = "$before" ]
done

# -- the rules of others are theirs -----------------------------------------------------------
rm -rf "$T/seed" "$T/w"; git init -q "$T/w"; cd "$T/w"
git lfs track '*.bin' 'old data/*.json' >/dev/null
mkdir -p sub 'old data' macro; printf '[attr]big filter=lfs diff=lfs merge=lfs -text\n*.mac big\n*.json -filter\nkeep.bin !filter\n' >>.gitattributes
printf '*.txt filter=lfs diff=lfs merge=lfs -text\nwhole.txt -filter\n*.bin -filter\n' >sub/.gitattributes
printf 1 >x.bin; printf 2 >'old data/x.json'; git add -A; git commit -qm by-lfs; cd - >/dev/null
git clone -q --bare "$T/w" "$T/d.git"; cp -r "$T/w/.git/lfs" "$T/d.git/"
mkdir -p "$T/r/sub" "$T/r/old data"; cd "$T/r"
for n in y.bin keep.bin z.mac a.json a.safetensors sub/a.txt sub/whole.txt sub/w.bin sub/m.safetensors 'old data/n.json'; do echo "$n" >"$n"; done
cd - >/dev/null; big "$T/r/big.json" d
expect 0 "into a repository made by git-lfs" ckpt-push -q "$T/d.git" "$T/r"
t "a clone is the same, and clean" same_clone "$T/d.git" "$T/r"
for n in y.bin z.mac a.safetensors sub/a.txt sub/m.safetensors; do t "$n goes by pointer" is_how "$T/d.git" "$n" pointer; done
for n in keep.bin a.json big.json sub/whole.txt sub/w.bin 'old data/n.json'; do t "$n goes whole" is_how "$T/d.git" "$n" whole; done
t "git-lfs agrees" bash -c "cd $T/clone && git lfs ls-files -n | sort | tr '\n' ' ' | grep -qx 'a.safetensors sub/a.txt sub/m.safetensors x.bin y.bin z.mac '"
t "a large file that a rule keeps whole is told" bash -c "echo >>'$T/r/big.json'; ckpt-push $T/d.git $T/r 2>&1 >/dev/null | grep -q 'big.json: 11.0 MB go into git itself'"
mkdir "$T/seed"; printf 'no pointer\n' >"$T/seed/model.bin"; seeded "$T/e.git"
expect 0 "beside files that are whole" ckpt-push -q "$T/e.git" "$M"
t "they stay what they are" same_clone "$T/e.git" "$M"
t "untouched" is_how "$T/e.git" model.bin whole
rm -rf "$T/seed"; mkdir "$T/seed"; printf '*.json filter=crypt\n' >"$T/seed/.gitattributes"; seeded "$T/f.git"
expect 77 "a filter of somebody else" ckpt-push -q "$T/f.git" "$M"
rm -rf "$T/seed"; mkdir "$T/seed"; ln -s /etc/gitattributes "$T/seed/.gitattributes"; seeded "$T/g.git"
expect 77 "rules behind a link" ckpt-push -q "$T/g.git" "$M"
rm -rf "$T/seed"; mkdir -p "$T/seed/sub"; printf '*.json eol=crlf\n' >"$T/seed/.gitattributes"
printf '*.x filter=lfs diff=lfs merge=lfs -text\n' >"$T/seed/sub/.gitattributes"; seeded "$T/h.git"
expect 0 "rules that change bytes" ckpt-push "$T/h.git" "$M"
t "are told" says "config.json: .gitattributes says eol: a clone may have other bytes"
expect 0 "--delete of everything" ckpt-push -q --delete '*' "$T/h.git" "$M"
t "leaves rules" bash -c "git --git-dir $T/h.git ls-tree -r --name-only main | grep -qx sub/.gitattributes"
t "dry run tells how each goes" bash -c "ckpt-push --dry-run --json $T/d.git $T/r | grep -q lfs && ckpt-push --dry-run $T/d.git $T/r | grep -E '^keep.bin +regular +same'"

# -- pointers are no files --------------------------------------------------------------------
GIT_LFS_SKIP_SMUDGE=1 git clone -q "$T/c.git" "$T/texts"
expect 65 "a clone without its files" ckpt-push -q --create "$T/i.git" "$T/texts"
t "is told" says "is a pointer of Git LFS, not the file"
t "makes nothing" [ ! -e "$T/i.git" ]
expect 65 "nor is a folder made of it" ckpt-push -q "$T/i" "$T/texts"
# An object of the store is what its name says.
expect 0 "a sound store" ckpt-push -q --create "$T/j.git" "$M"
o=$(find "$T/j.git/lfs/objects" -type f | head -n 1); s=$(sha256sum <"$o" | cut -c1-64); chmod u+w "$o"
printf X | dd of="$o" bs=1 seek=9 conv=notrunc status=none
expect_says 0 "a damaged object there" "is damaged in the store and is written anew" ckpt-push "$T/j.git" "$M"
t "and mended" [ "$(sha256sum <"$o" | cut -c1-64)" = "$s" ]

# -- what is no destination -------------------------------------------------------------------
cd "$T"
for d in git@host:a/b.git host:x.git host:/abs ssh://h/x.git git+ssh://h/x s3://b/k oci://h/x https://h/x.git git://h/x - ''; do
    expect 64 "'$d' is no destination" ckpt-push -q --create "$d" "$M"
    t "'$d' makes nothing" [ -z "$(find "$T" -maxdepth 1 -newer "$T/.err" ! -name '.*' ! -path "$T")" ]
done
t "with a word about it" says "the destination is empty"
expect 0 "unless a path says so" ckpt-push -q --create "./git@host:b.git" "$M"
t "it is there" test -d "$T/git@host:b.git/objects"
for d in git@host:a.git user@host:x hf://model s3://b ssh://h hf://me/model; do
    expect 64 "nor is '$d' an output of a merge" ckpt-merge -q -o "$d" "$M"
    t "it is not made" bash -c "! ls -d *host:* hf: s3: ssh: 2>/dev/null | grep -v '^git@host:b.git'"
done
expect 0 "a name with a colon is" ckpt-merge -q -o run:1 "$M"
cd - >/dev/null

# -- nothing moves before all is known --------------------------------------------------------
clean() { [ ! -e "$T/k.git" ] || { find "$T/k.git"; return 1; }; }
new() { expect "$1" "$2" ckpt-push -q --create "${@:3}" "$T/k.git" "$M"; t "leaves nothing" clean; }
for a in nobody '<>' 'a <>' '<a@b>' 'a <b' 'a b>' 'a <b> c' "$(printf 'a\nb <c>')"; do new 64 "--author $(printf %q "$a")" --author "$a"; done
for b in a..b -x a.lock 'a b' '' /a a/ a~1 'a:b' '@{' HEAD; do new 64 "--branch '$b'" --branch "$b"; done
new 64 "an empty message" --message ''
new 64 "a message of spaces" --message ' '
expect 0 "a branch" ckpt-push -q -b v1 "$T/j.git" "$M"
n=$(find "$T/j.git" | wc -l); cp -r "$M" "$T/m3"; printf 1 >"$T/m3/new.bin"
for b in v1/x main/y; do
    expect 64 "a branch $b below another" ckpt-push -q -b "$b" "$T/j.git" "$T/m3"
    t "writes no object" [ "$(find "$T/j.git" | wc -l)" = "$n" ]
done
expect 64 "an author, a repository that is there" ckpt-push -q --author x "$T/j.git" "$T/m3"
t "writes no object" [ "$(find "$T/j.git" | wc -l)" = "$n" ]
for o in '-b x' '-m x' '--create' "--delete x" "--author=a<b@c>"; do expect 64 "a folder with $o" ckpt-push -q $o "$T/out" "$M"; done
t "is not made" [ ! -e "$T/out" ]
for a in ftp://h/m "$T/none.git" "-b a..b $T/j.git" "-b v1/x $T/j.git" "-m x $T/folder"; do
    want=64; [ "$a" = "$T/none.git" ] && want=66
    expect $want "$a, before anything comes through the pipe" bash -c "timeout 3 ckpt-push -q $a < <(sleep 4)"
done
# A push that is killed while it sends, and one that fails.
mkdir "$T/many"; for i in $(seq 400); do head -c 40000 /dev/urandom >"$T/many/$i.txt"; done
( ulimit -f 20; ckpt-push -q --create "$T/l.git" "$T/many" >/dev/null 2>&1 )
t "a failed push leaves no repository" [ ! -e "$T/l.git" ]
ckpt-push -q "$T/j.git" "$T/many" >/dev/null 2>&1 & p=$!
for i in $(seq 200); do ls -d "$T"/j.git/objects/.ckpt-push.* >/dev/null 2>&1 && break; sleep 0.01; done
kill -9 $p; wait $p 2>/dev/null
t "a killed push" bash -c "ls -d $T/j.git/objects/.ckpt-push.*"
expect 0 "the next one" ckpt-push -q "$T/j.git" "$T/m3"
t "removes what it left" bash -c "! ls -d $T/j.git/objects/.ckpt-push.* 2>/dev/null && ! find $T/j.git -name 'tmp_*' | grep ."
t "git finds all sound" bash -c "git --git-dir $T/j.git fsck --strict"

# -- settings of a run ------------------------------------------------------------------------
cp -r "$G/hf-trainer/plain_w1/run/checkpoint-2" "$T/run2"
expect 0 "a checkpoint of HF Trainer" ckpt-push -q --create "$T/n.git" "$T/run2"
t "is published with its settings" same_clone "$T/n.git" "$T/run2"
mkdir "$T/run3"; cp "$M"/*.json "$T/run3"
for how in 'hub_token:a token is in it' 'token:a token is in it' 'system:loading it runs what is not known' \
    'unknown:loading it runs what is not known'; do
    cp "$G/settings/${how%%:*}.bin" "$T/run3/training_args.bin"
    expect 0 "settings of kind ${how%%:*}" ckpt-push --create "$T/o.git" "$T/run3"
    t "are left out, and told" grep -qF "training_args.bin: left out, ${how#*:}; --also training_args.bin sends it" "$T/.err"
    t "indeed" bash -c "! git --git-dir $T/o.git ls-tree --name-only main | grep training_args"
done
cp "$G/settings/sound.bin" "$T/run3/training_args.bin"
expect 0 "sound ones" ckpt-push -q "$T/o.git" "$T/run3"
t "are sent" is_how "$T/o.git" training_args.bin pointer

# -- the cache is proved when it is used ------------------------------------------------------
. tests/serve/hub.sh
export HF_HUB_CACHE=/proc/none       # our own cache is what is tested
A=$R/hub/models/acme
mkdir -p "$A" "$R/web"; cp -r "$G/models/llama-a" "$A/llama"; cp -r "$G/models/llama-a" "$R/web/llama"
serve
merge() { rm -rf "$T/far"; ckpt-merge "$@" -o "$T/far" hf://acme/llama; }
near() { ckpt-inspect -q --diff "$T/far" "$A/llama"; }
damage() { local f; f=$(ls "$1"/sha256-* "$1"/[0-9a-f][0-9a-f][0-9a-f]* 2>/dev/null | head -n 1); chmod u+w "$f"; printf '\1' | dd of="$f" bs=1 seek=9000 conv=notrunc status=none; }
expect 0 "a model is merged from the Hub" merge -q
damage "$CKPT_CACHE/objects"; : >"$L"
expect_says 0 "a damaged object of the cache" "was damaged in the cache" merge
t "fetched again" [ "$(grep -c '^cdn' "$L")" = 1 ]
t "and the result is right" near
t "it is set aside" ls "$CKPT_CACHE"/objects/damaged-sha256-*
damage "$CKPT_CACHE/objects"
expect_says 65 "offline, a damaged object" "is damaged in the cache" env CKPT_OFFLINE=1 ckpt-inspect --verify hf://acme/llama
expect 65 "nor is it merged" env CKPT_OFFLINE=1 ckpt-merge -q -o "$T/far2" hf://acme/llama
expect 0 "online" merge -q
t "all is well again" near
chmod 777 "$CKPT_CACHE"
expect_says 77 "a cache that all can write to" "hint: CKPT_CACHE names another place" merge -q
chmod 1777 "$CKPT_CACHE"; expect 0 "a sticky one" merge -q
chmod 755 "$CKPT_CACHE"; expect 0 "one of ours" merge -q
if [ "$(id -u)" = 0 ]; then chown 12345 "$CKPT_CACHE"; expect 77 "one of another user" merge -q; chown 0 "$CKPT_CACHE"; fi
# Blobs of the Hub's own client.
unset HF_HUB_CACHE
H=$HF_HOME/hub/models--acme--llama; mkdir -p "$H/blobs"
for f in "$A"/llama/model-*.safetensors; do cp "$f" "$H/blobs/$(sha256sum <"$f" | cut -c1-64)"; done
rm -rf "$CKPT_CACHE"; : >"$L"; expect 0 "blobs that the Hub's client has" merge -q
t "are used" [ "$(grep -c '^cdn' "$L")" = 0 ]
damage "$H/blobs"; expect 0 "a damaged one" merge
t "is told and not used" says "is damaged, and not used"
t "the result is right" near
t "the whole one is in its place" bash -c "for f in $H/blobs/????????????????????????????????????????????????????????????????; do [ \$(sha256sum <\$f | cut -c1-64) = \${f##*/} ] || exit 1; done"
rm -rf "$HF_HOME/hub"

export HF_HUB_CACHE=/proc/none

# -- an interrupted fetch goes on -------------------------------------------------------------
mkdir "$A/big"
{ printf '\x58\0\0\0\0\0\0\0%-88s' '{"w":{"dtype":"F32","shape":[10000000],"data_offsets":[0,40000000]}}'
  head -c 40000000 /dev/urandom; } >"$A/big/model.safetensors"
fetch() { rm -f "$T/big.safetensors"; ckpt-merge --provenance none "$@" -o "$T/big.safetensors" hf://acme/big/model.safetensors; }
pieces() { grep -c '^cdn .* 206 ' "$L"; }
rm -rf "$CKPT_CACHE"; serve 'status=500:8+100@/cdn/*big*'
expect 75 "a server that fails in the middle" env CKPT_HTTP_RETRIES=0 ckpt-merge -q --provenance none -o "$T/big.safetensors" hf://acme/big/model.safetensors
t "nothing is made of it" [ -z "$(ls "$CKPT_CACHE/objects")" ]
serve
expect 0 "the next fetch" fetch -q
t "takes what is left" [ "$(pieces)" -le 8 ]        # 12 from the start: the head, what is behind it, 10 pieces
t "and nothing of the parts stays" [ -z "$(ls "$CKPT_CACHE/parts")" ]
rm -rf "$CKPT_CACHE"; serve 'slow:7+100@/cdn/*big*'
HF_HUB_DOWNLOAD_TIMEOUT=30 fetch -q >/dev/null 2>&1 & p=$!
for i in $(seq 100); do [ "$(stat -c %s "$CKPT_CACHE"/parts/*.sums 2>/dev/null || echo 0)" -ge 24 ] && break; sleep 0.05; done; sleep 0.2
kill -9 $p; wait $p 2>/dev/null; serve
cp -r "$CKPT_CACHE/parts" "$T/parts"
expect 0 "after a kill" fetch -q
t "it goes on too" [ "$(pieces)" -le 10 ]
rm -rf "$CKPT_CACHE/objects" "$CKPT_CACHE/parts"; cp -r "$T/parts" "$CKPT_CACHE/parts"; serve
for f in "$CKPT_CACHE"/parts/*[0-9a-f]; do printf 'torn' | dd of="$f" bs=1 seek=5000 conv=notrunc status=none; done
expect 0 "a torn piece is fetched again" fetch -q
t "and the result is right" cmp "$A/big/model.safetensors" "$(ls "$CKPT_CACHE"/objects/sha256-*)"

# -- what a server says -----------------------------------------------------------------------
export HF_TOKEN=hf_canary
fresh() { rm -rf "$CKPT_CACHE"; serve "$@"; }
# ends STATUS NAME command... - as expect, of a command that says more than its error.
ends() {
    local want=$1 name=$2; shift 2; "$@" >"$T/.out" 2>"$T/.err"; local got=$?
    [ $got = "$want" ] && echo "ok $name" || fail "$name: status $got, $want expected" "$T/.err"
}
silent() { ! grep -qiE 'canary|(\\u00|%)6[0-9a-f]' "$T/.err" "$T/.out"; }
fresh 'say=403@/api/*'
ends 77 "a token in JSON's escapes" ckpt-inspect -vv hf://acme/llama
t "is in no message" silent
fresh 'lead@/*/resolve/*'
ends 66 "a token in a redirected path" ckpt-inspect -vv hf://acme/llama/config.json
t "is in no message" silent
fresh "away=http://hf_canary.invalid/@/*/resolve/*"
ends 69 "a token as a host" env CKPT_HTTP_RETRIES=0 ckpt-inspect -vv hf://acme/llama/config.json
t "is in no message" silent
unset HF_TOKEN
fresh 'dust@/web/*'
expect 75 "chunks that are all extension" timeout 9 env CKPT_HTTP_RETRIES=0 ckpt-inspect "$W/llama/config.json"
fresh 'line@/web/*'
expect 76 "a line of a header without end" ckpt-inspect "$W/llama/config.json"
for l in file:///etc/passwd long ftp://h/x //; do
    fresh "link=$l@/api/*tree*"
    expect 76 "a list that goes on at $l" ckpt-inspect hf://acme/llama
    t "is not followed" [ "$(grep -c tree/ "$L")" = 1 ]
done
fresh 'status=404@/api/*'
expect 66 "a repository that is not there, or private" ckpt-inspect hf://acme/llama
t "says how to see it" says "hint: if it is private, set HF_TOKEN"

# -- snapshots of the Hub's cache -------------------------------------------------------------
stop_serving; unset HF_HUB_CACHE
# snapshot DIR KIND - what the Hub's client would have of DIR; its path is $N.
snapshot() {
    local r=$T/hf/hub/$2--acme--model f s up; N=$r/snapshots/0123456789012345678901234567890123456789
    mkdir -p "$r/blobs" "$r/refs"; printf %s 0123456789012345678901234567890123456789 >"$r/refs/main"
    (cd "$1" && find . -type f | sed 's|^./||') >"$T/list"
    while read -r f; do
        s=$(sha256sum <"$1/$f" | cut -c1-64); cp "$1/$f" "$r/blobs/$s"; mkdir -p "$(dirname "$N/$f")"
        up=$(dirname "$f" | sed 's|^\.$||; s|[^/][^/]*|..|g'); ln -sfn "${up:+$up/}../../blobs/$s" "$N/$f"
    done <"$T/list"
}
mkdir -p "$T/model"; cp -r "$G/models/llama-a/." "$T/model"; mkdir -p "$T/model/deep/er"; echo x >"$T/model/deep/er/a.txt"
snapshot "$T/model" models
expect 0 "inspect of a snapshot" ckpt-inspect "$N"
t "as of the folder" diff <(sed 1d "$T/.out") <(ckpt-inspect "$T/model" | sed 1d)
expect 0 "one file of it" ckpt-inspect "$N/model-00001-of-00004.safetensors"
expect 0 "from within" bash -c "cd $N && ckpt-inspect config.json && ckpt-inspect ./deep/../config.json"
expect 0 "merge of it" ckpt-merge -q -o "$T/snap" "$N"
t "to the same" ckpt-inspect -q --diff "$T/snap" "$T/model"
expect 0 "push of it" ckpt-push -q --create "$T/snap.git" "$N"
t "every file, its folders too" same_clone "$T/snap.git" "$T/model"
cp "$G/rows.jsonl" "$T/model/train.jsonl"; snapshot "$T/model" datasets
expect 0 "and of a data set" ckpt-inspect "$N/train.jsonl"
expect 0 "offline, by the name of the repository" env HF_HUB_OFFLINE=1 ckpt-inspect hf://acme/model
snapshot "$T/model" models; D=$(dirname "$(dirname "$N")")
w=$N/model-00001-of-00004.safetensors
B64=$(printf '0%.0s' $(seq 64)); cp "$D/blobs/$(basename "$(readlink "$w")")" "$T/$B64"; mkdir -p "$T/hf/hub/models--acme--other/blobs"
cp "$T/$B64" "$T/hf/hub/models--acme--other/blobs/$B64"; cp "$T/$B64" "$D/$B64"; ln -s "$T/$B64" "$D/blobs/1$(printf '0%.0s' $(seq 63))"
for to in "$T/$B64" "../../../models--acme--other/blobs/$B64" "../../$B64" "../../blobs/../$B64" "../../blobs/../../../../$B64" \
    "../../blobs/1$(printf '0%.0s' $(seq 63))" "../blobs/$B64" "../../../blobs/$B64" "../../refs/main" "/etc/passwd" "../../blobs/.." "../../blobs/"; do
    ln -sfn "$to" "$w"
    expect 77 "a link of a snapshot to $to" ckpt-inspect -q "$w"
    expect 65 "and in its folder" ckpt-merge -q -o "$T/hostile" "$N"
done
mv "$D/blobs" "$D/../elsewhere"; ln -s ../elsewhere "$D/blobs"
expect 77 "blobs behind a link" ckpt-inspect -q "$N/config.json"
mkdir -p "$T/plain/blobs" "$T/plain/snapshots/a"; cp "$T/$B64" "$T/plain/blobs/$B64"; ln -s "../../blobs/$B64" "$T/plain/snapshots/a/model.safetensors"
expect 77 "the same in a folder of no such name" ckpt-inspect -q "$T/plain/snapshots/a/model.safetensors"
for i in 1 2 3 4; do printf '{"prompt":"a %d ","completion":"b %d"}\n' $i $i; done >"$T/pairs.jsonl"
ckpt-train -q --init tools/recipes/demo/config.json --tokenizer tools/recipes/demo/tokenizer --init-only -o "$T/base" >/dev/null 2>&1
rm -rf "$T/hf"; snapshot "$T/base" models; base=$N; mkdir "$T/data"; cp "$T/pairs.jsonl" "$T/data/train.jsonl"; snapshot "$T/data" datasets
expect 0 "a training on snapshots" ckpt-train -q --model "$base" --train-file "$N/train.jsonl" -o "$T/tr" --max-seq-length 16 --max-steps 1
expect 0 "and an evaluation" ckpt-eval -q --json --eval-file "$N/train.jsonl" "$base"

# Publishers that make the same repository at the same moment, and what a killed one left.
for i in 1 2 3 4; do mkdir "$T/same$i"; cp "$M/config.json" "$T/same$i"; echo "$i" > "$T/same$i/n.json"; done
together() {
    local i pid=()
    for i in 1 2 3 4; do ckpt-push -q --create --path-in-repo "p$i" "$T/same.git" "$T/same$i" 2>>"$T/same.err" & pid+=($!); done
    for i in "${pid[@]}"; do wait "$i" || return 1; done
    [ "$(git --git-dir "$T/same.git" rev-list --count main)" = 4 ]
}
t "four that make one repository all publish" together
: > "$T/same.git/refs/heads/main.lock"
expect_says 75 "a lock that a killed publisher left" "refs/heads/main.lock, which a killed one left" ckpt-push "$T/same.git" "$T/same1"
