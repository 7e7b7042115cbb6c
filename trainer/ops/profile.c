/* profile - see profile.h.  One wrapper a row of ops.h: call it, then note what it cost. */
#include "trainer/ops/profile.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"

/* What one kind of call did: the operation, and for products their sizes. */
struct kind {
    const char *name;
    int64_t     size[3];
    int64_t     calls;
    double      ms, flop, bytes;
};

struct call {
    int    kind;
    double flop, bytes;
};

struct profile {
    struct device    *dev;
    const struct ops *inner;
    struct ops        row;
    struct call      *call;             /* since the start; timestamp i + 1 follows call i */
    size_t            n, cap;
    struct kind       kind[256];
    int               n_kind;
};

static int kind_of(struct profile *p, const char *name, int64_t a, int64_t b, int64_t c)
{
    int i = 0;

    while (i < p->n_kind && !(strcmp(p->kind[i].name, name) == 0 && p->kind[i].size[0] == a &&
                              p->kind[i].size[1] == b && p->kind[i].size[2] == c))
        i++;
    if (i == p->n_kind) {
        if (i == (int)(sizeof p->kind / sizeof p->kind[0]))
            return i - 1;               /* the last takes all that have no row */
        p->kind[p->n_kind++] = (struct kind){.name = name, .size = {a, b, c}};
    }
    return i;
}

static void note(struct device *dev, const char *name, int64_t a, int64_t b, int64_t c,
                 double flop, double bytes)
{
    struct profile *p = dev->profile;

    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 4096;
        struct call *more = ckpt_grow(p->call, cap, sizeof *more);

        if (!more)
            return;                     /* its time goes to the next call */
        p->call = more;
        p->cap = cap;
    }
    p->call[p->n++] = (struct call){kind_of(p, name, a, b, c), flop, bytes};
    p->inner->timestamp(dev, (int64_t)p->n);
}

#define INNER(dev) (dev)->profile->inner
#define SIZE(dev)  ((double)ckpt_dtype_size((dev)->act))

/* An operation that walks over memory: how many bytes it must move. */
#define WALK(op, type, bytes)                                                                  \
    static void prof_##op(struct device *dev, const struct type *a)                            \
    {                                                                                          \
        double s = SIZE(dev);                                                                  \
                                                                                               \
        INNER(dev)->op(dev, a);                                                                \
        note(dev, #op, 0, 0, 0, 0, (double)a->n * (bytes));                                    \
    }

WALK(embed_fwd, op_embed, (double)a->dim * 2 * s)
WALK(embed_bwd, op_embed, (double)a->dim * (s + 8))
WALK(norm_fwd, op_rownorm, (double)a->dim * 2 * s)
WALK(norm_bwd, op_rownorm, (double)a->dim * (a->dx_add || a->dout_add ? 4 : 3) * s)
WALK(rope_fwd, op_rope, (double)((a->n_head + a->n_kv) * a->dim) * 2 * s)
WALK(rope_bwd, op_rope, (double)((a->n_head + a->n_kv) * a->dim) * 2 * s)
WALK(gate_fwd, op_gate, (double)a->ff * 3 * s)
WALK(gate_bwd, op_gate, (double)a->ff * (a->recompute ? 6 : 5) * s)

static void prof_drop(struct device *dev, void *x, int64_t n, int64_t width,
                      const struct op_drop *d)
{
    INNER(dev)->drop(dev, x, n, width, d);
    note(dev, "drop", 0, 0, 0, 0, (double)(n * width) * 2 * SIZE(dev));
}

static double product(int64_t a, int64_t b, int64_t c)
{
    return 2.0 * (double)a * (double)b * (double)c;
}

static void prof_linear_fwd(struct device *dev, const struct op_linear *a)
{
    INNER(dev)->linear_fwd(dev, a);
    note(dev, "linear_fwd", a->n, a->n_in, a->n_out,
         product(a->n, a->n_in, a->n_out) + product(a->n, a->n_in + a->n_out, a->proj.lora.rank),
         (double)(a->n * (a->n_in + a->n_out) + a->n_in * a->n_out) * SIZE(dev));
}

static void prof_linear_bwd(struct device *dev, const struct op_linear *a)
{
    double times = (a->dx ? 1 : 0) + (a->proj.dw ? 1 : 0);
    double change = (a->dx ? 1 : 0) + (a->proj.lora.da || a->proj.lora.db ? 1 : 0);

    INNER(dev)->linear_bwd(dev, a);
    note(dev, "linear_bwd", a->n, a->n_in, a->n_out,
         times * product(a->n, a->n_in, a->n_out) +
             change * product(a->n, a->n_in + a->n_out, a->proj.lora.rank),
         times * (double)(a->n * (a->n_in + a->n_out) + a->n_in * a->n_out) * SIZE(dev));
}

static void prof_linears_fwd(struct device *dev, const struct op_linear *a, int n)
{
    double flop = 0;
    int64_t out = 0;

    INNER(dev)->linears_fwd(dev, a, n);
    for (int i = 0; i < n; i++) {
        out += a[i].n_out;
        flop += product(a->n, a->n_in, a[i].n_out) +
                product(a->n, a->n_in + a[i].n_out, a[i].proj.lora.rank);
    }
    note(dev, "linears_fwd", a->n, a->n_in, out, flop,
         (double)(a->n * (a->n_in + out) + a->n_in * out) * SIZE(dev));
}

static void prof_linears_bwd(struct device *dev, const struct op_linear *a, int n)
{
    double flop = 0, bytes = 0;
    int64_t out = 0;

    INNER(dev)->linears_bwd(dev, a, n);
    for (int i = 0; i < n; i++) {
        double times = (a[i].dx ? 1 : 0) + (a[i].proj.dw ? 1 : 0);

        out += a[i].n_out;
        flop += times * product(a->n, a->n_in, a[i].n_out) +
                2 * product(a->n, a->n_in + a[i].n_out, a[i].proj.lora.rank);
        bytes += times * (double)(a->n * (a->n_in + a[i].n_out) + a->n_in * a[i].n_out);
    }
    note(dev, "linears_bwd", a->n, a->n_in, out, flop, bytes * SIZE(dev));
}

/* Multiply-adds of one product over what is seen: all, or the half before each row. */
static double seen(const struct op_attention *a)
{
    return (double)a->n * (double)a->max_doc * (double)(a->n_head * a->dim) *
           (a->whole || a->key_start ? 1.0 : 0.5);
}

static void prof_attention_fwd(struct device *dev, const struct op_attention *a)
{
    INNER(dev)->attention_fwd(dev, a);
    note(dev, "attention_fwd", a->max_doc, a->n_head, a->dim, 4 * seen(a),
         (double)(a->n * a->n_head * a->dim) * 4 * SIZE(dev));
}

static void prof_attention_bwd(struct device *dev, const struct op_attention *a)
{
    INNER(dev)->attention_bwd(dev, a);
    note(dev, "attention_bwd", a->max_doc, a->n_head, a->dim, 10 * seen(a),
         (double)(a->n * a->n_head * a->dim) * 8 * SIZE(dev));
}

static void prof_attention_cached(struct device *dev, const struct op_cached *a)
{
    INNER(dev)->attention_cached(dev, a);
    note(dev, "attention_cached", a->max_keys, a->n_kv, a->dim,
         4.0 * (double)(a->n * a->max_keys) * (double)(a->n_head * a->dim),
         2.0 * (double)(a->n_seg * a->max_keys) * (double)(a->n_kv * a->dim) * SIZE(dev));
}

static double routed(const struct op_experts *a)
{
    return 3 * product(a->n * a->top_k, a->dim, a->ff) + product(a->n, a->dim, a->n_expert);
}

static void prof_experts_fwd(struct device *dev, const struct op_experts *a)
{
    INNER(dev)->experts_fwd(dev, a);
    note(dev, "experts_fwd", a->n, a->dim, a->ff, routed(a), 0);
}

static void prof_experts_bwd(struct device *dev, const struct op_experts *a)
{
    INNER(dev)->experts_bwd(dev, a);
    note(dev, "experts_bwd", a->n, a->dim, a->ff,
         ((a->dx ? 1 : 0) + (a->dgate ? 1 : 0)) * routed(a), 0);
}

static void prof_head_loss(struct device *dev, const struct op_head *a)
{
    INNER(dev)->head_loss(dev, a);
    note(dev, "head_loss", a->n, a->dim, a->vocab,
         (1 + (a->dx ? 1 : 0) + (a->dw ? 1 : 0)) * product(a->n, a->dim, a->vocab),
         (double)a->n * (double)a->vocab * 5 * SIZE(dev));
}

static void prof_head_logits(struct device *dev, float *logits, const void *x, const void *w,
                             int64_t n, int64_t dim, int64_t vocab, float mul)
{
    INNER(dev)->head_logits(dev, logits, x, w, n, dim, vocab, mul);
    note(dev, "head_logits", n, dim, vocab, product(n, dim, vocab),
         (double)(vocab * dim) * SIZE(dev) + (double)(n * vocab) * 4);
}

static void prof_gated_fwd(struct device *dev, const struct op_linear *a,
                           const struct op_gate *gate)
{
    INNER(dev)->gated_fwd(dev, a, gate);
    note(dev, "gated_fwd", a->n, a->n_in, a->n_out, product(a->n, a->n_in, a->n_out),
         (double)(a->n * (a->n_in + gate->ff) + a->n_in * a->n_out) * SIZE(dev));
}

static void prof_normed_fwd(struct device *dev, const struct op_rownorm *norm,
                            const struct op_linear *a, const struct op_gate *gate)
{
    INNER(dev)->normed_fwd(dev, norm, a, gate);
    note(dev, gate ? "norm, gated_fwd" : "norm, linear_fwd", a->n, a->n_in, a->n_out,
         product(a->n, a->n_in, a->n_out),
         (double)(a->n * (a->n_in + (gate ? gate->ff : a->n_out)) + a->n_in * a->n_out) *
             SIZE(dev));
}

static void prof_head_top(struct device *dev, const struct op_top *a)
{
    INNER(dev)->head_top(dev, a);
    note(dev, "head_top", a->n, a->k, a->vocab, 0, (double)(a->n * a->vocab) * 4);
}

static void prof_head_forbid(struct device *dev, const struct op_forbid *a)
{
    INNER(dev)->head_forbid(dev, a);
    note(dev, "head_forbid", a->n, a->n_ids, a->vocab, 0, (double)(a->n * a->n_ids) * 4);
}

static void prof_graph_launch(struct device *dev, struct op_graph *r)
{
    INNER(dev)->graph_launch(dev, r);
    note(dev, "replay", 0, 0, 0, 0, 0);
}

static void prof_cast(struct device *dev, enum op_stream stream, void *dst, enum ckpt_dtype to,
                      const void *src, enum ckpt_dtype from, int64_t n)
{
    INNER(dev)->cast(dev, stream, dst, to, src, from, n);
    if (stream == OP_STREAM_MAIN)
        note(dev, "cast", 0, 0, 0, 0,
             (double)n * (double)(ckpt_dtype_size(to) + ckpt_dtype_size(from)));
}

/* Copies and collectives that the operations had to wait for. */
static void prof_stream_wait_event(struct device *dev, enum op_stream stream, int i)
{
    INNER(dev)->stream_wait_event(dev, stream, i);
    if (stream == OP_STREAM_MAIN)
        note(dev, "wait", 0, 0, 0, 0, 0);
}

static void prof_adamw(struct device *dev, const struct adamw_run *run, int64_t n_run,
                       const struct adamw *a)
{
    static const double moments[] = {16, 8, 4};         /* both, read and written */
    double bytes = 0;

    for (int64_t i = 0; i < n_run; i++)
        bytes += (double)run[i].n *
                 (12 + moments[run[i].moments] +
                  (run[i].rounded ? (double)ckpt_dtype_size(dev->weight) : 0));
    INNER(dev)->adamw(dev, run, n_run, a);
    note(dev, "adamw", 0, 0, 0, 0, bytes);
}

static void prof_sum_squares(struct device *dev, double *sum, const float *grad, int64_t n)
{
    INNER(dev)->sum_squares(dev, sum, grad, n);
    note(dev, "sum_squares", 0, 0, 0, 0, (double)n * 4);
}

static void prof_zero(struct device *dev, void *p, size_t bytes)
{
    INNER(dev)->zero(dev, p, bytes);
    note(dev, "zero", 0, 0, 0, 0, (double)bytes);
}

static void prof_to_device(struct device *dev, void *dst, const void *src, size_t bytes)
{
    INNER(dev)->to_device(dev, dst, src, bytes);
    note(dev, "to_device", 0, 0, 0, 0, (double)bytes);
}

static void prof_to_host(struct device *dev, void *dst, const void *src, size_t bytes)
{
    INNER(dev)->to_host(dev, dst, src, bytes);
    note(dev, "to_host", 0, 0, 0, 0, (double)bytes);
}

static void prof_copy(struct device *dev, void *dst, const void *src, size_t bytes)
{
    INNER(dev)->copy(dev, dst, src, bytes);
    note(dev, "copy", 0, 0, 0, 0, 2 * (double)bytes);
}

int profile_on(struct profile **out, struct device *dev, struct ckpt_err *err)
{
    struct profile *p;

    *out = NULL;
    if (dev->profile)
        return ckpt_fail(err, CKPT_ESTATE, "%s is being profiled already", dev->ops->name);
    p = ckpt_alloc(1, sizeof *p);
    if (!p)
        return ckpt_nomem(err, sizeof *p);
    p->dev = dev;
    p->inner = dev->ops;
    p->row = *dev->ops;                 /* what is not timed stays as it is */
    p->row.zero = prof_zero;
    p->row.to_device = prof_to_device;
    p->row.to_host = prof_to_host;
    p->row.copy = prof_copy;
    p->row.cast = prof_cast;
    p->row.stream_wait_event = prof_stream_wait_event;
    p->row.adamw = prof_adamw;
    p->row.sum_squares = prof_sum_squares;
    p->row.embed_fwd = prof_embed_fwd;
    p->row.embed_bwd = prof_embed_bwd;
    p->row.drop = prof_drop;
    p->row.norm_fwd = prof_norm_fwd;
    p->row.norm_bwd = prof_norm_bwd;
    p->row.linear_fwd = prof_linear_fwd;
    p->row.linear_bwd = prof_linear_bwd;
    p->row.linears_fwd = prof_linears_fwd;
    p->row.linears_bwd = prof_linears_bwd;
    p->row.rope_fwd = prof_rope_fwd;
    p->row.rope_bwd = prof_rope_bwd;
    p->row.gate_fwd = prof_gate_fwd;
    p->row.gate_bwd = prof_gate_bwd;
    p->row.experts_fwd = prof_experts_fwd;
    p->row.experts_bwd = prof_experts_bwd;
    p->row.attention_fwd = prof_attention_fwd;
    p->row.attention_bwd = prof_attention_bwd;
    p->row.attention_cached = prof_attention_cached;
    p->row.head_loss = prof_head_loss;
    p->row.head_logits = prof_head_logits;
    p->row.head_top = prof_head_top;
    p->row.head_forbid = prof_head_forbid;
    p->row.gated_fwd = prof_gated_fwd;
    p->row.normed_fwd = prof_normed_fwd;
    p->row.graph_launch = prof_graph_launch;
    dev->ops = &p->row;
    dev->profile = p;
    p->inner->timestamp(dev, 0);
    *out = p;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct kind *)a)->ms, y = ((const struct kind *)b)->ms;

    return (x < y) - (x > y);
}

void profile_print(struct profile *p, FILE *to, int64_t steps)
{
    double whole = 0, each = steps > 0 ? 1.0 / (double)steps : 1.0;
    struct kind sorted[sizeof p->kind / sizeof p->kind[0]];

    p->inner->sync(p->dev);
    for (int i = 0; i < p->n_kind; i++)
        p->kind[i].calls = 0, p->kind[i].ms = p->kind[i].flop = p->kind[i].bytes = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct kind *k = &p->kind[p->call[i].kind];
        double ms = p->inner->elapsed(p->dev, (int64_t)i, (int64_t)i + 1);

        k->calls++;
        k->ms += ms;
        k->flop += p->call[i].flop;
        k->bytes += p->call[i].bytes;
        whole += ms;
    }
    memcpy(sorted, p->kind, (size_t)p->n_kind * sizeof *sorted);
    qsort(sorted, (size_t)p->n_kind, sizeof *sorted, by_time);
    fprintf(to, "%-16s %20s %7s %9s %6s %9s %9s\n", "operation", "sizes", "calls", "ms", "share",
            "TFLOP/s", "GB/s");
    for (int i = 0; i < p->n_kind; i++) {
        const struct kind *k = &sorted[i];
        char size[64] = "";

        if (k->size[0])
            snprintf(size, sizeof size, "%lldx%lldx%lld", (long long)k->size[0],
                     (long long)k->size[1], (long long)k->size[2]);
        fprintf(to, "%-16s %20s %7.1f %9.3f %5.1f%% %9.1f %9.0f\n", k->name, size,
                (double)k->calls * each, k->ms * each, 100 * k->ms / whole,
                k->ms > 0 ? k->flop / k->ms * 1e-9 : 0, k->ms > 0 ? k->bytes / k->ms * 1e-6 : 0);
    }
    fprintf(to, "%-16s %20s %7.1f %9.3f\n", "all", "", (double)p->n * each, whole * each);
}

void profile_off(struct profile *p)
{
    if (!p)
        return;
    p->dev->ops = p->inner;
    p->dev->profile = NULL;
    ckpt_free(p->call);
    ckpt_free(p);
}
