/* peft/factors - see peft/factors.h. */
#include "formats/peft/factors.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/log.h"
#include "libckpt/lora/factors.h"
#include "libckpt/lora/low_rank.h"
#include "libckpt/lora/ring.h"

#define STAY ((size_t)8)        /* pairs that stay in memory after use */
#define NONE SIZE_MAX

/* The difference of two matrices, and its factors. */
struct pair {
    size_t  full, base;
    int64_t m, n, r;
    bool    transposed;
    float  *left, *right;               /* [m, r], [n, r] */
    double  total, kept;                /* sum of squares of the difference; the part that the
                                           factors retain */
};

/* A tensor of the list: of a pair, or a copy. */
struct entry {
    size_t pair, copy;
    bool   is_a;
};

struct peft_factors {
    struct ckpt_source *base, *full;
    struct ckpt_tensors list;           /* moved when it becomes a source */
    struct pair        *pair;
    struct entry       *entry;
    size_t              n_pair, n_entry;
    struct lora_ring   *ring;
};

static int find(void *ctx, size_t i, struct ckpt_err *err);

static void unload(void *ctx, size_t i)
{
    struct pair *p = &((struct peft_factors *)ctx)->pair[i];

    ckpt_free(p->left);
    ckpt_free(p->right);
    p->left = p->right = NULL;
}

static const struct lora_ring_ops ring_ops = {.load = find, .unload = unload};

int peft_factors_new(struct peft_factors **out, struct ckpt_source *base,
                     struct ckpt_source *full, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(full);
    struct peft_factors *f = ckpt_alloc(1, sizeof *f);
    int rc;

    *out = NULL;
    if (!f)
        return ckpt_nomem(err, sizeof *f);
    f->base = base;
    f->full = full;
    f->pair = ckpt_alloc(n, sizeof *f->pair);
    f->entry = ckpt_alloc(2 * n, sizeof *f->entry);
    rc = f->pair && f->entry ? lora_ring_new(&f->ring, n, STAY, &ring_ops, f, err)
                             : ckpt_nomem(err, n * sizeof *f->pair);
    if (rc)
        peft_factors_free(f);
    else
        *out = f;
    return rc;
}

void peft_factors_free(struct peft_factors *f)
{
    if (!f)
        return;
    lora_ring_free(f->ring);
    ckpt_tensors_release(&f->list);
    ckpt_free(f->pair);
    ckpt_free(f->entry);
    ckpt_free(f);
}

int64_t peft_factors_rank(const struct ckpt_tensor *w, int64_t rank)
{
    int64_t least = w->shape.dim[0] < w->shape.dim[1] ? w->shape.dim[0] : w->shape.dim[1];

    return rank < least ? rank : least;
}

static int list_tensor(struct peft_factors *f, const char *name, const char *tail,
                       enum ckpt_dtype dtype, const struct ckpt_shape *shape, struct entry e,
                       struct ckpt_err *err)
{
    char full[CKPT_MAX_NAME + 64];

    snprintf(full, sizeof full, "%s%s", name, tail);
    f->entry[f->n_entry++] = e;
    return ckpt_tensors_add(&f->list, NULL, full, strlen(full), dtype, shape, NULL, 0, false, err);
}

int peft_factors_add(struct peft_factors *f, const char *name, size_t full, size_t base,
                     int64_t rank, bool transposed, struct ckpt_err *err)
{
    const struct ckpt_tensor *w = ckpt_source_tensor(f->full, full);
    int64_t r = peft_factors_rank(w, rank);
    struct ckpt_shape a = ckpt_shape_2d(r, w->shape.dim[transposed ? 0 : 1]);
    struct ckpt_shape b = ckpt_shape_2d(w->shape.dim[transposed ? 1 : 0], r);
    struct entry e = {f->n_pair, NONE, true};
    struct pair *p = &f->pair[f->n_pair++];
    int rc;

    *p = (struct pair){.full = full, .base = base, .m = w->shape.dim[0], .n = w->shape.dim[1],
                       .r = r, .transposed = transposed};
    rc = list_tensor(f, name, ".lora_A.weight", CKPT_F32, &a, e, err);
    e.is_a = false;
    return rc ? rc : list_tensor(f, name, ".lora_B.weight", CKPT_F32, &b, e, err);
}

int peft_factors_copy(struct peft_factors *f, const char *name, size_t full,
                      struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(f->full, full);

    return list_tensor(f, name, "", t->dtype, &t->shape, (struct entry){NONE, full, false}, err);
}

/* -- reading --------------------------------------------------------------------------------- */

struct rows {
    struct peft_factors *f;
    const struct pair   *p;
};

/* Rows of the difference. */
static int read_rows(void *ctx, int64_t row, int64_t n, float *d, struct ckpt_err *err)
{
    const struct rows *x = ctx;
    const struct pair *p = x->p;
    int64_t count = n * p->n;
    float *b = ckpt_alloc_buffer((size_t)count * sizeof *b);
    int rc = b ? lora_read_as(d, CKPT_F32, x->f->full, p->full, row * p->n, count, err)
               : ckpt_nomem(err, (size_t)count * sizeof *b);

    if (rc == 0)
        rc = lora_read_as(b, CKPT_F32, x->f->base, p->base, row * p->n, count, err);
    for (int64_t i = 0; rc == 0 && i < count; i++)
        d[i] -= b[i];
    ckpt_free(b);
    return rc;
}

static int find(void *ctx, size_t i, struct ckpt_err *err)
{
    struct peft_factors *f = ctx;
    struct pair *p = &f->pair[i];
    struct rows x = {f, p};
    int rc;

    p->left = ckpt_alloc_buffer((size_t)(p->m * p->r) * sizeof *p->left);
    p->right = ckpt_alloc_buffer((size_t)(p->n * p->r) * sizeof *p->right);
    rc = p->left && p->right
             ? ckpt_low_rank(p->left, p->right, &p->total, &p->kept, p->m, p->n, p->r, read_rows,
                             &x, err)
             : ckpt_nomem(err, (size_t)((p->m + p->n) * p->r) * sizeof *p->left);
    return rc ? ckpt_err_in(err, "%s", ckpt_source_tensor(f->full, p->full)->name) : 0;
}

/* Copy elements of A [r, in] or B [out, r]: A is a transposed factor. */
static void copy_part(const struct pair *p, bool is_a, int64_t start, int64_t count, float *dst)
{
    const float *from = is_a == p->transposed ? p->left : p->right;
    int64_t in = p->transposed ? p->m : p->n;

    if (!is_a)
        memcpy(dst, from + start, (size_t)count * sizeof *dst);
    for (int64_t i = 0; is_a && i < count; i++)
        dst[i] = from[(start + i) % in * p->r + (start + i) / in];
}

static int factors_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                        struct ckpt_err *err)
{
    struct peft_factors *f = self;
    const struct entry *e = &f->entry[i];
    int rc;

    if (e->pair == NONE)
        return ckpt_source_read(f->full, e->copy, start, count, dst, err);
    rc = lora_ring_begin(f->ring, e->pair, err);
    if (rc)
        return rc;
    copy_part(&f->pair[e->pair], e->is_a, start, count, dst);
    lora_ring_end(f->ring, e->pair);
    return 0;
}

static bool factors_locate(void *self, size_t i, int64_t start, int64_t count,
                           struct ckpt_extent *out)
{
    struct peft_factors *f = self;

    return f->entry[i].pair == NONE &&
           ckpt_source_locate(f->full, f->entry[i].copy, start, count, out);
}

/* Log how closely the adapter approximates the differences that were read. */
static void log_kept(const struct peft_factors *f)
{
    double total = 0, kept = 0, least = 1;
    const char *worst = NULL;

    for (size_t i = 0; i < f->n_pair; i++) {
        const struct pair *p = &f->pair[i];

        total += p->total;
        kept += p->kept;
        if (p->total > 0 && p->kept / p->total < least) {
            least = p->kept / p->total;
            worst = ckpt_source_tensor(f->full, p->full)->name;
        }
    }
    if (total > 0)
        ckpt_log(CKPT_LOG_NOTE, "the factors have %.4g %% of the change, by squares",
                 100 * (kept < total ? kept / total : 1));
    if (worst)
        ckpt_log(CKPT_LOG_NOTE, "least of %s: %.4g %%", worst, 100 * least);
}

static void factors_close(void *self)
{
    struct peft_factors *f = self;
    struct ckpt_source *base = f->base, *full = f->full;

    log_kept(f);
    peft_factors_free(f);
    ckpt_source_close(base);
    ckpt_source_close(full);
}

static const struct ckpt_source_ops ops = {
    .format = "peft", .read = factors_read, .locate = factors_locate, .close = factors_close,
};

int peft_factors_source(struct ckpt_source **out, struct peft_factors *f, json_t *info,
                        struct ckpt_err *err)
{
    struct ckpt_tensors list = f->list;

    f->list = (struct ckpt_tensors){0};
    return ckpt_source_new(out, &ops, f, &list, NULL, 0, info, err);
}
