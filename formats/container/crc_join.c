/* crc_join - see crc_join.h. */
#include "formats/container/crc_join.h"

#include <string.h>

#include "libckpt/base/crc32.h"
#include "libckpt/mem.h"

void crc_join_release(struct crc_join *j)
{
    ckpt_free(j->piece);
    memset(j, 0, sizeof *j);
}

/* Insert a piece at index k. */
static int insert(struct crc_join *j, uint32_t k, struct crc_piece p, struct ckpt_err *err)
{
    if (j->n == j->cap) {
        uint32_t cap = j->cap ? 2 * j->cap : 2;
        void *grown = ckpt_grow(j->piece, cap, sizeof *j->piece);

        if (!grown)
            return ckpt_nomem(err, cap * sizeof *j->piece);
        j->piece = grown;
        j->cap = cap;
    }
    memmove(j->piece + k + 1, j->piece + k, (j->n - k) * sizeof *j->piece);
    j->piece[k] = p;
    j->n++;
    return 0;
}

int crc_join_add(struct crc_join *j, uint64_t start, uint64_t bytes, uint32_t crc,
                 struct ckpt_err *err)
{
    struct crc_piece *before, *after;
    uint32_t k = j->n;

    while (k > 0 && j->piece[k - 1].start > start)      /* nearly always it is the last */
        k--;
    before = k > 0 ? &j->piece[k - 1] : NULL;
    after = k < j->n ? &j->piece[k] : NULL;
    if ((before && before->start + before->bytes > start) ||
        (after && start + bytes > after->start))
        return ckpt_fail(err, CKPT_ESTATE, "bytes [%llu, +%llu) are written twice",
                         (unsigned long long)start, (unsigned long long)bytes);
    if (!before || before->start + before->bytes < start) {
        if (!after || start + bytes < after->start)
            return insert(j, k, (struct crc_piece){start, bytes, crc}, err);
        after->crc = ckpt_crc32_join(crc, after->crc, after->bytes);
        after->start = start;
        after->bytes += bytes;
        return 0;
    }
    before->crc = ckpt_crc32_join(before->crc, crc, bytes);
    before->bytes += bytes;
    if (after && before->start + before->bytes == after->start) {
        before->crc = ckpt_crc32_join(before->crc, after->crc, after->bytes);
        before->bytes += after->bytes;
        memmove(after, after + 1, (j->n - k - 1) * sizeof *after);
        j->n--;
    }
    return 0;
}

bool crc_join_whole(const struct crc_join *j, uint64_t bytes, uint32_t *crc)
{
    *crc = 0;
    if (bytes == 0)
        return j->n == 0;
    if (j->n != 1 || j->piece[0].start != 0 || j->piece[0].bytes != bytes)
        return false;
    *crc = j->piece[0].crc;
    return true;
}
