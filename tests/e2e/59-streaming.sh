# Publishing while a trainer runs, to the loopback Hub: systems A (one folder that each save replaces) and D (every checkpoint
# side by side), and both uses of what is published: inference from the root, exact resumption.  A6 A7 A8 D5 D8 X1
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
export HF_TOKEN=hf_canary CKPT_HTTP_RETRIES=2
D=tools/recipes/demo
serve --multipart=20000 --chunk=20000
commits() { curl -s -H "Authorization: Bearer $HF_TOKEN" "$HF_ENDPOINT/api/models/$1/commits/main" | grep -o '"title"' | wc -l; }
# fetched ADDRESS DIR - what is there now, and only that, is DIR's.
fetched() { rm -rf "$T/fetched"; ckpt-push -q "$T/fetched" "$1" >/dev/null && same_files "$T/fetched" "$2"; }
$D/wordnet.sh "$T" 200 >/dev/null
ckpt-train -q --init $D/config.json --tokenizer $D/tokenizer --init-only -o "$T/base" >/dev/null
train() { ckpt-train -q --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 --nproc 2 --zero-stage 3 --stage3-gather-16bit-weights-on-model-save --lr-scheduler-type constant --save-steps 2 "$@"; }

# -- A ------------------------------------------------------------------------------------------
a_line() { train --max-steps 4 -o "$T/A" | ckpt-push -q --create --hub-strategy checkpoint hf://acme/bloomz; }
t "A7 X1: one line trains and publishes each save" a_line
t "A7: one commit a save" [ "$(commits acme/bloomz)" = 3 ]
t "A7: last-checkpoint/ is the last save, whole, and nothing of the one before" fetched hf://acme/bloomz/last-checkpoint "$T/A/checkpoint-4"
ckpt-push -q "$T/root" hf://acme/bloomz >/dev/null
for f in model.safetensors config.json tokenizer.json training_args.bin last-checkpoint/model.safetensors last-checkpoint/trainer_state.json \
    last-checkpoint/rng_state_0.pth last-checkpoint/rng_state_1.pth last-checkpoint/scheduler.pt last-checkpoint/zero_to_fp32.py last-checkpoint/latest \
    last-checkpoint/global_step4/zero_pp_rank_{0,1}_mp_rank_00_{model,optim}_states.pt; do
    t "A6: $f" [ -s "$T/root/$f" ]
done
t "A6: the root has no state of the run" bash -c "! ls $T/root | grep -E 'optim|rng|scheduler|trainer_state|latest|global_step'"
t "A8: inference from the root" bash -c "ckpt-eval -q --max-new-tokens 4 --prompt 'the ' hf://acme/bloomz | grep -q hf://acme/bloomz"
t "A8: with the weights of the last save" cmp "$T/root/model.safetensors" "$T/A/checkpoint-4/model.safetensors"
t "A8: the run without a break" train --max-steps 6 -o "$T/whole"
t "A8: resumption from last-checkpoint/" train --max-steps 6 --resume-from-checkpoint "$T/root/last-checkpoint" -o "$T/resumed"
t "A8: is exact" same_state whole resumed 6
t "A7: weights that lie twice are sent once" [ "$(awk '$1 == "cdn" && $2 == "PUT"' "$L" | sed -n 's/.* in=\([0-9]*\).*/\1/p' | awk '{n += $1} END {print n + 0}')" -lt $((2 * $(du -sb "$T/A/checkpoint-4" | cut -f1) + 2000000)) ]
ckpt-push -q --create hf://acme/inside "$G/rows.jsonl" >/dev/null
t "A7: a run publishes by itself" bash -c "$(declare -f train); T=$T; train --max-steps 4 --push-to hf://acme/inside -o $T/I >/dev/null"
t "A7: its checkpoints are commits" [ "$(commits acme/inside)" = 4 ]
refused() { [ "$1" = "$(train --max-steps 4 --push-to "$2" -o "$T/R" 2>"$T/err" >/dev/null; echo $?)" ] && [ ! -e "$T/R" ] && grep -q -- "--push-to: .*$3" "$T/err" && [ "$(wc -l <"$T/err")" -le 2 ] || { cat "$T/err"; return 1; }; }
t "A7: a repository that is missing ends a run before it trains" refused 66 hf://acme/none "hf://acme/none: no such repository"
t "A7: one request finds it out" [ "$(grep -c acme/none "$L")" = 1 ]
for token in hf_readonly:acme/inside hf_wrong:token; do
    t "A7: the token ${token%:*}" env HF_TOKEN=${token%:*} bash -c "$(declare -f train refused); T=$T; refused 77 hf://acme/inside '${token#*:}'"
done
slow() { { echo "$T/A/checkpoint-2"; echo "$T/A/checkpoint-4"; echo "$T/I/checkpoint-2"; echo "$T/I/checkpoint-4"; } | ckpt-push -q --latest --create --hub-strategy checkpoint hf://acme/slow; }
t "A7: when saves come faster than they are sent" slow
t "A7: the last one is there, at most one a commit" bash -c "[ \$(curl -s -H 'Authorization: Bearer $HF_TOKEN' $HF_ENDPOINT/api/models/acme/slow/commits/main | grep -o '\"title\"' | wc -l) -le 3 ]"
t "A7: it is" fetched hf://acme/slow/last-checkpoint "$T/I/checkpoint-4"
expect_says 64 "A7: a folder cannot replace what lies in it" "hub-strategy checkpoint" ckpt-push --hub-strategy checkpoint "$T/x" "$T/A/checkpoint-2"
expect 64 "A7: one folder for all" ckpt-push --hub-strategy checkpoint --path-in-repo '{name}' hf://acme/slow "$T/A/checkpoint-2"
t "A7: in a repository of git" ckpt-push -q --create --hub-strategy checkpoint "$T/hub.git" "$T/A/checkpoint-2"
t "A7: again" ckpt-push -q --hub-strategy checkpoint "$T/hub.git" "$T/A/checkpoint-4"
t "A7: replaced there too" fetched "$T/hub.git/last-checkpoint" "$T/A/checkpoint-4"

# -- D ------------------------------------------------------------------------------------------
d_line() { train --max-steps 4 -o "$T/D" | ckpt-push -q --create --hub-strategy all_checkpoints hf://acme/opt; }
t "D5 X1: one line trains and uploads every checkpoint" d_line
for k in 2 4; do t "D8: checkpoint-$k stays, side by side" fetched hf://acme/opt/checkpoint-$k "$T/D/checkpoint-$k"; done
t "D5: one commit each" [ "$(commits acme/opt)" = 3 ]
t "D8: the root has the newest" bash -c "curl -sL -H 'Authorization: Bearer $HF_TOKEN' $HF_ENDPOINT/acme/opt/resolve/main/model.safetensors | cmp - $T/D/checkpoint-4/model.safetensors"
