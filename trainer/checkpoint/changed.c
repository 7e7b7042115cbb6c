/* checkpoint/changed - see checkpoint/changed.h. */
#include "trainer/checkpoint/changed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/trainer_saved.h"
#include "libckpt/base/json.h"
#include "libckpt/file.h"
#include "libckpt/log.h"
#include "trainer/checkpoint/manifest.h"

#define LOOKS 64                /* steps at which two schedules are compared */

/* What is compared. */
struct changes {
    const char            *path;
    const struct settings *s;
    const struct schedule *schedule;
    const struct run_state *state;
    const struct hf_args  *args;
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

/* DeepSpeed's schedules have no name among the arguments. */
static void compare_kind(const struct changes *c)
{
    const char *was = hf_args_text(c->args, "lr_scheduler_type");
    enum schedule_kind kind;

    if (!was || strlen(was) > 63 || strcmp(was, c->s->lr_scheduler_type) == 0 ||
        (c->ours && schedule_parse(&kind, c->s->lr_scheduler_type) && kind >= SCHEDULE_WARMUP_LR))
        return;
    tell(c, "lr_scheduler_type", was, c->s->lr_scheduler_type);
}

/* Keys of the same kind of schedule, their defaults included. */
static void compare_keys(const struct changes *c)
{
    const char *name = hf_args_text(c->args, "lr_scheduler_type");
    char *kwargs = hf_args_object(c->args, "lr_scheduler_kwargs");
    struct ckpt_err ignored = {0};
    struct schedule_value a, b;
    struct schedule was;

    if (name && kwargs && strcmp(name, c->s->lr_scheduler_type) == 0 &&
        schedule_init(&was, name, c->s->learning_rate, NAN, kwargs, &ignored) == 0)
        for (size_t i = 0; schedule_key(&a, &was, i) && schedule_key(&b, c->schedule, i); i++) {
            char there[128], here[128];

            if (strcmp(a.text, b.text) == 0)
                continue;
            if (strcmp(a.name, "min_lr") == 0) {
                tell(c, a.name, a.text, b.text);
                continue;
            }
            snprintf(there, sizeof there, "%s=%s", a.name, a.text);
            snprintf(here, sizeof here, "%s=%s", b.name, b.text);
            tell(c, "lr_scheduler_kwargs", there, here);
        }
    free(kwargs);
}

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

/* A number of a JSON file of the folder; 0: there is none. */
static int64_t number_of(struct ckpt_dir *dir, const char *file, const char *key)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *f = NULL;
    json_t *json = NULL;
    int64_t n = 0;

    if (ckpt_dir_has(dir, file) && ckpt_file_open_at(&f, dir, file, &ignored) == 0 &&
        ckpt_json_read(&json, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, &ignored) == 0)
        n = json_integer_value(json_object_get(json, key));
    json_decref(json);
    ckpt_file_close(f);
    return n;
}

void changed_tell(const char *path, const struct settings *s, const struct schedule *schedule,
                  const struct run_state *state, int world_size)
{
    struct changes c = {.path = path, .s = s, .schedule = schedule, .state = state};
    struct ckpt_err ignored = {0};      /* nothing of it is used, but for warnings */
    struct ckpt_dir *dir = NULL;
    struct ckpt_file *f = NULL;
    struct hf_args *args = NULL;

    if (ckpt_dir_open(&dir, path, 0, &ignored))
        return;
    c.ours = ckpt_dir_has(dir, MANIFEST_NAME);
    c.ranks = number_of(dir, MANIFEST_NAME, "world_size");
    c.total = number_of(dir, "trainer_state.json", "max_steps");
    compare_length(&c);
    if (ckpt_dir_has(dir, "training_args.bin") &&
        ckpt_file_open_at(&f, dir, "training_args.bin", &ignored) == 0 &&
        hf_args_open(&args, f, &ignored) == 0) {
        c.args = args;
        compare_kind(&c);
        compare_keys(&c);
        compare_precision(&c);
        compare_warmup(&c);
        compare_batch(&c, world_size);
        compare_numbers(&c);
    }
    hf_args_close(args);
    ckpt_dir_close(dir);
}
