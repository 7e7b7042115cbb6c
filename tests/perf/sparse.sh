#!/usr/bin/env bash
# sparse.sh BUILD - bar B8: one sparse file of GB (100) to the loopback Hub of tests/serve, which stores zeros as holes; seconds
# of the wall and of CPU (and of the server's), MiB resident.
set -eu
B=$(cd "$1" && pwd) GB=${GB:-100}
T=$(mktemp -d "${TMPDIR:-/tmp}/sparse.XXXXXX"); server=; trap 'kill $server 2>/dev/null; rm -rf "$T"' EXIT
mkdir -p "$T/root" "$T/m"; mkfifo "$T/ports"
export HF_HOME=$T/hf HF_TOKEN=hf_canary CKPT_CACHE=$T/cache
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
"$B/serve" "$T/root" "$T/log" --unproved=2 --multipart=67108864 --chunk=67108864 >"$T/ports" & server=$!
read -r port _ <"$T/ports"; export HF_ENDPOINT=http://127.0.0.1:$port
truncate -s "${GB}000000000" "$T/m/model.safetensors"; sleep 2
/usr/bin/env time -f '%e %U %S %M' -o "$T/time" "$B/ckpt-push" -q --create hf://acme/sparse "$T/m"
awk -v gb="$GB" -v served="$(awk '{ print $14 + $15 }' "/proc/$server/stat")" '{ printf "%d GB, sparse: %.1f s, %.1f s of CPU (server %.1f), %d MiB resident\n", gb, $1, $2 + $3, served / 100, $4 / 1024 }' "$T/time"
find "$T/root" -path '*/lfs/*' -type f -printf '%s bytes there, ' -exec du -k {} + | cut -f 1
