# What all tools do the same way: help, version, wrong options, a stdout that fails.
. "$(dirname "$0")/lib.sh"
for tool in ckpt-train ckpt-merge ckpt-push ckpt-inspect ckpt-eval; do
    t "$tool --help" bash -c "$tool --help | grep -q '^usage: $tool '"
    t "$tool --version" bash -c "[ \"\$($tool --version)\" = '$tool 0.1.0' ]"
    expect 64 "$tool: an unknown option" $tool --verbosse
    t "$tool: names the nearest" says "did you mean --verbose?"
    expect 74 "$tool: a full stdout" bash -c "$tool --help >/dev/full"
    for shell in bash zsh fish; do t "$tool --completion $shell" bash -c "$tool --completion $shell | grep -q json"; done
done
t "a reader that leaves early is no error of ours" bash -c 'ckpt-inspect tests/golden/torch/many_tensors.pt | head -1'
expect 64 "a number that is none" ckpt-train --max-steps 3x
expect 64 "a number out of range" ckpt-train --zero-stage 9
expect 64 "a choice that is none" ckpt-merge --to nosuch x
expect 64 "an option without its value" ckpt-merge -o
printf 'max_stepz: 3\n' > "$T/run.yaml"
expect 78 "a run file with an unknown name" ckpt-train --config "$T/run.yaml"
t "tells file and line" says "run.yaml:1"
printf 'max_steps: many\n' > "$T/run.yaml"
expect 78 "a run file with a wrong value" ckpt-train --config "$T/run.yaml"
expect 78 "settings that clash" ckpt-train --model a --init b --train-file c
expect 66 "an input that is not there" ckpt-inspect "$T/nothing"
mkfifo "$T/fifo"; expect 66 "a fifo" ckpt-inspect "$T/fifo"
ln -s "$G/torch/shared.pt" "$T/link.pt"; expect 77 "a symbolic link" ckpt-inspect "$T/link.pt"
t "followed when asked to" ckpt-inspect --follow-symlinks "$T/link.pt"
t "paths from stdin, NUL-separated" bash -c "printf '%s\0' $G/torch/shared.pt $G/torch/zero_d.pt | ckpt-inspect -0 | grep -c ^path: | grep -qx 2"
