/* parquet/page - see parquet/page.h. */
#include "formats/records/parquet/page.h"

#include <string.h>
#include <zlib.h>

#include "formats/container/thrift.h"
#include "formats/records/parquet/codec.h"

#define FIRST_HEAD 512                  /* bytes; most headers are far smaller */
#define MAX_HEAD   ((size_t)16 << 20)   /* statistics may hold long values */

enum { DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_2 };

/* A PageHeader as it stands in the file. */
struct header {
    int64_t type, raw, packed, crc;
    int64_t values, encoding, def_encoding, rep_encoding, def_len, rep_len;
    bool    has_crc, has_body, is_packed;
    size_t  len;                        /* size of the header */
};

/* Parse the header's part for its type: 5 data, 7 dictionary, 8 data of version 2. */
static void parse_body(struct header *h, int id, struct ckpt_cursor *c)
{
    struct thrift_field f = {0};

    h->has_body = true;
    h->is_packed = true;
    h->def_encoding = h->rep_encoding = PQ_ENC_RLE;
    while (thrift_next(c, &f)) {
        if (f.id == 1)
            h->values = f.i;
        else if (f.id == (id == 8 ? 4 : 2))
            h->encoding = f.i;
        else if (id == 5 && f.id == 3)
            h->def_encoding = f.i;
        else if (id == 5 && f.id == 4)
            h->rep_encoding = f.i;
        else if (id == 8 && f.id == 5)
            h->def_len = f.i;
        else if (id == 8 && f.id == 6)
            h->rep_len = f.i;
        else if (id == 8 && f.id == 7)
            h->is_packed = f.i != 0;
        thrift_skip(c, &f);
    }
}

static bool parse_header(struct header *h, const unsigned char *bytes, size_t len)
{
    struct thrift_field f = {0};
    struct ckpt_cursor c;

    *h = (struct header){.type = -1, .raw = -1, .packed = -1};
    ckpt_cursor_init(&c, bytes, len);
    while (thrift_next(&c, &f)) {
        switch (f.id) {
        case 1: h->type = f.i; break;
        case 2: h->raw = f.i; break;
        case 3: h->packed = f.i; break;
        case 4: h->crc = f.i; h->has_crc = true; break;
        }
        if (f.type == THRIFT_STRUCT && (f.id == 5 || f.id == 7 || f.id == 8))
            parse_body(h, f.id, &c);
        else
            thrift_skip(&c, &f);
    }
    h->len = c.pos;
    return !c.failed;
}

/* Make space for n bytes at *p; the old content is lost. */
static int room(struct pq_pages *p, unsigned char **b, size_t *cap, size_t n,
                struct ckpt_err *err)
{
    if (n <= *cap)
        return 0;
    ckpt_free(*b);
    *p->memory -= *cap;
    *b = NULL;
    *cap = 0;
    if (n > PQ_MAX_MEMORY - *p->memory)
        return ckpt_fail(err, CKPT_ELIMIT, "pages of more than %llu bytes at once",
                         (unsigned long long)PQ_MAX_MEMORY);
    *b = ckpt_alloc_buffer(n);
    if (!*b)
        return ckpt_nomem(err, n);
    *cap = n;
    *p->memory += n;
    return 0;
}

/* Read the header at p->at: its size is known only after parsing, so more bytes are tried if
 * needed. */
static int read_header(struct header *h, struct pq_pages *p, struct ckpt_err *err)
{
    uint64_t left = p->chunk->limit - p->at;
    int rc;

    for (size_t n = FIRST_HEAD;; n *= 8) {
        size_t take = n < left ? n : (size_t)left;

        if ((rc = room(p, &p->head, &p->head_cap, take, err)) != 0 ||
            (rc = ckpt_file_read_at(p->file->file, p->head, take, p->chunk->start + p->at,
                                    err)) != 0)
            return rc;
        if (parse_header(h, p->head, take))
            return 0;
        if (take == left || n >= MAX_HEAD)
            return ckpt_fail(err, CKPT_EFORMAT, "a page header is damaged");
    }
}

static int check_header(const struct header *h, const struct pq_pages *p, struct ckpt_err *err)
{
    uint64_t left = p->chunk->limit - p->at - h->len;

    if (h->packed < 0 || h->raw < 0 || (uint64_t)h->packed > left)
        return ckpt_fail(err, CKPT_EFORMAT, "a page of %lld bytes, %llu are left",
                         (long long)h->packed, (unsigned long long)left);
    if (h->type == INDEX_PAGE || h->type > DATA_PAGE_2)
        return 0;
    if (h->type < 0 || !h->has_body || h->values < 0 || h->values > INT32_MAX)
        return ckpt_fail(err, CKPT_EFORMAT, "a page header does not say what the page holds");
    if ((uint64_t)h->raw > PQ_MAX_PAGE || ((uint64_t)h->raw > PQ_EASY_PAGE &&
                                           h->raw / PQ_MAX_RATIO > h->packed))
        return ckpt_fail(err, CKPT_ELIMIT, "a page of %lld bytes unpacks to %lld",
                         (long long)h->packed, (long long)h->raw);
    if (h->def_len < 0 || h->rep_len < 0 || h->def_len > INT32_MAX || h->rep_len > INT32_MAX ||
        h->def_len + h->rep_len > h->packed || h->def_len + h->rep_len > h->raw)
        return ckpt_fail(err, CKPT_EFORMAT, "a page whose levels are longer than it");
    if (h->type == DATA_PAGE &&
        ((p->leaf->def > 0 && h->def_encoding != PQ_ENC_RLE) ||
         (p->leaf->rep > 0 && h->rep_encoding != PQ_ENC_RLE)))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "levels encoded as %s",
                         pq_encoding_name((int)(h->def_encoding != PQ_ENC_RLE
                                                ? h->def_encoding : h->rep_encoding)));
    return 0;
}

/* Read and unpack the body of the page into p->raw; levels of version 2 are never packed. */
static int read_body(struct pq_pages *p, const struct header *h, struct ckpt_err *err)
{
    size_t packed = (size_t)h->packed, raw = (size_t)h->raw,
           levels = (size_t)(h->def_len + h->rep_len);
    uint64_t from = p->chunk->start + p->at + h->len;
    bool bare = p->chunk->codec == PQ_RAW || (h->type == DATA_PAGE_2 && !h->is_packed);
    unsigned char **to = bare ? &p->raw : &p->packed;
    size_t *cap = bare ? &p->raw_cap : &p->packed_cap;
    int rc;

    if (bare && packed != raw)
        return ckpt_fail(err, CKPT_EFORMAT, "a page of %zu bytes says it is %zu, not packed",
                         packed, raw);
    if ((rc = room(p, &p->raw, &p->raw_cap, raw + 1, err)) != 0 ||
        (rc = room(p, to, cap, packed + 1, err)) != 0 ||
        (rc = ckpt_file_read_at(p->file->file, *to, packed, from, err)) != 0)
        return rc;
    if (h->has_crc && (uint32_t)h->crc != (uint32_t)crc32(0, *to, (unsigned)packed))
        return ckpt_fail_as(err, CKPT_EFORMAT, "checksum", "the checksum of a page does not hold");
    if (bare)
        return 0;
    memcpy(p->raw, p->packed, levels);
    if (packed == levels && raw == levels)
        return 0;
    return pq_unpack(p->chunk->codec, p->raw + levels, raw - levels, p->packed + levels,
                     packed - levels, err);
}

/* Levels of a version 1 page, preceded by their length. */
static bool take_levels(struct ckpt_cursor *c, const unsigned char **levels, size_t *len)
{
    *len = ckpt_cursor_u32le(c);
    if (c->failed || *len > ckpt_cursor_left(c))
        return false;
    *levels = ckpt_cursor_bytes(c, *len);
    return true;
}

static int split_body(struct pq_pages *p, struct pq_page *page, const struct header *h,
                      struct ckpt_err *err)
{
    struct ckpt_cursor c;
    bool good = true;

    *page = (struct pq_page){.dictionary = h->type == DICTIONARY_PAGE,
                             .values = (uint64_t)h->values,
                             .encoding = h->encoding >= 0 && h->encoding < 100
                                             ? (int)h->encoding : 100};
    ckpt_cursor_init(&c, p->raw, (size_t)h->raw);
    if (h->type == DATA_PAGE_2) {
        page->rep_len = (size_t)h->rep_len;
        page->rep = ckpt_cursor_bytes(&c, page->rep_len);
        page->def_len = (size_t)h->def_len;
        page->def = ckpt_cursor_bytes(&c, page->def_len);
    } else if (h->type == DATA_PAGE) {
        if (p->leaf->rep > 0)
            good = take_levels(&c, &page->rep, &page->rep_len);
        if (good && p->leaf->def > 0)
            good = take_levels(&c, &page->def, &page->def_len);
    }
    if (!good)
        return ckpt_fail(err, CKPT_EFORMAT, "a page whose levels are longer than it");
    page->data_len = ckpt_cursor_left(&c);
    page->data = p->raw + c.pos;
    return 0;
}

int pq_pages_next(struct pq_pages *p, struct pq_page *page, bool *got, struct ckpt_err *err)
{
    struct header h = {0};
    int rc = 0;

    *got = false;
    while (rc == 0 && p->at < p->chunk->limit) {
        rc = read_header(&h, p, err);
        if (rc == 0)
            rc = check_header(&h, p, err);
        if (rc == 0 && h.type != INDEX_PAGE && h.type <= DATA_PAGE_2) {
            rc = read_body(p, &h, err);
            if (rc == 0)
                rc = split_body(p, page, &h, err);
            *got = rc == 0;
        }
        if (rc == 0)
            p->at += h.len + (uint64_t)h.packed;
        if (*got)
            break;
    }
    return rc ? ckpt_err_in(err, "page at byte %llu",
                            (unsigned long long)(p->chunk->start + p->at)) : 0;
}

int pq_pages_pass(struct pq_pages *p, uint64_t most, uint64_t *passed, struct ckpt_err *err)
{
    struct header h = {0};
    int rc = 0;

    *passed = 0;
    while (p->at < p->chunk->limit) {
        rc = read_header(&h, p, err);
        if (rc == 0)
            rc = check_header(&h, p, err);
        if (rc || (h.type != DATA_PAGE && h.type != DATA_PAGE_2) ||
            (uint64_t)h.values > most - *passed)
            break;
        *passed += (uint64_t)h.values;
        p->at += h.len + (uint64_t)h.packed;
    }
    return rc ? ckpt_err_in(err, "page at byte %llu",
                            (unsigned long long)(p->chunk->start + p->at)) : 0;
}

unsigned char *pq_pages_take(struct pq_pages *p, size_t *cap)
{
    unsigned char *b = p->raw;

    *cap = p->raw_cap;
    p->raw = NULL;
    p->raw_cap = 0;
    return b;
}

void pq_pages_release(struct pq_pages *p)
{
    *p->memory -= p->raw_cap + p->packed_cap + p->head_cap;
    ckpt_free(p->raw);
    ckpt_free(p->packed);
    ckpt_free(p->head);
    p->raw = p->packed = p->head = NULL;
    p->raw_cap = p->packed_cap = p->head_cap = 0;
}
