/* opt/known - option names of other programs -> the names here; opt/rows.h. */
#include <string.h>

#include "tools/near.h"
#include "tools/opt/rows.h"

/* Names in transformers, TRL, PEFT, DeepSpeed and torchrun, and short ones that people try. */
static const struct known {
    const char *names;          /* space-separated, with "-" */
    const char *option;         /* the first of these that the tool has; NULL: none */
    const char *hint;           /* of ckpt-train, for names without an option */
} known[] = {
    {"model-name-or-path model-name model-path base-model pretrained-model model-id checkpoint",
     "model base", NULL},
    {"tokenizer-name tokenizer-name-or-path tokenizer-path", "tokenizer", NULL},
    {"config-name", "init", NULL},
    {"dataset data dataset-path data-path train-data train-dataset training-data input-file files",
     "train-file eval-file", NULL},
    {"validation-file eval-data eval-dataset eval-set test-file validation-data eval validation "
     "val valid", "eval-file", NULL},
    {"split dataset-split dataset-train-split train-split-name", "train-split eval-split", NULL},
    {"dataset-test-split validation-split", "eval-split", NULL},
    {"dataset-config-name subset", "dataset-config", NULL},
    {"dataset-text-field text-column", "text-field", NULL},
    {"lr rate peak-lr", "learning-rate", NULL},
    {"epochs num-epochs epoch n-epochs", "num-train-epochs", NULL},
    {"steps num-steps num-training-steps total-steps iters max-iters train-steps", "max-steps",
     NULL},
    {"batch-size batchsize train-batch-size micro-batch-size batch per-gpu-train-batch-size bs bsz "
     "mbs device-batch-size per-device-batch-size train-micro-batch-size-per-gpu",
     "per-device-train-batch-size batch-size", NULL},
    {"eval-batch-size per-gpu-eval-batch-size", "per-device-eval-batch-size batch-size", NULL},
    {"grad-accum gradient-accumulation accumulation-steps grad-accum-steps accumulate-grad-batches "
     "accumulation accumulate accum ga gas grad-acc grad-acc-steps grad-accum-step "
     "gradient-accumulate grad-accumulation grad-accumulation-steps accumulation-step accum-steps",
     "gradient-accumulation-steps", NULL},
    {"warmup num-warmup-steps", "warmup-steps", NULL},
    {"scheduler lr-scheduler schedule lr-decay lr-schedule cosine linear constant",
     "lr-scheduler-type", NULL},
    {"wd decay", "weight-decay", NULL},
    {"lr-min min-learning-rate", "min-lr", NULL},
    {"clip grad-clip clip-grad-norm gradient-clipping gradient-clip clip-norm max-norm",
     "max-grad-norm", NULL},
    {"optimizer-type optim-type optimizer-name adam adamw sgd lion muon", "optim", NULL},
    {"momentum nesterov", "optim-args", NULL},
    {"betas adam-betas", NULL, "--adam-beta1 X --adam-beta2 X"},
    {"beta1", "adam-beta1", NULL},
    {"beta2", "adam-beta2", NULL},
    {"eps epsilon adam-eps", "adam-epsilon", NULL},
    {"lora-r r rank lora-dim", "lora-rank extract-adapter", NULL},
    {"lora peft", "adapter", "--lora-rank N trains an adapter, --adapter DIR goes on with one"},
    {"alpha", "lora-alpha", NULL},
    {"lora-target-modules lora-target lora-targets lora-modules", "target-modules", NULL},
    {"adapter-path adapter-name-or-path lora-path peft-model", "adapter", NULL},
    {"block-size max-length seq-length max-seq-len seq-len context-length model-max-length "
     "cutoff-len max-source-length max-len maxlen seqlen", "max-seq-length max-new-tokens", NULL},
    {"grad-checkpointing activation-checkpointing checkpoint-activations",
     "gradient-checkpointing", NULL},
    {"resume resume-from continue last-checkpoint", "resume-from-checkpoint", NULL},
    {"o out out-dir output outdir save-dir save-path output-path", "output-dir output", NULL},
    {"log-every log-interval log-steps log-freq log-every-n-steps", "logging-steps", NULL},
    {"eval-every eval-interval eval-freq eval-every-n-steps", "eval-steps", NULL},
    {"save-every save-interval save-freq save-every-n-steps checkpoint-interval",
     "save-steps", NULL},
    {"keep max-checkpoints", "save-total-limit", NULL},
    {"nproc-per-node num-processes np n-procs world-size gpus num-gpus ngpu ngpus n-gpu ranks",
     "nproc world", NULL},
    {"zero stage zero1 zero2 zero3 zero-1 zero-2 zero-3", "zero-stage", NULL},
    {"cpu-offload", "offload-optimizer", NULL},
    {"mics-shard-size hybrid-shard hsdp hsdp-size dp-shard-size", "hybrid-shard-size", NULL},
    {"bfloat16", "bf16 dtype", NULL},
    {"float16 half", "fp16 dtype", NULL},
    {"torch-dtype precision type", "dtype bf16", NULL},
    {"sample sampling", "do-sample", NULL},
    {"max-tokens n-predict num-tokens length", "max-new-tokens max-seq-length", NULL},
    {"temp", "temperature", NULL},
    {"beams", "num-beams", NULL},
    {"text input", "prompt", NULL},
    {"format output-format target to-format outtype", "to", NULL},
    {"shard-size", "max-shard-size", NULL},
    {"mean avg average-checkpoints", "average", NULL},
    {"commit-message msg", "message", NULL},
    {"revision ref", "branch", NULL},
    {"force f clobber yes y", "overwrite", NULL},
    {"hist histogram summary", "stats", NULL},
    {"sha256 hash checksum", "digest", NULL},
    {"tensors filter name names keys", "glob", NULL},
    {"check", "verify", NULL},

    {"predict-with-generate", NULL, "ckpt-eval does that: --eval-file with --generate"},
    {"wandb tensorboard report", "report-to", NULL},
    {"tensorboard-dir logdir log-dir", "logging-dir", NULL},
    {"sample-packing pack", "packing", NULL},
    {"wandb-name wandb-run-name", "run-name", NULL},
    {"disable-progress no-progress", "disable-tqdm", NULL},
    {"deepspeed-config ds-config", "deepspeed", NULL},
    {"nnodes", "num-nodes", NULL},
    {"node-rank", NULL,
     "ranks come from --nproc N or --hostfile FILE, or from torchrun --no-python, mpirun or srun "
     "around it"},
    {"use-auth-token", NULL, "no code of a model is ever run: leave it out"},
    {"preprocessing-num-workers group-texts num-workers workers", NULL,
     "it comes by itself: leave it out"},
    {"cuda gpu", NULL, "--device cuda"},
    {"cpu", NULL, "--device cpu"},
    {"fp32 float32", NULL, "weights are float32 without --bf16 and --fp16: leave it out"},
    {"ddp", NULL, "several ranks without --zero-stage are that: leave it out"},
    {"shuffle", NULL, "rows are shuffled unless --train-sampling-strategy sequential says not to"},
    {"qlora use-qlora", NULL,
     "weights that bitsandbytes has packed are read as they are: there is nothing to switch on"},
    {"use-lora", NULL, "--lora-rank N trains an adapter"},
    {"use-flash-attention flash-attention", NULL,
     "kernels are chosen by what the device can do: leave it out"},
};

/* The first of a row's options that the tool has, or NULL. */
static const char *meant(const struct opt_table *t, const struct known *row, bool in_file)
{
    for (const char *p = row->option; p && *p;) {
        size_t k = strcspn(p, " ");
        const struct opt_slot *s = opt_find(t, p, k);

        if (s && !(in_file && s->row->no_config))
            return s->row->name;
        p += k + (p[k] == ' ');
    }
    return NULL;
}

/* Whether `whole` contains name as complete words: "epochs" in num-train-epochs. */
static bool holds(const char *whole, const char *name, size_t n)
{
    for (const char *p = whole; n >= 3 && p; p = strchr(p, '-'), p = p ? p + 1 : NULL)
        if (strlen(p) >= n && (!p[n] || p[n] == '-')) {
            size_t k = 0;

            while (k < n && (name[k] == '_' ? '-' : name[k]) == p[k])
                k++;
            if (k == n)
                return true;
        }
    return false;
}

/* Edits within which a name of n letters may be a mistyped one; most of a short name's are not. */
static size_t few_edits(size_t n) { return n < 5 ? 1 : n < 9 ? 2 : n / 3; }

/* The nearest name to a mistyped one: by a letter or two, else by words, else by more letters; NULL
 * when none is near. */
static const char *nearest(const struct opt_table *t, const struct opt_dialect *d,
                           const char *name, size_t n, bool in_file)
{
    const char *best = NULL, *by_words = NULL;
    size_t least = few_edits(n) + 1;

    for (const struct opt_slot *s = t->slot; s < t->slot + t->n; s++) {
        const char *one = s->row->name;
        size_t edits;

        if (s->row->kind == OPT_KIND_HEADING || (in_file && s->row->no_config))
            continue;
        if ((edits = near_edits(name, n, one)) < least) {
            least = edits;
            best = one;
        }
        if (holds(one, name, n) && (!by_words || strlen(one) < strlen(by_words)))
            by_words = one;
    }
    for (; d; d = d->base)
        for (size_t i = 0, edits; i < d->n_field; i++)
            if (d->field[i].state == OPT_STATE_DOES &&
                (edits = near_edits(name, n, d->field[i].name)) < least) {
                least = edits;
                best = d->field[i].name;
            }
    return best && (least <= 2 || !by_words) ? best : by_words;
}

void opt_hint_unknown(const struct opt_table *t, const struct opt_dialect *d, const char *name,
                      size_t n, bool in_file, struct ckpt_err *err)
{
    const char *near = NULL;

    for (size_t i = 0; i < sizeof known / sizeof known[0] && !near; i++) {
        if (!opt_among(known[i].names, name, n))
            continue;
        if (known[i].hint && opt_find(t, "train-file", strlen("train-file"))) {
            ckpt_err_hint(err, "%s", known[i].hint);
            return;
        }
        near = meant(t, &known[i], in_file);
    }
    if (!near)
        near = nearest(t, d, name, n, in_file);
    if (near)
        ckpt_err_hint(err, "did you mean %s%s?", in_file ? "" : "--", near);
}
