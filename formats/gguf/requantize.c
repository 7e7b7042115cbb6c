/* gguf/requantize - see gguf/requantize.h. */
#include "formats/gguf/requantize.h"

#include <stdlib.h>
#include <string.h>

#include "formats/gguf/header.h"
#include "formats/gguf/names.h"
#include "libckpt/convert.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/io/path.h"
#include "libckpt/views/layout.h"

/* -- keys ------------------------------------------------------------------------------------ */

static bool passed_on(const char *key)
{
    return strncmp(key, "split.", 6) != 0 && strcmp(key, "general.alignment") != 0 &&
           strcmp(key, "general.file_type") != 0 && strcmp(key, "ckpt.provenance") != 0;
}

bool gguf_is_file(const char *path)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;
    char magic[4] = "";
    bool is = ckpt_path_file(&file, path, CKPT_FOLLOW, &ignored) == 0;

    if (is) {
        is = ckpt_file_size(file) > sizeof magic &&
             ckpt_file_read_at(file, magic, sizeof magic, 0, &ignored) == 0 &&
             memcmp(magic, "GGUF", 4) == 0;
        ckpt_file_close(file);
    }
    return is;
}

static int by_place(const void *a, const void *b)
{
    const struct gguf_pair *x = *(const struct gguf_pair *const *)a;
    const struct gguf_pair *y = *(const struct gguf_pair *const *)b;

    return x->at < y->at ? -1 : x->at > y->at;
}

static int copy_pair(struct ckpt_buf *b, const struct gguf_pair *p, struct ckpt_file *file,
                     struct ckpt_err *err)
{
    unsigned char stage[16384];
    int rc;

    ckpt_buf_put_u64le(b, strlen(p->key));
    ckpt_buf_put_str(b, p->key);
    ckpt_buf_put_u32le(b, p->kind);
    if (p->kind == GGUF_ARRAY)
        ckpt_buf_put_u32le(b, p->of);
    if (p->kind == GGUF_ARRAY || p->kind == GGUF_STRING)
        ckpt_buf_put_u64le(b, p->n);
    for (uint64_t at = p->at; at < p->end; at += sizeof stage) {
        size_t n = p->end - at < sizeof stage ? (size_t)(p->end - at) : sizeof stage;

        if ((rc = ckpt_file_read_at(file, stage, n, at, err)) != 0)
            return rc;
        ckpt_buf_put(b, stage, n);
    }
    return ckpt_buf_ok(b) ? 0 : ckpt_nomem(err, b->len);
}

int gguf_requantize_keys(struct ckpt_buf *b, uint64_t *n, const char *path, struct ckpt_err *err)
{
    const struct gguf_pair **order = NULL;
    struct ckpt_file *file = NULL;
    struct gguf_header h = {0};
    int rc = ckpt_path_file(&file, path, CKPT_FOLLOW, err);

    *n = 0;
    if (rc == 0)
        rc = gguf_header_read(&h, file, err);
    if (rc == 0 && !(order = ckpt_alloc(h.n_pair, sizeof *order)))
        rc = ckpt_nomem(err, h.n_pair * sizeof *order);
    for (size_t i = 0; rc == 0 && i < h.n_pair; i++)
        order[i] = &h.pair[i];
    if (rc == 0)
        qsort(order, h.n_pair, sizeof *order, by_place);
    for (size_t i = 0; rc == 0 && i < h.n_pair; i++)
        if (passed_on(order[i]->key)) {
            rc = copy_pair(b, order[i], file, err);
            ++*n;
        }
    if (rc)
        ckpt_err_in(err, "%s", path);
    ckpt_free(order);
    gguf_header_release(&h);
    ckpt_file_close(file);
    return rc;
}

/* -- tensors --------------------------------------------------------------------------------- */

struct work {
    struct ckpt_layout      *row;
    struct ckpt_layout_part *part;
    struct ckpt_cast_rule   *cast;
    size_t                   n, n_cast;
    struct gguf_count        count;
};

static bool is_q8_0(const struct ckpt_tensor *t)
{
    return t->stored && strcmp(t->stored, "Q8_0") == 0;
}

/* Add tensor i, with its type under a rule, or NULL. */
static void add_row(struct work *w, const struct ckpt_tensor *t, size_t i,
                    const struct ckpt_cast_rule *rule, bool packs)
{
    struct ckpt_layout *r = &w->row[i];
    int64_t width = t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
    bool whole = width % GGUF_Q8_0_N == 0 && t->shape.rank > 0;
    enum ckpt_dtype to = rule ? rule->dtype : t->dtype;

    if (rule && (t->shape.rank < 2 || gguf_wants_f32(t->name))) {
        to = t->dtype;
        packs = false;
        rule = NULL;
    }
    if (packs && !whole)
        to = CKPT_F16;
    w->part[i] = (struct ckpt_layout_part){i, 0};
    *r = (struct ckpt_layout){.name = t->name, .shape = t->shape, .part = &w->part[i],
                              .n_part = 1};
    if (whole && (rule ? packs : is_q8_0(t))) {
        gguf_layout_pack(r, t->numel);
    } else if (!rule && t->stored && !is_q8_0(t)) {
        ckpt_log(CKPT_LOG_NOTE, "%s: %s is not packed here, it becomes F32", t->name, t->stored);
    }
    if (to != t->dtype)
        w->cast[w->n_cast++] = (struct ckpt_cast_rule){t->name, to};
    gguf_count_add(&w->count, r, to, t->numel);
}

int gguf_requantize(struct ckpt_source **out, struct ckpt_source *src, const char *path,
               const struct ckpt_cast_rule *rule, const bool *packs, size_t n_rule,
               struct ckpt_err *err)
{
    struct work w = {.n = ckpt_source_count(src)};
    struct ckpt_source *seen = src;
    json_t *info = NULL;
    int rc = 0;

    *out = NULL;
    w.row = ckpt_alloc(w.n, sizeof *w.row);
    w.part = ckpt_alloc(w.n, sizeof *w.part);
    w.cast = ckpt_alloc(w.n, sizeof *w.cast);
    if (!w.row || !w.part || !w.cast)
        rc = ckpt_nomem(err, w.n * sizeof *w.row);
    for (size_t i = 0; rc == 0 && i < w.n; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        const struct ckpt_cast_rule *r = ckpt_view_cast_rule(t, rule, n_rule);

        if (r && !ckpt_convert_can(r->dtype, t->dtype) && r->dtype != t->dtype)
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s cannot be cast to %s", t->name,
                           ckpt_dtype_name(t->dtype), ckpt_dtype_name(r->dtype));
        else
            add_row(&w, t, i, r, r && packs && packs[r - rule]);
    }
    if (rc == 0)
        info = json_pack("{s:s,s:s,s:[[s,s,i]]}", "format", "gguf", "gguf_from", path, "gguf",
                         "general.file_type", "u32", gguf_count_type(&w.count));
    if (rc == 0 && !info)
        rc = ckpt_nomem(err, 64);
    if (rc == 0 && w.n_cast) {
        struct ckpt_source *below = seen;

        seen = NULL;
        rc = ckpt_view_cast(&seen, below, w.cast, w.n_cast, err);
    }
    if (rc == 0) {                     /* a cast loses the mark of packed tensors: mark them here */
        rc = ckpt_view_layout(out, seen, w.row, w.n, info, err);
    } else {
        json_decref(info);
        ckpt_source_close(seen);
    }
    ckpt_free(w.row);
    ckpt_free(w.part);
    ckpt_free(w.cast);
    return rc;
}
