# The Hub of our tests (tests/serve) answers as the Hub does: what it takes, what it refuses, and each fault that it
# can play.  Who pushes to it is tested elsewhere; this is the referee's own test.
. "$(dirname "$0")/lib.sh"
command -v curl >/dev/null || { echo "ok skipped: no curl"; exit 0; }
. tests/serve/hub.sh
A='Authorization: Bearer hf_canary'
# ask METHOD PATH [curl's arguments] - the status; the body is in $T/body, the head in $T/head.  With the token.
ask() { bare "$@" -H "$A"; }
bare() {
    local method=$1 at=$2; shift 2
    case $at in http*) ;; *) at=$HF_ENDPOINT$at ;; esac
    curl -s -m 10 -g -X "$method" -D "$T/head" -o "$T/body" -w '%{http_code}' "$at" "$@"
}
# gives STATUS NAME command... - the command prints that status.
gives() {
    local want=$1 name=$2 got; shift 2; : >"$T/body"
    "$@" >"$T/got"; got=$(cat "$T/got"); [ "$got" = "$want" ] && echo "ok $name" || fail "$name: $got, $want expected" "$T/body"
}
body() { grep -qF -- "$1" "$T/body" || { cat "$T/body"; return 1; }; }
head_has() { grep -qiF -- "$1" "$T/head" || { cat "$T/head"; return 1; }; }
# value NAME - of a string in the body.
value() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$T/body"; }
logged() { [ "$(grep -cE -- "$2" "$L")" = "$1" ] || { cat "$L"; return 1; }; }
M=/api/models/acme/toy
main() { ask GET "$M/revision/main" >/dev/null; value sha; }
# commit LINE... - of a header and these; EXTRA goes into the header, Q behind the address.
commit() {
    { echo "{\"key\":\"header\",\"value\":{\"summary\":\"Change\",\"description\":\"ckpt-push-id: 1\"${EXTRA:-}}}"
      printf '%s\n' "$@"; } >"$T/lines"
    ask POST "$M/commit/main${Q:-}" -H 'Content-Type: application/x-ndjson' --data-binary "@$T/lines"
}
text() { printf '{"key":"file","value":{"path":"%s","content":"%s","encoding":"utf-8"}}' "$1" "$2"; }
large() { printf '{"key":"lfsFile","value":{"path":"%s","algo":"sha256","oid":"%s","size":%s}}' "$1" "$2" "$3"; }
# batch OID SIZE - the address to send to is $href, of parts $part1 and on.
batch() {
    ask POST /acme/toy.git/info/lfs/objects/batch -d "{\"operation\":\"upload\",\"transfers\":[\"basic\",\"multipart\"],
        \"hash_algo\":\"sha_256\",\"objects\":[{\"oid\":\"$1\",\"size\":$2}]}"
    href=$(grep -oE 'http://[^"]*/(put|complete)/[^"]*' "$T/body")
    part1=$(grep -oE 'http://[^"]*/part/[^"]*/1\?[^"]*' "$T/body"); part2=${part1/\/1\?/\/2\?}
}
etag() { sed -n 's/^ETag: "\(.*\)".*/\1/p' "$T/head"; }
complete() { bare POST "$href" -d "{\"oid\":\"$oid6\",\"parts\":[$1]}"; }
part() { printf '{"partNumber":%s,"etag":"\\"%s\\""}' "$1" "$2"; }

# -- who asks, and repositories -----------------------------------------------------------------
serve --page=20
gives 200 "who am I" ask GET /api/whoami-v2
gives 401 "nobody" bare GET /api/whoami-v2
gives 401 "a token that is none" bare GET /api/whoami-v2 -H 'Authorization: Bearer hf_other'
t "is called invalid" body "Invalid credentials in Authorization header"
N='{"name":"toy","organization":"acme","type":"model","visibility":"private"}'
gives 401 "nobody creates" bare POST /api/repos/create -d "$N"
gives 403 "who may read creates nothing" bare POST /api/repos/create -d "$N" -H 'Authorization: Bearer hf_readonly'
gives 200 "a repository" ask POST /api/repos/create -d "$N"
gives 409 "once" ask POST /api/repos/create -d "$N"
t "is told" body "You already created this model repo"
gives 400 "a bad name" ask POST /api/repos/create -d '{"name":"a..b"}'
gives 401 "a private repository is hidden" bare GET "$M/revision/main"
gives 200 "may I write" ask GET "$M/auth-check/write"
gives 403 "who may read may not" bare GET "$M/auth-check/write" -H 'Authorization: Bearer hf_readonly'
gives 200 "its first file" ask GET /acme/toy/resolve/main/.gitattributes
t "has 35 patterns" [ "$(grep -c ' filter=lfs diff=lfs merge=lfs -text$' "$T/body")" = 35 ]
gives 404 "no such revision" ask GET "$M/revision/none"
t "by its code" head_has "X-Error-Code: RevisionNotFound"

# -- modes --------------------------------------------------------------------------------------
P='{"gitIgnore":"*.log\nruns/\n!keep.log\n","files":[{"path":"a.json","sample":"e30K","size":3},{"path":"b.safetensors","sample":"AAAA","size":3},
    {"path":"c.txt","sample":"eHg=","size":10000001},{"path":"d","sample":"AAEC","size":3},{"path":"x/saved_model/y","sample":"","size":0},
    {"path":"runs/1","sample":"","size":0},{"path":"e.log","sample":"","size":0},{"path":"keep.log","sample":"","size":0}]}'
gives 200 "preupload" ask POST "$M/preupload/main" -d "$P"
t "modes by pattern, size and sample" [ "$(grep -oE '"uploadMode":"[a-z]*"' "$T/body" | cut -d'"' -f4 | xargs)" = "regular lfs lfs lfs regular regular regular regular" ]
t "what is ignored" [ "$(grep -oE '"shouldIgnore":[a-z]*' "$T/body" | cut -d: -f2 | xargs)" = "false false false false false true true false" ]
t "the head it is of" [ "$(value commitOid)" = "$(main)" ]
gives 400 "257 files" ask POST "$M/preupload/main" -d "{\"files\":[$(for i in $(seq 256); do printf '{"path":"%s","size":1,"sample":""},' "$i"; done){\"path\":\"x\",\"size\":1,\"sample\":\"\"}]}"

# -- objects ------------------------------------------------------------------------------------
printf "$(awk 'BEGIN { for (i = 0; i < 256; i++) printf "\\x%02x", (7 * i + 3) % 256 }')" >"$T/one"
for _ in 1 2 3 4 5 6; do cat "$T/one"{,,,} >"$T/six"; mv "$T/six" "$T/one"; done; cat "$T/one"{,,,,,} >"$T/six"
oid1=$(sha256sum <"$T/one" | cut -c1-64) oid6=49a3f2f9537cb294da34870d031ac2963abf8b9efec219089de71dfd76caf0f9
t "the vector of 6 MiB" [ "$(sha256sum <"$T/six" | cut -c1-64)" = $oid6 ]
gives 400 "a commit of an object that is not there" commit "$(large model.safetensors $oid6 6291456)"
t "names the file" body "Offending file: model.safetensors"
gives 200 "a small object" batch "$oid1" 1048576
t "is sent as a whole" [ "${href/*\/put\/models\/acme\/toy\/$oid1*/yes}" = yes ]
gives 400 "another content" bare PUT "$href" -T "$T/six"
gives 400 "a token comes to the storage" bare PUT "$href" -T "$T/one" -H "$A"
t "and is logged" logged 1 '^cdn PUT .* Bearer_hf_canary 400 .* in=1048576 LEAK$'
gives 200 "the content" bare PUT "$href" -T "$T/one"
V=/acme/toy.git/info/lfs/objects/verify
gives 200 "verify" ask POST "$V" -d "{\"oid\":\"$oid1\",\"size\":1048576}"
gives 422 "another size" ask POST "$V" -d "{\"oid\":\"$oid1\",\"size\":1048577}"
gives 404 "another object" ask POST "$V" -d "{\"oid\":\"$oid6\",\"size\":6291456}"
gives 200 "the batch again" batch "$oid1" 1048576
t "has nothing to do" [ -z "$href" ]
gives 200 "a large object" batch $oid6 6291456
t "has parts" body '"chunk_size":"5242880"'
head -c 5242880 "$T/six" >"$T/p1"; tail -c 1048576 "$T/six" >"$T/p2"
gives 400 "a part of a wrong length" bare PUT "$part1" -T "$T/p2"
gives 200 "the first part" bare PUT "$part1" -T "$T/p1"; e1=$(etag)
gives 400 "too few parts" complete "$(part 1 "$e1")"
gives 200 "the second, wrong" bare PUT "$part2" -T <(head -c 1048576 /dev/zero) -H 'Content-Length: 1048576' -H 'Transfer-Encoding:'; e2=$(etag)
gives 400 "another SHA-256" complete "$(part 1 "$e1"),$(part 2 "$e2")"
gives 200 "the second" bare PUT "$part2" -T "$T/p2"
gives 400 "an ETag of before" complete "$(part 1 "$e1"),$(part 2 "$e2")"
gives 200 "the second again" bare PUT "$part2" -T "$T/p2"; e2=$(etag)
gives 400 "parts in another order" complete "$(part 2 "$e2"),$(part 1 "$e1")"
gives 200 "all" complete "$(part 1 "$e1"),$(part 2 "$e2")"
gives 404 "twice" complete "$(part 1 "$e1"),$(part 2 "$e2")"
t "bytes of each part are counted" logged 3 '^cdn PUT /part/.*/2.* in=1048576$'

# -- commits ------------------------------------------------------------------------------------
H=$(main)
gives 200 "a commit" commit "$(text config.json '{\"model_type\":\"toy\"}\n')" "$(large model.safetensors $oid6 6291456)" "$(large odd "$oid1" 1048576)" "$(text sub/x 1)"
C=$(value commitOid)
t "is the head" [ "$C" = "$(main)" ]
gives 200 "its tree" ask GET "$M/tree/$C?recursive=true"
t "a regular file's id" body '"size":21,"oid":"b44ca83de3f3f4c0311f57d048cd9db556ceaa8d"'
t "a pointer's id" body '"oid":"6ce70ec43db2e3e903040bf7ad01574c660a78e9","lfs":{"oid":"'$oid6'","size":6291456,"pointerSize":132}'
t "a folder" body '"type":"directory","path":"sub"'
gives 200 "a page of it" ask GET "$M/tree/main?limit=2"
t "says where the next is" head_has "/tree/main?cursor=2>; rel=\"next\""
gives 200 "the attributes" ask GET /acme/toy/resolve/main/.gitattributes
t "have a line more" body "odd filter=lfs diff=lfs merge=lfs -text"
gives 302 "a large file" ask GET /acme/toy/resolve/main/model.safetensors
t "is elsewhere" head_has "X-Linked-Etag: \"$oid6\""; t "of that size" head_has "X-Linked-Size: 6291456"
gives 206 "a part of it" bare GET "$(sed -n 's/^Location: \(.*\)\r/\1/p' "$T/head")" -r 6291000-
t "is right" cmp "$T/body" <(tail -c 456 "$T/six")
EXTRA=",\"parentCommit\":\"$H\"" gives 412 "a commit on what was" commit "$(text a 1)"
EXTRA=",\"parentCommit\":\"$C\"" gives 200 "on the head" commit "$(text a 1)" '{"key":"deletedFolder","value":{"path":"sub/"}}'
gives 200 "some paths" ask POST "$M/paths-info/main" -d 'paths=a&paths=sub%2Fx'
t "those that are there" [ "$(grep -o '"path"' "$T/body" | wc -l)" = 1 ]
for bad in "$(text ../x 1)" "$(text a/b 1)" '{"key":"header","value":{"summary":"x"}}' '{"key":"copyFile","value":{"path":"q"}}' "$(text y 1)
$(text y 2)"; do gives 400 "no commit of ${bad%%$'\n'*}" commit "$bad"; done
gives 404 "nothing to delete" commit '{"key":"deletedFile","value":{"path":"none"}}'
gives 400 "a bad card" ask POST /api/validate-yaml -d '{"repoType":"model","content":"---\na: [\n---\n"}'
t "says why" body '"errors":[{"message":'
gives 400 "nor a commit of it" commit "$(text README.md '---\na: [\n---\n')"
gives 200 "the history" ask GET "$M/commits/main"
t "is complete" [ "$(grep -o '"title"' "$T/body" | wc -l)" = 3 ]
t "with its texts" body "ckpt-push-id: 1"

# -- references and pull requests ---------------------------------------------------------------
gives 200 "a branch" ask POST "$M/branch/a%2Fb" -d "{\"startingPoint\":\"$C\"}"
gives 409 "once" ask POST "$M/branch/a%2Fb" -d '{}'
gives 200 "a tag" ask POST "$M/tag/main" -d '{"tag":"v1"}'
Q='?create_pr=1' gives 200 "a pull request" commit "$(text p 1)"
t "by its number" body "/acme/toy/discussions/1"
gives 200 "its state" ask GET "$M/revision/refs%2Fpr%2F1"
gives 200 "references" ask GET "$M/refs?include_prs=1"
t "of each kind" [ "$(grep -oE '"ref":"[^"]*"' "$T/body" | cut -d'"' -f4 | sort | xargs)" = "refs/heads/a/b refs/heads/main refs/pr/1 refs/tags/v1" ]
gives 200 "a draft" ask POST "$M/discussions" -d '{"title":"By hand","description":"ckpt-push-id: 2","pullRequest":true}'
gives 400 "is not merged" ask POST "$M/discussions/2/merge" -d '{}'
gives 200 "the first is" ask POST "$M/discussions/1/merge" -d '{}'
gives 200 "to main" ask GET /acme/toy/resolve/main/p
gives 200 "the list" ask GET "$M/discussions?p=0&type=pull_request&status=all"
t "of two" body '"count":2'
gives 200 "a branch less" ask DELETE "$M/branch/a%2Fb"
gives 404 "is gone" ask DELETE "$M/branch/a%2Fb"

# -- faults -------------------------------------------------------------------------------------
C=$(main)
serve "lost:1@*/commit/*" "twice:1@*/commit/*" "late=0.3:1@*/commit/*" "moves:1@*/commit/*" "busy:1@*/commit/*" "reset=100:1@*/commit/*" "page:1@*/commit/*"
EXTRA=",\"parentCommit\":\"$C\""
gives 000 "a lost answer" commit "$(text f1 1)"; C1=$(main)
t "of a commit that landed" [ "$C1" != "$C" ]
EXTRA=",\"parentCommit\":\"$C1\""
gives 412 "a commit that is repeated on its way" commit "$(text f2 1)"; C2=$(main)
t "landed once" [ "$C2" != "$C1" ]
EXTRA=",\"parentCommit\":\"$C2\""
gives 504 "a gateway that gives up" commit "$(text f3 1)"
t "before the commit" [ "$(main)" = "$C2" ]
t "lands" wait_for '[ "$(main)" != $C2 ]'
C3=$(main) EXTRA=",\"parentCommit\":\"$(main)\""
gives 412 "a head that moves before the commit" commit "$(text f4 1)"
t "by a commit of another" [ "$(main)" != "$C3" ]
EXTRA=
gives 409 "a busy repository" commit "$(text f5 1)"
t "in its words" body "Another commit operation is in progress"
gives 000 "a connection that breaks within the body" commit "$(text f6 1)"
t "counts what came" logged 1 'commit/main - Bearer_hf_canary 0 0 in=100$'
C4=$(main); gives 200 "a page in place of the reply" commit "$(text f7 1)"
t "after the effect" [ "$(main)" != "$C4" ]
serve "status=429,limit=55:1@*" "status=429,date=60:1@*" "status=503,7:1@*" "status=429,none:1@*" "quota:1@*" "cut:1@*" "length=9:1@*" "length=-9:1@*" "away=http://127.0.0.1:1/x:1@*" "stall=1:1@*"
gives 429 "a limit" ask GET "$M/refs"; t "in RateLimit" head_has 'RateLimit: "api";r=0;t=55'
gives 429 "a date" ask GET "$M/refs"; t "to come again" head_has ' GMT'
gives 503 "seconds" ask POST "$M/commit/main" -d x; t "to come again" head_has 'Retry-After: 7'
gives 429 "no word" ask GET "$M/refs"; t "on when" bash -c "! grep -qi retry-after $T/head"
gives 403 "no room" ask GET "$M/refs"
gives 200 "half a JSON" ask GET "$M/refs"; t "ends early" bash -c "! grep -q '}]}\$' $T/body"
ask GET "$M/refs" >/dev/null; t "a length too long" [ $? = 18 ]
gives 200 "a length too short" ask GET "$M/refs"; t "ends early" bash -c "! grep -q '}]}\$' $T/body"
gives 307 "a redirect to another host" ask POST "$M/commit/main" -d x; t "is its Location" head_has 'Location: http://127.0.0.1:1/x'
gives 000 "an answer that never comes" ask GET "$M/refs"
serve --expires=0
gives 302 "an address" ask GET /acme/toy/resolve/main/odd
gives 403 "that expired" bare GET "$(sed -n 's/^Location: \(.*\)\r/\1/p' "$T/head")"
serve "rot:1@/put/*" "lost:1@/put/*"
printf abc >"$T/abc"; oid=$(sha256sum <"$T/abc" | cut -c1-64)
batch "$oid" 3 >/dev/null
gives 200 "an object that rots" bare PUT "$href" -T "$T/abc"
t "in the store" [ "$(cat "$R/repos/models/acme/toy/lfs/$oid")" = abb ]
printf abcd >"$T/abc"; oid=$(sha256sum <"$T/abc" | cut -c1-64)
batch "$oid" 4 >/dev/null
gives 000 "an object whose answer is lost" bare PUT "$href" -T "$T/abc" -H Expect:
batch "$oid" 4 >/dev/null; t "is there" [ -z "$href" ]

# -- many at once -------------------------------------------------------------------------------
before=$(ls "$R/repos/models/acme/toy/commits" | wc -l)
for i in $(seq 8); do
    printf '{"key":"header","value":{"summary":"Many"}}\n%s\n' "$(text "many/$i" 1)" >"$T/many$i"
    for k in 1 2 3; do
        curl -s -o "$T/many$i.$k" -H "$A" --data-binary "@$T/many$i" "$HF_ENDPOINT$M/commit/main"
    done &
done; wait $(jobs -p | grep -v "^$server$")
t "24 commits at once are 24" [ "$(ls "$R/repos/models/acme/toy/commits" | wc -l)" = $((before + 24)) ]
ask GET "$M/tree/main/many" >/dev/null; t "of 8 files" [ "$(grep -o '"path"' "$T/body" | wc -l)" = 8 ]
