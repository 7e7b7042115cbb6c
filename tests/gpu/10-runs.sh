# Whole runs on a GPU beside the CPU's: losses, checkpoints that go on on either, adapters, limits.
. "$(dirname "$0")/../e2e/lib.sh"
R=tools/recipes/demo
export OMP_NUM_THREADS=4
grep -E '.{40}' README.md man/ckpt-train.1 | sed 's/^[^:]*://; s/[\\"]//g' | head -200 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' | tr -d '\t\r' > "$T/train.jsonl"
head -20 "$T/train.jsonl" > "$T/eval.jsonl"
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {       # OUT DEVICE OPTION...
    local out=$1 device=$2; shift 2
    ckpt-train -q --device "$device" --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 64 --learning-rate 5e-4 \
        --warmup-steps 2 --weight-decay 0.01 --max-steps 6 --logging-steps 1 --save-steps 3 --per-device-train-batch-size 8 \
        --zero-stage 0 -o "$T/$out" "$@"
}
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$T/$1/metrics.jsonl"; }
near() { paste <(losses "$1" | tail -"$4") <(losses "$2" | tail -"$4") | awk -v n="$4" -v b="$3" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= b)) { bad = 1; print $1, $2, d }; k++ } END { exit bad || k != n }'; }
state() { find "$T/$1/checkpoint-6" -type f ! -name MANIFEST.json ! -name training_args.bin ! -name trainer_state.json -printf '%P\n' | sort | (cd "$T/$1/checkpoint-6" && xargs sha256sum); }
t "six steps on the CPU" train cpu cpu
t "six steps on the GPU" train gpu cuda
t "losses in f32 agree to 1e-5" near gpu cpu 1e-5 6
t "again" train gpu2 cuda:0
t "the same bits" diff <(state gpu) <(state gpu2)
goon() { cp -r "$T/$1" "$T/$2" && rm -r "$T/$2/checkpoint-6" && train "$2" "$3" "${@:4}" --resume-from-checkpoint latest; }
t "the GPU's checkpoint goes on on the GPU" goon gpu gg cuda
t "bit for bit" diff <(state gpu) <(state gg)
t "on the CPU" goon gpu gc cpu
t "to the same losses" near gc gpu 1e-5 3
t "the CPU's goes on on the GPU" goon cpu cg cuda
t "to the same losses too" near cg cpu 1e-5 3
t "weights and activations of bf16" train half cuda --bf16
t "losses within its rounding" near half cpu 2e-2 6
t "products of tf32" train tf32 cuda --tf32
t "losses within theirs" near tf32 gpu 1e-3 6
t "which are others" bash -c "! diff -q $T/tf32/metrics.jsonl $T/gpu/metrics.jsonl"
cat > "$T/wide.json" <<C
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 2048,
 "num_hidden_layers": 1, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 4096, "rms_norm_eps": 1e-5,
 "max_position_embeddings": 256, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true}
C
t "a wide model" ckpt-train -q --init "$T/wide.json" --tokenizer $R/tokenizer --init-only -o "$T/wide"
wide() { local out=$1; shift; train "$out" cuda --model "$T/wide" --per-device-train-batch-size 64 --bf16 "$@"; }
same_state() { local s; s=$(state "$1") && [ -n "$s" ] && [ "$s" = "$(state "$2")" ]; }
t "in bf16" wide w16
t "once more" wide w16b
t "to the same bits" same_state w16 w16b
t "with products of 8 bits" wide w8 --fp8
t "once more" wide w8b --fp8
t "to the same bits" same_state w8 w8b
t "losses within their rounding" near w8 w16 2e-2 6
t "which are others too" bash -c "! diff -q $T/w8/metrics.jsonl $T/w16/metrics.jsonl"
on8() { [ -d "$T/w8" ] && cp -r "$T/w8" "$T/on8" && rm -r "$T/on8/checkpoint-6" && wide on8 --fp8 --resume-from-checkpoint latest; }
t "their checkpoint goes on" on8
t "bit for bit, without any state of scales" same_state w8 on8
t "an adapter over weights of 8 bits" wide lora8 --fp8 --lora-rank 4 --target-modules all-linear
# 25 MiB less than the run takes with them, beside what the driver keeps (65536 less what may be taken).
plan() { ckpt-train --dry-run --device cuda --model "$T/wide" --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 6 --per-device-train-batch-size 64 --bf16 --fp8 "$@" 2>&1; }
read -r most room <<<"$(plan --device-memory-limit 64G | sed -n 's/.*workspace.*: \([0-9]*\)\.[0-9]* of \([0-9]*\)\.[0-9]* MiB$/\1 \2/p')"
short="--device-memory-limit $((most + 65536 - room - 25))M"
# shellcheck disable=SC2086
t "where memory is short they are not kept" grep -q 'rounded at each use' <(plan $short)
t "but rounded at each use" wide short --fp8 $short
t "to the same bits" same_state w8 short
rm -rf "$T"/w8 "$T"/w16 "$T"/on8 "$T"/lora8 "$T"/short
t "blocks made again" train again cuda --gradient-checkpointing
t "give the same losses" near again gpu 1e-6 6
t "norms made again" train norms cuda --recompute norms
t "give the same bits" diff <(state gpu) <(state norms)
t "an adapter" train lora cuda --bf16 --lora-rank 4 --target-modules all-linear
t "and on the CPU" train loracpu cpu --lora-rank 4 --target-modules all-linear
t "near each other" near lora loracpu 2e-2 6
t "the checkpoint is whole" ckpt-inspect --verify "$T/gpu/checkpoint-6"
perplexity() { ckpt-eval -q --json --device "$1" --eval-file "$T/eval.jsonl" "$T/gpu/checkpoint-6" | sed -n 's/.*"perplexity": *\([0-9.]*\).*/\1/p' | head -1; }
same_perplexity() { paste <(perplexity cuda) <(perplexity cpu) | awk '{ d = $1 / $2 - 1; exit !($1 > 1 && d < 1e-4 && d > -1e-4) }'; }
t "evaluation agrees" same_perplexity
words() { ckpt-eval -q --json --device "$1" --prompt "The tools" --prompt "A checkpoint" --max-new-tokens 20 --no-do-sample "$T/gpu/checkpoint-6" | grep '"who"'; }
t "generation gives the same words" diff <(words cuda) <(words cpu)
expect 71 "a run that passes its memory limit" train limit cuda --device-memory-limit 1M
says "GiB are needed (weights" && echo "ok before anything is allocated" || echo "not ok before anything is allocated"
t "a limit that is enough" train enough cuda --device-memory-limit 2G
t "states on the host" train far cuda --bf16 --offload-optimizer cpu
t "give the same bits" diff <(state half) <(state far)
t "in f32 too" train widefar cuda --offload-optimizer cpu
t "the same bits" diff <(state gpu) <(state widefar)
echo '{"model_type": "bloom", "hidden_size": 512, "n_layer": 6, "n_head": 8, "vocab_size": 32000}' > "$T/mid.json"
mid() {         # OUT OPTION...: 35 M parameters, whose states are 12 bytes each
    ckpt-train --device cuda --bf16 --init "$T/mid.json" --tokenizer $R/tokenizer --train-file "$T/train.jsonl" --max-seq-length 64 --max-steps 3 \
        --logging-steps 1 --per-device-train-batch-size 8 -o "$T/$1" "${@:2}" 2>"$T/$1.log"
}
files() { (cd "$T/$1/checkpoint-3" && sha256sum model.safetensors optimizer.pt); }
t "a larger model" mid mid
t "some of its states on the host, to obey a limit" mid paged --recompute none --optim paged_adamw --device-memory-limit 1450M
t "as is told" grep -q "on the host: optimizer" "$T/paged.log"
t "they give the same bits from there" diff <(files mid) <(files paged)
ckpt-train -q --device cuda --bf16 --init "$T/mid.json" --tokenizer $R/tokenizer --train-file "$T/train.jsonl" --max-seq-length 64 \
    --num-train-epochs 100000 --logging-steps 1 -o "$T/busy" >/dev/null 2>&1 & busy=$!
for i in $(seq 150); do grep -qs '"loss"' "$T/busy/metrics.jsonl" && break; sleep 0.2; done
t "beside another run, whose memory the limit does not count" mid beside --recompute none --optim paged_adamw --device-memory-limit 1450M
kill $busy; wait $busy 2>/dev/null
t "they give the same bits there" diff <(files mid) <(files beside)
# An activation that a product's epilogue makes is that of its sum, one made again of what was rounded.
t "its norms made again" mid again8 --recompute norms
t "losses within rounding" near again8 mid 2e-3 3
t "where memory is short that is what is done" mid auto8 --optim paged_adamw --device-memory-limit 1450M
t "as is told too" grep -q "recomputing norms and activations" "$T/auto8.log"
t "to the bits that it gives" diff <(files again8) <(files auto8)
t "in 8 bits" mid coded --optim adamw_8bit
t "on the host, 8 bits" mid coded2 --optim paged_adamw_8bit --offload-optimizer cpu
t "give the same bits of 8" diff <(files coded) <(files coded2)
t "weights and gradients on the host too" train params cuda --bf16 --offload-param cpu
t "give the same bits" diff <(state half) <(state params)
t "in two passes a step" train twice cuda --bf16 --gradient-accumulation-steps 2
t "on the host" train twice2 cuda --bf16 --gradient-accumulation-steps 2 --offload-param cpu
t "the same" diff <(state twice) <(state twice2)
t "an adapter's base on the host" train lora2 cuda --bf16 --lora-rank 4 --target-modules all-linear --offload-param cpu
t "gives the same bits" diff <(state lora) <(state lora2)
t "they go on on the device" goon far near2 cuda --bf16
t "bit for bit again" diff <(state half) <(state near2)
expect 69 "a GPU that is not there" train none cuda:99
expect 69 "a GPU hidden from the driver" env CUDA_VISIBLE_DEVICES= ckpt-train -q --device cuda --model "$T/base" --train-file "$T/train.jsonl" -o "$T/hid"
t "then auto takes the CPU" env CUDA_VISIBLE_DEVICES= ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-steps 1 -o "$T/auto"
t "a profile" bash -c "ckpt-train --device cuda --profile --model $T/base --train-file $T/train.jsonl --max-steps 8 --max-seq-length 64 -o $T/prof 2>&1 | grep -q linear_bwd"
