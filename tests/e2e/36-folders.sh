# A run's folder: damage found before it is trained on, one writer, nothing overwritten, nothing lost.  A4 A5 A7 A13
. "$(dirname "$0")/lib.sh"
M=$G/lora/bloom-qkv SAY=-q
train() {       # train OUT MORE...: ten steps, a checkpoint each five
    local out=$1; shift
    ckpt-train $SAY --model "$M/base" --train-file "$M/rows.jsonl" --per-device-train-batch-size 2 --learning-rate 1e-3 \
        --max-steps 10 --save-steps 5 --logging-steps 1 -o "$T/$out" "$@"
}
two() { local out=$1; shift; train "$out" --nproc 2 --zero-stage 3 --per-device-train-batch-size 1 "$@"; }
# flip FILE [AT]: another bit in the middle of a file.
flip() {
    local at=${2:-$(($(stat -c %s "$1") / 2))} was
    was=$(od -An -tu1 -j "$at" -N 1 "$1")
    printf "\\x$(printf %x $((was ^ 1)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}
state() { find "$T/$1/checkpoint-10" -type f ! -name MANIFEST.json ! -name training_args.bin ! -name trainer_state.json -printf '%P\n' | sort | (cd "$T/$1/checkpoint-10" && xargs sha256sum); }
same() { diff <(state "$1") <(state "$2"); }
warnings() { [ "$(grep -c 'is passed over' "$T/.err")" = "$1" ]; }

t "ten steps" train a
t "the same on two ranks" two z

# Damage: bits as well as sizes, in weights, optimizer, state and shards; the run ends as if there had been none.
damage() {      # damage NAME FROM FILE how...
    local name=$1 from=$2 file=$3; shift 3
    rm -rf "$T/d"; cp -r "$T/$from" "$T/d"; "$@" "$T/d/$file"
    SAY= expect 0 "$name: passed over" "${run[@]}" d --resume-from-checkpoint latest
    t "with one warning" warnings 1
    t "and made anew, the same bits" same "$from" d
    t "which proves" ckpt-inspect --verify "$T/d/checkpoint-10"
    t "so that it can be gone on from" "${run[@]}" d --resume-from-checkpoint latest
}
run=(train)
damage "a bit of the weights" a checkpoint-10/model.safetensors flip
damage "a bit of the optimizer" a checkpoint-10/optimizer.pt flip
damage "a cut optimizer" a checkpoint-10/optimizer.pt truncate -s 1000
damage "a bit of the state" a checkpoint-10/trainer_state.json flip
damage "a manifest cut short" a checkpoint-10/MANIFEST.json truncate -s 300
damage "no weights" a checkpoint-10/model.safetensors rm
run=(two)
damage "a bit of a shard" z checkpoint-10/global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt flip
damage "a cut shard" z checkpoint-10/global_step10/zero_pp_rank_0_mp_rank_00_model_states.pt truncate -s 5000

# A checkpoint that is named is refused, and the folder stays as it was.
refuse() { sums "$T/d" > "$T/was"; expect 65 "$@"; sums "$T/d" | grep -v ' ./.lock$' | diff - <(grep -v ' ./.lock$' "$T/was") > "$T/.t" && echo "ok nothing was written" || fail "nothing was written" "$T/.t"; }
rm -r "$T/d"; cp -r "$T/a" "$T/d"; flip "$T/d/checkpoint-10/model.safetensors"
refuse "a named checkpoint with a wrong bit" train d --max-steps 20 --resume-from-checkpoint "$T/d/checkpoint-10"
t "by its file" says "checkpoint-10: model.safetensors: sha-256 is"
flip "$T/d/checkpoint-5/optimizer.pt"
refuse "nothing whole is left" train d --resume-from-checkpoint latest
t "which is said" says "none of its 2 checkpoints is whole"
rm -r "$T/d"; cp -r "$T/z" "$T/d"; flip "$T/d/checkpoint-10/global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt"
refuse "a named one of two ranks" two d --max-steps 20 --resume-from-checkpoint "$T/d/checkpoint-10"
t "by its shard" says "zero_pp_rank_0_mp_rank_00_optim_states.pt: sha-256 is"

# One writer.  The first saves each step and goes on until it is told otherwise.
long=(ckpt-train -q --model "$M/base" --train-file "$M/rows.jsonl" --per-device-train-batch-size 2 --max-steps 1000000 --save-steps 2
    --save-total-limit 2 --logging-steps 1 --lr-scheduler-type constant -o "$T/l")
wait_for() { local i; for i in $(seq 200); do compgen -G "$1" >/dev/null && return; sleep 0.05; done; return 1; }
newest() { ls "$T/l" | sed -n 's/^checkpoint-//p' | sort -n | tail -1; }
"${long[@]}" >"$T/l.out" 2>&1 & first=$!
t "one writer" wait_for "$T/l/checkpoint-[1-9]*"
expect 73 "a second one" "${long[@]}" --resume-from-checkpoint latest
t "is told who is first" says "process $first on "
expect 73 "of two ranks" "${long[@]}" --resume-from-checkpoint latest --nproc 2
t "is told too" says "process $first on "
kill -9 $first; wait $first 2>/dev/null
expect 0 "after a crash the folder is free" "${long[@]}" --max-steps $(($(newest) + 3)) --resume-from-checkpoint latest
lock_is_nobodys() {
    [ -e "$T/a/.lock" ] && ! ckpt-inspect --json "$T/a" | grep -q '\.lock' && ! ckpt-inspect --scan "$T/a" | grep -q '\.lock' &&
        ckpt-merge -q -o "$T/m" "$T/a" && [ ! -e "$T/m/.lock" ] && mkdir "$T/p" && ckpt-push -q "$T/p" "$T/a" && [ ! -e "$T/p/.lock" ]
}
t "the lock is part of nothing" lock_is_nobodys
