# A world of many ranks, timed on one GPU with a model of the collectives. tests/e2e/34-device.sh
# has the refusals. The folder of cached choices is the device's, and is none of what a run writes.
. "$(dirname "$0")/../e2e/lib.sh"
R=tools/recipes/demo
export OMP_NUM_THREADS=4
mkdir "$T/tmp"
grep -E '.{40}' README.md man/ckpt-train.1 | sed 's/^[^:]*://; s/[\\"]//g' | head -400 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' | tr -d '\t\r' >"$T/train.jsonl"
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
sed 's/"n_layer": 4/"n_layer": 12/' $R/config.json >"$T/deep.json"
ckpt-train -q --init "$T/deep.json" --tokenizer $R/tokenizer --init-only -o "$T/deep" >/dev/null
simulate() {    # N OPTION... - rank 0 of N
    local n=$1; shift
    TMPDIR=$T/tmp timeout 120 ckpt-train -q --device cuda --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 \
        --per-device-train-batch-size 8 --simulate-world "$n" -o "$T/none" "$@"
}
field() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*$/\1/p" "$T/.out"; }     # of --json, after expect
# holds EXPRESSION NAME=VALUE... - the arithmetic is true.
holds() {
    local what=$1 v args=(); shift
    for v; do args+=(-v "$v"); done
    echo "$*"                           # t prints it where this fails
    awk "${args[@]}" "BEGIN { exit !($what) }"
}
before=$(find "$T" -type f ! -path "$T/.*" ! -path "$T/cache/*" | sort | xargs sha256sum)
for stage in 0 1 2 3 "3 --reshard-after-forward true" "3 --bf16" "3 --bf16 --reshard-after-forward true --gradient-accumulation-steps 2" \
    "3 --bf16 --lora-rank 4 --target-modules all-linear" "2 --bf16 --optim adamw_8bit"; do
    for n in 2 3 1024; do
        # shellcheck disable=SC2086
        expect 0 "rank 0 of $n, stage $stage" simulate $n --zero-stage $stage --max-steps 5
        prints "world: $n ranks on " && grep -qE '^tokens/s: [0-9]+, [0-9]+ of a rank$' "$T/.out" &&
            grep -qE '^step: [0-9.]+ ms, the mean of 5; the quickest [0-9.]+$' "$T/.out" &&
            grep -qE '^communication: [0-9.]+ ms of a step are exposed \([0-9.]+ %\), of [0-9.]+ ms in [0-9.]+ collectives' "$T/.out" &&
            prints "model: 136 GB/s a GPU in nodes of 8" && echo "ok it is told" || fail "it is told" "$T/.out"
    done
done
# One node, two nodes with little between them, and the same with a network that is fast.
expect 0 "in a node" simulate 8 --zero-stage 3 --bf16 --json
one=$(field step_seconds)
expect 0 "a slow network" simulate 16 --zero-stage 3 --bf16 --json --simulate-network 0.01
slow=$(field step_seconds) c=$(field communication_seconds) x=$(field exposed_seconds)
t "it makes the step longer" holds "s > 2 * one && s > 0.9 * c" s="$slow" one="$one" c="$c"
t "all but what a step of this size hides is exposed" holds "x > 0.5 * c && x <= 1.1 * c" x="$x" c="$c"
expect 0 "a fast network" simulate 16 --zero-stage 3 --bf16 --json --simulate-network 400
t "it does not" holds "s < 0.5 * slow" s="$(field step_seconds)" slow="$slow"
# Two nodes, each sharding for itself: weights are gathered and gradients reduced inside of each, and a part's gradient
# (f32) is summed over the two once a step.  Counted in gathers of all weights (bf16) among 16 ranks, that sum is 4: its
# 1/8 of twice the bytes goes to and fro through one card, not 1/16 of the bytes once.  Sharding together takes 2 for the
# reduction and less than 8 for 4 micro-batches, since three layers stay in their slots between forward and backward: of
# 4 layers 3.2, of these 12 about 5.6.
nodes=(--model "$T/deep" --bf16 --reshard-after-forward true --gradient-accumulation-steps 4 --simulate-network 0.01 --max-steps 5 --json)
expect 0 "two nodes that shard together" simulate 16 --zero-stage 3 "${nodes[@]}"
together=$(field communication_seconds)
expect 0 "and two that shard each for itself" simulate 16 --fsdp hybrid_shard "${nodes[@]}"
t "less passes between them" holds "c > 0 && c < 0.7 * t && g == 8" c="$(field communication_seconds)" t="$together" g="$(field shard_size)"
expect 0 "groups of two" simulate 16 --zero-stage 2 --hybrid-shard-size 2 --max-steps 5
prints "world: 16 ranks on 2 nodes, ZeRO stage 2 in groups of 2" && echo "ok they are told" || fail "they are told" "$T/.out"
expect 78 "nodes that are not full" simulate 12 --fsdp hybrid_shard
# Collectives last as long as the model says: they come one after the other.
t "no collective ends early" holds "s >= c" s="$slow" c="$(awk -v c="$c" 'BEGIN { print 0.95 * c }')"
[ ! -e "$T/none" ] && [ -z "$(ls "$T/tmp")" ] && [ "$before" = "$(find "$T" -type f ! -path "$T/.*" ! -path "$T/cache/*" | sort | xargs sha256sum)" ] &&
    echo "ok nothing was written" || fail "nothing was written" <(find "$T" -newer "$T/base/config.json")
