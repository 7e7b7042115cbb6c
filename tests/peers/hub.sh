#!/usr/bin/env bash
# hub.sh PYTHON BUILD - huggingface_hub against the server of our tests: what it fetches is what we
# read, and what it keeps is read here without a request.
set -eu
PEERS=$1 B=$2
cd "$(dirname "$0")/../.."
[ -x "$B/serve" ] || { echo "hub: $B/serve is not built: make units"; exit 1; }
T=$(mktemp -d); server=; trap 'kill $server 2>/dev/null; rm -rf "$T"' EXIT
M=$T/root/hub/models/acme/llama
mkdir -p "${M%/*}"; cp -r tests/golden/models/llama-a "$M"
mkfifo "$T/ports"; "$B/serve" "$T/root" "$T/log" >"$T/ports" & server=$!
read -r port _ <"$T/ports"
export HF_ENDPOINT=http://127.0.0.1:$port HF_HOME=$T/hf CKPT_CACHE=$T/cache HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1
"$PEERS" -P - "$M" <<'PY'
import os, sys
from huggingface_hub import snapshot_download, __version__
got = snapshot_download("acme/llama")
for root, _, files in os.walk(sys.argv[1]):
    for f in files:
        a = os.path.join(root, f)
        b = os.path.join(got, os.path.relpath(a, sys.argv[1]))
        assert open(a, "rb").read() == open(b, "rb").read(), f
print("huggingface_hub", __version__, "fetches the same files")
PY
: >"$T/log"
"$B/ckpt-merge" -q -o "$T/far" hf://acme/llama >/dev/null
"$B/ckpt-merge" -q -o "$T/near" "$M" >/dev/null
cmp "$T/far/model.safetensors" "$T/near/model.safetensors"
! grep -q '^cdn' "$T/log" || { echo "hub: what it keeps is fetched again"; exit 1; }
kill $server; : >"$T/log"
HF_HUB_OFFLINE=1 CKPT_CACHE=none "$B/ckpt-inspect" -q hf://acme/llama >/dev/null
[ ! -s "$T/log" ]
echo "what huggingface_hub keeps is read where it is, online and offline"
