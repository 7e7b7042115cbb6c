/*
 * models - formats that hold numbers, judged by their own readers, and the places in them that
 * can contain code; see scan.h.
 */
#include <string.h>

#include "formats/container/npy.h"
#include "formats/records/arrow/arrow.h"
#include "formats/tokens/spm.h"
#include "formats/gguf/header.h"
#include "formats/hf/safetensors.h"
#include "libckpt/err.h"
#include "tools/inspect/scan/scan.h"

#define PIECE      ((size_t)4 << 20)
#define OVERLAP    ((size_t)1 << 20)    /* a text that begins in a piece is complete in it */
#define MAX_MODEL  ((uint64_t)64 << 20) /* largest sentencepiece model */

static void put(struct scan *s, const struct subject *f, const char *what, enum verdict v,
                const char *reason)
{
    scan_put(s, f->path, what, SCAN_NOWHERE, "", v, reason);
}

int scan_safetensors(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    json_t *metadata = NULL;
    int rc = safetensors_read(&list, f->file, &metadata, err) ? scan_refused(s, f->path, err) : 0;

    if (metadata)
        scan_json(s, f->path, metadata);
    json_decref(metadata);
    ckpt_tensors_release(&list);
    /* The length of a header can look like the beginning of a pickle. */
    return rc || !scan_is_pickle(f, true) ? rc : scan_pickles(s, f, err);
}

/* Judge every chat template of a header, including those too long for the header's reader to
 * keep. */
static int scan_templates(struct scan *s, const struct subject *f, const struct gguf_header *h,
                          struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < h->n_pair; i++) {
        const struct gguf_pair *p = &h->pair[i];
        char *text;

        if (p->kind != GGUF_STRING || strncmp(p->key, "tokenizer.chat_template", 23) != 0)
            continue;
        text = ckpt_alloc((size_t)p->n + 1, 1);
        if (!text)
            return ckpt_nomem(err, (size_t)p->n);
        if (ckpt_file_read_at(f->file, text, (size_t)p->n, p->end - p->n, err))
            rc = scan_refused(s, f->path, err);
        else
            scan_template(s, f->path, p->key, text, (size_t)p->n);
        ckpt_free(text);
    }
    return rc;
}

int scan_gguf(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    struct gguf_header h = {0};
    int rc = gguf_header_read(&h, f->file, err) ? scan_refused(s, f->path, err)
                                                : scan_templates(s, f, &h, err);

    gguf_header_release(&h);
    return rc;
}

static bool count_of(uint64_t *count, const struct ckpt_shape *shape)
{
    *count = 1;
    for (int k = 0; k < shape->rank; k++)
        if (!ckpt_mul(count, *count, (uint64_t)shape->dim[k]))
            return false;
    return true;
}

/* Arrays of objects are pickles; arrays can follow each other. */
int scan_npy(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(f->file), bytes = 0, count;
    struct npy npy;

    if (npy_header(&npy, f->file, err))
        return scan_refused(s, f->path, err);
    if (npy.object) {
        put(s, f, "an array of objects", SCAN_SUSPICIOUS, "is a pickle, which numpy.load may run");
        return scan_part(s, f, "array", npy.data, size - npy.data, false, err);
    }
    if (npy.record)                     /* the size of its elements is unknown */
        return 0;
    if (npy.width == 0) {
        put(s, f, "elements of an unknown kind", SCAN_UNJUDGED, "are nothing that numpy writes");
        return 0;
    }
    if (!count_of(&count, &npy.shape) || !ckpt_mul(&bytes, count, npy.width) ||
        bytes > size - npy.data) {
        ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "%s: the elements pass the end of the file",
                     f->path);
        return scan_refused(s, f->path, err);
    }
    bytes += npy.data;
    return bytes < size ? scan_part(s, f, "bytes after the array", bytes, size - bytes, true, err)
                        : 0;
}

/* -- byte searches ---------------------------------------------------------------------------- */

/* Find JSON of Keras in an attribute: objects that begin with one of its keys. */
static size_t scan_keras(struct scan *s, const struct subject *f, const char *p, size_t n)
{
    json_error_t ignored;
    json_t *json = json_loadb(p, n, JSON_DISABLE_EOF_CHECK, &ignored);
    size_t used = json ? (size_t)ignored.position : 1;

    if (json)
        scan_json(s, f->path, json);
    json_decref(json);
    return used ? used : 1;
}

static void look_for_keras(struct scan *s, const struct subject *f, const char *p, size_t n,
                           size_t whole)
{
    for (const char *at = p; (at = memchr(at, '{', (size_t)(p + whole - at))) != NULL;) {
        size_t left = (size_t)(p + n - at);

        if (left > 12 && (at[1] == '"' || at[1] == ' ') &&
            memmem(at, left < 256 ? left : 256, "class_name", 10))
            at += scan_keras(s, f, at, left);
        else
            at++;
        if (at >= p + whole)
            return;
    }
}

/* Whether objects of a heap are compressed: its attributes cannot be seen. */
static bool has_packed_heap(const char *p, size_t n)
{
    for (const char *at = p; (at = memmem(at, n - (size_t)(at - p), "FRHP", 4)) != NULL; at += 4)
        if ((size_t)(at - p) + 9 < n && at[4] == 0 && (at[7] || at[8]))
            return true;
    return false;
}

/* Call look on overlapping pieces; whole: objects that begin in the piece are seen once. */
static int each_piece(struct scan *s, const struct subject *f,
                      void (*look)(struct scan *, const struct subject *, const char *, size_t,
                                   size_t), struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(f->file);
    char *buf = ckpt_alloc_buffer(PIECE + OVERLAP);
    int rc = buf ? 0 : ckpt_nomem(err, PIECE + OVERLAP);

    for (uint64_t at = 0; rc == 0 && at < size; at += PIECE) {
        size_t n = size - at < PIECE + OVERLAP ? (size_t)(size - at) : PIECE + OVERLAP;

        if (ckpt_file_read_at(f->file, buf, n, at, err)) {
            rc = scan_refused(s, f->path, err);
            break;
        }
        look(s, f, buf, n, n < PIECE ? n : PIECE);
    }
    ckpt_free(buf);
    return rc;
}

static void look_into_hdf5(struct scan *s, const struct subject *f, const char *p, size_t n,
                           size_t whole)
{
    look_for_keras(s, f, p, n, whole);
    if (has_packed_heap(p, whole))
        put(s, f, "attributes that are compressed", SCAN_UNJUDGED, "cannot be looked into");
}

int scan_hdf5(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    int rc = each_piece(s, f, look_into_hdf5, err);

    return rc ? rc : scan_hidden(s, f, err);
}

static void look_into_arrow(struct scan *s, const struct subject *f, const char *p, size_t n,
                            size_t whole)
{
    const char *at = memmem(p, n, "arrow.py_extension_type", 23);

    if (at && at < p + whole)
        put(s, f, "arrow.py_extension_type", SCAN_DANGEROUS, "is a pickle that old pyarrow runs");
}

/* Parquet, and Arrow's streams and files. */
int scan_arrow(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(f->file);
    char first[4] = {0}, last[4] = {0};

    if (size < 12 || ckpt_file_read_at(f->file, first, 4, 0, err) ||
        ckpt_file_read_at(f->file, last, 4, size - 4, err)) {
        ckpt_err_clear(err);
        put(s, f, "a file of rows", SCAN_DAMAGED, "is too short");
        return 0;
    }
    if (memcmp(first, "PAR1", 4) == 0 ? memcmp(last, "PAR1", 4) != 0
                                      : memcmp(first, "ARRO", 4) == 0 &&
                                            memcmp(last, "ROW1", 4) != 0)
        put(s, f, "a file of rows", SCAN_DAMAGED, "does not end as its format has it");
    else if (memcmp(first, "PAR1", 4) != 0 && memcmp(first, "ARRO", 4) != 0) {
        struct arrow_file a = {0};
        int rc = arrow_file_open(&a, f->file, err);

        arrow_file_release(&a);
        if (rc && rc != CKPT_EUNSUPPORTED)      /* only column types that are not read */
            return scan_refused(s, f->path, err);
    }
    return each_piece(s, f, look_into_arrow, err);
}

int scan_words(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct spm_ids ids;
    json_t *model = NULL;
    char *bytes;
    size_t n;
    int rc = ckpt_file_size(f->file) > MAX_MODEL
                 ? 1 : ckpt_file_slurp(f->file, &a, MAX_MODEL, &bytes, &n, err);

    (void)s;
    if (rc == 0)
        rc = n > 2 && bytes[0] == 0x0a
                 ? spm_read(&model, &ids, (const unsigned char *)bytes, n, err) : 1;
    json_decref(model);
    ckpt_arena_release(&a);
    return rc == CKPT_ENOMEM ? rc : rc != 0;
}
