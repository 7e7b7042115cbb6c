/* replicas - see replicas.h. */
#include "trainer/checkpoint/replicas.h"

#include <string.h>

#include "libckpt/digest.h"
#include "libckpt/mem.h"

#define PIECE ((int64_t)1 << 20)        /* floats that are read at once */

/* One array of this rank's part of a parameter. */
static int add_array(struct ckpt_xxh128_state *x, struct zero *z, enum zero_array of, size_t i,
                     float *piece, struct ckpt_err *err)
{
    const struct flat *f = zero_flat(z);
    struct flat_piece p = flat_piece(f, i, f->rank);
    int rc = 0;

    for (int64_t at = 0; rc == 0 && at < p.count; at += PIECE) {
        int64_t n = p.count - at < PIECE ? p.count - at : PIECE;

        rc = zero_read(z, of, i, at, n, piece, err);
        if (rc == 0)
            ckpt_xxh128_add(x, piece, (size_t)n * sizeof *piece);
    }
    return rc;
}

static int digest(unsigned char to[CKPT_XXH128_BYTES], struct zero *z, const struct zero_opts *o,
                  struct ckpt_err *err)
{
    static const enum zero_array arrays[] = {ZERO_MASTER, ZERO_EXP_AVG, ZERO_EXP_AVG_SQ};
    const struct params *p = zero_flat(z)->params;
    struct ckpt_xxh128_state *x = NULL;
    float *piece = ckpt_alloc_buffer((size_t)PIECE * sizeof *piece);
    int rc = piece ? ckpt_xxh128_new(&x, err) : ckpt_nomem(err, (size_t)PIECE * sizeof *piece);

    for (size_t i = 0; i < p->n; i++)
        for (int k = 0; rc == 0 && p->item[i].trainable && k < 3 - zero_fewer(o, p, i); k++)
            rc = add_array(x, z, arrays[k], i, piece, err);
    if (rc == 0)
        ckpt_xxh128_end(x, to);
    ckpt_xxh128_free(x);
    ckpt_free(piece);
    return rc;
}

int replicas_check(struct session *s, struct ckpt_err *err)
{
    unsigned char own[CKPT_XXH128_BYTES] = {0}, first[CKPT_XXH128_BYTES];
    int rc;

    if (!s->replicas)
        return 0;
    rc = digest(own, s->zero, &s->zero_opts, err);
    memcpy(first, own, sizeof first);
    comm_broadcast(s->replicas, first, sizeof first, CKPT_U8, 0);
    if (rc || memcmp(first, own, sizeof first) == 0)
        return rc;
    return ckpt_fail_as(err, CKPT_ECOMM, "replicas-differ", "weights or moments are not those of "
                        "rank %d, of which they are to be a copy", s->shard->rank);
}
