# Addresses in place of paths, against a hub and a web server on loopback (tests/serve).
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
M=$R/hub/models/acme/llama
mkdir -p "$R/hub/models/acme" "$R/hub/models/private" "$R/hub/datasets/acme" "$R/web"
cp -r "$G/models/llama-a" "$M"; cp -r "$G/models/llama-a" "$R/web/llama"
cp -r "$G/models/gpt2-a" "$R/hub/models/private/gpt2"
# One tensor of 20,000,000 bytes.
mkdir "$R/hub/models/acme/big"
{ printf '\x58\0\0\0\0\0\0\0%-88s' '{"w":{"dtype":"F32","shape":[5000000],"data_offsets":[0,20000000]}}'
  head -c 20000000 /dev/urandom; } >"$R/web/big.safetensors"
cp "$R/web/big.safetensors" "$R/hub/models/acme/big/big.safetensors"
ln "$R/hub/models/acme/big/big.safetensors" "$R/hub/models/acme/big/model.safetensors"

fresh() { rm -rf "$CKPT_CACHE" "$HF_HOME/hub"; : >"$L"; }
# requests N GLOB - as many lines of the log match.
requests() {
    local n; n=$(grep -cE -- "$2" "$L")
    [ "$n" = "$1" ] || { echo "$n requests of $2, $1 expected"; cat "$L"; return 1; }
}

# -- a model of the Hub -----------------------------------------------------------------------
serve
expect 0 "a model of the Hub is inspected" ckpt-inspect hf://acme/llama
t "as the folder it was made of" diff <(sed 's/^path: .*//' "$T/.out") <(ckpt-inspect "$M" | sed 's/^path: .*//')
t "one range request a shard" requests 4 '^cdn GET .*bytes='
t "the head of each" requests 4 '^cdn GET .*-00004.safetensors.* bytes=0-'
t "one for its commit" requests 1 '^hub GET /api/models/acme/llama/revision/main[?]expand=sha '
t "the list comes in its pages" requests 2 '^hub GET /api/models/acme/llama/tree/'
t "and nothing else but its JSON files" requests 13 .
: >"$L"
expect 0 "a second time" ckpt-inspect hf://acme/llama@refs/pr/1
expect 0 "or by another name of the revision" ckpt-inspect hf://acme/llama@main
t "the list of that commit is known" requests 2 'tree/'
expect 0 "one file of it" ckpt-inspect hf://acme/llama/model-00002-of-00004.safetensors
expect_prints 0 "a JSON file of it" '"hidden_size"' ckpt-inspect hf://acme/llama@main/config.json
fresh
expect 0 "a model is merged from the Hub" ckpt-merge -q -o "$T/far" hf://acme/llama
ckpt-merge -q -o "$T/near" "$M" >/dev/null
t "to the bytes of the local one" cmp "$T/far/model.safetensors" "$T/near/model.safetensors"
t "with its settings" cmp "$T/far/config.json" "$T/near/config.json"
t "its shards are in the cache under their digests" \
    bash -c "for f in $M/model-*.safetensors; do cmp \$f $T/cache/objects/sha256-\$(sha256sum <\$f | cut -c1-64) || exit 1; done"
: >"$L"; rm -rf "$T/far"
expect 0 "again" ckpt-merge -q -o "$T/far" hf://acme/llama
t "from the cache" requests 0 '^cdn'
stop_serving; rm -rf "$T/far"
expect 0 "offline" env CKPT_OFFLINE=1 ckpt-merge -q -o "$T/far" hf://acme/llama
t "the same" cmp "$T/far/model.safetensors" "$T/near/model.safetensors"
expect 69 "offline, what is not in the cache" env HF_HUB_OFFLINE=1 ckpt-inspect hf://acme/other
t "is told" says "hf://acme/other: is not in the cache, and nothing is asked for offline"
expect 69 "nobody there" ckpt-inspect -q hf://acme/other
serve
rm -rf "$T/far"
expect 0 "no cache" env CKPT_CACHE=none TMPDIR="$T" ckpt-merge -q -o "$T/far" hf://acme/llama
t "is no difference" cmp "$T/far/model.safetensors" "$T/near/model.safetensors"
fresh
expect 0 "a cache of few bytes" env CKPT_CACHE_LIMIT=120K ckpt-inspect --verify hf://acme/llama
t "stays that small" bash -c "[ \$(cat $T/cache/objects/* | wc -c) -le 122880 ]"
expect 0 "statistics of a remote model" ckpt-inspect --stats --digest --json hf://acme/llama
t "are those of the local one" diff <(jq -S .tensor_list "$T/.out" 2>/dev/null || cat "$T/.out") \
    <(ckpt-inspect --stats --digest --json "$M" | { jq -S .tensor_list 2>/dev/null || sed "s|$M|hf://acme/llama|"; })
expect 0 "two that are the same" ckpt-inspect --diff "$M" hf://acme/llama

# -- one cache with the Hub's own client -------------------------------------------------------
H=$HF_HOME/hub/models--acme--llama; fresh
rm -rf "$T/far"
ckpt-merge -q -o "$T/far" hf://acme/llama >/dev/null
commit=$(cat "$H/refs/main")
t "fetched shards are in the client's snapshot" bash -c "for f in $M/model-*.safetensors; do cmp \$f $H/snapshots/$commit/\${f##*/} || exit 1; done"
t "by a link to the blob of their digest" bash -c "for f in $M/model-*.safetensors; do [ \$(readlink $H/snapshots/$commit/\${f##*/}) = ../../blobs/\$(sha256sum <\$f | cut -c1-64) ] || exit 1; done"
t "which are stored once" bash -c "for f in $H/blobs/*; do [ \$(stat -c %h \$f) = 2 ] || exit 1; done"
: >"$L"; rm -rf "$T/far" "$CKPT_CACHE"
expect 0 "without our cache" ckpt-merge -q -o "$T/far" hf://acme/llama
t "nothing is fetched again" requests 0 '^cdn'
fresh

# -- what the Hub's own client has ------------------------------------------------------------
H=$HF_HOME/hub/models--acme--llama; fresh
mkdir -p "$H/blobs" "$H/refs" "$H/snapshots/0123456789012345678901234567890123456789"
for f in "$M"/model-*.safetensors; do
    s=$(sha256sum <"$f" | cut -c1-64); cp "$f" "$H/blobs/$s"
    ln -s "../../blobs/$s" "$H/snapshots/0123456789012345678901234567890123456789/${f##*/}"
done
cp "$M"/*.json "$H/snapshots/0123456789012345678901234567890123456789/"
printf %s 0123456789012345678901234567890123456789 >"$H/refs/main"
rm -rf "$T/far"
expect 0 "shards that the Hub's client has fetched" ckpt-merge -q -o "$T/far" hf://acme/llama
t "are read there" requests 0 '^cdn'
rm -rf "$CKPT_CACHE"; : >"$L"
expect 0 "offline its snapshot stands for the repository" env HF_HUB_OFFLINE=1 ckpt-inspect hf://acme/llama
t "no request is made" requests 0 .
rm -rf "$HF_HOME/hub"

# -- who asks ---------------------------------------------------------------------------------
serve
expect 66 "a private model without a token" ckpt-inspect hf://private/gpt2
t "is told as the Hub tells it" says "hf://private/gpt2: no such repository, or no right to see it"
export HF_TOKEN=hf_canary
expect 0 "with one" ckpt-inspect -vv hf://private/gpt2
t "the token is in no message" bash -c "! grep -q canary $T/.err $T/.out"
t "and went to the Hub" requests 2 '^hub .*/api/.* Bearer_hf_canary'
t "not to its storage" bash -c "grep -q '^cdn' $L && ! grep '^cdn' $L | grep -q canary"
t "nor does a message hold where it led" bash -c "! grep -q sig=secret $T/.err"
unset HF_TOKEN; mkdir -p "$HF_HOME"; echo "  hf_canary" >"$HF_HOME/token"; chmod 600 "$HF_HOME/token"; fresh
expect 0 "a token from its file" ckpt-inspect hf://private/gpt2
chmod 644 "$HF_HOME/token"; fresh
expect_says 0 "others may read the file" "$HF_HOME/token: other users can read this token" ckpt-inspect hf://private/gpt2
rm "$HF_HOME/token"
serve 'echo=403@/api/*'; export HF_TOKEN=hf_canary
expect 77 "a server that says the token in its error" ckpt-inspect hf://acme/llama
t "does not make us say it" bash -c "! grep -q canary $T/.err"
serve "away=http://127.0.0.1:1/x@/api/*"
expect 69 "a Hub that redirects elsewhere" ckpt-inspect -q hf://acme/llama
unset HF_TOKEN

# -- what is not there ------------------------------------------------------------------------
serve
expect 66 "no such repository" ckpt-inspect hf://acme/nothing
expect_says 66 "no such revision" "hf://acme/llama@v9: no revision v9" ckpt-inspect hf://acme/llama@v9
expect 66 "no such file" ckpt-inspect hf://acme/llama/nothing.safetensors
expect 64 "no address of the Hub" ckpt-inspect hf://-x/..
expect 65 "an address that is not read" ckpt-inspect gs://host/thing
expect 66 "no such file on the web" ckpt-inspect "$W/nothing.safetensors"
expect 66 "no such folder on the web" ckpt-inspect "$W/nothing/"
expect 77 "http to another host" ckpt-inspect http://192.0.2.1/model.safetensors
expect 64 "a user in an address" ckpt-inspect http://me:canary@127.0.0.1:1/x
t "is not said again" bash -c "! grep -q canary $T/.err"

# -- the web ----------------------------------------------------------------------------------
serve
expect 0 "one file on the web" ckpt-inspect "$W/llama/model-00001-of-00004.safetensors"
t "is one request" requests 1 .
expect 0 "a file:// address" ckpt-inspect "file://$M/model-00001-of-00004.safetensors"
: >"$L"
expect 0 "a folder on the web" ckpt-inspect "$W/llama/"
t "one range request a shard" requests 4 'GET .*/model-.*bytes=0-'
rm -rf "$T/far"
expect 0 "is merged" ckpt-merge -q -o "$T/far" "$W/llama/"
t "to the same bytes" cmp "$T/far/model.safetensors" "$T/near/model.safetensors"

# -- a bucket ---------------------------------------------------------------------------------
mkdir -p "$R/s3/models" "$R/s3/private-models"; cp -r "$M" "$R/s3/models/llama"; cp -r "$M" "$R/s3/private-models/llama"
export AWS_ENDPOINT_URL=http://127.0.0.1:$P/s3 AWS_SHARED_CREDENTIALS_FILE=$T/keys AWS_CONFIG_FILE=$T/none
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE AWS_ENDPOINT_URL_S3
expect 0 "a folder of a bucket" ckpt-inspect s3://models/llama
t "is the same" diff <(tail -n +2 "$T/.out") <(ckpt-inspect "$M" | tail -n +2)
expect 0 "an object of a bucket" ckpt-inspect s3://models/llama/model-00001-of-00004.safetensors
expect 66 "no such object" ckpt-inspect s3://models/nothing
expect 64 "no bucket" ckpt-inspect s3://Models/x
rm -rf "$T/far"
expect 0 "a bucket is merged" ckpt-merge -q -o "$T/far" s3://models/llama/
t "to the same bytes" cmp "$T/far/model.safetensors" "$T/near/model.safetensors"
expect 77 "a bucket that wants to know who asks" ckpt-inspect s3://private-models/llama
printf '[default]\naws_access_key_id = AKIDTEST\naws_secret_access_key=canary\n' >"$T/keys"
expect 0 "is told" ckpt-inspect -vv s3://private-models/llama
t "without a word of the secret" bash -c "! grep -q canary $T/.err $L"
rm "$T/keys"; printf '[profile p]\naws_access_key_id = AKIDTEST\naws_secret_access_key=canary\n[profile q]\ncredential_process = cat "%s"\n[profile r]\ncredential_process = false\n' "$T/the key" >"$T/profiles"
printf '{"Version": 1, "AccessKeyId": "AKIDTEST", "SecretAccessKey": "canary"}' >"$T/the key"
for p in p q; do expect 0 "by the profile $p of the configuration" env AWS_CONFIG_FILE="$T/profiles" AWS_PROFILE=$p ckpt-inspect s3://private-models/llama; done
expect_says 77 "a program that gives no key" "credential_process: false: ended with status 1" env AWS_CONFIG_FILE="$T/profiles" AWS_PROFILE=r ckpt-inspect s3://private-models/llama
expect_says 77 "what the store says" "AccessDenied" env AWS_CONFIG_FILE="$T/profiles" AWS_PROFILE=none ckpt-inspect s3://private-models/llama

# -- a server that fails ----------------------------------------------------------------------
web() { fresh; serve "$@"; }
X=llama/model-00001-of-00004.safetensors
web 'status=500,0:2@/web/*'
expect 0 "500 twice, then the file" ckpt-inspect "$W/$X"
t "each wait is told" bash -c "[ \$(grep -c 'status 500: as the rule says; try' $T/.err) = 2 ]"
web 'status=429,1:1@/web/*'
expect_says 0 "429 with a second to wait" "status 429: as the rule says; try 2 of 6 in 1.0 s" ckpt-inspect "$W/$X"
web 'status=503,0@/web/*'
expect_says 75 "503 for ever" "status 503: as the rule says, at the last of 6 tries" ckpt-inspect -q "$W/$X"
t "there were six" requests 6 .
web 'status=429,99999@/web/*'
expect 75 "a wait of a day" ckpt-inspect -q "$W/$X"
t "is not waited" requests 1 .
web 'status=403@/web/*'
expect 77 "403" ckpt-inspect "$W/$X"
t "is asked once for each question" requests 1 .
web 'status=400@/web/*'
expect 76 "400" ckpt-inspect "$W/$X"
web 'reset:1@/web/*'
expect 0 "a connection that closes" ckpt-inspect -q "$W/$X"
web 'short:1@/web/*'
expect 0 "half a body" ckpt-inspect -q "$W/$X"
web 'short@/web/*'
expect 75 "half a body, each time" env CKPT_HTTP_RETRIES=1 ckpt-inspect -q "$W/$X"
web 'cut@/web/*'
expect 76 "half a body told as all" ckpt-inspect -q "$W/$X"
web 'slow:1@/web/*'
expect 0 "a server that stalls once" ckpt-inspect -q "$W/$X"
web 'slow@/web/*'
expect 75 "a server that stalls" env CKPT_HTTP_RETRIES=1 ckpt-inspect -q "$W/$X"
web 'plain@/web/*'
expect 0 "no ranges" ckpt-inspect "$W/$X"
rm -rf "$T/far"
expect 0 "no ranges, a folder is merged" ckpt-merge -q -o "$T/far" "$W/llama/"
t "to the same bytes" cmp "$T/far/model.safetensors" "$T/near/model.safetensors"
web 'chunk@/web/*'
expect 0 "neither ranges nor a length" ckpt-inspect "$W/$X"
web 'etag@/web/*'; rm -rf "$T/far"
expect 65 "a file that changes while it is read" ckpt-merge -q -o "$T/far" "$W/big.safetensors"
t "is told" says "changed while it was read"
t "nothing is made of it" bash -c "! ls $T/far* 2>/dev/null"
web 'total@/web/*'
expect 76 "a length that is wrong by one" ckpt-inspect "$W/llama/config.json"
web 'html@/web/llama/model.safetensors.index.json'
expect 76 "a page for an index" ckpt-inspect "$W/llama/"
web 'loop@/web/*'
expect_says 76 "a redirect to itself" "more than 5 redirects" ckpt-inspect "$W/$X"
web 'head@/web/*'
expect 76 "a header without end" ckpt-inspect "$W/$X"
web 'gzip@/web/*'
expect 76 "an encoding nobody asked for" ckpt-inspect "$W/$X"
web 'away=file:///etc/passwd@/web/*'
expect 77 "a redirect to a file" ckpt-inspect "$W/$X"
web 'html@/api/*'
expect 76 "a page for JSON of the Hub" ckpt-inspect hf://acme/llama
web 'cut@/api/*tree*'
expect 76 "half a list as if it were all" ckpt-inspect hf://acme/llama
web 'flip@/cdn/*00002*'; rm -rf "$T/far"
expect_says 65 "a wrong byte in a shard" "was listed" ckpt-merge -q -o "$T/far" hf://acme/llama
t "nothing is made of it, nor kept" bash -c "! ls $T/far* 2>/dev/null && ! cmp -s $M/model-00002-of-00004.safetensors $T/cache/objects/sha256-* "
expect 65 "it is found by --verify too" ckpt-inspect --verify hf://acme/llama
web 'flip@*config.json'
expect 65 "a wrong byte in config.json" ckpt-inspect hf://acme/llama/config.json
ckpt-merge -q --provenance none -o "$T/near_big.safetensors" "$R/web/big.safetensors" >/dev/null
web 'status=403:1+1@/cdn/*big*'; rm -f "$T/big"*
expect 0 "storage that refuses later where it was led to" ckpt-merge -q --provenance none -o "$T/big.safetensors" hf://acme/big/big.safetensors
t "is asked for the way again" cmp "$T/big.safetensors" "$T/near_big.safetensors"
t "and a large file comes in its pieces" requests 5 '^cdn .* 206 (4194304|3222[0-9]*)$'
web 'status=500,0:2+3@/cdn/*big*'
expect 0 "a large file over a server that fails at times" ckpt-inspect -q --verify hf://acme/big
web 'flip:2+1@/cdn/*big*'; rm -f "$T/big"*
expect 65 "a wrong byte in a piece" ckpt-merge -q -o "$T/big.safetensors" hf://acme/big
t "nothing is made of it" bash -c "! ls $T/big* 2>/dev/null"
web 'plain@/cdn/*big*'
expect 0 "a large file without ranges" ckpt-merge -q --provenance none -o "$T/big.safetensors" hf://acme/big/big.safetensors
t "is the same" cmp "$T/big.safetensors" "$T/near_big.safetensors"
web; rm -f "$T/big"*
expect 0 "a large file is listed" ckpt-inspect hf://acme/big/big.safetensors
t "by its head" requests 1 '^cdn .* 206 131072$'
expect 0 "a plan of a merge" ckpt-merge --dry-run -o "$T/big.safetensors" hf://acme/big/big.safetensors
t "needs no more" requests 2 '^cdn'
expect 0 "what is read in parts without a copy" ckpt-merge -q --no-checksums --provenance none -o "$T/big.safetensors" hf://acme/big/big.safetensors
t "is the same too" cmp "$T/big.safetensors" "$T/near_big.safetensors"
t "and is not kept" bash -c "! ls $T/cache/objects/* 2>/dev/null"
web 'slow@/web/*'
( timeout -s TERM 0.4 ckpt-inspect "$W/$X" >/dev/null 2>"$T/.err"; echo $? >"$T/status" )
t "a signal ends a wait" bash -c "grep -qx 124 $T/status && one=\$(wc -l <$T/.err) && [ \$one -le 2 ]"

# -- several at once, and data ----------------------------------------------------------------
web
for i in 1 2 3 4; do ckpt-merge -q -o "$T/at$i" hf://acme/llama >/dev/null & done; wait $(jobs -p | grep -v "^$server$")
t "four merges at once" bash -c "for i in 1 2 3 4; do cmp $T/at\$i/model.safetensors $T/near/model.safetensors || exit 1; done"
t "fetch each shard once" requests 4 '^cdn GET .* bytes=0-[0-9]* - 206'
cp -r "$G/hf-imdb" "$R/hub/datasets/acme/imdb"; cp "$G/rows.jsonl" "$R/hub/datasets/acme/imdb/"; fresh
expect 0 "rows of a data set" ckpt-inspect hf://datasets/acme/imdb/rows.jsonl
t "are shown" diff <(tail -n +2 "$T/.out") <(ckpt-inspect "$G/rows.jsonl" | tail -n +2)

# -- the other tools --------------------------------------------------------------------------
web
ckpt-train -q --init tools/recipes/demo/config.json --tokenizer tools/recipes/demo/tokenizer --init-only -o "$T/base" >/dev/null 2>&1
cp -r "$T/base" "$R/hub/models/acme/base"
head -n 12 "$G/rows.jsonl" >"$R/hub/datasets/acme/imdb/train.jsonl"
for i in 1 2 3 4 5 6 7 8; do printf '{"prompt":"a %d ","completion":"b %d"}\n' $i $i; done >"$T/rows.jsonl"
mkdir "$R/hub/datasets/acme/rows"; cp "$T/rows.jsonl" "$R/hub/datasets/acme/rows/train.jsonl"
run() { ckpt-train -q --max-steps 2 --max-seq-length 32 --save-steps 2 --per-device-train-batch-size 2 "$@"; }
expect 0 "a model of the Hub is trained on rows of the Hub" run --model hf://acme/base --train-file hf://datasets/acme/rows -o "$T/run1"
expect 0 "and a local one on local rows" run --model "$T/base" --train-file "$T/rows.jsonl" -o "$T/run2"
t "to the same weights" ckpt-inspect -q --diff "$T/run1/checkpoint-2" "$T/run2/checkpoint-2"
head -n 3 "$T/rows.jsonl" >"$R/hub/datasets/acme/rows/train-0.jsonl"; tail -n +4 "$T/rows.jsonl" >"$R/hub/datasets/acme/rows/train-1.jsonl"
mkdir -p "$R/s3/models/rows"; cp "$R"/hub/datasets/acme/rows/train-?.jsonl "$R/s3/models/rows"
rm "$R/hub/datasets/acme/rows/train.jsonl"
fresh; export AWS_ENDPOINT_URL=http://127.0.0.1:$P/s3
for at in hf://datasets/acme/rows s3://models/rows; do
    rm -rf "$T/run3"
    expect 0 "rows of a pattern below $at" run --model "$T/base" --train-file "$at/tra*-[01].jsonl" -o "$T/run3"
    t "to the same weights" ckpt-inspect -q --diff "$T/run3/checkpoint-2" "$T/run2/checkpoint-2"
done
expect 66 "a pattern of nothing" run --model "$T/base" --train-file 'hf://datasets/acme/rows/x*' -o "$T/run4"
t "says so" says 'hf://datasets/acme/rows: no file of data matches "x*"'
printf -- '---\nconfigs:\n- config_name: a\n  data_files: train-0.jsonl\n- config_name: b\n  data_files: "train-*"\n---\n' \
    >"$R/hub/datasets/acme/rows/README.md"
web
expect 64 "a data set of two configurations" run --model "$T/base" --train-file hf://datasets/acme/rows -o "$T/run4"
t "names them" says "hf://datasets/acme/rows: several configurations in README.md: a, b"
expect 66 "one that is not there" run --model "$T/base" --train-file hf://datasets/acme/rows --dataset-config c -o "$T/run4"
expect 0 "one that is" run --model "$T/base" --train-file hf://datasets/acme/rows --dataset-config b -o "$T/run4"
t "to the same weights" ckpt-inspect -q --diff "$T/run4/checkpoint-2" "$T/run2/checkpoint-2"
cp "$T/rows.jsonl" "$R/hub/datasets/acme/rows/train.jsonl"; cp "$T/rows.jsonl" "$R/web/rows.jsonl"
web
rm -rf "$T/run4"
expect 0 "rows of a web server" run --model "$T/base" --train-file "$W/rows.jsonl" -o "$T/run4"
t "to the same weights" ckpt-inspect -q --diff "$T/run4/checkpoint-2" "$T/run2/checkpoint-2"
expect 0 "it is evaluated on rows of the Hub" ckpt-eval -q --json --base hf://acme/base --eval-file hf://datasets/acme/rows/train.jsonl "$T/run1/checkpoint-2"
