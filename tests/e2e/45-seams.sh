# The seams between the tools: adapters in shards, lists with a gap in them, signals to a pipeline,
# what goes along with the weights, and outputs that nobody could load.
. "$(dirname "$0")/lib.sh"
ADS=$G/hf-trainer/lora_ds3_w2/run/checkpoint-4      # HF Trainer, PEFT, ZeRO-3 on two ranks
BASE=$G/hf-trainer/plain_w1/run/checkpoint-4        # a model of those shapes, its head tied
OPT=$G/lora/opt-bias-all/base
cd "$T" || exit 1
merge() { ckpt-merge -q --provenance none "$@"; }
mkdir no
loss() { score rows.jsonl "$@"; }
printf '{"input_ids": [%s], "labels": [%s]}\n' '5, 7, 9, 3, 2, 11' '5, 7, 9, 3, 2, 11' '15, 17, 19, 13, 12' '15, 17, 19, 13, 12' > rows.jsonl

# -- an adapter in shards is an adapter ----------------------------------------------------------
# One that HF Trainer left: an adapter in PEFT's own file, and merged as that one is.
mkdir gathered; cp "$ADS/adapter_config.json" "$G/hf-trainer/lora_ds3_w2/saved/adapter_model.safetensors" gathered
expect_prints 0 "shards of an adapter are inspected" "format: peft" ckpt-inspect "$ADS"
expect 0 "written as one" merge --to peft --verify -o shards-peft "$ADS"
t "it is in PEFT's files" same_files gathered shards-peft
expect 0 "so it is with --no-merge alone" merge --no-merge -o shards-asis "$ADS"
t "the same files" same_files gathered shards-asis
expect 0 "folded into its base" merge --verify --base "$BASE" -o shards-model "$ADS"
expect 0 "so is the gathered one" merge --base "$BASE" -o gathered-model gathered
t "the same bytes" same_files gathered-model shards-model
t "which differ from the base's" bash -c "! ckpt-inspect --diff $BASE shards-model >/dev/null"
expect 0 "folded into a base that is the input" merge --adapter "$ADS" -o shards-adapter "$BASE"
t "the same again" same_files gathered-model shards-adapter
expect_says 64 "no base, no model" "hint: --base PATH names it; --no-merge writes the adapter as it is" merge -o no/w "$ADS"
expect 0 "cut for three ranks" ckpt-merge -q --world 3 -o three "$ADS"
expect 0 "and of stage 2 for one" ckpt-merge -q --world 1 --stage 2 -o one three
for d in three one; do
    rm -f "$d"/adapter_model.safetensors            # only the shards are left
    expect 0 "$d ranks' adapter" merge --to peft -o $d-peft $d
    t "$d: the same files" same_files gathered $d-peft
done
cp -r "$ADS" thin; chmod -R u+w thin
printf '\163\0\0\0\0\0\0\0{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' > thin/adapter_model.safetensors
t "a file of weights that were not gathered" merge --to peft -o thin-peft thin
t "is not what counts" same_files gathered thin-peft
# The base as the config names it: from here, or beside the checkpoint of the run that was named.
name_base() { sed "s|\"base_model_name_or_path\": null|\"base_model_name_or_path\": \"$1\"|" "$ADS/adapter_config.json" > "$2/adapter_config.json"; }
mkdir -p lora-run/checkpoint-4; cp -r "$ADS"/. lora-run/checkpoint-4; chmod -R u+w lora-run; cp -r "$BASE" lora-run/base
name_base ../base lora-run/checkpoint-4
t "a base beside the newest checkpoint of a run" merge -o found lora-run
t "is found" same_files gathered-model found
name_base lora-run/base lora-run/checkpoint-4
t "a base named from here" merge -o found2 lora-run/checkpoint-4
t "is found too" same_files gathered-model found2
name_base Qwen/Qwen3-8B lora-run/checkpoint-4
expect_says 64 "a base of the Hub's" "--base hf://Qwen/Qwen3-8B fetches it" merge -o no/w lora-run
sed -i 's/"peft_type": "LORA"/"peft_type": "VERA"/' lora-run/checkpoint-4/adapter_config.json
expect_says 65 "shards of another kind of adapter" "peft_type VERA" merge --to peft -o no/w lora-run

# What nobody could load: refused, or told.
cp -r "$ADS" bare; chmod -R u+w bare; rm bare/adapter_*
expect_says 65 "an adapter's tensors as a model" "lora_A.default.weight belongs to an adapter" ckpt-merge -o no/w bare
t "with a way to have them" says "--to safetensors -o FILE.safetensors"
cp "$BASE/config.json" bare
expect 65 "a config.json makes them no model" ckpt-merge -o no/w bare
expect 65 "asked for plainly, too" ckpt-merge --no-merge --to hf -o no/w "$ADS"
expect 0 "as tensors they are written" ckpt-merge -q -o raw.safetensors bare
t "as they are" bash -c "ckpt-inspect raw.safetensors | grep -q 'lora_A.default.weight'"
expect 0 "a file of them becomes a directory" ckpt-merge --to safetensors -o raw raw.safetensors
t "with a warning" says "warning: raw.safetensors: base_model.model.model.layers.0.mlp.down_proj.lora_A.default.weight belongs to an adapter"
expect 0 "a run without config.json" ckpt-merge -o plain-model "$G/deepspeed/0.19-s3_w2_bf16/ckpt"
t "is warned of" says "warning: $G/deepspeed/0.19-s3_w2_bf16/ckpt: no config.json comes along"
expect 1 "--strict makes it an error" ckpt-merge --strict -o plain-model2 "$G/deepspeed/0.19-s3_w2_bf16/ckpt"
expect 0 "with one nothing is said" ckpt-merge -o plain-model3 "$BASE"
t "nothing" bash -c "! grep -q warning .err"

# A distributed checkpoint of an adapter, its names with the adapter's and without.
expect 0 "DCP of the adapter" merge --to dcp --no-merge -o dcp-saved "$ADS"
expect 0 "DCP of the wrapped model" merge --to dcp -o dcp-live thin/global_step4
for d in dcp-saved dcp-live; do
    cp "$ADS/adapter_config.json" $d
    expect 0 "$d is an adapter" merge --to peft -o $d-peft $d
    t "$d: in the same files" same_files gathered $d-peft
done

expect 0 "one factor of another adapter" merge --to dcp --rename base_model.model.model.layers.0.self_attn.q_proj.lora_A.default=base_model.model.model.layers.0.self_attn.q_proj.lora_A.second -o dcp-two thin/global_step4
cp "$ADS/adapter_config.json" dcp-two
expect_says 65 "two adapters in one" "several adapters, " merge --to peft -o no/w dcp-two

# Our own runs on two ranks, in every shape an adapter has: what their shards merge to is what the
# gathered file merges to, byte for byte, and scores as the run itself.
train() {
    local name=$1 base=$2; shift 2
    ckpt-train -q --model "$base" --train-file rows.jsonl --lora-rank 2 --max-steps 2 --nproc 2 --zero-stage 3 \
        --learning-rate 1e-2 --lr-scheduler-type constant --per-device-train-batch-size 1 -o "$name" "$@"
}
apart() { mkdir "$1-g" && cp "$1"/checkpoint-2/adapter_{config.json,model.safetensors} "$1-g"; }
seam() {
    local name=$1
    t "$name: trained on two ranks" train "$@"
    t "$name: the gathered adapter" apart $name
    t "$name: an adapter" merge --to peft -o $name-p $name
    t "$name: in the same files" same_files $name-g $name-p
    rm -f $name/checkpoint-2/adapter_model.safetensors      # what follows has its shards alone
    t "$name: merged" merge --verify -o $name-m $name
    t "$name: so is the gathered one" merge -o $name-gm $name-g
    t "$name: the same bytes" same_files $name-gm $name-m
    t "$name: scores the same" near "$(loss $name/checkpoint-2)" "$(loss $name-m)" 1e-6
}
seam plain "$BASE"
seam dora "$BASE" --use-dora
seam tied-head "$BASE" --modules-to-save lm_head --target-modules q_proj,embed_tokens
seam tied-embed "$BASE" --modules-to-save embed_tokens
seam bias "$OPT" --lora-bias all
seam tokens "$G/lora/llama-tokens/base" --trainable-token-indices 3,7
# Two ranks, an adapter, merged and pushed while they train: what is cloned is the model.
cp -r "$BASE" small
pipeline() {
    set -o pipefail
    train piped small --save-steps 1 | ckpt-merge -q --verify | ckpt-push -q --create h.git > pushed
}
t "X1 train, merge, push" pipeline
t "both checkpoints were merged" bash -c "[ -d piped/checkpoint-1-merged ] && [ -d piped/checkpoint-2-merged ]"
t "the model is cloned" git clone -q h.git clone
t "with its config" test -e clone/config.json
t "it has no adapter's tensors" bash -c "! ckpt-inspect clone | grep -q lora_"
t "it is the last checkpoint's" cmp clone/model.safetensors piped/checkpoint-2-merged/model.safetensors
t "and scores as the run" near "$(loss piped/checkpoint-2)" "$(loss clone)" 1e-6
as_adapter() { set -o pipefail; echo piped/checkpoint-2 | ckpt-merge -q --to peft -o adapters | ckpt-push -q --create a.git > pushed; }
t "the adapter alone, pushed" as_adapter
t "is cloned" git clone -q a.git a-clone
t "as PEFT keeps it" bash -c "cmp a-clone/adapter_model.safetensors piped/checkpoint-2/adapter_model.safetensors && [ -e a-clone/adapter_config.json ]"

# -- a gap in a list -----------------------------------------------------------------------------
cp -r "$BASE" one-model; cp -r "$BASE" other-model; touch other-model/LICENSE
expect_says 66 "merge: one of three is gone" "ckpt-merge: gone: no such file or directory" merge one-model gone other-model
t "the others were merged" bash -c "printf 'one-model-merged\nother-model-merged\n' | cmp - .out"
t "both" bash -c "cmp one-model-merged/model.safetensors other-model-merged/model.safetensors"
rm -rf ./*-model-merged
through() { printf '%s\n' one-model gone "$T/bare" other-model | "$@"; }
expect_two() {              # through a pipe, with two failures: the first one's status
    local tool=$1; shift
    through "$@" >.out 2>.err; got=$?
    t "$tool: from a pipe, the first failure's status" [ $got = 66 ]
    t "$tool: tells both" bash -c "[ \$(grep -c ^$tool: .err) = 2 ] && grep -q 'gone: no such file' .err && grep -q 'lora_A.default' .err"
}
expect_two ckpt-merge ckpt-merge -q
t "and merges the others" bash -c "printf 'one-model-merged\nother-model-merged\n' | cmp - .out"
expect 66 "push goes on" bash -c "printf 'one-model\ngone\nother-model\n' | ckpt-push -q --create gap.git"
t "it tells the one" says "ckpt-push: gone: "
t "the last is published" git -C gap.git cat-file -e HEAD:LICENSE
expect 66 "inspect goes on" ckpt-inspect one-model gone other-model
t "to the last" bash -c "[ \$(grep -c '^path: ' .out) = 2 ]"
expect 66 "eval goes on" ckpt-eval -q --eval-file rows.jsonl one-model gone other-model
t "to the last one too" bash -c "[ \$(grep -cE '^model +loss' .out) = 2 ]"

# -- Ctrl-C in a pipeline ------------------------------------------------------------------------
# interrupted COMMANDS [FILE] - a pipeline in a group of its own that gets INT once it has written a
# checkpoint, and FILE, as a terminal sends it; its statuses are in `status`.
interrupted() {
    rm -rf long status
    setsid bash -c "trap : INT; $1; echo \"\${PIPESTATUS[@]}\" > status" >log.out 2>log.err &
    local pid=$!
    wait_for "ls -d long/checkpoint-*[0-9] ${2:-} >.seen 2>&1" && kill -INT -- -$pid && wait $pid
    wait_for '[ -e status ]'
}
LONG="ckpt-train -q --model small --train-file rows.jsonl --max-steps 1000000 --save-steps 40 --save-total-limit 3 -o long"
t "INT to all of train, merge, push" interrupted "$LONG | ckpt-merge | ckpt-push --create int.git" int.git
t "the trainer stopped, the others ended well" grep -qx '75 0 0' status
t "the trainer says how to go on" grep -q 'go on with --resume-from-checkpoint latest' log.err
t "merge says what it does" grep -q '^ckpt-merge: interrupted: working through what the pipe still brings' log.err
t "push too, once each" bash -c "[ \$(grep -c ': interrupted: ' log.err) = 2 ]"
t "what was saved last was merged" test -d "$(newest long)-merged"
t "and is what was published" bash -c "git clone -q int.git int-clone && cmp int-clone/model.safetensors $(newest long)-merged/model.safetensors"
t "INT when nobody reads any more" interrupted "$LONG | true"
t "the trainer stopped" grep -qx '75 0' status
t "said once that nobody reads" bash -c "[ \$(grep -c 'warning: standard output: Broken pipe' log.err) -le 1 ]"
t "said how to go on" grep -q 'go on with --resume-from-checkpoint latest' log.err
left() { rm -rf left; train left small --nproc 1 --zero-stage 0 --max-steps 4 --save-steps 1 2>log.err | true; echo "${PIPESTATUS[0]}" > status; }
left
t "a reader that left: 74 at the end" grep -qx 74 status
t "all was saved" test -d left/checkpoint-4
t "told at the end" grep -qx 'ckpt-train: standard output: Broken pipe' log.err
left2() { rm -rf left; ckpt-train --model small --train-file rows.jsonl --max-steps 4 --save-steps 1 -o left 2>log.err | true; }
left2
t "a warning, once" bash -c "[ \$(grep -c 'warning: standard output: Broken pipe: no checkpoint is announced' log.err) = 1 ]"
rm -rf ./*-model-merged; mkfifo fifo
waiting() { ckpt-merge < fifo > .out 2> .err & pid=$!; exec 3> fifo; sleep 0.2; }
waiting; kill -INT $pid; sleep 0.2
t "a consumer that waits goes on waiting" kill -0 $pid
echo one-model >&3; wait_for '[ -s .out ]'
t "and works" grep -qx one-model-merged .out
sleep 1; kill -INT $pid; wait $pid; got=$?; exec 3>&-
t "once more ends it" [ $got = 130 ]
rm -rf one-model-merged
waiting; kill -TERM $pid; wait $pid; got=$?; exec 3>&-
t "TERM stops it at once" [ $got = 75 ]
t "and says so" grep -qx 'ckpt-merge: stopped by SIGTERM before all was done' .err

# -- what --optimizer keep keeps -----------------------------------------------------------------
same_but() { diff <(sums "$1" | grep -vE "$3") <(sums "$2" | grep -vE "$3"); }
for d in "$BASE" "$G/wholes/accelerate/checkpoints/checkpoint_1"; do
    n=kept-$(basename "$(dirname "$d")")
    t "$n: an optimizer's file goes along" merge --optimizer keep -o "$n" "$d"
    t "$n: with all that a run goes on from" same_but "$d" "$n" 'model.safetensors|MANIFEST|README|json$'
    t "$n: without being asked it does not" merge -o "$n-drop" "$d"
    t "$n: nor do the others" bash -c "! ls $n-drop | grep -qE 'optimizer|scheduler|rng|random'"
done
expect 65 "not into a file" ckpt-merge --optimizer keep -o no/k.safetensors "$BASE"
t "which is said" says "--optimizer keep: optimizer.pt numbers its states and names none"
expect 65 "nor into DCP" ckpt-merge --optimizer keep --to dcp -o no/k "$BASE"
expect 65 "nor beside other tensors" ckpt-merge --optimizer keep --exclude 'model.norm.*' -o no/k "$BASE"
expect 65 "nor beside a mean" ckpt-merge --optimizer keep --average -o no/k "$BASE" "$BASE"
expect 65 "shards' states not into a model's directory" ckpt-merge -q --optimizer keep -o no/k "$G/deepspeed/0.19-s3_w2_bf16/ckpt"
expect 65 "nor into an adapter's" ckpt-merge -q --optimizer keep --to peft -o no/k "$ADS"
expect 65 "nor into a merged one" ckpt-merge -q --optimizer keep --base "$BASE" -o no/k "$ADS"
expect 0 "a model that has none" ckpt-merge --optimizer keep -o kept-none "$G/lora/bloom-qkv/base"
t "is told" says "there is no optimizer's state to keep"
alone() { ckpt-train -q --model small --train-file rows.jsonl --learning-rate 1e-2 --max-steps 4 --save-steps 2 --per-device-train-batch-size 1 -o "$@"; }
t "a run on one rank" alone whole-run
t "its middle, with its optimizer" merge --optimizer keep -o kept-half whole-run/checkpoint-2
t "is gone on from" alone went-on --resume-from-checkpoint kept-half
t "to the same weights" cmp whole-run/checkpoint-4/model.safetensors went-on/checkpoint-4/model.safetensors
lone() { ckpt-train -q --model small --train-file rows.jsonl --lora-rank 2 --max-steps 2 -o lone; }
t "an adapter of one rank" lone
t "is written with its optimizer" merge --optimizer keep --to peft -o kept-lone lone
t "as it lies there" cmp kept-lone/optimizer.pt lone/checkpoint-2/optimizer.pt
expect 65 "but not merged with it" ckpt-merge -q --optimizer keep -o no/k lone
expect 0 "the optimizer of a folder is told" ckpt-inspect --optimizer "$BASE"
t "its groups and states" bash -c "grep -q 'weight decay' .out && grep -qE '^state.19 +4' .out"
cp .out folder.out
expect 0 "of the file alone too" ckpt-inspect --optimizer "$BASE/optimizer.pt"
t "the same" bash -c "diff <(grep -A2 '^group' folder.out) <(grep -A2 '^group' .out)"

# -- outputs that are inputs, and errors while they are read -------------------------------------
cp -r "$BASE" own; ln -s own/model.safetensors soft.safetensors; ln own/model.safetensors hard.safetensors
cp -r own/. before; sums own > own.sums
for o in own/model.safetensors soft.safetensors hard.safetensors ./own/../own/model.safetensors; do
    expect_says 73 "$o: a source is not replaced" "is a file that is read" ckpt-merge -q --overwrite --dtype bf16 -o $o own
done
expect 73 "nor an adapter's base" ckpt-merge -q --overwrite --base own -o hard.safetensors lone
t "they are what they were" cmp own/model.safetensors before/model.safetensors
t "another file in the folder may be written" merge --overwrite --dtype bf16 -o own/half.safetensors own
expect 73 "a directory is not replaced" ckpt-merge -q --overwrite -o before own
t "the help of it" says "hint: it is a directory, --overwrite replaces files only"
expect_says 64 "an empty name" "ckpt-merge: path 1 is empty" ckpt-merge ''
# A header of 123 or 91 bytes begins as JSON does: { and [.
for n in 123 91; do
    h='{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'; while [ ${#h} -lt $n ]; do h="$h "; done
    printf "\\$(printf %o $n)\\0\\0\\0\\0\\0\\0\\0%s\\0\\0\\0\\0\\0\\0\\0\\0" "$h" > begins.safetensors
    expect_prints 0 "a header of $n bytes" "format: safetensors" ckpt-inspect begins.safetensors
done

# -- what is no weight among the weights ---------------------------------------------------------
expect 0 "DCP with an io.BytesIO" ckpt-merge -o titan "$G/seams/titan"
t "what is left out has a name" says "train_state.global_avg_losses: bytes of an io.BytesIO, left out"
expect 0 "DCP with random states beside the weights" merge -o megatron "$G/seams/megatron"
t "they are no weights" bash -c "! ckpt-inspect megatron | grep -q rng_state"
t "the weights are those of the other" cmp titan/model.safetensors megatron/model.safetensors
expect 65 "a slice of a model" ckpt-merge -o no/w "$G/seams/slice.pt"
t "is called one" says "a slice of a model that is cut over 2 ranks by tensor parallelism"
expect_prints 0 "it is inspected" "tensor_parallel: 2" ckpt-inspect "$G/seams/slice.pt"
t "nothing is left of what was refused" [ -z "$(ls -A no)" ]
# A model's name of the Hub, typed as other programs take it.
for tool in "ckpt-inspect" "ckpt-merge -o no/w"; do
    expect_says 66 "$tool: a name of the Hub" "hint: a model of the Hub is named hf://Qwen/Qwen3-8B" $tool Qwen/Qwen3-8B
    expect 66 "$tool: a file that is missing in a folder that is not" $tool "no/w.safetensors"
    t "is no name of the Hub" bash -c "! grep -q hint .err"
done
