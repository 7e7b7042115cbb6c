# How AdamW keeps its moments: close to float32's, files as bitsandbytes and torch have them, resumed bit for bit, also into another kind.
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 300 >/dev/null
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {
    local out=$1; shift
    ckpt-train ${SAY--q} --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 1e-3 --max-steps 6 \
        --logging-steps 1 --save-steps 3 --per-device-train-batch-size 4 -o "$T/$out" "$@"
}
within() { losses_near "$@" 6 && ! same_losses "$1" "$2" > /dev/null; }
resume() { rewind "$1" "$1-again" && train "$1-again" --optim "$1" --resume-from-checkpoint latest && same_state "$1" "$1-again"; }
t "float32" train adamw_torch
for kind in adamw_8bit adamw_anyprecision; do
    t "$kind" train $kind --optim $kind
    t "$kind: losses are float32's to 1 %, and not the same" within adamw_torch $kind 1e-2
    t "$kind: 3 steps, stop, 3 more = 6 steps, bit for bit" resume $kind
    t "$kind: the arguments say so" bash -c "ckpt-inspect --args $T/$kind/checkpoint-6 | grep -q '$kind'"
done
t "paged_adamw is float32's, bit for bit" train paged --optim paged_adamw
t "paged_adamw's optimizer.pt is adamw_torch's" cmp "$T/paged/checkpoint-6/optimizer.pt" "$T/adamw_torch/checkpoint-6/optimizer.pt"
t "adamw_bnb_8bit is adamw_8bit" train bnb --optim adamw_bnb_8bit
t "adamw_bnb_8bit's state is adamw_8bit's" same_state bnb adamw_8bit
size() { stat -c %s "$T/$1/checkpoint-6/optimizer.pt"; }
t "codes take less room than bfloat16, that less than float32" test "$(size adamw_8bit)" -lt "$(size adamw_anyprecision)" -a "$(size adamw_anyprecision)" -lt "$(size adamw_torch)"
t "codes lie as bitsandbytes has them" bash -c "ckpt-inspect $T/adamw_8bit/checkpoint-6/optimizer.pt | grep -q 'quant_state__.state1.*U8'"
t "the embedding's stay float32" bash -c "ckpt-inspect $T/adamw_8bit/checkpoint-6/optimizer.pt | grep -q 'state.0.__bnb_optimizer_quant_state__.state2 *F32 *.4096, 192'"
t "inspect tells what they stand for" bash -c "ckpt-inspect --optimizer $T/adamw_8bit/checkpoint-6/optimizer.pt | grep -qE \"^state.1..*[0-9.e-]+ +[0-9.e-]+\""
t "bfloat16 moments are BF16" bash -c "ckpt-inspect $T/adamw_anyprecision/checkpoint-6/optimizer.pt | grep -q 'exp_avg_sq.*BF16'"
# From one kind to another: the run goes on, and what changes is told.
onward() { SAY= train "$1" --optim "$2" --max-steps 4 --resume-from-checkpoint "$T/$3/checkpoint-3" 2>"$T/said"; }
t "from float32 to codes" onward to-8 adamw_8bit adamw_torch
t "the change from float32 to codes is logged" grep -q "moments were stored as float32, this run keeps them as 8-bit codes" "$T/said"
t "from codes to float32" onward to-32 adamw_torch adamw_8bit
t "the change from codes to float32 is logged" grep -q "moments were stored as 8-bit codes, this run keeps them as float32" "$T/said"
t "from codes to bfloat16" onward to-16 adamw_anyprecision adamw_8bit
t "from bfloat16 to codes" onward from-16 adamw_8bit adamw_anyprecision
t "float32 in shards" train shards --nproc 2 --zero-stage 3
t "from those to codes" onward shards-8 adamw_8bit shards
t "the change of sharded moments to codes is logged" grep -q "moments were stored as float32, this run keeps them as 8-bit codes" "$T/said"
expect_says 78 "bf16 moments in shards" "--optim adamw_anyprecision needs --zero-stage 0" train x --optim adamw_anyprecision --bf16 --zero-stage 3
t "two ranks hold the same codes" train two --optim adamw_8bit --nproc 2 --per-device-train-batch-size 2
t "as one, nearly" within adamw_8bit two 1e-4
expect 64 "an optimizer that is none" train x --optim adam
