/*
 * whole - check that a checkpoint directory has all its files, by their names and its index; and
 * find an older one that is complete; see inspect.h.
 *
 * Files of a set are numbered: shards "-00001-of-00003", ranks of DeepSpeed, of random states and
 * of torch's distributed checkpoints.  A gap in the numbers means a missing file.  The readers
 * refuse such a set at the first gap; here all missing files are named.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/base/map.h"
#include "tools/inspect/inspect.h"
#include "trainer/checkpoint/manifest.h"

#define MAX_RANKS 65536

/* Families of rank files: the parts of the name before and after the rank. */
static const struct {
    const char *before, *behind;
} ranked[] = {
    {"zero_pp_rank_", "_mp_rank_00_model_states.pt"},
    {"zero_pp_rank_", "_mp_rank_00_optim_states.pt"},
    {"bf16_zero_pp_rank_", "_mp_rank_00_optim_states.pt"},
    {"fp16_zero_pp_rank_", "_mp_rank_00_optim_states.pt"},
    {"rng_state_", ".pth"},
    {"random_states_", ".pkl"},
    {"__", "_0.distcp"},
};
#define N_RANKED (sizeof ranked / sizeof ranked[0])

struct finding {
    const char *name, *why;
    bool        missing;
};

/* All findings, in the arena of the directory that was checked. */
struct findings {
    struct ckpt_arena arena;
    struct ckpt_map  *told;    /* names reported by the set, the index or the manifest, each once */
    struct finding   *item;
    size_t            n, cap;
    int64_t           missing;
    bool              failed;
};

struct check {
    struct findings   *found;
    struct ckpt_arena  arena;
    struct ckpt_entry *entry;
    size_t             n;
    const char        *prefix;          /* prefix of names in a folder: "global_step4/" */
};

static void put(struct check *c, const char *name, bool missing, const char *why)
{
    struct findings *f = c->found;
    char *full = ckpt_arena_printf(&f->arena, "%s%s", c->prefix, name);
    struct ckpt_err ignored = {0};

    if (full && ckpt_map_get(f->told, full, strlen(full)) != CKPT_MAP_NONE)
        return;
    f->failed |= ckpt_reserve(&f->item, f->n, &f->cap, sizeof *f->item, &ignored) != 0;
    if (f->failed)
        return;
    f->item[f->n++] = (struct finding){full, ckpt_arena_printf(&f->arena, "%s", why), missing};
    f->missing += missing;
    if (!full || !f->item[f->n - 1].why || ckpt_map_add(f->told, full, strlen(full), 0, &ignored))
        f->failed = true;
}

static bool has(const struct check *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->entry[i].name, name) == 0)
            return true;
    return false;
}

/* The number between before and after; -1 when the name is not of the family. */
static long rank_of(const char *name, const char *before, const char *behind)
{
    size_t n = strlen(before);
    char *end;
    long rank;

    if (strncmp(name, before, n) != 0 || name[n] < '0' || name[n] > '9')
        return -1;
    rank = strtol(name + n, &end, 10);
    return strcmp(end, behind) == 0 && rank < MAX_RANKS ? rank : -1;
}

/* Every family present must have as many ranks as the largest. */
static void check_ranks(struct check *c)
{
    long world = 0, members[N_RANKED] = {0};
    char name[200];

    for (size_t f = 0; f < N_RANKED; f++)
        for (size_t i = 0; i < c->n; i++) {
            long rank = rank_of(c->entry[i].name, ranked[f].before, ranked[f].behind);

            members[f] += rank >= 0;
            world = rank >= world ? rank + 1 : world;
        }
    for (size_t f = 0; f < N_RANKED; f++)
        for (long r = 0; members[f] && members[f] < world && r < world; r++) {
            snprintf(name, sizeof name, "%s%ld%s", ranked[f].before, r, ranked[f].behind);
            if (!has(c, name))
                put(c, name, true, "other ranks have it");
        }
}

/* Data sets count their shards from 0, models from 1. */
static bool counts_from_zero(const char *tail)
{
    return strcmp(tail, ".arrow") == 0 || strcmp(tail, ".parquet") == 0;
}

/* Parse "stem-00001-of-00003.tail", and find its set; false for other names. */
static bool shard_of(const char *name, int *stem, long *k, long *n, const char **tail)
{
    const char *of = strstr(name, "-of-"), *p = of;
    char *end;

    while (p && p > name && p[-1] >= '0' && p[-1] <= '9')
        p--;
    if (!of || p == of || p == name || p[-1] != '-')
        return false;
    *stem = (int)(p - 1 - name);
    *k = strtol(p, NULL, 10);
    *n = strtol(of + 4, &end, 10);
    *tail = end;
    return end != of + 4 && *end == '.' && *n > 0 && *n < MAX_RANKS &&
           *k >= (counts_from_zero(end) ? 0 : 1) && *k <= *n;
}

/* Check the shards of each set, at its first member. */
static void check_shards(struct check *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const char *tail, *other;
        long k, n, k2, n2;
        int stem, stem2;
        bool first = true;

        if (!shard_of(c->entry[i].name, &stem, &k, &n, &tail))
            continue;
        for (size_t j = 0; j < i && first; j++)
            first = !(shard_of(c->entry[j].name, &stem2, &k2, &n2, &other) && n2 == n &&
                      stem2 == stem && strncmp(c->entry[j].name, c->entry[i].name,
                                               (size_t)stem) == 0 && strcmp(other, tail) == 0);
        for (k = 1; first && k <= n; k++) {
            char name[600];

            snprintf(name, sizeof name, "%.*s-%05ld-of-%05ld%s", stem, c->entry[i].name,
                     k - counts_from_zero(tail), n, tail);
            if (!has(c, name))
                put(c, name, true, "the others of its set count it");
        }
    }
}

/* Find files that an index names but that are absent, and shards that no index names. */
static int check_index(struct check *c, struct ckpt_dir *dir, const char *index,
                       struct ckpt_err *err)
{
    struct ckpt_map *named = NULL;
    struct ckpt_file *f = NULL;
    const json_t *map;
    json_t *doc = NULL, *file;
    const char *key, *tail;
    int stem, rc = ckpt_file_open_at(&f, dir, index, err);
    long k, n;

    if (rc == 0)
        rc = ckpt_json_read(&doc, f, CKPT_JSON_MAX_BYTES, 0, err);
    if (rc == 0)
        rc = ckpt_map_new(&named, 64, err);
    map = json_object_get(doc, "weight_map");
    json_object_foreach ((json_t *)map, key, file) {
        const char *name = json_string_value(file);

        if (rc || !name || ckpt_map_get(named, name, strlen(name)) != CKPT_MAP_NONE)
            continue;
        rc = ckpt_map_add(named, name, strlen(name), 0, err);
        if (!has(c, name) && !shard_of(name, &stem, &k, &n, &tail))
            put(c, name, true, index);  /* numbered files are reported by their set */
    }
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        const char *name = c->entry[i].name, *dot = strrchr(name, '.');

        if (shard_of(name, &stem, &k, &n, &tail) &&
            strncmp(index, name, (size_t)stem) == 0 && strstr(index, dot) &&
            ckpt_map_get(named, name, strlen(name)) == CKPT_MAP_NONE)
            put(c, name, false, "the index does not name it");
    }
    ckpt_map_free(named);
    json_decref(doc);
    ckpt_file_close(f);
    return rc;
}

/* Compare the manifest with the files. */
static int check_manifest(struct check *c, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_file *f = NULL;
    json_t *doc = NULL, *row;
    size_t i;
    int rc = ckpt_file_open_at(&f, dir, MANIFEST_NAME, err);

    if (rc == 0)
        rc = ckpt_json_read(&doc, f, CKPT_JSON_MAX_BYTES, 0, err);
    json_array_foreach (json_object_get(doc, "files"), i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));

        if (name && ckpt_file_path_is_kept(name) && !ckpt_dir_has(dir, name))
            put(c, name, true, MANIFEST_NAME);
    }
    json_decref(doc);
    ckpt_file_close(f);
    return rc;
}

static int check_dir(struct check *c, struct ckpt_dir *dir, bool deep, struct ckpt_err *err)
{
    int rc = ckpt_dir_list(dir, &c->arena, &c->entry, &c->n, err);
    struct check sub = {.found = c->found};

    if (rc)
        return rc;
    check_ranks(c);
    check_shards(c);
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        const char *name = c->entry[i].name;
        struct ckpt_dir *inner = NULL;
        size_t n = strlen(name);

        if (ckpt_path_ends_in(name, ".index.json"))
            rc = check_index(c, dir, name, err);
        if (!deep || !c->entry[i].is_dir || name[0] == '.')
            continue;
        rc = ckpt_dir_open_at(&inner, dir, name, err);
        sub.prefix = ckpt_arena_printf(&c->arena, "%s/", name);
        if (rc == 0 && !sub.prefix)
            rc = ckpt_nomem(err, n);
        if (rc == 0)
            rc = check_dir(&sub, inner, false, err);
        ckpt_arena_release(&sub.arena);
        ckpt_dir_close(inner);
    }
    if (rc == 0 && deep && has(c, MANIFEST_NAME))
        rc = check_manifest(c, dir, err);
    return rc;
}

static void put_findings(struct out *o, const struct findings *f)
{
    static const struct out_column columns[] = {
        {"file", "file", OUT_LEFT}, {"finding", "finding", OUT_LEFT}, {"by", "by", OUT_LEFT},
    };

    out_table(o, "findings", columns, 3);
    for (size_t i = 0; i < f->n; i++) {
        out_cell_str(o, f->item[i].name);
        out_cell_str(o, f->item[i].missing ? "missing" : "extra");
        out_cell_str(o, f->item[i].why);
    }
    out_table_end(o);
}

int inspect_whole(struct out *o, const struct cli *cli, const char *path, struct ckpt_err *err)
{
    struct findings f = {0};
    struct check c = {.found = &f, .prefix = ""};
    struct ckpt_dir *dir;
    int rc = ckpt_path_dir(&dir, path, cli->follow ? CKPT_FOLLOW : 0, err);

    if (rc)
        return rc;
    rc = ckpt_map_new(&f.told, 16, err);
    if (rc == 0)
        rc = check_dir(&c, dir, true, err);
    if (rc == 0 && f.failed)
        rc = ckpt_nomem(err, f.cap * sizeof *f.item);
    if (rc == 0 && (f.n || cli->json))
        put_findings(o, &f);
    if (rc == 0 && f.missing)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s: %lld file%s missing", path,
                          (long long)f.missing, f.missing == 1 ? "" : "s");
    ckpt_map_free(f.told);
    ckpt_free(f.item);
    ckpt_arena_release(&f.arena);
    ckpt_arena_release(&c.arena);
    ckpt_dir_close(dir);
    return rc;
}

/* -- an older one ---------------------------------------------------------------------------- */

/* Check as --verify does, without output. */
static bool verifies(const struct inspect_want *w, const struct cli *cli, const char *path)
{
    struct ckpt_err err = {0};
    struct out *o;
    bool whole = false;

    if (out_new(&o, false, &err))
        return false;
    whole = inspect_whole(o, cli, path, &err) == 0 && inspect_verify(o, w, cli, path, &err) == 0;
    out_abort(o);
    return whole;
}

/* The next lower step in names "stem<step>": -1 when there is none. */
static long next_lower(const struct ckpt_entry *entry, size_t n, const char *stem, long below)
{
    long best = -1;

    for (size_t i = 0; i < n; i++) {
        long step = entry[i].is_dir ? rank_of(entry[i].name, stem, "") : -1;

        best = step < below && step > best ? step : best;
    }
    return best;
}

void inspect_name_older(const struct inspect_want *w, const struct cli *cli, const char *path,
                        struct ckpt_err *err)
{
    static const char *const stems[] = {"checkpoint-", "global_step"};
    struct ckpt_arena a = {0};
    struct ckpt_err ignored = {0};
    struct ckpt_entry *entry;
    struct ckpt_dir *dir = NULL;
    size_t len = strlen(path), n = 0;
    char *up, *name;

    while (len > 1 && path[len - 1] == '/')
        len--;
    up = ckpt_arena_strndup(&a, path, len);
    name = up ? strrchr(up, '/') : NULL;
    if (name)
        *name++ = '\0';
    else if (up)
        name = up;
    for (size_t s = 0; name && s < 2; s++) {
        long step = rank_of(name, stems[s], "");
        const char *where = name == up ? "." : *up ? up : "/";

        if (step < 0 || ckpt_path_dir(&dir, where, 0, &ignored) ||
            ckpt_dir_list(dir, &a, &entry, &n, &ignored))
            continue;
        while ((step = next_lower(entry, n, stems[s], step)) >= 0) {
            char *older = ckpt_arena_printf(&a, "%s/%s%ld", where, stems[s], step);

            if (older && verifies(w, cli, older)) {
                ckpt_err_hint(err, "%s is whole", older);
                break;
            }
        }
    }
    ckpt_dir_close(dir);
    ckpt_arena_release(&a);
}
