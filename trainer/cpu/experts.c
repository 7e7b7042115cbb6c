/*
 * experts - routed feed-forwards.
 *
 * A slot is one of the top k experts of one row.  Slots are ordered by expert, then row, so that
 * each expert's products run over its own rows at once; threads take experts.  The experts'
 * outputs are then summed row by row, in order of experts, so that the order of sums never
 * depends on threads.
 */
#include "trainer/cpu/cpu.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

#include "trainer/cpu/act.h"
#include "trainer/cpu/gemm.h"
#include "trainer/cpu/typed.h"

/* The workspace of one call, in order. */
struct slots {
    const struct device *dev;
    int64_t *first;             /* [E + 1] first slot of each expert */
    int64_t *row;               /* [n k] of each slot */
    int64_t *place;             /* [n k] the slot of (row, j-th of its top k) */
    float   *weight;            /* [n k] by slot */
    float   *dweight;           /* bwd: likewise */
    float   *x, *y;             /* [n k, D] rows of x; outputs, or gradients of x */
    float   *g, *dg;            /* [n k, F] */
    float   *du;                /* bwd: [n k, 2F] */
    float   *dlogits;           /* bwd: [n, E] */
};

static uint64_t slot_floats(int64_t n, int64_t k, int64_t E, int64_t D, int64_t F, bool back)
{
    uint64_t s = (uint64_t)(n * k);

    return 2 * (uint64_t)(E + 1) + 4 * s + 2 * s + 2 * s * (uint64_t)D + 2 * s * (uint64_t)F +
           (back ? 2 * s * (uint64_t)F + (uint64_t)(n * E) : 0) + 64;
}

uint64_t cpu_experts_work(const struct device *dev, const struct op_limits *l)
{
    (void)dev;
    return l->n_expert ? slot_floats(l->n, l->top_k, l->n_expert, l->dim, l->expert_ff, l->train) *
                             sizeof(float)
                       : 0;
}

static bool lay_out(struct slots *s, struct device *dev, const struct op_experts *a, bool back,
                    const char *op)
{
    int64_t n = a->n * a->top_k;
    float *at = dev->work;

    if (cpu_work_short(dev, op, slot_floats(a->n, a->top_k, a->n_expert, a->dim, a->ff, back) *
                                    sizeof(float)))
        return false;
    s->dev = dev;
    s->first = (int64_t *)(void *)at;
    s->row = s->first + a->n_expert + 1;
    s->place = s->row + n;
    at = (float *)(void *)(s->place + n);
    s->weight = at;
    s->dweight = s->weight + n;
    s->x = s->dweight + n;
    s->y = s->x + n * a->dim;
    s->g = s->y + n * a->dim;
    s->dg = s->g + n * a->ff;
    s->du = s->dg + n * a->ff;
    s->dlogits = s->du + 2 * n * a->ff;
    return true;
}

/* logits -> probabilities, in place. */
static void softmax(float *p, int64_t n)
{
    float max = p[0], sum = 0;

    for (int64_t j = 1; j < n; j++)
        max = p[j] > max ? p[j] : max;
    for (int64_t j = 0; j < n; j++)
        sum += p[j] = expf(p[j] - max);
    for (int64_t j = 0; j < n; j++)
        p[j] /= sum;
}

/* The k largest, in order of their index. */
static void pick(int32_t *chosen, const float *p, int64_t E, int64_t k)
{
    for (int64_t j = 0; j < k; j++) {
        int32_t best = -1;

        for (int32_t e = 0; e < (int32_t)E; e++) {
            bool taken = false;

            for (int64_t i = 0; i < j; i++)
                taken |= chosen[i] == e;
            if (!taken && (best < 0 || p[e] > p[best]))
                best = e;
        }
        chosen[j] = best;
    }
    for (int64_t i = 1; i < k; i++)             /* few: insertion sort */
        for (int64_t j = i; j > 0 && chosen[j] < chosen[j - 1]; j--) {
            int32_t swap = chosen[j];

            chosen[j] = chosen[j - 1];
            chosen[j - 1] = swap;
        }
}

static float picked_sum(const struct op_experts *a, int64_t row)
{
    float sum = 0;

    for (int64_t j = 0; j < a->top_k; j++)
        sum += a->probs[row * a->n_expert + a->top_k_index[row * a->top_k + j]];
    return a->renorm ? sum : 1.0f;
}

/* Sort slots by expert, then row: a counting sort. */
static void order(struct slots *s, const struct op_experts *a)
{
    int64_t k = a->top_k;

    memset(s->first, 0, (size_t)(a->n_expert + 1) * sizeof *s->first);
    for (int64_t i = 0; i < a->n * k; i++)
        s->first[a->top_k_index[i] + 1]++;
    for (int64_t e = 0; e < a->n_expert; e++)
        s->first[e + 1] += s->first[e];
    for (int64_t i = 0; i < a->n; i++) {
        float sum = picked_sum(a, i);

        for (int64_t j = 0; j < k; j++) {
            int32_t e = a->top_k_index[i * k + j];
            int64_t slot = s->first[e]++;

            s->row[slot] = i;
            s->place[i * k + j] = slot;
            s->weight[slot] = a->probs[i * a->n_expert + e] / sum;
        }
    }
    for (int64_t e = a->n_expert; e > 0; e--)   /* undo the shift of the counting sort */
        s->first[e] = s->first[e - 1];
    s->first[0] = 0;
}

/* out[m, n] (row stride ld) = x[m, k] W^T. */
static void times_t(const struct slots *s, float *out, int64_t ld, const float *x, int64_t x_ld,
                    const void *w, int64_t m, int64_t n, int64_t k)
{
    typed_nt(s->dev, m, n, k, 1.0f, x, x_ld, w, k, 0.0f, out, ld);
}

/* out[m, n] = x[m, k] W + beta out. */
static void times(const struct slots *s, float *out, const float *x, int64_t x_ld, const void *w,
                  int64_t m, int64_t n, int64_t k, float beta)
{
    typed_nn(s->dev, m, n, k, 1.0f, x, x_ld, w, n, beta, out, n);
}

/* A matrix of expert e. */
static const void *matrix(const struct slots *s, const struct op_experts *a, const void *first,
                          int64_t e)
{
    return typed_at(s->dev, first, e * a->stride);
}

/* dw[n, k] += x[m, n]^T y[m, k] */
static void add_outer(float *dw, const float *x, int64_t x_ld, const float *y, int64_t m,
                      int64_t n, int64_t k)
{
    gemm_tn(n, k, m, 1.0f, x, x_ld, y, k, 1.0f, dw, k);
}

static void gather(const struct slots *s, const struct op_experts *a, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        memcpy(s->x + i * a->dim, (const float *)a->x + s->row[i] * a->dim,
               (size_t)a->dim * sizeof(float));
}

static void expert_fwd(const struct slots *s, const struct op_experts *a, int64_t e)
{
    int64_t first = s->first[e], m = s->first[e + 1] - first, D = a->dim, F = a->ff;
    float *u = (float *)a->u + 2 * first * F, *x = s->x + first * D, *g = s->g + first * F;

    if (m == 0)
        return;
    gather(s, a, first, first + m);
    times_t(s, u, 2 * F, x, D, matrix(s, a, a->gate, e), m, F, D);
    times_t(s, u + F, 2 * F, x, D, matrix(s, a, a->up, e), m, F, D);
    for (int64_t i = 0; i < m; i++)
        cpu_act_gate(a->act, g + i * F, u + 2 * i * F, u + (2 * i + 1) * F, F);
    times_t(s, s->y + first * D, D, g, F, matrix(s, a, a->down, e), m, D, F);
}

CPU_HOT static void add_scaled(float *restrict out, const float *restrict x, float w, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] += w * x[j];
}

static void count_used(const struct slots *s, const struct op_experts *a)
{
    for (int64_t e = 0; e < a->n_expert; e++) {
        double sum = 0;

        for (int64_t i = 0; i < a->n; i++)
            sum += (double)a->probs[i * a->n_expert + e];
        a->used[e] += (float)(s->first[e + 1] - s->first[e]);
        a->used[a->n_expert + e] += (float)sum;
    }
}

/* Threads for that many products per slot. */
static int threads_for(const struct device *dev, const struct op_experts *a, int64_t products)
{
    return cpu_threads(dev, products * a->n * a->top_k * a->ff * a->dim);
}

void cpu_experts_fwd(struct device *dev, const struct op_experts *a)
{
    int64_t k = a->top_k, D = a->dim;
    float *out = a->out;
    struct slots s;

    if (cpu_ended(dev) || a->n == 0 || !lay_out(&s, dev, a, false, "experts_fwd"))
        return;
    times_t(&s, a->probs, a->n_expert, a->x, D, a->router, a->n, a->n_expert, D);
#pragma omp parallel for schedule(static) num_threads(threads_for(dev, a, 3))
    for (int64_t i = 0; i < a->n; i++) {
        softmax(a->probs + i * a->n_expert, a->n_expert);
        pick(a->top_k_index + i * k, a->probs + i * a->n_expert, a->n_expert, k);
    }
    order(&s, a);
    if (a->used)
        count_used(&s, a);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_for(dev, a, 3))
    for (int64_t e = 0; e < a->n_expert; e++)
        if (!device_stopped(dev))
            expert_fwd(&s, a, e);
#pragma omp parallel for schedule(static) num_threads(threads_for(dev, a, 3))
    for (int64_t i = 0; i < a->n; i++) {
        if (a->residual)
            memmove(out + i * D, (const float *)a->residual + i * D, (size_t)D * sizeof *out);
        else
            memset(out + i * D, 0, (size_t)D * sizeof *out);
        for (int64_t j = 0; j < k; j++)
            add_scaled(out + i * D, s.y + s.place[i * k + j] * D, s.weight[s.place[i * k + j]],
                       D);
    }
}

CPU_HOT static float dot(const float *restrict x, const float *restrict y, int64_t n)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += x[j] * y[j];
    return sum;
}

static void expert_bwd(const struct slots *s, const struct op_experts *a, int64_t e)
{
    int64_t first = s->first[e], m = s->first[e + 1] - first, D = a->dim, F = a->ff;
    int64_t at = e * a->stride;
    const float *u = (const float *)a->u + 2 * first * F;
    float *x = s->x + first * D, *y = s->y + first * D, *g = s->g + first * F;
    float *dg = s->dg + first * F, *du = s->du + 2 * first * F;

    if (m == 0)
        return;
    for (int64_t i = 0; i < m; i++)             /* y: the rows of dout */
        memcpy(y + i * D, (const float *)a->dout + s->row[first + i] * D,
               (size_t)D * sizeof(float));
    gather(s, a, first, first + m);
    times(s, dg, y, D, matrix(s, a, a->down, e), m, F, D, 0.0f);
    for (int64_t i = 0; i < m; i++) {
        float w = s->weight[first + i];

        cpu_act_gate(a->act, g + i * F, u + 2 * i * F, u + (2 * i + 1) * F, F);
        s->dweight[first + i] = dot(g + i * F, dg + i * F, F);
        cblas_sscal((int)F, w, dg + i * F, 1);
        cblas_sscal((int)D, w, y + i * D, 1);
        cpu_act_gate_back(a->act, du + 2 * i * F, du + (2 * i + 1) * F, dg + i * F,
                          u + 2 * i * F, u + (2 * i + 1) * F, F);
    }
    if (a->ddown)
        add_outer((float *)a->ddown + at, y, D, g, m, D, F);
    if (a->dgate)
        add_outer((float *)a->dgate + at, du, 2 * F, x, m, F, D);
    if (a->dup)
        add_outer((float *)a->dup + at, du + F, 2 * F, x, m, F, D);
    times(s, y, du, 2 * F, matrix(s, a, a->gate, e), m, D, F, 0.0f);
    times(s, y, du + F, 2 * F, matrix(s, a, a->up, e), m, D, F, 1.0f);
}

/* Gradient of a row's logits from that of its top_k weights. */
static void router_back(const struct slots *s, const struct op_experts *a, int64_t i)
{
    const float *p = a->probs + i * a->n_expert;
    const int64_t *place = s->place + i * a->top_k;
    const int32_t *chosen = a->top_k_index + i * a->top_k;
    float *d = s->dlogits + i * a->n_expert, sum = picked_sum(a, i), mean = 0, inner = 0;

    memset(d, 0, (size_t)a->n_expert * sizeof *d);
    for (int64_t j = 0; a->renorm && j < a->top_k; j++)
        mean += s->dweight[place[j]] * s->weight[place[j]];
    for (int64_t j = 0; j < a->top_k; j++) {
        d[chosen[j]] = (s->dweight[place[j]] - mean) / sum;
        inner += d[chosen[j]] * p[chosen[j]];
    }
    for (int64_t e = 0; a->dused && e < a->n_expert; e++) {
        d[e] += a->dused[e];
        inner += a->dused[e] * p[e];
    }
    for (int64_t e = 0; e < a->n_expert; e++)
        d[e] = p[e] * (d[e] - inner);
}

void cpu_experts_bwd(struct device *dev, const struct op_experts *a)
{
    int64_t k = a->top_k, D = a->dim, E = a->n_expert;
    float *dx = a->dx;
    struct slots s;

    if (dev->err.code || a->n == 0 || !lay_out(&s, dev, a, true, "experts_bwd"))
        return;
    order(&s, a);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_for(dev, a, 6))
    for (int64_t e = 0; e < E; e++)
        expert_bwd(&s, a, e);
#pragma omp parallel for schedule(static) num_threads(threads_for(dev, a, 6))
    for (int64_t i = 0; i < a->n; i++)
        router_back(&s, a, i);
    times(&s, dx, s.dlogits, E, a->router, a->n, D, E, 0.0f);
    if (a->drouter)
        add_outer(a->drouter, s.dlogits, E, a->x, a->n, E, D);
#pragma omp parallel for schedule(static) num_threads(threads_for(dev, a, 6))
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t j = 0; j < k; j++)
            add_scaled(dx + i * D, s.y + s.place[i * k + j] * D, 1.0f, D);
}
