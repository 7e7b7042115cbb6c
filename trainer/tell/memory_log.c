/* memory_log - see memory_log.h. */
#include "trainer/tell/memory_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/logs/log_file.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/nvml.h"
#include "trainer/tell/usage.h"

struct memory_log {
    int                   fd;
    struct nvml          *chip;         /* NULL: the CPU */
    double                seconds;
    pthread_t             thread;
    pthread_mutex_t       lock;
    pthread_cond_t        wake;
    bool                  stop, runs;
    double                sum;          /* MiB */
    struct memory_figures figures;
    struct ckpt_err       err;          /* the first failure; nothing is written after it */
};

static const char header[] = "timestamp, index, name, memory.used [MiB], memory.total [MiB], "
                             "utilization.gpu [%], power.draw [W]\n";

/* Local time, as nvidia-smi writes it. */
static void stamp(char text[64])
{
    struct timespec t;
    struct tm local;
    size_t n;

    clock_gettime(CLOCK_REALTIME, &t);
    localtime_r(&t.tv_sec, &local);
    n = strftime(text, 40, "%Y/%m/%d %H:%M:%S", &local);
    snprintf(text + n, 64 - n, ".%03ld", t.tv_nsec / 1000000);
}

static void count(struct memory_log *m, double mib)
{
    struct memory_figures *f = &m->figures;

    f->peak = f->n ? fmax(f->peak, mib) : mib;
    f->least = f->n ? fmin(f->least, mib) : mib;
    m->sum += mib;
    f->n++;
    f->mean = m->sum / (double)f->n;
}

/* One line, in one write; under the lock.  The code of the first failure. */
static int sample(struct memory_log *m)
{
    char time[64], line[512];
    struct nvml_now now;
    double mib;
    int n;

    if (m->err.code || (m->chip && nvml_sample(m->chip, &now, &m->err)))
        return ckpt_err_code(&m->err);
    stamp(time);
    if (m->chip) {
        mib = (double)now.used / (1 << 20);
        n = snprintf(line, sizeof line, "%s, %u, %s, %.0f MiB, %.0f MiB, %u %%, %.2f W\n", time,
                     nvml_index(m->chip), nvml_name(m->chip), mib,
                     (double)now.total / (1 << 20), now.load, now.watt);
    } else {
        mib = usage_resident();
        n = snprintf(line, sizeof line, "%s, 0, CPU, %.0f MiB, %.0f MiB, [N/A], [N/A]\n", time,
                     mib, (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) /
                              (1 << 20));
    }
    if (write(m->fd, line, (size_t)n) != n)
        return ckpt_fail_errno(&m->err, CKPT_EIO, errno, "write");
    count(m, mib);
    return 0;
}

static void *watch(void *ctx)
{
    struct memory_log *m = ctx;
    struct timespec due;

    pthread_mutex_lock(&m->lock);
    clock_gettime(CLOCK_REALTIME, &due);
    while (!m->stop) {
        double whole = floor(m->seconds);

        due.tv_sec += (time_t)whole;
        due.tv_nsec += (long)((m->seconds - whole) * 1e9);
        due.tv_sec += due.tv_nsec / 1000000000;
        due.tv_nsec %= 1000000000;
        while (!m->stop && pthread_cond_timedwait(&m->wake, &m->lock, &due) == 0)
            ;
        sample(m);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

int memory_log_ready(const char *dir, struct ckpt_err *err)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/memory.csv", dir);
    return log_file_ready(path, err);
}

int memory_log_open(struct memory_log **out, const char *dir, int rank, const struct device *dev,
                    double seconds, struct ckpt_err *err)
{
    struct memory_log *m = ckpt_alloc(1, sizeof *m);
    char path[4200], name[40] = "memory.csv";
    struct stat st;
    int rc = 0;

    *out = NULL;
    if (!m)
        return ckpt_nomem(err, sizeof *m);
    if (rank > 0)
        snprintf(name, sizeof name, "memory-%d.csv", rank);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    m->seconds = seconds;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->wake, NULL);
    m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (m->fd < 0 || fstat(m->fd, &st))
        rc = ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    if (rc == 0 && dev->discrete)
        rc = nvml_open(&m->chip, dev->bus, err);
    if (rc == 0 && st.st_size == 0 &&
        write(m->fd, header, sizeof header - 1) != (ssize_t)sizeof header - 1)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s: write", path);
    if (rc == 0 && sample(m)) {
        *err = m->err;
        rc = ckpt_err_in(err, "%s", path);
    }
    if (rc == 0) {
        m->runs = pthread_create(&m->thread, NULL, watch, m) == 0;
        rc = m->runs ? 0 : ckpt_fail(err, CKPT_ENOMEM, "%s: no thread to sample with", path);
    }
    if (rc)
        memory_log_close(m);
    else
        *out = m;
    return rc;
}

struct memory_figures memory_log_figures(struct memory_log *m)
{
    struct memory_figures f = {0, 0, 0, 0};

    if (!m)
        return f;
    pthread_mutex_lock(&m->lock);
    f = m->figures;
    pthread_mutex_unlock(&m->lock);
    return f;
}

void memory_log_close(struct memory_log *m)
{
    if (!m)
        return;
    if (m->runs) {
        pthread_mutex_lock(&m->lock);
        m->stop = true;
        pthread_cond_signal(&m->wake);
        pthread_mutex_unlock(&m->lock);
        pthread_join(m->thread, NULL);
        if (m->err.code)
            ckpt_log(CKPT_LOG_WARNING, "memory.csv: %s", m->err.text);
    }
    nvml_close(m->chip);
    if (m->fd >= 0)
        close(m->fd);
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    ckpt_free(m);
}
