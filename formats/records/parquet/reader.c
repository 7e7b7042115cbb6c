/*
 * parquet - the rows of a parquet file as records.
 *
 * A row is spread over as many places as the file has columns, and can only be reached by reading
 * its row group from the start.  So each row group is read once, when the first of its rows is
 * requested, and its rows are stored as texts in a spill file; several threads can read different
 * row groups at the same time.  Rows before a damaged place can still be read.
 */
#include <pthread.h>
#include <string.h>
#include <strings.h>

#include "formats/records/parquet/rows.h"
#include "formats/records/record.h"
#include "formats/records/rows.h"
#include "formats/records/spill_file.h"
#include "libckpt/base/json.h"
#include "libckpt/base/range.h"
#include "libckpt/err.h"

#define MAX_TEXT ((uint64_t)16 << 30)   /* most bytes of a group's rows as text */

enum state { UNREAD, BEING_READ, READ };

/* The rows of a row group. */
struct store {
    enum state        state;
    struct spill_part part;
    struct ckpt_err  *why;              /* why it ends early; or NULL */
};

struct parquet {
    struct ckpt_file *file;
    struct pq_file    meta;
    struct spill_file     *spill;            /* created for the first row */
    struct store     *store;            /* [n_group] */
    pthread_mutex_t   lock;             /* guards states and spill */
    pthread_cond_t    read;             /* a group was */
};

static int bid(const char *path, const unsigned char *head, size_t len)
{
    size_t n = strlen(path);

    if (len >= 4 && memcmp(head, "PAR1", 4) == 0)
        return 100;
    return n > 8 && strcasecmp(path + n - 8, ".parquet") == 0 ? 95 : 0;
}

static void parquet_close(void *self)
{
    struct parquet *p = self;

    for (size_t i = 0; p->store && i < p->meta.n_group; i++) {
        spill_file_part_release(&p->store[i].part);
        ckpt_free(p->store[i].why);
    }
    ckpt_free(p->store);
    spill_file_close(p->spill);
    pq_file_release(&p->meta);
    ckpt_file_close(p->file);
    pthread_cond_destroy(&p->read);
    pthread_mutex_destroy(&p->lock);
}

static int parquet_open(void *self, struct ckpt_file *file, const struct records_opts *opts,
                        struct ckpt_err *err)
{
    struct parquet *p = self;
    int rc;

    (void)opts;
    p->file = file;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->read, NULL);
    if ((rc = pq_file_open(&p->meta, file, err)) != 0)
        return rc;
    p->store = ckpt_alloc(p->meta.n_group + 1, sizeof *p->store);
    return p->store ? 0 : ckpt_nomem(err, p->meta.n_group * sizeof *p->store);
}

static int64_t parquet_count(void *self) { return ((struct parquet *)self)->meta.rows; }

/* Write all rows of a group into its part. */
static int read_rows(struct parquet *p, size_t g, struct ckpt_err *err)
{
    struct spill_part *part = &p->store[g].part;
    struct pq_rows *rows = NULL;
    struct ckpt_buf row;
    uint64_t bytes = 0;
    int rc = pq_rows_open(&rows, &p->meta, g, NULL, err);

    ckpt_buf_init(&row, PQ_MAX_ROW);
    for (int64_t i = 0; rc == 0 && i < p->meta.group[g].rows; i++) {
        row.len = 0;
        rc = pq_rows_next(rows, &row, err);
        if (rc)
            break;
        bytes += row.len;
        rc = bytes > MAX_TEXT ? ckpt_fail(err, CKPT_ELIMIT, "unfolds to more than %llu bytes",
                                          (unsigned long long)MAX_TEXT)
                              : spill_file_put(p->spill, part, row.data, row.len, err);
    }
    if (rc == 0)
        rc = pq_rows_end(rows, err);
    pq_rows_close(rows);
    ckpt_buf_release(&row);
    if (rc)
        ckpt_err_in(err, "row group %zu", g + 1);
    return rc;
}

/* Read group g, whose state is BEING_READ; an error is stored with it. */
static void read_group(struct parquet *p, size_t g)
{
    struct store *s = &p->store[g];
    struct ckpt_err err = {0}, late = {0};
    int rc = read_rows(p, g, &err), flushed = spill_file_flush(p->spill, &s->part, &late);

    if (flushed)
        s->part.lines = s->part.filling_first;      /* those that are in the spill file */
    if (flushed && rc == 0) {
        err = late;
        rc = flushed;
    }
    ckpt_buf_release(&s->part.filling);
    if (rc == 0)
        return;
    s->why = ckpt_alloc(1, sizeof *s->why);
    if (s->why)
        *s->why = err;
}

/* Group g has been read when this returns 0, by this thread or another. */
static int need_group(struct parquet *p, size_t g, struct ckpt_err *err)
{
    struct store *s = &p->store[g];
    int rc = 0;

    pthread_mutex_lock(&p->lock);
    if (!p->spill)
        rc = spill_file_open(&p->spill, err);
    while (rc == 0 && s->state == BEING_READ)
        pthread_cond_wait(&p->read, &p->lock);
    if (rc == 0 && s->state == UNREAD) {
        s->state = BEING_READ;
        pthread_mutex_unlock(&p->lock);
        read_group(p, g);
        pthread_mutex_lock(&p->lock);
        s->state = READ;
        pthread_cond_broadcast(&p->read);
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

static int parquet_get(void *self, int64_t i, json_t **out, struct ckpt_err *err)
{
    struct parquet *p = self;
    const struct pq_group *group = p->meta.group;
    size_t g = ckpt_range_of(&group->first, p->meta.n_group, sizeof *group, (uint64_t)i);
    struct store *s = &p->store[g];
    struct ckpt_buf text;
    int rc;

    *out = NULL;
    if ((rc = need_group(p, g, err)) != 0)
        return rc;
    i -= group[g].first;
    if (i >= s->part.lines) {
        if (!s->why)
            return ckpt_nomem(err, sizeof *s->why);
        *err = *s->why;
        return ckpt_err_code(err);
    }
    ckpt_buf_init(&text, SIZE_MAX);
    rc = spill_file_get(p->spill, &s->part, i, &text, err);
    if (rc == 0)
        rc = ckpt_json_parse(out, (const char *)text.data, text.len, CKPT_JSON_STRICT, err);
    ckpt_buf_release(&text);
    return rc;
}

const struct record_ops record_parquet = {
    .name = "parquet", .size = sizeof(struct parquet), .bid = bid, .open = parquet_open,
    .count = parquet_count, .get = parquet_get, .close = parquet_close,
};
