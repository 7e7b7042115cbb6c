# broken.sh - sourced after lib.sh by scripts that stop runs: a small model with dropout, data, and what holds of the
# folder run in the current one, whose paths were announced in the file out.
R=tools/recipes/demo
$R/wordnet.sh "$T" 120 >/dev/null
mkdir "$T/tiny"; cat > "$T/tiny/config.json" <<J
{"model_type": "bloom", "vocab_size": 4096, "hidden_size": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "hidden_dropout": 0.1}
J
ckpt-train -q --init "$T/tiny" --tokenizer $R/tokenizer --init-only -o "$T/base" >/dev/null
# The newest of the folder's checkpoints; 0: there is none.
newest_step() { ls run 2>/dev/null | sed -n 's/^checkpoint-\([0-9]*\)$/\1/p' | sort -n | tail -n 1 | grep . || echo 0; }
# All that stands there is whole, and what was announced last is there.
whole() {
    local all=(run/checkpoint-*[0-9]) last
    [ ! -d "${all[0]}" ] || ckpt-inspect -q --verify "${all[@]}" >/dev/null || return 1
    last=$(tail -n 1 out)
    [ -z "$last" ] || [ -d "$last" ] || { echo "$last was announced and is not there"; return 1; }
    last=$(sed -n 's/.*-\([0-9]*\)$/\1/p' <<<"$last")
    [ "$(newest_step)" -ge "${last:-0}" ]
}
# same_as_unbroken FOLDER - the run's last checkpoint and its own files are those of the run there, there are two
# checkpoints and nothing unfinished.  Files that tell times and where a run began differ.
same_as_unbroken() {
    local last; last=$(newest_step)
    diff -rq "$1/run/checkpoint-$last" "run/checkpoint-$last" &&
        diff -rq -x .lock -x 'checkpoint-*' -x metrics.jsonl -x '*_results.json' -x trainer_state.json "$1/run" run &&
        [ -s run/all_results.json ] && [ -s run/train_results.json ] && [ -s run/trainer_state.json ] || return 1
    [ "$(ls -d run/checkpoint-* | wc -l)" = 2 ] || { echo "not two checkpoints:"; ls -A run; return 1; }
    ! ls -A . run | grep -E 'staging|trash|tmp'
}
