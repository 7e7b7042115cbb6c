# What is wrong with inputs, settings or outputs of several ranks is told once, with its status, within seconds; pipes
# and signals reach ranks as they reach one process.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1
OPT=$G/models/opt-a T5=$G/lora/t5-qv/base QWEN=$G/lora/qwen2-lora-bias/base
# rows NAME RECORD OTHER - twelve records, the fourth another; of OTHER alone in NAME-good.
rows() { for i in $(seq 12); do if [ $i = 4 ]; then echo "$2"; else echo "$3"; fi; done >"$1"; }
LM='{"input_ids": [5, 7, 9, 3, 2, 11], "labels": [5, 7, 9, 3, 2, 11]}'
PAIR='{"input_ids": [5, 7, 9, 3, 2, 11], "labels": [4, 6, 1]}'
rows lm "$LM" "$LM"; rows pairs "$PAIR" "$PAIR"
rows lm-id '{"input_ids": [5, 100000, 9]}' "$LM"
rows lm-label '{"input_ids": [5, 7, 9], "labels": [5, 100000, 9]}' "$LM"
rows lm-long "{\"input_ids\": [$(seq -s, 200 | sed 's/[0-9]*/3/g')]}" "$LM"
rows lm-none '{"input_ids": [], "labels": []}' "$LM"
rows pairs-alone '{"input_ids": [5, 7, 9]}' "$PAIR"
rows pairs-id '{"input_ids": [5, 7, 9], "labels": [4, 100000]}' "$PAIR"
masked='{"input_ids": [5, 7, 9], "labels": [-100, -100, -100]}'
rows lm-masked "$masked" "$masked"
train() { timeout -s KILL 10 ckpt-train -q --per-device-train-batch-size 1 --max-steps 8 --data-cache off -o out "$@"; }
# refused STATUS NAME TEXT OPTION... - by two ranks with sharded weights and by three that hold all.
refused() {
    local want=$1 name=$2 text=$3; shift 3
    for ranks in "2 --zero-stage 3" "3 --zero-stage 0"; do
        # shellcheck disable=SC2086
        expect_says "$want" "$name, --nproc $ranks" "$text" train --nproc $ranks "$@"
    done
}
refused 65 "an id that the model has not" "lm-id: record 4: token 2 has id 100000" --model "$OPT" --train-file lm-id
refused 65 "a label that it has not" "lm-label: record 4: label 2 is 100000" --model "$OPT" --train-file lm-label
refused 65 "a record longer than its positions" "lm-long: record 4: 200 tokens, the model has positions for 40" --model "$OPT" --train-file lm-long
t "with what cuts it" says "hint: --max-seq-length 40"
t "which does" train --nproc 2 --zero-stage 3 --model "$OPT" --train-file lm-long --max-seq-length 40 -o cut
refused 65 "a record of nothing" "lm-none: record 4: no tokens" --model "$OPT" --train-file lm-none
refused 65 "a pair without its target" "pairs-alone: record 4: field \"labels\"" --model "$T5" --lora-rank 2 --train-file pairs-alone
refused 65 "a bad record of the evaluation" "pairs-id: record 4: token 3 has id 100000" --model "$T5" --lora-rank 2 --train-file pairs --eval-file pairs-id
refused 65 "an evaluation of nothing" "ckpt-train: evaluation data: no supervised token in" --model "$OPT" --train-file lm --eval-file lm-masked --max-steps 1
refused 78 "an adapter of nothing" "the adapter changes no module" --model "$QWEN" --train-file lm --lora-rank 2 --target-modules nothing
t "the hint says what any model has" grep -q '^hint: all-linear takes the linear modules of any model' "$T/.err"
refused 78 "rows of a module that has none" "trainable_token_indices: " --model "$QWEN" --train-file lm --lora-rank 2 --trainable-token-indices 1000000
refused 65 "labels that carry no loss" "training data: no supervised token in" --model "$OPT" --train-file lm-masked
refused 65 "another model's adapter" "absent" --model "$QWEN" --adapter "$G/lora/opt-bias-all/adapter" --train-file lm
cp -r "$QWEN" broken; chmod -R u+w broken; truncate -s -40 broken/model.safetensors
refused 65 "weights that are cut off" "broken/model.safetensors: tensors need" --model broken --train-file lm
rm broken/model.safetensors
refused 65 "no weights" "broken: config.json, but no weights" --model broken --train-file lm
train --nproc 2 --zero-stage 3 --model "$QWEN" --train-file lm --max-steps 2 -o was >log 2>&1
refused 65 "a run of other data" "was/checkpoint-2: the run had other training data" --model "$QWEN" --train-file lm-masked -o was --resume-from-checkpoint latest
truncate -s -100 was/checkpoint-2/global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt
refused 65 "a damaged part" "zero_pp_rank_1_mp_rank_00_optim_states.pt" --model "$QWEN" --train-file lm -o was --resume-from-checkpoint was/checkpoint-2

small() { (ulimit -f 8; train --nproc 2 --model "$OPT" --train-file lm); }
expect 74 "a limit on files" small
t "is told" says ": File too large"

# Copies of the data on two hosts, of which one is older.
rows lm-older "$LM" '{"input_ids": [5, 7], "labels": [5, 7]}'
pair() {        # OPTION of both ranks, then the file of each
    local port=$((20000 + RANDOM % 12000)) r f=("$2" "$3") option=$1; shift 3
    for r in 1 0; do
        RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port train --model "$OPT" "$option" "${f[r]}" "$@" &
    done
    wait $!
}
expect_says 78 "ranks with other data" "rank 1: --train-file is 12 samples, digest " pair --train-file lm lm-older
expect_says 78 "with other data to evaluate on" "rank 1: --eval-file is 12 samples, digest " pair --eval-file lm lm-older --train-file lm --eval-steps 2
t "with the same, of other names" bash -c "cp lm lm-copy; $(declare -f pair train); OPT=$OPT; pair --train-file lm lm-copy -o copied"

# -- pipes ---------------------------------------------------------------------------------------
printf 'model: %s\ntrain-file: lm\nmax-steps: 2\nnproc: 2\n' "$OPT" >run.yaml
t "data of a pipe by its name" train --model "$OPT" --nproc 2 --train-file <(cat lm) --eval-file <(cat lm) --max-steps 2 -o p1
t "of standard input" train --model "$OPT" --nproc 2 --train-file - --max-steps 2 -o p2 <lm
t "the same run" cmp p1/checkpoint-2/model.safetensors p2/checkpoint-2/model.safetensors
piped() { cat "$1" | train --model "$OPT" --nproc 2 --train-file - --max-steps 2; }
expect_says 65 "which ranks name as such" "/dev/stdin: record 4: token 2 has id 100000" piped lm-id
printf 'prompt,completion\na,b\n' >rows.csv
expect_says 65 "CSV without a name" "/dev/stdin: neither JSON nor CSV" piped rows.csv
t "is told how it is known" says "hint: CSV and text are known by names that end in .csv, .tsv or .txt"
t "settings of a pipe" train --config <(cat run.yaml) --max-steps 2 -o p3
t "of standard input beside another pipe" bash -c "$(declare -f train); cat run.yaml | train --config - --eval-file <(cat lm) --max-steps 2 -o p4"
t "the same run too" bash -c "cmp p1/checkpoint-2/model.safetensors p3/checkpoint-2/model.safetensors && cmp p1/checkpoint-2/model.safetensors p4/checkpoint-2/model.safetensors"
json() { train --json --model "$OPT" --nproc 2 --train-file lm-id 2>err.json; [ $? = 65 ] && one_line '^\{"tool":"ckpt-train","status":65,"reason":"mismatch","error":"rank [01]: lm-id: record 4: ' <err.json; }
t "an error of ranks as JSON" json

# -- Ctrl-C in a pipeline, and a reader that left -------------------------------------------------
interrupted() {
    setsid bash -c "trap : INT; $1; echo \"\${PIPESTATUS[@]}\" > status" >log.out 2>log.err &
    local pid=$!
    wait_for '[ -d long/checkpoint-40 ]' && kill -INT -- -$pid && wait $pid
    wait_for '[ -e status ]' && cat status log.err
}
LONG="ckpt-train -q --model $OPT --train-file lm --max-steps 1000000 --save-steps 40 --save-total-limit 3 --nproc 2 --zero-stage 3 -o long"
t "INT to all of train on two ranks, merge, push" interrupted "$LONG | ckpt-merge | ckpt-push --create int.git"
t "the trainer stopped, the others ended well" grep -qx '75 0 0' status
t "said how to go on, once" bash -c "[ \$(grep -c '^ckpt-train: stopped at step [0-9]*, saved: go on with --resume-from-checkpoint latest' log.err) = 1 ]"
t "what was saved last is what was published" bash -c "git clone -q int.git clone && cmp clone/model.safetensors $(newest long)-merged/model.safetensors"
left() { train --model "$OPT" --nproc 2 --train-file lm --max-steps 4 --save-steps 1 -o left 2>log.err | true; echo "${PIPESTATUS[0]}" >status; }
left
t "a reader that left: 74 at the end" grep -qx 74 status
t "told in one line of error" bash -c "[ \$(grep -c '^ckpt-train: [^w]' log.err) = 1 ]"
t "all was saved" test -d left/checkpoint-4
