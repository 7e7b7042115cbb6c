/* sample_file - see sample_file.h. */
#include "trainer/data/sample_file.h"

#include <string.h>

#include "libckpt/digest.h"

#define MAGIC     "CKPTIDS1"
#define FIXED     40                    /* bytes of a sample before its ids */
#define HASHED    368                   /* bytes of the head that its digest covers */
#define PIECE     ((size_t)256 * SAMPLE_FILE_BLOCK)     /* index entries read together */
#define MAX_BYTES ((uint64_t)1 << 31)   /* of a sample */

enum {
    WIDE     = 1 << 0,                  /* ids are i32 */
    CUT      = 1 << 1,
    BITS     = 1 << 2,                  /* labels as one bit per id */
    LISTED   = 1 << 3,                  /* labels as i32 */
    ALL_BITS = WIDE | CUT | BITS | LISTED
};

struct sample_file {
    struct ckpt_file *file;
    uint64_t          size;
    int64_t           n;
    struct data_stats stats;
};

/* -- a sample --------------------------------------------------------------------------------- */

static void put_ids(struct ckpt_buf *b, const int32_t *id, int64_t n, bool wide)
{
    for (int64_t i = 0; i < n; i++)
        if (wide)
            ckpt_buf_put_u32le(b, (uint32_t)id[i]);
        else
            ckpt_buf_put_u16le(b, (uint16_t)id[i]);
}

static bool are_wide(const int32_t *id, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (id[i] < 0 || id[i] > UINT16_MAX)
            return true;
    return false;
}

/* Find the first label that is set; from there on labels equal the ids, else they are stored as
 * BITS or LISTED. */
static unsigned labels_as(const struct sample *s, int64_t *first)
{
    int64_t i = 0;

    while (i < s->n && s->labels[i] == SAMPLE_NO_LABEL)
        i++;
    *first = i;
    while (i < s->n && s->labels[i] == s->ids[i])
        i++;
    if (i == s->n)
        return 0;
    while (i < s->n && (s->labels[i] == s->ids[i] || s->labels[i] == SAMPLE_NO_LABEL))
        i++;
    return i == s->n ? BITS : LISTED;
}

static void put_bits(struct ckpt_buf *b, const struct sample *s)
{
    for (int64_t i = 0; i < s->n; i += 8) {
        unsigned byte = 0;

        for (int64_t k = i; k < i + 8 && k < s->n; k++)
            byte |= (unsigned)(s->labels[k] != SAMPLE_NO_LABEL) << (k - i);
        ckpt_buf_put_u8(b, (uint8_t)byte);
    }
}

void sample_file_put(struct ckpt_buf *b, const struct sample *s)
{
    unsigned char digest[CKPT_XXH128_BYTES];
    bool wide = are_wide(s->ids, s->n) || are_wide(s->enc, s->n_enc);
    size_t at = b->len;
    int64_t first;
    unsigned as = labels_as(s, &first);

    ckpt_buf_put_u64le(b, 0);
    ckpt_buf_put_u32le(b, as | (wide ? WIDE : 0) | (s->cut ? CUT : 0));
    ckpt_buf_put_u32le(b, (uint32_t)s->n);
    ckpt_buf_put_u32le(b, (uint32_t)s->n_enc);
    ckpt_buf_put_u32le(b, (uint32_t)first);
    ckpt_buf_put_u64le(b, (uint64_t)s->lead);
    ckpt_buf_put_u64le(b, (uint64_t)s->given);
    put_ids(b, s->ids, s->n, wide);
    if (as == BITS)
        put_bits(b, s);
    else if (as == LISTED)
        put_ids(b, s->labels, s->n, true);
    put_ids(b, s->enc, s->n_enc, wide);
    if (!ckpt_buf_ok(b))
        return;
    ckpt_xxh128(digest, b->data + at + 8, b->len - at - 8);
    memcpy(b->data + at, digest, 8);
}

static void get_ids(struct ckpt_cursor *c, int32_t *id, int64_t n, bool wide)
{
    for (int64_t i = 0; i < n; i++)
        id[i] = wide ? (int32_t)ckpt_cursor_u32le(c) : ckpt_cursor_u16le(c);
}

static void get_labels(struct ckpt_cursor *c, struct sample *s, unsigned flags, int64_t first)
{
    const unsigned char *bits = NULL;

    if (flags & LISTED) {
        get_ids(c, s->labels, s->n, true);
        return;
    }
    if ((flags & BITS) && !(bits = ckpt_cursor_bytes(c, ((size_t)s->n + 7) / 8)))
        return;
    for (int64_t i = 0; i < s->n; i++)
        s->labels[i] = (bits ? bits[i / 8] >> (i % 8) & 1 : i >= first) ? s->ids[i]
                                                                         : SAMPLE_NO_LABEL;
}

static bool are_ids(const int32_t *id, int64_t n, int32_t low)
{
    for (int64_t i = 0; i < n; i++)
        if (id[i] < low)
            return false;
    return true;
}

/* Bytes of n ids, labels and n_enc ids with these flags. */
static uint64_t bytes_of(unsigned flags, uint64_t n, uint64_t n_enc)
{
    uint64_t each = flags & WIDE ? 4 : 2;

    return (n + n_enc) * each + (flags & LISTED ? 4 * n : flags & BITS ? (n + 7) / 8 : 0);
}

/* Decode a sample from bytes[n], after its digest. */
static int take_sample(struct sample *s, const unsigned char *bytes, size_t n,
                       struct ckpt_err *err)
{
    struct ckpt_cursor c;
    uint32_t flags, n_ids, n_enc, first;
    uint64_t lead, given;
    int rc;

    ckpt_cursor_init(&c, bytes, n);
    flags = ckpt_cursor_u32le(&c);
    n_ids = ckpt_cursor_u32le(&c);
    n_enc = ckpt_cursor_u32le(&c);
    first = ckpt_cursor_u32le(&c);
    lead = ckpt_cursor_u64le(&c);
    given = ckpt_cursor_u64le(&c);
    if (c.failed || flags & ~(unsigned)ALL_BITS || (flags & (BITS | LISTED)) == (BITS | LISTED) ||
        n_ids == 0 || first > n_ids || lead > INT64_MAX || given > INT64_MAX ||
        bytes_of(flags, n_ids, n_enc) != ckpt_cursor_left(&c))
        return ckpt_fail(err, CKPT_EFORMAT, "a sample of %zu bytes that do not fit together", n);
    if ((rc = sample_reserve(s, n_ids, err)) != 0 ||
        (rc = sample_reserve_enc(s, n_enc, err)) != 0)
        return rc;
    s->n = n_ids;
    s->n_enc = n_enc;
    s->lead = (int64_t)lead;
    s->given = (int64_t)given;
    s->cut = flags & CUT;
    get_ids(&c, s->ids, s->n, flags & WIDE);
    get_labels(&c, s, flags, first);
    get_ids(&c, s->enc, s->n_enc, flags & WIDE);
    if (c.failed || !are_ids(s->ids, s->n, 0) || !are_ids(s->enc, s->n_enc, 0) ||
        !are_ids(s->labels, s->n, SAMPLE_NO_LABEL))
        return ckpt_fail(err, CKPT_EFORMAT, "a sample with numbers that are no ids");
    return 0;
}

/* -- the index -------------------------------------------------------------------------------- */

struct entry {
    uint64_t offset;
    uint32_t bytes;
    int32_t  length;
};

void sample_file_entry(struct ckpt_buf *b, uint64_t offset, uint32_t bytes, int32_t length)
{
    ckpt_buf_put_u64le(b, offset);
    ckpt_buf_put_u32le(b, bytes);
    ckpt_buf_put_u32le(b, (uint32_t)length);
}

static struct entry get_entry(struct ckpt_cursor *c)
{
    struct entry e;

    e.offset = ckpt_cursor_u64le(c);
    e.bytes = ckpt_cursor_u32le(c);
    e.length = (int32_t)ckpt_cursor_u32le(c);
    return e;
}

/* Call with each piece of the index, in order. */
typedef void piece_fn(void *ctx, const unsigned char *bytes, size_t n_entry, int64_t first);

static int each_piece(const struct sample_file *f, piece_fn *fn, void *ctx, struct ckpt_err *err)
{
    size_t most = (uint64_t)f->n < PIECE ? (size_t)f->n : PIECE;
    unsigned char *bytes = ckpt_alloc_buffer(most * SAMPLE_FILE_ENTRY);
    int rc = bytes ? 0 : ckpt_nomem(err, most * SAMPLE_FILE_ENTRY);

    for (int64_t at = 0; rc == 0 && at < f->n; at += (int64_t)most) {
        size_t n = f->n - at < (int64_t)most ? (size_t)(f->n - at) : most;

        rc = ckpt_file_read_at(f->file, bytes, n * SAMPLE_FILE_ENTRY,
                               SAMPLE_FILE_HEAD + (uint64_t)at * SAMPLE_FILE_ENTRY, err);
        if (rc == 0)
            fn(ctx, bytes, n, at);
    }
    ckpt_free(bytes);
    return rc;
}

struct proof {
    struct ckpt_xxh128_state *xxh;
    int64_t                   n_good;   /* records that have a sample */
};

static void prove_piece(void *ctx, const unsigned char *bytes, size_t n, int64_t first)
{
    unsigned char digest[CKPT_XXH128_BYTES];
    struct proof *p = ctx;
    struct ckpt_cursor c;

    (void)first;
    ckpt_cursor_init(&c, bytes, n * SAMPLE_FILE_ENTRY);
    for (size_t i = 0; i < n; i++)
        p->n_good += get_entry(&c).length >= 0;
    for (size_t i = 0; i < n; i += SAMPLE_FILE_BLOCK) {
        size_t m = n - i < SAMPLE_FILE_BLOCK ? n - i : SAMPLE_FILE_BLOCK;

        ckpt_xxh128(digest, bytes + i * SAMPLE_FILE_ENTRY, m * SAMPLE_FILE_ENTRY);
        ckpt_xxh128_add(p->xxh, digest, sizeof digest);
    }
}

static void lengths_piece(void *ctx, const unsigned char *bytes, size_t n, int64_t first)
{
    int32_t *length = ctx;
    struct ckpt_cursor c;

    ckpt_cursor_init(&c, bytes, n * SAMPLE_FILE_ENTRY);
    for (size_t i = 0; i < n; i++)
        length[first + (int64_t)i] = get_entry(&c).length;
}

int sample_file_lengths(const struct sample_file *f, int32_t *length, struct ckpt_err *err)
{
    return each_piece(f, lengths_piece, length, err);
}

static int prove_index(const struct sample_file *f, const unsigned char want[16],
                       struct ckpt_err *err)
{
    unsigned char got[CKPT_XXH128_BYTES];
    struct proof p = {0};
    int rc = ckpt_xxh128_new(&p.xxh, err);

    if (rc)
        return rc;
    rc = each_piece(f, prove_piece, &p, err);
    ckpt_xxh128_end(p.xxh, got);
    ckpt_xxh128_free(p.xxh);
    if (rc == 0 && memcmp(got, want, sizeof got) != 0)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "digest", "its index does not have its digest");
    if (rc == 0 && (p.n_good != f->stats.n_samples || f->n - p.n_good != f->stats.n_skipped))
        rc = ckpt_fail(err, CKPT_EFORMAT, "says %lld samples, has %lld of %lld records",
                       (long long)f->stats.n_samples, (long long)p.n_good, (long long)f->n);
    return rc;
}

/* -- the file --------------------------------------------------------------------------------- */

/* The counts in the order of the file. */
static void stats_numbers(int64_t *number[7], struct data_stats *s)
{
    int64_t *const all[7] = {&s->n_samples, &s->n_skipped, &s->n_truncated, &s->n_tokens,
                             &s->n_targets, &s->longest, &s->n_no_target};

    memcpy(number, all, sizeof all);
}

int sample_file_head(unsigned char head[SAMPLE_FILE_HEAD],
                     const unsigned char key[SAMPLE_FILE_KEY], int64_t n, uint64_t bytes,
                     const struct data_stats *stats, const unsigned char index[16],
                     struct ckpt_err *err)
{
    struct data_stats copy = *stats;
    int64_t *number[7];
    struct ckpt_buf b;
    int rc = 0;

    stats_numbers(number, &copy);
    ckpt_buf_init(&b, SAMPLE_FILE_HEAD);
    ckpt_buf_put(&b, MAGIC, 8);
    ckpt_buf_put(&b, key, SAMPLE_FILE_KEY);
    ckpt_buf_put_u64le(&b, (uint64_t)n);
    ckpt_buf_put_u64le(&b, bytes);
    for (size_t i = 0; i < 7; i++)
        ckpt_buf_put_u64le(&b, (uint64_t)*number[i]);
    ckpt_buf_put(&b, copy.first_bad, sizeof copy.first_bad);
    ckpt_buf_put(&b, index, 16);
    if (ckpt_buf_ok(&b)) {
        memcpy(head, b.data, HASHED);
        ckpt_xxh128(head + HASHED, head, HASHED);
    } else {
        rc = ckpt_nomem(err, SAMPLE_FILE_HEAD);
    }
    ckpt_buf_release(&b);
    return rc;
}

/* Read everything but the index itself. */
static int read_head(struct sample_file *f, unsigned char index[16],
                     const unsigned char key[SAMPLE_FILE_KEY], int64_t n, struct ckpt_err *err)
{
    unsigned char head[SAMPLE_FILE_HEAD], digest[CKPT_XXH128_BYTES];
    const unsigned char *its_key;
    int64_t *number[7];
    struct ckpt_cursor c;
    uint64_t its_n, its_size;
    int rc;

    if (f->size < SAMPLE_FILE_HEAD)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "%llu bytes are no file of samples",
                            (unsigned long long)f->size);
    if ((rc = ckpt_file_read_at(f->file, head, sizeof head, 0, err)) != 0)
        return rc;
    ckpt_xxh128(digest, head, HASHED);
    if (memcmp(head, MAGIC, 8) != 0 || memcmp(digest, head + HASHED, sizeof digest) != 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "digest", "its head does not have its digest");
    ckpt_cursor_init(&c, head, sizeof head);
    ckpt_cursor_skip(&c, 8);
    its_key = ckpt_cursor_bytes(&c, SAMPLE_FILE_KEY);
    its_n = ckpt_cursor_u64le(&c);
    its_size = ckpt_cursor_u64le(&c);
    stats_numbers(number, &f->stats);
    for (size_t i = 0; i < 7; i++)
        *number[i] = (int64_t)ckpt_cursor_u64le(&c);
    memcpy(f->stats.first_bad, ckpt_cursor_bytes(&c, sizeof f->stats.first_bad),
           sizeof f->stats.first_bad);
    f->stats.first_bad[sizeof f->stats.first_bad - 1] = '\0';
    memcpy(index, ckpt_cursor_bytes(&c, 16), 16);
    if (memcmp(its_key, key, SAMPLE_FILE_KEY) != 0 || its_n != (uint64_t)n)
        return ckpt_fail(err, CKPT_EMISMATCH, "is of other data");
    if (its_size != f->size || its_n > (f->size - SAMPLE_FILE_HEAD) / SAMPLE_FILE_ENTRY)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "says %llu bytes, has %llu",
                            (unsigned long long)its_size, (unsigned long long)f->size);
    return 0;
}

int sample_file_open(struct sample_file **out, struct ckpt_file *file,
                     const unsigned char key[SAMPLE_FILE_KEY], int64_t n, struct ckpt_err *err)
{
    struct sample_file *f = ckpt_alloc(1, sizeof *f);
    unsigned char index[16];
    int rc;

    *out = NULL;
    if (!f) {
        ckpt_file_close(file);
        return ckpt_nomem(err, sizeof *f);
    }
    f->file = file;
    f->size = ckpt_file_size(file);
    f->n = n;
    rc = read_head(f, index, key, n, err);
    if (rc == 0)
        rc = prove_index(f, index, err);
    if (rc) {
        sample_file_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

void sample_file_close(struct sample_file *f)
{
    if (!f)
        return;
    ckpt_file_close(f->file);
    ckpt_free(f);
}

const struct data_stats *sample_file_stats(const struct sample_file *f) { return &f->stats; }

int sample_file_get(const struct sample_file *f, int64_t i, struct sample *s, bool *have,
                    struct ckpt_err *err)
{
    unsigned char raw[SAMPLE_FILE_ENTRY], digest[CKPT_XXH128_BYTES], *bytes;
    struct ckpt_cursor c;
    struct entry e;
    int rc;

    *have = false;
    if ((rc = ckpt_file_read_at(f->file, raw, sizeof raw,
                                SAMPLE_FILE_HEAD + (uint64_t)i * SAMPLE_FILE_ENTRY, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, raw, sizeof raw);
    e = get_entry(&c);
    if (e.length < 0)
        return 0;
    if (e.bytes < FIXED || e.bytes > MAX_BYTES || e.bytes > f->size ||
        e.offset > f->size - e.bytes)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "sample %lld of %u bytes at %llu, the "
                            "file has %llu", (long long)i, e.bytes, (unsigned long long)e.offset,
                            (unsigned long long)f->size);
    bytes = ckpt_alloc_buffer(e.bytes);
    if (!bytes)
        return ckpt_nomem(err, e.bytes);
    rc = ckpt_file_read_at(f->file, bytes, e.bytes, e.offset, err);
    if (rc == 0) {
        ckpt_xxh128(digest, bytes + 8, e.bytes - 8);
        if (memcmp(digest, bytes, 8) != 0)
            rc = ckpt_fail_as(err, CKPT_EFORMAT, "digest", "sample %lld does not have its digest",
                              (long long)i);
    }
    if (rc == 0)
        rc = take_sample(s, bytes + 8, e.bytes - 8, err);
    if (rc == 0 && sample_length(s) != e.length)
        rc = ckpt_fail(err, CKPT_EFORMAT, "sample %lld is of %lld rows, its index says %d",
                       (long long)i, (long long)sample_length(s), e.length);
    *have = rc == 0;
    ckpt_free(bytes);
    return rc;
}
