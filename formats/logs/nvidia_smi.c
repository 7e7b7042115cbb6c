/* nvidia_smi - see nvidia_smi.h. */
#define _DEFAULT_SOURCE                 /* timegm */
#include "formats/logs/nvidia_smi.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "formats/records/csv/value.h"
#include "libckpt/err.h"

#define MAX_LINE ((size_t)4096)
enum { MAX_COLUMNS = 64, MAX_GPUS = 256 };

static const char known[] = "memory.used";

struct field {
    const char *at;
    size_t      n;
};

struct reader {
    struct run_log *log;
    struct field    column[MAX_COLUMNS];
    int             n_column, index, name, time;        /* -1: no such column */
    char            header[MAX_LINE];
    int64_t         step[MAX_GPUS];
};

/* Split a line without its end into fields; more than MAX_COLUMNS count as one more. */
static int split(struct field *f, const char *line, size_t n)
{
    int count = 0;

    while (count <= MAX_COLUMNS) {
        const char *comma = memchr(line, ',', n);
        size_t len = comma ? (size_t)(comma - line) : n, from = 0;

        while (from < len && line[from] == ' ')
            from++;
        if (count < MAX_COLUMNS)
            f[count] = (struct field){line + from, len - from};
        count++;
        if (!comma)
            break;
        n -= len + 1;
        line = comma + 1;
    }
    return count;
}

static bool is(struct field f, const char *word)
{
    size_t n = strlen(word);

    return f.n >= n && memcmp(f.at, word, n) == 0 && (f.n == n || f.at[n] == ' ');
}

static int find(const struct reader *r, const char *word)
{
    for (int i = 0; i < r->n_column; i++)
        if (is(r->column[i], word))
            return i;
    return -1;
}

/* Length of the line at b without its end; SIZE_MAX: no end within the limit. */
static size_t line_at(const unsigned char *b, size_t n)
{
    const unsigned char *end = memchr(b, '\n', n < MAX_LINE ? n : MAX_LINE);

    if (!end)
        return SIZE_MAX;
    return (size_t)(end - b);
}

bool nvidia_smi_is(const unsigned char *head, size_t len)
{
    struct field f[MAX_COLUMNS];
    size_t n = line_at(head, len);
    int count;
    bool found = false;

    if (n == SIZE_MAX)
        return false;
    n -= n > 0 && head[n - 1] == '\r';
    count = split(f, (const char *)head, n);
    for (int i = 0; i < count && count <= MAX_COLUMNS; i++)
        found |= is(f[i], known);
    return found && count > 1 && count <= MAX_COLUMNS;
}

/* Parse "2026/11/21 17:30:00.123"; NAN if it has another form. */
static double time_of(struct field f)
{
    char text[64];
    struct tm t = {0};
    double seconds;

    if (f.n >= sizeof text)
        return NAN;
    memcpy(text, f.at, f.n);
    text[f.n] = '\0';
    if (sscanf(text, "%4d/%2d/%2d %2d:%2d:%6lf", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
               &t.tm_min, &seconds) != 6)
        return NAN;
    t.tm_year -= 1900;
    t.tm_mon--;
    return (double)timegm(&t) + seconds;
}

/* Parse the number before a unit. */
static bool number_of(struct field f, double *value)
{
    const char *space = memchr(f.at, ' ', f.n);

    return csv_as_real(f.at, space ? (size_t)(space - f.at) : f.n, value);
}

static int put(struct reader *r, int column, int64_t gpu, struct field f, double time,
               struct ckpt_err *err)
{
    struct log_point p = {.step = r->step[gpu], .time = time};
    char tag[MAX_LINE + 32];
    int n = snprintf(tag, sizeof tag, "%lld/%.*s", (long long)gpu, (int)r->column[column].n,
                     r->column[column].at);

    if (n > LOG_MAX_TAG)
        return ckpt_fail(err, CKPT_ELIMIT, "a column's name has %d bytes", n);
    if (!number_of(f, &p.value))
        return 0;
    return run_log_scalar(r->log, tag, (size_t)n, &p, err);
}

static int name_gpu(struct reader *r, int64_t gpu, struct field f, struct ckpt_err *err)
{
    char key[32];

    if (r->step[gpu] > 0)
        return 0;
    snprintf(key, sizeof key, "gpu %lld", (long long)gpu);
    return run_log_text_fact(r->log, key, f.at, f.n, err);
}

static int take(struct reader *r, const char *line, size_t n, struct ckpt_err *err)
{
    struct field f[MAX_COLUMNS];
    int count = split(f, line, n);
    double time, gpu = 0;
    int rc;

    if (count != r->n_column)
        return ckpt_fail(err, CKPT_EFORMAT, "line %llu has %d fields, the first has %d",
                         (unsigned long long)r->log->records + 2, count, r->n_column);
    if (r->index >= 0 && (!number_of(f[r->index], &gpu) || gpu < 0 || gpu >= MAX_GPUS ||
                          gpu != floor(gpu)))
        return ckpt_fail(err, CKPT_EFORMAT, "line %llu: index %.*s, 0 to %d wanted",
                         (unsigned long long)r->log->records + 2, (int)f[r->index].n,
                         f[r->index].at, MAX_GPUS - 1);
    time = r->time >= 0 ? time_of(f[r->time]) : NAN;
    if (r->name >= 0 && (rc = name_gpu(r, (int64_t)gpu, f[r->name], err)) != 0)
        return rc;
    for (int i = 0; i < count; i++)
        if (i != r->index && i != r->name && i != r->time &&
            (rc = put(r, i, (int64_t)gpu, f[i], time, err)) != 0)
            return rc;
    r->step[(int64_t)gpu]++;
    r->log->records++;
    return 0;
}

/* Copy the header, since the window may move on. */
static void begin(struct reader *r, const unsigned char *b, size_t n)
{
    memcpy(r->header, b, n);
    r->n_column = split(r->column, r->header, n);
    r->index = find(r, "index");
    r->name = find(r, "name");
    r->time = find(r, "timestamp");
}

int nvidia_smi_read(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err)
{
    struct run_log_window w = {.file = file};
    struct reader *r = ckpt_alloc(1, sizeof *r);
    uint64_t size = ckpt_file_size(file), at = 0;
    int rc = r ? 0 : ckpt_nomem(err, sizeof *r);

    log->format = "nvidia-smi";
    if (r)
        r->log = log;
    while (rc == 0 && at < size) {
        size_t most = size - at < MAX_LINE ? (size_t)(size - at) : MAX_LINE, n, text;
        const unsigned char *b;

        if ((rc = run_log_window_at(&b, &w, at, most, err)) != 0)
            break;
        n = line_at(b, most);
        if (n == SIZE_MAX) {
            if (most == MAX_LINE)
                rc = ckpt_fail(err, CKPT_EFORMAT, "line %llu has more than %zu bytes",
                               (unsigned long long)log->records + 2, MAX_LINE);
            log->torn_bytes = size - at;
            break;
        }
        text = n - (n > 0 && b[n - 1] == '\r');
        if (at == 0)
            begin(r, b, text);
        else if (text > 0)
            rc = take(r, (const char *)b, text, err);
        at += n + 1;
    }
    run_log_window_release(&w);
    ckpt_free(r);
    return rc;
}
