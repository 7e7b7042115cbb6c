/* optim/load - see optim/load.h. */
#include "trainer/optim/load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/bnb/bnb.h"
#include "formats/bnb/codes.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/optim/order.h"
#include "trainer/checkpoint/weights.h"

#define PIECE ((int64_t)1 << 20)        /* elements moved at a time */

/* An optimizer.pt: its stored tensors, and their dequantised values. */
struct file {
    struct ckpt_source *raw, *seen;
    bool                packed;
    size_t             *index;          /* [n] the moment's tensor of each parameter, in seen */
    int64_t            *from;           /* and its first element there */
    void               *piece;          /* [PIECE] floats */
    enum op_moments     kind;           /* the narrowest type in it */
};

/* The tensors of a quantised state: codes, table, scales. */
struct coded {
    size_t state, map, absmax;
};

/* The tensor named STATE.WORD, or its place in bitsandbytes since 0.49.1. */
static size_t find_part(const struct ckpt_source *src, const char *state, size_t len,
                        const char *word, int k)
{
    char name[256];
    size_t t;

    snprintf(name, sizeof name, "%.*s.__bnb_optimizer_quant_state__.%s%d", (int)len, state, word,
             k + 1);
    t = ckpt_source_find(src, name);
    snprintf(name, sizeof name, "%.*s.%s%d", (int)len, state, word, k + 1);
    return t != SIZE_MAX ? t : ckpt_source_find(src, name);
}

/* Whether moment k (0, 1) of parameter i is stored as codes that can be copied. */
static int find_codes(struct coded *c, bool *found, const struct file *f, size_t i, int k,
                      struct ckpt_err *err)
{
    const char *name = ckpt_source_tensor(f->seen, f->index[i])->name, *dot = strrchr(name, '.');
    size_t len = dot ? (size_t)(dot - name) : strlen(name);
    float theirs[256], ours[256];
    const struct ckpt_tensor *state;
    int rc;

    *found = false;
    *c = (struct coded){find_part(f->raw, name, len, "state", k),
                        find_part(f->raw, name, len, "qmap", k),
                        find_part(f->raw, name, len, "absmax", k)};
    if (c->state == SIZE_MAX || c->map == SIZE_MAX || c->absmax == SIZE_MAX)
        return 0;
    state = ckpt_source_tensor(f->raw, c->state);
    if (state->dtype != CKPT_U8 || f->from[i] % BNB_BLOCK ||
        ckpt_source_tensor(f->raw, c->map)->numel != 256 ||
        ckpt_source_tensor(f->raw, c->map)->dtype != CKPT_F32 ||
        ckpt_source_tensor(f->raw, c->absmax)->dtype != CKPT_F32 ||
        ckpt_source_tensor(f->raw, c->absmax)->numel != (state->numel + BNB_BLOCK - 1) / BNB_BLOCK)
        return 0;
    if ((rc = ckpt_source_read(f->raw, c->map, 0, 256, theirs, err)) != 0)
        return rc;
    bnb_map(ours, k == 0);
    *found = true;
    for (int j = 0; j < 256; j++)   /* torch's linspace differs in the last bits between versions */
        *found = *found && fabsf(theirs[j] - ours[j]) <= 1e-5f * fabsf(ours[j]);
    return 0;
}

/* Copy codes and scales of moment k of parameter i. */
static int take_codes(struct session *s, const struct file *f, const struct coded *c, size_t i,
                      int k, struct ckpt_err *err)
{
    enum optim_state_array of = k ? OPTIM_STATE_AVG_SQ : OPTIM_STATE_AVG;
    enum optim_state_array scales = k ? OPTIM_STATE_ABSMAX_SQ : OPTIM_STATE_ABSMAX;
    int64_t numel = zero_flat(s->zero)->params->item[i].numel;
    int rc;

    for (int64_t at = 0; at < numel; at += PIECE) {
        int64_t n = numel - at < PIECE ? numel - at : PIECE, from = f->from[i] + at;

        if ((rc = ckpt_source_read(f->raw, c->state, from, n, f->piece, err)) != 0 ||
            (rc = zero_write_stored(s->zero, of, i, at, n, f->piece, err)) != 0 ||
            (rc = ckpt_source_read(f->raw, c->absmax, from / BNB_BLOCK,
                                   (n + BNB_BLOCK - 1) / BNB_BLOCK, f->piece, err)) != 0 ||
            (rc = zero_write_stored(s->zero, scales, i, at, n, f->piece, err)) != 0)
            return rc;
    }
    return 0;
}

/* Load one moment of all parameters. */
static int load(struct session *s, struct file *f, int k, struct ckpt_err *err)
{
    const struct params *p = zero_flat(s->zero)->params;
    int rc;

    rc = optim_match(f->index, f->from, p, s->arch, f->seen, k ? "exp_avg_sq" : "exp_avg", err);
    if (rc)
        return rc;
    for (size_t i = 0; i < p->n; i++) {
        bool wanted = zero_moments(s->zero, i) == OP_MOMENTS_8BIT, found = false;
        struct coded c;

        if (f->index[i] == SIZE_MAX)
            continue;
        if (f->packed && (rc = find_codes(&c, &found, f, i, k, err)) != 0)
            return rc;
        if (found)
            f->kind = OP_MOMENTS_8BIT;
        else if (ckpt_source_tensor(f->seen, f->index[i])->dtype == CKPT_BF16)
            f->kind = OP_MOMENTS_BF16;
        if (!wanted || !found)
            continue;
        if ((rc = take_codes(s, f, &c, i, k, err)) != 0)
            return rc;
        f->index[i] = SIZE_MAX;
    }
    return weights_load(s->zero, k ? ZERO_EXP_AVG_SQ : ZERO_EXP_AVG, f->seen, f->index, f->from,
                        err);
}

void optim_tell_change(const struct session *s, const char *path, enum op_moments was)
{
    static const char *const name[] = {[OP_MOMENTS_F32] = "float32", [OP_MOMENTS_BF16] = "bfloat16",
                                       [OP_MOMENTS_8BIT] = "8-bit codes"};

    if (was != s->zero_opts.moments && s->comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "%s: moments were stored as %s, this run keeps them as %s",
                 path, name[was], name[s->zero_opts.moments]);
}

int optim_load(struct session *s, const char *file, bool prove, struct ckpt_err *err)
{
    const struct ckpt_open_opts opts = {.prove = prove};
    size_t n = zero_flat(s->zero)->params->n;
    struct file f = {.index = ckpt_alloc(n, sizeof *f.index), .from = ckpt_alloc(n, sizeof *f.from),
                     .piece = ckpt_alloc_buffer((size_t)PIECE * sizeof(float))};
    const char *what;
    int rc = f.index && f.from && f.piece ? 0 : ckpt_nomem(err, (size_t)PIECE * sizeof(float));

    if (rc == 0)
        rc = ckpt_open_as(&f.raw, "torch", file, &opts, err);
    f.packed = rc == 0 && bnb_count(f.raw, &what) > 0;
    if (rc == 0)
        rc = ckpt_open_as(&f.seen, "torch", file, &opts, err);
    if (rc == 0 && f.packed)
        rc = bnb_view(&f.seen, f.seen, err);
    for (int k = 0; rc == 0 && k < 2; k++)
        rc = load(s, &f, k, err);
    if (rc == 0)
        optim_tell_change(s, file, f.kind);
    ckpt_source_close(f.seen);
    ckpt_source_close(f.raw);
    ckpt_free(f.index);
    ckpt_free(f.from);
    ckpt_free(f.piece);
    return rc;
}
