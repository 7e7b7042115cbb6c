# What --dry-run says of a run is what the run then does: sizes of files, FLOPs, tokens; and it writes nothing.  [B4]
. "$(dirname "$0")/lib.sh"
R=tools/recipes/demo
$R/wordnet.sh "$T" 120 >/dev/null
ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
common=(--model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 --device cpu)
key() { sed -n "s/^  \"$1\": \(.*[^,]\),*$/\1/p" "$T/plan.json"; }
bytes() { find "$@" -type f -printf '%s\n' 2>/dev/null | awk '{ s += $1 } END { print s + 0 }'; }
near() { awk -v a="$1" -v b="$2" -v most="${3:-0.01}" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d <= most * b) }' || { echo "planned $1, found $2"; return 1; }; }
plan() { ckpt-train -q --dry-run --json "${common[@]}" -o "$T/run" "$@" > "$T/plan.json"; }
# sizes NAME OPTION... - plan, run two steps, compare.
sizes() {
    local name=$1 c="$T/run/checkpoint-2"; shift; rm -rf "$T/run"
    t "$name: a plan" plan --max-steps 2 "$@"
    t "$name: writes nothing" test ! -e "$T/run"
    t "$name: a run" ckpt-train -q "${common[@]}" --max-steps 2 -o "$T/run" "$@"
    t "$name: the model" near "$(key checkpoint_model_bytes)" "$(bytes "$c"/model.safetensors "$c"/adapter_model.safetensors)"
    t "$name: the optimizer" near "$(key checkpoint_optimizer_bytes)" "$(bytes "$c"/optimizer.pt "$c"/global_step2/*optim_states.pt)"
    t "$name: the checkpoint" near "$(key checkpoint_bytes)" "$(bytes "$c")"
    t "$name: all of the disk" near "$(key disk_bytes)" "$(bytes "$T/run")"
    t "$name: FLOPs" [ "$(key total_flos)" = "$(grep -oE '"total_flos": [0-9.]+' "$T/run/trainer_state.json" | tail -n 1 | cut -d' ' -f2)" ]
}
sizes "one rank"
sizes "8-bit moments" --bf16 --optim adamw_8bit
sizes "SGD, a state dict" --optim sgd --state-dict-file 'm-{step}.pt'
sizes "an adapter" --lora-rank 16 --target-modules all-linear
sizes "stage 1" --nproc 2 --zero-stage 1 --bf16
sizes "stage 3" --nproc 2 --zero-stage 3
sizes "stage 3, gathered, packed" --nproc 2 --zero-stage 3 --bf16 --stage3-gather-16bit-weights-on-model-save --packing
sizes "no final model" --no-final-model --gradient-accumulation-steps 3
rm -rf "$T/run"

# -- data, what is kept, what does not fit --------------------------------------------------------
t "a longer run" plan --num-train-epochs 2 --save-steps 10 --save-total-limit 3
t "what is kept, and one being written" [ "$(key checkpoints_kept)" = 4 ]
t "epochs" [ "$(key epochs)" = 2.0 ]
t "rows" [ "$(key rows)" = "$(wc -l < "$T/train.jsonl")" ]
ckpt-train -q "${common[@]}" --num-train-epochs 1 --include-num-input-tokens-seen all --no-final-model -o "$T/epoch" >/dev/null
t "an epoch" plan --num-train-epochs 1
t "its tokens" [ "$(key tokens)" = "$(grep -o '"num_input_tokens_seen": [0-9]*' "$T/epoch"/checkpoint-*/trainer_state.json | tail -n 1 | grep -o '[0-9]*$').0" ]
t "packed" plan --packing --max-seq-length 64
t "batches are nearly full" awk -v x="$(key packing_efficiency)" 'BEGIN { exit !(x > 0.8 && x <= 1) }'
t "all ranks' tokens" plan --num-train-epochs 1 --nproc 3 --zero-stage 2
t "with those that fill the last step" awk -v x="$(key tokens)" -v n="$(key steps)" 'BEGIN { exit !(n == 19 && x > 2400) }'
t "a product is timed" awk -v x="$(key product_flops_per_second)" -v s="$(key seconds_least)" 'BEGIN { exit !(x > 1e8 && s > 0) }'
t "asynchronous saves" plan --max-steps 4 --save-steps 1 --async-save true
t "need a copy of weights and moments" near "$(key snapshot_bytes)" $((3 * $(key weights_bytes)))
t "said so" [ "$(key saves)" = '"asynchronous"' ]
t "of a part" plan --max-steps 4 --save-steps 1 --async-save true --nproc 2 --zero-stage 3
t "half of it" near "$(key snapshot_bytes)" $((3 * 4 * $(key parameters) / 2))
t "a GPU that is not there" ckpt-train --dry-run --json --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --bf16 --device-memory-limit 8G -o "$T/none"
t "has no time" bash -c "ckpt-train -q --dry-run --json --model $T/base --train-file $T/train.jsonl --max-seq-length 32 --bf16 --device-memory-limit 8G -o $T/none 2>/dev/null | grep -q '\"seconds_least\": null'"
t "a plan of saves" plan --max-steps 4 --save-steps 1 --bf16 --device-memory-limit 8G --nproc 2 --zero-stage 3
t "takes of its host what saves copy" [ "$(key host_bytes)/$(key saves)" = '0/"asynchronous"' ]
t "which is half of all" near "$(key snapshot_bytes)" $((3 * 4 * $(key parameters) / 2))
if mkdir "$T/small" && mount -t tmpfs -o size=20M none "$T/small" 2>/dev/null; then
    expect_says 0 "a disk that is too small" "GiB are needed, the disk has" ckpt-train --dry-run "${common[@]}" --max-steps 2 -o "$T/small/run"
    t "was not written to" [ -z "$(ls -A "$T/small")" ]
    umount "$T/small"
fi
expect_says 0 "people read lines" "FLOPs: " ckpt-train --dry-run "${common[@]}" -o "$T/none"
# What the run refuses before it loads weights, its dry run refuses: line by line, with its status.
few=(ckpt-train -q "${common[@]}" --max-steps 2)
"${few[@]}" -o "$T/way/used" >/dev/null; "${few[@]}" -o "$T/way/held" >/dev/null
mkdir -p "$T/way"/{log/metrics.jsonl,memory/memory.csv}; echo x >"$T/way/file"; ln -s nowhere "$T/way/dead"; head -n 20 "$T/train.jsonl" >"$T/way/other.jsonl"
foretold 73 "an earlier run" "${few[@]}" -o used
flock "$T/way/held/.lock" sleep 60 & holds=$!
wait_for '! flock -n "$T/way/held/.lock" true'
foretold 73 "a run that writes there" "${few[@]}" -o held --resume-from-checkpoint latest
t "which is named" grep -q 'held: process [0-9]* on .* is writing there' "$T/foretold"
kill $holds; wait $holds 2>/dev/null
foretold 73 "a file where a folder is wanted" "${few[@]}" -o file
foretold 73 "a file as a folder" "${few[@]}" -o file/run
foretold 73 "a link to nothing" "${few[@]}" -o dead
foretold 64 "an address" "${few[@]}" -o hf://acme/toy
foretold 73 "a directory where metrics go" "${few[@]}" -o log
foretold 73 "one where samples of memory go" "${few[@]}" -o memory --memory-log 1
foretold 73 "a file where events go" "${few[@]}" -o x --report-to tensorboard --logging-dir file
foretold 73 "one where split data go" "${few[@]}" -o x --train-split-ratio 0.5 --data-dir file
foretold 78 "a file of weights without a name" "${few[@]}" -o x --state-dict-file a/b.pt
foretold 78 "one of an adapter" "${few[@]}" -o x --state-dict-file b.pt --lora-rank 2
foretold 64 "a destination of no kind" "${few[@]}" -o x --push-to ftp://acme
foretold 73 "one that cannot be made" "${few[@]}" -o x --push-to none/out
t "of which it is said whose it is" grep -q 'ckpt-train: --push-to: none/out: the directory' "$T/foretold"
foretold 65 "a file that holds no weights" "${few[@]}" -o x --resume-file file --initial-step 1
foretold 65 "a run on other data" "${few[@]}" -o x --resume-from-checkpoint used/checkpoint-2 --max-steps 4 --train-file other.jsonl
foretold 65 "a run with another seed" "${few[@]}" -o x --resume-from-checkpoint used/checkpoint-2 --max-steps 4 --seed 7
foretold 0 "what goes on" "${few[@]}" -o used --resume-from-checkpoint latest --max-steps 4
t "commands of the user are not run" bash -c "cd $T/way && ckpt-train --dry-run -q ${common[*]} -o x2 --on-end 'touch ran' && [ ! -e ran ]"
if command -v strace >/dev/null; then
    (cd "$T" && strace -f -o "$T/trace" -e trace=openat,open,creat,mkdir,mkdirat,rename,unlink,link,symlink "$B/ckpt-train" -q --dry-run "${common[@]}" -o "$T/none" >/dev/null)
    t "no call that writes" bash -c "! grep -E 'O_(WRONLY|RDWR|CREAT)|^[0-9 ]*(mkdir|rename|unlink|link|symlink)' $T/trace | grep -vE '/dev/|/proc/|/sys/|ENOENT|O_TMPFILE'"
fi
