# Pairs of features of a run, on several ranks, that have no script together: a line or two each.
. "$(dirname "$0")/lib.sh"
COMMON="--logging-steps 1"
. "$(dirname "$0")/shared/optim.sh"
head -n 8 "$T/train.jsonl" >"$T/eval.jsonl"
best="--eval-file $T/eval.jsonl --eval-steps 2 --load-best-model-at-end true --save-total-limit 1"
lora="--lora-rank 4 --target-modules all-linear"
# A rate that is far too high, so that evaluations get worse.
t "early stopping, an adapter, ZeRO-3, one kept" train early 2 --zero-stage 3 $lora $best --early-stopping-patience 1 --max-steps 12 --learning-rate 2 --lr-scheduler-type constant
best_of_early() { echo "$T/early/$(grep '"best_model_checkpoint"' "$T/early/trainer_state.json" | grep -o 'checkpoint-[0-9]*')"; }
t "the final adapter is the best one's" cmp "$T/early/adapter_model.safetensors" "$(best_of_early)/adapter_model.safetensors"
expect 0 "which is found" ckpt-inspect --best "$T/early"
smooth="--label-smoothing-factor 0.1 --z-loss 1e-4 --neftune-noise-alpha 5"
t "smoothing, z-loss and noise" train whole 1 $smooth
t "in two parts on two ranks" train parts 2 $smooth --zero-stage 2 --per-device-train-batch-size 1 --gradient-accumulation-steps 2
t "are the same losses" losses_near whole parts 1e-6 4
t "Muon in replicas of shards" train muon 4 --optim muon --zero-stage 3 --hybrid-shard-size 2 --per-device-train-batch-size 3
back muon again
t "three ranks go on" train again 3 --optim muon --zero-stage 3 --per-device-train-batch-size 4 --resume-from-checkpoint latest
t "to the same losses of Muon" near again muon 1e-6
narrow="--bf16 --no-master-weights"
t "stochastic rounding on two ranks" train narrow 2 --zero-stage 3 $narrow
back narrow again
t "goes on" train again 2 --zero-stage 3 $narrow --resume-from-checkpoint latest
t "to the same bits, rounded" same_state narrow again
back narrow again
t "on four ranks" train again 4 --zero-stage 2 $narrow --resume-from-checkpoint latest
t "to nearly the same losses" near again narrow 1e-4
noise="--zero-stage 3 $lora --lora-dropout 0.1 --neftune-noise-alpha 5 --packing true"
t "noise, dropout and packing" train noise 2 $noise
back noise again
t "noise: goes on" train again 2 $noise --resume-from-checkpoint latest
t "noise: to the same bits" same_state noise again
t "Adafactor in replicas, saved behind the steps" train ada 4 --optim adafactor --bf16 --zero-stage 3 --hybrid-shard-size 2 --async-save true --save-total-limit 1
t "its checkpoint merges" ckpt-merge -q "$T/ada/checkpoint-4" -o "$T/merged"
t "codes of 8 bits on two ranks" train coded 2 --optim adamw_8bit
for place in "2 2" "4 3" "4 1"; do
    back coded again
    t "go on in shards, ${place% *} ranks at stage ${place#* }" timeout -s KILL 20 bash -c "$(declare -f train); T=$T; train again ${place% *} --logging-steps 1 --optim adamw_8bit --zero-stage ${place#* } --resume-from-checkpoint latest"
    t "to nearly the same losses" near again coded 1e-4
done
# Parts of three ranks end within a block of codes: padding that came back as other than zero would be in the saved part.
mkdir "$T/narrow-model"; echo '{"model_type": "bloom", "vocab_size": 4096, "hidden_size": 64, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}' >"$T/narrow-model/config.json"
t "a model that thirds do not divide" ckpt-train -q --init "$T/narrow-model" --tokenizer $R/tokenizer --init-only -o "$T/odd"
BASE=$T/odd
t "codes of 8 bits in thirds" train thirds 3 --zero-stage 3 --optim adamw_8bit
back thirds again
t "go on" train again 3 --zero-stage 3 --optim adamw_8bit --resume-from-checkpoint latest
t "to the same bits of codes" same_state thirds again
