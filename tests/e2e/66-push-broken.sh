# Servers that break off or answer nonsense, files that change, and the token: a push ends complete at the last run, shows
# all or nothing, ends soon, and says its secrets to nobody.  Bars B5 and B7; H1, H3, H7 and H8.
# A sample by default; STEP=1 breaks off after every byte, and tries all answers to all requests (make check-kills).
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
STEP=${STEP:-90} TURNS=${TURNS:-1}
CANARY=hf_canary
export HF_TOKEN=$CANARY AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=canary-secret CKPT_DAV_USER=user CKPT_DAV_PASSWORD=$CANARY
export AWS_CONFIG_FILE=$T/none AWS_SHARED_CREDENTIALS_FILE=$T/none DOCKER_CONFIG=$T/docker HOME=$T/home GIT_CONFIG_NOSYSTEM=1 CKPT_HTTP_RETRIES=0
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL_S3 REGISTRY_AUTH_FILE
mkdir -p "$HOME" "$R/s3/models" "$R/dav/f" "$R/git" "$T/m"
{ printf '\x48\0\0\0\0\0\0\0%-72s' '{"w":{"dtype":"F32","shape":[10000],"data_offsets":[0,40000]}}'; head -c 40000 /dev/urandom; } >"$T/m/model.safetensors"
echo '{"a": 1}' >"$T/m/config.json"
git config --global credential.helper "!f() { test \"\$1\" = get && printf 'username=user\npassword=hf_canary\n'; }; f"
git init -q --bare -b main "$R/git/a.git"; git -C "$R/git/a.git" config http.receivepack true
serve --multipart=20000 --chunk=20000
echo first >"$T/first.txt"
ckpt-push -q --create hf://acme/toy "$T/first.txt" >/dev/null; cp -r "$R" "$T/made"; stop_serving
. "$(dirname "$0")/shared/registry.sh"
behind=0
if command -v docker-registry >/dev/null; then registry_start ", relativeurls: true"; behind=${A#*:}; fi
# with RULE... - a server of its own for this subshell, in $N; OTHER in a rule is its second port.
with() {
    N=$T/$BASHPID; mkdir "$N"; cp -r "$T/made" "$N/root"; mkfifo "$N/ports"
    trap 'kill $server; rm -rf "$N"' EXIT
    for _ in 1 2 3 4 5; do              # a port may be in use
        P=$((20000 + RANDOM % 12000)) S=$((20000 + RANDOM % 12000))
        "$B/serve" "$N/root" "$N/log" --multipart=20000 --chunk=20000 --behind=$behind --ports=$P,$S "${@/OTHER/$S}" >"$N/ports" & server=$!
        read -r P S <"$N/ports" && break
    done
    export HF_ENDPOINT=http://127.0.0.1:$P AWS_ENDPOINT_URL=http://127.0.0.1:$P/s3 CKPT_CACHE=$N/cache
}
# address KIND - where that kind of destination lies.
address() {
    case $1 in
    hub) echo hf://acme/toy ;;
    s3) echo s3://models/f ;;
    dav) echo "dav://127.0.0.1:$P/dav/f" ;;
    oci) echo "oci://127.0.0.1:$P/acme/toy$BASHPID:v1" ;;
    esac
}
# requests KIND - each kind of request, a glob.
requests() {
    case $1 in
    hub) echo '*/auth-check/write */revision/main */preupload/main */tree/* */objects/batch /part/* /complete/* */objects/verify */commit/main' ;;
    s3) echo '/s3/models/f/.ckpt-push /s3/models/ /s3/models/f/model.safetensors /s3/models/f/config.json' ;;
    dav) echo '/dav/f/ /dav/f/.ckpt-push-[0-9a-f]* /dav/f/.ckpt-push.json' ;;
    oci) echo '*/blobs/sha256:* */blobs/uploads/ */blobs/uploads/?* */manifests/v1' ;;
    esac
}
# aside FILE NAME command... - as t, beside others; its lines go into the file.
aside() {
    local to=$1 name=$2 got; shift 2
    "$@" >"$to.log" 2>&1; got=$?
    if [ "$got" = 0 ]; then echo "ok $name"; else fail "$name (status $got)" "$to.log"; fi >"$to"
    rm -f "$to.log"
}
kinds='hub s3 dav'; [ $behind = 0 ] || kinds="$kinds oci"
commits() { grep -l ckpt-push-id "$N"/root/repos/models/acme/toy/commits/* | wc -l; }
wait_for_room() { while [ "$(jobs -rp | grep -vc "^$registry$")" -ge "$1" ]; do wait -n; done; }
wait_all() { local p; for p in $(jobs -rp); do [ "$p" = "$registry" ] || wait "$p"; done; }

# -- H1: the connection ends within each exchange -----------------------------------------------
# broken KIND RULE... - run after run until it is published: once, whole, and never in between.
broken() (
    local kind=$1 to k n rc=75; shift; set +f
    with "$@"; to=$(address "$kind"); n=$(commits)
    for ((k = 0; k < 60 && rc != 0; k++)); do
        timeout 30 ckpt-push -q -j 2 "$to" "$T/m" >/dev/null 2>"$N/err"; rc=$?
        case $rc in 0|69|75|76) ;; *) echo "status $rc"; cat "$N/err"; exit 1 ;; esac
        [ $rc = 0 ] || [ "$kind" != hub ] || [ "$(commits)" = "$n" ] || [ "$(commits)" = $((n + 1)) ] || { echo "two commits"; exit 1; }
    done
    [ $rc = 0 ] || { echo "not after $k runs:"; cat "$N/err"; exit 1; }
    [ "$kind" != hub ] || [ "$(commits)" = $((n + 1)) ] || { echo "$(($(commits) - n)) commits"; exit 1; }
    CKPT_CACHE=none ckpt-inspect -q --diff "$to" "$T/m" >"$N/out" 2>&1 || { echo "it differs:"; cat "$N/out"; exit 1; }
)
dropped() {
    local kind=$1 at=$2 glob rules=()
    set -f
    for glob in $(set -f; requests "$kind"); do rules+=("drop=$at:1@$glob"); done
    aside "$T/h1.$kind.$at" "H1: $kind: each answer once ends after $at bytes" broken "$kind" "${rules[@]}"
}
set -f
for kind in $kinds; do
    for ((at = RANDOM % STEP; at < 480; at += STEP)); do wait_for_room 6; dropped "$kind" "$at" & done
done
for kind in $kinds; do
    rules=(); for ((at = 4096; at < 40000; at += 4096)); do for glob in '/part/*' '/s3/models/f/model.safetensors' '/dav/f/.ckpt-push-[0-9a-f]*' '*/blobs/uploads/?*'; do
        [ "$glob" = '/part/*' ] && [ $at -gt 20000 ] || rules+=("reset=$at:1@$glob"); done; done
    wait_for_room 6; aside "$T/h1.$kind.up" "H1: $kind: each 4 KiB of an upload" broken "$kind" "${rules[@]}" &
done
wait_all; set +f; cat "$T"/h1.*

# -- H3: answers that are none ------------------------------------------------------------------
NONSENSE='html head line dust gzip cut short length=9 length=-9 loop away=http://127.0.0.1:OTHER/x away=file:///etc/passwd slow stall=4 etag flip'
nonsense() (
    local kind=$1 glob=$2 rule=$3 s rc
    set +f; with "$rule@$glob"; s=$(date +%s)
    timeout 60 ckpt-push -q -j 1 "$(address "$kind")" "$T/m" >"$N/out" 2>"$N/err"; rc=$?
    case $rc in 0|65|66|69|75|76|77) ;; *) echo "status $rc"; cat "$N/err"; exit 1 ;; esac
    [ $(($(date +%s) - s)) -le 25 ] || { echo "$(($(date +%s) - s)) seconds"; exit 1; }
    ! grep -E "LEAK|^cdn .*($CANARY|dXNlcjp|AKIDTEST)" "$N/log" && ! grep -aq "$CANARY" "$N/err" "$N/out"
)
i=$((RANDOM % STEP)); set -f
for kind in $kinds; do for glob in $(requests "$kind"); do for rule in $NONSENSE; do
    i=$((i + 1)); [ $((i % (STEP > 20 ? 20 : STEP))) = 0 ] || continue
    wait_for_room 8; aside "$T/h3.$i" "H3: $kind: $rule in answer to $glob" nonsense "$kind" "$glob" "$rule" &
done; done; done
wait_all; set +f; cat "$T"/h3.*

# -- B5, H7: a file that changes while it is sent ------------------------------------------------
# changing HOW DEST [OPTION...] - what is published existed at once, or nothing is and the status is 65.
changing() (
    local how=$1 kind=$2 to rc f got; with
    cp -r "$T/m" "$N/m"; f=$N/m/model.safetensors; head -c 400000 /dev/urandom >"$f"; cp "$f" "$N/before"
    case $kind in folder) to=$N/folder ;; git) to=$N/hub.git ;; *) to=$(address "$kind") ;; esac
    ( sleep "0.$((RANDOM % 6))$((RANDOM % 10))"
      case $how in
      modify) printf 'changed' | dd of="$f" bs=1 seek=390000 conv=notrunc status=none ;;
      truncate) truncate -s 100 "$f" ;;
      append) echo more >>"$f" ;;
      replace) head -c 400000 /dev/urandom >"$N/new"; cp "$N/new" "$N/new.2"; mv "$N/new" "$f" ;;
      esac; cp "$f" "$N/after" ) & writer=$!
    ckpt-push -q --allow-pickles --bwlimit 700K $([ "$kind" != git ] || echo --create) "$to" "$N/m" >"$N/out" 2>"$N/err"; rc=$?
    wait $writer
    case $kind in
    hub) curl -sfL -H "Authorization: Bearer $CANARY" "$HF_ENDPOINT/acme/toy/resolve/main/model.safetensors" >"$N/got" || rm "$N/got" ;;
    s3) cp "$N/root/s3/models/f/model.safetensors" "$N/got" 2>/dev/null ;;
    dav) cp "$N/root/dav/f/model.safetensors" "$N/got" 2>/dev/null ;;
    oci) f=${to#oci://*/}; curl -sf "http://127.0.0.1:$P/v2/${f%:v1}/manifests/v1" -H 'Accept: application/vnd.oci.image.manifest.v1+json' >"$N/manifest" && for f in before after; do
             grep -q "$(sha256sum <"$N/$f" | cut -c1-64)" "$N/manifest" && cp "$N/$f" "$N/got"; done; [ ! -s "$N/manifest" ] || [ -e "$N/got" ] || echo none >"$N/got" ;;
    folder) cp "$to/model.safetensors" "$N/got" 2>/dev/null ;;
    git) git --git-dir "$to" cat-file -p main:model.safetensors 2>/dev/null | sed -n 's/^oid sha256://p' >"$N/oid"; [ ! -s "$N/oid" ] || find "$to/lfs" -name "$(cat "$N/oid")" -exec cp {} "$N/got" \; ;;
    esac
    case $rc in
    0) cmp -s "$N/got" "$N/before" || cmp -s "$N/got" "$N/after" || { echo "published is what never was"; exit 1; } ;;
    65) [ ! -e "$N/got" ] || { [ "$kind" = s3 ] && cmp -s "$N/got" "$N/before"; } || { echo "published all the same"; exit 1; } ;;
    *) echo "status $rc"; cat "$N/err"; exit 1 ;;
    esac
)
for ((k = 0; k < TURNS; k++)); do for kind in $kinds folder git; do for how in modify truncate append replace; do
    wait_for_room 6; aside "$T/b5.$k.$kind.$how" "H7 B5: $kind: a file that is changed ($how) while it is sent" changing $how "$kind" &
done; done; done
wait_all; cat "$T"/b5.*

# -- B7, H8: the token is nowhere ----------------------------------------------------------------
mkdir "$T/bin"; printf '#!/bin/sh\necho "git $*" >>"%s"\nexec %s "$@"\n' "$T/argv" "$(command -v git)" >"$T/bin/git"; chmod +x "$T/bin/git"
canary() (
    local kind to rc=0; with; cd "$N" || exit 1; ulimit -c unlimited 2>/dev/null
    for kind in $kinds git; do
        to=$(address "$kind"); [ $kind != git ] || to=git+http://127.0.0.1:$P/git/a.git
        [ $kind != git ] || unset HF_TOKEN      # the password comes from git's helper
        PATH=$T/bin:$PATH ckpt-push -vv --json --exclude "$([ $kind = git ] && echo '*.safetensors')" "$to" "$T/m" >>said 2>&1 || { echo "$kind: $?"; tail -3 said; exit 1; }
    done
    export HF_TOKEN=$CANARY
    ckpt-push --plan plan.jsonl --path-in-repo p hf://acme/toy "$T/m" >>said 2>&1; ckpt-push -vv --apply plan.jsonl >>said 2>&1 || exit 1
    noise 300000 >"$N/long.bin"; : >"$N/log"
    ckpt-push -q --bwlimit 100K --path-in-repo q hf://acme/toy "$N/long.bin" >>said 2>&1 & p=$!
    wait_for 'grep -q objects/batch "$N/log"'; tr '\0' ' ' <"/proc/$p/cmdline" >cmdline; grep -i 'core file size' "/proc/$p/limits" >limits
    kill -ABRT $p; wait $p 2>/dev/null
    grep -q 'Max core file size *0 ' limits || { echo "core files are written:"; cat limits; exit 1; }
    ls core* 2>/dev/null && exit 1
    mkdir published; ckpt-push -q "$N/published" "$T/m" >>said 2>&1; cp -r root/repos root/dav root/s3 root/git published/
    for f in said plan.jsonl cmdline "$T/argv" cache published; do
        ! grep -rlaE "$CANARY|canary-secret|dXNlcjpoZl9jYW5hcnk|hf_%63|$(printf canary-secret | base64)" "$f" 2>/dev/null || { echo "in $f"; rc=1; }
    done
    for f in "$T/argv" said cmdline; do [ -s "$f" ] || { echo "no $f"; rc=1; }; done
    exit $rc
)
t "H8 B7: no token in messages, events, plan, journal, published files, arguments, core" canary
