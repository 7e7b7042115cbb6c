/* guard - see guard.h. */
#include "libckpt/guard.h"

#include <stdatomic.h>
#include <zlib.h>

#include "libckpt/file_at.h"

#define PIECE_BYTES ((size_t)1 << 20)

enum { UNTOUCHED, BEGUN, WRONG };

struct guard {
    const struct ckpt_sum *sum;
    size_t                 n;
    atomic_uchar          *state;       /* [n] */
};

int guard_new(struct guard **out, const struct ckpt_sum *sum, size_t n, struct ckpt_err *err)
{
    struct guard *g = ckpt_alloc(1, sizeof *g);

    *out = NULL;
    if (!g || !(g->state = ckpt_alloc(n ? n : 1, sizeof *g->state))) {
        guard_free(g);
        return ckpt_nomem(err, n);
    }
    g->sum = sum;
    g->n = n;
    *out = g;
    return 0;
}

void guard_free(struct guard *g)
{
    if (!g)
        return;
    ckpt_free(g->state);
    ckpt_free(g);
}

static int is_wrong(const struct ckpt_file *file, const struct ckpt_sum *s, struct ckpt_err *err)
{
    ckpt_fail_as(err, CKPT_EFORMAT, "digest",
                 "%s: %s: the %llu bytes at offset %llu have another checksum than their archive "
                 "says", ckpt_file_name(file), s->name, (unsigned long long)s->size,
                 (unsigned long long)s->offset);
    return ckpt_err_hint(err, "the file is damaged; --no-checksums takes it as it is");
}

/* The whole range, whatever part of it was asked for. */
static int prove(const struct ckpt_file *file, const struct ckpt_sum *s, struct ckpt_err *err)
{
    size_t most = s->size < PIECE_BYTES ? (size_t)s->size : PIECE_BYTES;
    unsigned char *buf = ckpt_alloc_buffer(most);
    int rc = buf ? 0 : ckpt_nomem(err, most);
    uLong crc = 0;

    for (uint64_t at = 0, n; rc == 0 && at < s->size; at += n) {
        n = s->size - at < most ? s->size - at : most;
        rc = file_read(file, buf, (size_t)n, s->offset + at, err);
        if (rc == 0)
            crc = crc32_z(crc, buf, (size_t)n);
    }
    ckpt_free(buf);
    if (rc == 0 && crc != s->crc)
        rc = is_wrong(file, s, err);
    return rc;
}

/* The first range that ends behind offset. */
static size_t first_behind(const struct guard *g, uint64_t offset)
{
    size_t lo = 0, hi = g->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (g->sum[mid].offset + g->sum[mid].size <= offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int guard_prove(struct guard *g, const struct ckpt_file *file, uint64_t offset, uint64_t n,
                struct ckpt_err *err)
{
    for (size_t i = first_behind(g, offset);
         n > 0 && i < g->n && g->sum[i].offset < offset + n; i++) {
        unsigned char was = UNTOUCHED;

        if (atomic_compare_exchange_strong(&g->state[i], &was, BEGUN)) {
            if (prove(file, &g->sum[i], err)) {
                atomic_store(&g->state[i], WRONG);
                return err->code;
            }
        } else if (was == WRONG) {
            return is_wrong(file, &g->sum[i], err);
        }
    }
    return 0;
}
