# Each status that a server can answer x each kind of request of each destination: how often it is asked, how the push
# ends, what it says, and that it ends soon.  Bar B6, and H2.  A sixth of the pairs by default, STEP=1 tries all
# (make check-kills).
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
STEP=${STEP:-6} STATUSES='400 401 403 404 408 409 410 412 413 416 422 425 429 451 500 502 503 504'
export HF_TOKEN=hf_canary CKPT_HTTP_RETRIES=1 AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=canary-secret CKPT_DAV_USER=user CKPT_DAV_PASSWORD=hf_canary
export AWS_CONFIG_FILE=$T/none AWS_SHARED_CREDENTIALS_FILE=$T/none DOCKER_CONFIG=$T/docker HOME=$T/home GIT_CONFIG_NOSYSTEM=1
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL_S3 REGISTRY_AUTH_FILE
mkdir -p "$HOME" "$R/s3/models" "$R/dav/f" "$R/git" "$T/m"
{ printf '\x48\0\0\0\0\0\0\0%-72s' '{"w":{"dtype":"F32","shape":[10000],"data_offsets":[0,40000]}}'; head -c 40000 /dev/urandom; } >"$T/m/model.safetensors"
echo '{}' >"$T/m/config.json"
git config --global credential.helper "!f() { test \"\$1\" = get && printf 'username=user\npassword=hf_canary\n'; }; f"
git init -q --bare -b main "$R/git/a.git"; git -C "$R/git/a.git" config http.receivepack true
serve --multipart=20000 --chunk=20000
ckpt-push -q --create hf://acme/toy "$T/m/config.json" >/dev/null; cp -r "$R" "$T/made"; stop_serving
# A real registry behind the server that fails.
. "$(dirname "$0")/shared/registry.sh"
behind=0
if command -v docker-registry >/dev/null; then registry_start ", relativeurls: true"; behind=${A#*:}; fi
# kinds - name, destination, what is asked for.
kinds() { cat <<'END'
hub-rights hf://acme/toy */auth-check/write
hub-head hf://acme/toy */revision/main
hub-modes hf://acme/toy */preupload/main
hub-list hf://acme/toy */tree/*
hub-commit hf://acme/toy */commit/main
lfs-batch hf://acme/toy */objects/batch
lfs-part hf://acme/toy /part/*
lfs-complete hf://acme/toy /complete/*
lfs-verify hf://acme/toy */objects/verify
s3-try s3://models/f /s3/models/f/.ckpt-push
s3-list s3://models/f /s3/models/
s3-put s3://models/f /s3/models/f/model.safetensors
dav-list dav://127.0.0.1:PORT/dav/f /dav/f/
dav-put dav://127.0.0.1:PORT/dav/f /dav/f/.ckpt-push-[0-9a-f]*
git-refs git+http://127.0.0.1:PORT/git/a.git */info/refs
git-send git+http://127.0.0.1:PORT/git/a.git */git-receive-pack
oci-blob oci://127.0.0.1:PORT/acme/toyRANDOM:v1 */blobs/sha256:*
oci-start oci://127.0.0.1:PORT/acme/toyRANDOM:v1 */blobs/uploads/
oci-send oci://127.0.0.1:PORT/acme/toyRANDOM:v1 */blobs/uploads/?*
oci-manifest oci://127.0.0.1:PORT/acme/toyRANDOM:v1 */manifests/v1
END
}
# one TO GLOB RULE - "STATUS ASKED MS TEXT" of a push where requests of that glob get what the rule says.
one() (
    local to=$1 glob=$2 rule=$3 N=$T/$BASHPID got s e only=
    mkdir "$N"; cp -r "$T/made" "$N/root"; mkfifo "$N/ports"
    "$B/serve" "$N/root" "$N/log" --multipart=20000 --chunk=20000 --behind=$behind "$rule@$glob" >"$N/ports" & server=$!
    trap 'kill $server; rm -rf "$N"' EXIT
    read -r P S <"$N/ports"
    export HF_ENDPOINT=http://127.0.0.1:$P AWS_ENDPOINT_URL=http://127.0.0.1:$P/s3 CKPT_CACHE=$N/cache
    to=${to/PORT/$P}; case $to in git+*) only='--exclude=*.safetensors' ;; esac
    s=$(date +%s%N); timeout 60 ckpt-push -q -j 1 $only "${to/RANDOM/$BASHPID}" "$T/m" >"$N/out" 2>"$N/err"; got=$?
    e=$((($(date +%s%N) - s) / 1000000)) rule=${rule#status=}
    echo "$got $(grep -cE " ${rule%%[,:]*} [0-9]+( in=.*)?\$" "$N/log") $e $(grep -v '^hint' "$N/err")"
)
# wanted KIND STATUS - "STATUS ASKED": what is passing is asked for again once and ends with 75, all else ends at once.
wanted() {
    case $1:$2 in
    hub-head:40[4]|hub-head:410) echo 66 2 ;;                 # once more after the branch was made
    hub-rights:409|hub-head:409|hub-modes:409) echo 75 1 ;;
    hub-list:412|oci-blob:412|oci-manifest:412) echo 65 1 ;;  # what is read has changed
    hub-commit:409) echo 75 2 ;;                              # another commit is being made: it passes
    hub-commit:412) echo 75 5 ;;                              # each time the head is looked at again
    lfs-part:40[34]|lfs-part:410) echo 77 4 ;;                # its address expired: four new ones
    lfs-complete:40[0349]|lfs-complete:410|lfs-complete:422) echo 77 4 ;;
    lfs-verify:408|lfs-verify:42[59]) echo 75 2 ;;
    lfs-verify:4*) echo 0 1 ;;                                # the batch says that it is there
    s3-put:409) echo 75 "[0-9]*" ;;                           # another write at the same time
    s3-*:409) echo 75 1 ;;
    s3-put:412) echo 75 2 ;;                                  # and once more to see whose it is
    dav-*:409) echo 66 1 ;;                                   # WebDAV's word for a folder that is not there
    dav-*:413) echo 65 1 ;;
    git-send:401) echo 77 "[0-9]*" ;;
    oci-blob:404|oci-blob:410) echo 0 "[0-9]*" ;;             # it is sent
    oci-start:404|oci-manifest:404|oci-manifest:410) echo 66 "[0-9]*" ;;
    oci-send:404|oci-send:416) echo 75 "[0-9]*" ;;            # begun anew, so often as there are rounds
    *:408|*:425|*:429|*:5*) echo 75 2 ;;
    *:404|*:410) echo 66 1 ;;
    *:401|*:403|*:451) echo 77 1 ;;
    *:412) echo 75 1 ;;
    *) echo 76 1 ;;
    esac
}
pair() {
    local name=$1 to=$2 glob=$3 s=$4 got asked ms text want
    read -r got asked ms text <<<"$(one "$to" "$glob" "status=$s")"
    want=$(wanted "$name" "$s")
    # shellcheck disable=SC2053
    [[ "$got $asked" == $want ]] && [ "$ms" -lt 20000 ] && { [ "$got" = 0 ] || [ -n "$text" ]; } && { echo "ok H2 B6: $name answers $s"; return; }
    echo "not ok $name answers $s: ${want/ /, asked } expected, not $got, asked $asked, $ms ms"; echo "    $text"
}
all() {
    local i=$((RANDOM % STEP)) name to glob s
    while read -r name to glob; do
        case $name in oci-*) [ "$behind" != 0 ] || continue ;; esac
        for s in $STATUSES; do
            i=$((i + 1)); [ $((i % STEP)) = 0 ] || continue
            while [ "$(jobs -rp | grep -vc "^$registry$")" -ge 6 ]; do wait -n; done
            pair "$name" "$to" "$glob" "$s" &
        done
    done
    wait $(jobs -rp | grep -v "^$registry$")
}
all < <(kinds)
