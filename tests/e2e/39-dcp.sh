#!/usr/bin/env bash
# Checkpoints as torch.distributed.checkpoint (--checkpoint-format dcp), and of the model alone
# (--save-only-model): what is in them, and what resumes from them.  [E9, A6, C1]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
M=$G/models/bloom-a SAY=-q         # its head is tied
go() {          # OUT OPTION...
    local out=$1; shift
    ckpt-train $SAY --device cpu --model "$M" --train-file "$G/resume/data.jsonl" --per-device-train-batch-size 2 --learning-rate 3e-3 --logging-steps 1 \
        --warmup-steps 1 --no-final-model --max-steps 4 --save-steps 2 -o "$T/$out" "$@"
}
dcp() { go "$@" --checkpoint-format dcp; }
ranks() { local out=$1 n=$2; shift 2; dcp "$out" --nproc "$n" --per-device-train-batch-size $((6 / n)) "$@"; }
# tensors DIR - weights and moments, but not the count of steps, which DeepSpeed has once.
tensors() {
    local but=()
    grep -qs '\.step' "$1/optimizer_0/.metadata" && but=(--exclude '*|step')
    ckpt-merge -q --provenance none --optimizer keep "${but[@]}" -o "$T/$2.safetensors" "$1"
}
# alike A B - two runs' newest checkpoints have the same weights and moments.
alike() { rm -f "$T"/{a,b}.safetensors; tensors "$(newest "$1")" a >/dev/null && tensors "$(newest "$2")" b >/dev/null && cmp "$T/a.safetensors" "$T/b.safetensors"; }

t "a run of two ranks" ranks two 2 --zero-stage 3
C=$T/two/checkpoint-4
t "E9 each rank's part" bash -c "cd $C && ls pytorch_model_fsdp_0/__{0,1}_0.distcp optimizer_0/__{0,1}_0.distcp pytorch_model_fsdp_0/.metadata optimizer_0/.metadata"
t "nothing of DeepSpeed's, no other weights" bash -c "! ls $C | grep -E 'safetensors|latest|global_step|zero_to|optimizer.pt'"
t "the manifest has all" bash -c "[ \$(grep -c '\.metadata\|distcp' $C/MANIFEST.json) = 6 ]"
expect_prints 0 "its format" "format: dcp" ckpt-inspect --verify "$C"
t "the same run in DeepSpeed's shards" go ds --nproc 2 --per-device-train-batch-size 3 --zero-stage 3
t "has the same values" alike two ds
t "as a file with its tied head" bash -c "ckpt-merge -q --tied keep -o '$T/w.safetensors' '$C' && ckpt-inspect '$T/w.safetensors' | grep -q '^lm_head.weight '"

# Bit for bit with as many ranks, near with others, at every stage.
for stage in 0 1 2; do
    t "stage $stage" ranks "s$stage" 2 --zero-stage $stage
    rewind "s$stage" "r$stage"
    t "resumed" ranks "r$stage" 2 --zero-stage $stage --resume-from-checkpoint auto
    t "with the same bits" same_state "s$stage" "r$stage"
done
rewind two r3
t "E9 stage 3 resumed" ranks r3 2 --zero-stage 3 --resume-from-checkpoint auto
t "with the same bits" same_state two r3
rewind_all() { rm -rf "$T/$2"; rewind "$1" "$2"; sed -i '/"step":[34]/d' "$T/$2/metrics.jsonl"; }
for to in "1 0" "3 1" "3 3" "2 0" "1 2"; do
    set -- $to
    rewind_all two e
    t "two ranks' at $1, stage $2" ranks e "$1" --zero-stage "$2" --resume-from-checkpoint auto
    t "with their losses" losses_near e two 1e-5 4
done
rewind two mixed
t "into DeepSpeed's shards" go mixed --nproc 2 --per-device-train-batch-size 3 --zero-stage 3 --resume-from-checkpoint auto
t "with the same values" alike mixed two
rewind ds back
t "and back" ranks back 2 --zero-stage 3 --resume-from-checkpoint auto
t "with the same bits" same_state back two

# Adapters, other optimizers, 16 bits.
lora=(--lora-rank 4 --target-modules all-linear)
both() {        # NAME OPTION... - one goes on from itself, and either from the other
    local name=$1; shift
    rm -rf "$T"/{p,q,r}
    t "$name" ranks p 2 --zero-stage 3 "$@"
    rewind p r
    t "$name: resumed" ranks r 2 --zero-stage 3 "$@" --resume-from-checkpoint auto
    t "$name: with the same bits" same_state p r
    t "$name: in DeepSpeed's shards" go q --nproc 2 --per-device-train-batch-size 3 --zero-stage 3 "$@"
    rm -rf "$T/r"; rewind p r
    t "$name: from the one into the other" go r --nproc 2 --per-device-train-batch-size 3 --zero-stage 3 "$@" --resume-from-checkpoint auto
    t "$name: with the same bits" same_state q r
}
both "an adapter" "${lora[@]}"
t "which PEFT reads" [ -s "$T/p/checkpoint-4/adapter_model.safetensors" ]
t "the shards have the same" bash -c "ckpt-merge -q --no-merge --to peft -o '$T/ad' '$T/p/checkpoint-4' && cmp '$T/ad/adapter_model.safetensors' '$T/p/checkpoint-4/adapter_model.safetensors'"
both "moments of 8 bits" --optim adamw_8bit --bf16
both "SGD" --optim sgd --optim-args momentum=0.9
both "SGD without moments" --optim sgd
both "Lion" --optim lion_32bit --bf16
rm -rf "$T"/{p,r}
t "groups of ranks" dcp p --nproc 4 --per-device-train-batch-size 1 --zero-stage 3 --hybrid-shard-size 2
t "one of them writes" bash -c "ls $T/p/checkpoint-4/optimizer_0 | diff - <(printf '__0_0.distcp\n__1_0.distcp\n')"
rewind p r
t "resumed" dcp r --nproc 4 --per-device-train-batch-size 1 --zero-stage 3 --hybrid-shard-size 2 --resume-from-checkpoint auto
t "with the same bits" same_state p r

# Behind the steps; a full disk; few that are kept.
rm -rf "$T"/{p,r}
t "behind the steps" ranks p 2 --zero-stage 3 --async-save true --save-total-limit 1
t "the same files" same_state p two
t "one is kept" bash -c "ls $T/p | grep -c checkpoint- | grep -qx 1"
lives() { (ulimit -f 40; SAY= ranks full 2 --zero-stage 3 --async-save "$1" --on-save-error continue 2>"$T/.err") && [ "$(grep -c 'is not saved, the run continues: ' "$T/.err")" = 2 ] && ! ls -A "$T/full" | grep checkpoint; }
for how in true false; do rm -rf "$T/full"; t "a full disk, --async-save $how" lives $how; done
t "a file of torch beside it" ranks sd 2 --zero-stage 3 --state-dict-file 'w-{step}.pt' --save-steps 4
t "with the same values" bash -c "ckpt-merge -q --provenance none --tied keep -o '$T/sd.safetensors' '$T/sd/w-4.pt' && ckpt-inspect -q --compare '$T/sd.safetensors' '$T/w.safetensors'"

# What is lost or changed is noticed.
bad() { rm -rf "$T/bad"; rewind two bad; "$@"; expect_says 65 "$name" "$says" ranks bad 2 --zero-stage 3 --resume-from-checkpoint "$T/bad/checkpoint-2"; }
O=$T/bad/checkpoint-2/optimizer_0
name="a flipped byte" says="sha-256" bad bash -c "printf x | dd of=$O/__1_0.distcp bs=1 seek=900 conv=notrunc status=none"
name="an index that is missing" says="optimizer_0/.metadata: absent" bad rm "$O/.metadata"
name="a rank that is missing" says="optimizer_0/__1_0.distcp: absent" bad rm "$O/__1_0.distcp"
expect 64 "a format that is none" dcp no --checkpoint-format zip

# The model alone.
for how in "--nproc 1" "--nproc 2 --per-device-train-batch-size 1 --zero-stage 3" "${lora[*]}"; do
    rm -rf "$T/only"
    t "the model alone, $how" go only --save-only-model $how
    t "no states of the run" bash -c "! ls $T/only/checkpoint-2 | grep -E 'optimizer|scheduler|rng_state|scaler|latest|global_step' && ls $T/only/checkpoint-2/{model,adapter_model}.safetensors 2>/dev/null | grep -q ."
    rm -r "$T/only/checkpoint-4"
    SAY= expect_says 0 "goes on with a fresh optimizer" "it has no optimizer state: the optimizer starts anew at step 2" go only --save-only-model $how --resume-from-checkpoint auto
    t "and its rate" bash -c "grep -o '\"learning_rate\":[0-9.e-]*' '$T/only/metrics.jsonl' | tail -n 2 | diff - <(grep -o '\"learning_rate\":[0-9.e-]*' '$T/ds/metrics.jsonl' | tail -n 2)"
done
rm -r "$T/only"; t "whole ones" go only
rm "$T/only/checkpoint-4/optimizer.pt"
expect_says 65 "an optimizer that was lost is no such checkpoint" "optimizer.pt: absent" go only --resume-from-checkpoint "$T/only/checkpoint-4" --max-steps 5
expect_says 78 "the model alone as shards" "leaves out what --checkpoint-format dcp writes" dcp no --save-only-model
