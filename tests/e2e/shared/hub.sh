# hub.sh - sourced after lib.sh by scripts that read from addresses: a hub, a web server and a bucket on
# loopback ($B/serve, tests/serve).  What they hold lies in $R; $L is the log of requests.
[ -x "$B/serve" ] || { echo "not ok the test server is built: make units"; exit 1; }
R=$T/root; L=$T/requests
export HF_HOME=$T/hf HF_HUB_DOWNLOAD_TIMEOUT=1
unset HF_TOKEN HUGGING_FACE_HUB_TOKEN HF_TOKEN_PATH HF_HUB_CACHE HF_HUB_OFFLINE CKPT_OFFLINE TRANSFORMERS_OFFLINE
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
server=
trap 'kill $server 2>/dev/null; rm -rf "$T"' EXIT
# serve RULE... - a server with these rules; its ports are $P and $S, its web is $W, its log is empty.
serve() {
    stop_serving
    : >"$L"; rm -f "$T/ports"; mkfifo "$T/ports"
    "$B/serve" "$R" "$L" "$@" >"$T/ports" & server=$!
    read -r P S <"$T/ports"
    export HF_ENDPOINT=http://127.0.0.1:$P
    W=http://127.0.0.1:$P/web
}
stop_serving() { [ -z "$server" ] || { kill "$server"; wait "$server"; } 2>/dev/null; server=; }
