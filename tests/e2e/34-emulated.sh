# Optimizers on a GPU that is emulated (tests/emulate): its kernels run on the host, and its memory is
# the operations' alone.  The losses of the CPU's run, bit for bit on resume, saved and read alike.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/optim.sh"
here=$(cd "$B" && pwd)/emulate
gpu() { DEVICE=cuda LD_LIBRARY_PATH=$here CKPT_PLUGIN_PATH=$here CKPT_CUDA_PATH=$here train "$@"; }
both() {        # NAME OPTION... - a run on each, and one that goes on
    local name=$1; shift
    t "$name: on the CPU" train "$name-cpu" 1 "$@"
    t "$name: emulated" gpu "$name" 1 "$@"
    t "$name: the same losses" near "$name" "$name-cpu" 1e-5
    back "$name" again
    t "$name: goes on" gpu again 1 "$@" --resume-from-checkpoint latest
    t "$name: to the same bits" same_state "$name" again
    back "$name-cpu" again
    t "$name: from the CPU's" gpu again 1 "$@" --resume-from-checkpoint latest
    t "$name: likewise" near again "$name-cpu" 1e-5
}
both adafactor --optim adafactor --weight-decay 0.01
both adafactor-bf16 --bf16 --optim adafactor --optim-args scale_parameter=True,beta1=0.9
