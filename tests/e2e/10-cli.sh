# What all tools do the same way: help, version, wrong options, a stdout that fails.
. "$(dirname "$0")/lib.sh"
for tool in ckpt-train ckpt-merge ckpt-push ckpt-inspect ckpt-eval; do
    t "$tool --help" bash -c "$tool --help | grep -q '^usage: $tool '"
    t "$tool --version" bash -c "[ \"\$($tool --version)\" = '$tool 0.1.0' ]"
    expect_says 64 "$tool: an unknown option" "did you mean --verbose?" $tool --verbosse
    expect 74 "$tool: a full stdout" bash -c "$tool --help >/dev/full"
    expect 74 "$tool: a version nobody gets" bash -c "$tool --version >/dev/full"
    for shell in bash zsh fish; do t "$tool --completion $shell" bash -c "$tool --completion $shell | grep -q json"; done
    bash -n <($tool --completion bash) 2>"$T/.err"; t "$tool: bash reads its completion" [ $? = 0 ]
    expect 64 "$tool: a shell nobody knows" $tool --completion tcsh
    expect 64 "$tool: a short option that is none" $tool -Z
    expect 64 "$tool: a flag with a value" $tool --quiet=maybe
    expect_says 64 "$tool: a number that is none" '--jobs: "1e99"' $tool --jobs 1e99
    printf '# units\nquiet: true\nnosuch_key: 1\n' > "$T/run.yaml"
    expect 78 "$tool: a run file with an unknown name" $tool --config "$T/run.yaml"
    t "$tool: tells file, line and name" says "$T/run.yaml:3: unknown option nosuch_key"
    printf '{"quiet": true,\n "nosuch_key": 1}\n' > "$T/run.json"
    expect_says 78 "$tool: a JSON run file with an unknown name" "$T/run.json:2: " $tool --config "$T/run.json"
    expect 66 "$tool: a run file that is not there" $tool --config "$T/nothing.yaml"
done
# How long a thread that waits looks for work: what libgomp tells of itself as it is loaded.
waits() {       # TOOL SPINS VARIABLE... - the last it tells
    [ "$(nproc)" -gt 1 ] || return 0
    [ "$(env -u OMP_WAIT_POLICY OMP_DISPLAY_ENV=verbose "${@:3}" "$1" --version 2>&1 |
        sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'/\1/p" | tail -1)" = "$2" ]
}
for tool in ckpt-train ckpt-eval; do
    t "$tool: threads that wait sleep soon" waits $tool 1000
    t "$tool: unless the user wants them passive" waits $tool 0 OMP_WAIT_POLICY=passive
    t "$tool: or counts for them" waits $tool 77 GOMP_SPINCOUNT=77
    t "$tool: and starts once with one CPU" taskset -c "$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')" env -u OMP_WAIT_POLICY $tool --version
done
# A reader that leaves early ends us by SIGPIPE, without a word.
early() {
    ckpt-inspect tests/golden/torch/many_tensors.pt 2>"$T/.err" | head -1 >/dev/null
    local rc=${PIPESTATUS[0]}
    [ "$rc" = 141 ] && [ ! -s "$T/.err" ] || { echo "status $rc"; cat "$T/.err"; return 1; }
}
t "a reader that leaves early is no error of ours" early
expect_says 64 "an option nearly right" "hint: did you mean --model?" ckpt-train --modle x
expect 64 "a number that is none" ckpt-train --max-steps 3x
expect_says 64 "a number out of range" "--zero-stage: 9 is out of range, 0 to 3 wanted" ckpt-train --zero-stage 9
expect 64 "a number below the range" ckpt-eval --batch-size -1
expect 64 "a rate that is no number" ckpt-train --learning-rate nan
expect 64 "a size that is none" ckpt-merge --max-shard-size 5QB
expect 64 "a dtype that is none" ckpt-merge --dtype f99 x
expect_says 64 "a choice that is none" "none of: hf safetensors torch dcp deepspeed universal gguf" ckpt-merge --to nosuch x
expect 64 "an option without its value" ckpt-merge -o
printf 'max_stepz: 3\n' > "$T/run.yaml"
while read -r tool name hint; do
    expect_says 64 "$tool: $name of another program" "hint: $hint" "ckpt-$tool" "$name" x
done <<'END'
push --allow-patterns did you mean --include?
push --repo-type the address says it: hf://datasets/OWNER/NAME
push --token HF_TOKEN, or a credential helper, has it: other users see what a command line says
eval --model the model is an argument: ckpt-eval --eval-file DATA MODEL
eval --output_path did you mean --predictions-out?
merge --out-path did you mean --output?
merge --device merging takes a CPU and little memory: leave it out
inspect --list it is shown without an option
train --num-workers it comes by itself: leave it out
train --lora --lora-rank N trains an adapter, --adapter DIR goes on with one
END
expect_says 78 "a run file with an unknown name" "run.yaml:1" ckpt-train --config "$T/run.yaml"
printf 'max_steps: many\n' > "$T/run.yaml"
expect 78 "a run file with a wrong value" ckpt-train --config "$T/run.yaml"
expect 78 "settings that clash" ckpt-train --model a --init b --train-file c
expect 66 "an input that is not there" ckpt-inspect "$T/nothing"
mkfifo "$T/fifo"; expect 66 "a fifo" ckpt-inspect "$T/fifo"
ln -s "$G/torch/shared.pt" "$T/link.pt"; expect 77 "a symbolic link" ckpt-inspect "$T/link.pt"
t "followed when asked to" ckpt-inspect --follow-symlinks "$T/link.pt"
t "paths from stdin, NUL-separated" bash -c "printf '%s\0' $G/torch/shared.pt $G/torch/zero_d.pt | ckpt-inspect -0 | grep -c ^path: | grep -qx 2"
# A name of a file is any bytes; a value that is written into text is UTF-8.
X=$'\xff\xfe' M=$G/lora/bloom-qkv
cp -r "$M/base" "$T/b$X"; cp "$M/base/config.json" "$T/b$X/notes$X.json"
expect_prints 0 "a model whose name is no UTF-8 is merged" '"path":"'"$T"'/m\\xff\\xfe"' ckpt-merge --json -o "$T/m$X" "$T/b$X"
t "its provenance is UTF-8" bash -c "iconv -f utf-8 -t utf-8 $(printf %q "$T/m$X")/ckpt_provenance.json | grep -F 'b\\\\xff\\\\xfe'"
cp -r "$M/adapter" "$T/a$X"
expect 0 "an adapter and its base" ckpt-merge -q --base "$T/b$X" -o "$T/m2" "$T/a$X"
t "the same weights as by other names" bash -c "ckpt-merge -q --base $M/base -o $T/m3 $M/adapter && cmp $T/m2/model.safetensors $T/m3/model.safetensors"
mkdir "$T/d"
expect 0 "a file of such a name is pushed" ckpt-push --json "$T/d" "$T/b$X"
t "told as JSON" bash -c "grep -qF '\"path\":\"notes\\\\xff\\\\xfe.json\"' $T/.err && iconv -f utf-8 -t utf-8 $T/.err >$T/.t"
t "and lies there" cmp "$M/base/config.json" "$T/d/notes$X.json"
expect_says 65 "a plan cannot name it" 'b\xff\xfe" is no UTF-8: no plan can name it' ckpt-push --plan "$T/plan" "$T/d2" "$T/b$X"
t "and is not begun" [ ! -e "$T/plan" ]
expect_says 64 "what names no file is refused" '--tag: "\xff\xfe" is no UTF-8' ckpt-merge --tag "$X" -o "$T/m4" "$M/base"
expect_says 64 "a run writes what it is told into its files" '--model: "'"$T"'/b\xff\xfe" is no UTF-8' ckpt-train --model "$T/b$X" --train-file "$M/rows.jsonl" -o "$T/run"
expect_says 64 "its folder's name too" '"'"$T"'/run\xff\xfe" is no UTF-8' ckpt-train --model "$M/base" --train-file "$M/rows.jsonl" -o "$T/run$X"
# An empty name is a variable that was not set.
expect_says 64 "an empty output" "ckpt-merge: -o is empty, a PATH is wanted" ckpt-merge -o "" "$M/base"
expect_says 64 "an empty folder" "ckpt-train: --output-dir is empty, a DIR is wanted" ckpt-train --model "$M/base" --train-file "$M/rows.jsonl" --output-dir "" --max-steps 1
expect_says 64 "an empty file among others" "ckpt-eval: --eval-file is empty, a PATH is wanted" ckpt-eval --eval-file "$M/rows.jsonl" --eval-file "" "$M/base"
