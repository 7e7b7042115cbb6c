#!/usr/bin/env bash
# What E's run left, held against its duties.
. "$(dirname "$0")/../duties.sh"
results=$OUT/results/$(basename "$MODEL") last=$(newest "$OUT/results/$(basename "$MODEL")")
data=$(dirname "$(ls "$OUT"/datasets/*/*/*/.data_ready)")
clone_hub
on_ranks() { local most=$1; shift; "$@"; }
# plans [OPTION...] - a plan of memory for each of the models, on ranks of 80 GiB.
plans() {
    local name ranks config
    while read -r name ranks config; do
        mkdir "$tmp/$name"; echo "$config" >"$tmp/$name/config.json"
        ckpt-train --dry-run --config "$here/../lora-sft.yaml" --model "$tmp/$name" --tokenizer "$here/../demo/tokenizer" --train-file "$data/training.jsonl" \
            --prompt-template '{question}' --completion-template '{answer}' --nproc "${most:-$ranks}" --device-memory-limit 80G -o "$tmp/none" "$@" >"$tmp/$name.plan" 2>&1 ||
            { tail -n 3 "$tmp/$name.plan"; return 1; }
        has 'memory of a rank' "$tmp/$name.plan" || return 1
    done <"$here/models.txt"
    rm -r "${tmp:?}"/*/
}
reused() {
    local before; before=$(stat -c '%n %Y %i' "$data"/*.jsonl "$data/.data_ready")
    again "$OUT/again" --max-steps 1 && [ "$before" = "$(stat -c '%n %Y %i' "$data"/*.jsonl "$data/.data_ready")" ]
}
improved() {    # the newest checkpoint is the best, and there are no more of them than improvements
    [ "$(number "$results/trainer_state.json" best_global_step)" = "$(basename "$last" | tr -dc 0-9)" ]
}
defaults() {
    local s
    for s in "lora_rank 32" "lora_alpha 32" "lora_dropout 0.1" "target_modules [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]" "per_device_train_batch_size 2" \
        "per_device_eval_batch_size 2" "gradient_accumulation_steps 4" "min_lr 1.0e-06" "weight_decay 0.01" "warmup_ratio 0.03" "max_grad_norm 1" "lr_scheduler_type cosine_with_min_lr" \
        "save_total_limit 2" "max_eval_samples 0" "early_stopping_patience 3" "early_stopping_threshold 0.001" "seed 16257"; do
        setting ${s%% *} "${s#* }" || { echo "$s wanted"; return 1; }
    done
    has '^max_steps: 10000' "$here/../lora-sft.yaml" && has '^learning_rate: 5.0e-5' "$here/../lora-sft.yaml" && has '^logging_steps: 10' "$here/../lora-sft.yaml"
}
full() {        # all weights instead of an adapter: trained, turned into a model, which generates
    again "$OUT/full" --full-ft true --max-steps 2 --eval-steps 1 && ckpt-merge -q -o "$OUT/full-model" "$(newest "$OUT/full")" >/dev/null &&
    ckpt-eval -q --prompt 'Question:' --max-new-tokens 4 "$OUT/full-model"
}
loads() {       # by the rules of vLLM and TGI: names of transformers, one index or one file, a tokenizer, no code
    there "$OUT"/model/{config.json,tokenizer.json,tokenizer_config.json} && ckpt-inspect -q --scan "$OUT/model" &&
    ckpt-inspect --json "$OUT/model" | grep -q '"model.layers.0.self_attn.q_proj.weight"'
}
duty E1 "Qwen3, Llama, Mistral, Mixtral, Phi-3: LoRA and all weights, sharded, bf16, recomputation" all setting bf16 true ";" setting gradient_checkpointing true ";" has '"zero_stage": *3' "$last/MANIFEST.json" ";" plans ";" on_ranks 64 plans --full-ft true
duty E2 "any data by templates, split 0.9 and 0.5" all there "$data"/{training,validation,test}.jsonl ";" [ "$(dirname "$data" | xargs basename)" = default ] ";" has 'train=0.9-val=0.05-test=0.05' <(echo "$data")
duty E3 "the prepared data is kept, and used again" all there "$data/.data_ready" ";" reused
duty E4 "the system's options and defaults" defaults
duty E5 "saved where the evaluation improved, ends without progress, the best is kept" all setting save_strategy best ";" setting load_best_model_at_end true ";" improved
duty E6 "results/MODEL/checkpoint-*/ with the adapter, logs/ for TensorBoard" all there "$last"/{adapter_config.json,adapter_model.safetensors} ";" ckpt-inspect -q "$results"/logs/events.out.tfevents.*
duty E8 "the newest checkpoint as a model, merged, or the adapter alone" all there "$OUT/model/model.safetensors" ";" ckpt-merge -q --to peft -o "$OUT/adapter" --overwrite "$last" ";" there "$OUT/adapter/adapter_model.safetensors"
duty E10 "all weights trained, converted and tested; what is written loads elsewhere; an image" all full ";" loads ";" there "$here/../Dockerfile"
duty X1 "train | merge | push was one line" [ "$(commits model.safetensors)" -ge 1 ]
duties_end
