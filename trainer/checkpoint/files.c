/* checkpoint/files - see checkpoint/files.h. */
#include "trainer/checkpoint/files.h"

#include <math.h>
#include <string.h>

#include "formats/jinja/chat.h"
#include "formats/torch/out.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"
#include "trainer/optim/schedule.h"

static const char *const tokenizer_files[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "vocab.txt", "spiece.model", "tokenizer.model",
    "chat_template.jinja", "generation_config.json",
};
static const char chat_file[] = "chat_template.jinja", generation_file[] = "generation_config.json";

static int put_chat_template(struct ckpt_outdir *dir, struct ckpt_dir *from, const char *which,
                             struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    const char *text;
    int rc = chat_template_text(&text, from, which, &a, err);

    if (rc == 0)
        rc = ckpt_outdir_put(dir, chat_file, text, strlen(text), err);
    ckpt_arena_release(&a);
    return rc;
}

/* A file of the folder, with the special tokens that it is to name. */
static int put_text(struct ckpt_outdir *dir, const char *name, struct ckpt_file *f,
                    const struct special *special, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_buf said;
    char *bytes;
    size_t n;
    int rc = ckpt_file_slurp(f, &a, CKPT_JSON_MAX_TOKENIZER_BYTES, &bytes, &n, err);

    ckpt_buf_init(&said, (size_t)1 << 30);
    if (rc == 0)
        rc = special_say(&said, name, bytes, n, special, err);
    if (rc == 0)
        rc = ckpt_outdir_put(dir, name, said.len ? said.data : (const void *)bytes,
                             said.len ? said.len : n, err);
    ckpt_buf_release(&said);
    ckpt_arena_release(&a);
    return rc;
}

static int copy_one(struct ckpt_outdir *dir, struct ckpt_dir *from, const char *name,
                    const struct special *special, struct ckpt_err *err)
{
    struct ckpt_file *f = NULL;
    int rc = ckpt_file_open_at(&f, from, name, err);

    if (rc == 0)
        rc = put_text(dir, name, f, special, err);
    ckpt_file_close(f);
    return rc;
}

/* Without files that name special tokens there is one that does. */
static int put_special(struct ckpt_outdir *dir, struct ckpt_dir *from,
                       const struct special *special, struct ckpt_err *err)
{
    static const char map[] = "special_tokens_map.json";
    struct ckpt_buf said;
    int rc;

    if (ckpt_dir_has(from, "tokenizer_config.json") || ckpt_dir_has(from, map))
        return 0;
    ckpt_buf_init(&said, (size_t)1 << 20);
    rc = special_say(&said, map, "{}", 2, special, err);
    if (rc == 0 && said.len)
        rc = ckpt_outdir_put(dir, map, said.data, said.len, err);
    ckpt_buf_release(&said);
    return rc;
}

int checkpoint_copy_tokenizer(struct ckpt_outdir *dir, struct ckpt_dir *from,
                              const char *chat_template, const struct special *special,
                              struct ckpt_err *err)
{
    int rc = chat_template ? put_chat_template(dir, from, chat_template, err) : 0;

    for (size_t i = 0; rc == 0 && i < sizeof tokenizer_files / sizeof tokenizer_files[0]; i++)
        if (!(chat_template && strcmp(tokenizer_files[i], chat_file) == 0) &&
            ckpt_dir_has(from, tokenizer_files[i]))
            rc = copy_one(dir, from, tokenizer_files[i], special, err);
    return rc ? rc : put_special(dir, from, special, err);
}

int checkpoint_tokenizer_bytes(uint64_t *bytes, struct ckpt_dir *from, struct ckpt_err *err)
{
    int rc = 0;

    *bytes = 0;
    for (size_t i = 0; rc == 0 && i < sizeof tokenizer_files / sizeof tokenizer_files[0]; i++) {
        struct ckpt_file *f;

        if (!ckpt_dir_has(from, tokenizer_files[i]))
            continue;
        if ((rc = ckpt_file_open_at(&f, from, tokenizer_files[i], err)) == 0) {
            *bytes += ckpt_file_size(f);
            ckpt_file_close(f);
        }
    }
    return rc;
}

static bool is_tokenizer_file(const char *name)
{
    for (size_t i = 0; i < sizeof tokenizer_files / sizeof tokenizer_files[0]; i++)
        if (strcmp(name, tokenizer_files[i]) == 0)
            return true;
    return false;
}

int checkpoint_copy_side_files(struct ckpt_outdir *dir, const struct side_files *side,
                               struct ckpt_dir *tokenizer, const struct special *special,
                               bool adapter, bool card, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < side->n; i++) {
        const char *name = side->item[i].name;
        bool licence = strncmp(name, "LICENSE", 7) == 0 || strncmp(name, "NOTICE", 6) == 0;

        if (!licence && !adapter && tokenizer && strcmp(name, generation_file) == 0) {
            if (!ckpt_dir_has(tokenizer, name))
                rc = put_text(dir, name, side->item[i].file, special, err);
        } else if (licence || (!adapter && strcmp(name, "config.json") != 0 &&
                               (card || strcmp(name, "README.md") != 0) &&
                               !(tokenizer && is_tokenizer_file(name)))) {
            rc = side_file_put(dir, &side->item[i], err);
        }
    }
    return rc;
}

/* An enum member in pickle's form: the class called with the value's text. */
static struct value *choice(struct ckpt_arena *a, const char *module, const char *name,
                            const char *text)
{
    struct value *args = value_tuple(a);

    return value_append(a, args, value_str(a, text)) ? NULL
                                                     : value_object(a, module, name, args, NULL,
                                                                    false);
}

/* Steps, or a fraction of them. */
static struct value *steps(struct ckpt_arena *a, double n)
{
    return n < 1 && n > 0 ? value_float(a, n) : value_int(a, (int64_t)n);
}

/* What the schedule has other than by default; DeepSpeed's are none of transformers'. */
static struct value *schedule_kwargs(struct ckpt_arena *a, const struct settings *s)
{
    struct value *d = value_dict(a, false), *v;
    struct ckpt_err ignored = {0};
    struct schedule schedule;
    struct schedule_value key;

    if (schedule_init(&schedule, s->lr_scheduler_type, s->learning_rate, s->min_lr,
                      s->lr_scheduler_kwargs, &ignored) || schedule.kind >= SCHEDULE_WARMUP_LR)
        return d;
    for (size_t i = 0; d && schedule_key(&key, &schedule, i); i++) {
        v = isnan(key.number) ? value_str(a, key.text)
            : key.is_int      ? value_int(a, (int64_t)key.number) : value_float(a, key.number);
        if (key.given && value_set_str(a, d, key.name, v))
            return NULL;
    }
    return d;
}

static int fields(struct ckpt_arena *a, struct value *d, const struct settings *s)
{
    const struct { const char *key; int64_t value; } ints[] = {
        {"per_device_train_batch_size", s->per_device_train_batch_size},
        {"per_device_eval_batch_size", s->per_device_eval_batch_size},
        {"gradient_accumulation_steps", s->gradient_accumulation_steps},
        {"max_steps", s->max_steps > 0 ? s->max_steps : -1},
        {"warmup_steps", s->warmup_steps},
        {"seed", (int64_t)s->seed},
    };
    const struct { const char *key; double value; } reals[] = {
        {"learning_rate", s->learning_rate},   {"weight_decay", s->weight_decay},
        {"adam_beta1", s->adam_beta1},         {"adam_beta2", s->adam_beta2},
        {"adam_epsilon", s->adam_epsilon},     {"max_grad_norm", s->max_grad_norm},
        {"label_smoothing_factor", s->label_smoothing_factor},
        {"num_train_epochs", s->num_train_epochs}, {"warmup_ratio", s->warmup_ratio},
        {"eval_delay", s->eval_delay},
    };
    bool judges = s->metric_for_best_model || s->load_best_model_at_end;
    bool by_steps = strcmp(s->eval_strategy, "steps") == 0;
    bool evaluates = !by_steps || s->eval_steps > 0;
    enum schedule_kind schedule;        /* DeepSpeed's are not among transformers' types */
    /* Folders above an absolute path's name people and machines, and mean nothing elsewhere. */
    const char *slash = s->output_dir[0] == '/' ? strrchr(s->output_dir, '/') : NULL;
    int rc = value_set_str(a, d, "output_dir", value_str(a, slash && slash[1] ? slash + 1
                                                                             : s->output_dir));

    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++)
        rc |= value_set_str(a, d, ints[i].key, value_int(a, ints[i].value));
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        rc |= value_set_str(a, d, reals[i].key, value_float(a, reals[i].value));
    rc |= value_set_str(a, d, "lr_scheduler_type",
                        choice(a, "transformers.trainer_utils", "SchedulerType",
                               schedule_parse(&schedule, s->lr_scheduler_type) &&
                                       schedule < SCHEDULE_WARMUP_LR
                                   ? s->lr_scheduler_type : "linear")) |
          value_set_str(a, d, "lr_scheduler_kwargs", schedule_kwargs(a, s)) |
          value_set_str(a, d, "optim",
                        choice(a, "transformers.training_args", "OptimizerNames",
                               strcmp(s->optim, "paged_adamw") == 0 ? "paged_adamw_32bit"
                                                                    : s->optim)) |
          value_set_str(a, d, "logging_strategy",
                        choice(a, "transformers.trainer_utils", "IntervalStrategy",
                               s->logging_strategy)) |
          value_set_str(a, d, "logging_steps", steps(a, s->logging_steps)) |
          value_set_str(a, d, "save_strategy",
                        choice(a, "transformers.trainer_utils", "SaveStrategy",
                               s->save_strategy)) |
          value_set_str(a, d, "save_steps", steps(a, s->save_steps)) |
          value_set_str(a, d, "eval_strategy",
                        choice(a, "transformers.trainer_utils", "IntervalStrategy",
                               evaluates ? s->eval_strategy : "no")) |
          value_set_str(a, d, "eval_steps",
                        s->eval_steps > 0 ? steps(a, s->eval_steps) : value_none(a)) |
          value_set_str(a, d, "eval_on_start", value_bool(a, s->eval_on_start)) |
          value_set_str(a, d, "load_best_model_at_end",
                        value_bool(a, s->load_best_model_at_end)) |
          value_set_str(a, d, "metric_for_best_model",
                        s->metric_for_best_model ? value_str(a, s->metric_for_best_model)
                        : judges                 ? value_str(a, "loss") : value_none(a)) |
          value_set_str(a, d, "greater_is_better",
                        judges ? value_bool(a, strcmp(s->greater_is_better, "true") == 0)
                               : value_none(a)) |
          value_set_str(a, d, "save_total_limit",
                        s->save_total_limit > 0 ? value_int(a, s->save_total_limit)
                                                : value_none(a)) |
          value_set_str(a, d, "save_only_model", value_bool(a, s->save_only_model)) |
          value_set_str(a, d, "neftune_noise_alpha",
                        s->neftune_noise_alpha > 0 ? value_float(a, s->neftune_noise_alpha)
                                                   : value_none(a)) |
          value_set_str(a, d, "gradient_checkpointing",
                        value_bool(a, settings_recompute(s) == RECOMPUTE_FULL)) |
          value_set_str(a, d, "fp16", value_bool(a, s->fp16)) |
          value_set_str(a, d, "bf16", value_bool(a, s->bf16)) |
          value_set_str(a, d, "tf32", s->tf32 ? value_bool(a, true) : value_none(a));
    return rc;
}

int checkpoint_save_training_args(const struct settings *s, struct ckpt_outdir *dir,
                                  struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct value *d = value_dict(&a, false), *root;
    struct ckpt_out *out;
    int rc = fields(&a, d, s);

    root = value_object(&a, "transformers.training_args", "TrainingArguments", value_tuple(&a), d,
                        true);
    if (rc || !root)
        rc = ckpt_nomem(err, (size_t)a.used);
    if (rc == 0)
        rc = ckpt_outdir_file(&out, dir, "training_args.bin", err);
    if (rc == 0)
        rc = torch_write(out, "archive", root, NULL, NULL, 0, err);
    ckpt_arena_release(&a);
    return rc;
}
