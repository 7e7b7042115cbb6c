# What a run tells while it goes: bar and lines, metrics, TensorBoard, W&B, CSV, hooks, publishing.
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 120 >/dev/null
mkdir "$T/tiny"; cat > "$T/tiny/config.json" <<J
{"model_type": "bloom", "vocab_size": 4096, "hidden_size": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
J
ckpt-train -q --init "$T/tiny" --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
head -n 8 "$T/train.jsonl" > "$T/held.jsonl"
common=(--model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 --logging-steps 1 --learning-rate 1e-3)
# run NAME OPTION... - six steps; stdout and stderr in $T/NAME.out and .err.
run() { local name=$1; shift; ckpt-train "${common[@]}" --max-steps 6 -o "$T/$name" "$@" > "$T/$name.out" 2> "$T/$name.err"; }
has() { grep -qE -- "$1" "$2" || { echo "no $1"; tail -n 5 "$2"; return 1; }; }
hasnt() { ! grep -qE -- "$1" "$2" || { grep -E -- "$1" "$2" | head -n 3; return 1; }; }
# values TAG LOG - "step value" lines of a series, by our own reader.
values() { ckpt-inspect --plot --json "$2" 2>/dev/null; }

# -- all reports at once, against the same run without --------------------------------------------
t "a run without reports" run plain --eval-file "$T/held.jsonl" --eval-steps 3
export WANDB_PROJECT=tests WANDB_RUN_GROUP=g7 WANDB_NAME=n WANDB_TAGS=a,b
t "a run with all reports" run all --eval-file "$T/held.jsonl" --eval-steps 3 --save-steps 3 --report-to tensorboard,wandb --report-to csv --histogram-steps 2 --run-name "my run"
unset WANDB_PROJECT WANDB_RUN_GROUP WANDB_NAME WANDB_TAGS
t "reports and histograms change no loss" same_losses plain all
t "nor a weight" same_state plain all
t "each row of metrics.jsonl has the time and the run" bash -c "! grep -v '\"run\":\"[0-9a-f]\{16\}\".*\"time\":[0-9]' $T/all/metrics.jsonl"
t "one run alone" bash -c "[ \$(grep -o '\"run\":\"[0-9a-f]*\"' $T/all/metrics.jsonl | sort -u | wc -l) = 1 ]"
t "A4 the closing row has the mean loss" has '"train_loss":[0-9.]+,"train_runtime"' "$T/all/metrics.jsonl"
t "A4 the closing line too" has 'trained 6 steps in .* s, mean loss [0-9.]+' "$T/all.err"
t "so has the state" has '"train_loss"' "$T/plain/trainer_state.json"
E1=$(ls "$T"/all/runs/*/events.out.tfevents.*); W=$(ls -d "$T"/all/wandb/offline-run-*); W1=$(ls "$W"/run-*.wandb)
tags() { ckpt-inspect --json "$1" > "$T/tags" 2>"$T/.err" || { cat "$T/.err"; return 1; }; }
t "A5 the events are read back" tags "$E1"
for tag in train/loss train/grad_norm train/learning_rate train/epoch eval/loss train/train_runtime train/train_loss args/text_summary model_config/text_summary \
        gradients/transformer.h.0.self_attention.dense.weight parameters/transformer.h.1.mlp.dense_h_to_4h.weight; do
    t "the events have $tag" has "\"$tag\"" "$T/tags"
done
t "A5 D5 the W&B run is read back" tags "$W1"
for tag in train/loss eval/loss train/global_step system/proc.memory.rssMB gradients/transformer.h.0.self_attention.dense.weight; do t "D5 W&B has $tag" has "\"$tag\"" "$T/tags"; done
for fact in '"project": "tests"' '"group": "g7"' '"name": "my run"' '"exit_code": 0' '"learning_rate": 0.001' '"model_type": "bloom"' '"train_runtime": [0-9]'; do t "and says $fact" has "$fact" "$T/tags"; done
for f in config.yaml wandb-metadata.json wandb-summary.json; do t "W&B's $f is there" test -s "$W/files/$f"; done
t "a line says how it is sent" has "wandb sync $T/all/wandb/offline-run" "$T/all.err"
t "W&B's latest-run leads there" test -e "$T/all/wandb/latest-run/files/config.yaml"
t "the CSV has a header and a line a row" bash -c "head -n 1 $T/all/metrics.csv | grep -q '^time,run,step,epoch,loss,' && [ \$(wc -l < $T/all/metrics.csv) = \$(wc -l < $T/all/metrics.jsonl) ]"
same_csv() { losses all > "$T/a" && cut -d, -f5 "$T/all/metrics.csv" | grep '[0-9]' > "$T/b" && paste "$T/a" "$T/b" | awk '{ d = ($1 - $2) / $1; if (d * d > 1e-14) bad = 1 } END { exit bad || NR != 6 }'; }
t "the CSV's losses are the same" same_csv

# -- a run that goes on: what it does again is there once ------------------------------------------
rm -rf "$T/all/checkpoint-6"
t "a resumed run" run all --eval-file "$T/held.jsonl" --eval-steps 3 --report-to all --resume-from-checkpoint latest
t "goes on in the same folder of events" [ "$(ls -d "$T"/all/runs/* | wc -l)" = 1 ]
t "with a file of its own" [ "$(ls "$T"/all/runs/*/events* | wc -l)" = 2 ]
t "two runs in one metrics.jsonl" bash -c "[ \$(grep -c start_step $T/all/metrics.jsonl) = 2 ]"
t "read as one" bash -c "ckpt-inspect --plot $T/all/metrics.jsonl | grep -q '^loss, 6 values, steps 1 to 6'"
once() { ckpt-inspect --plot "$1" > "$T/.o" 2>&1; has "train/loss, 6 values, steps 1 to 6" "$T/.o"; }
t "TensorBoard's steps are there once" once "$T"/all/runs/*
t "a W&B run of its own" [ "$(ls -d "$T"/all/wandb/offline-run-* | wc -l)" = 2 ]

# -- with ranks: rank 0 tells, histograms are gathered --------------------------------------------
for stage in 0 2 3; do
    t "two ranks of stage $stage" run "r$stage" --nproc 2 --zero-stage $stage --report-to tensorboard --histogram-steps 3 --on-save "echo \$CKPT_STEP >> $T/r$stage.saves"
    t "stage $stage: the same without" run "p$stage" --nproc 2 --zero-stage $stage
    t "stage $stage: the same losses" same_losses "r$stage" "p$stage"
    t "A5 stage $stage: one event file" [ "$(find "$T/r$stage/runs" -name 'events*' | wc -l)" = 1 ]
    t "stage $stage: it has histograms" bash -c "ckpt-inspect --json $T/r$stage/runs/*/events* | grep -q '\"parameters/transformer.word_embeddings.weight\"'"
    t "stage $stage: the hook ran once" [ "$(cat "$T/r$stage.saves")" = 6 ]
done
t "an adapter's histograms" run lora --lora-rank 2 --report-to tensorboard --histogram-steps 3
t "are of what is trained" bash -c "ckpt-inspect --json $T/lora/runs/*/events* > $T/tags && grep -q 'gradients/.*lora_A' $T/tags && ! grep -q 'gradients/.*dense_h_to_4h.weight' $T/tags"

# -- when a line is logged ------------------------------------------------------------------------
steps() { grep -o '"loss":.*"step":[0-9]*' "$T/$1/metrics.jsonl" | grep -o '[0-9]*$' | tr '\n' ' '; }
ckpt-train "${common[@]:0:8}" --logging-steps 4 --logging-first-step --max-steps 6 -o "$T/first" >/dev/null 2>&1
t "the first step, every fourth, the last" [ "$(steps first)" = "1 4 6 " ]
ckpt-train "${common[@]:0:8}" --train-split 'train[:8]' --logging-strategy epoch --num-train-epochs 3 -o "$T/epochs" >/dev/null 2>"$T/e"
t "each epoch" [ "$(steps epochs)" = "4 8 12 " ]
ckpt-train "${common[@]:0:8}" --logging-strategy no --max-steps 6 --include-num-input-tokens-seen true -o "$T/none" >/dev/null 2>&1
t "never" [ "$(steps none)" = "" ]
run tokens --include-num-input-tokens-seen all
t "tokens are counted" has '"step":6,"num_input_tokens_seen":[0-9]+' "$T/tokens/metrics.jsonl"
run kv --eval-file "$T/held.jsonl" --eval-steps 3 --log-format kv
t "A4 C7 loss= lines" [ "$(grep -cE '^ckpt-train: step=[1-6] epoch=[0-9.]+ loss=[0-9.]+ grad_norm=[0-9.]+ learning_rate=' "$T/kv.err")" = 6 ]
t "C7 eval_loss= lines" [ "$(grep -cE '^ckpt-train: step=[36] .* ?eval_loss=[0-9.]+ eval_runtime=[0-9.]+ eval_samples_per_second=' "$T/kv.err")" = 2 ]
t "their numbers are the run's" bash -c "paste <(grep -oE ' loss=[0-9.]+' $T/kv.err | cut -d= -f2) <(grep -oE '\"loss\":[0-9.]+' $T/kv/metrics.jsonl | cut -d: -f2) | awk '{ d = \$1 - \$2; if (d * d > 1e-9) bad = 1 } END { exit bad || NR != 6 }'"
run dict --eval-file "$T/held.jsonl" --eval-steps 3 --log-format dict
t "lines as HF Trainer's" [ "$(grep -cE "^ckpt-train: \{'loss': '[0-9.]+', 'grad_norm': '[0-9.e+-]+', 'learning_rate': '[0-9.e-]+', .*'epoch': '[0-9.]+'\}$" "$T/dict.err")" = 6 ]
t "of evaluations too" [ "$(grep -cE "^ckpt-train: \{'eval_loss': '[0-9.]+', .*'epoch': '[0-9.]+'\}$" "$T/dict.err")" = 2 ]
t "A4 an evaluation's time and throughput are printed" has 'eval loss [0-9.]+, .* tokens, [0-9.]+ s, [0-9.]+ samples/s$' "$T/plain.err"
t "and in all_results.json" bash -c "grep -q '\"eval_runtime\": [0-9.]' $T/plain/all_results.json && grep -q '\"eval_samples_per_second\": [0-9.]' $T/plain/all_results.json"
expect 64 "a format of lines that is none" ckpt-train "${common[@]}" --log-format xml -o "$T/x"
# Waiting for data, or for ranks, is no time of training.
waits() {
    local from=$EPOCHREALTIME
    ckpt-train -q --model "$T/base" --train-file <(sleep 1.5; cat "$T/train.jsonl") --max-seq-length 32 --max-steps 2 -o "$T/waits" >/dev/null || return 1
    grep -o '"train_runtime":[0-9.]*' "$T/waits/metrics.jsonl" | cut -d: -f2 | awk -v all="$(awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')" '{ exit !(all - $1 >= 1.4) }'
}
t "train_runtime begins with the first step" waits
expect_says 78 "a report that is not written" "--report-to mlflow is none of" ckpt-train "${common[@]}" --report-to mlflow -o "$T/x"
expect_says 78 "histograms without a report" "--histogram-steps needs" ckpt-train "${common[@]}" --histogram-steps 3 -o "$T/x"
t "options of reports and events that there are none of" bash -c 'ckpt-train --model "$1/base" --train-file "$1/train.jsonl" --dry-run --logging-strategy epoch --logging-steps 7 --eval-strategy no --eval-steps 7 --logging-dir "$1/x" --run-name x 2>"$1/idle"' x "$T"
t "are told in one line, as HF Trainer passes over them" grep -qx 'ckpt-train: accepted, without effect here: logging_steps, eval_steps, logging_dir, run_name' "$T/idle"
WANDB_RUN_ID=../x expect_says 65 "an id that leads elsewhere" 'WANDB_RUN_ID: "../x"' ckpt-train -q "${common[@]}" --report-to wandb -o "$T/x"
echo > "$T/file"
expect 73 "events where there is a file" ckpt-train -q "${common[@]}" --report-to tensorboard --logging-dir "$T/file/logs" -o "$T/x"
WANDB_MODE=disabled run off --report-to wandb; t "W&B that is switched off" test ! -e "$T/off/wandb"
WANDB_DIR=$T/elsewhere run dir --report-to wandb --logging-steps 3
t "WANDB_DIR is honoured" test -d "$T/elsewhere/wandb/latest-run/files"
names() { grep -aoE "$2" "$T/$1"/wandb/offline-run-*/run-*.wandb | sort -u | wc -l; }
WANDB_LOG_MODEL=checkpoint run logged --report-to wandb --save-steps 2 --run-name mine
t "D5 checkpoints are artifacts" [ "$(names logged 'checkpoint_global_step_[0-9]+')" = "$(ls -d "$T"/logged/checkpoint-*[0-9] | wc -l)" ]
t "and the final model" [ "$(names logged 'model-mine|final_model')" = 2 ]
WANDB_LOG_MODEL=end run ended --report-to wandb --save-steps 2
t "or that alone" [ "$(names ended 'checkpoint_global_step_[0-9]+')$(names ended final_model)" = 01 ]

# -- a run that is killed loses at most a record ---------------------------------------------------
killed() {
    ckpt-train "${common[@]}" --max-steps 100000 --report-to all -o "$T/killed" >/dev/null 2>&1 & local p=$!
    wait_for '[ "$(grep -c \"loss\" '"$T"'/killed/metrics.jsonl 2>/dev/null)" -ge 5 ]' || { kill -9 $p; return 1; }
    kill -9 $p; wait $p 2>/dev/null
    for f in "$T"/killed/runs/*/events* "$T"/killed/wandb/offline*/run-*.wandb; do ckpt-inspect --json "$f" > "$T/tags" || return 1; has train/loss "$T/tags" || return 1; done
}
t "a killed run's reports are read" killed

# -- a disk that is full: told once, and the run goes on ------------------------------------------
if mkdir "$T/small" && mount -t tmpfs -o size=16k none "$T/small" 2>/dev/null; then
    WANDB_DIR=$T/small t "reports on a full disk end no run" run full --report-to tensorboard,wandb --logging-dir "$T/small/tb" --histogram-steps 1
    t "told once each" [ "$(grep -c 'this is said once' "$T/full.err")" = 2 ]
    t "all losses are there" same_losses plain full
    t "what was written is read" bash -c "ckpt-inspect --json $T/small/tb/events* >/dev/null"
    umount "$T/small"
fi

# -- hooks ----------------------------------------------------------------------------------------
H="$T/hook.sh"; cat > "$H" <<'S'
printf '%s step=%s of=%s loss=%s eval=%s ckpt=%s status=%s rank=%s\n' "$CKPT_EVENT" "$CKPT_STEP" "$CKPT_MAX_STEPS" "$CKPT_LOSS" "$CKPT_EVAL_LOSS" "$CKPT_CHECKPOINT" "$CKPT_STATUS" "$RANK" >> "$1"
S
hooked() {
    run "$1" --save-steps 2 --eval-file "$T/held.jsonl" --eval-steps 3 --on-save "sh $H $T/$1.hooks" --on-log "sh $H $T/$1.hooks" --on-eval "sh $H $T/$1.hooks" --on-end "sh $H $T/$1.hooks" "${@:2}"
}
t "hooks run" hooked hooks
t "at each checkpoint" [ "$(grep -c '^save ' "$T/hooks.hooks")" = 3 ]
t "which they are told" has "^save step=4 of=6 loss=[0-9.]+ .*ckpt=$T/hooks/checkpoint-4 " "$T/hooks.hooks"
t "at evaluations" has '^eval step=3 .*eval=[0-9.]+ ' "$T/hooks.hooks"
t "at log lines" has '^log step=[0-9] .*loss=[0-9.]+' "$T/hooks.hooks"
t "at the end, after all others, with the status" bash -c "tail -n 1 $T/hooks.hooks | grep -q '^end step=6 .*status=0 '"
t "with ranks as well, once, and as no rank" hooked ranked --nproc 2
t "their checkpoints" [ "$(grep -c '^save .*rank=$' "$T/ranked.hooks")" = 3 ]
t "a hook that fails ends no run" run bad --save-steps 3 --on-save 'exit 3' --on-end 'kill -9 $$'
t "it is told" has '^ckpt-train: warning: --on-save: the command failed with status 3' "$T/bad.err"
t "so is a signal" has 'warning: --on-end: the command was ended by signal 9' "$T/bad.err"
t "stdout has the checkpoints alone" bash -c "run() { :; }; [ \"\$(wc -l < $T/bad.out)\" = 2 ]"
t "what hooks print goes to stderr" bash -c "$(declare -f run); T=$T; $(declare -p common); run says --on-save 'echo from a hook'; grep -qx 'from a hook' $T/says.err && [ \$(wc -l < $T/says.out) = 1 ]"
slow() {
    local start=$SECONDS
    run slow --save-steps 1 --on-save "sleep 0.7; echo \$CKPT_STEP >> $T/slow.done" || return 1
    [ "$(tr '\n' ' ' < "$T/slow.done")" = "1 2 3 4 5 6 " ] && has 'waiting for the command of --on-save' "$T/slow.err"
}
t "slow hooks run one after another, and are waited for at the end" slow
at_once() { local s; s=$(grep -o '"train_runtime":[0-9.]*' "$T/slow/metrics.jsonl" | cut -d: -f2); awk -v s="$s" 'BEGIN { exit !(s != "" && s < 3) }'; }
t "while training does not wait for them" at_once
expect 75 "a run that is stopped" bash -c "ckpt-train -q ${common[*]} --max-steps 100000 --on-log 'kill -TERM \$PPID' --on-end 'echo \$CKPT_STATUS > $T/stopped' -o $T/stop > /dev/null"
t "tells its end" [ "$(cat "$T/stopped")" = 75 ]

# -- publishing -----------------------------------------------------------------------------------
t "checkpoints are published" run push --save-steps 2 --save-total-limit 1 --push-to "$T/published"
t "the newest is there" ckpt-inspect -q --verify "$T/published"
t "nothing of it on stdout" [ "$(wc -l < "$T/push.out")" = 3 ]
t "with ranks" run push2 --nproc 2 --zero-stage 3 --save-steps 3 --push-to "$T/published2"
t "the newest is there, with both shards" bash -c "[ \$(ls $T/published2/global_step6/*optim_states.pt | wc -l) = 2 ]"
git init -q --bare "$T/hub.git"; chmod 500 "$T/hub.git"
# refused STATUS WHAT URL OPTION... - found out before anything is read or written, told once.
refused() {
    local want=$1 what=$2 url=$3; shift 3
    run fails --save-steps 3 --push-to "$url" "$@"; local got=$?
    [ $got = "$want" ] && [ ! -e "$T/fails" ] && [ "$(grep -c "$what" "$T/fails.err")" = 1 ] && hasnt 'warning|trained|ckpt-push: ' "$T/fails.err" && return
    echo "status $got"; cat "$T/fails.err"; return 1
}
t "a repository that is missing ends the run before it trains" refused 66 '^ckpt-train: --push-to: .*deep/hub.git' "$T/nowhere/deep/hub.git"
t "and tells what makes it" has '^hint: ckpt-push --create' "$T/fails.err"
[ "$(id -u)" = 0 ] || t "so does one that may not be written" refused 73 '^ckpt-train: --push-to: .*hub.git: Permission denied' "$T/hub.git"
t "all ranks end by name" refused 66 '^ckpt-train: rank 0: --push-to: .*deep/hub.git' "$T/nowhere/deep/hub.git" --nproc 2 --zero-stage 2
t "an address that is none" refused 64 '^ckpt-train: --push-to: .*gopher://' gopher://x

# -- terminals ------------------------------------------------------------------------------------
# tty COLUMNS COMMAND... - all that a terminal of that width was sent, in $T/tty.
tty() {
    local cols=$1; shift
    env -u COLUMNS "TERM=${TERM_IS:-xterm}" script -qec "stty cols $cols rows 24; $(printf '%q ' "$@") >/dev/null" /dev/null < /dev/null > "$T/tty"
}
# drawn - what was drawn, a line each, without what erases it.
drawn() { tr '\r' '\n' < "$T/tty" | grep -a $'^\x1b\[K' | sed -E $'s/\x1b\\[[0-9;]*[mK]//g' | grep -a . | grep -av '^ckpt-train: '; }
for cols in 20 24 40 80 200; do
    rm -rf "$T/tty-run"; tty $cols "$B/ckpt-train" "${common[@]:0:8}" --max-steps 3000 --logging-steps 1000 -o "$T/tty-run"
    t "a bar of $cols columns fits" bash -c "$(declare -f drawn); T=$T; drawn | awk -v most=$cols 'length(\$0) >= most { bad = 1; print } END { exit bad || NR == 0 }'"
done
t "the bar tells epoch, loss, tokens and memory" bash -c "$(declare -f drawn); T=$T; drawn | grep -aqE '^training +[0-9]+% \[[#.]+\] [0-9]+/3000 steps epoch [0-9.]+/[0-9]+ loss [0-9.]+ [0-9.]+k? tok/s [0-9.]+ [MG]iB'"
t "in bold" grep -aq $'\x1b\[1m' "$T/tty"
rm -rf "$T/tty-run"; NO_COLOR=1 tty 80 "$B/ckpt-train" "${common[@]:0:8}" --max-steps 3000 -o "$T/tty-run"
t "no bold with NO_COLOR" bash -c "! grep -aq \$'\x1b\[1m' $T/tty && grep -aq \$'\x1b\[K' $T/tty"
rm -rf "$T/tty-run"; TERM_IS=dumb tty 80 "$B/ckpt-train" "${common[@]:0:8}" --max-steps 3000 -o "$T/tty-run"
t "nothing is drawn on a dumb terminal" bash -c "! grep -aq \$'\x1b' $T/tty && grep -aq 'trained 3000 steps' $T/tty"
rm -rf "$T/tty-run"; tty 80 "$B/ckpt-train" "${common[@]:0:8}" --max-steps 3000 --disable-tqdm -o "$T/tty-run"
t "nor with --disable-tqdm" bash -c "! grep -aq \$'\x1b' $T/tty && grep -aq 'trained 3000 steps' $T/tty"
rm -rf "$T/tty-run"; tty 80 "$B/ckpt-train" -q "${common[@]:0:8}" --max-steps 3000 -o "$T/tty-run"
t "nor with -q" bash -c "[ ! -s $T/tty ]"
rm -rf "$T/tty-run"; tty 80 "$B/ckpt-train" "${common[@]:0:8}" --max-steps 3000 --nproc 2 -o "$T/tty-run"
t "with ranks one bar" bash -c "$(declare -f drawn); T=$T; drawn | grep -aq '^training'"
run level --log-level warning; t "notes are left out by --log-level warning" bash -c "! [ -s $T/level.err ]"
