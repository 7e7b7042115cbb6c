# The output as Ray Train lays it out (--output-layout ray), and how runs there go on.  [A10]
. "$(dirname "$0")/lib.sh"
M=$G/lora/bloom-qkv
cd "$T" || exit 1
train() {       # train OUT MORE...; EXEC=exec: in the place of its shell
    local out=$1; shift
    ${EXEC:-} ckpt-train -q --model "$M/base" --train-file "$M/rows.jsonl" --eval-file "$M/rows.jsonl" --per-device-train-batch-size 2 --learning-rate 1e-3 \
        --max-steps 6 --save-steps 2 --eval-steps 2 --logging-steps 1 --threads 1 -o "$out" "$@"
}
ray() { local out=$1; shift; train "$out" --output-layout ray "$@"; }
trial() { local all=("$1"/TorchTrainer_*); [ ${#all[@]} = 1 ] && echo "${all[0]}"; }
saves() { (cd "$(trial "$1")" && echo checkpoint_*); }
plain_of() { sed 's|"[^"]*/TorchTrainer[^/"]*/|"|; s|"plain/|"|' "$1"; }

expect 0 "three saves" ray exp
cp .out announced
t "A10 one trial, named as Ray names them" bash -c "ls exp | grep -qxE 'TorchTrainer_[0-9a-f]{5}_00000_0_[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}'"
t "its checkpoints are counted" [ "$(saves exp)" = "checkpoint_000000 checkpoint_000001 checkpoint_000002" ]
t "and announced" diff announced <(ls -d exp/*/checkpoint_*)
t "a line each, by name" [ "$(grep -o '"checkpoint_dir_name":"[a-z_0-9]*"' "$(trial exp)/result.json" | grep -o '_00[0-9]*' | tr '\n' ' ')" = "_000000 _000001 _000002 " ]
t "with the step and the losses" bash -c "grep -c '\"step\":[246],.*\"loss\":[0-9.]*,.*\"eval_loss\":[0-9.]*' exp/*/result.json | grep -qx 3"
t "and settings" grep -q '"learning_rate": 0.001,' "$(trial exp)/params.json"
t "the same run otherwise" train plain
same() { for f in model.safetensors optimizer.pt config.json rng_state.pth; do cmp "$(trial exp)/checkpoint_000001/$f" "plain/checkpoint-4/$f" || return 1; done; }
t "has the same bytes in checkpoint-4" same
t "the final model is the trial's" cmp "$(trial exp)/model.safetensors" plain/model.safetensors
t "which is known as the best" grep -q "\"best_model_checkpoint\": \"exp/TorchTrainer[^/]*/checkpoint_00000[0-2]\"" "$(trial exp)/trainer_state.json"
expect_prints 0 "the experiment is inspected" "step: 6" ckpt-inspect exp
expect 0 "its best one" ckpt-inspect --best exp
t "is the one that the trial's state names" grep -qF "$(grep '"best_model_checkpoint"' "$(trial exp)/trainer_state.json" | grep -o 'checkpoint_00000[0-2]')" .out .err
expect_prints 0 "its checkpoints are in the page's table" "page.html" ckpt-inspect --html page.html "$(trial exp)"
t "with their steps" grep -qE '<td>checkpoint_000001</td><td class="n"[^>]*>4<' page.html
expect 0 "merged" ckpt-merge -q -o merged exp
t "is the model" cmp merged/model.safetensors plain/model.safetensors
expect 0 "compared" ckpt-inspect --compare "$(trial exp)" plain

# Going on: in the newest trial, or in that of the checkpoint that is named; a fresh run is another trial.
t "A10 latest goes on" ray exp --max-steps 8 --resume-from-checkpoint latest
t "in the same trial, with the next number" [ "$(saves exp)" = "checkpoint_000000 checkpoint_000001 checkpoint_000002 checkpoint_000003" ]
expect 0 "nothing to do" ray exp --max-steps 8 --resume-from-checkpoint auto
t "is not another trial" [ -n "$(trial exp)" ]
expect_says 73 "an older one is behind others" "checkpoint_000003 exists already, and this run goes on from step 2" ray exp --resume-from-checkpoint "$(trial exp)/checkpoint_000000"
t "unless they may go" ray exp --resume-from-checkpoint "$(trial exp)/checkpoint_000000" --overwrite-output-dir
t "the same numbers" [ "$(saves exp)" = "checkpoint_000000 checkpoint_000001 checkpoint_000002" ]
t "and bits" same
t "from another folder into a trial of its own" ray other --max-steps 8 --resume-from-checkpoint "$(trial exp)/checkpoint_000002"
t "counted afresh" [ "$(saves other)" = checkpoint_000000 ]
expect 0 "a dry run" ray none --dry-run
t "writes nothing" [ ! -e none ]
cp -r exp two; sleep 1.1
expect 0 "a fresh run" ray two --max-steps 2
t "is a second trial" [ "$(ls two | wc -l)" = 2 ]
expect 0 "the newest goes on" ray two --max-steps 4 --resume-from-checkpoint latest
t "which is the second" bash -c "ls two/*/ | grep -c '^checkpoint_00000[0-9]' | grep -qx 5"
expect_says 65 "of two, one has to be named" "has several trials" ckpt-inspect two

# Two ranks with few that stay; a damaged save is made anew under its name; a kill.
ranks() { ray "$@" --nproc 2 --zero-stage 3 --per-device-train-batch-size 1 --async-save true; }
t "two ranks, two stay" ranks z --save-total-limit 2
t "the newest" [ "$(saves z)" = "checkpoint_000001 checkpoint_000002" ]
truncate -s 1000 "$(trial z)"/checkpoint_000002/global_step6/zero_pp_rank_1_mp_rank_00_optim_states.pt
expect 0 "a damaged one" ranks z --save-total-limit 2 --resume-from-checkpoint latest
t "is saved again, under its name" [ "$(saves z)" = "checkpoint_000001 checkpoint_000002" ]
t "whole" ckpt-inspect -q --verify "$(trial z)"/checkpoint_000002
killed() {
    EXEC=exec ray k --max-steps 200000 --save-steps 1 --eval-steps 0 --save-total-limit 3 >k.out 2>&1 & local pid=$!
    wait_for '[ -s k.out ]' || return 1
    kill -KILL $pid; wait $pid
    ray k --max-steps $(($(grep -c . k.out) + 4)) --save-steps 1 --eval-steps 0 --save-total-limit 3 --resume-from-checkpoint auto &&
        [ "$(saves k | wc -w)" = 3 ] && ! ls -A "$(trial k)" | grep -E 'staging|trash|tmp'
}
t "a kill, and on" killed
