/* progress - see progress.h. */
#include "tools/progress.h"

#include <time.h>
#include <unistd.h>

#include "libckpt/mem.h"

struct progress {
    const char *what;
    bool        bytes, drawn;
    double      start;
    double      last;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct progress *progress_new(const struct cli *cli, const char *what, bool bytes)
{
    struct progress *p;

    if (cli->quiet || !isatty(STDERR_FILENO))
        return NULL;
    p = ckpt_alloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->what = what;
    p->bytes = bytes;
    p->start = p->last = now();
    return p;
}

void progress_tick(void *progress, uint64_t done, uint64_t total)
{
    struct progress *p = progress;
    double t = now(), rate, unit;

    if (!p || (t - p->last < 0.2 && done < total))
        return;
    p->last = t;
    unit = p->bytes ? 1e-9 : 1;
    rate = t > p->start ? (double)done / (t - p->start) : 0;
    fprintf(stderr, "\r\033[K%s: %.2f of %.2f%s, %.2f%s/s, %.0f s left", p->what,
            (double)done * unit, (double)total * unit, p->bytes ? " GB" : "", rate * unit,
            p->bytes ? " GB" : "", rate > 0 ? (double)(total - done) / rate : 0);
    p->drawn = true;
}

void progress_end(struct progress *p)
{
    if (p && p->drawn)
        fputs("\r\033[K", stderr);
    ckpt_free(p);
}
