# States on the host: the same bits as on the device, resumed across, refused where they cannot be.
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 200 >/dev/null
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {
    local out=$1; shift
    ckpt-train -q --device cpu --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 1e-3 --max-steps 4 \
        --logging-steps 1 --save-steps 2 --weight-decay 0.1 --per-device-train-batch-size 4 -o "$T/$out" "$@"
}
again() {       # FROM OUT OPTION...: the last two steps once more
    local from=$1 out=$2; shift 2
    rewind "$from" "$out" && train "$out" "$@" --resume-from-checkpoint latest
}
t "bf16, states on the device" train near --bf16
t "bf16, states on the host" train far --bf16 --offload-optimizer cpu
t "states on the host give the same bits" same_state near far
t "a run moves its states from host to device" again far back --bf16
t "the moved run gives the same bits" same_state near back
t "a run moves its states from device to host" again near forth --bf16 --offload-optimizer cpu
t "the run moved back gives the same bits" same_state near forth
t "float32" train wide
t "its moments on the host" train widefar --offload-optimizer cpu
t "float32 moments on the host give the same bits" same_state wide widefar
t "shards of one rank" train shard --bf16 --zero-stage 3
t "from states on the host" train shardfar --bf16 --zero-stage 3 --offload-optimizer cpu
t "shards with states on the host give the same bits" same_state shard shardfar
t "an adapter" train lora --bf16 --lora-rank 4
t "its states on the host" train lorafar --bf16 --lora-rank 4 --offload-optimizer cpu
t "an adapter's states on the host give the same bits" same_state lora lorafar
t "weights and gradients on the host too" train all --bf16 --offload-param cpu --gradient-accumulation-steps 2
t "on the device" train none --bf16 --gradient-accumulation-steps 2
t "weights and gradients on the host give the same bits" same_state none all
t "recomputed blocks, everything on the host" train allfull --bf16 --offload-param cpu --gradient-checkpointing --eval-file "$T/eval.jsonl" --eval-steps 2
t "recomputed blocks give the same bits" same_state near allfull
t "an adapter" train loraall --bf16 --lora-rank 4 --offload-param cpu
t "an adapter with everything on the host gives the same bits" same_state lora loraall
t "from the host to the device" again all allback --bf16 --gradient-accumulation-steps 2
t "bit for bit" same_state none allback
t "8 bits, weights on the host" train coded --bf16 --optim adamw_8bit --offload-param cpu
t "and on the device" train coded2 --bf16 --optim adamw_8bit
t "8-bit moments give the same bits on host and device" same_state coded coded2
expect 78 "in float32" train x --offload-param cpu
expect 64 "somewhere else" train x --offload-optimizer nvme
expect_says 78 "two ranks without shards" "--offload-param cpu of 2 ranks needs --zero-stage 1, 2 or 3" train x --bf16 --nproc 2 --offload-param cpu
expect_says 78 "weights in two places" "--reshard-after-forward false" train x --bf16 --zero-stage 3 --offload-param cpu --reshard-after-forward false
plan() { ckpt-train --dry-run --device cpu --bf16 --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 -o "$T/x" "$@"; }
t "a plan for a GPU that is not there" bash -c "$(declare -f plan); T=$T; plan --device-memory-limit 2G 2>&1 | grep -q 'that is not there.*BF16'"
t "of memory enough" bash -c "$(declare -f plan); T=$T; plan --device-memory-limit 2G 2>&1 | grep -q 'of 1024.0 MiB'"
expect 71 "of too little" plan --device-memory-limit 1025M --per-device-train-batch-size 64
says "GiB are needed (weights" && echo "ok says what is needed" || echo "not ok says what is needed"
t "a plan tells what lies where" bash -c "ckpt-train --dry-run --device cpu --bf16 --offload-optimizer cpu --model $T/base --train-file $T/train.jsonl -o $T/x 2>&1 | grep -q 'on the host: optimizer'"
