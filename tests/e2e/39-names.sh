# Names and files of other trainers: each field of theirs is accounted for, their files run as they
# stand, and what is not done is refused by name.  [A10, C2, C8, D4, E4]
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 60 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
shown() { ckpt-train "$@" --print-config; }
# value NAME OPTION... - what an option comes to.
value() { local name=$1; shift; shown "$@" 2>"$T/.err" | sed -nE "s/^(# )?$name: (.*)  # .*/\2/p"; }
is() { local name=$1 want=$2 got; shift 2; got=$(value "$name" "$@"); [ "$got" = "$want" ] || { echo "$name: $got, $want wanted"; cat "$T/.err"; return 1; }; }

# -- fields -------------------------------------------------------------------------------------
ckpt-train --print-fields >"$T/fields"
cut -f1 $G/fields.tsv | sort -u >"$T/classes"
all_there() { cut -f2 $G/fields.tsv | sort -u >"$T/a"; awk -F'\t' '$1 == "transformers" { print $2 }' "$T/fields" | sort -u >"$T/b"; comm -23 "$T/a" "$T/b" | tee "$T/bad"; [ ! -s "$T/bad" ]; }
t "every field of the classes is in the table" all_there
t "none is there twice" bash -c "! cut -f1,2 '$T/fields' | sort | uniq -d | grep ."
t "each that is not done says why, each that does names an option or says what" bash -c "! awk -F'\t' '\$3 != \"harmless\" && \$4 == \"\"' '$T/fields' | grep ."
options_there() { grep -oE -- '--[a-z0-9-]+' <(awk -F'\t' '$3 == "does" { sub(/;.*/, "", $4); print $4 }' "$T/fields") | sort -u >"$T/a"; ckpt-train --help | grep -oE '^ +(-., )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+' | sort -u >"$T/b"; comm -23 "$T/a" "$T/b" | tee "$T/bad"; [ ! -s "$T/bad" ]; }
t "options that fields set exist" options_there
defaults() {    # CLASS - its fields in one file, and one by one on the command line
    awk -F'\t' -v c="$1" '$1 == c { print $2 ": " $3 }' $G/fields.tsv >"$T/f.yaml"
    shown --config "$T/f.yaml" >/dev/null || return 1
    awk -F'\t' -v c="$1" '$1 == c && $3 ~ /^(true|false|-?[0-9.e-]+|"[^"]+")$/ { gsub(/"/, "", $3); print "--" $2, $3 }' $G/fields.tsv >"$T/f.args"
    while read -r name v; do shown "$name" "$v" >/dev/null || { echo "$name $v"; return 1; }; done <"$T/f.args"
}
while read -r class; do t "defaults of $class are accepted" defaults "$class"; done <"$T/classes"
alone() {       # fields that are not done, each with a value of no sense
    awk -F'\t' '$1 == "transformers" && $3 == "not done" && $2 !~ /[.*]/ { print $2 }' "$T/fields" >"$T/names"
    [ "$(wc -l <"$T/names")" -gt 20 ] || return 1
    while read -r name; do
        printf '%s: surely-not\n' "$name" >"$T/f.yaml"
        ckpt-train --config "$T/f.yaml" --print-config >/dev/null 2>"$T/.err"
        [ $? = 78 ] && [ "$(wc -l <"$T/.err")" = 1 ] && grep -q "$name" "$T/.err" || { echo "$name:"; cat "$T/.err"; return 1; }
    done <"$T/names"
}
t "fields that are not done are refused in one line, with the file" alone
t "and what was not done once is" is neftune_noise_alpha 5 --neftune_noise_alpha 5
lists() { sed -n '/^.\\" fields begin/,/^.\\" fields end/p' man/ckpt-run.5 | sed '1d;$d' >"$T/a"; awk -f man/fields.awk "$T/fields" >"$T/b"; diff "$T/a" "$T/b"; }
t "ckpt-run(5) has the same lists (make fields)" lists
for shell in bash zsh fish; do t "$shell completes them" bash -c "ckpt-train --completion $shell | grep -q model_name_or_path"; done

# -- the command line of a script -----------------------------------------------------------------
args=(--model_name_or_path "$T/base" --train_file "$T/train.jsonl" --do_train --bf16 False --report_to none --output_dir "$T/cli" --max_length 32
    --max_steps 2 --logging_steps 1 --save_strategy no --lr_scheduler_type cosine_with_min_lr --lr_scheduler_kwargs '{"min_lr": 1e-6}' --warmup_steps 0.5
    --use_peft --lora_r 2 --lora_target_modules query_key_value dense --gradient_checkpointing_kwargs '{"use_reentrant": false}' --dataloader_num_workers 4)
t "a script's command line runs" bash -c 'ckpt-train "$@" 2>"'"$T"'/said" >"'"$T"'/path"' x "${args[@]}"
t "what has no effect is told in one line" grep -qx 'ckpt-train: accepted, without effect here: do_train, gradient_checkpointing_kwargs, dataloader_num_workers' "$T/said"
once() { ckpt-train "${args[@]}" --nproc 2 --output_dir "$T/cli-2" 2>"$T/said" >/dev/null && [ "$(grep -c 'accepted, without effect here' "$T/said")" = 1 ]; }
t "and once where there are two ranks" once
t "values are the script's" bash -c "grep -q '\"r\": 2' $T/cli/adapter_config.json && grep -q dense $T/cli/adapter_config.json"
t "lists take words" is target_modules '[query_key_value, dense]' "${args[@]}"
t "fractions of steps are a ratio" is warmup_ratio 0.5 "${args[@]}"
t "a flag takes true and false" is bf16 true --bf16 true
t "a choice takes Python's words for them" is greater_is_better '"false"' --greater_is_better False
t "transformers' later name of gradient_checkpointing" is gradient_checkpointing true --activation_checkpointing True
t "what transformers 4 had by default for several ranks" is bf16 true --average_tokens_across_devices False --bf16 True
t "what a file says for resumed runs, in a fresh one" ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-steps 1 --no-final-model --ignore_data_skip True -o "$T/fresh"
t "peft's defaults" is lora_alpha 32 --use_peft
expect_says 66 "a name of the Hub that is no folder" "hint: a model of the Hub is named hf://Qwen/Qwen3-8B" ckpt-train --model Qwen/Qwen3-8B --train-file "$T/train.jsonl"
t "model_name_or_path takes it" is model '"hf://Qwen/Qwen3-8B"' --model_name_or_path Qwen/Qwen3-8B
t "dataset_name too" is dataset_name trl-lib/Capybara --dataset_name trl-lib/Capybara

# -- files ------------------------------------------------------------------------------------------
for want in $G/recipes/*.want; do
    file=$(ls "${want%.want}".[jy]*)
    recipe() { shown --config "$file" >"$T/.cfg" || return; grep -E "  # .*/$(basename "$file"):[0-9]+$" "$T/.cfg" | sed 's/  # [^#]*$//' | diff - "$want"; }
    t "$(basename "$file") comes to its values" recipe
done
cat >"$T/trl.yaml" <<'X'
model_name_or_path: Qwen/Qwen3-0.6B
dataset_name: trl-lib/Capybara
dataset_num_proc: 4
use_peft: true
lora_r: 32
X
t "TRL's own defaults apply" is learning_rate 2.0e-05 --config "$T/trl.yaml"
t "with the place they come from" bash -c "ckpt-train --config $T/trl.yaml --print-config | grep -qx 'max_seq_length: 1024  # default of TRL'"
t "a flag wins" is learning_rate 0.0001 --config "$T/trl.yaml" --learning-rate 1e-4
t "an adapter" is lora_rank 32 --config "$T/trl.yaml"
evaluating() { ckpt-train --config <(cat "$T/trl.yaml"; echo 'eval_strategy: epoch') --print-config "$@" | grep -q '^eval_split: test  # default of TRL$'; }
t "a split to evaluate on, where there is evaluation" evaluating
t "not where data is given for it" bash -c "! ckpt-train --config $T/trl.yaml --eval-strategy epoch --print-config --eval-file x | grep '^eval_split:'"
t "nor where nothing is evaluated" bash -c "! ckpt-train --config $T/trl.yaml --print-config | grep '^eval_split:'"
sed "s|Qwen/Qwen3-0.6B|$T/base|; s|trl-lib/Capybara|$T/train.jsonl|; s|lora_r: 32|lora_r: 2|" "$T/trl.yaml" >"$T/trl-here.yaml"
t "TRL's file runs" ckpt-train -q --device cpu --config "$T/trl-here.yaml" --lora_target_modules query_key_value --max-length 32 --max-steps 2 -o "$T/trl-run"
sed -i 's/use_peft: true/use_peft: false/' "$T/trl.yaml"
t "and none where it says so" is lora_rank 0 --config "$T/trl.yaml"
again() { shown --config "$1" | grep -v "^#" | sed 's/  # [^#]*$//' >"$T/a"; shown --config "$T/a" | grep -v "^#" | sed 's/  # [^#]*$//' >"$T/b"; diff "$T/a" "$T/b"; }
t "what is printed is a run file of the same values" again $G/recipes/open-r1.yaml
mkdir "$T/lf" && cp "$T/train.jsonl" "$T/lf/a.jsonl" && sed 's/"instruction"/"title"/' "$T/train.jsonl" >"$T/lf/b.jsonl"
printf '{"a": {"file_name": "a.jsonl"}, "b": {"file_name": "b.jsonl", "columns": {"prompt": "title"}}, "hub": {"hf_hub_url": "o/n"}}' >"$T/lf/dataset_info.json"
cat >"$T/lf.yaml" <<X
### model
model_name_or_path: $T/base
trust_remote_code: true
### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 2
lora_target: all
### dataset
dataset: a
dataset_dir: $T/lf
template: empty
cutoff_len: 32
max_samples: 20
overwrite_cache: true
preprocessing_num_workers: 16
### output
output_dir: $T/lf-run
logging_steps: 1
save_steps: 500
plot_loss: true
overwrite_output_dir: true
report_to: none
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-4
num_train_epochs: 1.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
val_size: 0.1
eval_strategy: steps
eval_steps: 5
X
t "LLaMA-Factory's file runs" bash -c "cd '$T' && ckpt-train -q --device cpu --config '$T/lf.yaml' --max-steps 2"
t "a template makes chats of instructions" is chat_prompts true --config <(sed 's/^template: empty/template: qwen3/' "$T/lf.yaml")
t "pre-training is packed" is packing true --config <(sed 's/^stage: sft/stage: pt/' "$T/lf.yaml")
t "but where it says not" is packing false --config <(sed 's/^stage: sft/stage: pt\npacking: false/' "$T/lf.yaml")
t "and instructions are not" is packing false --config "$T/lf.yaml"
t "its words for what is refused by name, images and inference" shown --config <(cat "$T/lf.yaml"; printf '%s\n' 'image_max_pixels: 262144' 'pref_loss: sigmoid' 'galore_rank: 8' 'export_dir: x' 'infer_backend: huggingface')
t "alpha is twice the rank" is lora_alpha 4 --config "$T/lf.yaml"
t "columns of dataset_info.json" is field_mapping '"{\"instruction\": \"title\"}"' --config <(sed 's/^dataset: a/dataset: b/' "$T/lf.yaml")
# What a data set's description says is done, or refused by name.
described() {   # STATUS NAME TEXT DESCRIPTION
    printf '{"a": {"file_name": "a.jsonl"}, "c": %s}' "$4" >"$T/lf/other/dataset_info.json"
    expect_in "${3:+.err}" "$3" "$1" "$2" ckpt-train --print-config --config <(sed "s/^dataset: a/dataset: a,c/; s|^dataset_dir: .*|dataset_dir: $T/lf/other|" "$T/lf.yaml")
}
mkdir "$T/lf/other"
described 78 "data sets of other shapes in one run" "are read alike, but a has instruction, input and output, and c has chats in conversations" '{"file_name": "c.jsonl", "formatting": "sharegpt"}'
described 78 "a column of earlier turns" "c: columns.history earlier is not done" '{"file_name": "c.jsonl", "columns": {"history": "earlier"}}'
described 78 "a system's text beside instructions" "c: columns.system is done in chats alone" '{"file_name": "c.jsonl", "columns": {"system": "sys"}}'
described 78 "other names of roles" "c: tags.user_tag customer is not done" '{"file_name": "c.jsonl", "tags": {"user_tag": "customer"}}'
described 78 "a part of a data set" "c: num_samples is not done" '{"file_name": "c.jsonl", "num_samples": 5}'
described 0 "what is said beside its default" "" '{"file_name": "c.jsonl", "formatting": "alpaca", "columns": {"prompt": "instruction", "system": null}, "tags": {"role_tag": "from", "user_tag": "human"}}'
t "a data set of the Hub" is train_file '["hf://datasets/o/n"]' --config <(sed 's/^dataset: a/dataset: hub/' "$T/lf.yaml")
expect_says 78 "a data set that is not there" "has no data set none" ckpt-train --config <(sed 's/^dataset: a/dataset: none/' "$T/lf.yaml")
expect_says 78 "stages that are not done" "stage dpo: supervised fine-tuning" ckpt-train --config <(sed 's/^stage: sft/stage: dpo/' "$T/lf.yaml")
printf 'tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n' > "$T/tune.yaml"
expect_says 78 "torchtune's file is named" "hint: a file of torchtune is not read" ckpt-train --config "$T/tune.yaml"
cat >"$T/ax.yml" <<X
base_model: $T/base
datasets:
  - path: $T/train.jsonl
    type: alpaca
val_set_size: 0.1
output_dir: $T/ax-run
adapter: lora
lora_model_dir:
sequence_len: 256
sample_packing: true
lora_r: 2
lora_alpha: 4
lora_target_linear: true
wandb_project:
gradient_accumulation_steps: 2
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
logging_steps: 1
flash_attention: true
special_tokens:
  pad_token: "<|end_of_text|>"
X
t "axolotl's file runs" bash -c "cd '$T' && ckpt-train -q --device cpu --config '$T/ax.yml' --max-steps 2"
printf '%s\n' 'evals_per_epoch: 4' 'saves_per_epoch: 1' 'cosine_min_lr_ratio: 0.1' 'loraplus_lr_ratio: 8' 'wandb_project: try' | cat <(grep -v '_per_epoch\|^wandb_project\|^num_epochs\|^lr_scheduler\|^learning_rate' "$T/ax.yml") - <(printf '%s\n' 'num_epochs: 2' 'lr_scheduler: cosine' 'learning_rate: 0.0002') >"$T/ax2.yml"
t "axolotl's evaluations by epoch" is eval_steps 0.125 --config "$T/ax2.yml"
t "its checkpoints by epoch" is save_steps 0.5 --config "$T/ax2.yml"
t "its least rate of a cosine" is min_lr 2.0e-05 --config "$T/ax2.yml"
t "is that schedule's" is lr_scheduler_type cosine_with_min_lr --config "$T/ax2.yml"
t "its LoRA+" is loraplus_lr_ratio 8 --config "$T/ax2.yml"
t "its W&B" is report_to '[wandb]' --config "$T/ax2.yml"
printf 'model_name_or_path: x\nlr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 3, num_stable_steps: 4, decay_type: linear}\n' >"$T/kwargs.yaml"
t "numbers of a schedule from a file" is lr_scheduler_kwargs '"num_decay_steps=3,num_stable_steps=4,decay_type=linear"' --config "$T/kwargs.yaml"
axd() { is "$1" "$2" --config <(grep -v '^lr_scheduler\|^eval_batch\|^save_' "$T/ax.yml"; echo "${3:-}"); }
t "without a schedule axolotl's is a cosine" axd lr_scheduler_type cosine
t "with its warmup" axd warmup_ratio 0.03
t "but where steps of it are given" axd warmup_ratio 0 "warmup_steps: 0"
t "its evaluations have the batch of its steps" axd per_device_eval_batch_size 2
t "it saves each epoch" axd save_strategy epoch
t "but where it counts steps" axd save_strategy steps "save_steps: 5"
t "and keeps four" axd save_total_limit 4
t "it drops rows that are too long" axd excess_length_strategy drop
t "but of texts it has a piece" is excess_length_strategy truncate --config <(sed 's/type: alpaca/type: completion/' "$T/ax.yml")
t "or does as it says" axd excess_length_strategy raise "excess_length_strategy: raise"
printf '%s\n' 'fsdp_version: 2' 'fsdp_config: {offload_params: false, state_dict_type: FULL_STATE_DICT, auto_wrap_policy: TRANSFORMER_BASED_WRAP, reshard_after_forward: true}' | cat "$T/ax.yml" - >"$T/ax-fsdp.yml"
t "its FSDP of version 2 shards" is fsdp full_shard --config "$T/ax-fsdp.yml"
t "and runs, on two ranks" ckpt-train -q --device cpu --nproc 2 --config "$T/ax-fsdp.yml" --no-packing --max-steps 1 --data-dir "$T/ax-data" -o "$T/ax-fsdp"
pretraining() { printf '%s\n' "base_model: $T/base" 'sequence_len: 32' 'micro_batch_size: 1' 'max_steps: 2' "output_dir: $T/ax-pt" "$@" >"$T/ax-pt.yml"; }
printf '{"text": "a horse is an animal"}\n{"text": "a cart is drawn by a horse"}\n' >"$T/texts.jsonl"
pretraining 'pretraining_dataset:' "  - path: $T/texts.jsonl" '    type: pretrain'
t "its data of pre-training" ckpt-train -q --device cpu --config "$T/ax-pt.yml"
t "is cut" is excess_length_strategy truncate --config "$T/ax-pt.yml"
pretraining "pretraining_dataset: $T/texts.jsonl"
t "by its path alone" is train_file "[$T/texts.jsonl]" --config "$T/ax-pt.yml"
pretraining "datasets: [{path: $T/train.jsonl, type: alpaca}]" 'adapter: lora' 'lora_rank_pattern: {query_key_value: 4}' 'is_qwen_derived_model: true' 'gpu_memory_limit: 20GiB'
t "ranks of modules in its words" is rank_pattern '["query_key_value=4"]' --config "$T/ax-pt.yml"
t "torchao's eight bits" is optim adamw_8bit --config <(sed "s/^optimizer:.*/optimizer: adamw_torch_8bit/" "$T/ax.yml")
expect_says 78 "what is left undone of it says why" "tensor_parallel_size 2: ranks share data alone" ckpt-train --config <(cat "$T/ax.yml"; echo 'tensor_parallel_size: 2')
expect_says 78 "so do preferences" "beta 0.1: supervised fine-tuning is done; preferences and rewards are not" ckpt-train --config <(cat "$T/trl.yaml"; echo 'beta: 0.1')
t "alpaca has its prompt" is completion_template '"{output}"' --config "$T/ax.yml"
cat >"$T/custom.py" <<'X'
import json, sys
out = sys.argv[1]
for i, line in enumerate(open("tests/golden/axolotl.jsonl", encoding="utf-8")):
    case = json.loads(line)
    open(f"{out}/c{i}.yml", "w").write("base_model: %s/base\nmicro_batch_size: 1\ndatasets:\n  - %s\n" % (
        out, json.dumps({"path": f"{out}/c{i}.jsonl", "type": case["type"]})))
    open(f"{out}/c{i}.jsonl", "w").write("".join(json.dumps(r) + "\n" for r in case["records"]))
    open(f"{out}/c{i}.want", "w").write("".join(f"{[m['prompt'], m['completion']]}\n" for m in case["made"]))
X
unquoted() { value "$1" --config "$2" | python3 -c 'import json, sys; print(json.load(sys.stdin), end=".")'; }
custom() {      # prompts and completions of a file's own kinds of records, against axolotl's own code
    local c prompt completion
    python3 "$T/custom.py" "$T" || return
    for c in "$T"/c[0-9].want; do
        c=${c%.want} prompt=$(unquoted prompt_template "$c.yml") completion=$(unquoted completion_template "$c.yml")
        ckpt-eval -q --eval-file "$c.jsonl" --prompt-template "${prompt%.}" --completion-template "${completion%.}" --max-new-tokens 1 \
            --in-order --predictions-out "$c.out" "$T/base" >/dev/null || return
        diff "$c.want" <(python3 -c 'import json, sys
for line in sys.stdin:
    row = json.loads(line)
    print([row["prompt"], row["reference"]])' <"$c.out") || return
    done
}
t "kinds of records with formats of their own have axolotl's texts" custom
own() { ckpt-train --print-config --config <(sed "s/^    type: alpaca/    type: $1/" "$T/ax.yml"); }
expect_says 78 "words that stand for nothing in a format" "no_input_format: {input} stands for nothing there; {instruction} does" own '{no_input_format: "{instruction} {input}"}'
expect_says 78 "and conversions of Python's" "format: {input!r} stands for nothing there; {instruction} or {input} does" own '{format: "{input!r}"}'
expect_says 78 "and lone braces" 'system_format: a lone brace at "} {system}"' own '{system_format: "} {system}"}'
expect_says 78 "and two kinds of records" "data sets of several kinds" own 'alpaca\n  - path: x\n    type: {format: "{input}"}'
expect_says 78 "of plain names, too" "data sets of several kinds" own 'alpaca\n  - path: x\n    type: chat_template'
t "two kinds of chats are one" own 'chat_template\n  - path: x\n    type: sharegpt'
expect_says 78 "qlora is not done" "adapter qlora: lora is done" ckpt-train --config <(sed 's/^adapter: lora/adapter: qlora/' "$T/ax.yml")

# -- special tokens -------------------------------------------------------------------------------
# Demo: <unk> 0, <s> 1, </s> 2, <pad> 3.
printf '{"eos_token_id": 2, "pad_token_id": 3, "temperature": 0.7}\n' >"$T/base/generation_config.json"
special() { ckpt-train -q --device cpu --model "$T/base" -t "$T/train.jsonl" --max-seq-length 32 --max-steps 2 --logging-steps 1 -o "$T/$1" "${@:2}"; }
member() { sed -nE 's/.*"'"$2"'": *("[^"]*"|\[[^]]*\]|[0-9]+).*/\1/p' "$T/$1"; }
says_it() { [ "$(member "$@")" = "$3" ] || { member "$@"; return 1; }; }
plain() { special plain && special same --eos_token '</s>' --pad_token '<pad>' --bos-token '<s>' --unk-token '<unk>'; }
t "tokens that the tokenizer has" plain
same_tokens() { for f in config.json tokenizer_config.json special_tokens_map.json generation_config.json; do cmp "$T/plain/$f" "$T/same/$f" || return; done; }
t "change no file" same_tokens
t "and no loss" same_losses plain same
t "other tokens" special other --eos_token '<pad>' --pad_token '</s>'
for f in other other/checkpoint-2; do
    t "the tokenizer in $f ends with the token" says_it $f/tokenizer_config.json eos_token '"<pad>"'
    t "and pads with the other" says_it $f/special_tokens_map.json pad_token '"</s>"'
    t "config.json has the id" says_it $f/config.json eos_token_id 3
    t "and that of the padding" says_it $f/config.json pad_token_id 2
    t "generation ends at both" says_it $f/generation_config.json eos_token_id '[3,2]'
done
t "texts end with it" bash -c "! diff <(sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' $T/plain/metrics.jsonl) <(sed -n 's/.*\"loss\":\([^,]*\).*/\1/p' $T/other/metrics.jsonl)"
sed 's/"eos_token": "<\/s>"/"eos_token": "<pad>"/' "$T/base/tokenizer_config.json" >"$T/tc.json"
cp -r "$T/base" "$T/base-other" && cp "$T/tc.json" "$T/base-other/tokenizer_config.json"
ended() { special ended --model "$T/base-other"; }
t "as with a tokenizer that has it" ended
t "to the same losses" same_losses ended other
t "a run that goes on from its checkpoint has them" ckpt-train -q --device cpu -t "$T/train.jsonl" --max-seq-length 32 --max-steps 3 --resume-from-checkpoint latest -o "$T/other"
t "without being told again" says_it other/checkpoint-3/tokenizer_config.json eos_token '"<pad>"'
rm "$T/base-other"/{tokenizer_config,special_tokens_map}.json
t "a tokenizer without settings" special bare --model "$T/base-other" --eos-token '<pad>'
t "gets a file that names the token" says_it bare/special_tokens_map.json eos_token '"<pad>"'
t "an adapter" special adapter --lora-rank 2 --eos-token '<s>'
t "lies beside a tokenizer with it" says_it adapter/tokenizer_config.json eos_token '"<s>"'
expect_says 78 "a token that is not there" "--eos-token <|im_end|> is no token of the vocabulary" special x --eos-token '<|im_end|>'
expect_says 78 "another beginning" "--bos-token </s>: the tokenizer has <s>, and texts begin as its files say" special x --bos-token '</s>'
left_out() { ckpt-train --dry-run --device cpu --model "$T/base" -t "$T/train.jsonl" --pad-token '[PAD]' 2>"$T/said"; grep -qF "warning: --pad-token [PAD] is left out: it is no token of the vocabulary, and nothing is padded" "$T/said"; }
t "where nothing is padded the padding may be unknown" left_out
expect_says 78 "but not where there is" "--pad-token [PAD] is no token" special x --pad-token '[PAD]' --loss-on-padding
printf '%s\n' 'special_tokens: {bos_token: "<s>", eos_token: "<pad>", unk_token: "<unk>"}' | cat <(grep -v 'special_tokens\|pad_token' "$T/ax.yml") - >"$T/ax3.yml"
t "axolotl's special tokens" is eos_token '"<pad>"' --config "$T/ax3.yml"
t "run" ckpt-train -q --device cpu --config "$T/ax3.yml" --max-steps 1 --data-dir "$T/ax3-data" -o "$T/ax3"
t "and are saved" says_it ax3/tokenizer_config.json eos_token '"<pad>"'
cat >"$T/acc.yaml" <<'X'
compute_environment: LOCAL_MACHINE
deepspeed_config: {gradient_accumulation_steps: 2, offload_optimizer_device: none, zero3_init_flag: true, zero_stage: 3}
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
tpu_env: []
X
t "accelerate's file beside another" ckpt-train -q --device cpu --config "$T/acc.yaml" --config <(printf 'model: %s\ntrain_file: %s\nmax_seq_length: 32\nmax_steps: 2\noutput_dir: %s\n' "$T/base" "$T/train.jsonl" "$T/acc-run")
sed 's/^distributed_type.*/distributed_type: FSDP/; s/^deepspeed_config.*/fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true, fsdp_state_dict_type: FULL_STATE_DICT}/' "$T/acc.yaml" >"$T/acc2.yaml"
t "its FSDP of version 2 shards" is fsdp full_shard --config "$T/acc2.yaml"
sed 's/fsdp_version: 2, fsdp_reshard_after_forward: true/fsdp_sharding_strategy: SHARD_GRAD_OP/' "$T/acc2.yaml" >"$T/acc1.yaml"
t "of version 1 as its strategy says" is fsdp shard_grad_op --config "$T/acc1.yaml"
expect_says 78 "other ways to share are refused" "distributed_type MEGATRON_LM: GPUs and CPUs share data" ckpt-train --config <(sed 's/DEEPSPEED/MEGATRON_LM/' "$T/acc.yaml")
t "shards of two ranks" bash -c "ls $T/acc-run/checkpoint-2/global_step2/*rank_1* >/dev/null"
expect_says 78 "an unknown key has the nearest name" "hint: did you mean lora_target?" ckpt-train --config <(sed 's/^lora_target:/lora_tarjet:/' "$T/lf.yaml")
printf 'seed: 1\n' >"$T/1.yaml"; printf 'seed: 2\n' >"$T/2.yaml"
t "of two files the last one wins" is seed 2 --config "$T/1.yaml" --config "$T/2.yaml"
t "standard input is a file" bash -c "ckpt-train --config - --print-config <'$T/1.yaml' | grep -q '^seed: 1 '"

# -- DeepSpeed ----------------------------------------------------------------------------------------
D=$G/ds_configs
for f in "$D"/*.json; do t "$(basename "$f") is read" shown --deepspeed "$f"; done
ds() {          # OUT OPTION... - two ranks, four steps
    local out=$1; shift
    ckpt-train -q --device cpu --nproc 2 --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --max-steps 4 --logging-steps 1 --save-steps 4 \
        --learning-rate 1e-3 --warmup-steps 2 -o "$T/$out" "$@"
}
t "zero3_auto.json trains" ds auto --deepspeed "$D/zero3_auto.json" --bf16 --per_device_train_batch_size 3 --gradient_accumulation_steps 2
t "C8 as the options it stands for" ds own --bf16 --per-device-train-batch-size 3 --gradient-accumulation-steps 2 --zero-stage 3 --offload-optimizer cpu \
    --stage3-gather-16bit-weights-on-model-save --lr-scheduler-type WarmupLR
t "C8 to the same bits" same_losses auto own
t "files by pipes, for two ranks" ds piped --deepspeed <(cat "$D/zero3_auto.json") --bf16 --config <(printf 'per_device_train_batch_size: 3\ngradient_accumulation_steps: 2\n')
t "to the same bits again" same_losses auto piped
t "weights are gathered" test -s "$T/auto/checkpoint-4/model.safetensors"
printf '{"train_batch_size": 12, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 1}, "bf16": {"enabled": true},\n "scheduler": {"type": "WarmupLR"}}' >"$T/tb.json"
t "a batch of all ranks gives the micro-batch" ds tb --deepspeed "$T/tb.json" --stage3-gather-16bit-weights-on-model-save --no-stage3-gather-16bit-weights-on-model-save
t "the same losses again" losses_near own tb 1e-3 4
sed 's/12/13/' "$T/tb.json" >"$T/odd.json"
expect_says 78 "one that does not divide" "--train-batch-size 13 is not 2 ranks times --per-device-train-batch-size 3 times --gradient-accumulation-steps 2" ds odd --deepspeed "$T/odd.json"
expect_says 78 "a contradiction names both" "gradient_accumulation_steps is 2, but --gradient-accumulation-steps says 4" ckpt-train --deepspeed "$T/tb.json" --gradient-accumulation-steps 4
printf 'gradient_accumulation_steps: 4\n' >"$T/2.yaml"
expect_says 78 "also that of a run file" "2.yaml:1 says 4" ckpt-train --deepspeed "$T/tb.json" --config "$T/2.yaml"
expect_says 78 "an unknown member" "hint: did you mean zero_optimization.stage?" ckpt-train --deepspeed <(printf '{"zero_optimization": {"stagee": 3}}')
expect_says 78 "an optimizer that is not done" "optimizer Lamb is not done" ckpt-train --deepspeed <(printf '{"optimizer": {"type": "Lamb"}}')
expect_says 78 "NVMe" "none of: none cpu" ckpt-train --deepspeed <(printf '{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}')
t "MiCS is hybrid sharding" is hybrid_shard_size 8 --deepspeed <(printf '{"zero_optimization": {"stage": 3, "mics_shard_size": 8}}')
t "a comment" is zero_stage 2 --deepspeed <(printf '{"_comment": "as people write them", "zero_optimization": {"stage": 2}}')
t "a scale of losses in a file of bfloat16 is passed over" is bf16 true --deepspeed "$D/zero2_offload.json" --bf16
t "and obeyed with float16" is initial_scale_power 15 --deepspeed "$D/cifar.json"
t "within another file" is zero_stage 2 --config <(printf 'learning_rate: 1e-4\ndeepspeed: %s\n' "$D/decay.json")
t "as a member of it" is zero_stage 2 --config <(printf 'learning_rate: 1e-4\ndeepspeed: {zero_optimization: {stage: 2}}\n')
fitting() { ckpt-train --dry-run --auto-find-batch-size --device-memory-limit 1100M --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 "$@" 2>"$T/said"; cat "$T/said"; }
t "the largest micro-batch that fits" fitting --per-device-train-batch-size 8192 --packing
t "is told" grep -qE 'memory holds a micro-batch of [0-9]+: ' "$T/said"

# -- the five systems' own files -------------------------------------------------------------------
cat >"$T/A.yaml" <<X
model_name_or_path: $T/base
output_dir: $T/A
num_train_epochs: 1
max_steps: 2
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 2.0e-5
fp16: true
gradient_checkpointing: true
optim: paged_adamw_8bit
logging_steps: 1
save_steps: 2
report_to: none
deepspeed: $T/ds_zero3.json
train_file: $T/train.jsonl
max_seq_length: 32
train_split_ratio: 0.9
val_test_split_ratio: 1
data_dir: $T/A-data
X
cat >"$T/ds_zero3.json" <<'X'
{"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 10}, "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true,
 "stage3_gather_16bit_weights_on_model_save": true}, "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
 "train_micro_batch_size_per_gpu": "auto", "zero_allow_untested_optimizer": true, "steps_per_print": 100}
X
t "A: ds_zero3.json drives the run" ckpt-train -q --device cpu --nproc 2 --config "$T/A.yaml"
t "A1 A: with shards and the gathered model" bash -c "ls $T/A/checkpoint-2/global_step2/*rank_1* $T/A/checkpoint-2/model.safetensors >/dev/null"
t "A: W&B and TensorBoard" ckpt-train -q --device cpu --nproc 2 --config <(sed 's/report_to: none/report_to: [wandb, tensorboard]/' "$T/A.yaml") --output-dir "$T/A-reports"
t "A5 A: both are written" bash -c "ls $T/A-reports/wandb/offline-run-*/run-*.wandb $T/A-reports/runs/*/events.out.tfevents.* >/dev/null"
expect_says 78 "A: so is the Hub" "push_to_hub true: ckpt-push publishes" ckpt-train --config <(cat "$T/A.yaml"; echo 'push_to_hub: true')
t "B: T5's command line is read" shown --model_name_or_path t5-3b --train_file train.parquet --max_source_length 512 --bf16 --deepspeed "$T/ds_bf16.json" --num_train_epochs 1 >/dev/null 2>&1 ||
    expect_says 64 "B: lengths of sources are one length" "hint: did you mean --max-seq-length?" ckpt-train --max-source-length 512
for stage in 1 2 3; do
    for where in none cpu; do
        sed "s/\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"/\"stage\": $stage, \"offload_optimizer\": {\"device\": \"$where\"/" "$D/zero3_auto.json" >"$T/ds_config.json"
        t "C2 C: stage $stage, optimizer on ${where/none/the device}" ds "C-$stage-$where" --deepspeed "$T/ds_config.json" --fp16 --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --weight_decay 0.01
    done
    t "C2 C: offloading changes nothing" same_losses "C-$stage-none" "C-$stage-cpu"
done
t "C: evaluations and checkpoints by epochs" ds C-epochs --deepspeed "$T/ds_config.json" --per_device_train_batch_size 2 --eval_file "$T/train.jsonl" --evaluation_strategy epoch --save_strategy epoch --num_train_epochs 1 --max-steps 0
t "C: are at their ends" [ "$(ls -d "$T"/C-epochs/checkpoint-* | wc -l)" = 1 ]
expect_says 66 "D: a single file is one that is there" "$T/x.pt: no such file" ckpt-train -q --device cpu --model "$T/base" --train-file "$T/train.jsonl" -o "$T/D-file" --resume_file "$T/x.pt" --initial_epoch 1
expect_says 78 "D: and the epoch in it needs one" "need --resume-file" ckpt-train -q --device cpu --model "$T/base" --train-file "$T/train.jsonl" -o "$T/D-file" --initial_epoch 1
t "D: slices and FULL_SHARD" is fsdp full_shard --start-idx 0 --end-idx 10 --fsdp "full_shard auto_wrap" --initial-epoch 0
t "E: the recipe runs" ckpt-train -q --device cpu --config tools/recipes/lora-sft.yaml --model "$T/base" --train-file "$T/train.jsonl" --max-steps 2 --max-seq-length 32 --lora-rank 2 \
    --target-modules query_key_value --data-dir "$T/E-data" -o "$T/E"
t "E: all weights on request" ckpt-train -q --device cpu --config tools/recipes/lora-sft.yaml --full-ft true --model "$T/base" --train-file "$T/train.jsonl" \
    --max-steps 2 --max-seq-length 32 --data-dir "$T/E-data" -o "$T/E-full"
t "E: and no adapter" test -s "$T/E-full/model.safetensors"
t "E: with its defaults" is seed 16257 --config tools/recipes/lora-sft.yaml
t "E: early stopping" is early_stopping_patience 3 --config tools/recipes/lora-sft.yaml
t "E: its own names" is prompt_template '"{q} "' --input_template '{q} ' --output_template '{a}' --full_ft false
