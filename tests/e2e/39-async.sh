# Saves behind the steps: the files of saves at once, byte for byte, in every layout; a kill, a full
# disk, a signal in their midst.  [C1, C3, E1]
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/ranks.sh"
grep -E '.{40}' README.md man/ckpt-train.1 | sed 's/^[^:]*://; s/[\\"]//g' | head -60 | awk '{ printf "{\"text\": \"%s\"}\n", $0 }' | tr -d '\t\r' >"$T/train.jsonl"
train() {       # FOLDER OPTION... - the run's own name is the same in each
    mkdir -p "$T/$1"; cd "$T/$1" || return 1; shift
    ckpt-train --device cpu --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --learning-rate 5e-4 --per-device-train-batch-size 2 \
        --logging-steps 1 --max-steps 7 --save-steps 2 -o run "$@"
}
checkpoints() { (cd "$T/$1/run" && find . -path './checkpoint-*' -type f -o -name '*.pt' -type f -o -name 'model.safetensors' | sort | xargs sha256sum); }
behind() { [ "$(grep -c 'saved .*, steps waited' "$1")" = "$2" ]; }
alike() {       # NAME OPTION... - three saves behind the steps, the last at once
    local name=$1; shift
    rm -rf "$T"/{at,by}
    t "$name: saves at once" bash -c "$(declare -f train); T=$T; train at --async-save false $* 2>'$T/at.log' >'$T/at.out'"
    t "$name: behind the steps" bash -c "$(declare -f train); T=$T; train by --async-save true $* 2>'$T/by.log' >'$T/by.out'"
    t "$name: three of them" behind "$T/by.log" 3
    t "$name: the same files" diff <(checkpoints at) <(checkpoints by)
    t "$name: announced alike" diff "$T/at.out" "$T/by.out"
}
alike "one rank"
alike "bf16, 8-bit moments" --bf16 --optim adamw_8bit
alike "moments of bf16" --bf16 --optim adamw_anyprecision
alike "paged states" --bf16 --optim paged_adamw_8bit
alike "states on the host" --bf16 --offload-optimizer cpu
alike "all on the host" --bf16 --offload-param cpu
alike "an adapter" --lora-rank 4 --target-modules all-linear
alike "an adapter of 3 ranks, bf16" --nproc 3 --zero-stage 3 --bf16 --lora-rank 4 --target-modules all-linear
alike "stage 1 alone" --zero-stage 1
for stage in 0 1 2 3; do
    alike "2 ranks, stage $stage" --nproc 2 --zero-stage $stage
done
alike "gathered weights" --nproc 2 --zero-stage 3 --stage3-gather-16bit-weights-on-model-save
alike "a file of torch" --nproc 2 --zero-stage 2 --state-dict-file 'part-{step}.pt'
alike "groups of ranks" --nproc 4 --zero-stage 3 --hybrid-shard-size 2
alike "older ones removed" --save-total-limit 2
RANKS_OVER=gloo CKPT_COMM=gloo alike "2 ranks over gloo" --nproc 2 --zero-stage 2

alike "an optimizer without moments" --optim sgd
alike "one moment" --optim lion_32bit

# What it is by default, and where it is not.
quiet() { rm -rf "$T/d"; train d "$@" 2>"$T/.err" >"$T/.out"; }
t "by default" quiet
t "saves are at once on CPUs" bash -c "! grep -q 'steps waited' \"\$0\"" "$T/.err"
t "one save at the end alone" quiet --save-steps 7
t "is at once" behind "$T/.err" 0
t "a dry run" quiet --dry-run

# A kill at any moment, a resumed run.
half() { local c; for c in "$T"/d/run/checkpoint-*; do [ -d "$c" ] && { ckpt-inspect -q --verify "$c" >/dev/null || { echo "$c is half"; return 1; }; }; done; return 0; }
killed() {
    local n
    for n in $(seq 1 4 200); do
        rm -rf "$T/d"
        if CKPT_FAULT=$1:$n:kill train d --max-steps 4 "${@:2}" >"$T/.out" 2>"$T/.err"; then return 0; fi
        (cd "$T/d" && half && while read -r c; do ckpt-inspect -q --verify "$c" >/dev/null || exit 1; done <"$T/.out") || { echo "$1 $n"; return 1; }
    done
}
if [ -x "build/asan/ckpt-train" ]; then
    (PATH=$PWD/build/asan:$PATH; t "killed at renames of saves" killed rename)
fi
stopped() {     # SIGNAL OPTION... - in the midst of saves
    local sig=$1 rc; shift
    rm -rf "$T/d"
    train d --max-steps 100000 --save-steps 1 --save-total-limit 3 "$@" >"$T/.out" 2>"$T/.err" &
    wait_for '[ -d "$T/d/run/checkpoint-5" ]' || return 1
    kill -s "$sig" "$(pgrep -P $! -x ckpt-train || echo $!)"; wait $!; rc=$?
    half && case $sig in
    KILL) return 0 ;;
    *) [ $rc = 75 ] && grep -qE 'stopped at step [0-9]+, saved' "$T/.err" && ! ls -A "$T/d/run" | grep -qE 'staging|trash|tmp' ;;
    esac
}
t "a signal in the midst of saves" stopped TERM
t "of two ranks" stopped INT --nproc 2 --zero-stage 3
t "a kill" stopped KILL
goes_on() { cd "$T/d" && ckpt-train -q --device cpu --model "$T/base" --train-file "$T/train.jsonl" --max-seq-length 32 --per-device-train-batch-size 2 --max-steps 100000 --save-steps 1 --resume-from-checkpoint latest --max-wall-time 3 -o run; }
expect_says 75 "goes on from what is there" "saved" goes_on

# The best of saves that are under way when the run ends.
best() { train d "$@" --eval-file "$T/train.jsonl" --max-eval-samples 4 --eval-steps 2 --load-best-model-at-end; }
rm -rf "$T/d"; t "the best of them" best --save-total-limit 1 --greater-is-better true
t "is there" [ -d "$T/d/run/checkpoint-2" ]
t "and is the final model" cmp "$T/d/run/checkpoint-2/model.safetensors" "$T/d/run/model.safetensors"

# A file that cannot grow, as on a full disk.
full() { rm -rf "$T/d"; (ulimit -f "$1"; train d "${@:2}" >"$T/.out" 2>"$T/.err"); }
ends() { full "$1" -q "${@:2}"; [ $? = 74 ] && one_line '^ckpt-train: .*run/checkpoint-2' <"$T/.err" && ! ls -A "$T/d/run" | grep checkpoint; }
lives() { full "$1" -q --on-save-error continue --no-final-model "${@:2}" && [ "$(grep -c 'is not saved, the run continues: .*checkpoint-' "$T/.err")" = 4 ] && [ ! -s "$T/.out" ] && ! ls -A "$T/d/run" | grep checkpoint; }
for how in true false; do
    t "a full disk ends the run, --async-save $how" ends 40 --async-save $how
    t "of two ranks" ends 40 --async-save $how --nproc 2 --zero-stage 3
    t "or does not" lives 40 --async-save $how
    t "of two ranks" lives 40 --async-save $how --nproc 2 --zero-stage 3
done
stopped_full() {
    rm -rf "$T/d"
    (ulimit -f 40; train d --max-steps 100000 --save-steps 3 --max-wall-time 3 -q --on-save-error continue >"$T/.out" 2>"$T/.err")
    [ $? = 74 ] && grep -q 'could not be saved$' "$T/.err"
}
t "a run that stops without a checkpoint says so" stopped_full
expect 64 "a word that is none" train no --async-save maybe
expect 64 "nor that" train no --on-save-error retry
over_mpi() { OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none mpirun --oversubscribe --bind-to none --quiet -np 2 "$B/ckpt-train" --model "$T/base" --train-file "$T/train.jsonl" --max-steps 4 --save-steps 2 -o "$T/mpi" "$@"; }
expect_says 78 "MPI's ranks have no thread for it" "--async-save true: ranks talk through MPI in one thread alone" over_mpi -q --async-save true
