/* optim_state - see optim_state.h. */
#include "trainer/shard/optim_state.h"

#include <string.h>

#include "formats/bnb/optim.h"
#include "formats/families/role.h"
#include "libckpt/mem.h"

enum {
    BLOCK = OP_MOMENTS_BLOCK,
    CHUNK = 4 << 20,                    /* elements of a chunk: some ten MiB of each array */
    RUNS = 256,                         /* given to the device at once */
    GAP = 256                           /* bytes to which parameters are aligned where types mix */
};

/* A chunk begins at an element of a parameter and ends where the next begins. */
struct place {
    size_t  i;
    int64_t at;
};

/* Whether a comes before b. */
static bool before(struct place a, struct place b)
{
    return a.i < b.i || (a.i == b.i && a.at < b.at);
}

struct layout {
    const struct flat     *flat;
    const struct optim_state_opts *opts;
    bool          mixed;                /* coded moments beside others */
    int64_t      *base[OPTIM_STATE_ARRAYS];  /* [n + 1] bytes where parameter i's part begins */
    int64_t      *trained;              /* [n + 1] likewise, of all ranks, in elements */
    struct place *chunk;                /* [n_chunk + 1] */
    int64_t       n_chunk, resident;    /* the first so many lie on the device */
};

struct optim_state {
    struct layout      l;
    struct optim_state_opts opts;            /* what l points to */
    struct device     *dev;
    struct ring       *ring;            /* NULL: all is resident */
    unsigned char     *device[OPTIM_STATE_ARRAYS], *host[OPTIM_STATE_ARRAYS];
    const struct optim_state_step *step;     /* the one that is being given */
};

/* The weight of an nn.Embedding, whole. */
static bool is_embedding(const struct param *p)
{
    return p->kind == PARAM_BASE && (p->role == ROLE_TOKENS || p->role == ROLE_POS ||
                                     p->role == ROLE_TOKEN_TYPE || p->role == ROLE_REL_BIAS);
}

enum op_moments optim_state_kind(const struct params *params, size_t i, enum op_moments wanted)
{
    const struct param *p = &params->item[i];

    if (wanted == OP_MOMENTS_8BIT &&
        (p->numel < BNB_MIN_8BIT || is_embedding(p) ||
         (role_is_expert((enum role)p->role) && p->numel % BLOCK)))
        return OP_MOMENTS_F32;
    return wanted;
}

enum ckpt_dtype optim_state_type(enum optim_state_array of, enum op_moments kind)
{
    static const enum ckpt_dtype type[] = {[OP_MOMENTS_F32] = CKPT_F32,
                                           [OP_MOMENTS_BF16] = CKPT_BF16,
                                           [OP_MOMENTS_8BIT] = CKPT_U8};

    return of == OPTIM_STATE_AVG || of == OPTIM_STATE_AVG_SQ ? type[kind] : CKPT_F32;
}

size_t optim_state_bytes(enum optim_state_array of, enum op_moments kind, int64_t n)
{
    bool scales = of == OPTIM_STATE_ABSMAX || of == OPTIM_STATE_ABSMAX_SQ;

    if (scales && kind != OP_MOMENTS_8BIT)
        return 0;
    return (size_t)(scales ? (n + BLOCK - 1) / BLOCK : n) *
           ckpt_dtype_size(optim_state_type(of, kind));
}

uint64_t optim_state_moment_bytes(const struct params *params, size_t i, enum op_moments wanted,
                                  int fewer, int64_t n)
{
    static const enum optim_state_array moment[2][2] = {
        {OPTIM_STATE_AVG, OPTIM_STATE_ABSMAX}, {OPTIM_STATE_AVG_SQ, OPTIM_STATE_ABSMAX_SQ}};
    enum op_moments kind = optim_state_kind(params, i, wanted);
    uint64_t sum = 0;

    for (int k = 0; k < 2 - fewer; k++)
        sum += optim_state_bytes(moment[k][0], kind, n) + optim_state_bytes(moment[k][1], kind, n);
    return sum;
}

int optim_state_fewer(const struct params *params, size_t i, int fewer, bool muon)
{
    return fewer + (muon && params_is_hidden(&params->item[i]));
}

static enum op_moments type_of(const struct layout *l, size_t i)
{
    return optim_state_kind(l->flat->params, i, l->opts->moments);
}

/* Bytes of the first n elements of parameter i in an array. */
static int64_t bytes_of(const struct layout *l, int of, size_t i, int64_t n)
{
    bool second = of == OPTIM_STATE_AVG_SQ || of == OPTIM_STATE_ABSMAX_SQ;
    int fewer = optim_state_fewer(l->flat->params, i, l->opts->fewer, l->opts->muon);

    if (of == OPTIM_STATE_MASTER ? !l->opts->master : fewer > (second ? 0 : 1))
        return 0;
    return (int64_t)optim_state_bytes((enum optim_state_array)of, type_of(l, i), n);
}

static int64_t place_bytes(const struct layout *l, int of, struct place p)
{
    return l->base[of][p.i] + (p.at ? bytes_of(l, of, p.i, p.at) : 0);
}

static int64_t numel_of(const struct layout *l, size_t i)
{
    return l->flat->grad_base[i + 1] - l->flat->grad_base[i];
}

/* The place `most` elements after p: at a block's edge, or a parameter's end. */
static struct place place_after(const struct layout *l, struct place p, int64_t most)
{
    while (p.i < l->flat->params->n && most > 0) {
        int64_t left = numel_of(l, p.i) - p.at;

        if (left > most) {
            p.at += (most + BLOCK - 1) / BLOCK * BLOCK;
            return p.at < numel_of(l, p.i) ? p : (struct place){p.i + 1, 0};
        }
        most -= left;
        p = (struct place){p.i + 1, 0};
    }
    return p;
}

static void cut(struct layout *l)
{
    struct place p = {0, 0};
    int64_t k = 0;

    while (p.i < l->flat->params->n) {
        if (l->chunk)
            l->chunk[k] = p;
        k++;
        p = place_after(l, p, l->opts->chunk ? l->opts->chunk : CHUNK);
    }
    if (l->chunk)
        l->chunk[k] = p;
    l->n_chunk = l->flat->grad_numel > 0 ? k : 0;
}

/* Bytes of all arrays from one chunk's start to another's. */
static uint64_t between(const struct layout *l, int64_t from, int64_t to)
{
    int64_t sum = 0;

    for (int a = 0; a < OPTIM_STATE_ARRAYS; a++)
        sum += place_bytes(l, a, l->chunk[to]) - place_bytes(l, a, l->chunk[from]);
    return (uint64_t)sum;
}

static void layout_release(struct layout *l)
{
    for (int a = 0; a < OPTIM_STATE_ARRAYS; a++)
        ckpt_free(l->base[a]);
    ckpt_free(l->trained);
    ckpt_free(l->chunk);
}

static bool lay_out(struct layout *l, const struct flat *flat, const struct optim_state_opts *opts)
{
    size_t n = flat->params->n;

    *l = (struct layout){.flat = flat, .opts = opts};
    if (!(l->trained = ckpt_alloc(n + 1, sizeof *l->trained)))
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct param *p = &flat->params->item[i];

        l->mixed |= type_of(l, i) == OP_MOMENTS_8BIT;
        l->trained[i + 1] = l->trained[i] + (p->trainable ? p->numel : 0);
    }
    for (int a = 0; a < OPTIM_STATE_ARRAYS; a++) {
        if (!(l->base[a] = ckpt_alloc(n + 1, sizeof *l->base[a])))
            return false;
        for (size_t i = 0; i < n; i++) {
            int64_t end = l->base[a][i] + bytes_of(l, a, i, numel_of(l, i));

            l->base[a][i + 1] = l->mixed ? (end + GAP - 1) / GAP * GAP : end;
        }
    }
    cut(l);
    if (!(l->chunk = ckpt_alloc((size_t)l->n_chunk + 2, sizeof *l->chunk)))
        return false;
    cut(l);
    while (l->resident < l->n_chunk && between(l, 0, l->resident + 1) <= opts->on_device)
        l->resident++;
    return true;
}

/* Elements of flat's gradients before a place. */
static int64_t grad_at(const struct layout *l, struct place p)
{
    return l->flat->grad_base[p.i] + p.at;
}

/* Room for bytes that begin anywhere between two multiples. */
static uint64_t slot_part(uint64_t bytes)
{
    return bytes ? (bytes + 2 * GAP - 1) / GAP * GAP : 0;
}

/* Bytes of a slot for any chunk that is not resident; 0: all are. */
static size_t slot_bytes(const struct layout *l)
{
    uint64_t most = 0;

    for (int64_t k = l->resident; k < l->n_chunk; k++) {
        struct place from = l->chunk[k], to = l->chunk[k + 1];
        uint64_t n = (uint64_t)(grad_at(l, to) - grad_at(l, from)), all = 0;

        for (int a = 0; a < OPTIM_STATE_ARRAYS; a++)
            all += slot_part((uint64_t)(place_bytes(l, a, to) - place_bytes(l, a, from)));
        all += l->opts->grad_on_host ? slot_part(n * sizeof(float)) : 0;
        all += slot_part(n * l->opts->rounded_on_host);
        most = all > most ? all : most;
    }
    return (size_t)most;
}

int optim_state_size(struct optim_state_size *out, const struct flat *flat,
                     const struct optim_state_opts *opts, struct ckpt_err *err)
{
    struct layout l;
    int rc = 0;

    if (lay_out(&l, flat, opts))
        *out = (struct optim_state_size){.device = between(&l, 0, l.resident),
                                    .host = between(&l, l.resident, l.n_chunk),
                                    .ring = ring_bytes(slot_bytes(&l))};
    else
        rc = ckpt_nomem(err, OPTIM_STATE_ARRAYS * (flat->params->n + 1) * sizeof **l.base);
    layout_release(&l);
    return rc;
}

/* One array's two sides. */
static int allocate(struct optim_state *s, int a, struct ckpt_err *err)
{
    const struct layout *l = &s->l;
    int64_t split = place_bytes(l, a, l->chunk[l->resident]);
    int64_t end = place_bytes(l, a, l->chunk[l->n_chunk]);

    if (split > 0 && !(s->device[a] = device_alloc(s->dev, (size_t)split, err)))
        return ckpt_err_code(err);
    if (end > split) {
        s->host[a] = device_pin(s->dev, (size_t)(end - split), err);
        if (!s->host[a])
            return ckpt_err_code(err);
    }
    return 0;
}

int optim_state_new(struct optim_state **out, const struct flat *flat,
                    const struct optim_state_opts *opts, struct device *dev, int event,
                    struct ckpt_err *err)
{
    struct optim_state *s = ckpt_alloc(1, sizeof *s);
    size_t n = flat->params->n, slot;
    int rc = 0;

    *out = NULL;
    if (!s)
        return ckpt_nomem(err, sizeof *s);
    s->dev = dev;
    s->opts = *opts;
    if (!lay_out(&s->l, flat, &s->opts))
        rc = ckpt_nomem(err, OPTIM_STATE_ARRAYS * (n + 1) * sizeof **s->l.base);
    for (int a = 0; rc == 0 && a < OPTIM_STATE_ARRAYS; a++)
        rc = allocate(s, a, err);
    slot = rc == 0 ? slot_bytes(&s->l) : 0;
    if (slot)
        rc = ring_new(&s->ring, dev, slot, OPTIM_STATE_ARRAYS + 1 + n, event, err);
    if (rc) {
        optim_state_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void optim_state_free(struct optim_state *s)
{
    if (!s)
        return;
    ring_free(s->ring);
    for (int a = 0; a < OPTIM_STATE_ARRAYS; a++) {
        s->dev->ops->free(s->dev, s->device[a]);
        s->dev->ops->unpin(s->dev, s->host[a]);
    }
    layout_release(&s->l);
    ckpt_free(s);
}

/* -- one step -------------------------------------------------------------------------------- */

/* Where the arrays of neighbours are while they are stepped. */
struct bases {
    unsigned char *array[OPTIM_STATE_ARRAYS];    /* of their first byte; NULL: none */
    const float   *grad;                    /* likewise, of their first element */
    unsigned char *rounded;                 /* of all weights; or theirs alone, where they pass */
    bool           passes;
};

/* The run of parameter i's elements [at, end). */
static struct adamw_run run_of(const struct optim_state *s, const struct bases *b,
                               struct place first, size_t i, int64_t at, int64_t end)
{
    const struct layout *l = &s->l;
    const struct flat *f = l->flat;
    const struct optim_state_step *step = s->step;
    struct place p = {i, at};
    unsigned char *x[OPTIM_STATE_ARRAYS];
    int64_t skip = grad_at(l, p) - grad_at(l, first);
    struct adamw_run run = {
        .grad = b->grad + skip, .n = end - at,
        .index = (uint64_t)(l->trained[i] + flat_grad_piece(f, i, f->rank).start + at),
        .weight_decay = f->params->item[i].decay ? step->weight_decay : 0.0,
        .moments = type_of(l, i),
    };

    if (step->group) {
        run.weight_decay = step->group[f->params->item[i].group].weight_decay;
        run.lr = &step->group[f->params->item[i].group].lr;
    }
    for (int a = 0; a < OPTIM_STATE_ARRAYS; a++)    /* one without bytes has no base */
        x[a] = b->array[a] ? b->array[a] + (place_bytes(l, a, p) - place_bytes(l, a, first)) : NULL;
    run.param = x[OPTIM_STATE_MASTER] ? (float *)(void *)x[OPTIM_STATE_MASTER]
                : step->master             ? step->master + f->base[i] + at : NULL;
    run.exp_avg = x[OPTIM_STATE_AVG];
    run.exp_avg_sq = x[OPTIM_STATE_AVG_SQ];
    if (run.moments == OP_MOMENTS_8BIT) {
        run.absmax = (float *)(void *)x[OPTIM_STATE_ABSMAX];
        run.absmax_sq = (float *)(void *)x[OPTIM_STATE_ABSMAX_SQ];  /* NULL: one moment */
    }
    if (b->rounded)
        run.rounded = b->rounded + (size_t)(b->passes ? skip : f->base[i] + at) *
                                       ckpt_dtype_size(s->dev->weight);
    return run;
}

/* Whether an array goes on where a part of so many bytes ends; or is not there. */
static bool follows(const void *a, size_t bytes, const void *b)
{
    return !a || (const unsigned char *)a + bytes == b;
}

static bool joins(const struct adamw_run *a, const struct adamw_run *b, size_t wide)
{
    size_t n = (size_t)a->n, moment = optim_state_bytes(OPTIM_STATE_AVG, a->moments, 1);

    return a->moments == b->moments && a->moments != OP_MOMENTS_8BIT &&
           ((a->moments == OP_MOMENTS_F32 && a->param) || a->index + n == b->index) &&
           memcmp(&a->weight_decay, &b->weight_decay, sizeof a->weight_decay) == 0 &&
           a->lr == b->lr && follows(a->param, n * sizeof *a->param, b->param) &&
           a->grad + n == b->grad &&
           follows(a->exp_avg, n * moment, b->exp_avg) &&
           follows(a->rounded, n * wide, b->rounded);
}

/* Step what lies between two places, whose arrays lie at b. */
static void step_range(struct optim_state *s, struct place first, struct place end,
                       const struct bases *b)
{
    const struct layout *l = &s->l;
    struct adamw_run run[RUNS];
    int64_t n = 0;

    for (size_t i = first.i; i <= end.i && i < l->flat->params->n; i++) {
        int64_t from = i == first.i ? first.at : 0, to = i == end.i ? end.at : numel_of(l, i);
        struct adamw_run one;

        if (from >= to || (s->opts.muon && params_is_hidden(&l->flat->params->item[i])))
            continue;
        one = run_of(s, b, first, i, from, to);
        if (n > 0 && joins(&run[n - 1], &one, ckpt_dtype_size(s->dev->weight))) {
            run[n - 1].n += one.n;
            continue;
        }
        if (n == RUNS) {
            s->dev->ops->adamw(s->dev, run, n, s->step->adamw);
            n = 0;
        }
        run[n++] = one;
    }
    if (n > 0)
        s->dev->ops->adamw(s->dev, run, n, s->step->adamw);
}

/* What of a chunk's rounded copies lies where on the host; at `cursor` of the slot.  They come too:
 * a step whose gradient is not finite leaves them as they are. */
static int rounded_moves(const struct optim_state *s, struct place first, struct place end,
                         size_t cursor, struct ring_move *move)
{
    const struct layout *l = &s->l;
    size_t wide = s->opts.rounded_on_host;
    int count = 0;

    for (size_t i = first.i; i <= end.i && i < l->flat->params->n; i++) {
        int64_t from = i == first.i ? first.at : 0, to = i == end.i ? end.at : numel_of(l, i);
        unsigned char *host = (unsigned char *)s->step->rounded +
                              (size_t)(l->flat->base[i] + from) * wide;
        size_t bytes = to > from ? (size_t)(to - from) * wide : 0;

        if (bytes && count && (unsigned char *)move[count - 1].out + move[count - 1].bytes == host)
            move[count - 1].bytes += bytes;
        else if (bytes)
            move[count++] = (struct ring_move){host, host, cursor, bytes};
        cursor += bytes;
    }
    return count;
}

/* The moves of the k-th chunk that passes; b, where asked for: where they put it in a slot. */
static int chunk_moves(const struct optim_state *s, int64_t k, struct ring_move *move,
                       struct bases *b, unsigned char *slot)
{
    const struct layout *l = &s->l;
    struct place split = l->chunk[l->resident], first = l->chunk[l->resident + k];
    struct place end = l->chunk[l->resident + k + 1];
    int64_t at = grad_at(l, first), n = grad_at(l, end) - at;
    size_t cursor = 0, bytes;
    int count = 0;

    /* Each lies as its whole array does: what moves 16 bytes at once finds them alike. */
    for (int a = 0; a < OPTIM_STATE_ARRAYS; a++) {
        int64_t from = place_bytes(l, a, first);
        size_t in_slot = cursor + (size_t)from % GAP;

        bytes = (size_t)(place_bytes(l, a, end) - from);
        if (bytes && move) {
            unsigned char *host = s->host[a] + (from - place_bytes(l, a, split));

            move[count++] = (struct ring_move){host, host, in_slot, bytes};
        }
        if (b)
            b->array[a] = bytes ? slot + in_slot : NULL;
        cursor += slot_part(bytes);
    }
    bytes = s->opts.grad_on_host ? (size_t)n * sizeof(float) : 0;
    if (bytes && move)
        move[count++] = (struct ring_move){
            s->step->grad + at, NULL, cursor + (size_t)at * sizeof(float) % GAP, bytes};
    if (b)
        b->grad = bytes ? (const float *)(void *)(slot + cursor + (size_t)at * sizeof(float) % GAP)
                        : s->step->grad + at;
    cursor += slot_part(bytes);
    if (b) {
        b->passes = s->opts.rounded_on_host > 0;
        b->rounded = b->passes ? slot + cursor : s->step->rounded;
    }
    if (move && s->opts.rounded_on_host)
        count += rounded_moves(s, first, end, cursor, move + count);
    return count;
}

static int moves(void *ctx, int64_t k, struct ring_move *move)
{
    return chunk_moves(ctx, k, move, NULL, NULL);
}

static void work(void *ctx, int64_t k, unsigned char *slot)
{
    struct optim_state *s = ctx;
    struct bases b = {0};

    chunk_moves(s, k, NULL, &b, slot);
    step_range(s, s->l.chunk[s->l.resident + k], s->l.chunk[s->l.resident + k + 1], &b);
}

/* The first place after a layer. */
static struct place layer_end(const struct layout *l, int layer)
{
    size_t first, end;

    flat_layer(l->flat, layer, &first, &end);
    return (struct place){end, 0};
}

/* Step the layers that are resident; returns how many are done. */
static int step_resident(struct optim_state *s)
{
    const struct layout *l = &s->l;
    struct place from = {0, 0}, end = l->chunk[l->resident];
    int u = 0, n = l->flat->params->n_layers;

    for (; u < n && before(from, end); u++) {
        struct place to = layer_end(l, u);
        bool all = !before(end, to);
        struct bases b = {.grad = s->step->grad + grad_at(l, from), .rounded = s->step->rounded};

        for (int a = 0; a < OPTIM_STATE_ARRAYS; a++)
            b.array[a] = s->device[a] ? s->device[a] + place_bytes(l, a, from) : NULL;
        step_range(s, from, all ? to : end, &b);
        if (!all)
            break;
        if (s->step->done)
            s->step->done(s->step->ctx, u);
        from = to;
    }
    return u;
}

void optim_state_step(struct optim_state *s, const struct optim_state_step *step)
{
    const struct layout *l = &s->l;
    int u;

    s->step = step;
    u = step_resident(s);
    if (s->ring)
        ring_run(s->ring, &(struct ring_run){.ctx = s, .n = l->n_chunk - l->resident,
                                             .moves = moves, .work = work});
    for (; step->done && u < l->flat->params->n_layers; u++)
        step->done(step->ctx, u);
    s->step = NULL;
}

/* -- looking --------------------------------------------------------------------------------- */

struct optim_state_spot optim_state_spot(const struct optim_state *s, enum optim_state_array of,
                                         size_t i, int64_t at)
{
    const struct layout *l = &s->l;
    struct place p = {i, at}, split = l->chunk[l->resident];
    bool host = !before(p, split);
    int64_t byte = place_bytes(l, of, p), end = !host && split.i == i ? split.at : numel_of(l, i);
    unsigned char *base = host ? s->host[of] : s->device[of];

    if (!base || bytes_of(l, of, i, BLOCK) == 0)
        return (struct optim_state_spot){0};
    return (struct optim_state_spot){base + byte - (host ? place_bytes(l, of, split) : 0), end - at,
                                host};
}
