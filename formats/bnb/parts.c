/* bnb/parts - see bnb/parts.h.  Names and shapes are in bnb.h. */
#include "formats/bnb/parts.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/convert.h"
#include "libckpt/base/json.h"

#define MAX_STATE   65536       /* most bytes of a packed quant_state; about 200 are usual */
#define WRAPPER     "__bnb_optimizer_quant_state__."

static const char *const states[] = {".quant_state.bitsandbytes__nf4",
                                     ".quant_state.bitsandbytes__fp4"};

static bool ends_in(const char *s, size_t n, const char *tail)
{
    size_t k = strlen(tail);

    return n >= k && memcmp(s + n - k, tail, k) == 0;
}

/* An 8-bit optimizer's state: "...state1" with "...absmax1" beside it.  Gives '1' or '2'. */
static char optimizer_state(const struct ckpt_source *src, size_t i)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    size_t n = strlen(t->name);
    char which = n ? t->name[n - 1] : 0, tail[16];

    if (t->dtype != CKPT_U8 || (!ends_in(t->name, n, ".state1") && !ends_in(t->name, n, ".state2")))
        return 0;
    snprintf(tail, sizeof tail, "absmax%c", which);
    return quant_beside(src, t->name, n - 6, tail) != QUANT_NONE ? which : 0;
}

bool bnb_hint(const struct ckpt_source *src)
{
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const char *name = ckpt_source_tensor(src, i)->name;
        size_t n = strlen(name);

        if (ends_in(name, n, states[0]) || ends_in(name, n, states[1]) ||
            ends_in(name, n, ".SCB") || ends_in(name, n, "absmax1"))
            return true;
    }
    return false;
}

enum what { PLAIN, NF4, FP4, INT8, OPTIMIZER };

static enum what what_of(const struct ckpt_source *src, size_t i)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    size_t n = strlen(t->name);

    for (int k = 0; k < 2; k++)
        if (quant_beside(src, t->name, n, states[k]) != QUANT_NONE)
            return k ? FP4 : NF4;
    if (t->dtype == CKPT_I8 && ends_in(t->name, n, ".weight") &&
        quant_beside(src, t->name, n - 6, "SCB") != QUANT_NONE)
        return INT8;
    return optimizer_state(src, i) ? OPTIMIZER : PLAIN;
}

const char *bnb_kind(const struct ckpt_source *src, size_t i)
{
    static const char *const names[] = {NULL, "nf4", "fp4", "int8", "8-bit optimizer"};

    return names[what_of(src, i)];
}

/* Index of a tensor that must exist. */
static int need(size_t *out, const struct ckpt_source *src, const char *base, size_t n,
                const char *tail, struct ckpt_err *err)
{
    *out = quant_beside(src, base, n, tail);
    return *out != QUANT_NONE ? 0 : ckpt_fail(err, CKPT_EFORMAT, "%.*s%s is not there", (int)n,
                                            base, tail);
}

/* Exactly n floats of a tensor, in the arena. */
static int load_map(float **out, struct ckpt_source *src, size_t i, int64_t n,
                    struct ckpt_arena *a, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    float *map = ckpt_arena_alloc(a, (size_t)n, sizeof *map);

    if (!map)
        return ckpt_nomem(err, (size_t)n * sizeof *map);
    if (t->dtype != CKPT_F32 || t->numel != n)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %lld elements of %s, %lld of F32 wanted", t->name,
                         (long long)t->numel, ckpt_dtype_name(t->dtype), (long long)n);
    *out = map;
    return ckpt_source_read(src, i, 0, n, map, err);
}

static bool is_float(enum ckpt_dtype t)
{
    return t == CKPT_F32 || t == CKPT_F16 || t == CKPT_BF16;
}

/* Check for one scale per block, of a dtype suitable for scales. */
static int check_scales(const struct ckpt_source *src, size_t i, int64_t n, bool bytes,
                        struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);

    if (t->numel != n || (bytes ? t->dtype != CKPT_U8 : !is_float(t->dtype)))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %lld elements of %s, %lld of %s wanted", t->name,
                         (long long)t->numel, ckpt_dtype_name(t->dtype), (long long)n,
                         bytes ? "U8" : "F32");
    return 0;
}

/* -- 4 bits ---------------------------------------------------------------------------------- */

static int load_state(json_t **out, struct ckpt_source *src, size_t i, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    char *text;
    int rc;

    *out = NULL;
    if (t->dtype != CKPT_U8 || t->numel > MAX_STATE)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %lld elements of %s, at most %d of U8 wanted",
                         t->name, (long long)t->numel, ckpt_dtype_name(t->dtype), MAX_STATE);
    text = ckpt_alloc((size_t)t->numel + 1, 1);
    if (!text)
        return ckpt_nomem(err, (size_t)t->numel);
    rc = ckpt_source_read(src, i, 0, t->numel, text, err);
    if (rc == 0)
        rc = ckpt_json_parse(out, text, (size_t)t->numel, CKPT_JSON_PYTHON, err);
    ckpt_free(text);
    return rc ? ckpt_err_in(err, "%s", t->name) : 0;
}

static int state_shape(struct ckpt_shape *shape, int64_t *numel, const json_t *state,
                       struct ckpt_err *err)
{
    const json_t *list = json_object_get(state, "shape"), *v;
    size_t i;

    memset(shape, 0, sizeof *shape);
    if (!json_is_array(list) || json_array_size(list) > CKPT_MAX_RANK)
        return ckpt_fail(err, CKPT_EFORMAT, "quant_state: shape is no list of up to %d",
                         CKPT_MAX_RANK);
    json_array_foreach ((json_t *)list, i, v)
        shape->dim[shape->rank++] = json_is_integer(v) ? json_integer_value(v) : -1;
    return ckpt_shape_numel(numel, shape)
               ? 0
               : ckpt_fail(err, CKPT_EFORMAT, "quant_state: its shape is out of range");
}

static int block_size(int64_t *out, const json_t *state, const char *key, struct ckpt_err *err)
{
    if (ckpt_json_int(out, state, key, err))
        return ckpt_err_in(err, "quant_state");
    if (*out < 1 || *out > INT32_MAX)
        return ckpt_fail(err, CKPT_EFORMAT, "quant_state: %s is %lld", key, (long long)*out);
    return 0;
}

static int nested(struct bnb_part *p, struct ckpt_source *src, const char *base, size_t n,
                  const json_t *state, struct ckpt_arena *a, struct ckpt_err *err)
{
    double offset = 0;
    float *values = NULL;
    size_t map;
    int rc;

    if ((rc = block_size(&p->nested_block, state, "nested_blocksize", err)) != 0 ||
        (rc = ckpt_json_num_or(&offset, state, "nested_offset", 0, err)) != 0 ||
        (rc = need(&map, src, base, n, ".nested_quant_map", err)) != 0 ||
        (rc = load_map(&values, src, map, 256, a, err)) != 0)
        return rc;
    p->nested_map = values;
    p->offset = (float)offset;
    return check_scales(src, p->nested_scale, quant_blocks(p->n_scale, p->nested_block), false,
                        err);
}

static int four_bits(struct bnb_part *p, struct ckpt_source *src, size_t i, const char *tail,
                     struct ckpt_arena *a, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    size_t n = strlen(t->name), map;
    float *values = NULL;
    json_t *state = NULL;
    const char *dtype;
    int64_t numel = 0;
    int rc = load_state(&state, src, quant_beside(src, t->name, n, tail), err);

    p->kind = BNB_NIBBLES;
    if (rc == 0)
        rc = state_shape(&p->seen.shape, &numel, state, err);
    if (rc == 0)
        rc = ckpt_json_str(&dtype, state, "dtype", err);
    if (rc == 0)
        rc = block_size(&p->block, state, "blocksize", err);
    if (rc == 0) {
        p->seen.dtype = ckpt_dtype_parse(dtype);
        if (!is_float(p->seen.dtype))
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "quant_state: dtype %s", dtype);
        else if (ckpt_dtype_size(t->dtype) == 0 ||
                 (uint64_t)numel / 2 + (uint64_t)numel % 2 > ckpt_tensor_bytes(t))
            rc = ckpt_fail(err, CKPT_EFORMAT, "%lld elements in %llu bytes", (long long)numel,
                           (unsigned long long)ckpt_tensor_bytes(t));
    }
    if (rc == 0)
        rc = need(&map, src, t->name, n, ".quant_map", err);
    if (rc == 0)
        rc = load_map(&values, src, map, 16, a, err);
    if (rc == 0 && values[8] == 0)
        values[8] = -0.0f;              /* fp4 has a signed zero, which the kernels keep */
    p->map = values;
    if (rc == 0)
        rc = need(&p->scale, src, t->name, n, ".absmax", err);
    if (rc == 0) {
        p->n_scale = quant_blocks(numel, p->block);
        p->slice = numel ? numel : 1;
        p->scales_of_slice = p->n_scale;
        p->nested_scale = quant_beside(src, t->name, n, ".nested_absmax");
        rc = check_scales(src, p->scale, p->n_scale, p->nested_scale != QUANT_NONE, err);
    }
    if (rc == 0 && p->nested_scale != QUANT_NONE)
        rc = nested(p, src, t->name, n, state, a, err);
    json_decref(state);
    return rc;
}

/* -- 8 bits ---------------------------------------------------------------------------------- */

static int int8(struct bnb_part *p, struct ckpt_source *src, size_t i, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    size_t n = strlen(t->name), format = quant_beside(src, t->name, n, "_format");
    unsigned char order[8] = {0};
    int rc;

    if ((rc = need(&p->scale, src, t->name, n - 6, "SCB", err)) != 0)
        return rc;
    if (t->shape.rank != 2)
        return ckpt_fail(err, CKPT_EFORMAT, "%d axes, 2 wanted", t->shape.rank);
    if (format != QUANT_NONE && ckpt_source_tensor(src, format)->numel == 1 &&
        ckpt_dtype_size(ckpt_source_tensor(src, format)->dtype) <= 8 &&
        (rc = ckpt_source_read(src, format, 0, 1, order, err)) != 0)
        return rc;
    if (order[0] != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "its rows are stored in order %u", order[0]);
    p->kind = BNB_INT8;
    p->seen.dtype = CKPT_F32;
    p->n_scale = t->shape.dim[0];
    p->block = t->shape.dim[1] ? t->shape.dim[1] : 1;
    p->slice = t->numel ? t->numel : 1;
    p->scales_of_slice = p->n_scale;
    return check_scales(src, p->scale, p->n_scale, false, err);
}

/* The block size that yields that many scales for that many elements: 256, or formerly 2048. */
static int64_t optimizer_block(int64_t n, int64_t scales)
{
    return quant_blocks(n, 256) == scales ? 256 : quant_blocks(n, 2048) == scales ? 2048 : 0;
}

static int optimizer(struct bnb_part *p, struct ckpt_source *src, size_t i, char which,
                     struct ckpt_arena *a, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i), *absmax;
    size_t n = strlen(t->name) - 6, map;
    int64_t slices = 1;
    float *values;
    char tail[16];
    int rc;

    snprintf(tail, sizeof tail, "absmax%c", which);
    if ((rc = need(&p->scale, src, t->name, n, tail, err)) != 0)
        return rc;
    snprintf(tail, sizeof tail, "qmap%c", which);
    if ((rc = need(&map, src, t->name, n, tail, err)) != 0 ||
        (rc = load_map(&values, src, map, 256, a, err)) != 0)
        return rc;
    p->map = values;
    absmax = ckpt_source_tensor(src, p->scale);
    p->kind = BNB_BYTES;
    p->seen.dtype = CKPT_F32;
    p->n_scale = absmax->numel;
    if (absmax->shape.rank == 2 && t->shape.rank > 1 && t->shape.dim[0] == absmax->shape.dim[0] &&
        t->shape.dim[0] > 0)
        slices = t->shape.dim[0];                       /* AdEMAMix */
    p->slice = t->numel / slices;
    p->scales_of_slice = p->n_scale / slices;
    p->block = optimizer_block(p->slice, p->scales_of_slice);
    if (p->block == 0 || p->slice == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%lld scales of %lld elements are no blocks of 256 or "
                         "2048", (long long)p->scales_of_slice, (long long)p->slice);
    return check_scales(src, p->scale, p->n_scale, false, err);
}

/* -- names ----------------------------------------------------------------------------------- */

/* Whether tensor i only describes how another one is packed. */
static bool describes(const struct ckpt_source *src, size_t i)
{
    static const struct { const char *tail, *of; enum what first, last; } rows[] = {
        {".absmax", "", NF4, FP4}, {".quant_map", "", NF4, FP4}, {".nested_absmax", "", NF4, FP4},
        {".nested_quant_map", "", NF4, FP4}, {".quant_state.bitsandbytes__nf4", "", NF4, FP4},
        {".quant_state.bitsandbytes__fp4", "", NF4, FP4}, {".SCB", ".weight", INT8, INT8},
        {".weight_format", ".weight", INT8, INT8}, {"absmax1", "state1", OPTIMIZER, OPTIMIZER},
        {"absmax2", "state2", OPTIMIZER, OPTIMIZER}, {"qmap1", "state1", OPTIMIZER, OPTIMIZER},
        {"qmap2", "state2", OPTIMIZER, OPTIMIZER},
    };
    const char *name = ckpt_source_tensor(src, i)->name;
    size_t n = strlen(name), k;

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        if (ends_in(name, n, rows[r].tail)) {
            k = quant_beside(src, name, n - strlen(rows[r].tail), rows[r].of);
            return k != QUANT_NONE && what_of(src, k) >= rows[r].first &&
                   what_of(src, k) <= rows[r].last;
        }
    return false;
}

/* Name "P.__bnb...state1" "P.exp_avg" if it has a partner of the same shape, else "P.state1". */
static const char *state_name(struct ckpt_arena *a, const struct ckpt_source *src, size_t i)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i), *other;
    const char *wrapper = strstr(t->name, WRAPPER), *tail;
    size_t n = strlen(t->name), k;

    if (!ends_in(t->name, n, ".state1") && !ends_in(t->name, n, ".state2"))
        return t->name;
    k = quant_beside(src, t->name, n - 1, t->name[n - 1] == '1' ? "2" : "1");
    other = k == QUANT_NONE ? NULL : ckpt_source_tensor(src, k);
    tail = !other || !ckpt_shape_equal(&t->shape, &other->shape) ? t->name + n - 6
           : t->name[n - 1] == '1'                               ? "exp_avg"
                                                                 : "exp_avg_sq";
    if (!wrapper)
        return ckpt_arena_printf(a, "%.*s%s", (int)(n - 6), t->name, tail);
    return ckpt_arena_printf(a, "%.*s%s", (int)(wrapper - t->name), t->name, tail);
}

/* Whether any state here is packed: then all of them get plain names. */
static bool any_state(const struct ckpt_source *src)
{
    for (size_t i = 0; i < ckpt_source_count(src); i++)
        if (optimizer_state(src, i))
            return true;
    return false;
}

static int one(struct bnb_part *p, struct ckpt_source *src, size_t i, struct ckpt_arena *a,
               struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    enum what what = what_of(src, i);
    int rc;

    p->seen = (struct quant_seen){.dtype = t->dtype, .shape = t->shape, .codes = i,
                                  .packed = what != PLAIN};
    rc = what == PLAIN       ? 0
         : what == INT8      ? int8(p, src, i, err)
         : what == OPTIMIZER ? optimizer(p, src, i, optimizer_state(src, i), a, err)
                             : four_bits(p, src, i, states[what == FP4], a, err);
    return rc ? ckpt_err_in(err, "tensor %s", t->name) : 0;
}

int bnb_parts(struct quant_seen_list *out, struct ckpt_source *src, struct ckpt_err *err)
{
    size_t all = ckpt_source_count(src);
    struct ckpt_arena *arena = &out->tensors.arena;
    struct bnb_part *part = ckpt_arena_alloc(arena, all, sizeof *part);
    bool optimizer = any_state(src);
    int rc = part ? 0 : ckpt_nomem(err, all * sizeof *part);

    out->part = part;
    for (size_t i = 0; rc == 0 && i < all; i++) {
        struct bnb_part *p = &part[out->n];

        if (describes(src, i))
            continue;
        rc = one(p, src, i, arena, err);
        if (rc)
            break;
        p->seen.name = optimizer ? state_name(arena, src, i) : ckpt_source_tensor(src, i)->name;
        rc = p->seen.name ? 0 : ckpt_nomem(err, 64);
        out->n++;
    }
    return rc;
}
