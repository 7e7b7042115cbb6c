/* checkpoint/changed - see checkpoint/changed.h. */
#include "trainer/checkpoint/changed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/families/arch.h"
#include "formats/hf/trainer_saved.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/file.h"
#include "libckpt/log.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/run/settings_saved.h"

#define LOOKS 64                /* steps at which two schedules are compared */
#define SHOWN 60                /* bytes of a value in a message, at most */
#define AHEAD 20                /* of them before the first that differs */

/* What is compared. */
struct changes {
    const char            *path;
    const struct settings *s;
    const struct schedule *schedule;
    const struct run_state *state;
    const struct hf_args  *args;        /* NULL: the checkpoint has none */
    const json_t          *was, *is;    /* what manifests keep of the settings; was: any value */
    int64_t                total;       /* steps of the saved run; 0: not known */
    int64_t                ranks;       /* likewise, of our own */
    bool                   ours;
};

static void tell(const struct changes *c, const char *name, const char *was, const char *is)
{
    ckpt_log(CKPT_LOG_WARNING, "%s: changed from here on: `%s` %s -> %s", c->path, name, was, is);
}

static void tell_numbers(const struct changes *c, const char *name, double was, double is)
{
    char there[40], here[40];

    snprintf(there, sizeof there, "%.10g", was);
    snprintf(here, sizeof here, "%.10g", is);
    tell(c, name, there, here);
}

/* -- values of JSON ---------------------------------------------------------------------------- */

static bool differ(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) != json_number_value(b)
                                                  : !json_equal(a, b);
}

static void put_value(struct ckpt_buf *b, const json_t *v)
{
    json_t *item;
    char *text;
    size_t i;

    if (json_is_string(v) && json_string_length(v) == 0) {
        ckpt_buf_put_str(b, "\"\"");
    } else if (json_is_string(v)) {
        ckpt_buf_put(b, json_string_value(v), json_string_length(v));
    } else if (json_is_number(v)) {
        ckpt_buf_printf(b, "%.10g", json_number_value(v));
    } else if (json_is_boolean(v)) {
        ckpt_buf_put_str(b, json_is_true(v) ? "true" : "false");
    } else if (json_is_array(v)) {
        json_array_foreach ((json_t *)v, i, item) {
            ckpt_buf_put_str(b, i ? "," : "");
            put_value(b, item);
        }
    } else if (json_is_object(v) && (text = json_dumps(v, JSON_COMPACT)) != NULL) {
        ckpt_buf_put_str(b, text);
        free(text);
    }
}

/* A text of n bytes, of which the first `same` are the other's too, or the part around there. */
static void cut(char dst[SHOWN + 8], const char *text, size_t n, size_t same)
{
    size_t from = n > SHOWN && same > AHEAD ? same - AHEAD : 0, len;

    if (n > SHOWN && n - from < SHOWN)
        from = n - SHOWN;
    while (from > 0 && (text[from] & 0xC0) == 0x80)
        from--;
    len = n - from > SHOWN ? ckpt_utf8_prefix(text + from, SHOWN) : n - from;
    snprintf(dst, SHOWN + 8, "%s%.*s%s", from ? "..." : "", n ? (int)len : 4,
             n ? text + from : "none", from + len < n ? "..." : "");
}

/* Two values in few characters each, among them those that differ. */
static void show(char there[SHOWN + 8], char here[SHOWN + 8], const json_t *was, const json_t *is)
{
    struct ckpt_buf a, b;
    size_t same = 0;

    ckpt_buf_init(&a, SIZE_MAX);
    ckpt_buf_init(&b, SIZE_MAX);
    put_value(&a, was);
    put_value(&b, is);
    while (same < a.len && same < b.len && a.data[same] == b.data[same])
        same++;
    cut(there, ckpt_buf_str(&a) ? ckpt_buf_str(&a) : "", a.len, same);
    cut(here, ckpt_buf_str(&b) ? ckpt_buf_str(&b) : "", b.len, same);
    ckpt_buf_release(&a);
    ckpt_buf_release(&b);
}

/* Keys that are options too. */
static bool is_option(const struct changes *c, const char *key)
{
    static const char *const deepspeeds[] = {"warmup_type", "warmup_min_lr", "cos_min_ratio",
                                             "total_num_steps"};

    if (c->schedule->kind >= SCHEDULE_WARMUP_LR)
        for (size_t i = 0; i < sizeof deepspeeds / sizeof deepspeeds[0]; i++)
            if (strcmp(key, deepspeeds[i]) == 0)
                return true;
    return strcmp(key, "min_lr") == 0;
}

/* The members that both have of a setting that is an object. */
static void compare_members(const struct changes *c, const char *name, const json_t *was,
                            const json_t *is)
{
    char there[SHOWN + 8], here[SHOWN + 8], a[2 * SHOWN + 8], b[2 * SHOWN + 8];
    const char *key;
    json_t *v, *had;

    json_object_foreach ((json_t *)is, key, v) {
        had = json_object_get(was, key);
        if (!had || !differ(had, v))
            continue;
        show(there, here, had, v);
        snprintf(a, sizeof a, "%s=%s", key, there);
        snprintf(b, sizeof b, "%s=%s", key, here);
        if (is_option(c, key))
            tell(c, key, there, here);
        else
            tell(c, name, a, b);
    }
}

/* -- length and warmup ------------------------------------------------------------------------- */

/* Whether the rates of the steps to come depend on how long warmup or run are. */
static bool matters(const struct changes *c, int64_t warmup, int64_t total)
{
    struct schedule was = *c->schedule;
    int64_t from = c->state->global_step;
    int64_t end = total < c->schedule->total_steps ? total : c->schedule->total_steps;
    int64_t span = end > from ? end - from : 1;

    schedule_span(&was, warmup, total);
    for (int64_t i = 0; i < LOOKS; i++) {
        int64_t step = from + (span - 1) * i / (LOOKS - 1);
        double a = schedule_lr(&was, was.lr, step), b = schedule_lr(c->schedule, was.lr, step);

        if (fabs(a - b) > 1e-12 * was.lr)
            return true;
    }
    return false;
}

/* Steps of a warmup that is told in either way. */
static int64_t warmup_of(double steps, double ratio, int64_t total)
{
    return steps > 0 ? (int64_t)steps : (int64_t)ceil(ratio * (double)total);
}

static void compare_length(const struct changes *c)
{
    int64_t is = c->schedule->total_steps;

    if (c->total > 0 && c->total != is &&
        matters(c, warmup_of((double)c->s->warmup_steps, c->s->warmup_ratio, c->total), c->total))
        tell_numbers(c, "max_steps", (double)c->total, (double)is);
}

/* In transformers 5 warmup_steps below 1 are a fraction of all. */
static void compare_warmup(const struct changes *c)
{
    const struct settings *s = c->s;
    double steps = 0, ratio = 0;
    int64_t was, is = c->schedule->warmup_steps, total = c->schedule->total_steps;

    if (!hf_args_number(c->args, "warmup_steps", &steps) || !(steps >= 0 && steps < 0x1p53))
        return;
    if (!hf_args_number(c->args, "warmup_ratio", &ratio) || !(ratio >= 0 && ratio <= 1))
        ratio = 0;
    if (steps < 1 && steps > 0) {
        ratio = steps;
        steps = 0;
    }
    was = warmup_of(steps, ratio, total);
    if (was == is || !matters(c, was, total))
        return;
    if (steps > 0 || s->warmup_steps > 0)
        tell_numbers(c, "warmup_steps", (double)was, (double)is);
    else
        tell_numbers(c, "warmup_ratio", ratio, s->warmup_ratio);
}

/* -- schedules --------------------------------------------------------------------------------- */

/* Our training_args.bin has neither name nor numbers of DeepSpeed's schedules. */
static const char *kind_of_saved(const struct changes *c)
{
    const char *name = json_string_value(json_object_get(c->was, "lr_scheduler_type"));

    if (!name && c->args && !(c->ours && c->schedule->kind >= SCHEDULE_WARMUP_LR))
        name = hf_args_text(c->args, "lr_scheduler_type");
    return name && strlen(name) <= 63 ? name : NULL;
}

static void compare_kind(const struct changes *c)
{
    const char *was = kind_of_saved(c);

    if (was && strcmp(was, c->s->lr_scheduler_type) != 0)
        tell(c, "lr_scheduler_type", was, c->s->lr_scheduler_type);
}

/* All keys of the saved schedule, their defaults included; a new reference, or NULL. */
static json_t *keys_of_saved(const struct changes *c)
{
    json_t *kept = json_object_get(c->was, "lr_scheduler_kwargs"), *keys = NULL;
    char *kwargs = kept || !c->args ? NULL : hf_args_object(c->args, "lr_scheduler_kwargs");
    struct ckpt_err ignored = {0};
    struct schedule was;

    if (kwargs && schedule_init(&was, c->s->lr_scheduler_type, c->s->learning_rate, NAN, kwargs,
                                &ignored) == 0)
        keys = settings_saved_keys(&was);
    free(kwargs);
    return kept ? json_incref(kept) : keys;
}

/* Keys of the same kind of schedule. */
static void compare_keys(const struct changes *c)
{
    const char *kind = kind_of_saved(c);
    bool same = kind && strcmp(kind, c->s->lr_scheduler_type) == 0;
    json_t *was = same ? keys_of_saved(c) : NULL, *is = settings_saved_keys(c->schedule);

    compare_members(c, "lr_scheduler_kwargs", was, is);
    json_decref(was);
    json_decref(is);
}

/* -- numbers and truths ------------------------------------------------------------------------ */

static void compare_precision(const struct changes *c)
{
    const struct { const char *name; bool here; } flags[] = {{"bf16", c->s->bf16},
                                                             {"fp16", c->s->fp16}};
    bool was;

    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (hf_args_flag(c->args, flags[i].name, &was) && was != flags[i].here)
            tell(c, flags[i].name, was ? "true" : "false", was ? "false" : "true");
}

/* Ranks may share the samples of a step otherwise; how many another program had is not known. */
static void compare_batch(const struct changes *c, int world_size)
{
    const struct settings *s = c->s;
    double batch, steps;
    int64_t is = s->per_device_train_batch_size * s->gradient_accumulation_steps;

    if (!hf_args_number(c->args, "per_device_train_batch_size", &batch) ||
        !hf_args_number(c->args, "gradient_accumulation_steps", &steps))
        return;
    if (c->ranks > 0 && batch * steps * (double)c->ranks != (double)(is * world_size))
        tell_numbers(c, "train_batch_size", batch * steps * (double)c->ranks,
                     (double)(is * world_size));
    if (c->ranks > 0)
        return;
    if (batch != (double)s->per_device_train_batch_size)
        tell_numbers(c, "per_device_train_batch_size", batch,
                     (double)s->per_device_train_batch_size);
    if (steps != (double)s->gradient_accumulation_steps)
        tell_numbers(c, "gradient_accumulation_steps", steps,
                     (double)s->gradient_accumulation_steps);
}

static void compare_numbers(const struct changes *c)
{
    const struct settings *s = c->s;
    const struct { const char *name; double here; } numbers[] = {
        {"seed", (double)s->seed}, {"weight_decay", s->weight_decay},
        {"adam_beta1", s->adam_beta1}, {"adam_beta2", s->adam_beta2},
        {"adam_epsilon", s->adam_epsilon}, {"max_grad_norm", s->max_grad_norm},
        {"label_smoothing_factor", s->label_smoothing_factor},
        {"neftune_noise_alpha", s->neftune_noise_alpha}};
    double was;

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (hf_args_number(c->args, numbers[i].name, &was) && was != numbers[i].here)
            tell_numbers(c, numbers[i].name, was, numbers[i].here);
    /* A schedule's file goes on with its own rates. */
    if (isnan(c->state->base_lr) && hf_args_number(c->args, "learning_rate", &was) &&
        was != s->learning_rate)
        tell_numbers(c, "learning_rate", was, s->learning_rate);
}

/* -- what a manifest keeps --------------------------------------------------------------------- */

/* Constants of config.json, which --model may name another one of. */
static const struct { const char *name; size_t at; } of_model[] = {
    {"hidden_dropout", offsetof(struct arch, hidden_dropout)},
    {"attention_dropout", offsetof(struct arch, attention_dropout)},
    {"embed_dropout", offsetof(struct arch, embed_dropout)},
    {"ff_dropout", offsetof(struct arch, ff_dropout)},
    {"final_dropout", offsetof(struct arch, final_dropout)},
    {"router_jitter_noise", offsetof(struct arch, router_jitter)},
    {"router_aux_loss_coef", offsetof(struct arch, router_aux)},
};

static json_t *token(const struct session *s, int32_t id)
{
    const char *text = s->tokenizer && id >= 0 ? tokenizer_token(s->tokenizer, id) : NULL;

    return text ? ckpt_json_text(text, strlen(text)) : json_null();
}

int changed_keep(json_t **out, const struct session *s, const struct checkpoint *c,
                 struct ckpt_err *err)
{
    const struct tokenizer *t = s->tokenizer;
    bool pads = c->settings->loss_on_padding;
    int rc = settings_saved_make(out, c->settings, err), bad = 0;

    for (size_t i = 0; rc == 0 && i < sizeof of_model / sizeof of_model[0]; i++) {
        const void *at = (const char *)s->arch + of_model[i].at;

        bad |= json_object_set_new(*out, of_model[i].name, json_real(*(const double *)at));
    }
    if (rc == 0)
        bad |= json_object_set_new(*out, "eos_token", token(s, t ? tokenizer_eos(t) : -1)) |
               json_object_set_new(*out, "pad_token",
                                   token(s, t && pads ? tokenizer_pad(t) : -1)) |
               json_object_set_new(*out, "chat_template",
                                   *c->chat ? json_sprintf("xxh128:%s", c->chat)
                                            : json_null());
    if (bad) {
        json_decref(*out);
        *out = NULL;
        rc = ckpt_nomem(err, sizeof **out);
    }
    return rc;
}

static bool is_of_samples(const char *name)
{
    return settings_saved_of_samples(name) || strcmp(name, "eos_token") == 0 ||
           strcmp(name, "pad_token") == 0 || strcmp(name, "chat_template") == 0;
}

/* Rates by pattern are those of the schedule's file, which is told where they are others. */
static bool is_of_rates(const char *name)
{
    return strcmp(name, "lr_for") == 0 || strncmp(name, "loraplus_", 9) == 0;
}

/* Names of optimizers that step alike. */
static bool same_optimizer(const char *was, const char *is)
{
    const struct optim_row *a = was ? optim_find(was) : NULL, *b = optim_find(is);

    return a && b && a->rule == b->rule && a->moments == b->moments;
}

static void compare_optimizer(const struct changes *c)
{
    const json_t *was = json_object_get(c->was, "optim"), *is = json_object_get(c->is, "optim");
    const char *name = json_string_value(was);
    const struct optim_row *row = name ? optim_find(name) : NULL;
    char there[SHOWN + 8], here[SHOWN + 8];

    if (was && !same_optimizer(name, c->s->optim)) {
        show(there, here, was, is);
        tell(c, "optim", there, here);
    }
    if (row && row->rule == optim_find(c->s->optim)->rule)
        compare_members(c, "optim_args", json_object_get(c->was, "optim_args"),
                        json_object_get(c->is, "optim_args"));
}

static void compare_kept(const struct changes *c)
{
    char there[SHOWN + 8], here[SHOWN + 8];
    const char *name;
    json_t *v, *had;

    json_object_foreach ((json_t *)c->is, name, v) {
        had = json_object_get(c->was, name);
        if (!had || !differ(had, v) || json_is_object(v) || strcmp(name, "optim") == 0 ||
            strcmp(name, "lr_scheduler_type") == 0 || (c->state->other_rates && is_of_rates(name)))
            continue;
        show(there, here, had, v);
        tell(c, name, there, here);
    }
    compare_optimizer(c);
}

void changed_samples(char *dst, size_t size, const json_t *manifest, const struct session *s,
                     const struct checkpoint *c)
{
    const json_t *was = json_object_get(manifest, "settings");
    char there[SHOWN + 8], here[SHOWN + 8];
    struct ckpt_err ignored = {0};
    json_t *is = NULL, *v, *had;
    const char *name;
    size_t at = 0;

    dst[0] = '\0';
    if (changed_keep(&is, s, c, &ignored))
        return;
    json_object_foreach (is, name, v) {
        had = json_object_get(was, name);
        if (!had || !differ(had, v) || !is_of_samples(name) || at >= size)
            continue;
        show(there, here, had, v);
        at += (size_t)snprintf(dst + at, size - at, "%s`%s` %s -> %s", at ? ", " : ": ", name,
                               there, here);
    }
    json_decref(is);
}

/* -- all of it --------------------------------------------------------------------------------- */

/* A JSON file of the folder, or NULL. */
static json_t *read_json(struct ckpt_dir *dir, const char *file)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *f = NULL;
    json_t *json = NULL;

    if (ckpt_dir_has(dir, file) && ckpt_file_open_at(&f, dir, file, &ignored) == 0 &&
        ckpt_json_read(&json, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, &ignored))
        json = NULL;
    ckpt_file_close(f);
    return json;
}

/* Arguments of the checkpoint, ours or HF Trainer's. */
static void compare_arguments(const struct changes *c, int world_size)
{
    compare_precision(c);
    compare_warmup(c);
    compare_batch(c, world_size);
    compare_numbers(c);
}

void changed_tell(const char *path, const struct session *s, const struct checkpoint *c)
{
    struct changes all = {.path = path, .s = c->settings, .schedule = c->schedule,
                          .state = c->state};
    struct ckpt_err ignored = {0};      /* nothing of it is used, but for warnings */
    json_t *manifest, *state, *is = NULL;
    struct ckpt_dir *dir = NULL;
    struct ckpt_file *f = NULL;
    struct hf_args *args = NULL;

    if (ckpt_dir_open(&dir, path, 0, &ignored))
        return;
    manifest = read_json(dir, MANIFEST_NAME);
    state = read_json(dir, "trainer_state.json");
    if (changed_keep(&is, s, c, &ignored) == 0) {
        all.was = json_object_get(manifest, "settings");
        all.is = is;
    }
    all.ours = manifest;
    all.ranks = json_integer_value(json_object_get(manifest, "world_size"));
    all.total = json_integer_value(json_object_get(state, "max_steps"));
    if (ckpt_dir_has(dir, "training_args.bin") &&
        ckpt_file_open_at(&f, dir, "training_args.bin", &ignored) == 0 &&
        hf_args_open(&args, f, &ignored) == 0)
        all.args = args;
    compare_length(&all);
    compare_kind(&all);
    compare_keys(&all);
    if (args)
        compare_arguments(&all, s->comm->world_size);
    compare_kept(&all);
    hf_args_close(args);
    json_decref(is);
    json_decref(state);
    json_decref(manifest);
    ckpt_dir_close(dir);
}
