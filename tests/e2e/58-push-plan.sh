# ckpt-push --plan and --apply: what will be sent and why, as lines of JSON; and exactly that, or nothing.
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
export HF_TOKEN=hf_canary GIT_CONFIG_NOSYSTEM=1 HOME=$T
M=$T/model; cp -r "$G/models/llama-a" "$M"; J=$T/plan.jsonl
reason() { python3 - "$J" "$1" <<'E'
import json, sys
for line in open(sys.argv[1]):
    o = json.loads(line)
    if o["type"] == "operation" and o["path"] == sys.argv[2] and o["reason"] != "left out":
        print(o["action"], o["reason"], o.get("how", "-"), "digest" if o.get("digest") else "no digest")
E
}
is() { local got; got=$(reason "$2"); [ "$got" = "$1" ] || { echo "$2: $got"; cat "$J"; return 1; }; }
# round NAME HOW DESTINATION CREATE [OPTION...] - what each kind of file is called, and that a plan is carried out once.
round() {
    local name=$1 how=$2 to=$3 create=${4:-}
    rm -rf "$M"; cp -r "$G/models/llama-a" "$M"; echo 1 >"$M/notes.txt"; echo gone >"$M/old.txt"; echo h >"$M/.hidden"
    expect_prints 0 "$name: a plan of all" "$J" ckpt-push -q $create --plan "$J" "$to" "$M"
    t "$name: all is new" is "upload new $how digest" notes.txt
    t "$name: hidden files are left out" grep -q '"path":".hidden","reason":"left out","why":"hidden"' "$J"
    expect 0 "$name: it is carried out" ckpt-push -q --apply "$J"
    expect_says 75 "$name: not a second time" "since the plan was made" ckpt-push -q --apply "$J"
    echo 2 >"$M/notes.txt"; echo n >"$M/new.txt"
    expect 0 "$name: a plan of changes" ckpt-push -q --plan "$J" --exclude old.txt "${@:5}" "$to" "$M"
    t "$name: same" bash -c "grep -q '\"action\":\"skip\",\"path\":\"config.json\",\"reason\":\"same\"' $J"
    t "$name: new" is "upload new $how digest" new.txt
    expect_prints 0 "$name: a dry run says the same" "to_send\": 4" ckpt-push -q --json --dry-run --exclude old.txt "${@:5}" "$to" "$M"
    echo 3 >"$M/notes.txt"; expect_says 65 "$name: another source" "notes.txt: changed since the plan was made" ckpt-push -q --apply "$J"
    echo 2 >"$M/notes.txt"; echo x >"$M/more.txt"; expect_says 65 "$name: a file more" "more.txt: was added" ckpt-push -q --apply "$J"
    rm "$M/more.txt" "$M/new.txt"; expect_says 65 "$name: a file less" "new.txt: is gone from the source" ckpt-push -q --apply "$J"
    echo n >"$M/new.txt"; expect 0 "$name: the source as it was" ckpt-push -q --apply "$J"
}
serve
round folder regular "$T/folder" ""
t "folder: changed" is "upload changed regular digest" notes.txt
t "folder: is there" cmp "$T/folder/new.txt" "$M/new.txt"
round git regular "$T/hub.git" --create --delete old.txt
t "git: changed" is "upload changed regular digest" notes.txt
t "git: deleted" is "delete deleted - no digest" old.txt
t "git: two commits" [ "$(git --git-dir "$T/hub.git" rev-list --count main)" = 2 ]
t "git: weights by pointer" bash -c "grep -q 'model-00001.*\"how\":\"lfs\",\"digest\":\"sha256-' '$J'"
round hub regular hf://acme/planned --create --delete old.txt
t "hub: changed" is "upload changed regular digest" notes.txt
t "hub: deleted" is "delete deleted - no digest" old.txt
t "hub: weights by pointer" bash -c "grep -q 'model-00001.*\"how\":\"lfs\",\"digest\":\"sha256-' '$J'"
ckpt-push -q --plan "$J" -m planned --path-in-repo a hf://acme/planned "$M" >/dev/null
ckpt-push -q --path-in-repo b hf://acme/planned "$M/notes.txt" >/dev/null
expect_says 75 "hub: another commit in between" "another commit came since the plan was made" ckpt-push -q --apply "$J"
ckpt-push -q --plan "$J" -m planned --path-in-repo a hf://acme/planned "$M" >/dev/null
serve 'moves:1@*/commit/main'
expect_says 75 "hub: another commit while it is carried out" "another commit came since the plan was made" ckpt-push -q --apply "$J"
serve
ckpt-push -q --plan "$J" -b side hf://acme/planned "$M" >/dev/null
expect 0 "hub: a branch that is not there yet" ckpt-push -q --apply "$J"
printf '%s\n' "$M" "$G/models/opt-a" 2>/dev/null | ckpt-push -q --plan "$J" --path-in-repo '{name}' "$T/many" >/dev/null
t "several sources, a header each" [ "$(grep -c '"type":"header"' "$J")" = 2 ]
expect 0 "are carried out" ckpt-push -q --apply "$J"
t "each" [ -e "$T/many/model/config.json" ]

# -- what is refused ----------------------------------------------------------------------------
expect 64 "a destination beside a plan" ckpt-push --apply "$J" "$T/x"
expect 64 "options beside a plan" ckpt-push --apply "$J" -m x
expect 64 "what is left out beside a plan" ckpt-push --apply "$J" --also x
mkdir "$T/unsafe" && printf 'cposix\nsystem\n(Vid\ntR.' >"$T/unsafe/x.bin" && echo '{}' >"$T/unsafe/config.json" && echo n >"$T/unsafe/n.txt"
expect 77 "a plan of what runs code" ckpt-push -q --plan "$J" "$T/unsafe.to" "$T/unsafe"
expect 0 "that is wanted" ckpt-push -q --plan "$J" --allow-pickles --include '*.bin' --also config.json "$T/unsafe.to" "$T/unsafe"
expect 0 "is carried out" ckpt-push -q --apply "$J"
t "with what was named too" test "$(cd "$T/unsafe.to" && echo *)" = "config.json x.bin"
expect 64 "a plan of bytes that come once" bash -c "tar c -C '$M' . | ckpt-push --plan '$J' '$T/x'"
expect 66 "a plan that is not there" ckpt-push --apply "$T/none"
echo '{"type":"header"}' >"$J"; expect_says 65 "what is no plan" "line 1: another version of plans" ckpt-push --apply "$J"
rm -f "$J"; expect 66 "a source that is not there" ckpt-push --plan "$J" "$T/x" "$T/none"
t "gives no plan" [ ! -e "$J" ]

# -- events -------------------------------------------------------------------------------------
serve 'status=503:2@*/preupload/main'
ckpt-push --json --bwlimit 100K hf://acme/planned "$M" --path-in-repo events >"$T/.out" 2>"$T/events"
t "events: a push with --json" grep -q 'hf://acme/planned@' "$T/.out"
t "events: each line is an object" python3 -c "import json,sys; [json.loads(l)['event'] for l in open('$T/events')]"
for e in start note retry published; do t "events: $e" grep -q "\"event\":\"$e\"" "$T/events"; done
t "events: why it is tried again" grep -q '"event":"retry","why":".*503.*","try":2,"of":6,"wait":' "$T/events"
t "events: files that were there" grep -q '"event":"file","path":"events/model-00001.*"sent":false' "$T/events"
printf 'x' >>"$M/model-00001-of-00004.safetensors"; ckpt-push --json hf://acme/planned "$M" --path-in-repo other >/dev/null 2>"$T/events"
t "events: files that are sent" grep -q '"event":"file","path":"other/model-00001.*"sent":true' "$T/events"
ckpt-push -q --json "$T/quiet" "$M" >/dev/null 2>"$T/events"; t "events: none with -q" [ ! -s "$T/events" ]
