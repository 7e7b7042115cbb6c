# ckpt-push to git repositories on another host: over http by git's own http-backend (tests/serve), and over ssh by a real
# sshd, both on loopback; logins by git's credential helper, keys and known_hosts; LFS objects to a server.  A7, D8
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
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
expect 0 "the same again" ckpt-push -q -m lfs "$U/a.git" "$M"
t "sends none" bash -c "! grep -q 'PUT ' $L"
expect 69 "offline" env HF_HUB_OFFLINE=1 ckpt-push -q "$U/a.git" "$M"

# -- over ssh -----------------------------------------------------------------------------------
command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || skip "no sshd: package openssh-server"
sport=$((20000 + RANDOM % 20000)); mkdir -p /run/sshd 2>/dev/null
ssh-keygen -q -t ed25519 -N '' -f "$T/host"; ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/id_ed25519"
cp "$HOME/.ssh/id_ed25519.pub" "$T/keys"
printf '%s\n' "Port $sport" "ListenAddress 127.0.0.1" "HostKey $T/host" "AuthorizedKeysFile $T/keys" "StrictModes no" "UsePAM no" "PidFile none" >"$T/sshd.conf"
/usr/sbin/sshd -D -f "$T/sshd.conf" -E "$T/sshd.log" & sshd=$!
trap 'kill $server $sshd 2>/dev/null; rm -rf "$T"' EXIT
wait_for "listens $sport"
me=$(id -un)
expect 77 "a host key that is not known" ckpt-push -q "${small[@]}" "ssh://$me@127.0.0.1:$sport$R/git/ssh.git" "$M"
echo "[127.0.0.1]:$sport $(cut -d' ' -f1,2 "$T/host.pub")" >"$HOME/.ssh/known_hosts"
expect 0 "over ssh" ckpt-push -q "${small[@]}" "ssh://$me@127.0.0.1:$sport$R/git/ssh.git" "$M"
t "is published" [ "$(log ssh %s)" = "Upload llama-a with ckpt-push" ]
mv "$HOME/.ssh/id_ed25519" "$T/away"
expect_says 77 "without a key" "hint: ssh-add, or a key in ~/.ssh, logs in" ckpt-push -q "${small[@]}" "ssh://$me@127.0.0.1:$sport$R/git/ssh.git" "$M"
