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
resume_as() { local run=$1 kind=$2; shift 2; rewind "$run" "$run-again" && train "$run-again" --optim "$kind" "$@" --resume-from-checkpoint latest && same_state "$run" "$run-again"; }
onward16() { local to=$1 from=$2; shift 2; train "$to" --optim adamw_anyprecision "$@" --max-steps 6 --resume-from-checkpoint "$T/$from/checkpoint-3" && paste <(losses adamw_anyprecision | tail -n 3) <(losses "$to" | tail -n 3) | awk '{ if ($1 - $2 > 1e-4 * $1 || $2 - $1 > 1e-4 * $1) bad = 1 } END { exit bad || NR != 3 }'; }
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
# A model whose states are all too small for codes: bitsandbytes leaves them float32.
mkdir "$T/small"; echo '{"model_type": "bloom", "vocab_size": 4096, "hidden_size": 16, "n_layer": 1, "n_head": 2}' > "$T/small/config.json"
t "a small model" ckpt-train -q --init "$T/small" --tokenizer tools/recipes/demo/tokenizer --init-only -o "$T/small-base"
no_codes() { train no-codes --optim adamw_8bit --model "$T/small-base" && rewind no-codes again && train again --optim adamw_8bit --model "$T/small-base" --resume-from-checkpoint latest && same_state no-codes again; }
t "without codes: 3 steps, stop, 3 more = 6 steps, bit for bit" no_codes
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
t "bfloat16 in shards" train shards-16 --optim adamw_anyprecision --zero-stage 3
t "gives the bits that it gives without" same_losses adamw_anyprecision shards-16
t "shards hold them as float32, to the same bits when they are read" resume_as shards-16 adamw_anyprecision --zero-stage 3
t "from shards to optimizer.pt" onward16 whole-16 shards-16
t "and back" onward16 parts-16 adamw_anyprecision --zero-stage 2 --nproc 2 --per-device-train-batch-size 2
t "two ranks hold the same codes" train two --optim adamw_8bit --nproc 2 --per-device-train-batch-size 2
t "as one, nearly" within adamw_8bit two 1e-4
# Rules beside AdamW: torch's SGD, Lion; groups of parameters; schedules; losses.  Files as torch and bitsandbytes have them.
again() { rewind "$1" "$1-again" && train "$1-again" "${@:2}" --resume-from-checkpoint latest && same_state "$1" "$1-again"; }
near_end() { paste <(losses "$1" | tail -n 3) <(losses "$2" | tail -n 3) | awk '
    { d = ($1 - $2) / $1; if (d > 1e-6 || d < -1e-6) bad = 1 } END { exit bad || NR != 3 }'; }
momentum="--optim sgd --optim-args momentum=0.9,nesterov=True"
for kind in "sgd --optim sgd" "momentum $momentum" "lion --optim lion_32bit" "lion-8 --optim lion_8bit" \
    "groups --weight-decay 0.1 --lr-for word_embeddings=1e-5 --lr-for mlp=2e-3 --weight-decay-for mlp=0.5" \
    "wsd --lr-scheduler-type warmup_stable_decay --lr-scheduler-kwargs num_decay_steps=3,decay_type=1-sqrt" \
    "cycle --lr-scheduler-type OneCycle --lr-scheduler-kwargs cycle_min_lr=1e-4,cycle_first_step_size=3" \
    "losses --label-smoothing-factor 0.1 --z-loss 1e-4 --neftune-noise-alpha 5"; do
    set -- $kind
    t "$1" train "$@"
    t "$1: 3 steps, stop, 3 more = 6 steps, bit for bit" again "$@"
    t "$1: another run than AdamW's" bash -c "! cmp -s $T/$1/checkpoint-6/model.safetensors $T/adamw_torch/checkpoint-6/model.safetensors"
done
t "SGD's state is torch's" bash -c "ckpt-inspect $T/momentum/checkpoint-6/optimizer.pt | grep -q 'state.0.momentum_buffer *F32 *.4096, 192'"
t "Lion has one moment" bash -c "ckpt-inspect $T/lion-8/checkpoint-6/optimizer.pt | grep -q 'state1.*U8' && ! ckpt-inspect $T/lion-8/checkpoint-6/optimizer.pt | grep -q state2"
t "groups are in the file, each with its numbers" bash -c "ckpt-inspect --optimizer --json $T/groups/checkpoint-6/optimizer.pt | grep -q '\"group\": 4.*\"weight_decay\": 0.5'"
t "the schedule's summary has the least and the largest rate" bash -c "ckpt-inspect $T/groups/checkpoint-3 | grep -qE '^scheduler.pt .* step 3, lr [0-9.e-]+ to [0-9.e-]+$'"
t "or the one of all groups" bash -c "ckpt-inspect $T/sgd/checkpoint-3 | grep -qE '^scheduler.pt .* step 3, lr [0-9.e-]+$'"
expect_says 65 "other groups than the run had" "groups with different base learning rates, this run has" train x --weight-decay 0.1 --resume-from-checkpoint "$T/groups/checkpoint-3"
for kind in "sgd-3 $momentum" "lion-3 --optim lion_32bit" "groups-3 --lr-for mlp=2e-3" \
    "plain-1 --optim sgd" "sgd-2 $momentum" "lion-1 --optim lion_32bit" "lion8-2 --optim lion_8bit" "groups-2 --lr-for mlp=2e-3 --weight-decay-for mlp=0.5"; do
    set -- $kind
    t "$1 in shards of two ranks" train "$@" --nproc 2 --zero-stage "${1##*-}" --per-device-train-batch-size 2
    t "$1: goes on bit for bit" again "$@" --nproc 2 --zero-stage "${1##*-}" --per-device-train-batch-size 2
    rewind "$1" "$1-one"
    t "$1: goes on with one rank" train "$1-one" "${@:2}" --resume-from-checkpoint latest
    t "$1: to the same losses, nearly" near_end "$1" "$1-one"
done
t "stage 2's shards of SGD have torch's name of its moment" bash -c "ckpt-inspect --optimizer $T/sgd-2/checkpoint-6 | grep -q 'momentum_buffer'"
t "stage 1's of Lion have one moment" bash -c "! ckpt-inspect --optimizer $T/lion-1/checkpoint-6 | grep -q exp_avg_sq"
t "stage 1's of SGD without a momentum have none" bash -c "! ckpt-inspect --optimizer $T/plain-1/checkpoint-6 | grep -qE 'exp_avg|momentum'"
expect_says 65 "AdamW's shards are not Lion's" "--optim lion_32bit cannot go on from them" train x --optim lion_32bit --resume-from-checkpoint "$T/shards/checkpoint-3"
expect_says 65 "nor its file SGD's" "has AdamW's states: --optim sgd cannot go on from them" train x $momentum --resume-from-checkpoint "$T/adamw_torch/checkpoint-3"
expect_says 65 "not even without a momentum" "has AdamW's states: --optim sgd cannot go on from them" train x --optim sgd --resume-from-checkpoint "$T/adamw_torch/checkpoint-3"
expect_says 65 "nor Lion's AdamW's" "has Lion's states: --optim adamw_torch cannot go on from them" train x --resume-from-checkpoint "$T/lion-8/checkpoint-3"
expect_says 65 "nor AdamW's Adafactor's" "has AdamW's states: --optim adafactor cannot go on" train x --optim adafactor --resume-from-checkpoint "$T/adamw_torch/checkpoint-3"
t "noise and smoothing on two ranks" train losses-2 --label-smoothing-factor 0.1 --z-loss 1e-4 --neftune-noise-alpha 5 --nproc 2 --per-device-train-batch-size 2
t "the same as on one, nearly" within losses losses-2 1e-4
plateau() { train plateau --eval-file "$T/train.jsonl" --max-eval-samples 8 --eval-steps 1 --lr-scheduler-type reduce_lr_on_plateau \
    --lr-scheduler-kwargs mode=max,patience=0,factor=0.5 "$@"; }
t "a rate that evaluations reduce" plateau
t "the rate has fallen" bash -c "tail -n 3 $T/plateau/metrics.jsonl | grep -q '\"learning_rate\":6.25e-05'"
t "LoRA+" train plus --lora-rank 4 --loraplus-lr-ratio 16
expect_says 78 "LoRA+ without an adapter" "--loraplus-lr-ratio needs --lora-rank N" train x --loraplus-lr-ratio 16
expect_says 78 "a key that is none" "momentumm is no key of sgd" train x --optim sgd --optim-args momentumm=1
expect_says 78 "a pattern that nothing has" "no trained parameter has such a name" train x --lr-for nosuch=1
skipping() { SAY= train skipped --learning-rate 1000 --optim sgd --z-loss 1000 --max-grad-norm 0 --max-skipped-steps 2 2>"$T/said"; }
expect 1 "steps that are not finite are skipped, to a limit" skipping
t "two were" bash -c "grep -c 'skipped, [12] in a row of at most 2' $T/said | grep -qx 2"
t "the third ended the run" grep -q "stopped before the update, 3 steps in a row" "$T/said"
expect 64 "an optimizer that is none" train x --optim adam
