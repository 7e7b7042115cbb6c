/* checkpoint/factors - see checkpoint/factors.h. */
#include "trainer/checkpoint/factors.h"

#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/hf/adafactor.h"
#include "libckpt/io/path.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/shards.h"

int factors_save(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                 const struct optim_order *order, const struct adamw_reader *reader,
                 struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct adafactor_param *param = ckpt_arena_alloc(&a, order->n + 1, sizeof *param);
    struct adamw_group *group = NULL;
    struct ckpt_out *out;
    int rc = param ? shards_groups(&group, &a, c, err) : ckpt_nomem(err, order->n * sizeof *param);

    if (rc == 0)
        zero_factors_read(s->zero);
    for (size_t n = 0; rc == 0 && n < order->n; n++) {
        struct zero_factors f = zero_factors(s->zero, order->slot[n].part[0].param);

        param[n] = (struct adafactor_param){.shape = order->slot[n].shape,
                                            .group = order->slot[n].group, .row = f.row,
                                            .col = f.col, .rms = *f.rms};
    }
    if (rc == 0)
        rc = ckpt_outdir_file(&out, dir, "optimizer.pt", err);
    if (rc == 0)
        rc = hf_adafactor_write(out, param, order->n, group, c->groups->n, shards_optim_steps(c),
                                reader, err);
    ckpt_arena_release(&a);
    return rc;
}

/* A tensor of state k, which must have n elements. */
static int take(float *to, int64_t n, struct ckpt_source *src, size_t k, const char *what,
                const char *of, struct ckpt_err *err)
{
    char name[64];
    size_t t;

    snprintf(name, sizeof name, "state.%zu.%s", k, what);
    t = ckpt_source_find(src, name);
    if (t == SIZE_MAX)
        return ckpt_fail_as(err, CKPT_EMISMATCH, "missing",
                            "optimizer.pt: %s is absent (parameter %s)", name, of);
    if (ckpt_source_tensor(src, t)->dtype != CKPT_F32 || ckpt_source_tensor(src, t)->numel != n)
        return ckpt_fail_as(err, CKPT_EMISMATCH, "shape", "optimizer.pt: %s has another shape than "
                            "parameter %s", name, of);
    return ckpt_source_read(src, t, 0, n, to, err);
}

/* The parts of a tensor one by one, as transformers 4 has experts: the mean of a column over gate
 * and up is that of their means. */
static int take_part(struct session *s, struct ckpt_source *src, size_t k, size_t i,
                     const struct params_stacked *in, struct ckpt_err *err)
{
    const struct param *q = &zero_flat(s->zero)->params->item[i];
    struct zero_factors f = zero_factors(s->zero, i);
    int64_t rows = q->shape.dim[0], cols = q->shape.dim[1];
    float *col = f.col + in->matrix * cols, *some = ckpt_alloc((size_t)cols, sizeof *some);
    int rc = some ? take(f.row + in->matrix * in->height + in->above, rows, src, k,
                         "exp_avg_sq_row", q->name, err)
                  : ckpt_nomem(err, (size_t)cols * sizeof *some);

    if (rc == 0)
        rc = take(some, cols, src, k, "exp_avg_sq_col", q->name, err);
    for (int64_t c = 0; rc == 0 && c < cols; c++)
        col[c] = in->above > 0 ? (col[c] + some[c]) / 2 : some[c];
    ckpt_free(some);
    return rc;
}

static int take_all(struct session *s, struct ckpt_source *src, const struct optim_order *order,
                    struct ckpt_err *err)
{
    const struct params *p = zero_flat(s->zero)->params;
    int rc = 0;

    for (size_t k = 0; rc == 0 && k < order->n; k++) {
        size_t i = order->slot[k].part[0].param;
        struct zero_factors f = zero_factors(s->zero, i);
        struct params_stacked in;
        char name[64];

        if (order->slot[k].n_part == 1 && order->slot[k].shape.rank == 2 &&
            params_stacked(&in, p, i)) {
            rc = take_part(s, src, k, i, &in, err);
            continue;
        }
        rc = take(f.row, f.n_row, src, k, f.col ? "exp_avg_sq_row" : "exp_avg_sq",
                  p->item[i].name, err);
        if (rc == 0 && f.col)
            rc = take(f.col, f.n_col, src, k, "exp_avg_sq_col", p->item[i].name, err);
        snprintf(name, sizeof name, "state.%zu.RMS", k);
        if (rc == 0 && ckpt_source_find(src, name) != SIZE_MAX)     /* only told: not needed */
            rc = take(f.rms, 1, src, k, "RMS", p->item[i].name, err);
    }
    return rc;
}

/* Groups and experts as transformers 5 has them, one group of all, and the same with the experts
 * one by one. */
static int take_somehow(struct session *s, struct ckpt_source *src, struct ckpt_err *err)
{
    const struct params *p = zero_flat(s->zero)->params;
    int rc = 0;

    for (int k = 0; k < (s->arch->num_experts > 0 ? 4 : 2); k++) {
        struct ckpt_err other = {0}, *to = k ? &other : err;
        struct ckpt_arena a = {0};
        struct optim_order order;

        rc = k % 2 ? optim_order_whole(&order, &a, p, s->arch, k < 2, to)
                   : optim_order(&order, &a, p, s->arch, k < 2, to);
        if (rc == 0)
            rc = take_all(s, src, &order, to);
        ckpt_arena_release(&a);
        if (rc == 0)
            ckpt_err_clear(err);
        if (rc != CKPT_EMISMATCH || strcmp(to->reason, "shape") != 0)
            break;
    }
    return rc && err->code ? ckpt_err_code(err) : rc;
}

int factors_load(struct session *s, const char *file, bool prove, struct ckpt_err *err)
{
    const struct ckpt_open_opts opts = {.prove = prove};
    struct ckpt_source *src = NULL;
    int rc = ckpt_path_is_file(file) ? 0 : ckpt_fail_as(err, CKPT_EMISMATCH, "missing",
                                                        "optimizer.pt is absent: it has the rows "
                                                        "and columns of `optim adafactor`");

    if (rc == 0)
        rc = ckpt_open_as(&src, "torch", file, &opts, err);
    if (rc == 0)
        rc = take_somehow(s, src, err);
    if (rc == 0)
        zero_factors_write(s->zero);
    ckpt_source_close(src);
    return rc;
}
