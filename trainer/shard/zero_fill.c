/*
 * zero_fill - between a rank's arrays and the host, see zero.h: a few MiB at a time.
 *
 * Where the device has memory of its own, bytes pass the two halves of a pinned stage: while a
 * stream copies one half, the host reads or fills the other.  They keep their type on the way;
 * the host converts.
 */
#include "trainer/shard/zero_own.h"

#include <string.h>

#include "formats/bnb/codes.h"
#include "libckpt/convert.h"
#include "libckpt/mem.h"

#define PIECE ((int64_t)1 << 20)        /* floats a filler is asked for at once */

bool zero_sharded(const struct zero *z) { return z->sharded; }

static enum optim_state_array states_array(enum zero_array of)
{
    return of == ZERO_MASTER    ? OPTIM_STATE_MASTER
           : of == ZERO_EXP_AVG ? OPTIM_STATE_AVG
                                : OPTIM_STATE_AVG_SQ;
}

struct zero_spot zero_spot(const struct zero *z, enum zero_array of, size_t i, int64_t at)
{
    const struct flat *f = &z->flat;
    bool trained = f->params->item[i].trainable;
    struct zero_spot s = {NULL, CKPT_F32, flat_part(f, i) - at, false};

    if (of == ZERO_GRAD) {
        if (trained && z->grads)
            s.at = (unsigned char *)(z->grads + f->grad_base[i] + at);
        s.host = z->streamed;
    } else if (of == ZERO_MASTER && z->master) {
        s.at = (unsigned char *)(z->master + f->base[i] + at);
    } else if (of == ZERO_MASTER && (z->opts.narrow || !(z->optim && trained))) {
        s.at = (unsigned char *)z->rounded + (size_t)(f->base[i] + at) * ckpt_dtype_size(z->type);
        s.type = z->type;
        s.host = z->streamed;
    } else if (z->optim && trained) {
        enum optim_state_array array = states_array(of);
        struct optim_state_spot p = optim_state_spot(z->optim, array, i, at);

        s = (struct zero_spot){p.at, optim_state_type(array, zero_moments(z, i)), p.n, p.host};
    }
    return s;
}

/* -- bytes ------------------------------------------------------------------------------------ */

void zero_settle(struct zero *z)
{
    z->dev->ops->event_record(z->dev, OP_STREAM_OUT, ZERO_EVENT_MAIN);
    z->dev->ops->event_sync(z->dev, ZERO_EVENT_MAIN);
}

/* n elements to the host, as that type. */
static void get(struct zero *z, unsigned char *to, enum ckpt_dtype type, struct zero_spot from,
                int64_t n)
{
    const struct ops *ops = z->dev->ops;
    size_t wide = ckpt_dtype_size(from.type);
    int64_t most = ZERO_STAGE / (int64_t)wide, pieces = (n + most - 1) / most;

    if (from.host)
        zero_settle(z);
    if (from.host || !z->dev->discrete) {
        ckpt_convert(to, type, from.at, from.type, (size_t)n);
        return;
    }
    zero_follow(z, OP_STREAM_OUT, OP_STREAM_MAIN);
    for (int64_t k = 0; k <= pieces; k++) {     /* piece k starts, piece k - 1 is taken */
        int64_t at = (k - 1) * most, some = n - at < most ? n - at : most;

        if (k < pieces) {
            int64_t begin = k * most, count = n - begin < most ? n - begin : most;

            ops->stream_copy(z->dev, OP_STREAM_OUT, z->stage + k % 2 * ZERO_STAGE,
                           from.at + (size_t)begin * wide, (size_t)count * wide);
            ops->event_record(z->dev, OP_STREAM_OUT, ZERO_EVENT_OUT + (int)(k % 2));
        }
        if (k > 0) {
            ops->event_sync(z->dev, ZERO_EVENT_OUT + (int)((k - 1) % 2));
            ckpt_convert(to + (size_t)at * ckpt_dtype_size(type), type,
                         z->stage + (k - 1) % 2 * ZERO_STAGE, from.type, (size_t)some);
        }
    }
}

/* The way back. */
static void put(struct zero *z, struct zero_spot to, const unsigned char *from,
                enum ckpt_dtype type, int64_t n)
{
    const struct ops *ops = z->dev->ops;
    size_t wide = ckpt_dtype_size(to.type);
    int64_t most = ZERO_STAGE / (int64_t)wide;

    if (to.host)
        zero_settle(z);
    if (to.host || !z->dev->discrete) {
        ckpt_convert(to.at, to.type, from, type, (size_t)n);
        return;
    }
    zero_follow(z, OP_STREAM_IN, OP_STREAM_MAIN);
    for (int64_t at = 0, k = 0; at < n; at += most, k ^= 1) {
        int64_t some = n - at < most ? n - at : most;
        unsigned char *half = z->stage + k * ZERO_STAGE;

        ops->event_sync(z->dev, ZERO_EVENT_IN + (int)k);      /* what it held has left */
        ckpt_convert(half, to.type, from + (size_t)at * ckpt_dtype_size(type), type,
                     (size_t)some);
        ops->stream_copy(z->dev, OP_STREAM_IN, to.at + (size_t)at * wide, half,
                         (size_t)some * wide);
        ops->event_record(z->dev, OP_STREAM_IN, ZERO_EVENT_IN + (int)k);
    }
    zero_follow(z, OP_STREAM_MAIN, OP_STREAM_IN);
}

/* As they are stored: type is what get and put need not convert. */
static int move_stored(struct zero *z, enum optim_state_array of, size_t i, int64_t at, int64_t n,
                       unsigned char *to, const unsigned char *from, struct ckpt_err *err)
{
    bool scales = of == OPTIM_STATE_ABSMAX || of == OPTIM_STATE_ABSMAX_SQ;
    enum ckpt_dtype type = optim_state_type(of, zero_moments(z, i));
    int64_t each = scales ? OP_MOMENTS_BLOCK : 1, some;

    for (int64_t k = 0; k < n && z->dev->err.code == 0; k += some) {
        struct optim_state_spot p = {0};
        size_t skip = (size_t)(k / each) * ckpt_dtype_size(type);

        if (z->optim && z->flat.params->item[i].trainable)
            p = optim_state_spot(z->optim, of, i, at + k);
        if (!p.at)
            return ckpt_fail(err, CKPT_ESTATE, "%s: has no such array",
                             z->flat.params->item[i].name);
        some = n - k < p.n ? n - k : p.n;
        if (to)
            get(z, to + skip, type, (struct zero_spot){p.at, type, some, p.host},
                (some + each - 1) / each);
        else
            put(z, (struct zero_spot){p.at, type, some, p.host}, from + skip, type,
                (some + each - 1) / each);
    }
    return device_error(z->dev, err);
}

enum { CODED = 1 << 16 };               /* elements that are coded or opened at once */

/* Codes and their scales, either way. */
static int move_codes(struct zero *z, bool first, size_t i, int64_t at, int64_t n, uint8_t *code,
                      float *scale, bool read, struct ckpt_err *err)
{
    enum optim_state_array codes = first ? OPTIM_STATE_AVG : OPTIM_STATE_AVG_SQ;
    enum optim_state_array scales = first ? OPTIM_STATE_ABSMAX : OPTIM_STATE_ABSMAX_SQ;
    unsigned char *bytes = (unsigned char *)scale;
    int rc = move_stored(z, codes, i, at, n, read ? code : NULL, code, err);

    return rc ? rc : move_stored(z, scales, i, at, n, read ? bytes : NULL, bytes, err);
}

/* Coded moments as f32, and f32 as codes: at is a multiple of a block's length. */
static int move_coded(struct zero *z, enum zero_array of, size_t i, int64_t at, int64_t n,
                      float *to, const float *from, struct ckpt_err *err)
{
    bool first = of == ZERO_EXP_AVG;
    struct { struct bnb_codec codec; float scale[CODED / BNB_BLOCK]; uint8_t code[CODED]; } *w;
    int rc = 0;

    if (at % BNB_BLOCK)
        return ckpt_fail(err, CKPT_ESTATE, "%s: moments from element %lld on are part of a block",
                         z->flat.params->item[i].name, (long long)at);
    if (!(w = ckpt_alloc_buffer(sizeof *w)))
        return ckpt_nomem(err, sizeof *w);
    bnb_codec_init(&w->codec, first);
    for (int64_t k = 0; rc == 0 && k < n; k += CODED) {
        int64_t some = n - k < CODED ? n - k : CODED;

        if (from)
            bnb_pack(w->code, w->scale, from + k, some, &w->codec);
        rc = move_codes(z, first, i, at + k, some, w->code, w->scale, to != NULL, err);
        for (int64_t j = 0; to && rc == 0 && j < some; j++)
            to[k + j] = w->codec.map[w->code[j]] * w->scale[j / BNB_BLOCK];
    }
    ckpt_free(w);
    return rc;
}

/* Elements in the midst of a block: it is opened as a whole.  Returns how many, of n at most. */
static int64_t read_inside(struct zero *z, enum zero_array of, size_t i, int64_t at, int64_t n,
                           float *to, int *rc, struct ckpt_err *err)
{
    int64_t skip = at % BNB_BLOCK, left = flat_part(&z->flat, i) - (at - skip);
    int64_t block = left < BNB_BLOCK ? left : BNB_BLOCK, some = block - skip < n ? block - skip : n;
    float open[BNB_BLOCK];

    *rc = move_coded(z, of, i, at - skip, block, open, NULL, err);
    memcpy(to, open + skip, (size_t)some * sizeof *to);
    return some;
}

/* As zero_read or zero_write, in runs that lie one after another. */
static int move(struct zero *z, enum zero_array of, size_t i, int64_t at, int64_t n, float *to,
                const float *from, struct ckpt_err *err)
{
    const char *name = z->flat.params->item[i].name;
    int64_t some;
    int rc = 0;

    for (int64_t k = 0; k < n && z->dev->err.code == 0; k += some) {
        struct zero_spot s = zero_spot(z, of, i, at + k);

        if (!s.at)
            return ckpt_fail(err, CKPT_ESTATE, "%s: has no such array", name);
        if (s.type == CKPT_U8) {
            if (to && at % BNB_BLOCK) {
                k = read_inside(z, of, i, at, n, to, &rc, err);
                at += k;
                n -= k;
                to += k;
            }
            return rc || n == 0 ? rc : move_coded(z, of, i, at, n, to, from, err);
        }
        some = n - k < s.n ? n - k : s.n;
        if (to)
            get(z, (unsigned char *)(to + k), CKPT_F32, s, some);
        else
            put(z, s, (const unsigned char *)(from + k), CKPT_F32, some);
    }
    return device_error(z->dev, err);
}

int zero_read(struct zero *z, enum zero_array of, size_t i, int64_t at, int64_t n, float *to,
              struct ckpt_err *err)
{
    return move(z, of, i, at, n, to, NULL, err);
}

int zero_write(struct zero *z, enum zero_array of, size_t i, int64_t at, int64_t n,
               const float *from, struct ckpt_err *err)
{
    return move(z, of, i, at, n, NULL, from, err);
}

int zero_read_stored(struct zero *z, enum optim_state_array of, size_t i, int64_t at, int64_t n,
                     void *to, struct ckpt_err *err)
{
    return move_stored(z, of, i, at, n, to, NULL, err);
}

int zero_write_stored(struct zero *z, enum optim_state_array of, size_t i, int64_t at, int64_t n,
                      const void *from, struct ckpt_err *err)
{
    return move_stored(z, of, i, at, n, NULL, from, err);
}

/* A parameter's true weights, rounded, to the copy for passes. */
static void round_param(struct zero *z, size_t i)
{
    int64_t n = z->flat.grad_base[i + 1] - z->flat.grad_base[i], some;
    size_t wide = ckpt_dtype_size(z->type);

    for (int64_t at = 0; at < n; at += some) {
        struct zero_spot from = zero_spot(z, ZERO_MASTER, i, at);
        unsigned char *to = (unsigned char *)z->rounded + (size_t)(z->flat.base[i] + at) * wide;

        some = from.n;
        if (from.host) {
            zero_settle(z);
            put(z, (struct zero_spot){to, z->type, some, z->streamed}, from.at, CKPT_F32, some);
        } else if (z->streamed) {
            get(z, to, z->type, from, some);
        } else {
            z->dev->ops->cast(z->dev, OP_STREAM_MAIN, to, z->type, from.at, CKPT_F32, some);
        }
    }
}

void zero_changed(struct zero *z)
{
    const struct params *p = z->flat.params;

    z->dev->loaded++;
    zero_forget(z);
    if (z->rounded && z->master)
        z->dev->ops->cast(z->dev, OP_STREAM_MAIN, z->rounded, z->type, z->master, CKPT_F32,
                          z->flat.numel);
    for (size_t i = 0; z->rounded && !z->master && !z->opts.narrow && z->optim && i < p->n; i++)
        if (p->item[i].trainable)
            round_param(z, i);
    zero_follow(z, OP_STREAM_COMM, OP_STREAM_MAIN);     /* what is gathered next */
}

/* -- whole parameters and layers --------------------------------------------------------------- */

int zero_pad(struct zero *z, enum zero_array of, size_t i, struct ckpt_err *err)
{
    const float zeros[BNB_BLOCK] = {0};
    int64_t end = flat_part(&z->flat, i), n;
    int64_t at = flat_piece(&z->flat, i, z->flat.rank).count / BNB_BLOCK * BNB_BLOCK;
    int rc = 0;

    for (; rc == 0 && at < end; at += n) {
        n = end - at < BNB_BLOCK ? end - at : BNB_BLOCK;
        rc = zero_write(z, of, i, at, n, zeros, err);
    }
    return rc;
}

int zero_fill(struct zero *z, enum zero_array of, zero_fill_fn *fn, void *ctx,
              struct ckpt_err *err)
{
    float *piece = ckpt_alloc_buffer((size_t)PIECE * sizeof *piece);
    int rc = piece ? 0 : ckpt_nomem(err, (size_t)PIECE * sizeof *piece);

    for (size_t i = 0; rc == 0 && i < z->flat.params->n && !device_stopped(z->dev); i++) {
        struct flat_piece p = flat_piece(&z->flat, i, z->flat.rank);
        struct zero_spot to = zero_spot(z, of, i, 0);

        if (!to.at)
            continue;
        if (to.type == CKPT_U8 && p.count == 0)
            rc = zero_pad(z, of, i, err);
        if (!z->dev->discrete && to.type == CKPT_F32 && p.count > 0 && to.n >= p.count)
            rc = fn(ctx, i, p.start, p.count, (float *)(void *)to.at, err);
        else
            for (int64_t at = 0; rc == 0 && at < p.count; at += PIECE) {
                int64_t n = p.count - at < PIECE ? p.count - at : PIECE;

                rc = fn(ctx, i, p.start + at, n, piece, err);
                if (rc == 0 && at == 0 && to.type == CKPT_U8)   /* what fn leaves has its own */
                    rc = zero_pad(z, of, i, err);
                if (rc == 0)
                    rc = zero_write(z, of, i, at, n, piece, err);
            }
        rc = rc == ZERO_LEAVES ? 0 : rc;
    }
    ckpt_free(piece);
    if (of == ZERO_MASTER)
        zero_changed(z);
    return rc ? rc : device_sync(z->dev, err);
}

/* Memory on the host for the largest layer, or its parts of all ranks; kept. */
static float *buffer(float **kept, int64_t n, struct ckpt_err *err)
{
    if (!*kept)
        *kept = ckpt_alloc_buffer((size_t)n * sizeof **kept);
    if (!*kept)
        ckpt_nomem(err, (size_t)n * sizeof **kept);
    return *kept;
}

static float *layer_buffer(struct zero *z, struct ckpt_err *err)
{
    int64_t most = 0;

    for (int u = 0; u < z->flat.params->n_layers; u++)
        most = z->flat.params->layer_numel[u] > most ? z->flat.params->layer_numel[u] : most;
    return buffer(&z->layer_host, most, err);
}

static float *parts_buffer(struct zero *z, struct ckpt_err *err)
{
    int64_t most = 0;

    for (int u = 0; u < z->flat.params->n_layers; u++)
        most = flat_layer_part(&z->flat, u) > most ? flat_layer_part(&z->flat, u) : most;
    return z->parts ? z->parts : buffer(&z->parts_host, most * z->flat.world_size, err);
}

/* Where a layer is put together: in its slot where that is the host's, which a pass fills again. */
static float *whole_buffer(struct zero *z, enum zero_array of, int layer, struct ckpt_err *err)
{
    struct slots *slots = of == ZERO_GRAD ? &z->grad : &z->weight;
    int i, end;

    if (!z->sharded || z->dev->discrete || z->is_copy)
        return layer_buffer(z, err);
    zero_slots_of(z, slots, layer, &i, &end);
    slots->slot[i].layer = -1;
    return slots->slot[i].whole;
}

/* What this rank has of a layer's parameters, or of those that are trained: by their parts, or each
 * at its offset. */
static int read_layer(struct zero *z, enum zero_array of, int layer, bool trained, float *to,
                      struct ckpt_err *err)
{
    const struct flat *f = &z->flat;
    const int64_t *base = trained ? f->grad_base : f->base;
    size_t first, end;
    int rc = 0;

    flat_layer(f, layer, &first, &end);
    for (size_t i = first; rc == 0 && i < end; i++) {
        const struct param *p = &f->params->item[i];
        int64_t at = z->sharded ? base[i] - base[first] : trained ? p->grad_offset : p->offset;

        if (trained ? p->trainable : !z->is_copy || params_is_saved(f->params, i))
            rc = zero_read(z, of, i, 0, flat_part(f, i), to + at, err);
    }
    return rc;
}

/* A layer's parameters, or those that are trained, put together where the host can read them. */
static const float *together(struct zero *z, enum zero_array of, int layer, bool trained,
                             struct ckpt_err *err)
{
    const struct flat *f = &z->flat;
    int64_t part = trained ? flat_grad_part(f, layer) : flat_layer_part(f, layer);
    float *whole = whole_buffer(z, of, layer, err), *parts;

    if (!z->sharded)
        return whole && read_layer(z, of, layer, trained, whole, err) == 0 ? whole : NULL;
    parts = whole ? parts_buffer(z, err) : NULL;
    if (!parts || read_layer(z, of, layer, trained, parts + f->rank * part, err))
        return NULL;
    comm_all_gather(z->comm, parts, parts + f->rank * part, part, CKPT_F32);
    if (trained)
        flat_assemble_grads(f, layer, whole, parts);
    else
        flat_assemble(f, layer, whole, parts, sizeof *whole);
    return whole;
}

const float *zero_master(struct zero *z, int layer, struct ckpt_err *err)
{
    return together(z, ZERO_MASTER, layer, false, err);
}

const float *zero_master_trained(struct zero *z, int layer, struct ckpt_err *err)
{
    return together(z, ZERO_MASTER, layer, true, err);
}

const float *zero_gather_grad(struct zero *z, int layer, struct ckpt_err *err)
{
    return together(z, ZERO_GRAD, layer, true, err);
}
