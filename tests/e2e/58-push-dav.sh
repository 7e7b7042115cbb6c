# ckpt-push to a folder of a WebDAV server, and dav:// as a source: Debian's rclone, and tests/serve for faults.  D5, D8
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
export CKPT_HTTP_RETRIES=2 HOME=$T/home
unset CKPT_DAV_TOKEN NETRC
export CKPT_DAV_USER=user CKPT_DAV_PASSWORD=hf_canary
mkdir -p "$R/dav" "$T/home" "$T/rclone"
M=$G/models/llama-a
push() { ckpt-push -q "$@"; }
# dav [RULE...] - the server of the tests goes on with these rules; D is its address.
dav() { serve "$@"; D=dav://127.0.0.1:$P/dav; }
requests() { local n; n=$(grep -cE -- "$2" "$L"); [ "$n" = "$1" ] || { echo "$n requests of $2, $1 expected"; tail -n 40 "$L" | cut -c 1-150; return 1; }; }
sent() { awk '$2 == "PUT"' "$L" | sed -n 's/.* in=\([0-9]*\).*/\1/p' | awk '{n += $1} END {print n + 0}'; }
# same FOLDER DIR - it has the files of DIR, and no other that is not hidden.
same() { diff <(cd "$1" && find . -type f ! -name '.*' | sort | xargs sha256sum) <(cd "$2" && find . -type f ! -name '.*' | sort | xargs sha256sum); }
asides() { find "$1" -name '.ckpt-push-*' | wc -l; }

if ! command -v rclone >/dev/null; then echo "not ok rclone is installed: make deps"; exit 1; fi
rclone_pid=
trap 'kill $server $rclone_pid 2>/dev/null; rm -rf "$T"' EXIT
for _ in 1 2 3 4 5; do
    A=127.0.0.1:$((20000 + RANDOM % 12000))
    rclone serve webdav "$T/rclone" --addr "$A" --user user --pass hf_canary >"$T/rclone.log" 2>&1 & rclone_pid=$!
    wait_for "curl -s -o /dev/null http://$A/ || ! kill -0 $rclone_pid 2>/dev/null"
    kill -0 $rclone_pid 2>/dev/null && break
done
expect_says 66 "a folder that is not there" "hint: --create makes the folder" push "dav://$A/a/toy" "$M"
expect_prints 0 "rclone: a model is published" "dav://$A/a/toy" push --create --verify deep "dav://$A/a/toy/" "$M"
t "with every file" same "$T/rclone/a/toy" "$M"
t "and no other name stays" [ "$(asides "$T/rclone")" = 0 ]
expect_says 0 "again" "0 of them new" ckpt-push -v "dav://$A/a/toy" "$M"
expect 0 "the tools read it" ckpt-inspect -q --diff "dav://$A/a/toy" "$M"
expect 0 "and one file" ckpt-inspect -q "dav://$A/a/toy/model-00001-of-00004.safetensors"
expect 66 "and none that is not there" ckpt-inspect -q "dav://$A/a/toy/model.bin"
mkdir "$T/next"; cp -r "$M/." "$T/next"; echo more >"$T/next/notes.md"; rm "$T/next/loss.txt"
expect_says 0 "a file more, one less" "5 of them new; 1 removed" ckpt-push -v --delete '*.txt' "webdav+http://$A/a/toy" "$T/next"
t "are what is there" same "$T/rclone/a/toy" "$T/next"
kill $rclone_pid

dav
expect 0 "another server" push --create "$D/toy" "$M"
t "has every file" same "$R/dav/toy" "$M"
last_is_index() { [ "$(grep ' MOVE ' "$L" | tail -n 1)" != "" ] && grep -n ' MOVE \| PUT ' "$L" | grep -v 'ckpt-push-right' | awk '/ MOVE / {m = 1} / PUT / && m {n++} END {exit n > 1}'; }
t "nothing is moved before all bytes are there" last_is_index
: >"$L"
expect 0 "the same again" push "$D/toy" "$M"
t "sends nothing" [ "$(sent)" = 0 ]
touch "$R/dav/toy/config.json"
: >"$L"
expect 0 "a file that somebody else touched" push "$D/toy" "$M"
t "is sent again" requests 1 'PUT .*ckpt-push-[0-9a-f]{24} .* in=711'
: >"$L"
expect 0 "a dry run" ckpt-push --dry-run --delete '*.txt' "$D/toy" "$T/next"
t "says what it would do" says "1 are to be removed"
t "and only asks" requests 0 ' (PUT|MOVE|MKCOL|DELETE) '
expect 0 "a folder of it, and names with blanks" bash -c "mkdir '$T/odd'; echo x >'$T/odd/a b %20&c.txt'; ckpt-push -q --path-in-repo 'deep er/est' $D/toy '$T/odd'"
t "lie there" cmp "$T/odd/a b %20&c.txt" "$R/dav/toy/deep er/est/a b %20&c.txt"
expect_says 77 "no login" "CKPT_DAV_USER" env -u CKPT_DAV_USER ckpt-push -q "$D/toy" "$M"
expect_says 77 "a wrong one" "has no right" env CKPT_DAV_PASSWORD=wrong ckpt-push -q "$D/toy" "$M"
printf 'machine other login a password b\nmachine 127.0.0.1\n\tlogin user password hf_canary\n' >"$T/home/.netrc"
expect_says 0 "that of ~/.netrc" "others than its owner" env -u CKPT_DAV_USER ckpt-push "$D/toy" "$M"
expect 0 "a token" env -u CKPT_DAV_USER CKPT_DAV_TOKEN=hf_canary ckpt-push -q "$D/toy" "$M"
mkdir "$R/dav/full"
expect_says 74 "no space" "are free" push "$D/full" "$M"
t "is found before the first byte" [ -z "$(ls "$R/dav/full")" ]
expect_says 64 "a branch" "--branch" push --branch x "$D/toy" "$M"
expect 64 "no host" push dav:// "$M"
expect 64 "a query" push "$D/toy?x" "$M"
expect_says 77 "http to another host" "use davs://" push dav://example.invalid/x "$M"
expect 69 "offline" env CKPT_OFFLINE=1 ckpt-push -q "$D/toy" "$M"

# Faults.
fresh() { rm -rf "$R/dav/f"; mkdir "$R/dav/f"; dav "$@"; }
fresh 'lost:2+2@/dav/f/.ckpt-push-*'
expect 0 "answers that are lost" push "$D/f" "$M"
t "change nothing" same "$R/dav/f" "$M"
rm -rf "$T/cache"
for k in 0 1 2; do                      # PUT, HEAD and MOVE of the one file
    fresh "lost:$k+1@/dav/f/.ckpt-push-[0-9a-f]*"
    expect 0 "a lost answer to request $k" push "$D/f" "$T/odd"
    t "the file is there" same "$R/dav/f" "$T/odd"
done
fresh 'status=503:2@/dav/f/.ckpt-push-*'
expect 0 "503" push "$D/f" "$M"
fresh 'status=423,none@/dav/f/.ckpt-push-[0-9a-f]*'
expect_says 75 "a lock" "another client has locked it" push "$D/f" "$M"
fresh 'status=507,none@/dav/f/.ckpt-push-[0-9a-f]*'
expect_says 74 "no space left" "no space left" push "$D/f" "$M"
fresh 'moves:2+1@/dav/f/.ckpt-push-[0-9a-f]*'
expect_says 75 "somebody else writes meanwhile" "somebody else has written a b" push "$D/f" "$T/odd"
t "and keeps the file" grep -q somebody "$R/dav/f/a b %20&c.txt"
expect 0 "which is replaced by the next run" push "$D/f" "$T/odd"
t "with what it sent before" same "$R/dav/f" "$T/odd"
t "and no byte again" [ "$(grep -c 'PUT .*ckpt-push-[0-9a-f]* .* in=2$' "$L")" = 1 ]
fresh 'rot:1@/dav/f/.ckpt-push-[0-9a-f]*'
expect_says 76 "a byte that the server turns" "is not what was sent" push --verify deep "$D/f" "$M"
fresh 'html@/dav/f/'
expect_says 76 "no WebDAV there" "status 200, 207 wanted" push "$D/f" "$M"
fresh 'cut@/dav/f/'
expect 76 "a list that breaks off" push "$D/f" "$M"
# Killed when one of two files is there: it is not sent again.
mkdir "$T/big"; cp "$M/config.json" "$T/big"; for i in 1 2; do noise 6000000 >"$T/big/model-$i.bin"; done
fresh
ckpt-push -q -j 1 --bwlimit 6000000 "$D/f" "$T/big" >"$T/.x" 2>&1 & pid=$!
wait_for '[ "$(grep -c "HEAD .*ckpt-push-[0-9a-f]* .* 200 " "$L")" -ge 1 ]'; sleep 0.4
kill -9 $pid; wait $pid 2>/dev/null
t "SIGKILL: nothing is visible" [ -z "$(ls "$R/dav/f")" ]
: >"$L"
expect 0 "the second run" push "$D/f" "$T/big"
t "publishes all" same "$R/dav/f" "$T/big"
t "and sends one of them" [ "$(sent)" -le 6100000 ]
t "nothing is left" [ "$(asides "$R/dav/f")" = 0 ]
t "no password is kept" bash -c "! grep -rqE 'hf_canary|dXNlcjpoZl9jYW5hcnk' $T/cache $T/.err $R/dav"
