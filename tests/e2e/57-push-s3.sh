# ckpt-push to a bucket of S3 (tests/serve): parts, resuming, conditions, faults; index files last.  A7, D5, D8
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
export AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=canary-secret AWS_CONFIG_FILE=$T/aws AWS_SHARED_CREDENTIALS_FILE=$T/keys
export CKPT_HTTP_RETRIES=2
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL_S3
M=$G/models/llama-a
mkdir -p "$R/s3/models" "$R/s3/far-away" "$R/s3/readonly" "$R/s3/plain" "$R/s3/nolist"
push() { ckpt-push -q "$@"; }
# bucket [RULE...] - the server goes on with these rules.
bucket() { serve "$@"; export AWS_ENDPOINT_URL=http://127.0.0.1:$P/s3; }
# same BUCKET/PREFIX DIR - the objects are the files of DIR, and no other.
same() { diff <(cd "$R/s3/$1" && find . -type f | sort | xargs sha256sum) <(cd "$2" && find . -type f ! -name '.*' | sort | xargs sha256sum); }
requests() { local n; n=$(grep -cE -- "$2" "$L"); [ "$n" = "$1" ] || { echo "$n requests of $2, $1 expected"; tail -n 40 "$L" | cut -c 1-150; return 1; }; }
# sent - bytes of objects and parts that came.
sent() { awk '$2 == "PUT"' "$L" | sed -n 's/.* in=\([0-9]*\).*/\1/p' | awk '{n += $1} END {print n + 0}'; }
uploads() { find "$R/s3-uploads" -type f 2>/dev/null | wc -l; }

bucket
expect_prints 0 "a model is published" "s3://models/toy" push s3://models/toy/ "$M"
t "with every file" same models/toy "$M"
last_is_index() { grep ' PUT ' "$L" | grep -v '?' | tail -n 3 | grep -cE 'index.json|config.json' | grep -qx 3; }
t "index and configuration last" last_is_index
t "the right to write was tried, and nothing is left of it" [ "$(uploads)" = 0 ]
: >"$L"
expect 0 "the same again" push s3://models/toy "$M"
t "sends nothing" [ "$(sent)" = 0 ]
mkdir "$T/next"; cp -r "$M/." "$T/next"; echo more >"$T/next/notes.md"; rm "$T/next/loss.txt"
: >"$L"
expect 0 "a dry run" ckpt-push --dry-run --delete '*.txt' s3://models/toy "$T/next"
t "says what it would do" says "1 are to be removed"
t "and only asks" requests 0 ' (PUT|POST|DELETE) '
expect 0 "a file more, one less" push --delete '*.txt' --verify deep s3://models/toy "$T/next"
t "are what is there" same models/toy "$T/next"
t "costs one object" [ "$(grep -c ' PUT ' "$L")" = 1 ]
expect 0 "the tools read it" ckpt-inspect -q --diff s3://models/toy "$M"
expect 0 "a folder of the prefix" push --path-in-repo deep/er s3://models/toy "$M"
t "lies there" same models/toy/deep/er "$M"
expect_says 66 "a bucket that is not there" "hint: --create of ckpt-push makes it" push s3://none/toy "$M"
expect 0 "is made" push --create s3://none/toy "$M"
t "and has the model" same none/toy "$M"
expect_says 77 "no key" "nothing is published without a key" env -u AWS_ACCESS_KEY_ID ckpt-push -q s3://models/x "$M"
expect_says 77 "a key that may only read" "AccessDenied" push s3://readonly/x "$M"
t "is found before the first byte" [ "$(grep -c ' PUT .*readonly' "$L")" = 0 ]
expect_says 64 "a branch" "--branch" push --branch x s3://models/x "$M"
expect 64 "no bucket" push s3:// "$M"
expect 64 "a key with an empty part" push s3://models/a//b "$M"
expect 65 "a key that is too long" push "s3://models/$(printf 'a%.0s' $(seq 1020))" "$M"
expect 69 "offline" env CKPT_OFFLINE=1 ckpt-push -q s3://models/x "$M"
expect 0 "a bucket of another region" push s3://far-away/toy "$M"
t "has the model" same far-away/toy "$M"
expect 0 "a store without conditions" push s3://plain/toy "$M"
t "has it too" same plain/toy "$M"
expect 0 "and again another file there" push s3://plain/toy "$T/next"

# Parts: 20 MB are three of them.
mkdir "$T/big"; cp "$M/config.json" "$T/big"; noise 20000000 >"$T/big/model.bin"
: >"$L"
expect 0 "a large file" push --verify deep s3://models/big "$T/big"
t "arrives" same models/big "$T/big"
t "in parts" requests 3 'PUT .*partNumber='
t "of which nothing is left" [ "$(uploads)" = 0 ]
: >"$L"
expect 0 "again" push s3://models/big "$T/big"
t "no part is sent" [ "$(sent)" = 0 ]
# killed BUCKET N - SIGKILL when N parts of its model have come, over one stream.
killed() {
    : >"$L"; ckpt-push -q -j 1 --bwlimit 12000000 "s3://$1/cut" "$T/big" >"$T/.x" 2>&1 & local pid=$!
    wait_for '[ "$(grep -c "PUT .*partNumber.* 200 " "$L")" -ge '"$2"' ] || ! kill -0 '$pid
    kill -9 $pid; wait $pid 2>/dev/null
    [ ! -e "$R/s3/$1/cut/model.bin" ]
}
t "SIGKILL within a part" killed models 1
: >"$L"
expect 0 "the second run" push -j 1 s3://models/cut "$T/big"
t "publishes all" same models/cut "$T/big"
t "sends less than a part twice" [ "$(sent)" -le 12000000 ]
t "asks the store for what it has" requests 1 'GET .*uploadId='
t "and leaves nothing" [ "$(uploads)" = 0 ]
t "SIGKILL, where parts are not listed" killed nolist 2      # the second part: the journal has the first
: >"$L"
expect 0 "the journal is believed" push -j 1 s3://nolist/cut "$T/big"
t "and right" same nolist/cut "$T/big"
t "it sent less than a part twice" [ "$(sent)" -le 12000000 ]
rm -r "$R/s3/models/cut"
t "SIGKILL once more" killed models 1
mkdir "$T/other"; cp "$T/big/config.json" "$T/other"; noise 20000001 >"$T/other/model.bin"
expect 0 "another file by that name" push s3://models/cut "$T/other"
t "arrives" same models/cut "$T/other"
t "the upload that nobody goes on with is given up" [ "$(uploads)" = 0 ]
rm -r "$R/s3/models/cut"
killed models 1; rm -r "$R/s3-uploads"
expect 0 "the store forgot the upload" push s3://models/cut "$T/big"
t "all is sent anew" same models/cut "$T/big"
t "no key is in the journal or the cache" bash -c "! grep -rq 'canary-' $T/cache"

# Faults.
fresh() { rm -rf "$R/s3/models/f"; bucket "$@"; }
for k in 1+1 2+1 3+1; do
    fresh "lost:$k@/s3/models/f/model.bin"
    expect 0 "the answer to request $k of a large file is lost" push s3://models/f "$T/big"
    t "it is there" same models/f "$T/big"
done
fresh 'lost:4+1@/s3/models/f/model.bin'
expect 0 "the answer to the last step is lost" push -j 1 s3://models/f "$T/big"
t "it is found there" same models/f "$T/big"
fresh 'inside:4+1@/s3/models/f/model.bin'
expect 0 "an error within an answer of status 200" push -j 1 s3://models/f "$T/big"
t "is tried again" same models/f "$T/big"
fresh 'lost:1@/s3/models/f/config.json'
expect 0 "the answer to an object is lost" push s3://models/f "$M"
t "it is not another's" same models/f "$M"
mkdir -p "$R/s3/plain-meta"; serve 'lost:1@/s3/plain-meta/f/config.json' 'lost:5+1@/s3/plain-meta/f/model.bin'
export AWS_ENDPOINT_URL=http://127.0.0.1:$P/s3
expect 0 "lost answers of a store that keeps no metadata" push -j 1 s3://plain-meta/f "$T/big"
t "are found out by reading" same plain-meta/f "$T/big"
# Two publishers at once.
fresh
for i in 1 2; do mkdir "$T/two$i"; for k in 1 2 3 4 5 6 7 8 config; do echo "$i $k" >"$T/two$i/$k.json"; done; done
for i in 1 2; do (push -j 1 s3://models/f "$T/two$i" >"$T/.x$i" 2>&1; echo $? >"$T/status$i") & pids[i]=$!; done; wait "${pids[@]}"
no_mix() {
    case $(cat "$T/status1") in 0 | 75) ;; *) cat "$T/.x1"; return 1 ;; esac
    case $(cat "$T/status2") in 0 | 75) ;; *) cat "$T/.x2"; return 1 ;; esac
    grep -q 75 "$T/status1" "$T/status2" || same models/f "$T/two1" || same models/f "$T/two2"
}
t "two publishers at once do not both end well with files of both" no_mix
expect 0 "one of them again" push s3://models/f "$T/two1"
t "has all" same models/f "$T/two1"
fresh 'slow-down:2@/s3/models/f/*'
expect 0 "SlowDown" push s3://models/f "$M"
t "is waited for" same models/f "$M"
fresh 'slow-down@/s3/models/f/*.safetensors'
expect_says 75 "SlowDown for ever" "SlowDown" push s3://models/f "$M"
t "no index is there" [ ! -e "$R/s3/models/f/model.safetensors.index.json" ]
fresh 'skewed:1@/s3/models/f/config.json'
expect 0 "a clock that the store finds skewed" push s3://models/f "$M"
fresh 'reset=9000000:1@/s3/models/f/model.bin'
expect 0 "a connection that breaks within a part" push s3://models/f "$T/big"
t "costs that part" same models/f "$T/big"
fresh 'moves:1@/s3/models/f/config.json'
expect_says 75 "somebody else writes meanwhile" "somebody else has written config.json" push s3://models/f "$M"
fresh 'rot:1@/s3/models/f/model-00001*'
expect_says 76 "a byte that the store lost" "is not what was sent" push --verify deep s3://models/f "$M"
fresh 'html@/s3/models/f/model.bin'
expect 76 "a page in place of an answer" push s3://models/f "$T/big"
fresh 'away=http://localhost:1/:1@/s3/models/f/config.json'
expect 77 "a redirect to another host" push s3://models/f "$M"
fresh
AWS_SESSION_TOKEN=old expect_says 77 "a session that has expired" ExpiredToken push s3://models/f "$M"
printf '[default]\ncredential_process = %s\n' "$T/process" >"$T/aws"
printf '#!/bin/sh\nt=old; [ ! -e %s ] || t=new; touch %s\nprintf \047{"Version":1,"AccessKeyId":"AKIDTEST","SecretAccessKey":"canary-secret","SessionToken":"%%s"}\047 $t\n' "$T/asked" "$T/asked" >"$T/process"
chmod +x "$T/process"
expect 0 "is renewed, where a program prints keys" env -u AWS_ACCESS_KEY_ID ckpt-push -q s3://models/f "$M"
t "and used" same models/f "$M"
t "no secret came to the log" bash -c "! grep -q canary- $L"
