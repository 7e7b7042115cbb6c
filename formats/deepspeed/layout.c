/* deepspeed/layout - see deepspeed/layout.h. */
#include "formats/deepspeed/layout.h"

int64_t ds3_part(int64_t numel, int world_size)
{
    return numel / world_size + (numel % world_size != 0);
}

struct ds_piece ds3_piece(int64_t numel, int64_t base, int rank, int world_size)
{
    int64_t part = ds3_part(numel, world_size), start = part * rank;
    int64_t count = numel - start < part ? numel - start : part;

    return (struct ds_piece){.start = start < numel ? start : numel,
                             .count = count > 0 ? count : 0, .at = base};
}

int64_t ds12_part(int64_t group_numel, int world_size, int align)
{
    int64_t unit = align * (int64_t)world_size;

    return (group_numel / unit + (group_numel % unit != 0)) * unit / world_size;
}

int64_t ds12_padding(int64_t group_numel, int rank, int world_size, int align)
{
    int64_t part = ds12_part(group_numel, world_size, align);
    int64_t over = part * (rank + 1) - group_numel;

    return over < 0 ? 0 : over > part ? part : over;
}

struct ds_piece ds12_piece(int64_t offset, int64_t numel, int64_t group_numel, int rank,
                           int world_size, int align)
{
    int64_t part = ds12_part(group_numel, world_size, align), from = part * rank, to = from + part;
    int64_t lo = offset > from ? offset : from;
    int64_t hi = offset + numel < to ? offset + numel : to;

    if (lo >= hi)
        return (struct ds_piece){.start = 0, .count = 0, .at = 0};
    return (struct ds_piece){.start = lo - offset, .count = hi - lo, .at = lo - from};
}
