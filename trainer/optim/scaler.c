/* scaler - see scaler.h. */
#include "trainer/optim/scaler.h"

#include <math.h>

#include "formats/torch/out.h"

#define FACTOR 2.0

void scaler_init(struct scaler *s, const struct scaler_opts *o)
{
    *s = (struct scaler){.o = *o, .scale = 1, .last_overflow = -1, .patience = o->hysteresis};
    if (o->on && o->loss_scale > 0) {
        s->o.min_loss_scale = o->loss_scale;
        s->scale = o->loss_scale;
    } else if (o->on) {
        s->scale = ldexp(1, (int)o->initial_scale_power);
    }
}

int scaler_update(struct scaler *s, bool overflow, struct ckpt_err *err)
{
    int64_t stable;
    int rc = 0;

    if (overflow) {
        if (s->patience > 1)
            s->patience--;
        else if (s->scale > s->o.min_loss_scale)
            s->scale = fmax(s->scale / FACTOR, s->o.min_loss_scale);
        else
            rc = ckpt_fail_as(err, CKPT_ENO, "loss-scale", "gradients are not finite at the "
                              "smallest loss scale, %g", s->scale);
        s->last_overflow = s->iter;
        s->skipped++;
    }
    stable = s->iter - s->last_overflow - 1;
    if (!overflow && stable > 0 && stable % s->o.loss_scale_window == 0) {
        s->patience = s->o.hysteresis;
        if (s->o.loss_scale == 0)
            s->scale *= FACTOR;
    }
    s->iter++;
    return rc;
}

int scaler_file_write(struct ckpt_out *out, const struct scaler *s, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct value *d = value_dict(&a, false);
    int64_t stable = s->iter - s->last_overflow - 1;
    int rc = value_set_str(&a, d, "scale", value_float(&a, s->scale)) |
             value_set_str(&a, d, "growth_factor", value_float(&a, FACTOR)) |
             value_set_str(&a, d, "backoff_factor", value_float(&a, 1 / FACTOR)) |
             value_set_str(&a, d, "growth_interval", value_int(&a, s->o.loss_scale_window)) |
             value_set_str(&a, d, "_growth_tracker",
                           value_int(&a, stable % s->o.loss_scale_window)) |
             value_set_str(&a, d, "cur_iter", value_int(&a, s->iter)) |
             value_set_str(&a, d, "last_overflow_iter", value_int(&a, s->last_overflow)) |
             value_set_str(&a, d, "cur_hysteresis", value_int(&a, s->patience)) |
             value_set_str(&a, d, "skipped_steps", value_int(&a, s->skipped));

    if (rc) {
        ckpt_out_abort(out);
        rc = ckpt_nomem(err, (size_t)a.used);
    } else {
        rc = torch_write(out, "archive", d, NULL, NULL, 0, err);
    }
    ckpt_arena_release(&a);
    return rc;
}

/* Read a count from the file; `other` when it is absent. */
static int read_count(int64_t *out, const struct value *root, const char *key, int64_t least,
                      int64_t other, struct ckpt_err *err)
{
    const struct value *v = value_get(root, key);

    *out = other;
    if (v && (!value_as_int(v, out) || *out < least || *out > INT64_C(1) << 60))
        return ckpt_fail(err, CKPT_EFORMAT, "%s is not a count", key);
    return 0;
}

int scaler_file_read(struct scaler *s, struct ckpt_file *file, struct ckpt_err *err)
{
    struct torch_archive *archive = NULL;
    const struct value *root;
    struct scaler n = *s;
    int64_t tracker;
    double scale;
    int rc;

    if ((rc = torch_archive_open(&archive, file, err)) != 0)
        return rc;
    root = torch_archive_root(archive);
    if (!value_as_float(value_get(root, "scale"), &scale) || !isfinite(scale) || scale <= 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "scale is not a positive number");
    else if ((rc = read_count(&tracker, root, "_growth_tracker", 0, 0, err)) == 0 &&
             (rc = read_count(&n.iter, root, "cur_iter", 0, tracker, err)) == 0 &&
             (rc = read_count(&n.last_overflow, root, "last_overflow_iter", -1, -1, err)) == 0 &&
             (rc = read_count(&n.patience, root, "cur_hysteresis", 1, n.o.hysteresis, err)) == 0 &&
             (rc = read_count(&n.skipped, root, "skipped_steps", 0, 0, err)) == 0) {
        if (n.o.on && n.o.loss_scale == 0)
            n.scale = fmax(scale, n.o.min_loss_scale);
        n.patience = n.patience < n.o.hysteresis ? n.patience : n.o.hysteresis;
        *s = n;
    }
    torch_archive_close(archive);
    return rc;
}
