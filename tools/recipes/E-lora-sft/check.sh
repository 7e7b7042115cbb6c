# The duties of system E, as its run left them.
D=$(dirname "$(find "$out/datasets/$name" -name .data_ready)") C=$(newest "$results")
all() { local f; for f; do [ -s "$f" ] || { echo "$f: absent"; return 1; }; done; }
recipe=$top/tools/recipes/lora-sft.yaml
# Every value of the system, as the recipe comes to it.
defaults() {
    ckpt-train --config "$recipe" --print-config | sed 's/^# //; s/  # .*//' | sort >"$out/.values"
    local want
    while read -r want; do grep -qxF -- "$want" "$out/.values" || { echo "no $want"; return 1; }; done <<'END'
lora_rank: 32
lora_alpha: 32
lora_dropout: 0.1
target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]
max_steps: 10000
per_device_train_batch_size: 2
per_device_eval_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 5.0e-05
min_lr: 1.0e-06
weight_decay: 0.01
warmup_ratio: 0.03
max_grad_norm: 1
lr_scheduler_type: cosine_with_min_lr
max_seq_length: 2048
logging_steps: 10
eval_steps: 100
save_strategy: best
save_total_limit: 2
max_eval_samples: 0
early_stopping_patience: 3
early_stopping_threshold: 0.001
seed: 16257
END
}
# Two steps of an adapter, and of all weights, for each family; a plan of each model at full size.
families() {
    local m; for m in qwen3-a llama-a mistral-sw mixtral-a phi3-a; do
        for how in false true; do
            ckpt-train -q --config "$recipe" --device cpu --nproc 2 --model "$golden/models/$m" --train-file "$golden/models/$m/rows.jsonl" --eval-file "$golden/models/$m/rows.jsonl" --train-split-ratio 0 \
                --report-to none --eval-steps 1 --max-steps 2 --full-ft $how -o "$out/family/$m-$how" || return
            ckpt-inspect --args "$out/family/$m-$how" >"$out/.args" && grep -qiE '^bf16 +true' "$out/.args" && grep -qiE '^gradient_checkpointing +true' "$out/.args" && ls "$out/family/$m-$how"/checkpoint-2/global_step2/*rank_1* || { echo "$m: arguments"; return 1; }
            [ -s "$out/family/$m-$how/$([ $how = true ] && echo model || echo adapter_model).safetensors" ] || { echo "$m, --full-ft $how"; return 1; }
        done
    done
}
plans() {       # GPUS MODEL...
    local m; for m in "${@:2}"; do
        ckpt-train -q --config "$recipe" --full-ft true --nproc "$1" --device-memory-limit 80G --init "$top/tools/recipes/configs/$m.json" --tokenizer "$golden/saved/llama" \
            --train-file "$golden/parquet/instructions.parquet" --eval-file "$golden/parquet/instructions.parquet" "${task[@]}" --train-split-ratio 0 --report-to none \
            --dry-run -o "$out/none" || { echo "$m"; return 1; }
    done
}
prepared() { all "$D"/{training,validation,test}.jsonl && [[ $D == "$out/datasets/$name/default/train=0.9-val=0.05-test=0.05" ]]; }
mapped() { grep -q '"instruction"' "$D/training.jsonl" && ckpt-eval -q "${task[@]}" --eval-file "$D/test.jsonl" --generate 1 --max-new-tokens 4 "$C" --base "$base" | grep -q 'Question: '; }
kept() {        # a second run cuts nothing anew
    touch -d 2001-01-01 "$D/training.jsonl"
    ckpt-train -q --config "$recipe" "${task[@]}" "${model[@]}" --train-file "$DATA" --dataset-name "$name" --data-dir "$out/datasets" "${more[@]}" --dry-run -o "$out/none" || return
    [ "$(stat -c %Y "$D/training.jsonl")" -lt 1000000000 ]
}
bests() { [ "$(find "$results" -maxdepth 1 -name 'checkpoint-*' | wc -l)" -le 2 ] && ckpt-inspect --state --json "$C" | tr -d ' \n' | grep -q '"best_metric":[0-9]' && cmp "$C/adapter_model.safetensors" "$results/adapter_model.safetensors"; }
layout() { all "$C"/adapter_{config.json,model.safetensors} && [ "$(find "$results/logs" -name 'events.out.tfevents.*' | wc -l)" -ge 1 ]; }
converts() {    # the newest of the results: merged by default, an adapter on request
    ckpt-merge -q -o "$out/whole" "$results" && same_tensors "$out/whole" "$(cat "$out/newest")" && ckpt-merge -q --no-merge --to peft -o "$out/adapter" "$results" &&
        cmp "$out/adapter/adapter_model.safetensors" "$C/adapter_model.safetensors" && ! ckpt-inspect "$out/whole" | grep -q lora_ && same_loss
}
# The run's loss of its best checkpoint is that of the merged model, to half a percent.
same_loss() {
    local run model
    run=$(ckpt-inspect --state --json "$C" | tr -d ' \n' | sed 's/.*"best_metric":\([0-9.]*\).*/\1/')
    model=$(ckpt-eval -q --json "${task[@]}" ${SMALL:+--max-seq-length 64} --eval-file "$D/validation.jsonl" "$out/whole" | loss_of)
    awk -v run="$run" -v model="$model" 'BEGIN { print "loss: " run " of the run, " model " of the model"; off = run / model - 1; exit !(off > -0.005 && off < 0.005) }'
}
same_tensors() { ckpt-inspect -q --diff "$1" "$2"; }
bert=(--metric bertscore --bertscore-model "${BERTSCORE:-hf://FacebookAI/roberta-large}" --bertscore-layer "${BERTSCORE_LAYER:-0}" --max-new-tokens 32 --max-eval-samples 100)
newest_tested() {      # what is found by itself is the newest of each
    beside bertscore_f1 "${task[@]}" --results "$out/results" --datasets "$out/datasets" "${bert[@]}" && cp "$out/predictions.jsonl" "$out/found.jsonl" &&
        [ "$(wc -l <"$out/found.jsonl")" = "$(head -n 100 "$D/test.jsonl" | wc -l)" ] && beside bertscore_f1 "${task[@]}" --eval-file "$D/test.jsonl" "${bert[@]}" "$C" && diff "$out/found.jsonl" "$out/predictions.jsonl"
}
judged() { beside bertscore_f1 "${task[@]}" --eval-file "$D/test.jsonl" "${bert[@]}" "$(cat "$out/newest")" && diff "$out/found.jsonl" "$out/predictions.jsonl"; }
# The run once more, but a rank is killed after the first checkpoint: it starts again by itself and ends with the bits of the
# unbroken one.  A small run is made longer, so that there is a while in which to kill.
once_more() { $(train_on "$nproc" --max-restarts 2) --config "$recipe" "${task[@]}" "${model[@]}" --train-file "$DATA" --dataset-name "$name" --data-dir "$out/datasets" --report-to none "${more[@]}" ${SMALL:+--max-steps 60 --early-stopping-patience 60} -o "$1"; }
killed() {
    local whole=$results pid; [ -z "${SMALL:-}" ] || { whole=$out/unbroken; once_more "$whole" || return; }
    once_more "$out/killed" 2>"$out/.killed" & pid=$!
    until [ -n "$(newest "$out/killed" 2>/dev/null)" ] || ! kill -0 $pid; do sleep 0.02; done
    pkill -KILL -n -f -- "^ckpt-train .*-o $out/killed" && wait $pid || { cat "$out/.killed"; return 1; }
    grep -q 'killed by SIGKILL' "$out/.killed" && cmp "$whole/adapter_model.safetensors" "$out/killed/adapter_model.safetensors" && ls "$C"/global_step*/*rank_1* && rm -rf "$out"/{unbroken,killed}
}
# All weights of the model: its checkpoint as a model, tested, with its predictions.
all_weights() {
    rm -rf "$out"/{whole,adapter}
    $(train_on "$nproc") -q --config "$recipe" "${task[@]}" "${model[@]}" --train-file "$D/training.jsonl" --eval-file "$D/validation.jsonl" --train-split-ratio 0 --report-to none "${more[@]}" --full-ft true --optim adamw_8bit \
        --eval-steps 2 --max-steps 2 --no-final-model -o "$out/all" && ckpt-merge -q --verify -o "$out/all-merged" "$out/all" && rm -rf "$out/all" &&
        beside f1 "${task[@]}" --eval-file "$D/test.jsonl" --max-eval-samples 8 --metric squad --max-new-tokens 8 "$out/all-merged"
}
cloned "$hub" "$out/clone"
root() { (cd "$(cat "$out/newest")" && find . -type f | sort | xargs sha256sum) | (cd "$out/clone" && sha256sum -c --quiet); }
looks() { ckpt-inspect -q "$C" "$results"/logs/events* "$C/adapter_model.safetensors" >/dev/null && ckpt-inspect -q --args "$C" >/dev/null; }

duty E1 "Qwen3, Llama, Mistral, Mixtral, Phi-3: adapters and all weights; plans of all weights of 7B to 8x7B and 70B" eval 'families && plans 32 Qwen3-8B Qwen3-14B Llama-3-8B Llama-3-70B Mistral-7B Mixtral-8x7B Phi-3-medium'
duty E2 "any data set: its split by ratios, templates with {field}, columns mapped" mapped
duty E3 "the prepared data are kept, and a second run leaves them" eval 'prepared && kept'
duty E4 "every value of lora-sft.yaml is the system's" defaults
duty E5 "checkpoints only of better evaluations, two at most; the best is the final one" bests
duty E6 "results/MODEL/checkpoint-*/ with PEFT's files, results/MODEL/logs/ for TensorBoard" layout
duty E7 "the newest checkpoint on the newest test.jsonl: adapter applied in memory, generations in batches, BERTScore; predictions are kept" newest_tested
duty E8 "the newest checkpoint as a model, merged; as an adapter with --no-merge" converts
duty E9 "a rank is killed: the run starts again by itself, to the same bits; each rank has its part of a checkpoint" killed
duty E10 "plans of all weights of 13B, 34B and 8x22B; a checkpoint of all weights as a model, tested, predictions kept" eval 'plans 64 Llama-2-13b CodeLlama-34b Mixtral-8x22B && all_weights'
duty X3 "BERTScore of the merged model beside the base's" judged
duty X1 "one line: train, merge, evaluate, publish; the clone has the bytes of what was merged" root
duty X2 "adapter, arguments and events are inspected" looks
ticks
