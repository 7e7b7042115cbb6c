/* run_log - see run_log.h. */
#include "formats/logs/run_log.h"

#include <string.h>

#define WINDOW ((size_t)1 << 20)
#define PAGE   4096

void run_log_free(struct run_log *log)
{
    if (!log)
        return;
    for (size_t i = 0; i < log->n; i++) {
        ckpt_free(log->series[i].point);
        ckpt_free(log->series[i].text);
    }
    ckpt_free(log->series);
    ckpt_map_free(log->by_key);
    json_decref(log->info);
    ckpt_arena_release(&log->arena);
    ckpt_free(log);
}

/* key is the tag, a NUL and the kind, so that it can be used as the tag. */
static struct log_series *new_series(struct run_log *log, const char *key, size_t key_len,
                                     const char *kind, struct ckpt_err *err)
{
    char *kept = ckpt_arena_strndup(&log->arena, key, key_len);

    if (!kept) {
        ckpt_nomem(err, key_len);
        return NULL;
    }
    if (ckpt_reserve(&log->series, log->n, &log->cap, sizeof *log->series, err) ||
        ckpt_map_add(log->by_key, kept, key_len, log->n, err))
        return NULL;
    log->series[log->n] = (struct log_series){.tag = kept, .kind = kind};
    return &log->series[log->n++];
}

/* Make the key of a series: tag, NUL, kind.  Returns its length, or 0 when the tag is too long. */
static size_t make_key(char key[LOG_MAX_TAG + 32], const void *tag, size_t len,
                       const char *kind)
{
    size_t n = strlen(kind);

    if (len > LOG_MAX_TAG || n > 31)
        return 0;
    memcpy(key, tag, len);
    key[len] = '\0';
    memcpy(key + len + 1, kind, n);
    return len + 1 + n;
}

const struct log_series *run_log_find(const struct run_log *log, const void *tag, size_t len,
                                      const char *kind)
{
    char key[LOG_MAX_TAG + 32];
    size_t n = make_key(key, tag, len, kind),
           at = n ? ckpt_map_get(log->by_key, key, n) : CKPT_MAP_NONE;

    return at != CKPT_MAP_NONE ? &log->series[at] : NULL;
}

/* The series of a tag and kind, created when it is new.  NULL with err filled. */
static struct log_series *series_of(struct run_log *log, const void *tag, size_t len,
                                    const char *kind, struct ckpt_err *err)
{
    char key[LOG_MAX_TAG + 32];
    size_t n = make_key(key, tag, len, kind), at;

    if (n == 0) {
        ckpt_fail(err, CKPT_ELIMIT, "a tag of %zu bytes; the limit is %d", len, LOG_MAX_TAG);
        return NULL;
    }
    if (!ckpt_utf8_valid(tag, len)) {
        ckpt_fail(err, CKPT_EFORMAT, "a tag that is not UTF-8");
        return NULL;
    }
    at = ckpt_map_get(log->by_key, key, n);
    return at != CKPT_MAP_NONE ? &log->series[at] : new_series(log, key, n, kind, err);
}

/* Count one more value at step. */
static void count(struct log_series *s, int64_t step)
{
    if (s->count++ == 0)
        s->first_step = step;
    s->last_step = step;
}

int run_log_scalar(struct run_log *log, const void *tag, size_t len, const struct log_point *p,
                   struct ckpt_err *err)
{
    struct log_series *s = series_of(log, tag, len, "scalar", err);

    if (!s)
        return ckpt_err_code(err);
    if (ckpt_reserve(&s->point, s->count, &s->cap, sizeof *s->point, err))
        return CKPT_ENOMEM;
    s->point[s->count] = *p;
    count(s, p->step);
    return 0;
}

int run_log_other(struct run_log *log, const void *tag, size_t len, const char *kind,
                  int64_t step, const void *text, size_t text_len, struct ckpt_err *err)
{
    struct log_series *s = series_of(log, tag, len, kind, err);

    if (!s)
        return ckpt_err_code(err);
    count(s, step);
    if (!text)
        return 0;
    if (!ckpt_utf8_valid(text, text_len))
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\": a text that is not UTF-8", s->tag);
    if (text_len > LOG_MAX_TEXT)        /* cut at a character's boundary */
        for (text_len = LOG_MAX_TEXT; (((const unsigned char *)text)[text_len] & 0xc0) == 0x80;)
            text_len--;
    ckpt_free(s->text);
    s->text = ckpt_alloc(text_len + 1, 1);
    if (!s->text)
        return ckpt_nomem(err, text_len + 1);
    if (text_len > 0)
        memcpy(s->text, text, text_len);
    return 0;
}

void run_log_purge(struct run_log *log, int64_t step)
{
    for (size_t i = 0; i < log->n; i++) {
        struct log_series *s = &log->series[i];
        uint64_t kept = 0;

        if (!s->point)
            continue;
        for (uint64_t k = 0; k < s->count; k++)
            if (s->point[k].step < step)
                s->point[kept++] = s->point[k];
        s->count = kept;
        s->first_step = kept ? s->point[0].step : 0;
        s->last_step = kept ? s->point[kept - 1].step : 0;
    }
}

int run_log_fact(struct run_log *log, const char *key, json_t *value, struct ckpt_err *err)
{
    return json_object_set_new_nocheck(log->info, key, value) ? ckpt_nomem(err, 64) : 0;
}

int run_log_text_fact(struct run_log *log, const char *key, const void *text, size_t n,
                      struct ckpt_err *err)
{
    if (!text || !ckpt_utf8_valid(text, n))
        return 0;
    return run_log_fact(log, key, json_stringn_nocheck(text, n), err);
}

int run_log_window_at(const unsigned char **out, struct run_log_window *w, uint64_t offset,
                      size_t n, struct ckpt_err *err)
{
    uint64_t left = ckpt_file_size(w->file) - offset;
    size_t want = n > WINDOW ? n : WINDOW;
    int rc;

    if (offset >= w->start && offset - w->start <= w->len && n <= w->len - (offset - w->start)) {
        *out = w->data + (offset - w->start);
        return 0;
    }
    w->len = 0;
    want = want < left ? want : (size_t)left;
    if (want > w->cap) {
        ckpt_free(w->data);
        w->data = ckpt_alloc_buffer(want);
        w->cap = w->data ? want : 0;
        if (!w->data)
            return ckpt_nomem(err, want);
    }
    if ((rc = ckpt_file_read_at(w->file, w->data, want, offset, err)) != 0)
        return rc;
    w->start = offset;
    w->len = want;
    *out = w->data;
    return 0;
}

int run_log_window_zeros(struct run_log_window *w, uint64_t offset, bool *zeros,
                         struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(w->file);
    const unsigned char *b;
    int rc;

    *zeros = true;
    while (*zeros && offset < size) {
        size_t n = size - offset < PAGE ? (size_t)(size - offset) : PAGE;

        if ((rc = run_log_window_at(&b, w, offset, n, err)) != 0)
            return rc;
        for (size_t i = 0; i < n; i++)
            if (b[i])
                *zeros = false;
        offset += n;
    }
    return 0;
}

void run_log_window_release(struct run_log_window *w)
{
    ckpt_free(w->data);
    w->data = NULL;
}
