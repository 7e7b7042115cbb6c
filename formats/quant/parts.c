/* quant/parts - see quant/parts.h. */
#include "formats/quant/parts.h"

#include <stdio.h>
#include <string.h>

#define MAX_GRID    ((int64_t)1 << 22)  /* most scales in a row of blocks, which are held at once */
#define MAX_COLUMNS ((int64_t)1 << 24)  /* most columns with a group index each: held too */
#define MAX_GROUPS  ((int64_t)1 << 17)  /* groups of a transposed matrix */

/* -- names ----------------------------------------------------------------------------------- */

static bool is_f8(enum ckpt_dtype t)
{
    return t == CKPT_F8_E4M3 || t == CKPT_F8_E5M2 || t == CKPT_F8_E4M3FNUZ ||
           t == CKPT_F8_E5M2FNUZ;
}

/* The scale of a tensor of 8-bit codes. */
static size_t scale_of(const struct ckpt_source *src, const struct ckpt_tensor *t)
{
    static const char *const of_weight[] = {".scale", ".scale_weight"};
    size_t n = strlen(t->name), i, y = quant_stem(t->name, ".weight");

    if ((i = quant_beside(src, t->name, n, "_scale")) != QUANT_NONE || !is_f8(t->dtype))
        return i;
    i = quant_beside(src, t->name, n, "_scale_inv");
    for (size_t k = 0; y && i == QUANT_NONE && k < 2; k++)
        i = quant_beside(src, t->name, y, of_weight[k]);
    return i;
}

enum quant_how quant_how_of(const struct ckpt_source *src, size_t i)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i), *scales;
    size_t y, k;

    if (is_f8(t->dtype) || t->dtype == CKPT_I8)
        return scale_of(src, t) != QUANT_NONE ? QUANT_SCALED : QUANT_PLAIN;
    if (t->dtype != CKPT_I32 || t->shape.rank < 2)
        return QUANT_PLAIN;
    if ((y = quant_stem(t->name, ".weight_packed")) > 0)
        return quant_beside(src, t->name, y, ".weight_scale") != QUANT_NONE ? QUANT_PACKED
                                                                            : QUANT_PLAIN;
    if ((y = quant_stem(t->name, ".qweight")) == 0 || t->shape.rank != 2 ||
        quant_beside(src, t->name, y, ".qzeros") == QUANT_NONE ||
        (k = quant_beside(src, t->name, y, ".scales")) == QUANT_NONE)
        return QUANT_PLAIN;
    scales = ckpt_source_tensor(src, k);
    if (scales->shape.rank == 2 && t->shape.dim[1] <= INT64_MAX / 8 &&
        scales->shape.dim[1] == 8 * t->shape.dim[1])
        return QUANT_AWQ;
    return QUANT_GPTQ;
}

/* Whether scales are of activations or of the KV cache, not of weights. */
static bool is_of_activations(const char *name)
{
    static const char *const tails[] = {
        ".input_scale", ".input_zero_point", ".input_scale_ub", ".input_global_scale",
        ".output_scale", ".output_zero_point", ".activation_scale", ".activation_scale_inv",
        ".scale_input", ".q_scale", ".k_scale", ".v_scale", ".prob_scale",
    };

    for (size_t k = 0; k < sizeof tails / sizeof tails[0]; k++)
        if (quant_stem(name, tails[k]))
            return true;
    return strcmp(name, "scaled_fp8") == 0;
}

/* -- shapes ---------------------------------------------------------------------------------- */

/* CKPT_EFORMAT for a tensor beside the codes with the wrong shape or dtype. */
static int misfit(const struct ckpt_source *src, size_t i, const char *wanted,
                  struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    char shape[128];

    return ckpt_fail(err, CKPT_EFORMAT, "%s is %s of %s, %s wanted", t->name,
                     ckpt_shape_text(shape, sizeof shape, &t->shape), ckpt_dtype_name(t->dtype),
                     wanted);
}

/* 16-bit scales determine the dtype of values. */
static int take_scale(struct quant_part *p, const struct ckpt_source *src,
                      const struct quant_config *config, struct ckpt_err *err)
{
    enum ckpt_dtype t = ckpt_source_tensor(src, p->scale)->dtype;

    if (t != CKPT_F32 && t != CKPT_F16 && t != CKPT_BF16 && t != CKPT_F8_E8M0)
        return misfit(src, p->scale, "floats", err);
    p->seen.dtype = t == CKPT_F16 || t == CKPT_BF16             ? t
               : config->dtype != CKPT_DTYPE_NONE          ? config->dtype
                                                           : CKPT_BF16;
    return 0;
}

static bool blocks_fit(const struct quant_part *p, int64_t rows, int64_t columns)
{
    return quant_blocks(p->rows, rows) == p->grid[0] &&
           quant_blocks(p->columns, columns) == p->grid[1];
}

/* The number of elements per scale follows from the counts, or is one of the sizes in the
 * config. */
static int find_blocks(struct quant_part *p, const struct ckpt_source *src,
                       const struct quant_config *config, struct ckpt_err *err)
{
    int64_t rows = p->rows, columns = p->columns;
    bool found = p->grid[1] == 1 && (p->grid[0] == 1 || p->grid[0] == p->rows);
    char wanted[96];

    if (found)
        rows = p->grid[0] == 1 ? p->rows : 1;
    for (size_t k = 0; !found && k < config->n_block; k++) {
        rows = config->block[k][0];
        columns = config->block[k][1];
        found = blocks_fit(p, rows, columns);
    }
    if (!found && blocks_fit(p, 128, 128)) {
        rows = columns = 128;
        found = true;
    } else if (!found && config->n_block == 0 && p->grid[0] > 0 && p->grid[1] > 0 &&
               p->rows % p->grid[0] == 0 && p->columns % p->grid[1] == 0) {
        rows = p->rows / p->grid[0];
        columns = p->columns / p->grid[1];
        found = true;
    }
    snprintf(wanted, sizeof wanted, "a scale for each block of %lld x %lld elements",
             (long long)p->rows, (long long)p->columns);
    if (!found || p->grid[1] > MAX_GRID)
        return misfit(src, p->scale, wanted, err);
    p->block[0] = rows ? rows : 1;
    p->block[1] = columns ? columns : 1;
    return 0;
}

/* The grid of a scale's shape, for the matrices of p's shape. */
static int find_grid(struct quant_part *p, const struct ckpt_source *src,
                     const struct quant_config *config, struct ckpt_err *err)
{
    const struct ckpt_tensor *s = ckpt_source_tensor(src, p->scale);
    int rank = p->seen.shape.rank;
    bool same = s->shape.rank == rank && rank >= 2;

    p->rows = rank >= 2 ? p->seen.shape.dim[rank - 2] : 1;
    p->columns = rank >= 1 ? p->seen.shape.dim[rank - 1] : 1;
    for (int k = 0; k + 2 < rank; k++)
        same = same && s->shape.dim[k] == p->seen.shape.dim[k];
    if (s->numel == 1 && !same) {               /* one for all */
        for (int k = 0; k + 2 < rank; k++)
            p->rows *= p->seen.shape.dim[k];    /* cannot overflow: the shape was checked */
        p->grid[0] = p->grid[1] = 1;
    } else if (same) {
        p->grid[0] = s->shape.dim[rank - 2];
        p->grid[1] = s->shape.dim[rank - 1];
    } else if (rank == 2 && s->shape.rank == 1 && s->numel == p->rows) {
        p->grid[0] = p->rows;
        p->grid[1] = 1;
    } else {
        return misfit(src, p->scale, "a scale for each block of it", err);
    }
    return find_blocks(p, src, config, err);
}

/* -- layouts --------------------------------------------------------------------------------- */

static int scaled(struct quant_part *p, const struct ckpt_source *src,
                  const struct quant_config *config, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, p->seen.codes);
    size_t n = strlen(t->name);
    int rc;

    p->scale = scale_of(src, t);
    if (t->dtype == CKPT_I8 || is_f8(t->dtype))
        p->zero = quant_beside(src, t->name, n, "_zero_point");
    if ((rc = take_scale(p, src, config, err)) != 0 ||
        (rc = find_grid(p, src, config, err)) != 0)
        return rc;
    if (p->zero != QUANT_NONE) {
        const struct ckpt_tensor *z = ckpt_source_tensor(src, p->zero);

        if (z->numel != ckpt_source_tensor(src, p->scale)->numel ||
            (z->dtype != CKPT_I8 && z->dtype != CKPT_U8 && z->dtype != CKPT_I32 &&
             ckpt_dtype_class(z->dtype) != CKPT_CLASS_FLOAT))
            return misfit(src, p->zero, "one for each scale", err);
    }
    return 0;
}

/* The shape that is stored as two numbers. */
static int read_shape(struct quant_part *p, struct ckpt_source *src, size_t i,
                      struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    int64_t wide[2];
    int32_t narrow[2];
    int rc;

    if (t->numel != 2 || (t->dtype != CKPT_I64 && t->dtype != CKPT_I32))
        return misfit(src, i, "two integers", err);
    if ((rc = ckpt_source_read(src, i, 0, 2, t->dtype == CKPT_I64 ? (void *)wide : narrow,
                               err)) != 0)
        return rc;
    for (int k = 0; k < 2; k++) {
        p->seen.shape.dim[k] = t->dtype == CKPT_I64 ? wide[k] : narrow[k];
        if (p->seen.shape.dim[k] < 0 || p->seen.shape.dim[k] > INT32_MAX)
            return ckpt_fail(err, CKPT_EFORMAT, "%s: a dimension of %lld", t->name,
                             (long long)p->seen.shape.dim[k]);
    }
    p->seen.shape.rank = 2;
    return 0;
}

/* Bits per code: from the config, or from the number of words per row. */
static unsigned bits_of_words(const struct quant_config *config, int64_t columns, int64_t words)
{
    const int64_t choice[] = {config->bits, 4, 8, 2};

    for (size_t k = 0; k < 4; k++)
        if ((choice[k] == 2 || choice[k] == 4 || choice[k] == 8) &&
            quant_blocks(columns, 32 / choice[k]) == words)
            return (unsigned)choice[k];
    return 0;
}

static int check_packed_zero(const struct quant_part *p, const struct ckpt_source *src,
                             struct ckpt_err *err)
{
    const struct ckpt_tensor *z = ckpt_source_tensor(src, p->zero);
    int64_t rows = z->dtype == CKPT_I32 ? quant_blocks(p->grid[0], 32 / (int64_t)p->bits)
                                        : p->grid[0];

    if (z->shape.rank != 2 || z->shape.dim[0] != rows || z->shape.dim[1] != p->grid[1] ||
        (z->dtype != CKPT_I32 && z->dtype != CKPT_I8))
        return misfit(src, p->zero, "one for each scale", err);
    return 0;
}

static int check_order(const struct quant_part *p, const struct ckpt_source *src,
                       int64_t columns, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, p->order);

    if (t->dtype != CKPT_I32 || t->numel != columns)
        return misfit(src, p->order, "the group of each column", err);
    if (columns > MAX_COLUMNS)
        return ckpt_fail(err, CKPT_ELIMIT, "%lld columns in any order, %lld at most",
                         (long long)columns, (long long)MAX_COLUMNS);
    return 0;
}

static int packed(struct quant_part *p, struct ckpt_source *src,
                  const struct quant_config *config, struct ckpt_arena *a, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, p->seen.codes);
    size_t y = quant_stem(t->name, "_packed"), shape = quant_beside(src, t->name, y, "_shape");
    int rc;

    p->seen.name = ckpt_arena_strndup(a, t->name, y);
    if (!p->seen.name)
        return ckpt_nomem(err, y);
    p->scale = quant_beside(src, t->name, y, "_scale");
    p->zero = quant_beside(src, t->name, y, "_zero_point");
    p->order = quant_beside(src, t->name, y, "_g_idx");
    if (shape == QUANT_NONE)
        return ckpt_fail(err, CKPT_EFORMAT, "%s_shape is not there", p->seen.name);
    if ((rc = take_scale(p, src, config, err)) != 0 ||
        (rc = read_shape(p, src, shape, err)) != 0)
        return rc;
    if (t->shape.rank != 2 || t->shape.dim[0] != p->seen.shape.dim[0])
        return misfit(src, shape, "the shape of the codes", err);
    p->bits = bits_of_words(config, p->seen.shape.dim[1], t->shape.dim[1]);
    if (p->bits == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%lld elements in %lld words a row are not of 2, "
                         "4 or 8 bits", (long long)p->seen.shape.dim[1],
                         (long long)t->shape.dim[1]);
    rc = find_grid(p, src, config, err);
    if (rc == 0 && p->zero != QUANT_NONE)
        rc = check_packed_zero(p, src, err);
    if (rc == 0 && p->order != QUANT_NONE)
        rc = check_order(p, src, p->columns, err);
    return rc;
}

/* Inputs that share a group of N scales. */
static int find_groups(struct quant_part *p, const struct ckpt_source *src,
                       const struct quant_config *config, struct ckpt_err *err)
{
    const struct ckpt_tensor *s = ckpt_source_tensor(src, p->scale);
    char wanted[96];

    snprintf(wanted, sizeof wanted, "scales for groups of %lld inputs, [.., %lld],",
             (long long)p->columns, (long long)p->rows);
    if (s->shape.rank != 2 || s->shape.dim[1] != p->rows || s->shape.dim[0] > MAX_GROUPS ||
        s->shape.dim[0] < 1)
        return misfit(src, p->scale, wanted, err);
    p->grid[0] = s->shape.dim[0];
    p->grid[1] = p->rows;
    p->block[0] = p->grid[0] == 1 ? p->columns : 0;
    for (size_t k = 0; p->block[0] == 0 && k < config->n_block; k++)
        if (config->block[k][0] == 1 &&
            quant_blocks(p->columns, config->block[k][1]) == p->grid[0])
            p->block[0] = config->block[k][1];
    if (p->block[0] == 0 && config->n_block == 0 && p->columns % p->grid[0] == 0)
        p->block[0] = p->columns / p->grid[0];
    if (p->block[0] == 0 && p->order == QUANT_NONE)
        return misfit(src, p->scale, wanted, err);
    p->block[0] = p->block[0] ? p->block[0] : 1;
    return 0;
}

/* GPTQ and AWQ: p->rows outputs, p->columns inputs. */
static int words(struct quant_part *p, const struct ckpt_source *src,
                 const struct quant_config *config, struct ckpt_arena *a, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, p->seen.codes), *z;
    size_t y = quant_stem(t->name, ".qweight");
    bool awq = p->how == QUANT_AWQ;
    int64_t per;
    int rc;

    p->seen.name = ckpt_arena_printf(a, "%.*s.weight", (int)y, t->name);
    if (!p->seen.name)
        return ckpt_nomem(err, y);
    p->scale = quant_beside(src, t->name, y, ".scales");
    p->zero = quant_beside(src, t->name, y, ".qzeros");
    p->order = awq ? QUANT_NONE : quant_beside(src, t->name, y, ".g_idx");
    p->less = awq || config->zeros_as_they_are ? 0 : 1;
    z = ckpt_source_tensor(src, p->zero);
    if ((rc = take_scale(p, src, config, err)) != 0)
        return rc;
    if (t->shape.dim[0] > INT32_MAX || t->shape.dim[1] > INT32_MAX || z->shape.rank != 2 ||
        z->shape.dim[1] > INT32_MAX || z->dtype != CKPT_I32)
        return misfit(src, p->zero, "words of zeros", err);
    p->bits = awq ? 4 : 0;
    for (unsigned b = 2; p->bits == 0 && b <= 8; b++)   /* as many as a row of zeros takes */
        p->bits = 32 * z->shape.dim[1] == t->shape.dim[1] * b ? b : 0;
    if (p->bits == 0)
        return misfit(src, p->zero, "one for each scale", err);
    if (32 % p->bits)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "codes of %u bits are not read", p->bits);
    per = 32 / (int64_t)p->bits;
    p->rows = awq ? 8 * t->shape.dim[1] : t->shape.dim[1];
    p->columns = awq ? t->shape.dim[0] : per * t->shape.dim[0];
    p->seen.shape = ckpt_shape_2d(p->rows, p->columns);
    if (p->order != QUANT_NONE && (rc = check_order(p, src, p->columns, err)) != 0)
        return rc;
    if ((rc = find_groups(p, src, config, err)) != 0)
        return rc;
    if (p->rows % per || z->shape.dim[0] != p->grid[0] || z->shape.dim[1] != p->rows / per)
        return misfit(src, p->zero, "one for each scale", err);
    return 0;
}

/* -- the list -------------------------------------------------------------------------------- */

/* Refuse codes without a scale in a quantised checkpoint. */
static int plain(const struct ckpt_tensor *t, struct ckpt_err *err)
{
    if (t->shape.rank < 2 || (!is_f8(t->dtype) && t->dtype != CKPT_I8))
        return 0;
    return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s elements without a scale: neither "
                        "%s_scale_inv nor %s_scale is there", ckpt_dtype_name(t->dtype), t->name,
                        t->name);
}

static int one(struct quant_part *p, struct ckpt_source *src, size_t i,
               const struct quant_config *config, struct ckpt_arena *a, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    int rc;

    *p = (struct quant_part){.how = quant_how_of(src, i), .scale = QUANT_NONE,
                             .zero = QUANT_NONE, .order = QUANT_NONE};
    p->seen = (struct quant_seen){.name = t->name, .dtype = t->dtype, .shape = t->shape,
                                  .codes = i, .packed = p->how != QUANT_PLAIN};
    rc = p->how == QUANT_SCALED   ? scaled(p, src, config, err)
         : p->how == QUANT_PACKED ? packed(p, src, config, a, err)
         : p->how == QUANT_PLAIN  ? plain(t, err)
                                  : words(p, src, config, a, err);
    return rc ? ckpt_err_in(err, "tensor %s", t->name) : 0;
}

/* Mark tensors that belong to a packed one: they are not listed. */
static void mark(bool *taken, const struct ckpt_source *src, const struct quant_part *p)
{
    const size_t parts[] = {p->scale, p->zero, p->order};

    for (size_t k = 0; k < 3; k++)
        if (parts[k] != QUANT_NONE)
            taken[parts[k]] = true;
    if (p->how == QUANT_PACKED) {
        size_t shape = quant_beside(src, p->seen.name, strlen(p->seen.name), "_shape");

        if (shape != QUANT_NONE)
            taken[shape] = true;
    }
}

int quant_parts(struct quant_seen_list *out, struct ckpt_source *src,
                const struct quant_config *config, struct ckpt_err *err)
{
    size_t all = ckpt_source_count(src);
    struct quant_part *part = ckpt_arena_alloc(&out->tensors.arena, all, sizeof *part);
    bool *taken = ckpt_alloc(all, sizeof *taken);
    int rc = part && taken ? 0 : ckpt_nomem(err, all * sizeof *part);

    out->part = part;
    for (int pass = 0; rc == 0 && pass < 2; pass++)
        for (size_t i = 0; rc == 0 && i < all; i++) {
            struct quant_part *p = &part[out->n];
            bool codes = quant_how_of(src, i) != QUANT_PLAIN;

            /* First everything packed, which determines the parts; then the rest. */
            if (pass == 0 ? !codes
                          : taken[i] || is_of_activations(ckpt_source_tensor(src, i)->name))
                continue;
            rc = one(p, src, i, config, &out->tensors.arena, err);
            if (rc == 0 && pass == 0)
                mark(taken, src, p);
            out->n += pass == 1;
        }
    ckpt_free(taken);
    return rc;
}
