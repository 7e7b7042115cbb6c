/* deepspeed/proof - see deepspeed/proof.h. */
#include "formats/deepspeed/proof.h"

#include <math.h>
#include <string.h>

#include "formats/deepspeed/module.h"
#include "libckpt/convert.h"
#include "libckpt/log.h"

#define SAMPLE 64               /* elements compared per piece */
#define ENOUGH 4                /* pieces compared per rank */

/* Results for a rank. */
struct seen {
    const struct ckpt_file *file;
    const char             *differs;    /* a parameter whose values differ, or NULL */
    int                     pieces;
};

struct proof {
    const struct ckpt_tensors *list;
    const struct ds_files     *f;
    struct ds_module           module;
    struct seen               *seen;    /* [f->n] */
    size_t                     last;    /* the rank found last, since pieces come in order */
};

static struct seen *rank_of(struct proof *p, const struct ckpt_file *file)
{
    for (size_t k = 0; k < p->f->n; k++) {
        size_t r = (p->last + k) % p->f->n;

        if (p->seen[r].file == file) {
            p->last = r;
            return &p->seen[r];
        }
    }
    return NULL;
}

/* Elements [start, start + n) of a listed master and of the model's tensor, both as f32. */
static int same_values(bool *same, const struct ckpt_tensor *t, const struct torch_archive *a,
                       const struct value_tensor *model, int64_t start, int64_t n,
                       struct ckpt_err *err)
{
    unsigned char wide[SAMPLE * 8], low[SAMPLE * 8];
    float x[SAMPLE], y[SAMPLE];
    const struct ckpt_shape flat = ckpt_shape_1d(t->numel);
    int rc = ckpt_fragment_gather(wide, &flat, t->dtype, t->frag, t->n_frag, start, n, err);

    if (rc == 0) {
        ckpt_convert(low, model->dtype, wide, t->dtype, (size_t)n);
        ckpt_convert(x, CKPT_F32, low, model->dtype, (size_t)n);
        rc = torch_archive_read(low, a, model, start, n, err);
    }
    if (rc == 0)
        ckpt_convert(y, CKPT_F32, low, model->dtype, (size_t)n);
    for (int64_t i = 0; rc == 0 && i < n; i++)
        *same &= x[i] == y[i] || (isnan(x[i]) && isnan(y[i]));
    return rc;
}

/* Compare a parameter on every rank that has a part of it and fewer than ENOUGH pieces compared. */
static int look(struct proof *p, const struct ckpt_tensor *t, const struct value_tensor *model,
                struct ckpt_err *err)
{
    int rc;

    for (size_t k = 0; k < t->n_frag; k++) {
        struct seen *s = rank_of(p, t->frag[k].file);
        const struct ckpt_box *box = t->frag[k].box;
        int64_t n = box ? box->count[0] : t->numel;
        bool same = true;

        if (!s || s->pieces == ENOUGH)
            continue;
        if ((rc = same_values(&same, t, p->f->rank[0].model, model, box ? box->start[0] : 0,
                              n < SAMPLE ? n : SAMPLE, err)) != 0)
            return rc;
        s->pieces++;
        if (!same)
            s->differs = t->name;
    }
    return 0;
}

static int judge(const struct proof *p, struct ckpt_err *err)
{
    size_t other = SIZE_MAX, fits = 0;

    for (size_t r = 0; r < p->f->n; r++) {
        fits += p->seen[r].pieces > 0 && !p->seen[r].differs;
        if (p->seen[r].differs && other == SIZE_MAX)
            other = r;
    }
    if (other == SIZE_MAX)
        return 0;
    if (fits > 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch", "rank %zu: its optimizer's %s is not "
                            "what the model file has, that of other ranks is: files of two runs",
                            other, p->seen[other].differs);
    ckpt_log(CKPT_LOG_WARNING, "the optimizer's %s is not what the model file has: weights are the "
             "optimizer's", p->seen[other].differs);
    return 0;
}

static int look_at_all(struct proof *p, struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < p->list->n; i++) {
        const struct ckpt_tensor *t = &p->list->item[i];
        size_t at = ckpt_map_get(p->module.names, t->name, strlen(t->name));
        const struct value *v = at == CKPT_MAP_NONE ? NULL : p->module.dict->u.dict.val[at];

        if (t->kind != CKPT_WEIGHT || !t->flat || t->numel == 0 || !value_is(v, VALUE_TENSOR) ||
            !ckpt_shape_equal(&v->u.tensor->shape, &t->shape) ||
            !ckpt_convert_can(v->u.tensor->dtype, t->dtype) ||
            !ckpt_convert_can(CKPT_F32, v->u.tensor->dtype) || ckpt_dtype_size(t->dtype) > 8 ||
            ckpt_dtype_size(v->u.tensor->dtype) > 8)
            continue;
        if ((rc = look(p, t, v->u.tensor, err)) != 0)
            return rc;
    }
    return judge(p, err);
}

int ds_prove_masters(const struct ckpt_tensors *list, const struct ds_files *f,
                     struct ckpt_err *err)
{
    struct proof p = {.list = list, .f = f};
    int rc;

    if (f->universal || f->layers || f->stage < 1 || f->stage > 2)
        return 0;
    p.seen = ckpt_alloc(f->n, sizeof *p.seen);
    rc = p.seen ? ds_module_open(&p.module, f, err) : ckpt_nomem(err, f->n * sizeof *p.seen);
    if (!p.seen)
        return rc;
    for (size_t r = 0; r < f->n; r++)
        p.seen[r].file = torch_archive_file(f->rank[r].optim);
    if (rc == 0)
        rc = look_at_all(&p, err);
    ds_module_close(&p.module);
    ckpt_free(p.seen);
    return rc;
}
