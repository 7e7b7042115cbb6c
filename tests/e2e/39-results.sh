# Where runs leave what people look for: results/{model}/checkpoint-* with an adapter and results/{model}/logs, whole state dicts
# by name, a clone with another framework's weights in it.  [B7, D3, D4, E3, E6]
. "$(dirname "$0")/lib.sh"
M=$G/lora/bloom-qkv
cd "$T" || exit 1
train() { ckpt-train -q --train-file "$M/rows.jsonl" --per-device-train-batch-size 1 --learning-rate 1e-3 --threads 1 "$@"; }
# E: an adapter's run as tools/recipes/lora-sft.yaml has it, with its data cut and kept.
adapter() { train --model "$M/base" --lora-rank 4 --lora-alpha 8 --target-modules query_key_value --max-steps 4 --save-steps 2 --save-total-limit 2 --logging-steps 1 \
    --report-to tensorboard --logging-dir results/m/logs -o results/m; }
t "an adapter's run" adapter
t "checkpoints in results/{model}" bash -c "ls results/m/checkpoint-{2,4}/adapter_{config.json,model.safetensors} | wc -l | grep -qx 4"
t "event files in results/{model}/logs" bash -c "ls results/m/logs/events.out.tfevents.* && ckpt-inspect results/m/logs/events.out.tfevents.* | grep -q loss"
t "the newest becomes a model" ckpt-merge -q -o converted results/m
t "which is one" bash -c "[ -s converted/model.safetensors ] && ! ckpt-inspect converted | grep -q lora_"
t "or stays an adapter" ckpt-merge -q --no-merge -o adapter results/m
t "with its configuration" [ -s adapter/adapter_config.json ]
# D: one file an epoch, by the slice and the epoch; then the next slice.
dict() { train --model "$M/base" --max-steps 0 --save-strategy epoch --state-dict-file 'opt_1.3B_{start}-{end}-epoch-{n}.pt' "$@"; }
t "a slice, an epoch" dict --start-idx 0 --end-idx 1 --num-train-epochs 1 -o d
t "its file" [ -s d/opt_1.3B_0-1-epoch-1.pt ]
t "has the tied head" bash -c "ckpt-inspect d/opt_1.3B_0-1-epoch-1.pt | grep -q '^lm_head.weight'"
t "the next slice goes on" dict --start-idx 1 --end-idx 2 --num-train-epochs 2 --resume-file d/opt_1.3B_0-1-epoch-1.pt --initial-epoch 1 -o d2
t "to its own file" [ -s d2/opt_1.3B_1-2-epoch-2.pt ]
# B: weights of TensorFlow beside the others are not looked at.
cp -r "$M/base" clone; head -c 1000 /dev/urandom >clone/tf_model.h5; head -c 100 /dev/urandom >clone/flax_model.msgpack
t "tf_model.h5 in the clone" train --model clone --max-steps 2 -o b
t "is passed over" cmp b/model.safetensors <(train --model "$M/base" --max-steps 2 -o b2 >/dev/null; cat b2/model.safetensors)
# A tokenizer of a folder of its own, without the model's generation_config.json.
mkdir other && cp "$G"/saved/llama/tokenizer* other && printf '{"text": "a b c d"}\n{"text": "e f"}\n' >few.jsonl
other() { rm -rf o; ckpt-train -q --device cpu --model "$G/saved/llama" --tokenizer other --train-file few.jsonl --max-seq-length 16 --max-steps 1 -o o "$@"; }
t "a tokenizer of its own folder" other
t "the model's generation_config.json stays" cmp "$G/saved/llama/generation_config.json" o/generation_config.json
t "of the checkpoint too" cmp "$G/saved/llama/generation_config.json" o/checkpoint-1/generation_config.json
printf '{"max_length": 7}' >other/generation_config.json
t "but for the folder's own" other
t "which is taken" cmp other/generation_config.json o/generation_config.json
