/* edit - see edit.h. */
#include "formats/tokens/edit.h"

#include <string.h>

#include "formats/tokens/bytelevel.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

void edit_buf_release(struct edit_buf *b)
{
    ckpt_free(b->byte);
    ckpt_free(b->span);
    memset(b, 0, sizeof *b);
}

bool edit_more(struct edit_buf *b, size_t n)
{
    const struct ckpt_array all[] = {{&b->byte, sizeof *b->byte}, {&b->span, sizeof *b->span}};
    struct ckpt_err ignored = {0};

    if (n > b->cap - b->n && !b->failed)
        b->failed = ckpt_reserve_all(all, 2, &b->cap, b->n + n, &ignored) != 0;
    return !b->failed;
}

void edit_begin(struct edit *e, const struct piece *in, struct edit_buf *out)
{
    *e = (struct edit){.in = in, .out = out};
    out->n = 0;
    out->failed = false;
}

struct span edit_span(const struct piece *p, size_t i)
{
    size_t from = i;

    if (p->span)
        return p->span[i];
    while (from > 0 && (p->text[from] & 0xc0) == 0x80)
        from--;
    return (struct span){(uint32_t)(p->at + from),
                         (uint32_t)(p->at + from + utf8_width(p->text[from]))};
}

void edit_copy(struct edit *e, size_t n)
{
    struct edit_buf *out = e->out;
    const struct piece *in = e->in;
    struct span *to;

    if (n == 0 || !edit_more(out, n))
        return;
    memcpy(out->byte + out->n, in->text + e->pos, n);
    to = out->span + out->n;
    if (in->span) {
        memcpy(to, in->span + e->pos, n * sizeof *to);
    } else {
        for (size_t i = 0; i < n;) {
            size_t width = utf8_width(in->text[e->pos + i]);
            uint32_t at = (uint32_t)(in->at + e->pos + i);

            for (size_t k = 0; k < width && i < n; k++)
                to[i++] = (struct span){at, at + (uint32_t)width};
        }
    }
    out->n += n;
    e->pos += n;
}

void edit_put(struct edit *e, uint32_t cp, struct span span)
{
    struct edit_buf *out = e->out;
    size_t width;

    if (!edit_more(out, 4))
        return;
    width = utf8_put(out->byte + out->n, cp);
    for (size_t k = 0; k < width; k++)
        out->span[out->n++] = span;
}

void edit_replace(struct edit *e, uint32_t cp)
{
    if (e->pos >= e->in->n) {
        edit_insert(e, cp);
        return;
    }
    edit_put(e, cp, edit_span(e->in, e->pos));
    e->pos += utf8_width(e->in->text[e->pos]);
}

void edit_insert(struct edit *e, uint32_t cp)
{
    struct span first = {(uint32_t)e->in->at, (uint32_t)e->in->at};

    edit_put(e, cp, e->pos > 0 ? edit_span(e->in, e->pos - 1) : first);
}

int edit_end(struct edit *e, struct piece *p, struct ckpt_err *err)
{
    size_t at = e->in->at;

    edit_copy(e, e->in->n - e->pos);
    if (e->out->failed)
        return ckpt_nomem(err, e->in->n * sizeof(struct span));
    *p = (struct piece){.text = e->out->byte, .n = e->out->n, .span = e->out->span, .at = at};
    return 0;
}

int edit_spell_bytes(struct piece *p, struct edit_buf *out, struct ckpt_err *err)
{
    const struct piece in = *p;
    struct edit e;

    edit_begin(&e, &in, out);
    for (size_t i = 0, width; i < in.n; i += width) {
        width = utf8_width(in.text[i]);
        edit_replace(&e, bytelevel_char(in.text[i]));
        for (size_t k = 1; k < width; k++)
            edit_insert(&e, bytelevel_char(in.text[i + k]));
    }
    return edit_end(&e, p, err);
}
