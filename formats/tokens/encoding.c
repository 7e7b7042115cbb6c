/* encoding - see encoding.h. */
#include "formats/tokens/encoding.h"

#include <string.h>

#include "libckpt/mem.h"

int encoding_reserve(struct encoding *enc, size_t n, struct ckpt_err *err)
{
    const struct ckpt_array all[] = {
        {&enc->id, sizeof *enc->id},     {&enc->start, sizeof *enc->start},
        {&enc->end, sizeof *enc->end},   {&enc->type, sizeof *enc->type},
        {&enc->text, sizeof *enc->text},
    };

    return ckpt_reserve_all(all, sizeof all / sizeof *all, &enc->cap, enc->n + n, err);
}

void encoding_release(struct encoding *enc)
{
    ckpt_free(enc->id);
    ckpt_free(enc->start);
    ckpt_free(enc->end);
    ckpt_free(enc->type);
    ckpt_free(enc->text);
    memset(enc, 0, sizeof *enc);
}

void encoding_put_added(struct encoding *enc, int32_t id, int32_t type)
{
    size_t i = enc->n++;

    enc->id[i] = id;
    enc->start[i] = enc->end[i] = 0;
    enc->type[i] = type;
    enc->text[i] = -1;
}

int encoding_append(struct encoding *enc, const struct encoding *other, size_t from, size_t to,
                    int32_t type, int text, struct ckpt_err *err)
{
    size_t n = to - from;
    int rc;

    if (n == 0)
        return 0;
    if ((rc = encoding_reserve(enc, n, err)) != 0)
        return rc;
    memcpy(enc->id + enc->n, other->id + from, n * sizeof *enc->id);
    memcpy(enc->start + enc->n, other->start + from, n * sizeof *enc->start);
    memcpy(enc->end + enc->n, other->end + from, n * sizeof *enc->end);
    for (size_t i = enc->n; i < enc->n + n; i++) {
        enc->type[i] = type;
        enc->text[i] = (int8_t)text;
    }
    enc->n += n;
    return 0;
}

int encoding_pad(struct encoding *enc, const struct padding *p, size_t length,
                 struct ckpt_err *err)
{
    size_t n = enc->n, more = length > n ? length - n : 0;
    int rc;

    if (more == 0)
        return 0;
    if ((rc = encoding_reserve(enc, more, err)) != 0)
        return rc;
    if (p->left) {
        memmove(enc->id + more, enc->id, n * sizeof *enc->id);
        memmove(enc->start + more, enc->start, n * sizeof *enc->start);
        memmove(enc->end + more, enc->end, n * sizeof *enc->end);
        memmove(enc->type + more, enc->type, n * sizeof *enc->type);
        memmove(enc->text + more, enc->text, n);
        enc->n = 0;
    }
    for (size_t i = 0; i < more; i++)
        encoding_put_added(enc, p->id, p->type);
    enc->n = n + more;
    return 0;
}
