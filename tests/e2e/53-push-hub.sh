# ckpt-push to repositories of the Hub (tests/serve): one commit, or none, whatever goes wrong.  D5
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
export HF_TOKEN=hf_canary CKPT_CACHE=$T/cache CKPT_HTTP_RETRIES=2
M=$G/models/llama-a
push() { ckpt-push -q "$@"; }
# hub [RULE...] - the server goes on with these rules; large files have parts of 20,000 bytes.
hub() { serve --multipart=20000 --chunk=20000 "$@"; }
commits() { curl_json "/api/models/$1/commits/${2:-main}" | grep -o '"title"' | wc -l; }
curl_json() { curl -s -H "Authorization: Bearer $HF_TOKEN" "$HF_ENDPOINT$1"; }
# same REPO DIR - what the repository holds, fetched without a cache, is what DIR holds.
same() {
    local f
    for f in $(cd "$2" && find . -type f ! -name '.*' | sed 's|^\./||'); do
        curl -sL -H "Authorization: Bearer $HF_TOKEN" "$HF_ENDPOINT/$1/resolve/${3:-main}/${4:+$4/}$f" | cmp -s - "$2/$f" || { echo "$f differs"; return 1; }
    done
}
requests() { local n; n=$(grep -cE -- "$2" "$L"); [ "$n" = "$1" ] || { echo "$n requests of $2, $1 expected"; tail -n 40 "$L"; return 1; }; }
sent() { awk '$1 == "cdn" && $2 == "PUT"' "$L" | sed -n 's/.* in=\([0-9]*\).*/\1/p' | awk '{n += $1} END {print n + 0}'; }

hub
expect_says 66 "a repository that is not there" "hint: --create creates it" push hf://acme/toy "$M"
expect_says 77 "no token" "nothing is published without a token" env -u HF_TOKEN ckpt-push -q hf://acme/toy "$M"
expect_says 77 "an invalid one" "the token is invalid or has expired" env HF_TOKEN=hf_wrong ckpt-push -q --create hf://acme/toy "$M"
expect_prints 0 "a repository is created" "hf://acme/toy@" push --create hf://acme/toy "$M"
t "one commit beside the first" [ "$(commits acme/toy)" = 2 ]
t "with every file" same acme/toy "$M"
t "no token reaches the storage" requests 0 LEAK
expect 77 "a token that may only read" env HF_TOKEN=hf_readonly ckpt-push -q hf://acme/toy "$M"
: >"$L"
expect 0 "the same again" push hf://acme/toy "$M"
t "is no commit" [ "$(commits acme/toy)" = 2 ]
t "and no byte" [ "$(sent)" = 0 ]
t "in a few requests" [ "$(grep -c '^hub .*/api/' "$L")" -le 7 ]
expect 0 "a folder of it" push --path-in-repo deep/er hf://acme/toy "$M"
t "lies there" same acme/toy "$M" main deep/er
t "objects that are there are not sent again" [ "$(sent)" = 0 ]
expect 0 "what is gone" push --path-in-repo deep/er --exclude '*.txt' --delete 'deep/*.txt' hf://acme/toy "$M"
t "is deleted" bash -c "! curl -sf -H 'Authorization: Bearer $HF_TOKEN' $HF_ENDPOINT/acme/toy/resolve/main/deep/er/loss.txt >/dev/null"
expect 0 "a branch that is not there" push -b next --path-in-repo b hf://acme/toy "$M"
t "begins at main" same acme/toy "$M" next
t "which stays" [ "$(commits acme/toy)" = 4 ]
expect 0 "a tag" push --tag v1 --path-in-repo c hf://acme/toy "$M"
t "names the commit" same acme/toy "$M" v1 c
expect 73 "one that exists" push --tag v1 --path-in-repo d hf://acme/toy "$M"
expect 0 "a pull request" push --create-pr -m 'please take' --path-in-repo pr hf://acme/toy "$M"
t "leaves the branch" bash -c "! curl -sf -H 'Authorization: Bearer $HF_TOKEN' $HF_ENDPOINT/acme/toy/resolve/main/pr/config.json >/dev/null"
t "and has the files" same acme/toy "$M" refs%2Fpr%2F1 pr
n=$(commits acme/toy)
expect 0 "a dry run" push --dry-run --path-in-repo dry hf://acme/toy "$M"
t "commits nothing" [ "$(commits acme/toy)" = "$n" ]
expect 0 "a private one" push --create --private hf://acme/hidden "$M"
t "is hidden" [ "$(curl -s -o "$T/.x" -w '%{http_code}' "$HF_ENDPOINT/api/models/acme/hidden")" = 401 ]
expect 0 "a data set" push --create hf://datasets/acme/rows "$G/rows.jsonl"
expect 64 "a path in the address" push hf://acme/toy/x "$M"
expect 64 "two revisions" push -b x hf://acme/toy@y "$M"
expect_says 64 "an author" "--author" push --author 'a <b@c>' hf://acme/toy "$M"
expect 69 "offline" env HF_HUB_OFFLINE=1 ckpt-push -q hf://acme/toy "$M"
expect 0 "H6 B4: read back" push --verify deep --path-in-repo v hf://acme/toy "$M"
t "what the Hub has is read by the tools" bash -c "ckpt-inspect -q --diff hf://acme/toy $M"

# -- things that go wrong -----------------------------------------------------------------------
# once NAME STATUS RULE... - with these rules: that status, and exactly one new commit, or none unless 0.
serial=0
once() {
    local name=$1 want=$2 before; shift 2
    serial=$((serial + 1)); hub "$@"
    for f in "$M"/*.safetensors; do printf '%03d' $serial | dd of="$f" bs=1 seek=9000 conv=notrunc status=none; done
    before=$(hub_commits)
    expect "$want" "$name" push --path-in-repo "try$serial" hf://acme/toy "$M"
    [ "$want" = 0 ] && before=$((before + 1))
    t "$name: $([ "$want" = 0 ] && echo one commit || echo none)" [ "$(hub_commits)" = "$before" ]
    [ "$want" != 0 ] || t "$name: complete" same acme/toy "$M" main "try$serial"
}
hub_commits() { grep -l ckpt-push-id "$R"/repos/models/acme/toy/commits/* | wc -l; }
rm -rf "$T/new"; cp -r "$M" "$T/new"; M=$T/new
once "a lost answer to the commit" 0 'lost:1@*/commit/main'
once "504, and it lands later" 0 'late=2:1@*/commit/main'
once "503 for the commit" 0 'status=503:2@*/commit/main'
once "another commit in between" 0 'moves:1@*/commit/main'
once "one that touches our path" 75 "moves=try$((serial + 1))/config.json:1@*/commit/main"
once "a busy repository" 0 'busy:2@*/commit/main'
once "an answer that is a page" 0 'page:1@*/commit/main'
once "429 with Retry-After" 0 'status=429,1:1@*/preupload/main'
once "429 as RateLimit" 0 'status=429,limit=1:1@*/preupload/main'
once "a refused commit" 76 'status=400@*/commit/main'
once "quota" 77 'quota@*/commit/main'
once "a part that is refused once" 0 'expired:1@/part/*'
once "resets in the middle of parts" 0 'reset=5000:3@/part/*'
once "lost answers of parts" 0 'lost:3@/part/*'
once "a lost completion" 0 'lost:1@/complete/*'
once "500 for parts" 0 'status=500:2@/part/*'
once "a server that always fails" 75 'status=500@/part/*'
once "cut JSON of the batch" 76 'cut@*/objects/batch'
serial=999; for f in "$M"/*.safetensors; do printf 'rot' | dd of="$f" bs=1 seek=9000 conv=notrunc status=none; done
hub 'rot:1@/complete/*'; expect_says 76 "H6 B4: a byte that the store turns" "is not what was sent" push --verify deep --path-in-repo rot hf://acme/toy "$M"

hub --transfer=xet; expect_says 65 "a store that insists on Xet" 'takes and gives its objects by "xet" alone; basic and multipart transfers are done' push --path-in-repo xet hf://acme/toy "$M"

# -- a file that changes, a process that ends ----------------------------------------------------
mkdir "$T/big"; head -c 3000000 /dev/urandom >"$T/big/model.safetensors"; echo '{}' >"$T/big/config.json"
hub
n=$(hub_commits)
(sleep 0.7; printf 'changed' | dd of="$T/big/model.safetensors" bs=1 seek=2900000 conv=notrunc status=none) &
ckpt-push -q --bwlimit 1M --path-in-repo big hf://acme/toy "$T/big" >"$T/.out" 2>"$T/.err"; got=$?
t "a file that changes while it is sent" [ $got != 0 ]
t "is not published" [ "$(hub_commits)" = "$n" ]
: >"$L"
rm -rf "$CKPT_CACHE/uploads"
for i in 1 2 3 4; do (timeout -s KILL 0.8 ckpt-push -q --bwlimit 1M --path-in-repo big hf://acme/toy "$T/big" >"$T/.out" 2>&1); done 2>/dev/null
expect 0 "after four kills" push --path-in-repo big hf://acme/toy "$T/big"
t "complete" same acme/toy "$T/big" main big
t "one commit" [ "$(hub_commits)" = $((n + 1)) ]
t "at most a part a stream and kill again" [ "$(sent)" -le $((3000000 + 4 * 4 * 20000 + 20000)) ]
t "and nothing stays of it" [ -z "$(ls "$CKPT_CACHE/uploads")" ]
head -c 3000000 /dev/urandom >"$T/rows"
ckpt-push -q --path-in-repo x --bwlimit 300K hf://acme/toy "$T/rows" >"$T/.out" 2>"$T/.err" & sleep 1; kill -TERM $!; wait $!
t "a signal in the middle ends it with 75" [ $? = 75 ]
t "the token is in no message, and in no file" bash -c "! grep -rqa 'hf_canary' '$T/.err' '$T/.out' '$T/cache'"
