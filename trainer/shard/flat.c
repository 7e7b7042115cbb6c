/* flat - see flat.h. */
#include "trainer/shard/flat.h"

#include <stdbool.h>
#include <string.h>

#include "formats/weights/deepspeed_layout.h"

int flat_init(struct flat *f, const struct params *params, int stage, int rank, int world_size,
              struct ckpt_err *err)
{
    *f = (struct flat){.params = params, .stage = stage, .rank = rank, .world_size = world_size};
    f->base = ckpt_alloc(params->n + 1, sizeof *f->base);
    if (!f->base)
        return ckpt_nomem(err, (params->n + 1) * sizeof *f->base);
    for (size_t i = 0; i < params->n; i++)
        f->base[i + 1] = f->base[i] + flat_part(f, i);
    f->numel = f->base[params->n];
    return 0;
}

void flat_release(struct flat *f)
{
    ckpt_free(f->base);
    memset(f, 0, sizeof *f);
}

int64_t flat_part(const struct flat *f, size_t i)
{
    int64_t numel = f->params->item[i].numel;

    return f->stage == 3 ? ds3_part(numel, f->world_size) : numel;
}

struct flat_piece flat_piece(const struct flat *f, size_t i, int rank)
{
    int64_t numel = f->params->item[i].numel;
    struct ds_piece p = {.start = 0, .count = numel, .at = f->base[i]};

    if (f->stage == 3)
        p = ds3_piece(numel, f->base[i], rank, f->world_size);
    return (struct flat_piece){.start = p.start, .count = p.count, .at = p.at};
}

void flat_unit(const struct flat *f, int unit, size_t *first, size_t *end)
{
    size_t i = 0;

    while (i < f->params->n && f->params->item[i].unit < unit)
        i++;
    *first = i;
    while (i < f->params->n && f->params->item[i].unit == unit)
        i++;
    *end = i;
}

int64_t flat_unit_base(const struct flat *f, int unit)
{
    size_t first, end;

    flat_unit(f, unit, &first, &end);
    return f->base[first];
}

int64_t flat_unit_part(const struct flat *f, int unit)
{
    size_t first, end;

    flat_unit(f, unit, &first, &end);
    return f->base[end] - f->base[first];
}

/* Walk the pieces of a unit on all ranks; copy parts -> whole or the other way. */
static void walk(const struct flat *f, int unit, float *whole, float *parts, bool assemble)
{
    size_t first, end;
    int64_t part;

    flat_unit(f, unit, &first, &end);
    part = f->base[end] - f->base[first];
    for (int r = 0; r < f->world_size; r++)
        for (size_t i = first; i < end; i++) {
            struct flat_piece p = flat_piece(f, i, r);
            float *in_part = parts + r * part + (f->base[i] - f->base[first]);
            float *in_whole = whole + f->params->item[i].offset + p.start;
            size_t bytes = (size_t)p.count * sizeof(float);

            if (p.count > 0)
                memcpy(assemble ? in_whole : in_part, assemble ? in_part : in_whole, bytes);
            if (!assemble)
                memset(in_part + p.count, 0,
                       (size_t)(flat_part(f, i) - p.count) * sizeof(float));
        }
}

void flat_assemble(const struct flat *f, int unit, float *whole, float *parts)
{
    walk(f, unit, whole, parts, true);
}

void flat_spread(const struct flat *f, int unit, float *parts, float *whole)
{
    walk(f, unit, whole, parts, false);
}
