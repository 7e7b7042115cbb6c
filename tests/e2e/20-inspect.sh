# ckpt-inspect on every kind of file the goldens have.
. "$(dirname "$0")/lib.sh"
for d in "$G"/deepspeed/*/; do
    t "X2 DeepSpeed $(basename "$d")" ckpt-inspect --optimizer "$d/ckpt"
done
for f in "$G"/hf-trainer/*/run/checkpoint-*/{rng_state*.pth,scheduler.pt,training_args.bin,trainer_state.json}; do
    [ -e "$f" ] && t "${f#"$G"/hf-trainer/}" ckpt-inspect --json "$f"
done
t "a checkpoint of HF Trainer with DeepSpeed" bash -c "ckpt-inspect $G/hf-trainer/ds3_w2_bf16/run/checkpoint-4 | grep -q 'random states of a rank'"
t "X2 a decoded generator" bash -c "ckpt-inspect $G/hf-trainer/ds3_w2_bf16/run/checkpoint-4/rng_state_1.pth | grep -q 'python: MT19937'"
t "X2 an adapter" bash -c "ckpt-inspect $G/lora/bloom-qkv/adapter | grep -q 'format: peft'"
t "a model directory" bash -c "ckpt-inspect $G/lora/bloom-qkv/base | grep -q 'format: hf'"
t "statistics" ckpt-inspect --stats --digest "$G/lora/bloom-qkv/base"
t "digests agree across formats" bash -c "
    ckpt-merge -q --tied keep -o $T/x.pt $G/deepspeed/0.19-s3_w2_bf16/ckpt
    d() { ckpt-inspect --json --digest \"\$1\" | sed -nE 's/.*\"name\": (\"[^\"]*\").*\"sha256\": (\"[0-9a-f]{64}\").*/\1 \2/p' | sort | grep .; }
    diff <(d $G/deepspeed/0.19-s3_w2_bf16/ckpt) <(d $T/x.pt)"
expect 0 "equal checkpoints" ckpt-inspect --diff "$G/deepspeed/0.19-s3_w2_bf16/ckpt" "$T/x.pt"
expect 1 "different checkpoints" ckpt-inspect --diff "$G/deepspeed/0.19-s3_w2_fp16/ckpt" "$G/deepspeed/0.19-s3_w1_bf16/ckpt"
row() { grep -qE -- "$1" "$T/.out"; }
expect 1 "a checkpoint and its bf16" bash -c "ckpt-merge -q -o $T/h.safetensors --tied keep --dtype bf16 $T/x.pt && ckpt-inspect --diff --json $T/x.pt $T/h.safetensors"
t "--diff shows both dtypes, a small difference, one direction" row '"difference": "dtype", "first": "F32", "second": "BF16", "elements": [1-9][0-9]*, "relative": 0\.00[0-9]+, "cosine": 0\.9999'
expect 64 "three checkpoints" ckpt-inspect --diff "$T/x.pt" "$T/x.pt" "$T/x.pt"
expect 64 "one checkpoint" ckpt-inspect --diff "$T/x.pt"
expect 64 "two questions" ckpt-inspect --diff --compare "$T/x.pt" "$T/x.pt"
HF=$G/hf-trainer/plain_w1/run
expect 0 "runs side by side" ckpt-inspect --compare "$HF" "$HF/checkpoint-2" "$HF/checkpoint-4"
t "the newest checkpoint's state, and each one's" bash -c "[ \$(grep -cE 'run +4 |checkpoint-4 +4 |checkpoint-2 +2 ' $T/.out) = 3 ]"
expect_prints 0 "two that are no runs" "unequal tensors: 0" ckpt-inspect --compare "$T/x.pt" "$T/x.pt"
expect_says 66 "one that is none" "$G/torch: no run" ckpt-inspect --compare "$HF" "$G/torch" "$HF"
expect 0 "statistics as JSON" ckpt-inspect --stats --json "$T/x.pt"
t "statistics have zeros and a histogram" row '"zero_share": 0\.[0-9]+, "nan": 0, "inf": 0, "histogram": \{"low": [^}]*"counts": \[[0-9, ]+\]\}'
expect 0 "X2 a TensorBoard file" ckpt-inspect --json "$G/logs/events.out.tfevents.torch"
t "the log has every number" bash -c "[ \$(grep -c '\"tag\": \"train/loss\", \"step\"' $T/.out) = 50 ]"
t "the log has a summary of each tag" row '"tag": "eval/loss", "kind": "scalar", "count": 5, "first_step": 9, "last_step": 49'
expect 0 "X2 a W&B run" ckpt-inspect --glob 'train/*' "$G/logs/run-gold0001.wandb"
t "the log has the run's configuration" row '"learning_rate": 5e-05'
t "the log shows only the requested tags" bash -c "grep -qE '^train/loss +scalar +40 +0 +39 +3 ' $T/.out && ! grep -q '^eval' $T/.out"
expect 0 "a plot of both" ckpt-inspect --plot --glob '*loss' "$G/logs/run-gold0001.wandb" "$G/logs/events.out.tfevents.torch"
t "draws each tag" bash -c "[ \$(grep -cE '^(train|eval).loss, [0-9]+ values, steps' $T/.out) = 4 ]"
expect 0 "nvidia-smi's CSV" ckpt-inspect --json "$G/logs/nvidia-smi.csv"
t "C4 its memory, with least, most and mean" row '"tag": "0/memory.used .MiB.", "kind": "scalar", "count": 3.*"min": 4.*"max": 31244.*"mean": 20782'
expect 0 "as a plot" ckpt-inspect --plot --glob '0/memory.used*' "$G/logs/nvidia-smi.csv"
expect 64 "tensors of a log" ckpt-inspect --stats "$G/logs/run-gold0001.wandb"
expect 66 "a plot of nothing" ckpt-inspect --plot --glob none "$G/logs/run-gold0001.wandb"
{ cat "$G/logs/events.out.tfevents.tensors"; head -c 20 "$G/logs/events.out.tfevents.tensors"; } > "$T/torn"
expect_prints 0 "a torn event file" "torn end, left out: 20" ckpt-inspect --verify "$T/torn"
{ head -c 400 "$G/logs/events.out.tfevents.tensors"; printf x; tail -c +402 "$G/logs/events.out.tfevents.tensors"; } > "$T/bad"
expect_says 65 "a damaged event file" "checksum of an event does not hold" ckpt-inspect "$T/bad"
expect 0 "B2 X2 a parquet file" ckpt-inspect --json "$G/parquet/flat-groups.parquet"
t "its rows and row groups" bash -c "grep -q '\"rows\": 60,' $T/.out && grep -q '\"first_row\": 52, \"rows\": 8' $T/.out"
t "B2 its columns" row '"column": "u64", "type": "uint64", "physical": "INT64", "presence": "optional", "codec": "ZSTD"'
t "B2 its first rows" row '\{"index": 4, "row": \{"id":4,"i32":'
t "B7 and its last ones, in another row group" bash -c "grep -A9 last_rows $T/.out | grep -q '{\"index\": 59, \"row\": {\"id\":59,'"
# A table as pandas ends it: head, tail, shape; what the writer said beside the schema.
expect_prints 0 "B7 an Arrow file that datasets saved: features in its metadata" 'huggingface  {"info": {"features": {"text": {' ckpt-inspect "$G/hf-saved/test/data-00000-of-00001.arrow"
expect_prints 0 "B7 the folder's, as JSON" '"huggingface": "{\"info\": {\"features\"' ckpt-inspect --json "$G/hf-saved-2shards"
expect_prints 0 "B7 a data set of the Hub: features in its metadata" '{"info": {"features": {"' ckpt-inspect "$G/hf-imdb/data/train-00000-of-00002.parquet"
t "B7 head and tail" bash -c "grep -A5 ' first rows' $T/.out | grep -oE '^ *[0-9]+' | tr -d ' \n' | grep -qx 01234 && grep -c ' last rows' $T/.out"
t "B7 and [rows x columns]" bash -c "tail -n 1 $T/.out | grep -qx '\[[0-9]* rows x 2 columns\]'"
expect_prints 0 "B7 of chosen columns, as many rows as asked" '[40 rows x 2 columns]' ckpt-inspect --rows 25 --glob n --glob input "$G/parquet/instructions.parquet"
t "B7 each row once" [ "$(grep -cE '^ *[0-9]+  \{"input":.*,"n":[0-9]+\}$' "$T/.out")" = 40 ]
expect_prints 0 "B7 JSON lines too" '[40 rows x 4 columns]' ckpt-inspect --rows 1 "$G/parquet/instructions.jsonl"
t "B7 with their last row" grep -qE '^39  \{.*"n": ?39\}' "$T/.out"
expect_prints 0 "B7 none, if none are wanted" "[40 rows x 4 columns]" ckpt-inspect --rows 0 "$G/parquet/instructions.parquet"
t "nor headings" bash -c "! grep -q ' rows\$' $T/.out"
expect 64 "rows of a log" ckpt-inspect --rows 1 "$G/logs/run-gold0001.wandb"
expect 64 "rows of a model" ckpt-inspect --rows 1 "$G/saved/bloom"
expect 0 "one column of one with lists" ckpt-inspect --verify --glob ll "$G/parquet/nested-v2.parquet"
t "only the selected column is shown" row '^ *[0-9]+  \{"ll":\[\[null\]\]\}$'
t "read to the end" prints "every value of every row reads"
head -c 3000 "$G/parquet/flat-crc.parquet" > "$T/cut.parquet"
expect_says 65 "a cut parquet file" "does not end in PAR1" ckpt-inspect "$T/cut.parquet"
{ head -c 150 "$G/parquet/flat-crc.parquet"; printf '\377'; tail -c +152 "$G/parquet/flat-crc.parquet"; } > "$T/bad.parquet"
expect_says 65 "a damaged page" "checksum of a page does not hold" ckpt-inspect --verify "$T/bad.parquet"
expect 64 "a plot of rows" ckpt-inspect --plot "$T/bad.parquet"
expect_prints 0 "a saved data set" "rows: 150" ckpt-inspect --verify "$G/hf-saved-2shards"
cp -r "$G/hf-saved-2shards" "$T/saved"; rm "$T/saved/data-00001-of-00002.arrow"
expect 65 "a saved data set without its last file" ckpt-inspect --verify "$T/saved"
t "a missing data file is named" prints "data-00001-of-00002.arrow  missing"
expect 64 "a data set of splits" ckpt-inspect "$G/hf-saved"
mkdir "$T/tb"; cp "$G/logs/events.out.tfevents.torch" "$T/tb"
expect_prints 0 "a folder with a log" "format: tensorboard" ckpt-inspect "$T/tb"
cp "$G/logs/events.out.tfevents.tensors" "$T/tb"
expect 0 "a folder with two" ckpt-inspect --json "$T/tb"
t "event files of a folder are one log" bash -c "grep -q '\"records\": 121,' $T/.out && grep -q '\"tag\": \"c_half\"' $T/.out && grep -q '\"tag\": \"eval/loss\"' $T/.out"
cp "$G/logs/run-gold0001.wandb" "$T/tb"
expect 65 "a folder with logs of two kinds" ckpt-inspect "$T/tb"
expect 0 "JSON lines" ckpt-inspect "$G/rows.jsonl"
t "their fields" row '^input +string +12$'
printf '{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n' > "$T/metrics.jsonl"
expect_prints 0 "a plot of JSON lines" "loss, 2 values, steps 1 to 2" ckpt-inspect --plot "$T/metrics.jsonl"
expect 77 "a pickle that would run something" ckpt-inspect "$G/malicious/pt/bare_pickle_call.pt"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' > "$T/model.safetensors"
expect_says 65 "B6 a Git LFS pointer" "Git LFS pointer" ckpt-inspect "$T/model.safetensors"
printf '\033[31mx' > "$T/esc"; expect 65 "an escape sequence" ckpt-inspect "$T/esc"
# Sides of a run.  The numbers are those that CPython, numpy and torch give from these states.
DSC=$G/hf-trainer/ds3_w2_bf16/run/checkpoint-4
expect 0 "X2 random states of all ranks" ckpt-inspect --rng "$DSC"
t "Python's next numbers" row '^rng_state_1.pth: python: .*, next 0\.33456 0\.19794 0\.489515 '
t "numpy's" row '^rng_state_1.pth: numpy: .*, next 0\.891531 0\.815837 0\.0358896 '
t "torch's, with seed and draws" row '^rng_state_1.pth: cpu: MT19937 at 2 of 624, seed 104, 2 words drawn, next 0\.444379 0\.363113 0\.7183'
expect 0 "as JSON, of one file" ckpt-inspect --rng --json "$HF/checkpoint-2/rng_state.pth"
t "random numbers are shown to the last digit" row '0\.9604947743238768'
expect 66 "random states that are not there" ckpt-inspect --rng "$G/lora/bloom-qkv/base"
expect 64 "of a file that has none" ckpt-inspect --rng "$HF/checkpoint-2/scheduler.pt"
expect 0 "X2 arguments" ckpt-inspect --args "$DSC"
t "a field a line, enumerations by their values" row '^lr_scheduler_type +"linear"$'
t "numbers as they are" row '^learning_rate +0\.003$'
expect_prints 0 "X2 state" "train loss, 4 values, steps 1 to 4" ckpt-inspect --state "$HF/checkpoint-4"
expect 0 "sides together are one document" ckpt-inspect --json --state --args --rng "$DSC"
t "each key occurs once" bash -c "grep -oE '^  \"[a-z_]+\"' $T/.out | sort | uniq -d | grep . && exit 1; grep -c '^  \"' $T/.out"
expect 0 "X2 optimizer" ckpt-inspect --optimizer "$DSC"
t "groups" row '^ +0 +0\.0 +\[0\.9, ?0\.999\] +1e-0?8 +0\.0'
t "norms of moments" row '^model.norm.weight +0\.00162902 +2\.80367e-07$'
expect 0 "optimizer.pt" ckpt-inspect --optimizer "$HF/checkpoint-2/optimizer.pt"
t "steps and norms" row '^state.0 +2 +0\.0642199 +4\.17415e-05$'
# What a file is decides, not its name.
cp "$G/torch/shared.pt" "$T/weights.pth"; cp "$HF/checkpoint-2/scheduler.pt" "$T/other.bin"; cp "$HF/checkpoint-2/rng_state.pth" "$T/rng.bin"
t "weights in a .pth are listed" bash -c "ckpt-inspect $T/weights.pth | grep -qE '^tensors: [1-9]'"
t "values in a .bin are shown" bash -c "ckpt-inspect $T/other.bin | grep -q last_epoch"
t "random states by what they are" bash -c "ckpt-inspect $T/rng.bin | grep -q '^python: MT19937'"
cp "$G/malicious/pt/reduce_posix_system.pt" "$T/training_args.bin"
expect 77 "a name hides nothing" ckpt-inspect "$T/training_args.bin"
# Scans: verdicts, and every file that the readers refuse.
expect 0 "a run is harmless" ckpt-inspect --scan "$DSC"
t "the scan names what a pickle imports" row '^training_args.bin +training_args/data.pkl +transformers.training_args.TrainingArguments +[0-9]+ +called +clean'
expect 77 "a call" ckpt-inspect --scan "$G/malicious/pt/build_setstate_gadget.pt"
t "named with its verdict" row 'posix\.system +[0-9]+ +(called|named) +dangerous +runs programs'
ckpt-inspect --scan --json "$G/malicious/pt/functools_partial.pt" > "$T/.out" 2>/dev/null
t "a partial call: both names" bash -c "[ $? = 77 ] && grep -qE '\"functools.partial\", \"at\": [0-9]+, \"use\": \"called\", \"verdict\": \"dangerous\"' $T/.out && grep -q os.system $T/.out"
expect 77 "an archive that leads away" ckpt-inspect --scan "$G/malicious/pt/zip_dotdot.pt"
expect 65 "damage" ckpt-inspect --scan "$G/malicious/pt/no_mark.pt"
agree() {
    local f got want
    for f in "$G"/malicious/pt/*.pt; do
        ckpt-inspect -q --scan "$f" >/dev/null 2>&1; got=$?
        ckpt-merge -q --dry-run "$f" >/dev/null 2>"$T/.e"; want=$?
        case $want.$got in 0.0|77.77|77.1|65.65|66.0|65.77) ;;
        65.0) grep -qE 'tensor|storage|byteorder|unhashable|unfold' "$T/.e" || echo "$f: $want, scan $got" ;;
        77.65) grep -q 'bare pickle' "$T/.e" || echo "$f: $want, scan $got" ;;
        *) echo "$f: $want, scan $got" ;; esac
    done | tee "$T/bad"
    [ ! -s "$T/bad" ]
}
t "scan and readers agree on the hostile set" agree
mkdir "$T/away"; ln -s /etc/passwd "$T/away/model.bin"
expect 77 "a link that leads away" ckpt-inspect --scan "$T/away"
# Sets of files: all gaps are named, and which older checkpoint is whole.
mkdir "$T/r"; cp -r "$DSC" "$T/r/checkpoint-4"; cp -r "$DSC" "$T/r/checkpoint-6"; cp -r "$DSC" "$T/r/checkpoint-5"
expect 0 "a whole checkpoint" ckpt-inspect --verify "$T/r/checkpoint-6"
rm "$T/r/checkpoint-6/global_step4/zero_pp_rank_1_mp_rank_00_model_states.pt" "$T/r/checkpoint-6/rng_state_0.pth"
rm "$T/r/checkpoint-5/global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
expect 65 "one without a rank" ckpt-inspect --verify "$T/r/checkpoint-6"
t "--verify names each missing file" bash -c "[ \$(grep -cE '^(global_step4/zero_pp_rank_1_mp_rank_00_model_states.pt|rng_state_0.pth) +missing +other ranks have it$' $T/.out) = 2 ]"
t "the error counts the missing files" says "checkpoint-6: 2 files missing"
t "a hint names the older complete checkpoint" says "hint: $T/r/checkpoint-4 is whole"
ckpt-merge -q --tied keep --max-shard-size 2K -o "$T/sharded" "$T/x.pt" >/dev/null
expect 0 "shards and their index" ckpt-inspect --verify "$T/sharded"
cp "$T/sharded/model-00001-of-00005.safetensors" "$T/sharded/model-00001-of-00009.safetensors"
rm "$T/sharded/model-00002-of-00005.safetensors" "$T/sharded/model-00004-of-00005.safetensors"
ckpt-inspect --json --verify "$T/sharded" > "$T/.out" 2>/dev/null; t "gaps are 65" [ $? = 65 ]
t "both missing shards are named" bash -c "[ \$(grep -cE '\"file\": \"model-0000[24]-of-00005.safetensors\", \"finding\": \"missing\"' $T/.out) = 2 ]"
t "the shard of another set is named" row '"file": "model-00001-of-00009.safetensors", "finding": "extra"'
t "each missing shard is named once" bash -c "[ \$(grep -c '00002-of-00005' $T/.out) = 1 ]"
# A page: whole, with nothing from outside, and names cannot leave the element they lie in.
expect 0 "a page" ckpt-inspect --html "$T/page.html" "$DSC"
t "--html prints the page's path" [ "$(cat "$T/.out")" = "$T/page.html" ]
t "the page has tensors, histograms and the log" bash -c "grep -q '<td>model.norm.weight</td>.*<svg class=.bins' $T/page.html && grep -q '<h3>Learning rate' $T/page.html"
t "the page fetches nothing" bash -c "grep -q \"default-src 'none'\" $T/page.html && ! grep -iE '(src|href)=|https?://[^w]|@import|url\\(' $T/page.html"
expect_says 73 "a page that is there" "hint: --overwrite replaces it" ckpt-inspect --html "$T/page.html" "$DSC"
expect 0 "unless told" ckpt-inspect --overwrite --html "$T/page.html" "$G/torch/shared.pt"
expect 64 "two paths, one page" ckpt-inspect --html "$T/two.html" "$G/torch/shared.pt" "$G/torch/shared.pt"
header='{"</script><img src=x onerror=alert(1)>":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
{ printf "\\x$(printf %x ${#header})\0\0\0\0\0\0\0%sx" "$header"; } > "$T/name.safetensors"
t "a name that would be a tag" ckpt-inspect --html "$T/name.html" "$T/name.safetensors"
t "a tensor's name is shown as text in the page" bash -c "grep -q '<td>&lt;/script&gt;&lt;img src=x' $T/name.html && ! grep -q '<img' $T/name.html && [ \$(grep -o '</script>' $T/name.html | wc -l) = 1 ]"
# Curves of every length: none, one point, gaps, more than anybody can see; names that are markup.
well_formed() { ! command -v xmllint >/dev/null || xmllint --noout "$1"; }
log="$T/a<b>&\"c"; mkdir "$log"
page_of() { rm -f "$T/log.html"; cat > "$log/metrics.jsonl"; ckpt-inspect --html "$T/log.html" "$log" && well_formed "$T/log.html"; }
one_point() { page_of <<<'{"step": 3, "loss": 2.5}' && grep -q '<circle' "$T/log.html" && ! grep -q 'nan' <(grep -A40 '<figure' "$T/log.html"); }
t "a curve of one point" one_point
t "the name of a folder is text" grep -q '<h1>a&lt;b&gt;&amp;&quot;c</h1>' "$T/log.html"
gaps() { seq 30 | awk '{ print "{\"step\": " $1 ", \"loss\": " ($1 ~ /^1[0-2]$/ ? "NaN" : 3 - $1 / 20) ", \"</svg><b>\": 1}" }' | page_of; }
t "values that are no numbers" gaps
t "they are gaps that are counted" bash -c "grep -q '3 values are NaN or infinite, the first at step 10<' $T/log.html && [ \$(sed -n '/<h3>Loss/,/<.figure>/p' $T/log.html | grep -c '<polyline') = 2 ] && ! grep -q '<b>\">\|</svg><b>' $T/log.html"
many() { seq 100000 | awk '{ print "{\"step\": " $1 ", \"loss\": " 1 + ($1 * 7919 % 1000) / 1000 ", \"grad_norm\": 1e" ($1 % 9) "}" }' | page_of && [ "$(stat -c %s "$T/log.html")" -lt 200000 ]; }
t "a hundred thousand rows are a page of less than 200 kB" many
t "an axis over decades is logarithmic, a noisy curve has its mean" bash -c "grep -q 'log scale' $T/log.html && grep -q 'polyline class=.line mean' $T/log.html"
expect 65 "a page of no rows" bash -c "rm -f $T/log.html; : > '$T/none.jsonl'; ckpt-inspect --html $T/log.html '$T/none.jsonl'"
t "the page is absent after a failure" [ ! -e "$T/log.html" ]
expect 0 "a page of a log" ckpt-inspect --html "$T/wandb.html" "$G/logs/run-gold0001.wandb"
t "tags of training and evaluation share a chart" bash -c "sed -n '/<h3>Loss/,/<.figure>/p' $T/wandb.html | grep -c data-name | grep -qx '[2-9]'"
expect 0 "a page of devices" ckpt-inspect --html "$T/devices.html" "$G/logs/nvidia-smi.csv"
t "a chart a measure, a curve a device" bash -c "grep -q '<h3>Device memory, MiB' $T/devices.html && grep -q 'data-name=.device 1' $T/devices.html && grep -q '<h3>Power, W' $T/devices.html"
for p in page name wandb devices; do t "$p.html is well-formed" well_formed "$T/$p.html"; done
# The modules that names spell: layers once, with how many there are.
expect 0 "a tree of modules" ckpt-inspect --tree "$DSC"
t "layers once, counted" row '^  layers +1 +18 '
t "what is in them" row '^    \* +2 +18 '
t "a leaf with its shape" row '^        q_proj +2 +2 +512 +'
expect 0 "as JSON, of some tensors" ckpt-inspect --tree --json --glob '*.mlp.*' "$DSC"
t "--json shows modules with complete paths" row '"path": "model.layers.\*.mlp.gate_proj.weight", .*"instances": 2, .*"shape": "F32 \[28, 16\]"'
t "a torch file is shown as values all the same" bash -c "ckpt-inspect --tree $G/torch/shared.pt | grep -q '^value: '"
expect_prints 0 "what a format is known by" "known by: mp_rank files of a tag" ckpt-inspect "$DSC"
t "each part has a summary" row '^scheduler.pt +learning rate schedule .* step 4, lr 0$'
t "training_args.bin has a summary" row '^training_args.bin .* TrainingArguments, lr 0.003, batch 2, accumulation 1, steps 4$'
t "config.json has a summary" row '^config.json .* llama, layers 2, hidden 16, vocabulary 41$'

# Folders of other programs: what in them to name.
mkdir -p "$T/odd/vae"; cp "$G/safetensors/names.safetensors" "$T/odd/lora.safetensors"
expect_says 65 "one file of weights" "odd/lora.safetensors may be one by itself" ckpt-inspect "$T/odd"
echo '{}' > "$T/odd/vae/config.json"
expect_says 65 "a folder with a configuration" "odd/vae looks like one" ckpt-inspect "$T/odd"
mkdir "$T/page"; echo '{}' > "$T/page/config.json"; echo '<!DOCTYPE html><html>' > "$T/page/model.safetensors"
expect_says 65 "a page instead of weights" "page/model.safetensors: is an HTML page" ckpt-inspect "$T/page"
cp -r "$G/lora/bloom-qkv/base" "$T/mixed"; cp "$G"/lora/bloom-qkv/adapter/* "$T/mixed"
expect_says 0 "an adapter beside a model" "which is not applied" ckpt-inspect "$T/mixed"
# What picks nothing.
expect_says 66 "a --glob that matches nothing" "no tensor matches zz*" ckpt-inspect --glob 'zz*' "$G/lora/bloom-qkv/base"
expect 66 "nor is that no difference" ckpt-inspect --diff --glob 'zz*' "$G/lora/bloom-qkv/base" "$G/lora/bloom-qkv/base"
expect_says 0 "a --tag where there are none is told" "--tag zz picks nothing" ckpt-inspect --tag zz "$G/lora/bloom-qkv/base"
told_once() { "$@" >/dev/null 2>"$T/told"; [ "$(grep -c -- '--tag zz picks nothing' "$T/told")" = 1 ] || { cat "$T/told"; return 1; }; }
t "once, where all is verified too" told_once ckpt-inspect --verify --tag zz "$G/lora/bloom-qkv/base"
t "once by ckpt-merge" told_once ckpt-merge --verify --tag zz "$G/lora/bloom-qkv/base" -o "$T/zz"

# --encode and --decode: every golden line of every tokenizer, there and back.
TOK=$G/tokenizers
# fields FILE KEY - the ids, or offsets flat, of each line.
ids() { sed -E 's/^.*"ids":\[([0-9,]*)\].*$/\1/' "$1"; }
flat() { sed -E 's/^.*"offsets":(\[[0-9,[]*([][0-9,]*\])?\]),"tokens".*$/\1/; s/[][]//g' "$1"; }
off() { sed -E 's/^.*"off":\[([0-9,]*)\].*$/\1/' "$1"; }
golden() {
    ckpt-inspect --encode "$TOK/strings.jsonl" "$TOK/$1" > "$T/out" || return 1
    [ "$(wc -l < "$T/out")" = 412 ] && diff <(ids "$TOK/$1/golden.jsonl") <(ids "$T/out") &&
        diff <(off "$TOK/$1/golden.jsonl") <(flat "$T/out")
}
for name in bert bloom gpt2 llama2 llama3 mistral qwen roberta t5 zoo; do t "$name: ids and offsets" golden "$name"; done
t "threads give the same lines" bash -c "
    for i in \$(seq 50); do cat $TOK/strings.jsonl; done > $T/many.jsonl
    diff <(ckpt-inspect -j1 --encode $T/many.jsonl $TOK/t5) <(ckpt-inspect -j8 --encode $T/many.jsonl $TOK/t5)"
t "and back" bash -c "
    ckpt-inspect --encode $TOK/strings.jsonl $TOK/gpt2 > $T/a && ckpt-inspect --decode $T/a $TOK/gpt2 > $T/b &&
    cp $T/b $T/b.jsonl &&
    ckpt-inspect --encode $T/b.jsonl $TOK/gpt2 | diff $T/a -"
t "arrays of ids" bash -c "[ \"\$(echo '[1, 2]' | ckpt-inspect --decode - $TOK/bloom)\" = '\"<s></s>\"' ]"
t "without special tokens" bash -c "[ \"\$(echo '[1, 2]' | ckpt-inspect --no-special-tokens --decode - $TOK/bloom)\" = '\"\"' ]"
t "plain lines, the last one without an end" bash -c "[ \"\$(printf 'a\nb' | ckpt-inspect --encode - $TOK/roberta | wc -l)\" = 2 ]"
t "a file of a tokenizer" bash -c "echo Hello | ckpt-inspect --encode - $TOK/t5/spiece.model | grep -q '\"decoded\":\"Hello\"'"
t "other files than tokenizer.json" bash -c "echo Hello | ckpt-inspect --encode - $TOK/files/vocab-txt | grep -q '^{\"ids\":\[2,'"
printf '"ok"\n{}\n' > "$T/bad.jsonl"
expect_says 65 "a line that is no string" "bad.jsonl:2: not a JSON string" ckpt-inspect --encode "$T/bad.jsonl" "$TOK/gpt2"
expect 65 "a line that is no UTF-8" bash -c "printf 'a\n\377\n' | ckpt-inspect --encode - $TOK/gpt2"
t "is named" says "stdin:2: text is not UTF-8 at byte 0"
expect 65 "an id that there is not" bash -c "echo '[99999]' | ckpt-inspect --decode - $TOK/gpt2"
expect 64 "two paths" ckpt-inspect --encode - "$TOK/gpt2" "$TOK/t5"
expect 64 "both ways at once" ckpt-inspect --encode - --decode - "$TOK/gpt2"
expect_says 66 "no tokenizer there" "no tokenizer" bash -c "ckpt-inspect --encode - $G/torch < /dev/null"
