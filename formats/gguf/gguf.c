/* gguf - see gguf.h. */
#include "formats/gguf/gguf.h"

#include <stdio.h>
#include <string.h>

#include "formats/gguf/out.h"
#include "formats/hf/side_files.h"
#include "formats/place.h"
#include "libckpt/io/path.h"

#define STAGE 16384u            /* bytes of packed blocks read at once */
#define MAX_FILES 10000u        /* files of a split model: five digits in the name */

/* Layout of a quantised tensor; file NULL for a plain one. */
struct packed {
    struct ckpt_file       *file;
    uint64_t                offset;
    const struct gguf_type *type;
};

struct gguf {
    struct ckpt_file **file;    /* [n_file] */
    size_t             n_file;
    struct ckpt_extra *extra;   /* [n_extra] side files in the first file's keys */
    size_t             n_extra;
    struct packed     *packed;  /* [tensors] */
    size_t             cap;
    const struct ckpt_tensors *list;    /* while it is being opened; then the source's */
};

static void close_gguf(void *self)
{
    struct gguf *g = self;

    for (size_t i = 0; i < g->n_file; i++)
        ckpt_file_close(g->file[i]);
    for (size_t i = 0; i < g->n_extra; i++)
        ckpt_file_close(g->extra[i].file);
    ckpt_free(g->file);
    ckpt_free(g->packed);
    ckpt_free(g);
}

/* Dequantise whole blocks and parts of them. */
static int read_packed(const struct packed *p, int64_t start, int64_t count, float *dst,
                       struct ckpt_err *err)
{
    const struct gguf_type *t = p->type;
    unsigned char stage[STAGE];
    float block[GGUF_MAX_BLOCK];
    int64_t at = start, end = start + count, per = STAGE / t->bytes;
    int rc;

    while (at < end) {
        int64_t first = at / t->n, last = (end - 1) / t->n;
        int64_t n = last - first + 1 < per ? last - first + 1 : per;

        if ((rc = ckpt_file_read_at(p->file, stage, (size_t)n * t->bytes,
                                    p->offset + (uint64_t)first * t->bytes, err)) != 0)
            return rc;
        for (int64_t b = 0; b < n; b++) {
            int64_t from = at % t->n, left = end - at;
            int64_t take = left < t->n - from ? left : t->n - from;

            if (take == t->n) {
                t->values(dst, stage + b * t->bytes);
            } else {
                t->values(block, stage + b * t->bytes);
                memcpy(dst, block + from, (size_t)take * sizeof *dst);
            }
            dst += take;
            at += take;
        }
    }
    return 0;
}

static int read_gguf(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    const struct gguf *g = self;
    const struct ckpt_tensor *t = &g->list->item[i];
    const struct packed *p = &g->packed[i];

    if (!p->file)
        return ckpt_fragment_gather(dst, &t->shape, t->dtype, t->frag, t->n_frag, start, count,
                                    err);
    return read_packed(p, start, count, dst, err);
}

static const struct ckpt_source_ops ops = {
    .format = "gguf", .read = read_gguf, .close = close_gguf,
};

struct ckpt_file *gguf_source_file(const struct ckpt_source *src)
{
    const struct gguf *g = ckpt_source_self(src, &ops);

    return g ? g->file[0] : NULL;
}

static int add_tensor(struct gguf *g, struct ckpt_tensors *list, const struct gguf_row *r,
                      struct ckpt_file *file, struct ckpt_err *err)
{
    struct ckpt_shape shape = ckpt_shape_of(r->rank, r->dim);
    struct ckpt_fragment *f = NULL;
    struct ckpt_tensor *t;
    int rc;

    if (r->type->n == 1 && r->bytes > 0) {
        f = ckpt_arena_alloc(&list->arena, 1, sizeof *f);
        if (!f)
            return ckpt_nomem(err, sizeof *f);
        f->file = file;
        f->offset = r->offset;
    }
    if ((rc = ckpt_tensors_add(list, &t, r->name, r->name_len, r->type->dtype, &shape, f,
                               f != NULL, false, err)) != 0)
        return rc;
    if (r->type->n > 1) {
        t->stored = r->type->name;
        t->stored_bytes = r->bytes;
        if (!r->type->values) {
            t->unread = ckpt_arena_printf(&list->arena, "the values of %s blocks are not read",
                                          r->type->name);
            if (!t->unread)
                return ckpt_nomem(err, sizeof *t);
        }
    }
    g->packed[list->n - 1] =
        (struct packed){r->type->n > 1 ? file : NULL, r->offset, r->type};
    return 0;
}

/* Add the tensors of one file. */
static int add_file(struct gguf *g, struct ckpt_tensors *list, const struct gguf_header *h,
                    struct ckpt_file *file, struct ckpt_err *err)
{
    struct ckpt_array packed = {&g->packed, sizeof *g->packed};
    int rc = ckpt_reserve_all(&packed, 1, &g->cap, list->n + h->n_row, err);

    for (size_t i = 0; rc == 0 && i < h->n_row; i++)
        rc = add_tensor(g, list, &h->row[i], file, err);
    return rc;
}

/* "u32[151936]" for a value that is too long to show. */
static json_t *described(const struct gguf_pair *p)
{
    char what[64];

    if (p->value)
        return json_incref(p->value);
    if (p->kind == GGUF_STRING)
        snprintf(what, sizeof what, "string of %llu bytes", (unsigned long long)p->n);
    else
        snprintf(what, sizeof what, "%s[%llu]", gguf_kind_name(p->of), (unsigned long long)p->n);
    return json_string(what);
}

static json_t *facts(const struct gguf_header *h, size_t n_file)
{
    json_t *info = json_pack("{s:s,s:i}", "format", "gguf", "version", (int)h->version);
    const char *architecture = gguf_string(h, "general.architecture");
    json_t *keys = json_object();
    bool ok = info && keys;

    for (size_t i = 0; ok && i < h->n_pair; i++)
        ok = json_object_set_new(keys, h->pair[i].key, described(&h->pair[i])) == 0;
    if (ok && architecture)
        ok = json_object_set_new(info, "architecture", json_string(architecture)) == 0;
    if (ok && n_file > 1)
        ok = json_object_set_new(info, "files", json_integer((json_int_t)n_file)) == 0;
    if (ok && json_object_set(info, "keys", keys) == 0) {
        json_decref(keys);
        return info;
    }
    json_decref(keys);
    json_decref(info);
    return NULL;
}

static int64_t count_of(const struct gguf_header *h, const char *key, int64_t none)
{
    const struct gguf_pair *p = gguf_pair(h, key);

    return p && json_is_integer(p->value) ? (int64_t)json_integer_value(p->value) : none;
}

/* The name of file i of n beside path, which ends in "-00002-of-00003.gguf"; else NULL. */
static char *sibling(struct ckpt_arena *a, const char *path, int64_t i, int64_t n)
{
    char tail[64];
    size_t len = strlen(path), k = strlen("-00001-of-00001.gguf");
    unsigned at, of;

    snprintf(tail, sizeof tail, "-of-%05lld.gguf", (long long)n);
    if (len <= k || strcmp(path + len - strlen(tail), tail) != 0 ||
        sscanf(path + len - k, "-%5u-of-%5u.gguf", &at, &of) != 2)
        return NULL;
    return ckpt_arena_printf(a, "%.*s-%05lld%s", (int)(len - k), path, (long long)i + 1, tail);
}

/* Open the files of a split model, in order; takes over the file opened already. */
static int open_files(struct gguf *g, const struct gguf_header *h, struct ckpt_file *opened,
                      unsigned flags, struct ckpt_err *err)
{
    int64_t n = count_of(h, "split.count", 1), no = count_of(h, "split.no", 0);
    struct ckpt_arena a = {0};
    int rc = 0;

    if (n <= 1)
        n = 1, no = 0;
    if (n > MAX_FILES || no < 0 || no >= n)
        return ckpt_fail(err, CKPT_EFORMAT, "says it is part %lld of %lld", (long long)no,
                         (long long)n);
    g->file = ckpt_alloc((size_t)n, sizeof *g->file);
    if (!g->file)
        return ckpt_nomem(err, (size_t)n * sizeof *g->file);
    g->n_file = (size_t)n;
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        char *name;

        if (i == no)
            continue;
        name = sibling(&a, ckpt_file_name(opened), i, n);
        rc = name ? ckpt_path_file(&g->file[i], name, flags, err)
                  : ckpt_fail(err, CKPT_ENOTFOUND, "part %lld of %lld: the others cannot be "
                              "named, it is not called NAME-%05lld-of-%05lld.gguf",
                              (long long)no + 1, (long long)n, (long long)no + 1, (long long)n);
    }
    if (rc == 0)
        g->file[no] = opened;
    ckpt_arena_release(&a);
    return rc;
}

/* Whether a side file may be stored: settings and templates, never programs or weights. */
static bool is_kept(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && (strcmp(dot, ".json") == 0 || strcmp(dot, ".jinja") == 0) &&
           !strchr(name, '/') && ckpt_file_path_is_clean(name) && side_file_name(name) &&
           strcmp(name, "tokenizer.json") != 0;
}

/* The name of the side file in a key, or NULL. */
static const char *side_file(const struct gguf_header *h, const struct gguf_pair *p)
{
    const char *name = strncmp(p->key, "ckpt.file.", 10) == 0 ? p->key + 10 : NULL;

    if (p->kind != GGUF_STRING)
        return NULL;
    if (strcmp(p->key, "tokenizer.huggingface.json") == 0)
        return "tokenizer.json";
    if (strcmp(p->key, "tokenizer.chat_template") == 0 &&
        !gguf_pair(h, "ckpt.file.tokenizer_config.json") &&
        !gguf_pair(h, "ckpt.file.chat_template.jinja"))
        return "chat_template.jinja";
    return name && is_kept(name) ? name : NULL;
}

static int add_extras(struct gguf *g, struct ckpt_arena *a, const struct gguf_header *h,
                      struct ckpt_file *file, struct ckpt_err *err)
{
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < h->n_pair; i++)
        n += side_file(h, &h->pair[i]) != NULL;
    g->extra = ckpt_arena_alloc(a, n, sizeof *g->extra);
    if (!g->extra)
        return ckpt_nomem(err, n * sizeof *g->extra);
    for (size_t i = 0; i < h->n_pair; i++) {
        const struct gguf_pair *p = &h->pair[i];
        const char *name = side_file(h, p);
        struct ckpt_extra *e = &g->extra[g->n_extra];

        if (!name)
            continue;
        e->name = ckpt_arena_strndup(a, name, strlen(name));
        if (!e->name)
            return ckpt_nomem(err, strlen(name));
        if ((rc = ckpt_file_window(&e->file, file, p->at, p->end - p->at, name, err)) != 0)
            return rc;
        g->n_extra++;
    }
    return 0;
}

/* Read every file's tensors, and the facts of the first file. */
static int read_files(struct gguf *g, struct ckpt_tensors *list, json_t **info,
                      struct gguf_header *opened, struct ckpt_err *err)
{
    int64_t total = -1;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < g->n_file; i++) {
        struct gguf_header h = {0};

        if (g->n_file == 1) {           /* a long vocabulary is walked once */
            h = *opened;
            memset(opened, 0, sizeof *opened);
        } else {
            rc = gguf_header_read(&h, g->file[i], err);
        }
        if (rc == 0 && g->n_file > 1 && (count_of(&h, "split.no", -1) != (int64_t)i ||
                                         count_of(&h, "split.count", -1) != (int64_t)g->n_file))
            rc = ckpt_fail(err, CKPT_EMISMATCH, "is not part %zu of %zu", i + 1, g->n_file);
        if (rc == 0)
            rc = add_file(g, list, &h, g->file[i], err);
        if (rc == 0 && i == 0) {
            total = count_of(&h, "split.tensors.count", -1);
            *info = facts(&h, g->n_file);
            rc = *info ? add_extras(g, &list->arena, &h, g->file[i], err) : ckpt_nomem(err, 256);
        }
        gguf_header_release(&h);
        if (rc)
            ckpt_err_in(err, "%s", ckpt_file_name(g->file[i]));
    }
    if (rc == 0 && g->n_file > 1 && total >= 0 && total != (int64_t)list->n)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: split.tensors.count is %lld, the files have %zu",
                       ckpt_file_name(g->file[0]), (long long)total, list->n);
    return rc;
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct gguf_header h;
    json_t *info = NULL;
    struct gguf *g;
    int rc;

    *out = NULL;
    if (!place->file)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is a directory, one GGUF file wanted",
                         place->path);
    g = ckpt_alloc(1, sizeof *g);
    if (!g)
        return ckpt_nomem(err, sizeof *g);
    rc = gguf_header_read(&h, place->file, err);
    if (rc == 0)
        rc = open_files(g, &h, place->file, opts->follow ? CKPT_FOLLOW : 0, err);
    if (rc) {
        gguf_header_release(&h);
        close_gguf(g);
        return ckpt_err_in(err, "%s", place->path);
    }
    place->took = true;
    rc = read_files(g, &list, &info, &h, err);
    gguf_header_release(&h);
    if (rc) {
        json_decref(info);
        close_gguf(g);                  /* its side files' names are in the list's arena */
        ckpt_tensors_release(&list);
        return rc;
    }
    rc = ckpt_source_new(out, &ops, g, &list, g->extra, g->n_extra, info, err);
    if (rc == 0)
        g->list = ckpt_source_tensors(*out);
    return rc;
}

static int bid(const struct ckpt_place *p)
{
    return p->file && p->head_len >= 4 && memcmp(p->head, "GGUF", 4) == 0 ? 95 : 0;
}

const struct ckpt_format ckpt_format_gguf = {
    .name = "gguf", .title = "GGUF file", .bid = bid, .open = open_source, .create = gguf_create,
};
