# ZeRO's stages on several ranks: the losses of one rank, the same bits when it is run again or goes
# on, checkpoints that go on with other ranks and at other stages.  [A1, B3, C2, E1]
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/ranks.sh"
grep -E '.{40}' README.md man/ckpt-train.1 | sed 's/^[^:]*://; s/[\\"]//g' | head -60 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' | tr -d '\t\r' >"$T/train.jsonl"
train() {       # OUT RANKS OPTION... - six documents a micro-batch, whatever the ranks
    local out=$1 ranks=$2; shift 2
    ckpt-train -q --device cpu --nproc "$ranks" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --learning-rate 5e-4 --weight-decay 0.01 \
        --max-steps 4 --logging-steps 1 --save-steps 2 --gradient-accumulation-steps 2 --per-device-train-batch-size $((6 / ranks)) -o "$T/$out" "$@"
}
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl" | tail -n "$2"; }
# near RUN OTHER BOUND LAST - the last losses agree.
near() { paste <(losses "$1" "$4") <(losses "$2" "$4") | awk -v b="$3" -v n="$4" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= b)) { bad = 1; print $1, $2, d }; k++ } END { exit bad || k != n }'; }
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
t "D1 FSDP's name is the stage" train fsdp 2 --bf16 --fsdp shard_grad_op
t "with its bits" diff <(state fsdp) <(state plain)
rm -rf "$T"/{one,kept,alone}
t "stage 1" train one 2 --zero-stage 1
t "stage 3 that keeps what it gathers" train kept 2 --zero-stage 3 --reshard-after-forward false
t "does the same sums" near kept one 1e-12 4
t "one rank has nothing to keep" train alone 1 --zero-stage 3 --reshard-after-forward false
for how in bf16 fp16; do
    rm -rf "$T/$how" "$T/merged"
    t "A1 $how: DeepSpeed's option gathers 16 bits" train $how 2 --$how --zero-stage 3 --stage3-gather-16bit-weights-on-model-save
    c=$(ls -d "$T/$how"/checkpoint-* | tail -n 1)
    ckpt-merge -q --dtype ${how/fp/f} -o "$T/merged" "$c" >/dev/null
    t "A1 $how: they are the shards', rounded" bash -c "ckpt-inspect --diff '$T/merged/model.safetensors' '$c/model.safetensors' | grep -q '^unequal tensors: 0'"
    t "A1 $how: of that type, in the root too" bash -c "! ckpt-inspect '$T/$how/model.safetensors' | grep -q F32 && cmp '$T/$how/model.safetensors' '$c/model.safetensors'"
done
expect 78 "gradients in 16 bits need GPUs" train no 2 --zero-stage 2 --reduce-dtype bfloat16
t "the error names the option" says "--reduce-dtype"
# Where all lies, the stage and the ranks change no sum: one table of losses, three steps of six
# documents.  What lies on the host with its weights has them in 16 bits: of so many ranks the same
# losses, those of one rank within their rounding.
cell() {        # OUT RANKS OPTION... - a quick run
    local out=$1 ranks=$2; shift 2
    rm -rf "${T:?}/$out"
    ckpt-train -q --device cpu --nproc "$ranks" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 16 --learning-rate 5e-4 \
        --max-steps 3 --logging-steps 1 --per-device-train-batch-size $((6 / ranks)) -o "$T/$out" "$@" >/dev/null
}
row() {         # RANKS STAGE - every place
    cell f32 "$1" --zero-stage "$2" && near f32 f32-1 1e-6 3 &&
        cell f32 "$1" --zero-stage "$2" --offload-optimizer cpu && near f32 f32-1 1e-6 3 &&
        cell half "$1" --bf16 --zero-stage "$2" && near half "half-$1" 1e-6 3 && near half half-1 2e-3 3 || return 1
    [ "$1" -gt 1 ] && [ "$2" = 0 ] && return
    for how in "" "--offload-optimizer cpu"; do
        # shellcheck disable=SC2086
        cell half "$1" --bf16 --zero-stage "$2" --offload-param cpu $how && near half "half-$1" 1e-6 3 || return 1
    done
}
t "one rank, float32" cell f32-1 1
for ranks in 1 2 3; do
    t "$ranks of 16 bits" cell half-$ranks $ranks --bf16
    for stage in 0 1 2 3; do t "$ranks at stage $stage, wherever all lies" row $ranks $stage; done
done
# k micro-batches of b are one of k b.
for how in "--zero-stage 0" "--zero-stage 1" "--zero-stage 2" "--zero-stage 3"; do
    # shellcheck disable=SC2086
    t "three passes of a third, $how" cell f32 2 $how --gradient-accumulation-steps 3 --per-device-train-batch-size 1
    t "are one of all" near f32 f32-1 1e-6 3
done
t "and with weights on the host" cell half 2 --bf16 --zero-stage 3 --offload-param cpu --gradient-accumulation-steps 3 --per-device-train-batch-size 1
t "within 16 bits" near half half-2 2e-3 3
t "they lie there in shards" train far 2 --bf16 --offload-param cpu --zero-stage 3
t "and on the device" train here 2 --bf16 --zero-stage 3
t "are the same bits there" diff <(state far) <(state here)
back far again
t "they go on at another stage, on the device" train again 3 --bf16 --zero-stage 1 --resume-from-checkpoint latest
t "to the same losses" near again far 2e-3 2
back far again
t "and where they were" train again 2 --bf16 --offload-param cpu --zero-stage 3 --resume-from-checkpoint latest
t "to the same bits" diff <(state far) <(state again)
t "an adapter" train lora 2 --bf16 --lora-rank 4 --zero-stage 3
t "its base on the host" train lorafar 2 --bf16 --lora-rank 4 --zero-stage 3 --offload-param cpu
t "an adapter's bits" diff <(state lora) <(state lorafar)
# Moments in bfloat16, in shards.
rm -rf "$T"/{one,some,again}
t "bfloat16 moments of one rank" train one 1 --optim adamw_anyprecision
for stage in 1 2 3; do
    rm -rf "$T/some"
    t "of $stage, sharded" train some $((1 + stage % 3)) --optim adamw_anyprecision --zero-stage $stage
    t "are as near as one rounding" near some one 1e-4 4
    back some again
    t "they go on" train again $((1 + stage % 3)) --optim adamw_anyprecision --zero-stage $stage --resume-from-checkpoint latest
    t "to the same bits" diff <(state some) <(state again)
    back some again
    t "at another stage, with other ranks" train again $((3 - stage % 3)) --optim adamw_anyprecision --zero-stage $(((stage + 2) % 4)) --resume-from-checkpoint latest
    t "to losses as near" near again one 1e-4 2
done
plan() { ckpt-train --dry-run --device cpu --bf16 --zero-stage 3 --offload-param cpu --nproc "$1" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 -o "$T/none" "${@:2}" 2>&1; }
adds_up() {     # a plan's parts are its sums; what is on the host is a rank's share of 18 bytes a parameter
    plan "$@" | awk -v n="$1" '
        /memory of a rank:|on the host:/ { s = 0; k = split($0, x, /[ ,:]+/); m = 0; for (i = 1; i < k; i++) if (x[i] ~ /^[0-9.]+$/) { v[++m] = x[i] }
            for (i = 1; i < m - ($0 ~ / of [0-9.]+ MiB/); i++) s += v[i]; t = v[m - ($0 ~ / of [0-9.]+ MiB/)]; if (s - t > 0.35 || t - s > 0.35) { bad = 1; print s, t, $0 } }
        /M parameters/ { for (i = 1; i < NF; i++) if ($(i + 1) == "M") p = $i }
        /on the host:/ { w = 18 * p * 1e6 / 1048576 / n; if (t < w * 0.99 || t > w * 1.01) { bad = 1; print w, $0 } seen++ }
        END { exit bad || seen != 1 }'
}
for n in 1 2 8; do
    t "a plan for $n adds up" adds_up $n
    t "of GPUs that are not there too" adds_up $n --device-memory-limit 8G
done
t "it names each rank's share" bash -c "$(declare -f plan); T=$T; plan 8 | grep -q 'on the host: .* MiB of each rank'"
expect 78 "two names that disagree" train no 2 --fsdp full_shard --zero-stage 2

# -- hybrid sharding: groups shard, each among itself, and hold the same -------------------------
opts=(--device cpu --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --learning-rate 5e-4 --weight-decay 0.01
    --max-steps 4 --logging-steps 1 --save-steps 2 --gradient-accumulation-steps 2)
# train OUT RANKS OPTION... - eight documents a micro-batch, whatever the ranks
train() { timeout 120 ckpt-train -q "${opts[@]}" --nproc "$2" --per-device-train-batch-size $((8 / $2)) -o "$T/$1" "${@:3}"; }
last() { losses "$1" "$2"; }
# as RUN OTHER N - the last N losses agree to 1e-6
agree() { paste <(last "$1" "$3") <(last "$2" "$3") | awk -v n="$3" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= 1e-6)) { bad = 1; print $1, $2, d }; k++ } END { exit bad || k != n }'; }
again() { rm -rf "${T:?}/$2"; rewind "$1" "$2"; }
shards() { find "$(newest "$1")" -name 'zero_pp_rank_*_optim_states.pt' | wc -l; }

for how in "" "--lora-rank 4 --target-modules all-linear --lora-dropout 0.1" "--optim adamw_8bit"; do
    for stage in 1 2 3; do
        [ $stage = 1 ] && [ "$how" != "" ] && continue
        rm -rf "$T"/{all,two,one}
        # shellcheck disable=SC2086
        {
            t "4 ranks, stage $stage${how:+, $how}" train all 4 --zero-stage $stage $how
            t "in groups of 2" train two 4 --zero-stage $stage --hybrid-shard-size 2 $how
            t "the same losses" agree two all 4
            t "a group writes its shards" [ "$(shards two)/$(shards all)" = 2/4 ]
            again two on
            t "they go on" train on 4 --zero-stage $stage --hybrid-shard-size 2 --resume-from-checkpoint latest $how
            t "to the same bits" same_state two on
            [ $stage = 3 ] || continue
            t "in groups of 1" train one 4 --zero-stage $stage --hybrid-shard-size 1 $how
            t "the same losses" agree one all 4
            t "one rank writes all" [ "$(shards one)" = 1 ]
        }
    done
    # shellcheck disable=SC2086
    {
        again two on
        t "groups' checkpoint goes on without groups${how:+, $how}" train on 4 --zero-stage 1 --resume-from-checkpoint latest $how
        t "from the same bits" [ "$(last on 2 | head -n 1)" = "$(last two 2 | head -n 1)" ]
        t "to the same losses" agree on all 2
        again all on
        t "and the other way" train on 4 --zero-stage 2 --hybrid-shard-size 2 --resume-from-checkpoint latest $how
        t "from the same bits" [ "$(last on 2 | head -n 1)" = "$(last all 2 | head -n 1)" ]
        t "to the same losses" agree on all 2
    }
done
again all on
t "ranks that shard together go on as fewer groups of more" train on 2 --zero-stage 3 --hybrid-shard-size 1 --optim adamw_8bit --resume-from-checkpoint latest
t "to the same losses" agree on all 2

# What a node is, ranks say themselves.  Four ranks started by hand: by_hand OUT LOCAL_RANKS OPTION...
by_hand() {
    local out=$1 local=($2) port=$((15000 + RANDOM % 15000)) r status=0 first; shift 2
    for r in 1 2 3; do rank $r "${local[r]}" $port "$out" "$@" >"$T/.rank$r" 2>&1 & done
    rank 0 "${local[0]}" $port "$out" "$@"; first=$?
    wait -n; wait -n; wait -n || status=$?
    return $((first ? first : status))
}
rank() { env RANK="$1" LOCAL_RANK="$2" WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT="$3" timeout 60 ckpt-train "${opts[@]}" --per-device-train-batch-size 2 -o "$T/$4" "${@:5}"; }
rm -rf "$T"/{all,two,one}
for stage in 3:hybrid_shard 2:hybrid_shard_zero2; do
    rm -rf "$T"/{two,nodes}
    t "4 ranks in groups of 2, stage ${stage%:*}" train two 4 --zero-stage ${stage%:*} --hybrid-shard-size 2
    expect 0 "two nodes of 2, by FSDP's name" by_hand nodes "0 1 0 1" --fsdp ${stage#*:}
    t "are these groups" says "ranks: 4 (gloo), ZeRO stage ${stage%:*} in groups of 2, 1 thread each"
    t "with their bits" same_state two nodes
done
expect 78 "ranks of a node that are not neighbours" by_hand no "0 0 1 1" -q --fsdp hybrid_shard
t "rank and number are named" says "rank 1 is not number 1 of its node"
expect 78 "nodes of different sizes" by_hand no "0 1 2 0" -q --fsdp hybrid_shard
t "are said to be" says "nodes have up to 3 ranks, the last has fewer"
expect 0 "but groups that are given" by_hand given "0 1 2 0" -q --fsdp hybrid_shard --hybrid-shard-size 2 --max-steps 1
expect 0 "nodes of 1" by_hand ones "0 0 0 0" --fsdp hybrid_shard --max-steps 1
t "are warned of" says "every node has one rank: nothing is sharded"
expect 78 "groups that do not fill ranks of another launcher" by_hand no "0 1 2 3" -q --zero-stage 3 --hybrid-shard-size 3
t "one rank says so" says "ckpt-train: groups of 3 ranks do not fill a world of 4"
t "the others nothing" [ "$(cat "$T"/.rank?)" = "" ]

# One node: all shard together.
verbose() { timeout 60 ckpt-train "${opts[@]}" --nproc 2 --per-device-train-batch-size 4 -o "$T/$1" "${@:2}"; }
expect 0 "one node" verbose one --fsdp hybrid_shard
t "says so once" [ "$(grep -c 'all ranks are on one node: weights are sharded over all of them, as by --fsdp full_shard' "$T/.err")" = 1 ]
t "2 ranks that shard all" verbose full --fsdp full_shard
t "the same bits" same_state one full
t "a group of all ranks" verbose group --zero-stage 3 --hybrid-shard-size 2
t "is none" same_state group full

# The share of communication beside other runs' figures: of several ranks alone.
rm -rf "$T/one"
t "one rank" verbose one --nproc 1 --max-steps 2
share() { ckpt-inspect --compare --json "$T/one" "$T/full" | grep -oE '"communication_share": [a-z0-9.]+' | cut -d' ' -f2 | tr '\n' ' '; }
t "the share of communication is that of ranks" bash -c 'read -r none some <<<"$1"; [ "$none" = null ] && awk -v s="$some" "BEGIN { exit !(s > 0 && s < 1) }"' - "$(share)"

if command -v mpirun >/dev/null; then
    mpi() { env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none timeout -s KILL 60 mpirun --oversubscribe --bind-to none --quiet -np 4 ckpt-train -q "${opts[@]}" --per-device-train-batch-size 2 --zero-stage 3 "$@"; }
    t "groups over MPI" mpi --hybrid-shard-size 2 -o "$T/mpi"
    t "the losses of those over Gloo" agree mpi two 4
    t "once more" mpi --hybrid-shard-size 2 -o "$T/mpi2"
    t "the same bits" same_state mpi mpi2
    expect 78 "groups that do not fill MPI's ranks" mpi --hybrid-shard-size 3 -o "$T/no"
fi

# -- the plan ------------------------------------------------------------------------------------
plan() { timeout 60 ckpt-train "${opts[@]}" --per-device-train-batch-size 2 --dry-run -o "$T/none" "$@"; }
memory() { plan "$@" 2>&1 | sed -n 's/.*memory of a rank: //p'; }
same_memory() { [ -n "$1" ] && [ "$1" = "$2" ] || { echo "$1"; echo "$2"; return 1; }; }
for stage in 1 2 3; do
    t "8 ranks in groups of 2 have the memory of 2, stage $stage" same_memory "$(memory --nproc 8 --zero-stage $stage --hybrid-shard-size 2)" "$(memory --nproc 2 --zero-stage $stage)"
done
t "groups of 1 that of 1" same_memory "$(memory --nproc 4 --zero-stage 3 --hybrid-shard-size 1)" "$(memory --nproc 1)"
printf 'n1 slots=2\nn2 slots=2\n' >"$T/hosts"; printf 'n1 slots=2\nn2 slots=4\n' >"$T/uneven"
expect 0 "a plan for hosts" plan --hostfile "$T/hosts" --fsdp hybrid_shard
t "has groups of their slots" says "ZeRO stage 3 in groups of 2"
expect 78 "hosts with different slots" plan -q --hostfile "$T/uneven" --fsdp hybrid_shard
t "are named" says "n1 has 2 ranks, n2 has 4"
of() { plan -q --device-memory-limit 8G --bf16 --zero-stage 3 "$@" 2>&1 >/dev/null; memory --device-memory-limit 8G --bf16 --zero-stage 3 "$@" | sed 's/.* of \([0-9.]*\) MiB/\1/'; }
t "a GPU's memory is less by NCCL's of a further communicator" [ "$(of --nproc 4)/$(of --nproc 4 --hybrid-shard-size 2)/$(of --nproc 4 --hybrid-shard-size 1)" = 6144.0/5120.0/6144.0 ]

# -- what is refused -----------------------------------------------------------------------------
expect 78 "groups that do not fill the ranks" train no 4 --zero-stage 3 --hybrid-shard-size 3
t "with the sizes that do" says "hint: --hybrid-shard-size N sets the ranks of a group: 1, 2 or 4"
expect 78 "groups that shard nothing" train no 4 --hybrid-shard-size 2
t "what they need" says "--hybrid-shard-size needs --zero-stage 1, 2 or 3"
expect 78 "groups beside a name without" train no 4 --fsdp full_shard --hybrid-shard-size 2
expect 78 "groups whose weights are on the host" train no 4 --fsdp hybrid_shard --bf16 --offload-param cpu
expect 64 "DeepSpeed's name" train no 4 --mics-shard-size 2
t "is known" says "--hybrid-shard-size"
t "nothing was written" [ ! -e "$T/no" ]

# A rank that dies ends all, in its group and in the others, by name.
CKPT_TEST_RUN=$mark.dies train dies 4 --zero-stage 3 --hybrid-shard-size 2 --max-steps 100000 >"$T/dies.out" 2>"$T/dies.err" & run=$!
until_seen 20 steps dies
t "a killed rank ends all groups" hit dies KILL 75 'rank 1 on [^ ]*, process [0-9]*: killed by SIGKILL in: '
