/* weights - see weights.h. */
#include "trainer/checkpoint/weights.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/convert.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "formats/families/role.h"

#define STAGE_BYTES ((size_t)1 << 20)
#define READ_PART   ((int64_t)256 << 10)    /* elements that a thread reads at a time */
#define READ_MOST   16                      /* threads */

/* The index of the parameter that a tensor is, or whose moment it is; or SIZE_MAX.  The prefix is
 * optional. */
static size_t param_of(const struct params *params, const char *name, const char *const *moment,
                       size_t (*find)(const struct params *p, const char *name))
{
    const char *bar = strrchr(name, '|');
    char bare[CKPT_MAX_NAME + 1];
    size_t n = bar ? (size_t)(bar - name) : 0, i;

    if (!moment)
        return find(params, name);
    if (!bar || n >= sizeof bare)
        return SIZE_MAX;
    memcpy(bare, name, n);
    bare[n] = '\0';
    i = find(params, bare);
    return i != SIZE_MAX && moment[i] && strcmp(moment[i], bar + 1) == 0 ? i : SIZE_MAX;
}

static int check_shape(const struct param *p, const struct ckpt_tensor *t, struct ckpt_err *err)
{
    char found[128], wanted[128];

    if (ckpt_shape_equal(&p->shape, &t->shape))
        return 0;
    return ckpt_fail_as(err, CKPT_EMISMATCH, "shape", "tensor %s: shape %s, the model wants %s",
                        t->name, ckpt_shape_text(found, sizeof found, &t->shape),
                        ckpt_shape_text(wanted, sizeof wanted, &p->shape));
}

/* An untied head without a tensor of its own starts as a copy of the embedding. */
static void lend_tokens(size_t *index, const struct params *params, const char *tied)
{
    size_t tokens = SIZE_MAX;

    for (size_t i = 0; tied && i < params->n; i++) {
        if (params->item[i].kind == PARAM_BASE && params->item[i].role == ROLE_TOKENS)
            tokens = i;
        if (tokens != SIZE_MAX && index[i] == SIZE_MAX && strcmp(params->item[i].name, tied) == 0)
            index[i] = index[tokens];
    }
}

/* Record that tensor t is parameter i (SIZE_MAX: none). */
static int take(size_t *index, const struct params *params, const struct ckpt_source *src,
                size_t t, size_t i, struct ckpt_err *err)
{
    const struct ckpt_tensor *tensor = ckpt_source_tensor(src, t);
    int rc;

    if (i == SIZE_MAX)
        return 0;
    if (index[i] != SIZE_MAX)
        return ckpt_fail_as(err, CKPT_EMISMATCH, "duplicate", "tensors %s and %s: both are %s",
                            ckpt_source_tensor(src, index[i])->name, tensor->name,
                            params->item[i].name);
    if ((rc = check_shape(&params->item[i], tensor, err)) != 0)
        return rc;
    index[i] = t;
    return 0;
}

/* Name the prefix that is before a parameter's name, as torch.compile and DDP put one. */
static void hint_prefix(const struct params *params, const char *odd, struct ckpt_err *err)
{
    size_t n = strlen(odd), least = n;

    for (size_t i = 0; i < params->n; i++) {
        size_t len = strlen(params->item[i].name);

        if (len < n && n - len < least && strcmp(odd + n - len, params->item[i].name) == 0)
            least = n - len;
    }
    if (least < n && least < 100)
        ckpt_err_hint(err, "ckpt-merge --rename %.*s= takes the prefix away", (int)least, odd);
}

int weights_match(size_t *index, const struct params *params, const struct ckpt_source *src,
                  const char *const *moment, const char *tied, bool exact, struct ckpt_err *err)
{
    const char *odd = NULL, *of = NULL;
    size_t n_odd = 0, n_missing = 0;
    int rc;

    for (size_t i = 0; i < params->n; i++)
        index[i] = SIZE_MAX;
    for (size_t t = 0; t < ckpt_source_count(src); t++) {
        const char *name = ckpt_source_tensor(src, t)->name;

        rc = take(index, params, src, t, param_of(params, name, moment, params_find), err);
        if (rc)
            return rc;
    }
    for (size_t t = 0; t < ckpt_source_count(src); t++) {
        const struct ckpt_tensor *tensor = ckpt_source_tensor(src, t);
        size_t older = param_of(params, tensor->name, moment, params_find_older);

        if (param_of(params, tensor->name, moment, params_find) != SIZE_MAX)
            continue;
        if (older != SIZE_MAX && index[older] == SIZE_MAX) {
            if ((rc = take(index, params, src, t, older, err)) != 0)
                return rc;
        } else if (exact && tensor->kind == CKPT_WEIGHT && tensor->alias_of == t &&
                   !(tied && strcmp(tensor->name, tied) == 0) &&
                   !params_spare(params, tensor->name)) {
            odd = n_odd++ ? odd : tensor->name;
        }
    }
    if (n_odd) {
        ckpt_fail_as(err, CKPT_EMISMATCH, "unexpected",
                     "tensor %s: not a parameter of this model (%zu such)", odd, n_odd);
        hint_prefix(params, odd, err);
        return CKPT_EMISMATCH;
    }
    lend_tokens(index, params, tied);
    for (size_t i = params->n; i-- > 0;)
        if (index[i] == SIZE_MAX && params->item[i].kind == PARAM_BASE && (!moment || moment[i])) {
            odd = params->item[i].name;
            of = moment ? moment[i] : NULL;
            n_missing++;
        }
    if (n_missing)
        return ckpt_fail_as(err, CKPT_EMISMATCH, "missing",
                            "tensor %s%s%s: absent (%zu such of %zu)", odd, of ? "|" : "",
                            of ? of : "", n_missing, params->n);
    return 0;
}

int weights_match_saved(size_t *index, const struct params *params, const struct ckpt_source *src,
                        const char *const *moment, bool live, struct ckpt_err *err)
{
    size_t n_found = 0, n_bare = 0;
    char name[CKPT_MAX_NAME + 1], whole[CKPT_MAX_NAME + 64];
    int rc;

    for (size_t i = 0; i < params->n; i++) {
        bool may = params->item[i].stored && !moment && !live;

        index[i] = SIZE_MAX;
        if ((!params->item[i].trainable && !may) || (moment && !moment[i]))
            continue;
        params_saved_name(name, sizeof name, params, i, live);
        snprintf(whole, sizeof whole, "%s%s%s", name, moment ? "|" : "", moment ? moment[i] : "");
        index[i] = ckpt_source_find(src, whole);
        if (index[i] == SIZE_MAX && may)
            continue;
        if (index[i] == SIZE_MAX)
            return ckpt_fail_as(err, CKPT_EMISMATCH, "missing", "tensor %s: absent", whole);
        if ((rc = check_shape(&params->item[i], ckpt_source_tensor(src, index[i]), err)) != 0)
            return rc;
        n_found++;
    }
    for (size_t t = 0; t < ckpt_source_count(src); t++)
        n_bare += ckpt_source_tensor(src, t)->kind == CKPT_WEIGHT &&
                  ckpt_source_tensor(src, t)->alias_of == t;
    if (moment || n_bare == n_found)
        return 0;
    return ckpt_fail_as(err, CKPT_EMISMATCH, "unexpected",
                        "%zu tensors, of which this adapter has %zu", n_bare, n_found);
}

/* Elements [start, start + count) of tensor t as f32. */
static int read_f32(float *dst, struct ckpt_source *src, size_t t, int64_t start, int64_t count,
                    void *stage, struct ckpt_err *err)
{
    enum ckpt_dtype dtype = ckpt_source_tensor(src, t)->dtype;
    int64_t step = (int64_t)(STAGE_BYTES / (ckpt_dtype_size(dtype) ? ckpt_dtype_size(dtype) : 1));
    int rc;

    if (dtype == CKPT_F32)
        return ckpt_source_read(src, t, start, count, dst, err);
    if (!ckpt_convert_can(CKPT_F32, dtype))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s cannot be a weight",
                         ckpt_source_tensor(src, t)->name, ckpt_dtype_name(dtype));
    for (int64_t at = 0; at < count; at += step) {
        int64_t n = count - at < step ? count - at : step;

        if ((rc = ckpt_source_read(src, t, start + at, n, stage, err)) != 0)
            return rc;
        ckpt_convert(dst + at, CKPT_F32, stage, dtype, (size_t)n);
    }
    return 0;
}

/* Argument of weights_load's readers. */
struct reading {
    struct ckpt_source *src;
    const size_t       *index;
    const int64_t      *from;
    int                 threads;        /* at most READ_MOST */
    unsigned char      *stage;          /* [threads][STAGE_BYTES]; of other types than float32 */
    uint64_t            done, total;    /* bytes of float32 that this rank has, for the bar */
};

/* Index of prefix + name, or of name alone. */
static size_t find_either(const struct ckpt_source *src, const char *prefix, const char *name)
{
    char whole[CKPT_MAX_NAME + 1];

    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    return ckpt_source_find(src, whole) != SIZE_MAX ? ckpt_source_find(src, whole)
                                                    : ckpt_source_find(src, name);
}

#define PART 8192               /* elements compared at a time */

int weights_head_differs(bool *differs, struct ckpt_source *src, const char *head,
                         const char *prefix, const char *tokens, struct ckpt_err *err)
{
    size_t h = ckpt_source_find(src, head), t = find_either(src, prefix, tokens);
    const struct ckpt_tensor *x, *y;
    float *a;
    void *stage;
    int rc;

    *differs = false;
    if (h == SIZE_MAX || t == SIZE_MAX)
        return 0;
    x = ckpt_source_tensor(src, h);
    y = ckpt_source_tensor(src, t);
    if (x->alias_of == y->alias_of || !ckpt_shape_equal(&x->shape, &y->shape))
        return 0;              /* the same storage; or a head of another shape, refused elsewhere */
    a = ckpt_alloc_buffer(2 * PART * sizeof *a);
    stage = ckpt_alloc_buffer(STAGE_BYTES);
    rc = a && stage ? 0 : ckpt_nomem(err, STAGE_BYTES);
    for (int64_t at = 0; rc == 0 && !*differs && at < x->numel; at += PART) {
        int64_t n = x->numel - at < PART ? x->numel - at : PART;

        rc = read_f32(a, src, h, at, n, stage, err);
        if (rc == 0)
            rc = read_f32(a + PART, src, t, at, n, stage, err);
        *differs = rc == 0 && memcmp(a, a + PART, (size_t)n * sizeof *a) != 0;
    }
    ckpt_free(a);
    ckpt_free(stage);
    return rc;
}

/* The same as read_f32, by several threads: one copies from the page cache more slowly than disks
 * read, and first touches of new memory cost as much. */
static int read_together(float *dst, const struct reading *r, size_t t, int64_t start,
                         int64_t count, struct ckpt_err *err)
{
    int failed = 0;

#pragma omp parallel for schedule(dynamic, 1) num_threads(r->threads) if (count > READ_PART)
    for (int64_t at = 0; at < count; at += READ_PART) {
        int64_t n = count - at < READ_PART ? count - at : READ_PART;
        struct ckpt_err own = {0};
        int rc, over;

#pragma omp atomic read
        over = failed;
        rc = over ? 0 : read_f32(dst + at, r->src, t, start + at, n,
                                 r->stage + (size_t)omp_get_thread_num() * STAGE_BYTES, &own);
        if (rc) {
#pragma omp critical(weights_read)
            if (!failed) {
                *err = own;
#pragma omp atomic write
                failed = rc;
            }
        }
    }
    return failed;
}

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    struct reading *r = ctx;

    if (r->index[i] == SIZE_MAX)
        return ZERO_LEAVES;
    r->done += (uint64_t)count * sizeof *dst;
    if (r->done < r->total)
        ckpt_log_progress("loading", NULL, r->done, r->total);
    return read_together(dst, r, r->index[i], start + (r->from ? r->from[i] : 0), count, err);
}

int weights_load(struct zero *z, enum zero_array of, struct ckpt_source *src, const size_t *index,
                 const int64_t *from, struct ckpt_err *err)
{
    int threads = zero_threads(z) < READ_MOST ? zero_threads(z) : READ_MOST;
    size_t bytes = (size_t)threads * STAGE_BYTES;
    struct reading r = {.src = src, .index = index, .from = from, .threads = threads,
                        .stage = ckpt_alloc_buffer(bytes)};
    const struct flat *flat = zero_flat(z);
    int rc = 0;

    for (size_t i = 0; i < flat->params->n; i++)
        r.total += index[i] != SIZE_MAX ? (uint64_t)flat_part(flat, i) * sizeof(float) : 0;
    rc = r.stage ? zero_fill(z, of, fill, &r, err) : ckpt_nomem(err, bytes);
    ckpt_log_progress("loading", NULL, r.total, r.total);
    ckpt_free(r.stage);
    return rc;
}

static bool is_trained(const struct params *p, size_t i) { return p->item[i].trainable; }

static int list_of(struct ckpt_tensors *out, const struct params *params, enum ckpt_dtype dtype,
                   bool (*in)(const struct params *p, size_t i), struct ckpt_err *err)
{
    char name[CKPT_MAX_NAME + 1];
    int rc;

    for (size_t i = 0; i < params->n; i++) {
        if (!in(params, i))
            continue;
        params_saved_name(name, sizeof name, params, i, false);
        rc = ckpt_tensors_add(out, NULL, name, strlen(name), dtype, &params->item[i].shape, NULL,
                              0, false, err);
        if (rc)
            return rc;
    }
    return 0;
}

int weights_list(struct ckpt_tensors *out, const struct params *params, enum ckpt_dtype dtype,
                 struct ckpt_err *err)
{
    return list_of(out, params, dtype, params_is_saved, err);
}

int weights_trained_list(struct ckpt_tensors *out, const struct params *params,
                         enum ckpt_dtype dtype, struct ckpt_err *err)
{
    return list_of(out, params, dtype, is_trained, err);
}

/* Write elements [start, start + numel) of a tensor in the sink's dtype; F32 is multiplied by
 * `times`. */
static int write_some(struct ckpt_sink *sink, size_t i, int64_t start, const float *from,
                      int64_t numel, float times, void *stage, struct ckpt_err *err)
{
    enum ckpt_dtype dtype = ckpt_sink_tensors(sink)->item[i].dtype;
    int64_t step = (int64_t)(STAGE_BYTES / ckpt_dtype_size(dtype));
    int rc;

    for (int64_t at = 0; at < numel; at += step) {
        int64_t n = numel - at < step ? numel - at : step;

        ckpt_convert(stage, dtype, from + at, CKPT_F32, (size_t)n);
        for (int64_t k = 0; dtype == CKPT_F32 && times != 1.0f && k < n; k++)
            ((float *)stage)[k] *= times;
        if ((rc = ckpt_sink_write(sink, i, start + at, n, stage, err)) != 0)
            return rc;
    }
    return 0;
}

#define PIECE ((int64_t)1 << 20)        /* elements that leave the device at once */

/* What is gathered, and who takes it. */
struct gathering {
    struct zero      *zero;
    enum zero_array   of;
    struct ckpt_sink *sink;             /* NULL: none */
    bool            (*in)(const struct params *p, size_t i);   /* the sink's list */
    float             times;
    const struct weights_taker *const *taker;   /* [n_taker] NULL: none */
    size_t            n_taker;
    void             *stage;            /* to convert in */
    size_t            next;             /* tensor of the sink */
};

/* Elements of parameter i to both, if they want it. */
static int hand(struct gathering *g, size_t i, int64_t start, int64_t n, const float *from,
                struct ckpt_err *err)
{
    int rc = 0;

    if (g->sink && g->in(zero_flat(g->zero)->params, i))
        rc = write_some(g->sink, g->next, start, from, n, g->times, g->stage, err);
    for (size_t k = 0; rc == 0 && k < g->n_taker; k++)
        if (g->taker[k])
            rc = g->taker[k]->take(g->taker[k]->ctx, i, start, n, from, err);
    return rc;
}

/* Whether somebody on this rank takes a parameter that the sink's list has not. */
static bool takes_all(const struct gathering *g)
{
    for (size_t k = 0; k < g->n_taker; k++)
        if (g->taker[k])
            return true;
    return false;
}

/* One parameter from where this rank holds it whole. */
static int stream_param(struct gathering *g, size_t i, float *piece, struct ckpt_err *err)
{
    int64_t numel = zero_flat(g->zero)->params->item[i].numel;
    int rc;

    for (int64_t at = 0; at < numel; at += PIECE) {
        int64_t n = numel - at < PIECE ? numel - at : PIECE;

        if ((rc = zero_read(g->zero, g->of, i, at, n, piece, err)) != 0 ||
            (rc = hand(g, i, at, n, piece, err)) != 0)
            return rc;
    }
    return 0;
}

/* How many tensors have been written. */
static void gathered(const struct gathering *g)
{
    if (g->sink)
        ckpt_log_progress("gathering weights", "tensors", g->next, ckpt_sink_tensors(g->sink)->n);
}

/* What is gathered of a layer. */
enum part { PART_NONE, PART_TRAINED, PART_ALL };

/* Of a model with an adapter nobody takes more than is saved: mostly what is trained.  The same on
 * every rank. */
static enum part part_of(const struct gathering *g, int layer)
{
    const struct flat *flat = zero_flat(g->zero);
    enum part part = PART_NONE;
    size_t i, end;

    if (g->of == ZERO_GRAD || !flat->params->adapted)
        return g->of == ZERO_GRAD ? PART_TRAINED : PART_ALL;
    flat_layer(flat, layer, &i, &end);
    for (; i < end; i++) {
        if (!params_is_saved(flat->params, i))
            continue;
        if (!flat->params->item[i].trainable)
            return PART_ALL;
        part = PART_TRAINED;
    }
    return part;
}

static const float *layer_of(const struct gathering *g, int layer, enum part part,
                             struct ckpt_err *err)
{
    if (g->of == ZERO_GRAD)
        return zero_gather_grad(g->zero, layer, err);
    return (part == PART_ALL ? zero_master : zero_master_trained)(g->zero, layer, err);
}

/* One layer of what ranks hold parts of; collective. */
static int gather_layer(struct gathering *g, int layer, bool taken, int rc, struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(g->zero);
    const struct params *p = flat->params;
    enum part part = part_of(g, layer);
    const float *all = part == PART_NONE ? NULL
                       : layer_of(g, layer, part, rc ? &(struct ckpt_err){0} : err);
    size_t first, end;

    if (rc == 0 && part != PART_NONE && !all)
        rc = ckpt_err_code(err);
    flat_layer(flat, layer, &first, &end);
    for (size_t i = first; taken && part != PART_NONE && rc == 0 && i < end; i++) {
        const struct param *q = &p->item[i];

        if (part == PART_ALL)
            rc = hand(g, i, 0, q->numel, all + q->offset, err);
        else if (q->trainable)
            rc = hand(g, i, 0, q->numel, all + q->grad_offset, err);
        g->next += g->in(p, i);
    }
    gathered(g);
    return rc;
}

/* The parameters of an array, in order; collective where others hold parts. */
static int gather(struct gathering *g, struct comm *comm, struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(g->zero);
    const struct params *p = flat->params;
    bool whole = !zero_sharded(g->zero);
    bool all_taken = takes_all(g), taken = g->sink || all_taken;
    float *piece = taken && whole ? ckpt_alloc_buffer((size_t)PIECE * sizeof *piece) : NULL;
    int rc = 0;

    g->stage = g->sink ? ckpt_alloc_buffer(STAGE_BYTES) : NULL;
    if ((g->sink && !g->stage) || (taken && whole && !piece))
        rc = ckpt_nomem(err, STAGE_BYTES);
    for (int layer = 0; !whole && layer < p->n_layers; layer++)
        rc = gather_layer(g, layer, taken, rc, err);
    for (size_t i = 0; whole && taken && rc == 0 && i < p->n; i++) {
        if (g->in(p, i) || (all_taken && !p->adapted))
            rc = stream_param(g, i, piece, err);
        g->next += g->in(p, i);
        gathered(g);
    }
    ckpt_free(piece);
    ckpt_free(g->stage);
    if (rc == 0)
        rc = comm_error(comm, err);
    return rc;
}

int weights_gather_to(struct zero *z, struct comm *comm, struct ckpt_sink *sink,
                      const struct weights_taker *const *taker, size_t n, struct ckpt_err *err)
{
    struct gathering g = {.zero = z, .of = ZERO_MASTER, .sink = sink, .in = params_is_saved,
                          .times = 1, .taker = taker, .n_taker = n};

    return gather(&g, comm, err);
}

int weights_gather(struct zero *z, struct comm *comm, struct ckpt_sink *sink,
                   struct ckpt_err *err)
{
    return weights_gather_to(z, comm, sink, NULL, 0, err);
}

int weights_gather_grads(struct zero *z, struct comm *comm, struct ckpt_sink *sink, float times,
                         struct ckpt_err *err)
{
    struct gathering g = {.zero = z, .of = ZERO_GRAD, .sink = sink, .in = is_trained,
                          .times = times};

    return gather(&g, comm, err);
}
