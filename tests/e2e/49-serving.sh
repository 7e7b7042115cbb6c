# What is trained and merged is what vLLM and Text Generation Inference load: the files they open, the names and shapes they look
# for, the fields of configurations they read or refuse, as shared/serving.py tells their loaders' rules.  [E10]
. "$(dirname "$0")/lib.sh"
M=$G/models
serves() { python3 -IS tests/e2e/shared/serving.py vllm,tgi "$@"; }
refuses() { ! python3 -IS tests/e2e/shared/serving.py "$@"; }
# The checker does refuse: weights beside the model, two of a name, a shard that the index does not know, an unserved adapter.
base() { rm -rf "$T/base"; mkdir "$T/base" && cp "$M/$1"/config.json "$M/$1"/model*.safetensors* "$T/base"; }
base llama-a
t "a model is served" serves "$T/base"
cp "$T"/base/model-00001-of-*.safetensors "$T/base/copy.safetensors"
t "two files with the same weights are not" refuses tgi "$T/base"
t "unless an index says which" python3 -IS tests/e2e/shared/serving.py vllm "$T/base"
cp "$T"/base/model.safetensors.index.json "$T/index"; sed -i 's/-00001-of/-00007-of/' "$T/base/model.safetensors.index.json"
t "nor an index of files that are not there" refuses vllm "$T/base"
mv "$T/index" "$T/base/model.safetensors.index.json"; rm "$T/base/copy.safetensors"; cp "$M/llama-a/golden.safetensors" "$T/base/consolidated.safetensors"
t "nor what seems Mistral's own format" refuses vllm "$T/base"
t "nor DoRA" refuses vllm "$G/lora/llama-dora/adapter" "$T/base"
t "nor ranks of their own" refuses tgi "$G/lora/llama-patterns/adapter" "$T/base"

# Each family, two at once: all weights and an adapter, each as the run leaves it, in its checkpoint, merged, and in shards.
train() {       # NAME MODEL MORE...
    ckpt-train -q --model "$T/base" --train-file "$M/$2/rows.jsonl" --per-device-train-batch-size 2 --learning-rate 1e-2 --max-steps 1 -o "$T/$1" "${@:3}" >"$T/said"
}
targets() { case $1 in phi3*) echo qkv_proj,o_proj,gate_up_proj,down_proj ;; mixtral*) echo q_proj,k_proj,v_proj,o_proj ;; *) echo q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj ;; esac; }
family() {
    local m=$1 T=$T/$1; mkdir "$T"; base $m
    t "E10 $m, all weights: the run's folder is served" eval "train full $m && serves $T/full"
    t "E10 $m: its checkpoint" serves "$T/full/checkpoint-1"
    t "E10 $m: merged into shards of 16 bits" eval "ckpt-merge -q --dtype bf16 --max-shard-size 20K -o $T/shards $T/full/checkpoint-1 && ls $T/shards/model.safetensors.index.json && serves $T/shards"
    case $m in bloom*|opt*) return ;; esac              # no adapters for these in either server
    t "E10 $m, an adapter: the run's folder is served" eval "train lora $m --lora-rank 4 --target-modules $(targets $m) && serves $T/lora $T/base"
    t "E10 $m: its checkpoint" serves "$T/lora/checkpoint-1" "$T/base"
    t "E10 $m: merged" eval "ckpt-merge -q -o $T/merged $T/lora/checkpoint-1 && serves $T/merged"
    t "E10 $m: extracted from the merged" eval "ckpt-merge -q --extract-adapter 4 --base $T/base -o $T/out $T/merged && serves $T/out $T/base"
}
two=0
for m in llama-a mistral-sw qwen3-a phi3-a mixtral-a bloom-a opt-a; do
    [ $((two++)) -lt 2 ] || wait -n
    family $m >"$T/$m.said" 2>&1 &
done
wait; cat "$T"/*.said

# Predictions are kept, of all weights and of an adapter, applied in memory or merged: the same texts.
R=tools/recipes/demo Q=$G/saved/qwen3
$R/wordnet.sh "$T" 80 >/dev/null
fields=(--prompt-template '{instruction}' --completion-template ' {output}' --max-seq-length 48)
tune() { ckpt-train -q --model "$Q" --train-file "$T/train.jsonl" "${fields[@]}" --max-steps 2 --learning-rate 1e-2 "$@" >/dev/null; }
predicts() { ckpt-eval -q --json --eval-file "$T/eval.jsonl" --max-eval-samples 3 "${fields[@]}" --max-new-tokens 4 --metric rouge --overwrite --predictions-out "$T/$1.jsonl" "$2" >/dev/null; }
t "E10 all weights of a model with a tokenizer" eval "tune --full-ft true -o $T/q && serves $T/q"
t "an adapter" eval "tune --lora-rank 4 -o $T/ql && serves $T/ql $Q"
t "E10 predictions are kept" eval "predicts q $T/q && [ \$(grep -c '\"prediction\": ' $T/q.jsonl) = 3 ]"
t "E10 an adapter's are those of the merged model" eval "predicts ql $T/ql && ckpt-merge -q -o $T/qm $T/ql && serves $T/qm && predicts qm $T/qm && diff $T/ql.jsonl $T/qm.jsonl"

# Large models of the families, by plan: an adapter on one host of eight GPUs of 80 GB, all weights on as many as it takes.
plan() {
    ckpt-train --dry-run -q --config tools/recipes/lora-sft.yaml --device-memory-limit 80G --init tools/recipes/configs/$1.json --tokenizer "$G/saved/llama" --train-file "$T/train.jsonl" \
        "${fields[@]}" --max-steps 20 --eval-file "$T/eval.jsonl" --train-split-ratio 0 --report-to none -o "$T/none" --nproc "$2" "${@:3}"
}
for m in "Llama-2-13b 8" "CodeLlama-34b 16" "Llama-3-70B 32" "Mixtral-8x22B 56"; do
    t "E10 ${m% *}: an adapter on eight GPUs" plan ${m% *} 8
    t "E10 ${m% *}: all weights on ${m#* }" plan $m --full-ft true
done
expect 71 "all weights of 8x22B do not fit on eight" plan Mixtral-8x22B 8 --full-ft true

# The image: what it copies is there, and what it installs is what the tools are linked to.
named() { local f; for f in $(sed -nE 's/^COPY ([^-][^ ]*) .*/\1/p' tools/recipes/Dockerfile) $(sed -n 's/^!//p' tools/recipes/Dockerfile.dockerignore); do ls -d $f >/dev/null || return 1; done; }
t "E10 the image is made of what is here" named
