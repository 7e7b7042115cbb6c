/* opt/known - option names of other programs -> the names here; opt/rows.h. */
#include <string.h>

#include "tools/near.h"
#include "tools/opt/rows.h"

/* Names in transformers, TRL, PEFT, DeepSpeed, torchrun, the Hub's client, lm-evaluation-harness
 * and mergekit, and short ones that people try. */
static const struct known {
    const char *names;          /* space-separated, with "-" */
    const char *option;         /* the first of these that the tool has */
} known[] = {
    {"model-name-or-path model-name model-path base-model pretrained-model model-id checkpoint",
     "model base"},
    {"tokenizer-name tokenizer-name-or-path tokenizer-path", "tokenizer"},
    {"config-name", "init"},
    {"dataset data dataset-path data-path train-data train-dataset training-data input-file "
     "files", "train-file eval-file"},
    {"validation-file eval-data eval-dataset eval-set test-file validation-data eval validation "
     "val valid", "eval-file"},
    {"split dataset-split dataset-train-split train-split-name", "train-split eval-split"},
    {"dataset-test-split validation-split", "eval-split"},
    {"dataset-config-name subset", "dataset-config"},
    {"dataset-text-field text-column", "text-field"},
    {"lr rate peak-lr", "learning-rate"},
    {"epochs num-epochs epoch n-epochs", "num-train-epochs"},
    {"steps num-steps num-training-steps total-steps iters max-iters train-steps", "max-steps"},
    {"batch-size batchsize train-batch-size micro-batch-size batch per-gpu-train-batch-size bs "
     "bsz mbs device-batch-size per-device-batch-size train-micro-batch-size-per-gpu",
     "per-device-train-batch-size batch-size"},
    {"eval-batch-size per-gpu-eval-batch-size", "per-device-eval-batch-size batch-size"},
    {"grad-accum gradient-accumulation accumulation-steps grad-accum-steps "
     "accumulate-grad-batches accumulation accumulate accum ga gas grad-acc grad-acc-steps "
     "grad-accum-step gradient-accumulate grad-accumulation grad-accumulation-steps "
     "accumulation-step accum-steps", "gradient-accumulation-steps"},
    {"warmup num-warmup-steps", "warmup-steps"},
    {"scheduler lr-scheduler schedule lr-decay lr-schedule cosine linear constant",
     "lr-scheduler-type"},
    {"wd decay", "weight-decay"},
    {"lr-min min-learning-rate", "min-lr"},
    {"clip grad-clip clip-grad-norm gradient-clipping gradient-clip clip-norm max-norm",
     "max-grad-norm"},
    {"optimizer-type optim-type optimizer-name adam adamw sgd lion muon", "optim"},
    {"momentum nesterov", "optim-args"},
    {"beta1", "adam-beta1"},
    {"beta2", "adam-beta2"},
    {"eps epsilon adam-eps", "adam-epsilon"},
    {"lora-r r rank lora-dim", "lora-rank extract-adapter"},
    {"lora peft", "adapter"},
    {"alpha", "lora-alpha"},
    {"lora-target-modules lora-target lora-targets lora-modules", "target-modules"},
    {"adapter-path adapter-name-or-path lora-path peft-model", "adapter"},
    {"block-size max-length seq-length max-seq-len seq-len context-length model-max-length "
     "cutoff-len max-source-length max-len maxlen seqlen", "max-seq-length max-new-tokens"},
    {"grad-checkpointing activation-checkpointing checkpoint-activations",
     "gradient-checkpointing"},
    {"resume resume-from continue last-checkpoint", "resume-from-checkpoint"},
    {"o out out-dir output outdir save-dir save-path output-path out-path outfile out-file "
     "output-file save-directory", "output-dir output predictions-out"},
    {"log-every log-interval log-steps log-freq log-every-n-steps", "logging-steps"},
    {"eval-every eval-interval eval-freq eval-every-n-steps", "eval-steps"},
    {"save-every save-interval save-freq save-every-n-steps checkpoint-interval", "save-steps"},
    {"keep max-checkpoints", "save-total-limit"},
    {"nproc-per-node num-processes np n-procs world-size gpus num-gpus ngpu ngpus n-gpu ranks",
     "nproc world"},
    {"zero stage zero1 zero2 zero3 zero-1 zero-2 zero-3", "zero-stage"},
    {"cpu-offload", "offload-optimizer"},
    {"mics-shard-size hybrid-shard hsdp hsdp-size dp-shard-size", "hybrid-shard-size"},
    {"bfloat16", "bf16 dtype"},
    {"float16 half", "fp16 dtype"},
    {"torch-dtype precision type out-dtype save-dtype", "dtype bf16"},
    {"sample sampling", "do-sample"},
    {"max-tokens n-predict num-tokens length", "max-new-tokens max-seq-length"},
    {"temp", "temperature"},
    {"beams", "num-beams"},
    {"text input", "prompt"},
    {"format output-format target to-format outtype", "to"},
    {"shard-size", "max-shard-size"},
    {"mean avg average-checkpoints", "average"},
    {"commit-message commit-description msg", "message"},
    {"allow-patterns allow-pattern", "include"},
    {"ignore-patterns ignore-pattern ignore", "exclude"},
    {"delete-patterns delete-pattern", "delete"},
    {"limit-rate bandwidth upload-limit max-bandwidth", "bwlimit"},
    {"concurrency transfers threads", "jobs"},
    {"signature signing-key sign-by", "sign"},
    {"limit num-samples n-samples max-examples max-samples", "max-train-samples max-eval-samples"},
    {"revision ref", "branch"},
    {"force f clobber yes y", "overwrite"},
    {"hist histogram summary", "stats"},
    {"sha256 hash checksum", "digest"},
    {"tensors filter name names keys", "glob"},
    {"check", "verify"},
    {"wandb tensorboard report", "report-to"},
    {"tensorboard-dir logdir log-dir", "logging-dir"},
    {"sample-packing pack", "packing"},
    {"wandb-name wandb-run-name", "run-name"},
    {"disable-progress no-progress", "disable-tqdm"},
    {"deepspeed-config ds-config", "deepspeed"},
    {"nnodes", "num-nodes"},
    {"num-workers workers", "jobs"},
};

/* What stands in the place of an option, in the tool that has the option `of` ("": in any); looked
 * at first. */
static const struct hint {
    const char *names, *hint, *of;
} hints[] = {
    {"model model-name-or-path model-name model-path pretrained-model model-id checkpoint "
     "model-args", "the model is an argument: ckpt-eval --eval-file DATA MODEL", "predictions-out"},
    {"betas adam-betas", "--adam-beta1 X --adam-beta2 X", "train-file"},
    {"lora peft", "--lora-rank N trains an adapter, --adapter DIR goes on with one", "train-file"},
    {"predict-with-generate", "ckpt-eval does that: --eval-file with --generate", "train-file"},
    {"node-rank",
     "ranks come from --nproc N or --hostfile FILE, or from torchrun --no-python, mpirun or "
     "srun around it", "train-file"},
    {"use-auth-token", "no code of a model is ever run: leave it out", "train-file"},
    {"preprocessing-num-workers group-texts num-workers workers",
     "it comes by itself: leave it out", "train-file"},
    {"cuda gpu", "--device cuda", "train-file"},
    {"cpu", "--device cpu", "train-file"},
    {"fp32 float32", "weights are float32 without --bf16 and --fp16: leave it out", "train-file"},
    {"ddp", "several ranks without --zero-stage are that: leave it out", "train-file"},
    {"shuffle",
     "rows are shuffled unless --train-sampling-strategy sequential says not to", "train-file"},
    {"qlora use-qlora",
     "weights that bitsandbytes has packed are read as they are: there is nothing to switch on",
     "train-file"},
    {"use-lora", "--lora-rank N trains an adapter", "train-file"},
    {"use-flash-attention flash-attention",
     "kernels are chosen by what the device can do: leave it out", "train-file"},
    {"token hf-token auth-token access-token",
     "HF_TOKEN, or a credential helper, has it: other users see what a command line says", ""},
    {"repo-type", "the address says it: hf://datasets/OWNER/NAME", "path-in-repo"},
    {"repo-id repo repository", "the destination is an address: hf://OWNER/NAME", "path-in-repo"},
    {"folder-path local-dir local-path source",
     "what is published follows the destination: ckpt-push DESTINATION PATH", "path-in-repo"},
    {"every watch follow",
     "paths of standard input are published as they come: ckpt-train ... | ckpt-push DESTINATION",
     "path-in-repo"},
    {"recursive r", "folders are published whole: leave it out", "path-in-repo"},
    {"public", "a repository is public unless --private: leave it out", "path-in-repo"},
    {"force f clobber overwrite",
     "what differs is replaced: leave it out; --delete GLOB removes what is not sent",
     "path-in-repo"},
    {"safe-serialization", "weights become safetensors: leave it out", "extract-adapter"},
    {"device cuda gpu", "merging takes a CPU and little memory: leave it out", "extract-adapter"},
    {"checkpoint-dir input-dir input model model-path",
     "what is merged is an argument: ckpt-merge PATH", "extract-adapter"},
    {"num-fewshot", "a template has them: --prompt-template", "predictions-out"},
    {"header headers list show shape shapes metadata", "it is shown without an option", "encode"},
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

/* Whether it is the tool that has this option; "": any is. */
static bool is_of(const struct opt_table *t, const char *option)
{
    return !*option || opt_find(t, option, strlen(option));
}

void opt_hint_unknown(const struct opt_table *t, const struct opt_dialect *d, const char *name,
                      size_t n, bool in_file, struct ckpt_err *err)
{
    const char *near = NULL;

    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (opt_among(hints[i].names, name, n) && is_of(t, hints[i].of)) {
            ckpt_err_hint(err, "%s", hints[i].hint);
            return;
        }
    for (size_t i = 0; i < sizeof known / sizeof known[0] && !near; i++)
        if (opt_among(known[i].names, name, n))
            near = meant(t, &known[i], in_file);
    if (!near)
        near = nearest(t, d, name, n, in_file);
    if (near)
        ckpt_err_hint(err, "did you mean %s%s?", in_file ? "" : "--", near);
}
