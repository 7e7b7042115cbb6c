# ckpt-push to git repositories on another host: over http by git's own http-backend (tests/serve), and over ssh by a real
# sshd, both on loopback; logins by git's credential helper, keys and known_hosts; LFS objects to a server.  A7, D8
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
. tests/e2e/shared/sshd.sh
skip() { echo "ok skipped: $1"; exit; }
M=$G/models/llama-a
export HOME=$T/home GIT_CONFIG_NOSYSTEM=1 CKPT_CACHE=$T/cache CKPT_HTTP_RETRIES=0
unset SSH_AUTH_SOCK
mkdir -p "$HOME/.ssh" "$R/git"; chmod 700 "$HOME/.ssh"
git config --global user.email a@b.c; git config --global user.name n; git config --global safe.directory '*'
git config --global init.defaultBranch main; git config --global filter.lfs.smudge cat
repo() { git init -q --bare "$R/git/$1.git"; git -C "$R/git/$1.git" config http.receivepack true; }
log() { git -C "$R/git/$1.git" log --format="$2" main; }
repo a; repo ssh
listens() { (exec 3<>/dev/tcp/127.0.0.1/$1) 2>/dev/null; }
small=(--exclude '*.safetensors')

# -- over http ----------------------------------------------------------------------------------
serve
U=git+http://127.0.0.1:$P/git
expect_says 77 "without a password" "refuses the credential, or asks for one" ckpt-push -q "${small[@]}" "$U/a.git" "$M"
git config --global credential.helper '!f() { test "$1" = get && printf "username=user\npassword=wrong\n"; cat >>'"$T/helper"'; echo "$1" >>'"$T/helper"'; }; f'
expect 77 "with a wrong one" ckpt-push -q "${small[@]}" "$U/a.git" "$M"
t "the helper is told so" grep -q '^erase$' "$T/helper"
git config --global credential.helper '!f() { test "$1" = get && printf "username=user\npassword=hf_canary\n"; cat >>'"$T/helper"'; echo "$1" >>'"$T/helper"'; }; f'
expect 0 "with that of git's credential helper" ckpt-push -q "${small[@]}" "$U/a.git" "$M"
t "which is told that it was right" grep -q '^store$' "$T/helper"
t "one commit" [ "$(log a %s)" = "Upload llama-a with ckpt-push" ]
t "with the files" bash -c "git clone -q $R/git/a.git $T/clone && cmp $T/clone/config.json $M/config.json"
expect 0 "the same again" ckpt-push -q "${small[@]}" "$U/a.git" "$M"
t "is no commit" [ "$(log a %h | wc -l)" = 1 ]
(cd "$T/clone" && echo theirs >theirs.txt && git add . && git commit -qm theirs && git push -q origin main)
expect 0 "on top of another's commit" ckpt-push -q -m second --exclude '*.safetensors' --path-in-repo deep "$U/a.git" "$M"
t "which stays" [ "$(log a %s | tr '\n' ' ')" = "second theirs Upload llama-a with ckpt-push " ]
expect 0 "another branch" ckpt-push -q -b next "${small[@]}" "$U/a.git" "$M"
t "is created" git -C "$R/git/a.git" rev-parse -q --verify refs/heads/next
git config --global "url.http://127.0.0.1:$P/git/.insteadOf" work:
git config --global "url.http://127.0.0.1:$P/none/.insteadOf" https://work.example/
git config --global "url.http://127.0.0.1:$P/git/.pushInsteadOf" https://work.example/
expect 0 "an address that git's configuration stands for" ckpt-push -q -b short "${small[@]}" work:a.git "$M"
expect 0 "another one to push to" ckpt-push -q -b there "${small[@]}" git+https://work.example/a.git "$M"
t "both are there" [ "$(git -C "$R/git/a.git" for-each-ref refs/heads/short refs/heads/there | wc -l)" = 2 ]
git config --global --add "url.http://127.0.0.1:$P/git/.insteadOf" https://read.example/
expect 0 "and one to read from" ckpt-inspect -q git+https://read.example/a.git/config.json
expect 66 "which that to push to is not" ckpt-inspect -q git+https://work.example/a.git/config.json
expect 0 "a dry run" ckpt-push -q --dry-run -b third "${small[@]}" "$U/a.git" "$M"
t "creates none" bash -c "! git -C $R/git/a.git rev-parse -q --verify refs/heads/third"
expect_says 66 "a repository that is not there" "no such repository on 127.0.0.1:$P" ckpt-push -q "${small[@]}" "$U/none.git" "$M"
expect 64 "another host's repository is not created" ckpt-push -q --create "$U/none.git" "$M"
printf '#!/bin/sh\necho not today >&2\nexit 1\n' >"$R/git/a.git/hooks/update"; chmod +x "$R/git/a.git/hooks/update"
expect_says 77 "a hook that refuses" "refuses to update main: hook declined" ckpt-push -q -m no --path-in-repo no "${small[@]}" "$U/a.git" "$M"
rm "$R/git/a.git/hooks/update"
t "leaves the branch" [ "$(log a %s | head -n 1)" = second ]
expect 0 "afterwards it is published" ckpt-push -q -m yes --path-in-repo no "${small[@]}" "$U/a.git" "$M"
git config --global credential.helper "!f() { test \"\$1\" = get && printf 'username=user\npassword=hf_canary\n'; }; f"
t "LFS objects that no server takes: no commit" bash -c "! ckpt-push -q -m lfs '$U/a.git' '$M' 2>'$T/.err'"
t "and the branch stays" [ "$(log a %s | head -n 1)" = yes ]
t "the password is in no message" bash -c "! grep -rq hf_canary '$T/.err' '$T/.out' '$T/cache'"
# With a server of LFS objects, which the tree's .lfsconfig names.
env HF_TOKEN=hf_canary ckpt-push -q --create hf://acme/lfs "$G/rows.jsonl" >/dev/null
(cd "$T/clone" && git pull -q && printf '[lfs]\n\turl = http://127.0.0.1:%s/acme/lfs.git/info/lfs\n' "$P" >.lfsconfig && git add . && git commit -qm lfsconfig && git push -q origin main)
expect 0 "with one they are sent first" ckpt-push -q -m lfs "$U/a.git" "$M"
t "one commit" [ "$(log a %s | head -n 1)" = lfs ]
t "of pointers" bash -c "git -C $R/git/a.git show main:model-00001-of-00004.safetensors | grep -q '^oid sha256:$(sha256sum <"$M/model-00001-of-00004.safetensors" | cut -c1-64)'"
t "whose objects the server has" [ "$(ls "$R/repos/models/acme/lfs/lfs" | wc -l)" -ge 4 ]
: >"$L"
mkdir "$T/own"; printf '{}' >"$T/own/config.json"; noise 2000 >"$T/own/own.bin"
git config --global lfs.url "http://127.0.0.1:$P/acme/lfs.git/info/lfs"
expect 0 "a server that git's configuration names" ckpt-push -q --path-in-repo own "$U/a.git" "$T/own"
t "has the object" test -s "$R/repos/models/acme/lfs/lfs/$(sha256sum <"$T/own/own.bin" | cut -c1-64)"
git config --global lfs.url "http://127.0.0.1:$P/acme/none.git/info/lfs"
rm -rf "$CKPT_CACHE"; noise 2000 >"$T/own/own.bin"
t "before that of the tree" bash -c "! ckpt-push -q --path-in-repo own '$U/a.git' '$T/own' 2>'$T/.err'"
git config --global --unset lfs.url; : >"$L"
expect 0 "the same again" ckpt-push -q -m lfs "$U/a.git" "$M"
t "sends none" bash -c "! grep -q 'PUT ' $L"
expect 69 "offline" env HF_HUB_OFFLINE=1 ckpt-push -q "$U/a.git" "$M"

# -- over https ---------------------------------------------------------------------------------
# A certificate of a local authority, and what takes TLS off before the server.
tls() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$T/tls.key" -out "$T/tls.pem" -days 2 -subj /CN=localhost -addext 'subjectAltName=DNS:localhost,IP:127.0.0.1' 2>/dev/null
    cat >"$T/tls.py" <<'END'
import asyncio, ssl, sys
async def copy(r, w):
    try:
        while data := await r.read(65536):
            w.write(data); await w.drain()
    except OSError:
        pass
    w.close()
async def serve(r, w):
    r2, w2 = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(copy(r, w2), copy(r2, w))
async def main():
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain(sys.argv[2], sys.argv[3])
    s = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=c)
    print(s.sockets[0].getsockname()[1], flush=True)
    await s.serve_forever()
asyncio.run(main())
END
    mkfifo "$T/tls.port"; python3 "$T/tls.py" "$P" "$T/tls.pem" "$T/tls.key" >"$T/tls.port" 2>/dev/null & relay=$!
    trap 'kill $server $relay 2>/dev/null; rm -rf "$T"' EXIT
    read -r tp <"$T/tls.port"
}
relay=
if command -v python3 >/dev/null; then
    tls; repo tls; U=git+https://localhost:$tp/git/tls.git
    expect 77 "a certificate that nobody vouches for" ckpt-push -q "${small[@]}" "$U" "$M"
    (rm -rf "$T/w" && git clone -q "$R/git/tls.git" "$T/w" 2>/dev/null && cd "$T/w" && printf '[lfs]\n\turl = https://localhost:%s/acme/lfs.git/info/lfs\n' "$tp" >.lfsconfig && git add . && git commit -qm lfsconfig && git push -q origin HEAD:main)
    printf x >"$T/w/new.safetensors"; mkdir "$T/tlsm"; cp "$M"/*.json "$T/tlsm"; noise 3000 >"$T/tlsm/new.bin"
    : >"$L"; expect 0 "over https, with objects of LFS" env SSL_CERT_FILE="$T/tls.pem" ckpt-push -q -m tls "$U" "$T/tlsm"
    t "one commit" [ "$(log tls %s | head -n 1)" = tls ]
    t "whose object the server has" test -s "$R/repos/models/acme/lfs/lfs/$(sha256sum <"$T/tlsm/new.bin" | cut -c1-64)"
    rm -rf "$CKPT_CACHE"; expect 0 "and are read from there" env SSL_CERT_FILE="$T/tls.pem" ckpt-push -q "$T/tlsback" "$U"
    t "the same" cmp "$T/tlsback/new.bin" "$T/tlsm/new.bin"
fi

# -- over ssh -----------------------------------------------------------------------------------
ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/id_ed25519"; cp "$HOME/.ssh/id_ed25519.pub" "$T/keys"
sshd_start 127.0.0.1 || skip "no sshd: package openssh-server"
trap 'kill $server $sshd $relay 2>/dev/null; rm -rf "$T"' EXIT
me=$(id -un)
expect 77 "a host key that is not known" ckpt-push -q "${small[@]}" "ssh://$me@127.0.0.1:$sport$R/git/ssh.git" "$M"
echo "[127.0.0.1]:$sport $(cut -d' ' -f1,2 "$T/host.pub")" >"$HOME/.ssh/known_hosts"
expect 0 "over ssh" ckpt-push -q "${small[@]}" "ssh://$me@127.0.0.1:$sport$R/git/ssh.git" "$M"
t "is published" [ "$(log ssh %s)" = "Upload llama-a with ckpt-push" ]
mv "$HOME/.ssh/id_ed25519" "$T/away"
expect_says 77 "without a key" "hint: ssh-add, or a key in ~/.ssh, logs in" ckpt-push -q "${small[@]}" "ssh://$me@127.0.0.1:$sport$R/git/ssh.git" "$M"
