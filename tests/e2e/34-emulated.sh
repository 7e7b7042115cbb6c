# Optimizers and LoRA on a GPU that is emulated (tests/emulate): its kernels run on the host, and its memory is
# the operations' alone.  The losses of the CPU's run, bit for bit on resume, saved and read alike.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/optim.sh"
here=$(cd "$B" && pwd)/emulate
gpu() { DEVICE=cuda LD_LIBRARY_PATH=$here CKPT_PLUGIN_PATH=$here CKPT_CUDA_PATH=$here train "$@"; }
both() {        # NAME BOUND OPTION... - a run on each, and one that goes on
    local name=$1 bound=$2; shift 2
    t "$name: on the CPU" train "$name-cpu" 1 "$@"
    t "$name: emulated" gpu "$name" 1 "$@"
    t "$name: the same losses" near "$name" "$name-cpu" "$bound"
    back "$name" again
    t "$name: goes on" gpu again 1 "$@" --resume-from-checkpoint latest
    t "$name: to the same bits" same_state "$name" again
    back "$name-cpu" again
    t "$name: from the CPU's" gpu again 1 "$@" --resume-from-checkpoint latest
    t "$name: likewise" near again "$name-cpu" "$bound"
}
both adafactor 1e-5 --optim adafactor --weight-decay 0.01
both adafactor-bf16 1e-5 --bf16 --optim adafactor --optim-args scale_parameter=True,beta1=0.9
both muon 1e-4 --optim muon --weight-decay 0.01
both narrow 1e-4 --bf16 --no-master-weights
for kind in adamw_8bit lion_32bit; do
    t "narrow, $kind" train cpu 1 --bf16 --no-master-weights --optim $kind
    t "narrow, $kind: emulated" gpu gpu 1 --bf16 --no-master-weights --optim $kind
    t "narrow, $kind: the same losses" near gpu cpu 1e-4
    rm -rf "$T/cpu" "$T/gpu"
done
# Projections too (tests/emulate/products.cc), in f32, which is what the CPU has of activations.
for EMULATE_PRODUCTS in plain joined; do
    export EMULATE_PRODUCTS
    both "lora-$EMULATE_PRODUCTS" 1e-4 --lora-rank 8 --lora-alpha 16 --target-modules all-linear --lora-dropout 0.1
done
both dora 1e-4 --lora-rank 6 --lora-alpha 12 --target-modules all-linear --use-dora
both full 1e-4 --weight-decay 0.01
unset EMULATE_PRODUCTS
told() { SAY= gpu told 1 --max-steps 1 2>&1 | grep -q "GPU 0 (emulated)"; }
t "the GPU is the emulated one" told
