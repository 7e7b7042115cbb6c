/* trainer_saved - see trainer_saved.h. */
#include "formats/hf/trainer_saved.h"

#include <math.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "libckpt/err.h"

#define MOST_VALUES 1000                /* of one argument */
#define MOST_STEPS (INT64_C(1) << 53)

struct hf_args {
    struct torch_archive *archive;
    const struct value   *fields;
};

/* The rates of all groups. */
static int read_rates(struct scheduler_saved *out, struct ckpt_arena *a, const struct value *rates,
                      struct ckpt_err *err)
{
    out->n_rate = value_count(rates);
    if (out->n_rate > 0 && !(out->rate = ckpt_arena_alloc(a, out->n_rate, sizeof *out->rate)))
        return ckpt_nomem(err, out->n_rate * sizeof *out->rate);
    for (size_t i = 0; i < out->n_rate; i++) {
        double lr;

        if (!value_as_float(value_item(rates, i), &lr) || !isfinite(lr) || lr < 0)
            return ckpt_fail(err, CKPT_EFORMAT, "base_lrs[%zu] is not a learning rate", i);
        out->rate[i] = lr;
        if (i == 0)
            out->base_lr = lr;
        out->one_rate = out->one_rate && lr == out->base_lr;
    }
    return 0;
}

int hf_scheduler_read(struct scheduler_saved *out, struct ckpt_arena *a, struct ckpt_file *file,
                      struct ckpt_err *err)
{
    struct torch_archive *archive = NULL;
    const struct value *root, *last;
    int rc = torch_archive_open(&archive, file, err);

    *out = (struct scheduler_saved){.base_lr = NAN, .one_rate = true, .last_epoch = -1};
    if (rc)
        return rc;
    root = torch_archive_root(archive);
    last = value_get(root, "last_epoch");
    rc = read_rates(out, a, value_get(root, "base_lrs"), err);
    if (rc == 0 && last && (!value_as_int(last, &out->last_epoch) || out->last_epoch < -1 ||
                            out->last_epoch > MOST_STEPS))
        rc = ckpt_fail(err, CKPT_EFORMAT, "last_epoch is not a count of steps");
    torch_archive_close(archive);
    return rc;
}

int hf_args_open(struct hf_args **out, struct ckpt_file *file, struct ckpt_err *err)
{
    struct hf_args *args = ckpt_alloc(1, sizeof *args);
    const struct value *root;
    int rc;

    *out = NULL;
    if (!args) {
        ckpt_file_close(file);
        return ckpt_nomem(err, sizeof *args);
    }
    /* The classes of trl and of people's own are in no table: looking is enough to compare. */
    rc = torch_archive_open_any(&args->archive, file, err);
    root = rc ? NULL : torch_archive_root(args->archive);
    if (rc == 0 && value_is(root, VALUE_OBJECT))
        args->fields = root->u.obj.state;
    if (rc == 0 && !value_is(args->fields, VALUE_DICT))
        rc = ckpt_fail(err, CKPT_EFORMAT, "no object with fields");
    if (rc) {
        hf_args_close(args);
        return rc;
    }
    *out = args;
    return 0;
}

bool hf_args_number(const struct hf_args *args, const char *name, double *out)
{
    return value_as_float(value_get(args->fields, name), out);
}

const char *hf_args_text(const struct hf_args *args, const char *name)
{
    const struct value *v = value_get(args->fields, name);

    return value_as_str(value_is(v, VALUE_OBJECT) ? value_arg(v, 0) : v);
}

char *hf_args_object(const struct hf_args *args, const char *name)
{
    const struct value *v = value_get(args->fields, name);
    json_t *json;
    char *text;

    if (value_is(v, VALUE_NONE))
        return strdup("{}");
    if (value_is(v, VALUE_STR))
        return strdup(value_as_str(v));
    json = value_is(v, VALUE_DICT) ? value_to_json(v, MOST_VALUES) : NULL;
    text = json_is_object(json) ? json_dumps(json, JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    return text;
}

bool hf_args_flag(const struct hf_args *args, const char *name, bool *out)
{
    const struct value *v = value_get(args->fields, name);

    if (value_is(v, VALUE_BOOL))
        *out = v->u.b;
    return value_is(v, VALUE_BOOL);
}

void hf_args_close(struct hf_args *args)
{
    if (!args)
        return;
    torch_archive_close(args->archive);
    ckpt_free(args);
}
