/* progress - see progress.h. */
#include "tools/progress.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "tools/term.h"

#define DRAW_EVERY  0.2
#define MARK_EVERY  0.5
#define NO_RATE     2.0         /* seconds before a rate is meaningful */
#define NOTE_AFTER  30.0        /* seconds of silence before a line that stays */
#define WORKS       4           /* works that libraries report at a time, nested */

struct progress {
    const struct cli      *cli;
    const char            *what, *unit;     /* unit NULL: bytes */
    struct progress_window w;
};

/* One for the process, since stderr is one. */
static struct {
    pthread_mutex_t   lock;
    const struct cli *cli;
    struct progress   work[WORKS];
    double            drawn_at, spoke_at;
    bool              drawn, terminal;
} screen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_window_add(struct progress_window *w, double t, uint64_t done)
{
    if (w->n == 0)
        w->start = t;
    if (w->n && (t - w->mark[w->n - 1].t < MARK_EVERY || done < w->mark[w->n - 1].done))
        return;
    if (w->n == PROGRESS_MARKS)
        memmove(w->mark, w->mark + 1, --w->n * sizeof *w->mark);
    w->mark[w->n].t = t;
    w->mark[w->n++].done = done;
}

double progress_window_rate(const struct progress_window *w, double t, uint64_t done)
{
    if (w->n == 0 || t - w->start < NO_RATE || done <= w->mark[0].done)
        return 0;
    return (double)(done - w->mark[0].done) / (t - w->mark[0].t);
}

/* "3 min 20 s". */
static void put_time(char *dst, size_t size, double s)
{
    unsigned long n = s < 1e9 ? (unsigned long)(s + 0.5) : 1000000000;

    if (n < 100)
        snprintf(dst, size, "%lu s", n);
    else if (n < 100 * 60)
        snprintf(dst, size, "%lu min %02lu s", n / 60, n % 60);
    else
        snprintf(dst, size, "%lu h %02lu min", n / 3600, n / 60 % 60);
}

char *progress_text(char dst[200], const char *what, const char *unit, uint64_t done,
                    uint64_t total, double rate)
{
    static const struct { double size; const char *name; } sizes[] = {
        {1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"},
    };
    double size = 1;
    char safe[100], left[40];
    int n;

    ckpt_err_escape(safe, sizeof safe, what, strlen(what));
    for (size_t i = 0; !unit && i < sizeof sizes / sizeof sizes[0] && size == 1; i++)
        if ((double)total >= sizes[i].size)
            size = sizes[i].size, unit = sizes[i].name;
    if (size > 1)
        n = snprintf(dst, 200, "%s: %.2f of %.2f %s", safe, (double)done / size,
                     (double)total / size, unit);
    else
        n = snprintf(dst, 200, "%s: %llu of %llu %s", safe, (unsigned long long)done,
                     (unsigned long long)total, unit ? unit : "B");
    if (rate <= 0 || n < 0 || n >= 200)
        return dst;
    put_time(left, sizeof left, (double)(total > done ? total - done : 0) / rate);
    snprintf(dst + n, 200 - (size_t)n, ", %.*f %s/s, %s left", size > 1 || rate < 100 ? 2 : 0,
             rate / size, size > 1 ? unit : unit ? unit : "B", left);
    return dst;
}

static void erase(void)
{
    if (screen.drawn)
        fputs("\r\033[K", stderr);
    screen.drawn = false;
}

/* Draw the line on a terminal; elsewhere print it, when nothing was printed for a while. */
static void show(struct progress *p, double t, uint64_t done, uint64_t total)
{
    double rate = progress_window_rate(&p->w, t, done);
    int columns = term_columns(STDERR_FILENO);
    char text[200];

    if (screen.terminal) {
        if (t - screen.drawn_at < DRAW_EVERY)
            return;
        progress_text(text, p->what, p->unit, done, total, rate);
        fprintf(stderr, "\r\033[K%.*s", columns > 1 ? columns - 1 : 79, text);
        screen.drawn = true;
        screen.drawn_at = t;
    } else if (t - screen.spoke_at >= NOTE_AFTER) {
        fprintf(stderr, "%s: %s\n", p->cli->tool,
                progress_text(text, p->what, p->unit, done, total, rate));
        screen.spoke_at = t;
    }
}

/* Only rank 0 shows progress. */
static bool is_first(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    return !rank || strcmp(rank, "0") == 0;
}

/* With the lock held. */
static void tick(struct progress *p, uint64_t done, uint64_t total)
{
    double t = now();

    if (p->cli->quiet || total == 0)
        return;
    if (p->w.n == 0 && !screen.drawn)
        screen.drawn_at = t;            /* work that ends at once is not drawn */
    progress_window_add(&p->w, t, done);
    if (done >= total)
        erase();
    else
        show(p, t, done, total);
}

static void tell(void *ctx, const char *what, const char *unit, uint64_t done, uint64_t total)
{
    struct progress *p = NULL;

    (void)ctx;
    pthread_mutex_lock(&screen.lock);
    for (size_t i = 0; i < WORKS && !p; i++)
        if (!screen.work[i].what || strcmp(screen.work[i].what, what) == 0)
            p = &screen.work[i];
    if (p && screen.cli) {
        p->cli = screen.cli;
        p->what = what;
        p->unit = unit;
        tick(p, done, total);
        if (done >= total)
            *p = (struct progress){.what = what};      /* the next work of this name starts fresh */
    }
    pthread_mutex_unlock(&screen.lock);
}

void progress_start(const struct cli *cli)
{
    screen.cli = cli;
    screen.terminal = term_draws(STDERR_FILENO);
    screen.spoke_at = now();
    if (is_first())
        ckpt_log_progress_hook(tell, NULL);
}

void progress_stop(void)
{
    ckpt_log_progress_hook(NULL, NULL);
    progress_hide();
}

void progress_hide(void)
{
    pthread_mutex_lock(&screen.lock);
    erase();
    screen.spoke_at = now();
    pthread_mutex_unlock(&screen.lock);
}

struct progress *progress_new(const struct cli *cli, const char *what, bool bytes)
{
    struct progress *p = ckpt_alloc(1, sizeof *p);

    if (p)
        *p = (struct progress){.cli = cli, .what = what, .unit = bytes ? NULL : "items"};
    return p;
}

void progress_tick(void *progress, uint64_t done, uint64_t total)
{
    if (!progress)
        return;
    pthread_mutex_lock(&screen.lock);
    tick(progress, done, total);
    pthread_mutex_unlock(&screen.lock);
}

void progress_end(struct progress *p)
{
    if (p)
        progress_hide();
    ckpt_free(p);
}
