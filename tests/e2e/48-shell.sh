# What a shell is for: data, evaluation data, settings and templates on standard input and from <(...), checkpoints and models
# through pipes, slow readers, and what is no stream said in one line.  [X1]
. "$(dirname "$0")/lib.sh"
set -o pipefail
M=$G/lora/bloom-qkv BASE=$G/lora/bloom-qkv/base
cd "$T" || exit 1
cp "$M/rows.jsonl" rows.jsonl
common=(-q --model "$BASE" --per-device-train-batch-size 2 --learning-rate 1e-3 --max-steps 3 --save-steps 3 --threads 1)
train() { ckpt-train "${common[@]}" "$@"; }
weights() { cmp "$1/checkpoint-3/model.safetensors" files/checkpoint-3/model.safetensors; }

t "from files" train --train-file rows.jsonl --eval-file rows.jsonl --eval-steps 3 -o files
from_stdin() { cat rows.jsonl | train --train-file - --eval-file rows.jsonl --eval-steps 3 -o stdin; }
t "training data on standard input" from_stdin
t "the same weights" weights stdin
eval_stdin() { cat rows.jsonl | train --train-file rows.jsonl --eval-file - --eval-steps 3 -o evalin; }
t "evaluation data on standard input" eval_stdin
t "the same losses" bash -c "diff <(grep -o '\"eval_loss\":[0-9.]*' files/metrics.jsonl) <(grep -o '\"eval_loss\":[0-9.]*' evalin/metrics.jsonl)"
t "all from <(...)" bash -c 'ckpt-train -q --config <(printf "model: %s\nper_device_train_batch_size: 2\nlearning_rate: 1e-3\nmax_steps: 3\nsave_steps: 3\nthreads: 1\neval_steps: 3\n" "$0") --train-file <(cat rows.jsonl) --eval-file <(cat rows.jsonl) -o all' "$BASE"
t "the same weights" weights all
config_stdin() { printf '{"max_steps": 3, "save_steps": 3, "learning_rate": 0.001}' | ckpt-train -q --config - --model "$BASE" --per-device-train-batch-size 2 --threads 1 --train-file <(cat rows.jsonl) -o conf; }
t "settings on standard input, data beside them" config_stdin
t "the same weights" weights conf
both_stdin() { cat rows.jsonl | train --train-file - --eval-file - --eval-steps 3 -o both; }
t "one standard input for both" both_stdin
t "the same losses" bash -c "diff <(grep -o '\"eval_loss\":[0-9.]*' files/metrics.jsonl) <(grep -o '\"eval_loss\":[0-9.]*' both/metrics.jsonl)"
compressed() { gzip -c rows.jsonl | train --train-file - -o gz; }
t "compressed data on standard input" compressed
t "the same weights" weights gz
expect 65 "a stream that ends at once" bash -c 'ckpt-train -q --model "$0" --train-file - -o no </dev/null' "$BASE"
t "leaves no folder" [ ! -e no ]
expect 0 "data of a program that fails later" bash -c '{ cat rows.jsonl; } | ckpt-train -q --model "$0" --train-file - --max-steps 1 --threads 1 -o late' "$BASE"

# Checkpoints and models through pipes.
pack() { ckpt-merge -q -o - --to hf "$1"; }
t "two streams are compared: equal" ckpt-inspect --diff <(pack files) <(pack stdin)
expect 1 "and different" ckpt-inspect --diff <(pack "$BASE") <(pack files)
t "in a page" bash -c "ckpt-inspect --diff --html d.html <(ckpt-merge -q -o - --to hf '$BASE') <(ckpt-merge -q -o - --to hf files); [ \$? = 1 ] && grep -q 'Tensors that differ' d.html"
t "a file of tensors by a pipe" bash -c "ckpt-inspect <(cat files/model.safetensors) | grep -q word_embeddings"
loss() { grep -o '"loss": *[0-9.]*' | head -n 1; }
score() { ckpt-eval -q --json --eval-file "$@" | loss; }
score rows.jsonl files >want 2>err
t "a score" [ -s want ]
eval_data() { cat rows.jsonl | score - files | diff - want; }
t "of data on standard input" eval_data
t "of data from <(...)" bash -c "ckpt-eval -q --json --eval-file <(cat rows.jsonl) files | grep -o '\"loss\": *[0-9.]*' | head -n 1 | diff - want"
eval_list() { ls -d files stdin | ckpt-eval -q --json --eval-file rows.jsonl - >list && [ "$(grep -o '"loss":' list | wc -l)" = 2 ]; }
t "of a list of models on standard input" eval_list
t "of lines from find, ended by NUL" bash -c "find files stdin -maxdepth 1 -name 'checkpoint-*' -print0 | ckpt-inspect -0 -q - | grep -c '^path: ' | grep -qx 2"
t "so are a pipe's of the command line" ckpt-push -q there2 <(pack files)
t "as it is" cmp there2/model.safetensors files/model.safetensors
t "and merged" ckpt-merge -q -o m.safetensors --to safetensors <(pack files)
t "to the same bytes" bash -c "cmp <(ckpt-merge -q -o - --to safetensors files) m.safetensors || ckpt-inspect -q --diff m.safetensors files"
expect_says 64 "with a name to go to" "needs -o" bash -c "ckpt-merge <(ckpt-merge -q -o - --to hf files)"
expect 65 "a pipe of something else" ckpt-inspect <(echo hello)
expect_says 77 "a link of a disk is still none to follow" "a symbolic link leads there" bash -c "ln -s files/model.safetensors link; ckpt-inspect link"
pushed() { pack files | ckpt-push -q there; }
expect 0 "a model's bytes are published" pushed
t "as it is" cmp there/model.safetensors files/model.safetensors

gated() { ckpt-merge -q --json -o gated files | ckpt-eval -q --json --pass-through --eval-file rows.jsonl --fail-above loss=99 2>figures | ckpt-push -q --json gone.json; }
expect_prints 0 "objects of --json are a pipe's paths" '{"path":"gone.json"}' gated
t "what went through is published" cmp gone.json/model.safetensors gated/model.safetensors
t "and the figures are on standard error" grep -q '"perplexity"' figures
no_path() { ckpt-eval -q --json --eval-file rows.jsonl files | tr -d '\n ' | ckpt-push -q nowhere; }
expect_says 65 "results are no paths" "--pass-through" no_path

# Readers that are slow, or leave; one checkpoint is kept, and none goes before it was read.
slow() { train --train-file rows.jsonl --max-steps 8 --save-steps 1 --save-total-limit 1 -o slow | while read -r p; do sleep 0.2; [ -e "$p/model.safetensors" ] || echo "$p is gone"; done; }
expect_prints 0 "a slow reader of lines" "" slow
t "who takes a line has seen its checkpoint, or a later one" [ "$(grep -c . .out)" -lt 8 ]
merges() { train --train-file rows.jsonl --max-steps 6 --save-steps 1 --save-total-limit 1 -o m | { sleep 1; ckpt-merge -q --to safetensors -; }; }
expect 0 "a merge that begins late" merges
t "merges the last" cmp m/checkpoint-6-merged/model.safetensors m/checkpoint-6/model.safetensors
t "and all before it" [ "$(ls -d m/checkpoint-*-merged | wc -l)" = 6 ]
leaves() { train --train-file rows.jsonl --max-steps 6 --save-steps 1 -o head | head -n 1; }
expect 74 "a reader that leaves" leaves
t "all was saved nevertheless" [ -d head/checkpoint-6 ]
to_full() { train --train-file rows.jsonl --max-steps 2 --save-steps 1 -o full >/dev/full; }
expect 74 "output on a full disk" to_full
t "all was saved nevertheless" [ -d full/checkpoint-2 ]
closed() { train --train-file rows.jsonl --max-steps 2 -o closed >&-; }
closed >.out 2>.err; got=$?
t "closed standard output: status $got, not a crash, and the run is whole" bash -c "[ $got = 0 -o $got = 74 ] && [ -d closed/checkpoint-2 ]"
tee_log() { train --train-file rows.jsonl --max-steps 2 -o teed 2>&1 | tee log >/dev/null; }
t "both streams into one file" tee_log
xargs_inspect() { ls -d files/checkpoint-* | xargs -n 1 ckpt-inspect --json | grep -c '"global_step": *3' | grep -qx 1; }
t "paths by xargs" xargs_inspect
t "in a loop" bash -c "for c in \$(ckpt-train -q --model '$BASE' --train-file rows.jsonl --max-steps 2 --save-steps 1 --threads 1 -o loop); do ckpt-inspect -q \"\$c\" || exit 1; done | grep -c '^step:' | grep -qx 2"
