/* data/sample_cache - see data/sample_cache.h. */
#include "trainer/data/sample_cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "libckpt/ckpt.h"
#include "libckpt/digest.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/cache.h"
#include "libckpt/remote/field.h"
#include "trainer/data/sample_file.h"

#define PROBES      8           /* samples that are recomputed and compared */
#define WORTH       1000        /* with fewer records no file is written by default */
#define NAME        "the cache of samples"

struct sample_cache {
    struct sample_file *file;
    char                key[CACHE_KEY];
    atomic_bool         told;   /* damage of a sample was reported */
};

/* -- making one ------------------------------------------------------------------------------- */

/* A worker's block. */
struct block {
    struct ckpt_buf samples, entries;
    uint32_t        bytes[SCAN_BLOCK];
    int32_t         length[SCAN_BLOCK];
    size_t          n;
};

struct making {
    const struct data_source *d;
    unsigned char             key[SAMPLE_FILE_KEY];
    struct cache_sink        *sink;
    unsigned char           (*digest)[CKPT_XXH128_BYTES];   /* of the index's blocks */
    struct block              worker[SCAN_WORKERS];
    pthread_mutex_t           lock;     /* of end */
    uint64_t                  end;
};

_Static_assert(SCAN_BLOCK == SAMPLE_FILE_BLOCK, "a block of a survey is one of the index");

static int put_sample(void *ctx, size_t worker, int64_t i, const struct sample *s,
                      struct ckpt_err *err)
{
    struct making *m = ctx;
    struct block *b = &m->worker[worker];
    size_t before = b->samples.len;

    (void)i;
    if (s)
        sample_file_put(&b->samples, s);
    if (!ckpt_buf_ok(&b->samples))
        return ckpt_nomem(err, before);
    b->bytes[b->n] = (uint32_t)(b->samples.len - before);
    b->length[b->n++] = s ? (int32_t)sample_length(s) : -1;
    return 0;
}

static int end_block(void *ctx, size_t worker, int64_t first, int64_t n, struct ckpt_err *err)
{
    struct making *m = ctx;
    struct block *b = &m->worker[worker];
    uint64_t at, offset;
    int rc;

    pthread_mutex_lock(&m->lock);
    offset = at = m->end;
    m->end += b->samples.len;
    pthread_mutex_unlock(&m->lock);
    for (int64_t i = 0; i < n; i++) {
        sample_file_entry(&b->entries, offset, b->bytes[i], b->length[i]);
        offset += b->bytes[i];
    }
    rc = ckpt_buf_ok(&b->entries) ? 0 : ckpt_nomem(err, b->entries.len);
    if (rc == 0)
        ckpt_xxh128(m->digest[first / SCAN_BLOCK], b->entries.data, b->entries.len);
    if (rc == 0 && b->samples.len > 0)
        rc = cache_put(m->sink, b->samples.data, b->samples.len, at, err);
    if (rc == 0)
        rc = cache_put(m->sink, b->entries.data, b->entries.len,
                       SAMPLE_FILE_HEAD + (uint64_t)first * SAMPLE_FILE_ENTRY, err);
    b->samples.len = b->entries.len = b->n = 0;
    return rc;
}

static int fill(void *ctx, struct cache_sink *sink, struct ckpt_err *err)
{
    struct making *m = ctx;
    struct scan_sink into = {put_sample, end_block, m};
    size_t n_block = ((size_t)m->d->n + SCAN_BLOCK - 1) / SCAN_BLOCK;
    unsigned char head[SAMPLE_FILE_HEAD], index[CKPT_XXH128_BYTES];
    struct data_stats stats;
    int rc = 0;

    m->sink = sink;
    m->end = SAMPLE_FILE_HEAD + (uint64_t)m->d->n * SAMPLE_FILE_ENTRY;
    m->digest = ckpt_alloc(n_block, sizeof *m->digest);
    if (!m->digest)
        return ckpt_nomem(err, n_block * sizeof *m->digest);
    for (size_t i = 0; i < SCAN_WORKERS; i++) {
        ckpt_buf_init(&m->worker[i].samples, SIZE_MAX);
        ckpt_buf_init(&m->worker[i].entries, SIZE_MAX);
    }
    rc = data_source_survey(m->d, NULL, &stats, &into, err);
    ckpt_xxh128(index, m->digest, n_block * sizeof *m->digest);
    if (rc == 0)
        rc = sample_file_head(head, m->key, m->d->n, m->end, &stats, index, err);
    if (rc == 0)
        rc = cache_put(sink, head, sizeof head, 0, err);
    for (size_t i = 0; i < SCAN_WORKERS; i++) {
        ckpt_buf_release(&m->worker[i].samples);
        ckpt_buf_release(&m->worker[i].entries);
    }
    ckpt_free(m->digest);
    if (rc == 0)
        ckpt_log(CKPT_LOG_NOTE, "%lld samples are kept in the cache, %.1f MB",
                 (long long)stats.n_samples, (double)m->end / 1e6);
    return rc;
}

/* -- identification --------------------------------------------------------------------------- */

static void put_text(struct ckpt_buf *b, const char *s)
{
    ckpt_buf_put_u64le(b, s ? strlen(s) : UINT64_MAX);
    if (s)
        ckpt_buf_put_str(b, s);
}

/* Digest of everything that samples depend on. */
static int make_key(unsigned char key[SAMPLE_FILE_KEY], const struct data_source *d,
                    const struct data_opts *o, struct ckpt_err *err)
{
    unsigned char id[16], tok[16] = {0}, chat[16] = {0};
    struct ckpt_buf b;
    int rc = records_identity(d->records, id, err);

    if (rc == 0 && d->chat)
        rc = chat_digest(d->chat, chat, err);
    if (rc)
        return rc;
    if (d->tok)
        tokenizer_digest(d->tok, tok);
    ckpt_buf_init(&b, SIZE_MAX);
    ckpt_buf_put_str(&b, "samples of ckpt " CKPT_VERSION);
    ckpt_buf_put(&b, id, sizeof id);
    ckpt_buf_put(&b, tok, sizeof tok);
    put_text(&b, o->prompt_template);
    put_text(&b, o->completion_template);
    put_text(&b, o->text_field);
    put_text(&b, o->field_mapping);
    put_text(&b, o->messages_field);
    ckpt_buf_put(&b, chat, sizeof chat);
    ckpt_buf_put_u64le(&b, (uint64_t)o->max_seq_length);
    ckpt_buf_put_u64le(&b, (uint64_t)d->kind);
    ckpt_buf_put_u8(&b, o->loss_on_prompt);
    ckpt_buf_put_u8(&b, o->whole_chats);
    ckpt_buf_put_u8(&b, o->chat_prompts);
    ckpt_buf_put_u8(&b, o->no_eos);
    ckpt_buf_put_u8(&b, o->cut_left);
    ckpt_buf_put_u8(&b, o->mask_history);
    ckpt_buf_put_u8(&b, o->pair.wanted);
    ckpt_buf_put_u32le(&b, (uint32_t)o->pair.start);
    ckpt_buf_put_u32le(&b, (uint32_t)o->pair.pad);
    ckpt_buf_put_u64le(&b, (uint64_t)o->pair.max_target);
    if (ckpt_buf_ok(&b))
        ckpt_xxh128(key, b.data, b.len);
    else
        rc = ckpt_nomem(err, b.len);
    ckpt_buf_release(&b);
    return rc;
}

/* -- opening one ------------------------------------------------------------------------------ */

static bool same_sample(const struct sample *a, const struct sample *b)
{
    return a->n == b->n && a->n_enc == b->n_enc && a->lead == b->lead && a->given == b->given &&
           a->cut == b->cut && memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0 &&
           memcmp(a->labels, b->labels, (size_t)a->n * sizeof *a->labels) == 0 &&
           (a->n_enc == 0 || memcmp(a->enc, b->enc, (size_t)a->n_enc * sizeof *a->enc) == 0);
}

/* Whether some samples equal those computed now. */
static int probe(const struct sample_file *file, const struct data_source *d, struct ckpt_err *err)
{
    struct sample found = {0}, made = {0};
    int rc = 0;

    for (int64_t p = 0; rc == 0 && p < PROBES; p++) {
        int64_t i = p * (d->n - 1) / (PROBES - 1);
        struct ckpt_err bad = {0};
        bool have;

        rc = sample_file_get(file, i, &found, &have, err);
        if (rc == 0 && have != (data_source_make(d, i, &made, &bad) == 0))
            rc = ckpt_fail(err, CKPT_EMISMATCH, "record %lld %s", (long long)i,
                           have ? "makes no sample any more" : "makes a sample now");
        else if (rc == 0 && have && !same_sample(&found, &made))
            rc = ckpt_fail(err, CKPT_EMISMATCH, "record %lld makes another sample now",
                           (long long)i);
    }
    sample_release(&found);
    sample_release(&made);
    return rc;
}

/* Takes file. */
static int take(struct sample_cache *k, struct ckpt_file *file, const struct data_source *d,
                const unsigned char key[SAMPLE_FILE_KEY], struct ckpt_err *err)
{
    int rc = sample_file_open(&k->file, file, key, d->n, err);

    if (rc == 0)
        rc = probe(k->file, d, err);
    if (rc) {
        sample_file_close(k->file);
        k->file = NULL;
    }
    return rc;
}

/* Open an existing, intact file, or none: its fault is reported. */
static int look(struct sample_cache *k, const struct data_source *d,
                const unsigned char key[SAMPLE_FILE_KEY], struct ckpt_err *err)
{
    struct ckpt_file *file;
    int rc;

    if ((rc = cache_find(&file, k->key, FIELD_NONE, NAME, err)) != 0)
        return rc;
    rc = file ? take(k, file, d, key, err) : 0;
    if (rc == 0 || rc == CKPT_ENOMEM)
        return rc;
    ckpt_log(CKPT_LOG_WARNING, NAME " is not used: %s", err->text);
    ckpt_err_clear(err);
    cache_drop(k->key);
    return 0;
}

static int make(struct sample_cache *k, const struct data_source *d,
                const unsigned char key[SAMPLE_FILE_KEY], struct ckpt_err *err)
{
    struct making *m = ckpt_alloc(1, sizeof *m);
    struct ckpt_file *file;
    int rc;

    if (!m)
        return ckpt_nomem(err, sizeof *m);
    m->d = d;
    memcpy(m->key, key, SAMPLE_FILE_KEY);
    pthread_mutex_init(&m->lock, NULL);
    rc = cache_get(&file, k->key, FIELD_NONE, NAME, fill, m, err);
    if (rc == 0)
        rc = take(k, file, d, key, err);
    pthread_mutex_destroy(&m->lock);
    ckpt_free(m);
    if (rc == 0 || rc == CKPT_ESTOPPED || rc == CKPT_ENOMEM)
        return rc;
    /* A problem with a record is reported again when the record is read. */
    ckpt_log(CKPT_LOG_WARNING, "samples are not kept: %s", err->text);
    ckpt_err_clear(err);
    return 0;
}

/* Whether storing the samples pays, if the user did not decide. */
static bool pays(const struct data_source *d, const struct data_opts *o)
{
    return d->kind != DATA_IDS && d->n >= WORTH && cache_keeps() &&
           (o->passes > 1 || o->bad == DATA_BAD_SKIP || o->excess != DATA_EXCESS_TRUNCATE);
}

int sample_cache_open(struct sample_cache **out, const struct data_source *d,
                      const struct data_opts *opts, struct ckpt_err *err)
{
    struct sample_cache *k;
    unsigned char key[SAMPLE_FILE_KEY];
    char hex[2 * sizeof key + 1];
    int rc;

    *out = NULL;
    if (opts->cache == DATA_CACHE_OFF)
        return 0;
    if (cache_check(err)) {
        ckpt_log(CKPT_LOG_WARNING, "samples are not kept: %s", err->text);
        ckpt_err_clear(err);
        return 0;
    }
    k = ckpt_alloc(1, sizeof *k);
    if (!k)
        return ckpt_nomem(err, sizeof *k);
    rc = make_key(key, d, opts, err);
    if (rc == 0) {
        ckpt_digest_hex(hex, key, sizeof key);
        snprintf(k->key, sizeof k->key, "samples-%s", hex);
        rc = look(k, d, key, err);
    }
    if (rc == 0 && !k->file && (opts->cache == DATA_CACHE_ON || pays(d, opts)))
        rc = make(k, d, key, err);
    if (rc == 0 && k->file) {
        *out = k;
        k = NULL;
    }
    sample_cache_close(k);
    return rc;
}

void sample_cache_close(struct sample_cache *k)
{
    if (!k)
        return;
    sample_file_close(k->file);
    ckpt_free(k);
}

bool sample_cache_get(struct sample_cache *k, int64_t i, struct sample *s)
{
    struct ckpt_err err = {0};
    bool have;

    if (sample_file_get(k->file, i, s, &have, &err) == 0)
        return have;
    if (!atomic_exchange(&k->told, true)) {
        ckpt_log(CKPT_LOG_WARNING, NAME ": %s; made from its record, as others that are damaged",
                 err.text);
        cache_drop(k->key);
    }
    return false;
}

int sample_cache_survey(const struct sample_cache *k, int32_t *length, struct data_stats *stats,
                        struct ckpt_err *err)
{
    *stats = *sample_file_stats(k->file);
    return sample_file_lengths(k->file, length, err);
}
