/*
 * embed - rows of the embedding table, normalised as they are gathered or with their position's
 * row added; and back.
 *
 * The table's gradient is split by columns: each thread adds all rows in their order to its own
 * strip, so two tokens with one id never meet and the sum's order is fixed.  LoRA of the table
 * and separately trained rows are small and are done in one thread.
 */
#include "trainer/cpu/cpu.h"

#include <string.h>

#include "trainer/cpu/drop.h"
#include "trainer/cpu/gemm.h"
#include "trainer/cpu/typed.h"
#include "trainer/ops/noise.h"

/* Rows of id `not` are skipped. */
CPU_HOT static void add_strip(float *restrict table, const float *restrict rows,
                              const int32_t *restrict ids, int64_t not, int64_t n, int64_t dim,
                              int64_t begin, int64_t end)
{
    for (int64_t i = 0; i < n; i++) {
        float *to = table + ids[i] * dim;
        const float *from = rows + i * dim;

        if (ids[i] == not)
            continue;
#pragma omp simd
        for (int64_t j = begin; j < end; j++)
            to[j] += from[j];
    }
}

/* out may be a. */
CPU_HOT static void add_rows(float *out, const float *a, const float *restrict b, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = a[j] + b[j];
}

/* The workspace of a lookup with LoRA or trained rows. */
struct space {
    float *t, *dt;              /* [n, r]: A's columns of the ids; gradients of those */
    float *e;                   /* [n, D]: rows before their norm */
};

static bool changed(const struct op_embed *a) { return a->lora.rank || a->tokens; }

/* Whether rows are gathered before the norm. */
static bool gathers_first(const struct device *dev, const struct op_embed *a)
{
    return changed(a) || (a->norm && (a->noise || dev->weight != CKPT_F32));
}

static uint64_t norm_floats(const struct device *dev, int64_t dim)
{
    return cpu_norm_work(dev, &(struct op_limits){.dim = dim, .train = true}) / sizeof(float);
}

uint64_t cpu_embed_work(const struct device *dev, const struct op_limits *l)
{
    int64_t dim = l->embed > l->dim ? l->embed : l->dim;

    return l->lora_rank || l->noise || dev->weight != CKPT_F32
               ? (norm_floats(dev, dim) + (uint64_t)(l->n * (2 * l->lora_rank + dim))) *
                     sizeof(float)
               : 0;
}

static bool open_space(struct space *s, struct device *dev, const struct op_embed *a,
                       const char *op)
{
    uint64_t norm = norm_floats(dev, a->dim), narrow = (uint64_t)(a->n * a->lora.rank);
    uint64_t wide = a->norm ? (uint64_t)(a->n * a->dim) : 0;

    s->t = (float *)dev->work + norm;   /* the norm's backward uses the space before */
    s->dt = s->t + narrow;
    s->e = s->dt + narrow;
    return !cpu_work_short(dev, op, (norm + 2 * narrow + wide) * sizeof(float));
}

/* Index of the id among the separately trained rows, which are few; -1: none. */
static int64_t token_of(const struct op_embed *a, int32_t id)
{
    for (int64_t k = 0; a->tokens && k < a->n_tokens; k++)
        if (a->token_ids[k] == id)
            return k;
    return -1;
}

/* to[D] += a row of weights. */
static void add_row(const struct device *dev, float *to, const void *row, int64_t dim)
{
    float part[256];

    for (int64_t j = 0; j < dim; j += 256) {
        int64_t n = dim - j < 256 ? dim - j : 256;

        typed_wide(dev, part, typed_at(dev, row, j), n);
        add_rows(to + j, to + j, part, n);
    }
}

static void add_noise(const struct op_embed *a, float *to, int64_t i)
{
    float v[4];

    for (int64_t j = 0; j < a->dim; j++) {
        if (j % 4 == 0)
            noise_four(v, &a->noise[i], (uint32_t)(j / 4));
        to[j] += v[j % 4];
    }
}

/* to[D] += row i's noise, position and token type. */
static void add_terms(const struct device *dev, const struct op_embed *a, float *to, int64_t i)
{
    if (a->noise)
        add_noise(a, to, i);
    if (a->pos)
        add_row(dev, to, typed_at(dev, a->pos, a->positions[i] * a->dim), a->dim);
    if (a->token_type)
        add_row(dev, to,
                typed_at(dev, a->token_type,
                         (a->token_type_ids ? a->token_type_ids[i] : 0) * a->dim),
                a->dim);
}

/* t: A's columns of the ids. */
static void columns(const struct device *dev, const struct op_embed *a, const struct space *s,
                    int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        for (int64_t r = 0; r < a->lora.rank; r++)
            typed_wide(dev, &s->t[i * a->lora.rank + r],
                       typed_at(dev, a->lora.a, r * a->vocab + a->ids[i]), 1);
}

/* Gather e's rows [begin, end), with LoRA and trained rows. */
static void gather(const struct device *dev, const struct op_embed *a, const struct space *s,
                   float *e, int64_t begin, int64_t end)
{
    const struct op_lora *l = &a->lora;

    for (int64_t i = begin; i < end; i++) {
        int64_t k = token_of(a, a->ids[i]);
        const void *row = typed_at(dev, k < 0 ? a->table : a->tokens,
                                   (k < 0 ? a->ids[i] : k) * a->dim);

        typed_wide(dev, e + i * a->dim, row, a->dim);
    }
    columns(dev, a, s, begin, end);
    if (l->rank)
        typed_nt(dev, end - begin, a->dim, l->rank, l->scale, s->t + begin * l->rank, l->rank,
                 l->b, l->rank, 1.0f, e + begin * a->dim, a->dim);
    for (int64_t i = begin; i < end; i++)
        add_terms(dev, a, e + i * a->dim, i);
}

static void drop_rows(struct device *dev, const struct op_embed *a, float *x)
{
    if (!(a->drop.p > 0) || dev->err.code)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 8 * a->n * a->dim))
    for (int64_t i = 0; i < a->n; i++)
        cpu_drop_rows(x + i * a->dim, a->dim, x + i * a->dim, a->dim, &a->drop, i, i + 1, a->dim);
}

/* The norm of the gathered rows e. */
static struct op_rownorm norm_of(const struct op_embed *a, const float *e)
{
    return (struct op_rownorm){.out = a->out, .stats = a->stats, .dx = a->dout, .x = e,
                               .dout = a->dout, .norm = *a->norm, .n = a->n, .n_x = a->n,
                               .dim = a->dim};
}

static void changed_fwd(struct device *dev, const struct op_embed *a)
{
    struct space s;
    float *e;

    if (a->n == 0 || !open_space(&s, dev, a, "embed_fwd"))
        return;
    e = a->norm ? s.e : a->out;
#pragma omp parallel num_threads(cpu_threads(dev, 8 * a->n * a->dim))
    {
        int64_t begin, end;

        cpu_range(&begin, &end, a->n, 1, omp_get_thread_num(), omp_get_num_threads());
        gather(dev, a, &s, e, begin, end);
    }
    if (a->norm) {
        struct op_rownorm norm = norm_of(a, s.e);

        cpu_norm_fwd(dev, &norm);
    }
}

void cpu_embed_fwd(struct device *dev, const struct op_embed *a)
{
    if (dev->err.code)
        return;
    if (gathers_first(dev, a)) {
        changed_fwd(dev, a);
    } else if (a->norm && !a->pos && !a->token_type) {
        cpu_norm_fwd(dev, &(struct op_rownorm){
            .out = a->out, .stats = a->stats, .x = a->table, .rows = a->ids, .norm = *a->norm,
            .n = a->n, .n_x = a->vocab, .dim = a->dim});
    } else {
#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 8 * a->n * a->dim))
        for (int64_t i = 0; i < a->n; i++) {
            float *to = (float *)a->out + i * a->dim;

            if (a->gather)
                memcpy(to, (const float *)a->table + a->ids[i] * a->dim,
                       (size_t)a->dim * sizeof *to);
            else
                typed_wide(dev, to, typed_at(dev, a->table, a->ids[i] * a->dim), a->dim);
            add_terms(dev, a, to, i);
        }
        if (a->norm) {
            struct op_rownorm norm = norm_of(a, a->out);

            cpu_norm_fwd(dev, &norm);
        }
    }
    drop_rows(dev, a, a->out);
}

/* Backward to the norm's input; with LoRA t is recomputed. */
static void norm_back(struct device *dev, const struct op_embed *a, const struct space *s)
{
    if (gathers_first(dev, a)) {
        struct op_rownorm norm;

        if (a->norm) {
            gather(dev, a, s, s->e, 0, a->n);
            norm = norm_of(a, s->e);
            cpu_norm_bwd(dev, &norm);
        }
        columns(dev, a, s, 0, a->n);
    } else if (a->norm) {
        cpu_norm_bwd_gathered(dev, &(struct op_rownorm){
            .stats = a->stats, .dx = a->dout, .x = a->table, .dout = a->dout, .rows = a->ids,
            .norm = *a->norm, .n = a->n, .n_x = a->vocab, .dim = a->dim});
    }
}

/* Gradients of LoRA and of the separately trained rows. */
static void changed_bwd(const struct device *dev, const struct op_embed *a, const struct space *s)
{
    const struct op_lora *l = &a->lora;
    const float *dout = a->dout;
    float *da = l->da, *dtokens = a->dtokens;

    if (l->db)
        gemm_tn(a->dim, l->rank, a->n, l->scale, dout, a->dim, s->t, l->rank, 1.0f, l->db,
                l->rank);
    if (da)
        typed_nn(dev, a->n, l->rank, a->dim, l->scale, dout, a->dim, l->b, l->rank, 0.0f, s->dt,
                 l->rank);
    for (int64_t i = 0; i < a->n; i++) {
        int64_t k = token_of(a, a->ids[i]);

        if (a->ids[i] == a->no_grad)
            continue;
        for (int64_t r = 0; da && r < l->rank; r++)
            da[r * a->vocab + a->ids[i]] += s->dt[i * l->rank + r];
        if (dtokens && k >= 0)
            add_rows(dtokens + k * a->dim, dtokens + k * a->dim, dout + i * a->dim, a->dim);
    }
}

void cpu_embed_bwd(struct device *dev, const struct op_embed *a)
{
    struct space s = {0};

    if (dev->err.code || a->n == 0)
        return;
    if (gathers_first(dev, a) && !open_space(&s, dev, a, "embed_bwd"))
        return;
    drop_rows(dev, a, a->dout);
    norm_back(dev, a, &s);
    if (dev->err.code)
        return;
    if (changed(a))
        changed_bwd(dev, a, &s);
#pragma omp parallel num_threads(cpu_threads(dev, 8 * a->n * a->dim))
    {
        int64_t begin, end;

        cpu_range(&begin, &end, a->dim, 16, omp_get_thread_num(), omp_get_num_threads());
        if (a->dtable)
            add_strip(a->dtable, a->dout, a->ids, a->no_grad, a->n, a->dim, begin, end);
        if (a->dpos)
            add_strip(a->dpos, a->dout, a->positions, -1, a->n, a->dim, begin, end);
    }
}
