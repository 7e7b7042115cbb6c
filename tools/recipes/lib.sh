# lib.sh - sourced by run.sh of each system: where everything is, and ticks for what was shown.
#
#   SMALL=1      tiny models and data, made here, on two CPU ranks: a rehearsal of half a minute
#   MODEL=PATH   the model (hf://..., a directory); INIT=config.json TOKENIZER=DIR: fresh weights instead
#   DATA=PATH    the data;  EVAL=PATH  what C and D are evaluated on (default: the data)
#   OUT=DIR      where all goes (default: out/ beside run.sh);  HUB=URL  where it is published
#   NPROC=N      ranks (default: gpu, one for each; SMALL: 2);  ARGS="..."  further options of ckpt-train
#   BERTSCORE=DIR  encoder of the score of system E (hf://FacebookAI/roberta-large)
#   START=ray    by Ray, on the cluster of RAY_ADDRESS or on this host; START=srun: as tasks of this Slurm job; else by itself
#   LIMIT=X      the gate between merge and push: the loss may not be above it, nor above the base's by more than WORSE (0%)
#
# Tools are those of BUILD (build/release of this tree, where it is built) or of PATH.
set -euo pipefail
system=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
top=$(cd "$system/../../.." && pwd) golden=$(cd "$system/../../.." && pwd)/tests/golden
[ ! -x "${BUILD:=$top/build/release}/ckpt-train" ] || PATH=$(cd "$BUILD" && pwd):$PATH
PATH=$PATH:$top/tools/recipes
export WANDB_LOG_MODEL=checkpoint LC_ALL=C.UTF-8 GIT_CONFIG_NOSYSTEM=1
out=${OUT:-$system/out} nproc=${NPROC:-gpu}
rm -rf "$out"; mkdir -p "$out/data"
hub=${HUB:-$out/hub.git} model=() more=() task=(--config "$system/task.yaml")
[ -z "${MODEL:-}" ] || model=(--model "$MODEL")
read -ra more <<<"${ARGS:-}"

# train_on N OPTION... - the words that start ckpt-train on so many ranks; options are for ranks that it starts itself.
train_on() {
    local n=${1/#gpu/$(nvidia-smi -L 2>/dev/null | wc -l)} gpu=--gpu
    [ -z "${SMALL:-}" ] || gpu=
    case ${START:-} in
    ray) echo "ray_launch.py $gpu --ranks $n -- ckpt-train" ;;
    srun) echo "srun --ntasks=$n --kill-on-bad-exit=0 --wait=60 ckpt-train" ;;
    *) echo "ckpt-train --nproc $*" ;;
    esac
}
# words ROWS - so many lines of text: WordNet's definitions, as made by the demo.
words() { "$top/tools/recipes/demo/wordnet.sh" "$out/data" $(($1 * 20 / 19 + 2)) && sed -n 's/.*"output": //;s/}$//p' "$out/data/train.jsonl" | head -n "$1"; }
setting() { [ "$1" = baseline ] || echo --deepspeed "$system/$1.json"; }      # of system C
slice_of() {    # N - the options of slice N of system D, which goes on from the file of the one before
    slice=${SLICE:-25600}; echo --start-idx $((($1 - 1) * slice)) --end-idx $(($1 * slice)); [ "$1" = 1 ] || echo --resume-file "$out/1/opt_1.3B_0-$slice-epoch-1.pt" --initial-epoch 1
}
newest() { find "$1" -maxdepth 1 -name 'checkpoint-*[0-9]' | sort -V | tail -n 1; }
loss_of() { sed -n 's/.*"loss": \([0-9.e+-]*\),.*/\1/p' | head -n 1; }
# beside FIGURE OPTION... MODEL - ckpt-eval's figure of a model and of the base, kept in FIGURE.json; predictions.jsonl has what it is of.
beside() {
    ckpt-eval -q --json --base "$base" --overwrite --predictions-out "$out/predictions.jsonl" "${@:2}" >"$out/$1.json" && [ -s "$out/predictions.jsonl" ] &&
        grep -qE "\"figure\": \"$1\", \"value\": -?[0-9.e-]+, .*\"base\": -?[0-9.e-]+, \"difference\":" "$out/$1.json"
}
# cloned URL DIR - a clone with the files that LFS keeps; git-lfs by options, as this machine's git may not know it.
cloned() {
    GIT_LFS_SKIP_SMUDGE=0 git -c protocol.file.allow=always -c filter.lfs.smudge='git-lfs smudge -- %f' \
        -c filter.lfs.process='git-lfs filter-process' -c filter.lfs.required=true clone -q "$1" "$2"
}
same_files() { diff <(cd "$1" && find . -type f ! -path './.git*' -print0 | sort -z | xargs -0 sha256sum) <(cd "$2" && find . -type f ! -path './.git*' -print0 | sort -z | xargs -0 sha256sum); }
# same_state A B - two checkpoints are the same bits, but for files that name the run.
same_state() { diff <(digests "$1") <(digests "$2"); }
digests() { (cd "$1" && find . -type f ! -name '*.json' ! -name training_args.bin ! -name README.md ! -path './.git*' | sort | xargs sha256sum | grep .); }
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$1/metrics.jsonl" | grep .; }

# duty ID TEXT command... - a tick if the command succeeds; ticks ends the script, with 1 where one was missed.
missed=0
duty() {
    local id=$1 text=$2; shift 2
    if (set +e +o pipefail; "$@") >"$out/.duty" 2>&1; then echo "$id ✓ $text"; else echo "$id ✗ $text"; tail -n 20 "$out/.duty" >&2; missed=1; fi
}
ticks() { rm -f "$out/.duty"; [ $missed = 0 ] || exit 1; }

# fresh CONFIG TOKENIZER - a model of random weights, which is trained and is what others are compared with.
fresh() { ckpt-train -q --init "$1" --tokenizer "$2" --init-only -o "$out/base" >"$out/.base"; model=(--model "$out/base"); }
[ -z "${INIT:-}" ] || fresh "$INIT" "$TOKENIZER"
[ -z "${SMALL:-}" ] || { nproc=${NPROC:-2}; more=(--device cpu "${more[@]}"); . "$system/small.sh"; }
EVAL=${EVAL:-${DATA:-}}
[ ${#model[@]} -gt 0 ] || model=(--model "$(sed -n 's/^# model: //p' "$system"/*.yaml | head -n 1)")
base=${model[1]}
