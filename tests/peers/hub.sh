#!/usr/bin/env bash
# hub.sh PYTHON BUILD - huggingface_hub against the server of our tests: what it fetches is what we
# read, and what it keeps is read here without a request.
set -eu
PEERS=$1 B=$2
cd "$(dirname "$0")/../.."
[ -x "$B/serve" ] || { echo "hub: $B/serve is not built: make units"; exit 1; }
T=$(mktemp -d); server=; trap 'kill $server 2>/dev/null || :; rm -rf "$T"' EXIT
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
# The other way: what ckpt-push publishes the client verifies, and what we fetched it finds offline.
rm -rf "$T/hf" "$T/cache" "$T/far"; mkfifo "$T/ports2"
"$B/serve" "$T/root" "$T/log" --multipart=20000 --chunk=20000 >"$T/ports2" & server=$!
read -r port _ <"$T/ports2"
export HF_ENDPOINT=http://127.0.0.1:$port HF_TOKEN=hf_canary
"$B/ckpt-push" -q --create --tag v1 hf://acme/ours "$M" >/dev/null
"$PEERS" -P - "$M" <<'PY'
import hashlib, os, sys
from huggingface_hub import HfApi, snapshot_download
mine = {os.path.relpath(os.path.join(r, f), sys.argv[1]): open(os.path.join(r, f), "rb").read() for r, _, fs in os.walk(sys.argv[1]) for f in fs}
listed = {e.path: e for e in HfApi().list_repo_tree("acme/ours", recursive=True, revision="v1") if hasattr(e, "size")}
for path, data in mine.items():
    e = listed[path]
    assert e.size == len(data), path
    if e.lfs:
        assert e.lfs.sha256 == hashlib.sha256(data).hexdigest(), path
    else:
        assert e.blob_id == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(), path
got = snapshot_download("acme/ours", cache_dir=os.path.join(os.environ["HF_HOME"], "elsewhere"))
assert all(open(os.path.join(got, p), "rb").read() == d for p, d in mine.items())
print("huggingface_hub verifies", len(mine), "files that ckpt-push published")
PY
"$B/ckpt-merge" -q -o "$T/far" hf://acme/ours >/dev/null
kill $server
HF_HUB_OFFLINE=1 "$PEERS" -P - "$M" <<'PY'
import glob, os, sys
from huggingface_hub import hf_hub_download, scan_cache_dir
for path in glob.glob(os.path.join(sys.argv[1], "model-*.safetensors")) + [os.path.join(sys.argv[1], "config.json")]:
    got = hf_hub_download("acme/ours", os.path.basename(path))
    assert open(got, "rb").read() == open(path, "rb").read(), path
info = scan_cache_dir()
assert [r.repo_id for r in info.repos] == ["acme/ours"] and not info.warnings, info
print("and finds offline what ckpt-merge fetched")
PY
