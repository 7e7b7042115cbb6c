#!/usr/bin/env bash
# s3.sh PYTHON BUILD - a store that is not ours (moto) takes what ckpt-push publishes, boto3 reads it back; what boto3
# writes our tools read; then SIGKILL at random moments, against the server of our tests, which counts the bytes.
set -eu
PEERS=$1 B=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
"$PEERS" -c 'import moto.server, boto3' 2>/dev/null || "$PEERS" -m pip install -q 'moto[server,s3]' boto3
export PATH=$B:$PATH AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=canary-secret AWS_REGION=eu-central-1 AWS_DEFAULT_REGION=eu-central-1
T=$(mktemp -d); server=; trap 'kill $server 2>/dev/null || :; rm -rf "$T"' EXIT
export CKPT_CACHE=$T/cache AWS_CONFIG_FILE=$T/none AWS_SHARED_CREDENTIALS_FILE=$T/none
bad() { echo "s3: $1"; exit 1; }
M=tests/golden/models/llama-a
mkdir "$T/model"; cp -r $M/. "$T/model"; { printf w; head -c 40000000 /dev/urandom; } >"$T/model/optimizer.bin"

# No proxy: a request to loopback must not leave this host.
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
port=$("$PEERS" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$PEERS" -m moto.server -H 127.0.0.1 -p "$port" >"$T/moto.log" 2>&1 & server=$!
export AWS_ENDPOINT_URL=http://127.0.0.1:$port
for _ in $(seq 100); do curl -s -o /dev/null "$AWS_ENDPOINT_URL" && break; sleep 0.2; done
ckpt-push -q --create --verify deep s3://models/run/toy "$T/model" >"$T/out" || bad "moto takes no model"
[ "$(cat "$T/out")" = s3://models/run/toy ] || bad "another address is printed"
"$PEERS" -P tests/peers/s3.py same "$T/model" run/toy
n=$(grep -cE '"(PUT|POST) ' "$T/moto.log")
ckpt-push -q s3://models/run/toy "$T/model" >"$T/out" || bad "nothing to send fails"
[ "$(grep -cE '"PUT ' "$T/moto.log")" -le "$n" ] || bad "what is there is sent again"
echo more >"$T/model/notes.md"; rm "$T/model/loss.txt"
ckpt-push -q --delete '*.txt' s3://models/run/toy "$T/model" >"$T/out" || bad "--delete fails"
"$PEERS" -P tests/peers/s3.py same "$T/model" run/toy
"$PEERS" -P tests/peers/s3.py parts
ckpt-inspect -q --diff s3://models/run/toy $M >"$T/out" || bad "our tools do not read it"
"$PEERS" -P tests/peers/s3.py write $M other
ckpt-inspect -q --diff s3://models/other $M >"$T/out" || bad "our tools do not read what boto3 writes"
# Killed within its parts: the second run goes on, as moto lists them.
ckpt-push -q -j 1 --bwlimit 12000000 s3://models/cut "$T/model" >"$T/out" 2>&1 & pid=$!
sleep 1.8; kill -9 $pid; wait $pid 2>/dev/null || true
ckpt-push -q s3://models/cut "$T/model" >"$T/out" || bad "a killed upload is not gone on with"
"$PEERS" -P tests/peers/s3.py same "$T/model" cut
"$PEERS" -P tests/peers/s3.py parts
kill $server; wait $server 2>/dev/null || true

# The kill loop: a part a stream is sent again for each kill, and no more.
kills=12 streams=2
mkdir -p "$T/root/s3/models" "$T/big"; { printf w; head -c 64000000 /dev/urandom; } >"$T/big/model.bin"; cp $M/config.json "$T/big"
mkfifo "$T/ports"; serve "$T/root" "$T/log" >"$T/ports" & server=$!
read -r port _ <"$T/ports"
export AWS_ENDPOINT_URL=http://127.0.0.1:$port/s3
for _ in $(seq $kills); do
    ckpt-push -q -j $streams --bwlimit 40000000 s3://models/big "$T/big" >>"$T/out" 2>&1 & pid=$!
    sleep "0.$((RANDOM % 9))$((RANDOM % 9))"; kill -9 $pid 2>/dev/null || true; wait $pid 2>/dev/null || true
done
ckpt-push -q -j $streams s3://models/big "$T/big" >>"$T/out" || bad "after $kills kills it fails"
cmp "$T/big/model.bin" "$T/root/s3/models/big/model.bin"
sent=$(awk '$2 == "PUT"' "$T/log" | sed -n 's/.* in=\([0-9]*\).*/\1/p' | awk '{n += $1} END {print n + 0}')
[ "$sent" -le $((64000000 + kills * streams * 8388608 + 100000)) ] || bad "$sent bytes were sent for 64 MB"
[ "$(find "$T/root/s3-uploads" -type f | wc -l)" = 0 ] || bad "parts are left"
! grep -rqa canary- "$T/cache" "$T/out" "$T/log" || bad "the secret key is written somewhere"
echo "s3: moto and boto3 agree; $sent bytes for 64000000 over $kills kills"
