#!/usr/bin/env bash
# hub_server.sh PYTHON BUILD - huggingface_hub creates, writes, proposes, merges and deletes on the server of
# our tests: what it sends is what it reads back, and its token never reaches the storage.
set -eu
PEERS=$1 B=$2
cd "$(dirname "$0")/../.."
[ -x "$B/serve" ] || { echo "hub_server: $B/serve is not built: make units"; exit 1; }
T=$(mktemp -d); server=; trap 'kill $server 2>/dev/null || :; rm -rf "$T"' EXIT
mkfifo "$T/ports"; "$B/serve" "$T/root" "$T/log" >"$T/ports" & server=$!
read -r port _ <"$T/ports"
export HF_ENDPOINT=http://127.0.0.1:$port HF_HOME=$T/hf HF_TOKEN=hf_canary
export HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_PROGRESS_BARS=1
"$PEERS" -P tests/peers/hub_server.py "$T"
! grep -n 'LEAK$' "$T/log" || { echo "hub_server: a token came to the storage"; exit 1; }
# model.safetensors has 2 parts, large.txt 3; each is sent once.
[ "$(grep -c '^cdn PUT /part/' "$T/log")" = 5 ] && [ "$(grep -c '^cdn POST /complete/' "$T/log")" = 2 ] ||
    { echo "hub_server: parts are sent twice"; grep '^cdn P' "$T/log"; exit 1; }
