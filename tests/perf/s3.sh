#!/usr/bin/env bash
# s3.sh BUILD PYTHON - publishing to and fetching from moto, a store that is not ours, on the same cores, beside `aws s3 cp`; the
# Python has moto[server,s3] and awscli.  GB in FILES files, ROUNDS times, in turn.  A line a figure: seconds of the wall,
# seconds of CPU (and of the server's), MiB resident, GB/s.  What is fetched is compared with the source.
set -eu
B=$(cd "$1" && pwd) PY=$2 GB=${GB:-1} FILES=${FILES:-8} ROUNDS=${ROUNDS:-2}
cd "$(dirname "$0")/../.."
. tests/perf/timed.sh
T=$(mktemp -d "${TMPDIR:-/tmp}/s3.XXXXXX"); server=; trap 'kill $server 2>/dev/null; rm -rf "$T"' EXIT
mkdir -p "$T/m"; AWS=${PY%/*}/aws
export AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=canary-secret AWS_CONFIG_FILE=$T/aws AWS_SHARED_CREDENTIALS_FILE=$T/keys AWS_DEFAULT_REGION=us-east-1
export AWS_REQUEST_CHECKSUM_CALCULATION=when_required AWS_RESPONSE_CHECKSUM_VALIDATION=when_required CKPT_CACHE=$T/cache
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_ENDPOINT_URL_S3 http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
port=$("$PY" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$PY" -m moto.server -H 127.0.0.1 -p "$port" >"$T/log" 2>&1 & server=$!
export AWS_ENDPOINT_URL=http://127.0.0.1:$port
for _ in $(seq 100); do curl -s -o /dev/null "$AWS_ENDPOINT_URL" && break; sleep 0.2; done
"$AWS" s3 mb s3://ours >/dev/null; "$AWS" s3 mb s3://theirs >/dev/null
for i in $(seq "$FILES"); do head -c $((GB * 1000000000 / FILES)) /dev/urandom >"$T/m/model-$i.safetensors"; done
sleep 2                                 # times of files must be older than the records of their digests
empty() { curl -s -X POST -o /dev/null "$AWS_ENDPOINT_URL/moto-api/reset"; "$AWS" s3 mb "s3://$1" >/dev/null; }
for round in $(seq "$ROUNDS"); do
    empty ours
    timed "ckpt-push, digests anew ($round)" "$B/ckpt-push" -q s3://ours/m "$T/m"
    timed "ckpt-push, nothing to send ($round)" "$B/ckpt-push" -q s3://ours/m "$T/m"
    timed "fetch to a folder ($round)" "$B/ckpt-push" -q "$T/got" s3://ours/m
    diff -r "$T/m" "$T/got"; rm -rf "$T/got" "$CKPT_CACHE"; empty theirs
    timed "aws s3 cp --recursive ($round)" "$AWS" s3 cp --quiet --recursive "$T/m" s3://theirs/m
    timed "aws s3 cp --recursive, back ($round)" "$AWS" s3 cp --quiet --recursive s3://theirs/m "$T/got"
    diff -r "$T/m" "$T/got"; rm -rf "$T/got"
done
