/* schedule_file - scheduler.pt, as the class of each schedule writes it: see schedule.h. */
#include "trainer/optim/schedule.h"

#include <math.h>

#include "formats/hf/trainer_files.h"
#include "formats/torch/out.h"
#include "formats/torch/torch.h"
#include "libckpt/mem.h"

#define REDUCTIONS_MOST 100000

/* torch's ReduceLROnPlateau.state_dict(). */
static int put_plateau(struct ckpt_arena *a, struct value *d, const struct schedule *s,
                       const double *base, size_t n_group)
{
    const struct schedule_keys *k = &s->key;
    struct value *least = value_list(a), *last = value_list(a);
    bool max = k->mode == 1;
    int rc = 0;

    for (size_t g = 0; g < n_group; g++)
        rc |= value_append(a, least, value_float(a, k->min_lr)) |
              value_append(a, last, value_float(a, schedule_lr(s, base[g], 0)));
    return rc | value_set_str(a, d, "factor", value_float(a, k->factor)) |
           value_set_str(a, d, "default_min_lr", value_float(a, k->min_lr)) |
           value_set_str(a, d, "min_lrs", least) |
           value_set_str(a, d, "patience", value_int(a, k->patience)) |
           value_set_str(a, d, "cooldown", value_int(a, k->cooldown)) |
           value_set_str(a, d, "eps", value_float(a, k->eps)) |
           value_set_str(a, d, "last_epoch", value_int(a, s->plateau.seen)) |
           value_set_str(a, d, "_last_lr", last) |
           value_set_str(a, d, "mode_worse", value_float(a, max ? -INFINITY : INFINITY)) |
           value_set_str(a, d, "mode", value_str(a, max ? "max" : "min")) |
           value_set_str(a, d, "threshold", value_float(a, k->threshold)) |
           value_set_str(a, d, "threshold_mode", value_str(a, k->threshold_mode ? "abs" : "rel")) |
           value_set_str(a, d, "best", value_float(a, s->plateau.best)) |
           value_set_str(a, d, "cooldown_counter", value_int(a, s->plateau.cooling)) |
           value_set_str(a, d, "num_bad_epochs", value_int(a, s->plateau.bad));
}

static int write_own(struct ckpt_out *out, const struct schedule *s, const double *base,
                     size_t n_group, int64_t steps, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct value *d = value_dict(&a, false);
    int rc = s->kind == SCHEDULE_REDUCE_ON_PLATEAU
                 ? put_plateau(&a, d, s, base, n_group)
                 : value_set_str(&a, d, "last_batch_iteration", value_int(&a, steps - 1));

    if (rc) {
        ckpt_out_abort(out);
        rc = ckpt_nomem(err, (size_t)a.used);
    } else {
        rc = torch_write(out, "archive", d, NULL, NULL, 0, err);
    }
    ckpt_arena_release(&a);
    return rc;
}

int schedule_file_write(struct ckpt_out *out, const struct schedule *s, const double *base,
                        size_t n_group, int64_t steps, struct ckpt_err *err)
{
    double *last;
    int rc;

    if (s->kind >= SCHEDULE_REDUCE_ON_PLATEAU)
        return write_own(out, s, base, n_group, steps, err);
    if (!(last = ckpt_alloc(n_group, sizeof *last))) {
        ckpt_out_abort(out);
        return ckpt_nomem(err, n_group * sizeof *last);
    }
    for (size_t g = 0; g < n_group; g++)
        last[g] = schedule_lr(s, base[g], steps);
    rc = hf_scheduler_write(out, &(struct scheduler_state){.base_lr = base, .last_lr = last,
                                                           .n_group = n_group,
                                                           .last_epoch = steps}, err);
    ckpt_free(last);
    return rc;
}

static bool count_of(const struct value *root, const char *key, int64_t *out)
{
    return value_as_int(value_get(root, key), out) && *out >= 0 && *out < INT64_C(1) << 40;
}

int schedule_file_read(struct schedule *s, struct ckpt_file *file, struct ckpt_err *err)
{
    struct torch_archive *archive = NULL;
    struct schedule n = *s;
    const struct value *root;
    double best, last = 0;
    int rc = torch_archive_open(&archive, file, err);

    if (rc)
        return rc;
    root = torch_archive_root(archive);
    if (s->kind == SCHEDULE_REDUCE_ON_PLATEAU) {
        if (!value_as_float(value_get(root, "best"), &best) || isnan(best) ||
            !count_of(root, "num_bad_epochs", &n.plateau.bad) ||
            !count_of(root, "cooldown_counter", &n.plateau.cooling) ||
            !count_of(root, "last_epoch", &n.plateau.seen) ||
            !value_as_float(value_item(value_get(root, "_last_lr"), 0), &last) || !(last >= 0))
            rc = ckpt_fail(err, CKPT_EFORMAT, "is no state of ReduceLROnPlateau");
        n.plateau.best = best;
        n.plateau.reductions = 0;
        while (rc == 0 && n.plateau.reductions < REDUCTIONS_MOST) {
            double now = schedule_lr(&n, n.lr, 0);

            if (now <= last)
                break;
            n.plateau.reductions++;
            if (schedule_lr(&n, n.lr, 0) == now)    /* it ends above: other settings */
                break;
        }
        if (rc == 0)
            *s = n;
    }
    torch_archive_close(archive);
    return rc;
}
