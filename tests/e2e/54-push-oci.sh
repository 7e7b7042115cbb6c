# ckpt-push to an OCI registry, and oci:// as a source: Debian's docker-registry, with skopeo as referee.  D5, D8
. "$(dirname "$0")/lib.sh"
for tool in docker-registry skopeo; do
    command -v $tool >/dev/null || { echo "not ok $tool is installed: make deps"; exit 1; }
done
export DOCKER_CONFIG=$T/docker XDG_RUNTIME_DIR=$T/run CKPT_HTTP_RETRIES=2 HOME=$T/home
unset REGISTRY_AUTH_FILE http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy SOURCE_DATE_EPOCH
mkdir -p "$T/docker" "$T/run" "$T/home" "$T/bin"
M=$G/models/llama-a
. "$(dirname "$0")/shared/registry.sh"
L=$T/registry.log
start() { registry_start "" "$@"; }
push() { ckpt-push -q "$@"; }
manifest() { curl -s ${login:+-u "$login"} -H 'Accept: application/vnd.oci.image.manifest.v1+json' "http://$A/v2/$1/manifests/$2"; }
# same NAME:TAG DIR - skopeo copies what DIR holds, each layer under its digest; nothing else is there.
same() {
    local f sum n=0
    rm -rf "$T/copy"
    skopeo copy -q --insecure-policy --src-tls-verify=false "docker://$A/$1" "dir:$T/copy" || return 1
    for f in $(cd "$2" && find . -type f ! -name '.*' | sed 's|^\./||'); do
        sum=$(sha256sum <"$2/$f"); sum=${sum%% *}
        cmp "$2/$f" "$T/copy/$sum" || return 1
        grep -q "sha256:$sum.*\"org.cncf.model.filepath\":\"$f\"" "$T/copy/manifest.json" || { echo "$f has no layer"; return 1; }
        n=$((n + 1))
    done
    [ "$(grep -o '"org.cncf.model.filepath"' "$T/copy/manifest.json" | wc -l)" = $n ] || { echo "other layers"; return 1; }
    skopeo inspect --raw --tls-verify=false "docker://$A/$1" | cmp - "$T/copy/manifest.json"
}
requests() { local n; n=$(grep -cE -- "$2" "$L"); [ "$n" = "$1" ] || { echo "$n requests of $2, $1 expected"; tail -n 20 "$L"; return 1; }; }

start
expect_prints 0 "a model is published" "oci://$A/acme/toy@sha256:" push "oci://$A/acme/toy:v1" "$M"
U=$(cat "$T/.out")
t "with every file, for skopeo" same acme/toy:v1 "$M"
t "its digest is the manifest's" [ "${U##*@}" = "sha256:$(manifest acme/toy v1 | sha256sum | cut -d' ' -f1)" ]
names_architecture() { curl -s "http://$A/v2/acme/toy/blobs/$(manifest acme/toy v1 | sed 's/.*config.v1+json","digest":"\([^"]*\).*/\1/')" | grep -q '"architecture":"Llama'; }
t "its config names the architecture" names_architecture
: >"$L"
expect_prints 0 "the same again" "$U" push "oci://$A/acme/toy:v1" "$M"
t "sends nothing" requests 0 '"(POST|PUT|PATCH) '
expect_prints 0 "a second tag of the same" "$U" push --tag stable "oci://$A/acme/toy" "$M"
t "has it too" same acme/toy:stable "$M"
t "and is latest" same acme/toy:latest "$M"
t "no blob was sent for it" requests 0 '"(POST|PATCH) '
mkdir "$T/next"; cp -r "$M/." "$T/next"; echo more >"$T/next/notes.md"
expect 0 "a dry run" push --dry-run "oci://$A/acme/toy:v1" "$T/next"
t "changes nothing" same acme/toy:v1 "$M"
: >"$L"
expect 0 "a file more" push "oci://$A/acme/toy:v1" "$T/next"
t "moves the tag" same acme/toy:v1 "$T/next"
t "and costs two blobs, one the config" requests 2 '"POST '
expect 0 "what was the tag" ckpt-inspect -q "$U"
: >"$L"
expect 0 "from one repository of a registry to another" push "oci://$A/acme/lent:v1" "oci://$A/acme/toy:v1"
t "with all files" same acme/lent:v1 "$T/next"
t "which it lends" requests "$(($(find "$T/next" -type f | wc -l)))" '"POST .*mount=.* 201 '
t "but for the config" requests 1 '"PUT /v2/acme/lent/blobs/'

# A proxy before the registry that takes no large requests.
mkdir "$T/parts"; cp "$M/config.json" "$T/parts"; noise 3500000 >"$T/parts/w1.bin"; noise 18000000 >"$T/parts/w2.bin"
front() {       # TIMES - such requests are refused
    mkfifo "$T/ports"; "$B/serve" "$T/front" "$T/front.log" --behind="${A##*:}" "status=413:$1@*/blobs/uploads/?*" >"$T/ports" & server=$!
    read -r P _ <"$T/ports"; rm "$T/ports"
}
mkdir "$T/front"
for how in 1:4 2:19; do              # of 1 MiB; of 16 MiB, which is refused, and 18 of 1 MiB
    : >"$T/front.log"; front "${how%:*}"
    expect 0 "parts where a blob is too long for a request (${how%:*})" push --include "w${how%:*}.bin" "oci://127.0.0.1:$P/acme/parts${how%:*}:v1" "$T/parts"
    t "so many" [ "$(grep -c 'PATCH' "$T/front.log")" = "${how#*:}" ]
    kill $server; wait $server 2>/dev/null
    rm -rf "$T/only"; mkdir "$T/only"; cp "$T/parts/w${how%:*}.bin" "$T/only"
    t "of the same blob" same "acme/parts${how%:*}:v1" "$T/only"
done
SOURCE_DATE_EPOCH=0 push "oci://$A/acme/toy:dated" "$M" >"$T/.x" 2>&1
is_dated() { manifest acme/toy dated | grep -q '"org.opencontainers.image.created":"1970-01-01T00:00:00Z"'; }
t "SOURCE_DATE_EPOCH is in the manifest" is_dated
expect 0 "read back" push --verify deep "oci://$A/acme/toy:deep" "$M"

# A plan, and a signature that is read back.
cp -r "$M" "$T/planned"; echo 1 >"$T/planned/notes.md"
expect 0 "a plan" push --plan "$T/plan.jsonl" "oci://$A/acme/toy:planned" "$T/planned"
t "moves no tag" bash -c "! skopeo inspect --tls-verify=false docker://$A/acme/toy:planned >/dev/null 2>&1"
t "says what is new, and its digest" grep -q '"path":"notes.md".*"digest":"sha256-' "$T/plan.jsonl"
echo 2 >"$T/planned/notes.md"; expect_says 65 "another source" "notes.md: changed since the plan was made" push --apply "$T/plan.jsonl"
echo 1 >"$T/planned/notes.md"; expect 0 "the plan is carried out" push --apply "$T/plan.jsonl"
t "as it says" same acme/toy:planned "$T/planned"
expect_says 75 "not a second time" "since the plan was made" push --apply "$T/plan.jsonl"
openssl ecparam -name prime256v1 -genkey -noout -out "$T/key.pem" 2>/dev/null; chmod 600 "$T/key.pem"; openssl ec -in "$T/key.pem" -pubout -out "$T/key.pub" 2>/dev/null
expect 0 "signed" push --sign "$T/key.pem" "oci://$A/acme/toy:signed" "$M"
rm -rf "$T/signed"; mkdir "$T/signed"; skopeo copy -q --insecure-policy --src-tls-verify=false "docker://$A/acme/toy:signed" "dir:$T/copy.signed"
for f in $(cd "$M" && find . -type f | sed 's|^./||') model.sig; do mkdir -p "$(dirname "$T/signed/$f")"; cp "$T/copy.signed/$(grep -oE "\{[^{}]*\{[^{}]*filepath\":\"$f\"" "$T/copy.signed/manifest.json" | grep -oE 'sha256:[0-9a-f]{64}' | head -n 1 | cut -d: -f2)" "$T/signed/$f"; done
expect 0 "what skopeo copies is what was signed" ckpt-inspect -q --verify-signature --public-key "$T/key.pub" "$T/signed"
expect 0 "as is what is read from there" ckpt-inspect -q --verify-signature --public-key "$T/key.pub" "oci://$A/acme/toy:signed"
echo more >>"$T/signed/config.json"; expect 65 "a file that was changed is not" ckpt-inspect -q --verify-signature --public-key "$T/key.pub" "$T/signed"

expect 0 "the tools read it" ckpt-inspect -q --diff "oci://$A/acme/toy:deep" "$M"
expect 0 "its latest, too" ckpt-inspect -q --diff "oci://$A/acme/toy" "$M"
expect 0 "and one file" ckpt-inspect -q "oci://$A/acme/toy:deep/model-00001-of-00004.safetensors"
expect 0 "ckpt-merge" ckpt-merge -q --dtype f16 -o "$T/merged" "oci://$A/acme/toy:deep"
expect 0 "as from the folder" ckpt-merge -q --dtype f16 -o "$T/local" "$M"
t "byte by byte" cmp "$T/merged/model.safetensors" "$T/local/model.safetensors"
expect_says 66 "a tag that is not there" "no such tag or digest" ckpt-inspect -q "oci://$A/acme/toy:none"
expect 66 "a repository that is not there" ckpt-inspect -q "oci://$A/acme/none:v1"
expect 64 "no name" ckpt-inspect -q "oci://$A"
expect 64 "a name in capitals" ckpt-inspect -q "oci://$A/Acme/toy"
expect 64 "a tag with blanks" push "oci://$A/acme/toy:a b" "$M"
expect 64 "a digest as destination" push "${U}" "$M"
expect_says 64 "a bad --tag" "--tag" push --tag 'a/b' "oci://$A/acme/toy" "$M"
expect 64 "a branch" push --branch x "oci://$A/acme/toy" "$M"
expect 64 "a path in the address" push "oci://$A/acme/toy:v1/x" "$M"
expect 69 "offline" env HF_HUB_OFFLINE=1 ckpt-push -q "oci://$A/acme/toy" "$M"
manifest acme/toy deep | sed 's/v1\.raw/v1.tar+gzip/' | curl -sf -T - -H 'Content-Type: application/vnd.oci.image.manifest.v1+json' "http://$A/v2/acme/toy/manifests/packed"
expect_says 65 "archives as layers" "is an archive" ckpt-inspect -q "oci://$A/acme/toy:packed"
manifest acme/toy deep | sed 's|"org.cncf.model.filepath":"config.json"|"org.cncf.model.filepath":"../config.json"|' | curl -sf -T - -H 'Content-Type: application/vnd.oci.image.manifest.v1+json' "http://$A/v2/acme/toy/manifests/out"
expect_prints 0 "a path that leads out" "" ckpt-inspect "oci://$A/acme/toy:out"
t "is left out" grep -qF 'a file named ../config.json is left out' "$T/.err"
# A process that is killed while it sends leaves no manifest.
: >"$L"
ckpt-push -q --bwlimit 50000 "oci://$A/acme/cut:v1" "$M" >"$T/.x" 2>&1 & pid=$!
until grep -q '"POST ' "$L" || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -9 $pid; wait $pid 2>/dev/null; killed=$?
t "SIGKILL inside a blob" [ $killed = 137 ]
is_absent() { manifest acme/cut v1 | grep -q UNKNOWN; }
t "leaves no manifest" is_absent
expect 0 "and the second run" push "oci://$A/acme/cut:v1" "$M"
t "publishes all" same acme/cut:v1 "$M"

# A name and password: by Docker's configuration, by a helper.
if ! command -v htpasswd >/dev/null; then echo "not ok htpasswd is installed: make deps"; exit 1; fi
htpasswd -Bbn -C 4 toy canary-password >"$T/htpasswd"
start "auth: {htpasswd: {realm: r, path: $T/htpasswd}}"
expect_says 77 "no name" "wants a name and password" push "oci://$A/acme/shut:v1" "$M"
code=$(printf toy:canary-password | base64 -w0); bad=$(printf toy:canary-passwort | base64 -w0)
echo "{\"auths\":{\"$A\":{\"auth\":\"$code\"}}}" >"$T/docker/config.json"
expect 0 "those of docker login" ckpt-push -v "oci://$A/acme/shut:v1" "$M"
cat "$T/.out" "$T/.err" >"$T/said"
expect 0 "are used to read, too" ckpt-inspect -q --diff "oci://$A/acme/shut:v1" "$M"
echo "{\"auths\":{\"$A\":{\"auth\":\"$bad\"}}}" >"$T/docker/config.json"
expect_says 77 "a wrong password" "not accepted" ckpt-push -v "oci://$A/acme/shut:v2" "$M"
cat "$T/.out" "$T/.err" >>"$T/said"
printf '#!/bin/sh\n[ "$1" = get ] || exit 1\nread -r host; [ "$host" = %s ] || exit 1\necho \047{"Username":"toy","Secret":"canary-password"}\047\n' "$A" >"$T/bin/docker-credential-toy"
chmod +x "$T/bin/docker-credential-toy"
echo "{\"credHelpers\":{\"$A\":\"toy\"}}" >"$T/docker/config.json"
expect 0 "a helper of one host" env PATH="$T/bin:$PATH" ckpt-push -q "oci://$A/acme/shut:v2" "$M"
echo '{"credsStore":"toy"}' >"$T/docker/config.json"
expect 0 "of all hosts" env PATH="$T/bin:$PATH" ckpt-push -q "oci://$A/acme/shut:v3" "$M"
echo '{"credsStore":"../bin/docker-credential-toy"}' >"$T/docker/config.json"
expect 77 "a helper that is a path" push "oci://$A/acme/shut:v4" "$M"
echo "{\"auths\":{\"$A\":{\"auth\":\"$code\"}}}" >"$T/auth.json"
expect 0 "REGISTRY_AUTH_FILE" env REGISTRY_AUTH_FILE="$T/auth.json" ckpt-push -q "oci://$A/acme/shut:v5" "$M"
t "no password is said" bash -c "! grep -qE 'canary-|$code|$bad' $T/said"
t "or kept" bash -c "! grep -rqE 'canary-|$code|$bad' $T/cache"
