/* optim/load - see optim/load.h. */
#include "trainer/optim/load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/bnb/bnb.h"
#include "formats/bnb/codes.h"
#include "formats/torch/torch.h"
#include "libckpt/convert.h"
#include "libckpt/io/path.h"
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
    const char        **name;           /* [n] and its name in a state; NULL: it has none */
    void               *piece;          /* [PIECE] floats */
    const struct optim_row *row;
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

/* Whether moment k (0, 1) of parameter i is stored as codes that can be copied: a rank's part p of
 * it begins with a block. */
static int find_codes(struct coded *c, bool *found, const struct file *f, size_t i,
                      struct flat_piece p, int k, struct ckpt_err *err)
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
    if (state->dtype != CKPT_U8 || (f->from[i] + p.start) % BNB_BLOCK ||
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

/* Copy codes and scales of moment k of a rank's part p of parameter i. */
static int take_codes(struct session *s, const struct file *f, const struct coded *c, size_t i,
                      struct flat_piece p, int k, struct ckpt_err *err)
{
    enum optim_state_array of = k ? OPTIM_STATE_AVG_SQ : OPTIM_STATE_AVG;
    enum optim_state_array scales = k ? OPTIM_STATE_ABSMAX_SQ : OPTIM_STATE_ABSMAX;
    int rc = zero_pad(s->zero, k ? ZERO_EXP_AVG_SQ : ZERO_EXP_AVG, i, err);

    for (int64_t at = 0; rc == 0 && at < p.count; at += PIECE) {
        int64_t n = p.count - at < PIECE ? p.count - at : PIECE, from = f->from[i] + p.start + at;

        if ((rc = ckpt_source_read(f->raw, c->state, from, n, f->piece, err)) != 0 ||
            (rc = zero_write_stored(s->zero, of, i, at, n, f->piece, err)) != 0 ||
            (rc = ckpt_source_read(f->raw, c->absmax, from / BNB_BLOCK,
                                   (n + BNB_BLOCK - 1) / BNB_BLOCK, f->piece, err)) != 0 ||
            (rc = zero_write_stored(s->zero, scales, i, at, n, f->piece, err)) != 0)
            return rc;
    }
    return rc;
}

/* The name of moment k in a file of bitsandbytes, or NULL: it is called by its number where there
 * is only one, and where none of them is coded. */
static const char *number_of(const struct file *f, int k)
{
    static const char *const wrapped[] = {"__bnb_optimizer_quant_state__.state1",
                                          "__bnb_optimizer_quant_state__.state2"};
    static const char *const plain[] = {"state1", "state2"};
    const char *const *by_number[] = {wrapped, plain};
    char name[64];

    for (size_t i = 0; i < sizeof by_number / sizeof by_number[0]; i++) {
        snprintf(name, sizeof name, "state.0.%s", by_number[i][k]);
        if (ckpt_source_find(f->seen, name) != SIZE_MAX)
            return by_number[i][k];
    }
    return NULL;
}

/* Load one moment of all parameters. */
static int load(struct session *s, struct file *f, int k, struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(s->zero);
    const struct params *p = flat->params;
    const char *number = number_of(f, k);
    int rc;

    for (size_t i = 0; i < p->n; i++)
        f->name[i] = number ? number : optim_moment_name(f->row, &p->item[i], k);
    rc = optim_match(f->index, f->from, p, s->arch, f->seen, f->name, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < p->n; i++) {
        bool wanted = zero_moments(s->zero, i) == OP_MOMENTS_8BIT, found = false;
        struct flat_piece own = flat_piece(flat, i, flat->rank);
        struct coded c;

        if (f->index[i] == SIZE_MAX)
            continue;
        if (f->packed && (rc = find_codes(&c, &found, f, i, own, k, err)) != 0)
            return rc;
        if (found)
            f->kind = OP_MOMENTS_8BIT;
        else if (ckpt_source_tensor(f->seen, f->index[i])->dtype == CKPT_BF16)
            f->kind = OP_MOMENTS_BF16;
        if (!wanted || !found)
            continue;
        if ((rc = take_codes(s, f, &c, i, own, k, err)) != 0)
            return rc;
        f->index[i] = SIZE_MAX;
    }
    return weights_load(s->zero, k ? ZERO_EXP_AVG_SQ : ZERO_EXP_AVG, f->seen, f->index, f->from,
                        err);
}

/* The sizes of the groups that have parameters, in their order; -1 ends them. */
static int64_t *own_groups(struct ckpt_arena *a, const struct optim_order *o)
{
    int64_t *size = ckpt_arena_alloc(a, o->n + 1, sizeof *size);
    size_t n = 0;

    for (size_t k = 0; size && k < o->n; k++) {
        if (k > 0 && o->slot[k].group != o->slot[k - 1].group)
            n++;
        size[n]++;
    }
    if (size)
        size[o->n ? n + 1 : 0] = -1;
    return size;
}

/* Whether all are in one group: an optimizer that was given model.parameters().  Shapes tell its
 * order from that of the first two groups, not from others'. */
static bool is_whole(const struct value *groups, const struct optim_order *o)
{
    for (size_t k = 0; k < o->n; k++)
        if (o->slot[k].group > 1)
            return false;
    return value_count(groups) == 1 &&
           value_count(value_get(value_item(groups, 0), "params")) == o->n;
}

/* Whether the file's groups have these sizes. */
static bool groups_are(const struct value *groups, const int64_t *size)
{
    for (size_t g = 0; g < value_count(groups); g++) {
        int64_t n = (int64_t)value_count(value_get(value_item(groups, g), "params"));

        if (n > 0 && n != *size++)
            return false;
    }
    return *size < 0;
}

/* States have no names, only numbers that count through the groups: other groups than the file's
 * would mistake one for another. */
static int check_groups(const struct session *s, const char *path, struct ckpt_err *err)
{
    const struct params *p = zero_flat(s->zero)->params;
    struct torch_archive *archive = NULL;
    struct ckpt_arena a = {0};
    struct optim_order order;
    struct ckpt_file *file;
    const struct value *groups;
    bool same = false;
    int rc = ckpt_file_open(&file, path, 0, err);

    if (rc == 0)
        rc = torch_archive_open(&archive, file, err);
    groups = rc == 0 ? value_get(torch_archive_root(archive), "param_groups") : NULL;
    for (int fused = 1; rc == 0 && groups && !same && fused >= 0; fused--) {
        rc = optim_order(&order, &a, p, s->arch, fused, err);
        if (rc == 0) {
            const int64_t *size = own_groups(&a, &order);

            rc = size ? 0 : ckpt_nomem(err, order.n * sizeof *size);
            same = size && (groups_are(groups, size) || is_whole(groups, &order));
        }
    }
    if (rc == 0 && groups && !same)
        rc = ckpt_fail_as(err, CKPT_EMISMATCH, "groups", "optimizer.pt: the run had other groups "
                          "of parameters: `optim`, `lr_for`, `weight_decay_for` and "
                          "`loraplus_lr_ratio` must be as before");
    torch_archive_close(archive);
    ckpt_arena_release(&a);
    return rc;
}

void optim_tell_change(const struct session *s, const char *path, enum op_moments was)
{
    static const char *const name[] = {[OP_MOMENTS_F32] = "float32", [OP_MOMENTS_BF16] = "bfloat16",
                                       [OP_MOMENTS_8BIT] = "8-bit codes"};

    if (was != s->zero_opts.moments && s->comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "%s: moments were stored as %s, this run keeps them as %s",
                 path, name[was], name[s->zero_opts.moments]);
}

int optim_steps(int64_t *steps, const char *file, struct ckpt_err *err)
{
    struct torch_archive *archive = NULL;
    const struct value *state, *v = NULL;
    struct ckpt_file *f;
    double count = -1;
    int rc = ckpt_path_file(&f, file, 0, err);

    *steps = -1;
    if (rc == 0)
        rc = torch_archive_open(&archive, f, err);
    if (rc)
        return ckpt_err_in(err, "%s", file);
    state = value_get(torch_archive_root(archive), "state");
    for (size_t i = 0; value_is(state, VALUE_DICT) && !v && i < state->u.dict.n; i++)
        v = value_get(state->u.dict.val[i], "step");    /* Muon's matrices have none */
    if (value_is(v, VALUE_TENSOR)) {
        enum ckpt_dtype type = v->u.tensor->dtype;
        int64_t numel = 0;
        unsigned char raw[8];

        if (ckpt_shape_numel(&numel, &v->u.tensor->shape) && numel == 1 &&
            (type == CKPT_F32 || type == CKPT_F64 || type == CKPT_I64)) {
            rc = torch_archive_read(raw, archive, v->u.tensor, 0, 1, err);
            if (rc == 0)
                ckpt_convert(&count, CKPT_F64, raw, type, 1);
        }
    } else if (!value_as_float(v, &count)) {
        count = -1;
    }
    if (rc == 0 && count >= 0 && count < 0x1p53)
        *steps = (int64_t)count;
    torch_archive_close(archive);
    return rc;
}

int optim_load(struct session *s, const char *file, const struct optim_row *row, bool prove,
               int64_t *steps, struct ckpt_err *err)
{
    const struct ckpt_open_opts opts = {.prove = prove};
    size_t n = zero_flat(s->zero)->params->n;
    struct file f = {.row = row, .index = ckpt_alloc(n, sizeof *f.index),
                     .from = ckpt_alloc(n, sizeof *f.from), .name = ckpt_alloc(n, sizeof *f.name),
                     .piece = ckpt_alloc_buffer((size_t)PIECE * sizeof(float))};
    const char *what;
    int rc = f.index && f.from && f.name && f.piece
                 ? 0 : ckpt_nomem(err, (size_t)PIECE * sizeof(float));

    if (rc == 0)
        rc = check_groups(s, file, err);
    if (rc == 0)
        rc = ckpt_open_as(&f.raw, "torch", file, &opts, err);
    f.packed = rc == 0 && bnb_count(f.raw, &what) > 0;
    if (rc == 0)
        rc = ckpt_open_as(&f.seen, "torch", file, &opts, err);
    if (rc == 0 && f.packed)
        rc = bnb_view(&f.seen, f.seen, err);
    for (int k = 0; rc == 0 && k < 2 - s->zero_opts.fewer; k++)
        rc = load(s, &f, k, err);
    if (rc == 0)
        rc = optim_steps(steps, file, err);
    if (rc == 0 && s->zero_opts.fewer < 2)
        optim_tell_change(s, file, f.kind);
    ckpt_source_close(f.seen);
    ckpt_source_close(f.raw);
    ckpt_free(f.index);
    ckpt_free(f.from);
    ckpt_free(f.name);
    ckpt_free(f.piece);
    return rc;
}
