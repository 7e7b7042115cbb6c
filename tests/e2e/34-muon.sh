# Muon: another run than AdamW's, bit for bit on resume, the same on any ranks and stages, an adapter, experts, files that torch takes; refusals.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/optim.sh"
COMMON="--weight-decay 0.01 --optim muon"
M="$T/one/checkpoint-4/optimizer.pt"
t "one rank" train one 1
t "hidden matrices have a momentum alone" bash -c "ckpt-inspect $M | grep -q 'state.0.momentum_buffer *F32 *.[0-9]*, *[0-9]*.' && ! ckpt-inspect $M | grep -qE 'state.0.(step|exp_avg)'"
t "all else has AdamW's moments" bash -c "ckpt-inspect $M | grep -q 'exp_avg_sq *F32 *.4096' && ckpt-inspect $M | grep -q 'state.[0-9]*.step'"
resumes one ""
other="--optim-args momentum=0.8,nesterov=False,ns_steps=4,ns_coefficients=3:-3.2:1.2,adjust_lr_fn=match_rms_adamw,adam_lr=3e-4"
t "with other numbers" train other 1 $other
resumes other " with them" $other
for how in "0" "1" "2 $other" "3"; do
    set -- $how
    of=one; [ $# = 1 ] || of=other
    rm -rf "$T/some"
    t "two ranks, stage $1" train some 2 --zero-stage "$@"
    t "stage $1: the losses of one rank to 1e-6" near some $of 1e-6
    back some again
    t "stage $1: one rank goes on" train again 1 "${@:2}" --resume-from-checkpoint latest
    t "stage $1: to the same losses" near again $of 1e-6
    back $of again
    t "stage $1: from one rank" train again 2 --zero-stage "$@" --resume-from-checkpoint latest
    t "stage $1: likewise" near again $of 1e-6
done
back some again
t "two go on" train again 2 --zero-stage 3 --resume-from-checkpoint latest
t "two: to the same bits" same_state some again
back some again
t "three go on at stage 2" train again 3 --zero-stage 2 --per-device-train-batch-size 1 --gradient-accumulation-steps 1 --ignore-data-skip --resume-from-checkpoint latest
t "its shards merge" ckpt-merge -q "$T/some/checkpoint-4" -o "$T/merged"
t "and have both optimizers' tensors" bash -c "ckpt-inspect --optimizer $T/some/checkpoint-4 >$T/list; grep -q 'momentum_buffer' $T/list && grep -q 'exp_avg_sq' $T/list"
t "bfloat16, sharded" train half 2 --bf16 --zero-stage 2
back half again
t "bfloat16: goes on" train again 2 --bf16 --zero-stage 2 --resume-from-checkpoint latest
t "bfloat16: to the same bits" same_state half again
t "a distributed checkpoint" train dcp 2 --zero-stage 3 --checkpoint-format dcp
back dcp again
t "it goes on from it" train again 2 --zero-stage 3 --checkpoint-format dcp --resume-from-checkpoint latest
t "to the same bits from it" same_state dcp again
back dcp again
t "one rank goes on from it" train again 1 --resume-from-checkpoint latest
t "to the same losses from it" near again one 1e-6
t "an adapter, sharded" train lora 2 --zero-stage 3 --lora-rank 4 --target-modules all-linear
back lora again
t "an adapter goes on with one rank" train again 1 --lora-rank 4 --target-modules all-linear --resume-from-checkpoint latest
t "an adapter: to the same losses" near again lora 1e-6
cat >"$T/experts.json" <<'END'
{"model_type": "mixtral", "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 3, "num_key_value_heads": 1,
 "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "hidden_act": "silu", "max_position_embeddings": 64,
 "rms_norm_eps": 1e-05, "initializer_range": 0.1, "vocab_size": 4096, "tie_word_embeddings": false}
END
t "a model with experts" ckpt-train -q --init "$T/experts.json" --tokenizer $R/tokenizer --init-only -o "$T/experts"
BASE=$T/experts t "experts, sharded" train moe 2 --zero-stage 3
BASE=$T/experts t "experts: one rank" train moe-one 1
t "experts: to the same losses" near moe moe-one 1e-6
back moe-one again
BASE=$T/experts t "experts: two ranks go on" train again 2 --zero-stage 2 --resume-from-checkpoint latest
t "experts: likewise" near again moe-one 1e-6
back moe-one again
BASE=$T/experts t "experts: one goes on" train again 1 --resume-from-checkpoint latest
t "experts: to the same bits" same_state again moe-one
t "replicas of shards" train hybrid 4 --zero-stage 3 --hybrid-shard-size 2
t "replicas: the same losses" near hybrid one 1e-6
t "a rate of its own" train rates 1 --max-steps 1 --lr-for mlp=1e-4 --optim-args '{"ns_coefficients": [3.4445, -4.775, 2.0315], "adam_lr": 1e-4}'
expect_says 78 "a key it has not" "dampening is no key of muon" train x 1 --optim-args dampening=0.9
expect_says 78 "another adjustment" "adjust_lr_fn=x: one of original match_rms_adamw spectral_unclamped is wanted" train x 1 --optim-args adjust_lr_fn=x
expect_says 78 "two coefficients" "three numbers" train x 1 --optim-args ns_coefficients=1:2
expect_says 78 "states on the host" "are not for it" train x 1 --offload-optimizer cpu
expect 65 "AdamW does not go on from it" train x 1 --optim adamw_torch --resume-from-checkpoint "$T/one/checkpoint-2"
t "AdamW" train adamw 2 --optim adamw_torch --zero-stage 2
far() { ! near "$@" 1e-3 >/dev/null; }
t "it is another run" far one adamw
expect 65 "nor it from AdamW" train x 1 --resume-from-checkpoint "$T/adamw/checkpoint-2"
back some three
t "its shards are written for three ranks" ckpt-merge -q --world 3 --to deepspeed "$T/three/checkpoint-2" -o "$T/three-2"
t "and for two of stage 2" ckpt-merge -q --world 2 --stage 2 --to deepspeed "$T/three/checkpoint-2" -o "$T/two-2"
for form in three-2 two-2; do
    t "$form: one goes on" train again-$form 1 --resume-from-checkpoint "$T/$form"
    t "$form: to the same losses" near again-$form one 1e-6
done
expect_says 65 "not as a universal checkpoint" "(Muon)" ckpt-merge -q --to universal "$T/three/checkpoint-2" -o "$T/universal"
t "--dry-run plans it" bash -c "ckpt-train --model $T/base --train-file $T/train.jsonl --max-steps 1 --optim muon --dry-run -o $T/dry 2>&1 | grep -q 'optimizer [0-9.]* MiB\|optimizer 0\.'"
shown() { ckpt-train --print-config "$@" | sed -n 's/^\(optim\|optim_args\|learning_rate\|bf16\|master_weights\): \(.*[^ ]\)  # [^d].*/\1=\2/p' | tr '\n' ' '; }
is() { [ "$1" = "$(shown "${@:2}")" ] || { shown "${@:2}"; return 1; }; }
echo '{"optimizer": {"type": "Muon", "params": {"muon_lr": 0.02, "adam_lr": 3e-4, "momentum": 0.9}}}' >"$T/ds.json"
t "DeepSpeed's Muon" is 'learning_rate=0.02 optim=muon optim_args="momentum=0.9,adam_lr=3e-4" ' --deepspeed "$T/ds.json"
sed -i 's/Muon/AdamW/' "$T/ds.json"
expect_says 78 "its numbers of AdamW" "for the optimizer Muon" ckpt-train --deepspeed "$T/ds.json"
printf 'stage: sft\nfinetuning_type: full\nuse_muon: true\n' >"$T/lf.yaml"
t "LLaMA-Factory's use_muon" is 'optim=muon optim_args="adjust_lr_fn=match_rms_adamw" ' --config "$T/lf.yaml"
sed -i 's/use_muon: true/pure_bf16: true/' "$T/lf.yaml"
t "and its pure_bf16" is 'bf16=true master_weights=false ' --config "$T/lf.yaml"
