# Fetching into a folder: large files are moved out of the cache, not copied, where nobody else uses them; what a failed
# fetch got stays in the cache.  [A6, D5]
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../serve/hub.sh"
export HF_TOKEN=hf_canary
O=$T/root/repos/models/acme/m/lfs; M=$T/m; umask 027
mkdir -p "$M/sub"; for i in 1 2 3; do head -c 17000000 /dev/urandom >"$M/sub/w-$i.safetensors"; done
head -c 1000000 /dev/urandom >"$M/small.safetensors"; echo '{}' >"$M/config.json"
serve; expect 0 "a model at the Hub" ckpt-push -q --create hf://acme/m "$M"
large() { [ "$(find "$CKPT_CACHE/objects" -size +1M | wc -l)" = "$1" ]; }
anew() { rm -rf "$T/got" "$HF_HOME"; : >"$L"; }
fetched() { [ "$(grep -c 'GET /lfs.* 206 4194304$' "$L")" = "$1" ]; }
get() { ckpt-push -q "$T/got" hf://acme/m; }
rm -rf "$CKPT_CACHE"; anew

gone=$(sha256sum <"$M/sub/w-3.safetensors" | cut -d ' ' -f 1); mv "$O/$gone" "$T/gone"
expect 66 "one of its files is missing" get
t "nothing is there" [ ! -e "$T/got" ]
mv "$T/gone" "$O/$gone"; anew
expect 0 "the next fetch" get
t "has only the missing file to fetch" fetched 4
t "is whole" diff -r "$M" "$T/got"
t "what the first one got is still in the cache" large 2

rm -rf "$CKPT_CACHE"; anew
expect 0 "a fetch of all" get
t "is whole too" diff -r "$M" "$T/got"
t "leaves no copies of large files" large 0
t "nor parts" [ -z "$(ls -A "$CKPT_CACHE/parts")" ]
t "files have the rights of new ones" [ "$(stat -c %a "$T/got/sub/w-1.safetensors")" = 640 ]
t "and one name" [ "$(stat -c %h "$T/got/sub/w-1.safetensors")" = 1 ]
: >"$L"; echo changed >"$T/got/sub/w-1.safetensors"
expect 0 "again, into the folder that is there" get
t "what was changed is replaced" diff -r "$M" "$T/got"
t "all of it was fetched" fetched 12

rm -rf "$CKPT_CACHE" "$T/got"; ckpt-push -q --dry-run "$T/none" hf://acme/m/sub/w-1.safetensors >/dev/null; anew
t "a file is in the cache for others" large 1
expect 0 "beside it" get
t "the others are fetched" fetched 8
t "it stays there, and is copied" large 1
echo changed >"$T/got/sub/w-1.safetensors"; anew
expect 0 "a change of the copy" get
t "is none of the cache" diff -r "$M" "$T/got"

anew; rm -rf "$CKPT_CACHE"
if mkdir /dev/shm/ckpt-fetch.$$ 2>/dev/null; then
    CKPT_CACHE=/dev/shm/ckpt-fetch.$$ expect 0 "a cache on another file system" get
    t "is copied from" diff -r "$M" "$T/got"
    rm -rf /dev/shm/ckpt-fetch.$$; anew
fi
expect 0 "no cache at all" env CKPT_CACHE=none ckpt-push -q "$T/got" hf://acme/m
t "all the same" diff -r "$M" "$T/got"
expect 0 "a single file" ckpt-push -q "$T/one" hf://acme/m/sub/w-2.safetensors
t "is moved as well" cmp "$M/sub/w-2.safetensors" "$T/one/w-2.safetensors"
t "out of the cache" large 0
