/* words - see words.h. */
#include "tools/eval/score/words.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/err.h"

int words_vocab_new(struct words_vocab *v, struct ckpt_err *err)
{
    memset(v, 0, sizeof *v);
    return ckpt_map_new(&v->map, 1024, err);
}

void words_vocab_free(struct words_vocab *v)
{
    ckpt_map_free(v->map);
    ckpt_arena_release(&v->arena);
}

void words_free(struct words *w)
{
    ckpt_free(w->id);
    memset(w, 0, sizeof *w);
}

/* Append the number of a word. */
static int add_id(struct words *w, int32_t id, struct ckpt_err *err)
{
    int rc = ckpt_reserve(&w->id, w->n, &w->cap, sizeof *w->id, err);

    if (rc == 0)
        w->id[w->n++] = id;
    return rc;
}

int words_add(struct words *w, const char *word, size_t len, struct words_vocab *v,
              struct ckpt_err *err)
{
    size_t id = ckpt_map_get(v->map, word, len);
    const char *kept;
    int rc;

    if (id != CKPT_MAP_NONE)
        return add_id(w, (int32_t)id, err);
    id = ckpt_map_count(v->map);
    if (id >= INT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d different words", INT32_MAX);
    kept = ckpt_arena_strndup(&v->arena, word, len);
    if (!kept)
        return ckpt_nomem(err, len);
    rc = ckpt_map_add(v->map, kept, len, id, err);
    return rc ? rc : add_id(w, (int32_t)id, err);
}

bool words_is_space(uint32_t cp) { return unicode_is_space(cp) || (cp >= 0x1c && cp <= 0x1f); }

int words_split(struct words *w, const char *text, size_t len, struct words_vocab *v,
                struct ckpt_err *err)
{
    size_t from = 0, width;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at <= len; at += width) {
        bool ends = at == len || words_is_space(utf8_get((const unsigned char *)text + at, &width));

        if (at == len)
            width = 1;
        if (!ends)
            continue;
        if (at > from)
            rc = words_add(w, text + from, at - from, v, err);
        from = at + width;
    }
    return rc;
}

int words_characters(struct words *w, const char *text, struct ckpt_err *err)
{
    size_t width;
    int rc = 0;

    for (const char *s = text; rc == 0 && *s; s += width) {
        uint32_t cp = utf8_get((const unsigned char *)s, &width);

        if (!words_is_space(cp))
            rc = add_id(w, (int32_t)cp, err);
    }
    return rc;
}

const char *words_strip(const char *text, size_t *len)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t first = 0, last = 0, width;
    bool any = false;

    for (size_t at = 0; s[at]; at += width) {
        if (words_is_space(utf8_get(s + at, &width)))
            continue;
        first = any ? first : at;
        last = at + width;
        any = true;
    }
    *len = last - first;
    return text + first;
}

/* -- runs ------------------------------------------------------------------------------------- */

struct order {
    const int32_t *id;
    size_t         k;
};

static int compare(const int32_t *a, const int32_t *b, size_t k)
{
    for (size_t i = 0; i < k; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int by_run(const void *a, const void *b, void *ctx)
{
    const struct order *o = ctx;
    const size_t *x = a, *y = b;

    return compare(o->id + *x, o->id + *y, o->k);
}

/* Where the runs of w begin, sorted; NULL: out of memory. */
static size_t *sorted_runs(const struct words *w, size_t k)
{
    struct order o = {.id = w->id, .k = k};
    size_t n = words_runs(w, k);
    size_t *at = ckpt_alloc(n + 1, sizeof *at);

    for (size_t i = 0; at && i < n; i++)
        at[i] = i;
    if (at)
        qsort_r(at, n, sizeof *at, by_run, &o);
    return at;
}

/* How many of the runs from *i on are equal to run; *i is moved behind smaller and equal ones. */
static size_t count_run(const struct words *w, const size_t *at, size_t *i, const int32_t *run,
                        size_t k)
{
    size_t n = words_runs(w, k), found = 0;
    int c = -1;

    while (*i < n && (c = compare(w->id + at[*i], run, k)) <= 0) {
        found += c == 0;
        ++*i;
    }
    return found;
}

int words_common(double *out, const struct words *a, const struct words *b, size_t n, size_t k,
                 struct ckpt_err *err)
{
    size_t *mine = sorted_runs(a, k), i = 0, sum = 0;
    size_t **other = ckpt_alloc(n, sizeof *other), *next = ckpt_alloc(n, sizeof *next);
    bool whole = mine && other && next;

    for (size_t r = 0; whole && r < n; r++)
        whole = (other[r] = sorted_runs(&b[r], k)) != NULL;
    while (whole && i < words_runs(a, k)) {
        const int32_t *run = a->id + mine[i];
        size_t have = count_run(a, mine, &i, run, k), most = 0;

        for (size_t r = 0; r < n; r++) {
            size_t found = count_run(&b[r], other[r], &next[r], run, k);

            most = found > most ? found : most;
        }
        sum += have < most ? have : most;
    }
    for (size_t r = 0; other && r < n; r++)
        ckpt_free(other[r]);
    ckpt_free(other);
    ckpt_free(next);
    ckpt_free(mine);
    *out = (double)sum;
    return whole ? 0 : ckpt_nomem(err, a->n * sizeof *mine);
}
