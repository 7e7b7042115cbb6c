/* progress - see progress.h. */
#include "tools/progress.h"

#include <math.h>
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
#define EVENT_EVERY 1.0         /* seconds between events of progress */
#define WORKS       8           /* works that libraries report, nested or one after another */

struct progress {
    const struct cli      *cli;
    const char            *what, *unit;     /* unit NULL: bytes */
    struct progress_window w;
    struct progress_facts  facts;
    bool                   has_facts;
};

/* One for the process, since stderr is one. */
static struct {
    pthread_mutex_t   lock;
    const struct cli *cli;
    struct progress   work[WORKS];
    double            drawn_at, spoke_at;
    bool              drawn, terminal, hidden;      /* hidden: line is to be drawn again */
    char              line[PROGRESS_LINE];
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

/* Whole units of bytes as people read them; size 1 where the unit is the caller's. */
static double scale(const char **unit, uint64_t total)
{
    static const struct { double size; const char *name; } sizes[] = {
        {1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"},
    };

    if (*unit)
        return 1;
    *unit = "B";
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if ((double)total >= sizes[i].size) {
            *unit = sizes[i].name;
            return sizes[i].size;
        }
    return 1;
}

char *progress_text(char dst[PROGRESS_LINE], const char *what, const char *unit, uint64_t done,
                    uint64_t total, double rate)
{
    double size = scale(&unit, total);
    char safe[100], left[40];
    int n;

    ckpt_err_escape(safe, sizeof safe, what, strlen(what));
    if (size > 1)
        n = snprintf(dst, PROGRESS_LINE, "%s: %.2f of %.2f %s", safe, (double)done / size,
                     (double)total / size, unit);
    else
        n = snprintf(dst, PROGRESS_LINE, "%s: %llu of %llu %s", safe, (unsigned long long)done,
                     (unsigned long long)total, unit);
    if (rate <= 0 || n < 0 || n >= PROGRESS_LINE)
        return dst;
    put_time(left, sizeof left, (double)(total > done ? total - done : 0) / rate);
    snprintf(dst + n, PROGRESS_LINE - (size_t)n, ", %.*f %s/s, %s left",
             size > 1 || rate < 100 ? 2 : 0, rate / size, unit, left);
    return dst;
}

/* -- facts ------------------------------------------------------------------------------------ */

/* "1.234": four digits, in powers of ten where that is shorter. */
static void put_loss(char *dst, size_t size, double v)
{
    snprintf(dst, size, fabs(v) < 1e4 && (fabs(v) >= 1e-3 || v == 0) ? "%.4f" : "%.2e", v);
}

static void put_count(char *dst, size_t size, double v)
{
    if (v < 1e4)
        snprintf(dst, size, "%.0f", v);
    else if (v < 1e7)
        snprintf(dst, size, "%.1fk", v / 1e3);
    else
        snprintf(dst, size, "%.1fM", v / 1e6);
}

static void put_memory(char *dst, size_t size, double mib)
{
    snprintf(dst, size, mib < 1000 ? "%.0f MiB" : "%.1f GiB", mib < 1000 ? mib : mib / 1024);
}

/* The facts as words; those that are unknown are empty. */
struct said { char epoch[40], loss[40], tokens[40], memory[40]; };

static void say(struct said *s, const struct progress_facts *f)
{
    char text[24];

    memset(s, 0, sizeof *s);
    if (!f)
        return;
    if (!isnan(f->epoch))
        snprintf(s->epoch, sizeof s->epoch, "epoch %.2f/%.0f", f->epoch, f->num_epochs);
    if (f->n_files)
        snprintf(s->epoch, sizeof s->epoch, "%zu/%zu files", f->files, f->n_files);
    if (!isnan(f->loss)) {
        put_loss(text, sizeof text, f->loss);
        snprintf(s->loss, sizeof s->loss, "loss %s", text);
    }
    if (!isnan(f->tokens_per_second)) {
        put_count(text, sizeof text, f->tokens_per_second);
        snprintf(s->tokens, sizeof s->tokens, "%s tok/s", text);
    }
    if (!isnan(f->memory) && f->memory > 0)
        put_memory(s->memory, sizeof s->memory, f->memory);
}

char *progress_note(char dst[PROGRESS_LINE], const char *what, const char *unit, uint64_t done,
                    uint64_t total, double rate, const struct progress_facts *facts)
{
    struct said s;
    const char *const more[] = {s.epoch, s.loss, s.tokens, s.memory};
    size_t n;

    progress_text(dst, what, unit, done, total, rate);
    say(&s, facts);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (*more[i] && (n = strlen(dst)) < PROGRESS_LINE)
            snprintf(dst + n, PROGRESS_LINE - n, ", %s", more[i]);
    return dst;
}

/* "3:20", "1:02:03". */
static void put_clock(char *dst, size_t size, double s)
{
    unsigned long n = s < 1e7 ? (unsigned long)(s + 0.5) : 10000000;

    if (n < 3600)
        snprintf(dst, size, "%lu:%02lu", n / 60, n % 60);
    else if (n < 100 * 3600)
        snprintf(dst, size, "%lu:%02lu:%02lu", n / 3600, n / 60 % 60, n % 60);
    else
        snprintf(dst, size, "%lu h", n / 3600);
}

#define BAR_LEAST 8             /* columns of a bar, its ends included */
#define BAR_MOST  32

/* The parts of a bar's line from left to right, and in which order they go where it is narrow. */
enum { P_WHAT, P_PERCENT, P_BAR, P_COUNT, P_UNIT, P_EPOCH, P_LOSS, P_TOKENS, P_MEMORY, P_LEFT,
       N_PARTS };

static void put_bar(char *dst, int width, double part)
{
    int n = (int)(part * (width - 2) + 0.5);

    dst[0] = '[';
    for (int i = 0; i < width - 2; i++)
        dst[i + 1] = i < n ? '#' : '.';
    dst[width - 1] = ']';
    dst[width] = '\0';
}

char *progress_bar(char dst[PROGRESS_LINE], int columns, const char *what, const char *unit,
                   uint64_t done, uint64_t total, double rate,
                   const struct progress_facts *facts)
{
    static const int goes[] = {P_UNIT, P_MEMORY, P_EPOCH, P_BAR, P_TOKENS, P_WHAT, P_LOSS, P_LEFT,
                               P_PERCENT};
    double size = scale(&unit, total), part = total ? (double)done / (double)total : 0;
    char text[N_PARTS][60] = {{0}}, left[24];
    struct said s;
    int width = -1;
    size_t at = 0;

    part = part < 1 ? part : 1;
    say(&s, facts);
    ckpt_err_escape(text[P_WHAT], sizeof text[P_WHAT], what, strlen(what));
    snprintf(text[P_PERCENT], sizeof text[P_PERCENT], "%3.0f%%", floor(100 * part));
    if (size > 1)
        snprintf(text[P_COUNT], sizeof text[P_COUNT], "%.2f/%.2f", (double)done / size,
                 (double)total / size);
    else
        snprintf(text[P_COUNT], sizeof text[P_COUNT], "%llu/%llu", (unsigned long long)done,
                 (unsigned long long)total);
    snprintf(text[P_UNIT], sizeof text[P_UNIT], "%s", unit);
    snprintf(text[P_EPOCH], sizeof text[P_EPOCH], "%s", s.epoch);
    snprintf(text[P_LOSS], sizeof text[P_LOSS], "%s", s.loss);
    snprintf(text[P_TOKENS], sizeof text[P_TOKENS], "%s", s.tokens);
    snprintf(text[P_MEMORY], sizeof text[P_MEMORY], "%s", s.memory);
    if (rate > 0) {
        put_clock(left, sizeof left, (double)(total > done ? total - done : 0) / rate);
        snprintf(text[P_LEFT], sizeof text[P_LEFT], "%s left", left);
    }
    put_bar(text[P_BAR], BAR_LEAST, part);
    columns = columns < PROGRESS_LINE ? columns : PROGRESS_LINE - 1;
    for (int i = 0; i < N_PARTS; i++)
        width += *text[i] ? (int)strlen(text[i]) + 1 : 0;
    for (size_t i = 0; width > columns && i < sizeof goes / sizeof goes[0]; i++) {
        width -= *text[goes[i]] ? (int)strlen(text[goes[i]]) + 1 : 0;
        *text[goes[i]] = '\0';
        if (goes[i] == P_WHAT && rate > 0 && *text[P_LEFT]) {   /* then the word "left" too */
            width -= (int)strlen(" left");
            snprintf(text[P_LEFT], sizeof text[P_LEFT], "%s", left);
        }
    }
    if (*text[P_BAR]) {
        int more = columns - width < BAR_MOST - BAR_LEAST ? columns - width : BAR_MOST - BAR_LEAST;

        put_bar(text[P_BAR], BAR_LEAST + more, part);
    }
    *dst = '\0';
    for (int i = 0; i < N_PARTS; i++)
        if (*text[i] && at < PROGRESS_LINE)
            at += (size_t)snprintf(dst + at, PROGRESS_LINE - at, "%s%s", at ? " " : "",
                                   text[i] + (at ? 0 : strspn(text[i], " ")));
    if (columns >= 0 && at > (size_t)columns)
        dst[columns] = '\0';
    return dst;
}

/* -- the screen ------------------------------------------------------------------------------- */

static void erase(void)
{
    if (screen.drawn)
        fputs("\r\033[K", stderr);
    screen.drawn = false;
}

static void draw(void)
{
    size_t name = strcspn(screen.line, " ");

    if (term_bold(STDERR_FILENO))
        fprintf(stderr, "\r\033[K\033[1m%.*s\033[m%s", (int)name, screen.line,
                screen.line + name);
    else
        fprintf(stderr, "\r\033[K%s", screen.line);
    fflush(stderr);
    screen.drawn = true;
}

/* Draw the line on a terminal; elsewhere print it, when nothing was printed for a while. */
static void show(struct progress *p, double t, uint64_t done, uint64_t total)
{
    const struct progress_facts *facts = p->has_facts ? &p->facts : NULL;
    double rate = progress_window_rate(&p->w, t, done);
    char text[PROGRESS_LINE];

    if (screen.terminal) {
        if (t - screen.drawn_at < DRAW_EVERY)
            return;
        progress_bar(screen.line, term_width(STDERR_FILENO) - 1, p->what, p->unit, done, total,
                     rate, facts);
        draw();
        screen.drawn_at = t;
    } else if (p->cli->events) {
        if (t - screen.spoke_at < EVENT_EVERY)
            return;
        cli_event(p->cli, "progress", json_pack("{s:s, s:I, s:I, s:f}", "what", p->what, "done",
                                                (json_int_t)done, "total", (json_int_t)total,
                                                "rate", rate));
        screen.spoke_at = t;
    } else if (t - screen.spoke_at >= NOTE_AFTER) {
        fprintf(stderr, "%s: %s\n", p->cli->tool,
                progress_note(text, p->what, p->unit, done, total, rate, facts));
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
    if (done >= total) {
        erase();
        screen.hidden = false;
    } else {
        show(p, t, done, total);
    }
}

/* Where the work of that name is kept, or will be; NULL: there are too many. */
static struct progress *work_of(const char *what)
{
    for (size_t i = 0; i < WORKS; i++)
        if (!screen.work[i].what || strcmp(screen.work[i].what, what) == 0) {
            screen.work[i].what = what;
            return &screen.work[i];
        }
    return NULL;
}

void progress_tell(const char *what, const struct progress_facts *facts)
{
    struct progress *p;

    pthread_mutex_lock(&screen.lock);
    if ((p = work_of(what)) != NULL) {
        p->facts = *facts;
        p->has_facts = true;
    }
    pthread_mutex_unlock(&screen.lock);
}

static void tell(void *ctx, const char *what, const char *unit, uint64_t done, uint64_t total)
{
    struct progress *p;

    (void)ctx;
    pthread_mutex_lock(&screen.lock);
    p = work_of(what);
    if (p && screen.cli) {
        p->cli = screen.cli;
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
    screen.hidden = false;
}

void progress_plain(void) { screen.terminal = false; }

void progress_silent(void) { ckpt_log_progress_hook(NULL, NULL); }

void progress_hide(void)
{
    pthread_mutex_lock(&screen.lock);
    screen.hidden |= screen.drawn;
    erase();
    screen.spoke_at = now();
    pthread_mutex_unlock(&screen.lock);
}

void progress_back(void)
{
    pthread_mutex_lock(&screen.lock);
    if (screen.hidden)
        draw();
    screen.hidden = false;
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

void progress_files(struct progress *p, size_t done, size_t n)
{
    const double no = (double)NAN;

    if (!p)
        return;
    pthread_mutex_lock(&screen.lock);
    p->facts = (struct progress_facts){.epoch = no, .loss = no, .tokens_per_second = no,
                                       .memory = no, .files = done, .n_files = n};
    p->has_facts = true;
    pthread_mutex_unlock(&screen.lock);
}

void progress_end(struct progress *p)
{
    if (p) {
        progress_hide();
        screen.hidden = false;
    }
    ckpt_free(p);
}
