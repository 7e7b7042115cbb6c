#!/usr/bin/env bash
# lfs.sh PYTHON BUILD - giftless, a server of Git LFS, and the real git and git-lfs, over http: they clone and verify what
# ckpt-push published to a repository on another host, and we read what they pushed.
set -eu
PEERS=$1 B=$2
cd "$(dirname "$0")/../.."
[ -x "$B/serve" ] || { echo "lfs: $B/serve is not built: make units"; exit 1; }
"$PEERS" -c 'import giftless.app' 2>/dev/null || "$PEERS" -m pip install -q giftless flask flask-marshmallow marshmallow-enum webargs figcan PyYAML 'PyJWT<2.10' flask-classful \
        python-dateutil boto3 typing_extensions cachetools cryptography python-dotenv
T=$(mktemp -d); server= lfs=; trap 'kill $server $lfs 2>/dev/null || :; rm -rf "$T"' EXIT
export HOME=$T/home GIT_CONFIG_NOSYSTEM=1 CKPT_CACHE=$T/cache CKPT_HTTP_RETRIES=2 GIT_TERMINAL_PROMPT=0
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
mkdir -p "$HOME" "$T/root/git" "$T/giftless"; M=$PWD/tests/golden/models/llama-a
git config --global user.email a@b.c; git config --global user.name n; git config --global init.defaultBranch main
git config --global safe.directory '*'; git lfs install --skip-repo >/dev/null
git config --global credential.helper '!f() { test "$1" = get && printf "username=user\npassword=hf_canary\n"; }; f'
mkfifo "$T/ports"; "$B/serve" "$T/root" "$T/log" >"$T/ports" & server=$!
read -r port _ <"$T/ports"
for _ in 1 2 3; do
    at=$((20000 + RANDOM % 20000))
    (cd "$T/giftless" && GIFTLESS_CONFIG_STR='{"AUTH_PROVIDERS": ["giftless.auth.allow_anon:read_write"]}' \
        exec "$PEERS" -P -m flask --app giftless.wsgi_entrypoint:app run -h 127.0.0.1 -p $at >"$T/giftless.log" 2>&1) & lfs=$!
    for _ in $(seq 100); do curl -s -o /dev/null "http://127.0.0.1:$at/" && break 2; kill -0 $lfs 2>/dev/null || break; sleep 0.1; done
done
git init -q --bare "$T/root/git/a.git"; git -C "$T/root/git/a.git" config http.receivepack true
git init -q "$T/w"
(cd "$T/w" && printf '[lfs]\n\turl = http://127.0.0.1:%s/acme/toy.git/info/lfs\n\tlocksverify = false\n' $at >.lfsconfig && git add . && git commit -qm lfsconfig && git push -q "$T/root/git/a.git" main)
U=git+http://127.0.0.1:$port/git/a.git
"$B/ckpt-push" -q -m ours "$U" "$M" >/dev/null
git clone -q "${U#git+}" "$T/clone"
(cd "$M" && find . -type f | xargs sha256sum) | (cd "$T/clone" && sha256sum -c --quiet)
git -C "$T/clone" lfs fsck >/dev/null
echo "git and git-lfs clone from giftless what ckpt-push sent, $(git -C "$T/clone" lfs ls-files | wc -l) objects verified"
# The other way.
mkdir "$T/clone/theirs"; cp "$M"/*.json "$T/clone/theirs"
for f in "$M"/model-*.safetensors; do { cat "$f"; } >"$T/clone/theirs/${f##*/}"; done
printf 'a new object' >"$T/clone/theirs/new.bin"
(cd "$T/clone" && git lfs track 'theirs/*.safetensors' 'theirs/*.bin' >/dev/null && git add -A && git commit -qm theirs && git push -q origin main 2>/dev/null)
rm -rf "$CKPT_CACHE"
"$B/ckpt-inspect" -q --diff "$U/theirs" "$M" >/dev/null
"$B/ckpt-push" -q "$T/fetched" "$U/theirs" >/dev/null
cmp "$T/fetched/new.bin" "$T/clone/theirs/new.bin"
"$B/ckpt-merge" -q -o "$T/far" "$U@main/theirs" >/dev/null
"$B/ckpt-merge" -q -o "$T/near" "$M" >/dev/null
cmp "$T/far/model.safetensors" "$T/near/model.safetensors"
! grep -rqa 'hf_canary' "$CKPT_CACHE" || { echo "lfs: the password is in the cache"; exit 1; }
echo "and ckpt-inspect, ckpt-push and ckpt-merge read what git-lfs pushed there"
