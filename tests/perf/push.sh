#!/usr/bin/env bash
# push.sh BUILD [PYTHON] - publishing to the loopback Hub of tests/serve, which runs on the same cores, beside the official
# client where PYTHON has it; and fetching from it.  GB in FILES files, ROUNDS times, in turn.  A line a figure: seconds of
# the wall, seconds of CPU (and of the server's, which digests nothing: what it got is looked at behind each push), MiB
# resident, GB/s.
set -eu
B=$(cd "$1" && pwd) PEERS=${2:-} GB=${GB:-4} FILES=${FILES:-8} ROUNDS=${ROUNDS:-2}
cd "$(dirname "$0")/../.."
. tests/perf/timed.sh
T=$(mktemp -d "${TMPDIR:-/tmp}/push.XXXXXX"); server=; trap 'kill $server 2>/dev/null; rm -rf "$T"' EXIT
mkdir -p "$T/root" "$T/m" "$T/many" "$T/more"; mkfifo "$T/ports"
export HF_HOME=$T/hf HF_TOKEN=hf_canary HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_PROGRESS_BARS=1 CKPT_CACHE=$T/cache
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
"$B/serve" "$T/root" "$T/log" --unproved=1 --page=1000 --multipart=16777216 --chunk=16777216 >"$T/ports" & server=$!
read -r port _ <"$T/ports"; export HF_ENDPOINT=http://127.0.0.1:$port
for i in $(seq "$FILES"); do head -c $((GB * 1000000000 / FILES)) /dev/urandom >"$T/m/model-$i.safetensors"; done
for i in $(seq 1000); do echo "$i and more" >"$T/many/$i.txt"; done
head -c 30720000 /dev/urandom | base64 -w 0 | split -b 4096 -a 4 - "$T/more/f" --additional-suffix=.txt
sleep 2                                 # times of files must be older than the records of their digests
# whole REPOSITORY - its objects are what their names say.
whole() { for f in "$T/root/repos/models/acme/$1"/lfs/*; do [ "$(sha256sum <"$f")" = "${f##*/}  -" ] || echo "$f is wrong"; done; }
gone() { rm -rf "$T"/root/repos/models/acme/"$1" "$CKPT_CACHE"; }
for round in $(seq "$ROUNDS"); do
    timed "ckpt-push, digests anew ($round)" "$B/ckpt-push" -q --create hf://acme/ours "$T/m"
    whole ours
    timed "ckpt-push, nothing to send ($round)" "$B/ckpt-push" -q hf://acme/ours "$T/m"
    rm -rf "$T/got" "$T/cache2"
    CKPT_CACHE=$T/cache2 HF_HUB_CACHE=/proc/none timed "fetch to a folder by way of a cold cache ($round)" "$B/ckpt-push" -q "$T/got" hf://acme/ours
    rm -rf "$T/cache2" "$T/got"; gone ours
    if [ -n "$PEERS" ]; then
        timed "huggingface_hub upload_folder ($round)" "$PEERS" -P -c 'import sys
from huggingface_hub import HfApi
a = HfApi(); a.create_repo("acme/theirs", exist_ok=True); a.upload_folder(repo_id="acme/theirs", folder_path=sys.argv[1])' "$T/m"
        whole theirs
        timed "huggingface_hub snapshot_download ($round)" "$PEERS" -P -c 'import sys
from huggingface_hub import snapshot_download
snapshot_download("acme/theirs", cache_dir=sys.argv[1])' "$T/cache3"
        rm -rf "$T/cache3"; gone theirs
    fi
done
timed "10,000 files of 4 KiB, nothing there" "$B/ckpt-push" -q --create hf://acme/more "$T/more"
timed "10,000 files, nothing to send" "$B/ckpt-push" -q hf://acme/more "$T/more"
timed "1,000 files of 10 bytes, nothing there" "$B/ckpt-push" -q --create hf://acme/many "$T/many"
for round in $(seq "$ROUNDS"); do timed "1,000 files, nothing to send ($round)" "$B/ckpt-push" -q hf://acme/many "$T/many"; done
