/* pickles - the names that pickles refer to, and the verdict on each; see scan.h. */
#include <stdio.h>
#include <string.h>

#include "formats/container/pickle/pickle.h"
#include "formats/container/pickle/danger.h"
#include "formats/container/pickle/walk.h"
#include "formats/torch/names.h"
#include "libckpt/err.h"
#include "tools/inspect/scan/scan.h"

#define FIRST_BYTES   ((uint64_t)1 << 20)
#define MAX_BYTES     ((uint64_t)256 << 20)     /* most bytes of a file searched for pickles */
#define MAX_STREAM    100000                    /* most consecutive pickles */
#define HIDDEN_BYTES  ((size_t)1 << 20)         /* most bytes followed of a hidden one */
#define MOST_STEPS    ((uint64_t)1 << 26)       /* opcodes followed in a search; chance beginnings
                                                   in 256 MiB of weights need some million */
#define ALL_STEPS     (16 * MOST_STEPS)         /* in all searches of a scan */
#define START_STEPS   64                        /* what a beginning costs beside its opcodes */
#define LEGACY_MAGIC  "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"

static const char *const pickle_tails[] = {".pkl", ".pickle", ".joblib", ".pt", ".pth", ".bin",
                                           ".ckpt", ".th", ".dill", ".dat", NULL};
static const char *const torch_tails[] = {".pt", ".pth", ".bin", ".ckpt", ".th", NULL};

/* -- names ----------------------------------------------------------------------------------- */

/* Names that joblib's and Python's own files use in addition to torch's. */
static bool is_plain_name(const char *module, const char *name)
{
    static const char *const known[][2] = {
        {"joblib.numpy_pickle", "NumpyArrayWrapper"},
        {"joblib.numpy_pickle_compat", "NDArrayWrapper"},
        {"joblib.numpy_pickle_compat", "ZNDArrayWrapper"},
        {"datetime", "datetime"}, {"datetime", "date"}, {"datetime", "time"},
        {"datetime", "timezone"}, {"decimal", "Decimal"}, {"fractions", "Fraction"},
        {"numpy.random._pickle", "__randomstate_ctor"},
        {"numpy.random._pickle", "__generator_ctor"},
        {"numpy.random._pickle", "__bit_generator_ctor"},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i][0], module) == 0 && strcmp(known[i][1], name) == 0)
            return true;
    return false;
}

enum verdict scan_judge(const char *module, const char *name, const char **reason)
{
    const char *does;

    *reason = "checkpoints have it";
    if (torch_name_find(module, name) || is_plain_name(module, name))
        return SCAN_CLEAN;
    does = pickle_danger(module, name);
    *reason = does ? does : "is in no table of known names";
    return does ? SCAN_DANGEROUS : SCAN_SUSPICIOUS;
}

/* getattr is harmless when it only takes members of enumerations. */
static enum verdict judge_use(const struct pickle_walk *w, const struct pickle_use *u,
                              const char **reason)
{
    const struct torch_name *row = torch_name_find(u->module, u->name);

    if (row && row->what == NAME_GETATTR && w->getattr) {
        *reason = "reaches other objects by name";
        return SCAN_DANGEROUS;
    }
    if (u->member && (!row || (row->what != NAME_ENUM && strcmp(u->name, "ShardedTensor") != 0))) {
        *reason = "getattr reaches into it";
        return SCAN_DANGEROUS;
    }
    return scan_judge(u->module, u->name, reason);
}

static void put_names(struct scan *s, const char *path, const struct pickle_walk *w, uint64_t at)
{
    for (size_t i = 0; i < w->n_use; i++) {
        const struct pickle_use *u = &w->use[i];
        const char *reason;
        enum verdict v = judge_use(w, u, &reason);
        char text[8300];

        snprintf(text, sizeof text, "%s.%s", u->module, u->name);
        scan_put(s, path, text, (int64_t)(at + u->at), u->called ? "called" : "named", v, reason);
    }
    for (size_t i = 0; i < w->n_odd; i++)
        scan_put(s, path, w->odd[i].what, (int64_t)(at + w->odd[i].at), "",
                 w->odd[i].dangerous ? SCAN_DANGEROUS : SCAN_SUSPICIOUS,
                 w->odd[i].dangerous ? "checkpoints do not, attacks do" : "checkpoints do not");
}

/* -- one after another ----------------------------------------------------------------------- */

struct stream {
    struct scan          *s;
    const struct subject *f;
    unsigned char        *bytes;
    size_t                n, at;
    int                   k;            /* number of pickles before at */
    bool                  legacy;       /* torch's legacy stream: storages follow the fifth
                                           pickle */
    bool                  told;         /* a finding other than a name was reported */
};

static void put_broken(struct stream *t, const char *what, size_t at, enum verdict v,
                       const char *reason)
{
    t->told = true;
    scan_put(t->s, t->f->path, what, (int64_t)at, "", v, reason);
}

/* Run the strict machine on a pickle in which the walk found nothing wrong. */
static int read_strictly(struct stream *t, struct ckpt_err *err)
{
    struct ckpt_arena a = {.limit = (uint64_t)2 << 30};
    struct ckpt_cursor c;
    struct value *root;
    int rc;

    ckpt_cursor_init(&c, t->bytes + t->at, t->n - t->at);
    rc = pickle_read(&root, &c, &a, NULL, err);
    ckpt_arena_release(&a);
    if (rc == 0)
        return 0;
    t->told = true;
    if (err->code == CKPT_ELIMIT)
        err->code = CKPT_EFORMAT;       /* no writer needs more */
    return scan_refused(t->s, t->f->path, err);
}

/* Judge the pickle at t->at; *end: its end, or 0.  1: not enough bytes yet. */
static int scan_one(struct stream *t, bool last, size_t *end, struct ckpt_err *err)
{
    struct pickle_walk w = {0};
    int rc = pickle_walk(&w, t->bytes + t->at, t->n - t->at, err);

    *end = 0;
    if (rc == 0 && w.cut && !last) {
        pickle_walk_release(&w);
        return 1;
    }
    t->s->pickles++;
    put_names(t->s, t->f->path, &w, t->at);
    if (rc) {
        rc = scan_refused(t->s, t->f->path, err);
        t->told = true;
    } else if (w.broken || !w.stopped) {
        put_broken(t, w.broken ? w.broken : "the pickle ends without STOP",
                   t->at + (w.broken ? w.broken_at : w.end),
                   w.cut && ckpt_file_size(t->f->file) > t->n ? SCAN_UNJUDGED : SCAN_DAMAGED,
                   w.cut && ckpt_file_size(t->f->file) > t->n ? "is longer than is looked at"
                                                              : "no loader reads it to its end");
    } else {
        *end = t->at + w.end;
        if (!w.arrays)
            rc = read_strictly(t, err);
    }
    pickle_walk_release(&w);
    return rc;
}

/* Judge the bytes after the last pickle. */
static int scan_rest(struct stream *t, struct ckpt_err *err)
{
    uint64_t at = t->at, size = ckpt_file_size(t->f->file);
    char name[64];

    if (at == size || t->legacy)
        return 0;
    snprintf(name, sizeof name, "bytes after the pickle at %llu", (unsigned long long)at);
    return scan_part(t->s, t->f, name, at, size - at, true, err);
}

static bool begins(const struct stream *t)
{
    return t->n - t->at > 2 && t->bytes[t->at] == 0x80 && t->bytes[t->at + 1] <= 5;
}

/* Judge all pickles in memory.  1: more of the file is needed. */
static int scan_stream(struct stream *t, bool last, struct ckpt_err *err)
{
    size_t end;
    int rc = 0;

    t->legacy = memmem(t->bytes, t->n < 32 ? t->n : 32, LEGACY_MAGIC, 12) != NULL;
    while (rc == 0 && t->at < t->n && (t->k == 0 || begins(t)) && !(t->legacy && t->k == 5)) {
        if (t->k > MAX_STREAM) {
            put_broken(t, "more pickles than are looked at", t->at, SCAN_UNJUDGED,
                       "beyond a limit");
            return 0;
        }
        rc = scan_one(t, last, &end, err);
        if (end == 0)
            return rc;                  /* the following bytes cannot be interpreted */
        t->at = end;
        t->k++;
    }
    return rc ? rc : scan_rest(t, err);
}

int scan_pickles(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(f->file), n = size < FIRST_BYTES ? size : FIRST_BYTES;
    int64_t before = s->count[SCAN_DANGEROUS];
    struct stream t = {.s = s, .f = f};
    int rc;

    for (;;) {
        bool last = n == size || n >= MAX_BYTES;

        ckpt_free(t.bytes);
        t.bytes = ckpt_alloc_buffer(n);
        t.n = (size_t)n;
        if (!t.bytes)
            return ckpt_nomem(err, n);
        if (ckpt_file_read_at(f->file, t.bytes, t.n, 0, err)) {
            ckpt_free(t.bytes);
            return scan_refused(s, f->path, err);
        }
        rc = scan_stream(&t, last, err);
        if (rc != 1)
            break;
        n = size / 4 < n ? size : n * 4;
        n = n < MAX_BYTES ? n : MAX_BYTES;
    }
    if (rc == 0 && !t.told && before == s->count[SCAN_DANGEROUS] &&
        (t.legacy || ckpt_path_ends_in_any(f->path, torch_tails)))
        rc = scan_strictly(s, f, err);  /* judges storages, numbers and everything after the
                                           pickles */
    ckpt_free(t.bytes);
    return rc;
}

/* -- pickles in other files ------------------------------------------------------------------ */

static bool plain_names(const struct pickle_walk *w)
{
    for (size_t i = 0; i < w->n_use; i++)
        if (!pickle_name_is_plain(w->use[i].module) || !pickle_name_is_plain(w->use[i].name))
            return false;
    return w->n_use > 0;
}

/* Whether loading would call something, or import something and then end normally. */
static bool runs(const struct pickle_walk *w)
{
    return plain_names(w) && (w->called || (w->stopped && !w->broken));
}

bool scan_is_pickle(const struct subject *f, bool text)
{
    uint64_t size = ckpt_file_size(f->file), n = size < FIRST_BYTES ? size : FIRST_BYTES;
    bool named = ckpt_path_ends_in_any(f->path, pickle_tails), yes = false;
    struct pickle_walk w = {0};
    struct ckpt_err ignored = {0};
    unsigned char *bytes;

    if (named && !text)
        return true;
    bytes = ckpt_alloc_buffer(n);
    if (bytes && ckpt_file_read_at(f->file, bytes, (size_t)n, 0, &ignored) == 0)
        yes = pickle_walk(&w, bytes, (size_t)n, &ignored) == 0 &&
              (runs(&w) || (w.stopped && !w.broken &&
                            (named || (!text && w.end > 8 && w.end == size))));
    pickle_walk_release(&w);
    ckpt_free(bytes);
    return yes;
}

/* "cos\nsystem\n": an import in protocols 0 and 1. */
static bool looks_named(const unsigned char *p, size_t n)
{
    size_t i = 1, lines = 0;

    while (i < n && i < 128 && lines < 2) {
        bool word = (p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') ||
                    (p[i] >= '0' && p[i] <= '9') || p[i] == '_' || p[i] == '.';

        if (!word && (p[i] != '\n' || p[i - 1] == '\n' || i == 1))
            return false;
        lines += p[i++] == '\n';
    }
    return lines == 2;
}

static bool could_begin(const unsigned char *p, size_t n)
{
    return (n > 3 && p[0] == 0x80 && p[1] <= 5) ||
           (n > 6 && (p[0] == 'c' || p[0] == 'i') && looks_named(p, n));
}

/* Follow what could be a pickle at byte i; *next: where the search goes on. */
static int follow_hidden(struct scan *s, const struct subject *f, const unsigned char *p, size_t n,
                         size_t i, size_t *next, struct ckpt_err *err)
{
    struct pickle_walk w = {0};
    int rc = pickle_walk(&w, p + i, n - i < HIDDEN_BYTES ? n - i : HIDDEN_BYTES, err);

    *next = i + 1;
    s->steps += START_STEPS + w.steps;
    if (rc == 0 && runs(&w)) {
        s->pickles++;
        put_names(s, f->path, &w, i);
        *next = i + w.end;
    }
    if (rc && rc != CKPT_ENOMEM)
        rc = scan_refused(s, f->path, err);
    pickle_walk_release(&w);
    return rc;
}

/* Search bytes for the beginnings of pickles, skipping nested ones. */
static int find_hidden(struct scan *s, const struct subject *f, const unsigned char *p, size_t n,
                       struct ckpt_err *err)
{
    uint64_t before = s->steps;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n;) {
        if (!could_begin(p + i, n - i)) {
            i++;
            continue;
        }
        if (s->steps - before > MOST_STEPS || s->steps > ALL_STEPS) {
            scan_put(s, f->path, "places where a pickle could begin", (int64_t)i, "", SCAN_UNJUDGED,
                     "more than are followed");
            break;
        }
        rc = follow_hidden(s, f, p, n, i, &i, err);
    }
    return rc;
}

int scan_hidden(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(f->file), n = size < MAX_BYTES ? size : MAX_BYTES;
    unsigned char *bytes = ckpt_alloc_buffer(n);
    int rc = bytes ? 0 : ckpt_nomem(err, n);

    if (rc == 0 && ckpt_file_read_at(f->file, bytes, (size_t)n, 0, err))
        rc = scan_refused(s, f->path, err);
    else if (rc == 0)
        rc = find_hidden(s, f, bytes, (size_t)n, err);
    ckpt_free(bytes);
    return rc;
}
