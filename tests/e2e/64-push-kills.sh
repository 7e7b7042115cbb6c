# ckpt-push killed at every system call that touches its journal, and after any number of bytes; replies that are lost, late
# or doubled: the next run ends with one commit and the right files, and sends at most a part a stream again.  Bars B1, B2, B3 and B7; H4, H5.
# A sample by default; STEP=1 BYTES=200 tries all calls and 200 numbers of bytes (make check-kills).
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
export HF_TOKEN=hf_canary CKPT_HTTP_RETRIES=2
[ -x "$B/kill_at" ] || { echo "not ok kill_at is built in $B"; exit 1; }
"$B/kill_at" 0 "$T" true 2>/dev/null || { echo "ok no process may be traced here"; exit 0; }
STEP=${STEP:-9} BYTES=${BYTES:-4} STREAMS=4 PART=20000
mkdir "$T/m"; for i in 1 2 3; do head -c $((70000 * i)) /dev/urandom >"$T/m/model-$i.safetensors"; done; echo '{}' >"$T/m/config.json"
serve --multipart=$PART --chunk=$PART
ckpt-push -q --create hf://acme/kills "$T/m/config.json" >/dev/null
commits() { grep -l ckpt-push-id "$R"/repos/models/acme/kills/commits/* | wc -l; }
sent() { awk '$1 == "cdn" && $2 == "PUT"' "$L" | sed -n 's/.* in=\([0-9]*\).*/\1/p' | awk '{n += $1} END {print n + 0}'; }
# fresh - new weights, no journal; the number of commits is kept in n.
fresh() { for f in "$T"/m/*.safetensors; do head -c 8 /dev/urandom | dd of="$f" conv=notrunc status=none; done; rm -rf "$CKPT_CACHE"; : >"$L"; n=$(commits); }
whole() {
    local f
    for f in "$T"/m/*; do curl -sL -H "Authorization: Bearer $HF_TOKEN" "$HF_ENDPOINT/acme/kills/resolve/main/a/${f##*/}" | cmp - "$f" || return 1; done
}
size=$(cat "$T"/m/* | wc -c)
# after WHAT - the next run: one commit, whole, no more bytes than a part a stream again, and nothing left of the journal.
after() {
    ckpt-push -q --path-in-repo a hf://acme/kills "$T/m" >/dev/null 2>"$T/.err" || { echo "$1: status $?"; cat "$T/.err"; return 1; }
    [ "$(commits)" = $((n + 1)) ] || { echo "$1: $(($(commits) - n)) commits"; return 1; }
    [ "$(sent)" -le $((size + STREAMS * PART)) ] || { echo "$1: $(sent) bytes of $size"; return 1; }
    whole || { echo "$1: not whole"; return 1; }
    [ -z "$(ls "$CKPT_CACHE/uploads" 2>/dev/null)" ] || { echo "$1: a journal is left"; return 1; }
}
fresh; mkdir -p "$CKPT_CACHE"
"$B/kill_at" -l "$T/calls" 0 "$CKPT_CACHE" ckpt-push -q --path-in-repo a hf://acme/kills "$T/m" >/dev/null 2>&1
calls=$(wc -l <"$T/calls"); t "there are calls to be killed at: $calls" [ "$calls" -gt 10 ]
kills() {
    local k
    for ((k = 1 + RANDOM % STEP; k <= calls; k += STEP)); do
        fresh; mkdir -p "$CKPT_CACHE"
        "$B/kill_at" "$k" "$CKPT_CACHE" ckpt-push -q --path-in-repo a hf://acme/kills "$T/m" >/dev/null 2>&1
        [ "$(commits)" = "$n" ] || n=$(($(commits) - 1))          # it was killed after its commit
        after "call $k" || return 1
    done
}
t "H5 B1: killed at calls on the cache, one in $STEP" kills
bytes() {
    local k at
    for ((k = 0; k < BYTES; k++)); do
        fresh; at=$((RANDOM * 32768 + RANDOM)); at=$((at % size))
        ckpt-push -q --bwlimit 400K --path-in-repo a hf://acme/kills "$T/m" >/dev/null 2>&1 & p=$!
        while [ "$(sent)" -lt $at ] && kill -0 $p 2>/dev/null; do sleep 0.02; done
        { kill -KILL $p; wait $p; } 2>/dev/null
        [ "$(commits)" = "$n" ] || n=$(($(commits) - 1))
        after "byte $at" || return 1
    done
}
t "H5 B1: killed after $BYTES random numbers of bytes" bytes
# B2: each request's reply is lost, doubled or late; B3: a reader beside it sees the old tree or the new.
replies() {
    local rule path
    for path in '*/preupload/main' '*/objects/batch' '/part/*' '/complete/*' '*/objects/verify' '*/commit/main'; do
        for rule in "lost:1@$path" "twice:1@$path" "late=1:1@$path"; do
            serve --ports="$P,$S" --multipart=$PART --chunk=$PART "$rule"; fresh
            ckpt-push -q --path-in-repo a hf://acme/kills "$T/m" >/dev/null 2>"$T/.err" || { echo "$rule"; cat "$T/.err"; return 1; }
            [ "$(commits)" = $((n + 1)) ] || { echo "$rule: $(($(commits) - n)) commits"; return 1; }
            whole || { echo "$rule: not whole"; return 1; }
        done
    done
}
t "H4 B2: lost, doubled and late replies of every request: one commit" replies
seen() { curl -s -H "Authorization: Bearer $HF_TOKEN" "$HF_ENDPOINT/api/models/acme/kills/tree/main/a" | grep -o '"oid":"[^"]*"' | sort | md5sum; }
reader() {
    local p; : >"$T/seen"
    serve --ports="$P,$S" --multipart=$PART --chunk=$PART; fresh; seen >>"$T/seen"
    ckpt-push -q --bwlimit 600K --path-in-repo a hf://acme/kills "$T/m" >/dev/null & p=$!
    while kill -0 $p 2>/dev/null; do seen >>"$T/seen"; done; wait $p || return 1
    seen >>"$T/seen"; [ "$(sort -u "$T/seen" | wc -l)" = 2 ]
}
t "B3: a reader sees the old files or the new" reader
t "B7: the token is in no file of the cache, and in no message" bash -c "! grep -rqa hf_canary '$CKPT_CACHE' '$T/.err'"
