# shared/optim.sh - sourced by the tests of optimizers: a small model and its runs of four steps, saved every two.
R=tools/recipes/demo
$R/wordnet.sh "$T" 200 >/dev/null
t "a fresh model" ckpt-train -q --init $R/config.json --tokenizer $R/tokenizer --init-only -o "$T/base"
train() {       # OUT RANKS OPTION... - COMMON: options of all runs; SAY: empty where a run is to talk; DEVICE: not the CPU
    local out=$1 ranks=$2; shift 2
    # shellcheck disable=SC2086
    ckpt-train ${SAY--q} --device "${DEVICE:-cpu}" --nproc "$ranks" --model "${BASE:-$T/base}" --train-file "$T/train.jsonl" --max-seq-length 48 --learning-rate 1e-3 \
        --max-steps 4 --logging-steps 1 --save-steps 2 --per-device-train-batch-size $((4 / ranks)) -o "$T/$out" ${COMMON-} "$@"
}
# back RUN OTHER - a copy of the run, in the place of another, as it was after two steps.
back() { rm -rf "${T:?}/$2"; cp -r "$T/$1" "$T/$2"; rm -r "$T/$2/checkpoint-4"; }
# near RUN RUN PART - the losses of the last two steps differ by less than a part of themselves.
near() { paste <(losses "$1" | tail -n 2) <(losses "$2" | tail -n 2) | awk -v b="$3" '{ d = ($1 - $2) / $2; if (!(d < b && d > -b)) { bad = 1; print } } END { exit bad || NR != 2 }'; }
# resumes RUN WHAT OPTION... - one rank goes on after two steps, to the same bits; WHAT ends the names of the lines.
resumes() {
    local run=$1 what=$2; shift 2
    back "$run" again
    t "it goes on$what" train again 1 "$@" --resume-from-checkpoint latest
    t "to the same bits$what" same_state "$run" again
}
