# ZeRO's stages on several ranks: the losses of one rank, the same bits when it is run again or goes
# on, checkpoints that go on with other ranks and at other stages.  [A1, B3, C2, E1]
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
grep -E '.{40}' README.md man/ckpt-train.1 | sed 's/^[^:]*://; s/[\\"]//g' | head -60 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' | tr -d '\t\r' >"$T/train.jsonl"
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
train() {       # OUT RANKS OPTION... - six documents a micro-batch, whatever the ranks
    local out=$1 ranks=$2; shift 2
    ckpt-train -q --device cpu --nproc "$ranks" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --learning-rate 5e-4 --weight-decay 0.01 \
        --max-steps 4 --logging-steps 1 --save-steps 2 --gradient-accumulation-steps 2 --per-device-train-batch-size $((6 / ranks)) -o "$T/$out" "$@"
}
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl" | tail -n "$2"; }
# near RUN OTHER BOUND LAST - the last losses agree.
near() { paste <(losses "$1" "$4") <(losses "$2" "$4") | awk -v b="$3" -v n="$4" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= b)) { bad = 1; print $1, $2, d }; k++ } END { exit bad || k != n }'; }
state() { (cd "$T/$1/checkpoint-4" && find . -type f ! -name MANIFEST.json ! -name training_args.bin ! -name trainer_state.json | sort | xargs sha256sum); }
back() { rm -rf "${T:?}/$2"; cp -r "$T/$1" "$T/$2"; rm -r "$T/$2/checkpoint-4"; }

for how in "" "--bf16 --optim adamw_8bit" "--bf16 --lora-rank 4 --target-modules all-linear"; do
    bound=1e-6
    [ -z "$how" ] || bound=2e-3
    rm -rf "$T/one"
    # shellcheck disable=SC2086
    t "one rank${how:+, $how}" train one 1 $how
    for stage in 1 2 3; do
        ranks=$((stage == 2 ? 3 : 2))
        rm -rf "$T"/{some,again}
        # shellcheck disable=SC2086
        {
            t "$ranks ranks, stage $stage" train some $ranks $how --zero-stage $stage
            t "the same losses within $bound" near some one $bound 4
            back some again
            t "they go on" train again $ranks $how --zero-stage $stage --resume-from-checkpoint latest
            t "to the same bits" diff <(state some) <(state again)
            back some again
            t "another number of ranks goes on at another stage" train again $((5 - ranks)) $how --zero-stage $(((stage + 1) % 4)) --resume-from-checkpoint latest
            t "to the same losses" near again one $bound 2
        }
    done
done
rm -rf "$T"/{paged,host,plain}
t "states that may lie on the host, sharded" train paged 2 --bf16 --optim paged_adamw_8bit --zero-stage 3
t "states on the host, sharded" train host 2 --bf16 --offload-optimizer cpu --zero-stage 2
t "and on the device" train plain 2 --bf16 --zero-stage 2
t "are the same bits" diff <(state host) <(state plain)
t "FSDP's name is the stage" train fsdp 2 --bf16 --fsdp shard_grad_op
t "with its bits" diff <(state fsdp) <(state plain)
rm -rf "$T"/{one,kept,alone}
t "stage 1" train one 2 --zero-stage 1
t "stage 3 that keeps what it gathers" train kept 2 --zero-stage 3 --reshard-after-forward false
t "does the same sums" near kept one 1e-12 4
t "one rank has nothing to keep" train alone 1 --zero-stage 3 --reshard-after-forward false
expect 78 "gradients in 16 bits need GPUs" train no 2 --zero-stage 2 --reduce-dtype bfloat16
t "the error names the option" says "--reduce-dtype"
expect 78 "weights on the host need one rank" train no 2 --bf16 --offload-param cpu
expect 78 "two names that disagree" train no 2 --fsdp full_shard --zero-stage 2
