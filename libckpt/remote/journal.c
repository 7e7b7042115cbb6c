/* journal - see journal.h. */
#include "libckpt/remote/journal.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "libckpt/base/buf.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/remote/cache/at.h"
#include "libckpt/remote/cache/cache.h"

#define MOST_BYTES ((size_t)64 << 20)
#define MOST_SECONDS (7 * 24 * 3600)
#define LOCK_TRIES 40           /* two seconds in all */

struct journal {
    int             fd;
    json_t         *records;
    pthread_mutex_t lock;
    char            path[4096];
    bool            broken;         /* a write failed: the lines behind it would be lost */
};

static uint32_t checksum(const char *text, size_t n)
{
    return (uint32_t)crc32(0, (const unsigned char *)text, (unsigned)n);
}

/* The record of a line without its end, or NULL. */
static json_t *parse_line(const char *line, size_t n)
{
    struct ckpt_err ignored = {0};
    json_t *record = NULL;
    char hex[9] = "", *end;

    if (n < 10 || line[8] != ' ')
        return NULL;
    memcpy(hex, line, 8);
    if (strtoul(hex, &end, 16) != checksum(line + 9, n - 9) || *end)
        return NULL;
    return ckpt_json_parse(&record, line + 9, n - 9, CKPT_JSON_STRICT, &ignored) ? NULL : record;
}

/* Read all whole lines, and cut what is behind them. */
static bool load(struct journal *j)
{
    struct stat st;
    char *text;
    size_t at = 0, n;

    if (fstat(j->fd, &st) || !S_ISREG(st.st_mode) || (size_t)st.st_size > MOST_BYTES)
        return false;
    n = (size_t)st.st_size;
    text = ckpt_alloc(n + 1, 1);
    if (!text)
        return false;
    if (pread(j->fd, text, n, 0) != (ssize_t)n)
        n = 0;
    while (at < n) {
        const char *end = memchr(text + at, '\n', n - at);
        json_t *record = end ? parse_line(text + at, (size_t)(end - text) - at) : NULL;

        if (!record)
            break;
        json_array_append_new(j->records, record);
        at = (size_t)(end - text) + 1;
    }
    ckpt_free(text);
    return ftruncate(j->fd, (off_t)at) == 0 && lseek(j->fd, 0, SEEK_END) >= 0;
}

/* A process that was killed holds its lock until its last write has ended. */
static bool lock(int fd)
{
    for (int k = 0; k < LOCK_TRIES; k++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return false;
}

/* Journals of uploads that nobody went on with: their addresses have long expired. */
static void remove_old(void)
{
    char folder[4096], path[4096 + 300];
    time_t now = time(NULL);
    struct dirent *e;
    struct stat st;
    DIR *d = NULL;

    if (cache_path(folder, sizeof folder, "uploads", ""))
        d = opendir(folder);
    while (d && (e = readdir(d)) != NULL) {
        snprintf(path, sizeof path, "%s/%.256s", folder, e->d_name);
        if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_mtime + MOST_SECONDS < now)
            unlink(path);
    }
    if (d)
        closedir(d);
}

struct journal *journal_open(const char *target)
{
    struct journal *j = ckpt_alloc(1, sizeof *j);
    char key[CACHE_KEY];

    if (!j)
        return NULL;
    j->fd = -1;
    cache_key(key, "to", target);
    if (!*key || !cache_ready("uploads") || !cache_path(j->path, sizeof j->path, "uploads", key))
        goto none;
    remove_old();
    j->fd = open(j->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    j->records = json_array();
    if (j->fd < 0 || !j->records || !lock(j->fd) || !load(j))
        goto none;
    pthread_mutex_init(&j->lock, NULL);
    return j;
none:
    if (j->fd >= 0)
        close(j->fd);
    json_decref(j->records);
    ckpt_free(j);
    ckpt_log(CKPT_LOG_DEBUG, "%s: no journal is kept", target);
    return NULL;
}

const json_t *journal_records(const struct journal *j) { return j ? j->records : NULL; }

void journal_add(struct journal *j, json_t *record)
{
    struct ckpt_err ignored = {0};
    struct ckpt_buf json, line;

    if (!j || !record) {
        json_decref(record);
        return;
    }
    ckpt_buf_init(&json, MOST_BYTES);
    ckpt_buf_init(&line, MOST_BYTES);
    if (ckpt_json_write(&json, record, 0, false, &ignored) == 0) {
        ckpt_buf_printf(&line, "%08x ", (unsigned)checksum((char *)json.data, json.len));
        ckpt_buf_put(&line, json.data, json.len);
        ckpt_buf_put(&line, "\n", 1);
    }
    pthread_mutex_lock(&j->lock);
    if (!j->broken && (!ckpt_buf_ok(&line) || line.len == 0 ||
                       write(j->fd, line.data, line.len) != (ssize_t)line.len || fdatasync(j->fd)))
        j->broken = true;
    pthread_mutex_unlock(&j->lock);
    ckpt_buf_release(&json);
    ckpt_buf_release(&line);
    json_decref(record);
}

void journal_close(struct journal *j, bool done)
{
    if (!j)
        return;
    if (done)
        unlink(j->path);
    close(j->fd);
    json_decref(j->records);
    pthread_mutex_destroy(&j->lock);
    ckpt_free(j);
}
