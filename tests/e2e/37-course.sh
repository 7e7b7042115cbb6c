# The course of a run: when it logs, evaluates, saves and ends, which checkpoint is its best, and what it leaves at the end (duties A4, C1, C3, C7, E5).
. "$(dirname "$0")/lib.sh"
M=$G/lora/bloom-qkv SAY=-q
cd "$T" || exit 1
train() { local out=$1; shift; ckpt-train -q --model "$M/base" --train-file "$M/rows.jsonl" --per-device-train-batch-size 2 -o "$out" "$@"; }
eval=(--eval-file "$M/rows.jsonl")
left() { ls "$1" | sed -n 's/^checkpoint-//p' | sort -n | tr '\n' ' '; }
steps_with() { grep "\"$2\":" "$1/metrics.jsonl" | sed -n 's/.*"step":\([0-9]*\).*/\1/p' | tr '\n' ' '; }
rows=$(wc -l < "$M/rows.jsonl"); each=$(( (rows + 1) / 2 ))

# Strategies.
t "all by epochs" train ep "${eval[@]}" --num-train-epochs 2 --logging-strategy epoch --eval-strategy epoch --save-strategy epoch
t "C7 a checkpoint ends each epoch" [ "$(left ep)" = "$each $((2 * each)) " ]
t "two of three micro-batches in a step" train part --train-file "$M/rows.jsonl" --end-idx 3 --per-device-train-batch-size 1 --max-steps 1 --gradient-accumulation-steps 2 --logging-steps 1
t "are two thirds of an epoch, as HF Trainer counts" grep -q '"epoch":0.666' part/metrics.jsonl
t "so does a line of the log" [ "$(steps_with ep loss)" = "$each $((2 * each)) " ]
t "C7 and an evaluation" [ "$(steps_with ep eval_loss)" = "$each $((2 * each)) " ]
t "fractions of all steps" train fr "${eval[@]}" --max-steps 8 --logging-steps 0.25 --eval-steps 0.5 --save-steps 0.5
t "a quarter of them between lines" [ "$(steps_with fr loss)" = "2 4 6 8 " ]
t "half of them between checkpoints" [ "$(left fr)" = "4 8 " ]
t "no checkpoint, no evaluation, no line" train none "${eval[@]}" --max-steps 2 --save-strategy no --eval-strategy no --logging-strategy no
t "no checkpoint is there" [ "$(left none)" = "" ]
t "but the trained model is" ckpt-eval -q "${eval[@]}" none
t "evaluations before the first step, and after a delay" train on "${eval[@]}" --max-steps 6 --eval-on-start --eval-steps 1 --eval-delay 5
t "are where they were asked for" [ "$(steps_with on eval_loss)" = "0 5 6 " ]
t "a strategy without a number evaluates with the log's lines" train lg "${eval[@]}" --max-steps 4 --eval-strategy steps --logging-steps 2
t "as often" [ "$(steps_with lg eval_loss)" = "2 4 " ]
t "two ranks by epochs" train two "${eval[@]}" --nproc 2 --zero-stage 2 --num-train-epochs 2 --eval-strategy epoch --save-strategy epoch
t "save as often" [ "$(left two | wc -w)" = 2 ]

# The best checkpoint, and an early end: the loss falls, and with --greater-is-better the first is the best.
t "E5 saves of what was better than all before" train best "${eval[@]}" --max-steps 8 --eval-steps 2 --save-strategy best --learning-rate 1e-3 --greater-is-better true --load-best-model-at-end
t "E5 the first alone was" [ "$(left best)" = "2 " ]
t "E5 its weights are the final model's" cmp best/model.safetensors best/checkpoint-2/model.safetensors
t "two ranks of stage 3 that end with the best" train best3 "${eval[@]}" --nproc 2 --zero-stage 3 --max-steps 8 --eval-steps 2 --save-steps 2 --learning-rate 1e-3 --greater-is-better true --load-best-model-at-end
merged() { ckpt-merge -q -o "$1-merged.safetensors" "$2" && ckpt-inspect --diff "$1-merged.safetensors" "$1/model.safetensors"; }
t "the best of the shards becomes the model" merged best3 best3/checkpoint-2
t "an adapter's too" train besta "${eval[@]}" --lora-rank 2 --target-modules query_key_value --max-steps 4 --eval-steps 2 --save-steps 2 --learning-rate 1e-3 --greater-is-better true --load-best-model-at-end
t "the best adapter lies in the folder" cmp besta/adapter_model.safetensors besta/checkpoint-2/adapter_model.safetensors
t "evaluations without progress end the run" train early "${eval[@]}" --max-steps 100 --eval-steps 2 --save-steps 2 --learning-rate 1e-3 --greater-is-better true --early-stopping-patience 2 --load-best-model-at-end
t "E5 after two of them" [ "$(steps_with early eval_loss)" = "2 4 6 " ]
t "the counter is in the state, as HF Trainer has it" grep -q '"early_stopping_patience_counter": 2' early/trainer_state.json
t "a threshold makes small progress none" train thr "${eval[@]}" --max-steps 100 --eval-steps 1 --save-steps 0 --early-stopping-patience 3 --early-stopping-threshold 1000
t "so that three more are the end" [ "$(steps_with thr eval_loss)" = "1 2 3 4 " ]
t "a run that stops while it waits for progress" train keep "${eval[@]}" --max-steps 4 --eval-steps 2 --save-steps 2 --learning-rate 1e-3 --greater-is-better true --early-stopping-patience 2
t "is ended by one more evaluation once resumed" train keep "${eval[@]}" --max-steps 100 --eval-steps 2 --save-steps 2 --learning-rate 1e-3 --greater-is-better true --early-stopping-patience 2 --resume-from-checkpoint latest
t "at step 6" [ "$(steps_with keep eval_loss)" = "2 4 6 " ]
expect_says 78 "the best without an evaluation" "--load-best-model-at-end needs --eval-file" train no --load-best-model-at-end
expect_says 78 "saves that no evaluation belongs to" "--save-steps 3 is no multiple of --eval-steps 2" train no "${eval[@]}" --load-best-model-at-end --eval-steps 2 --save-steps 3
expect_says 78 "nor to the lines of the log, which count where no steps are given" "--save-steps 15 is no multiple of --logging-steps 10" train no "${eval[@]}" --load-best-model-at-end --eval-strategy steps --save-steps 15
expect_says 78 "a moment that never decays" "--adam-beta2 1 is not below 1" train no --adam-beta2 1
expect_says 78 "other strategies" "--save-strategy epoch is not --eval-strategy steps" train no "${eval[@]}" --load-best-model-at-end --eval-steps 2 --save-strategy epoch
expect_says 78 "a metric that there is not" "--metric-for-best-model bleu is none of: loss, perplexity" train no "${eval[@]}" --metric-for-best-model bleu
expect_says 78 "one and a half steps" "a whole number of steps" train no --save-steps 1.5

# A limit of time.
expect_says 75 "a limit of time saves and stops" "stopped by --max-wall-time at step" train late --max-steps 1000000 --save-steps 0 --max-wall-time 1
t "the checkpoint is there" [ "$(left late | wc -w)" = 1 ]
expect_says 75 "two ranks, as one" "stopped by --max-wall-time at step" train late2 --nproc 2 --max-steps 1000000 --save-steps 0 --max-wall-time 1

# What the end leaves.
for f in config.json model.safetensors generation_config.json training_args.bin README.md trainer_state.json all_results.json train_results.json eval_results.json; do
    t "C7 the folder has $f" test -s "ep/$f"
done
t "C7 the model is the last checkpoint's" cmp ep/model.safetensors "ep/checkpoint-$((2 * each))/model.safetensors"
n='[0-9.e+-]+'
t "results are HF Trainer's" bash -c "tr -d ' \n' < ep/all_results.json | grep -qE '^\{\"epoch\":2.0,\"eval_loss\":$n,\"eval_runtime\":$n,\"eval_samples_per_second\":$n,\"eval_steps_per_second\":$n,\"perplexity\":$n,\"total_flos\":$n,\"train_loss\":$n,\"train_runtime\":$n,\"train_samples_per_second\":$n,\"train_steps_per_second\":$n\}$'"
many=(ckpt-train --model "$M/base" --train-file "$M/rows.jsonl" --per-device-train-batch-size 2 "${eval[@]}" --max-steps 4 --logging-steps 1 --learning-rate 1e-3)
first_last() { sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" "$1/metrics.jsonl" | sed -n '1p;$p' | xargs printf '%.6g -> %.6g'; }
expect 0 "a run with evaluations" "${many[@]}" -o table --eval-steps 2
t "says its speed and memory at the end" grep -qE '^ckpt-train: trained 4 steps in [0-9.]+ s, mean loss [0-9.]+, [1-9][0-9]* tokens/s, [0-9.]+ samples/s; memory: peak [1-9][0-9]* MiB$' .err
t "and its losses, first and last" grep -qxF "ckpt-train: loss $(first_last table loss); eval loss $(first_last table eval_loss)" .err
t "and no table, whose lines have all passed" bash -c "! grep -qE 'evaluations$|metrics$' .err"
expect 0 "one with a rate that is too high" "${many[@]}" -o worse --eval-steps 1 --per-device-train-batch-size 1 --lr-scheduler-type constant --learning-rate 0.15
t "says which evaluation was the lowest" grep -qE "; eval loss $(first_last worse eval_loss) \\(lowest $(sed -n 's/.*"eval_loss":\([0-9.]*\),.*"step":\([0-9]*\),.*/\1 \2/p' worse/metrics.jsonl | sort -g | head -n 1 | xargs printf '%.6g, step %d')\\)$" .err
expect 0 "a debug run" "${many[@]}" -o all -vv --eval-steps 2
t "ends with tables" [ "$(grep -E '(metrics|evaluations)$' .err | tr '\n' ' ')" = "ckpt-train: train metrics ckpt-train: eval metrics ckpt-train: evaluations " ]
expect 0 "one by epochs" "${many[@]}" -o epochs --max-steps 0 --num-train-epochs 2 --eval-strategy epoch
t "C3 ends with a table of its evaluations" [ "$(grep -A3 'ckpt-train: evaluations$' .err | awk '{ print $2 }' | tail -n 2 | tr '\n' ' ')" = "$each $((2 * each)) " ]
mean() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' m/metrics.jsonl | awk '{ s += $1 } END { printf "%.9g", s / NR }'; }
t "the mean loss of a run" train m --max-steps 5 --logging-steps 1
t "A4 is train_loss" near "$(sed -n 's/.*"train_loss": \([0-9.]*\).*/\1/p' m/all_results.json)" "$(mean)"
t "the card has YAML for the Hub" bash -c "head -n 12 ep/README.md | grep -q '^library_name: transformers$' && head -n 12 ep/README.md | grep -qx 'base_model: base'"
t "and no path of this machine" bash -c "! grep -q '$T' ep/README.md && ! grep -q '$G' ep/README.md"
t "the evaluation is in it" grep -q '^- Perplexity: ' ep/README.md
t "for the Hub too" bash -c "sed -n '/^model-index:/,/^---/p' ep/README.md | grep -q '    - type: perplexity' && sed -n '/^model-index:/,/^---/p' ep/README.md | grep -q '^      type: rows.jsonl'"
cp -r "$M/base" carded; printf -- '---\nlicense: apache-2.0\nlanguage: [en, "no"]\npipeline_tag: text-generation\n---\n# Base\n' > carded/README.md; echo free > carded/LICENSE
t "a base with a card and a licence" ckpt-train -q --model carded --train-file "$M/rows.jsonl" --max-steps 1 -o card
t "its licence is told" grep -qx 'license: apache-2.0' card/README.md
t "its languages" bash -c "grep -A2 -x 'language:' card/README.md | tr -d '\n' | grep -qx 'language:- en- \"no\"'"
t "and kept" cmp carded/LICENSE card/LICENSE
t "its card has another name" cmp carded/README.md card/BASE_README.md
echo mine > card/README.md
t "a run into the same folder" ckpt-train -q --model carded --train-file "$M/rows.jsonl" --max-steps 1 --overwrite-output-dir -o card
t "leaves a user's card" grep -qx mine card/README.md
t "--no-final-model" train bare --max-steps 1 --no-final-model
t "leaves figures and no model" bash -c "[ -s bare/all_results.json ] && [ ! -e bare/model.safetensors ] && [ ! -e bare/config.json ]"
t "stage 3 without weights in its checkpoints" train z3 --nproc 2 --zero-stage 3 --max-steps 2
t "has the model in its folder" ckpt-eval -q "${eval[@]}" z3
cp -r z3 cut; rm cut/all_results.json cut/model.safetensors
t "a run that was cut before its end" train cut --nproc 2 --zero-stage 3 --max-steps 2 --resume-from-checkpoint latest
t "writes the model when it is started again" cmp cut/model.safetensors z3/model.safetensors
t "nothing unfinished is left" bash -c "! ls -A ep z3 cut card | grep -E 'staging|trash|tmp|final-model'"
