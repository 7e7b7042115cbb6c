/* torch_ranks - see torch_ranks.h. */
#include "formats/weights/torch_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/weights/torch_list.h"
#include "formats/weights/torch_shard.h"
#include "libckpt/map.h"

#define MAX_RANKS 100000

/* "<before>rank_<number><behind>": the parts of a file's name. */
struct rank_name {
    const char *name;
    size_t      n_before;       /* up to the number */
    long        rank;
    const char *behind;
};

/* A tensor as its pieces come in. */
struct gathered {
    const char           *name;
    size_t                len;
    struct ckpt_shape     shape;
    enum ckpt_dtype       dtype;
    enum ckpt_kind        kind;
    bool                  sharded;
    struct ckpt_fragment *frag;
    size_t                n, cap;
};

struct torch_ranks {
    struct ckpt_dir       *dir;
    struct torch_archive **archive;
    size_t                 n_archive;
    /* While opening: */
    struct ckpt_tensors   *list;
    struct ckpt_arena      scratch;     /* names */
    struct gathered       *item;
    size_t                 n, cap;
    struct ckpt_map       *by_name;
    size_t                 rank;        /* of the file in work */
    size_t                 first;       /* of the set in work, in archive */
    bool                   optim;       /* the set in work is an optimizer's */
    bool                   sharded;     /* it has a sharded tensor */
};

/* -- names of files -------------------------------------------------------------------------- */

/* The last "rank" before a number that only ".pt" and the like follow. */
static bool parse_name(struct rank_name *r, const char *name)
{
    const char *at = NULL, *digits;
    char *end;

    for (const char *p = name; (p = strstr(p, "rank")); p++)
        at = p;
    if (!at)
        return false;
    digits = at + 4 + (at[4] == '_' || at[4] == '-');
    if (*digits < '0' || *digits > '9')
        return false;
    r->name = name;
    r->n_before = (size_t)(digits - name);
    r->rank = strtol(digits, &end, 10);
    r->behind = end;
    return r->rank < MAX_RANKS && (strcmp(end, ".pt") == 0 || strcmp(end, ".pth") == 0 ||
                                   strcmp(end, ".bin") == 0 || strcmp(end, ".model.pt") == 0);
}

static bool same_set(const struct rank_name *a, const struct rank_name *b)
{
    return a->n_before == b->n_before && strncmp(a->name, b->name, a->n_before) == 0 &&
           strcmp(a->behind, b->behind) == 0;
}

enum set_kind { SET_MODEL, SET_OPTIM, SET_ASIDE };

/* What the part of the name before the number says. */
static enum set_kind kind_of(const struct rank_name *r)
{
    char before[256];

    snprintf(before, sizeof before, "%.*s", (int)(r->n_before < 255 ? r->n_before : 255),
             r->name);
    return strstr(before, "optim") ? SET_OPTIM
           : strstr(before, "extra") || strstr(before, "rng") || strstr(before, "mp_rank") ||
                 strstr(before, "zero_pp") ? SET_ASIDE : SET_MODEL;
}

/* The first file of the one set of that kind; more than one is an error. */
static int find_set(struct rank_name *out, const struct ckpt_place *p, enum set_kind kind,
                    bool *found, struct ckpt_err *err)
{
    struct rank_name r;

    *found = false;
    for (size_t i = 0; i < p->n_entry; i++) {
        if (!p->entry[i].is_file || !parse_name(&r, p->entry[i].name) || kind_of(&r) != kind)
            continue;
        if (*found && !same_set(out, &r))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "files of two sets: %s and %s", out->name,
                             r.name);
        *out = r;
        *found = true;
    }
    return 0;
}

/* Open the set's files, by rank; every number from 0 is there once. */
static int open_set(struct torch_ranks *t, const struct ckpt_place *p, const struct rank_name *set,
                    struct ckpt_err *err)
{
    struct torch_archive **file = NULL;
    struct rank_name r;
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < p->n_entry; i++)
        n += p->entry[i].is_file && parse_name(&r, p->entry[i].name) && same_set(set, &r);
    t->first = t->n_archive;
    file = ckpt_grow(t->archive, t->n_archive + n, sizeof *file);
    if (!file)
        return ckpt_nomem(err, n * sizeof *file);
    t->archive = file;
    memset(file + t->first, 0, n * sizeof *file);
    t->n_archive += n;
    for (size_t i = 0; rc == 0 && i < p->n_entry; i++) {
        struct ckpt_file *f;

        if (!p->entry[i].is_file || !parse_name(&r, p->entry[i].name) || !same_set(set, &r))
            continue;
        if ((size_t)r.rank >= n)
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s is there, but only %zu files of "
                                "its set", r.name, n);
        if (t->archive[t->first + (size_t)r.rank])
            return ckpt_fail_as(err, CKPT_EFORMAT, "duplicate", "%s: a rank twice", r.name);
        rc = ckpt_file_open_at(&f, t->dir, r.name, err);
        if (rc == 0)
            rc = torch_archive_open(&t->archive[t->first + (size_t)r.rank], f, err);
    }
    return rc;
}

/* -- tensors --------------------------------------------------------------------------------- */

/* "state.<parameter>.<key>" of an optimizer becomes "<parameter>|<key>"; NULL: not listed. */
static const char *optim_name(struct torch_ranks *t, const char *name, size_t *len)
{
    const char *dot = memrchr(name, '.', *len), *end = name + *len;
    char *out;

    if (*len < 8 || strncmp(name, "state.", 6) != 0 || dot < name + 7 ||
        (end - dot == 5 && memcmp(dot, ".step", 5) == 0))
        return NULL;
    out = ckpt_arena_strndup(&t->scratch, name + 6, *len - 6);
    if (out)
        out[dot - name - 6] = '|';
    *len -= 6;
    return out;
}

/* The tensor of that name, new or known. */
static int entry(struct torch_ranks *t, struct gathered **out, const char *name, size_t len,
                 enum ckpt_kind kind, const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                 bool sharded, struct ckpt_err *err)
{
    size_t i = ckpt_map_get(t->by_name, name, len);
    char *copy;

    if (i != CKPT_MAP_NONE) {
        *out = &t->item[i];
        return (*out)->dtype == dtype && (*out)->sharded == sharded &&
                       ckpt_shape_equal(&(*out)->shape, shape)
                   ? 0 : ckpt_fail(err, CKPT_EMISMATCH,
                                   "tensor %.*s: rank %zu has it otherwise than ranks before",
                                   (int)(len < 256 ? len : 256), name, t->rank);
    }
    if (t->rank > 0)
        return ckpt_fail(err, CKPT_EMISMATCH, "tensor %.*s: rank %zu has it, rank 0 not",
                         (int)(len < 256 ? len : 256), name, t->rank);
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        struct gathered *grown = ckpt_grow(t->item, cap, sizeof *grown);

        if (!grown)
            return ckpt_nomem(err, cap * sizeof *grown);
        t->item = grown;
        t->cap = cap;
    }
    copy = ckpt_arena_strndup(&t->scratch, name, len);
    if (!copy || ckpt_map_add(t->by_name, copy, len, t->n, err))
        return copy ? err->code : ckpt_nomem(err, len);
    *out = &t->item[t->n++];
    **out = (struct gathered){.name = copy, .len = len, .shape = *shape, .dtype = dtype,
                              .kind = t->optim ? CKPT_OPTIM : kind, .sharded = sharded};
    return 0;
}

static int add_fragment(struct torch_ranks *t, struct gathered *g, const struct value_tensor *v,
                        const int64_t *start, struct ckpt_err *err)
{
    struct ckpt_fragment *f;

    if (torch_archive_fragment(&f, &t->list->arena, t->archive[t->first + t->rank], v, err))
        return err->code;
    if (start)
        memcpy(f->box.start, start, (size_t)v->shape.rank * sizeof *start);
    if (g->n == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 1;
        struct ckpt_fragment *grown = ckpt_grow(g->frag, cap, sizeof *grown);

        if (!grown)
            return ckpt_nomem(err, cap * sizeof *grown);
        g->frag = grown;
        g->cap = cap;
    }
    g->frag[g->n++] = *f;
    return 0;
}

static int take_tensor(void *ctx, const char *name, size_t len, enum ckpt_kind kind,
                       const struct value_tensor *v, struct ckpt_err *err)
{
    struct torch_ranks *t = ctx;
    struct gathered *g;
    int64_t numel;

    if (t->optim && !(name = optim_name(t, name, &len)))
        return 0;
    if (entry(t, &g, name, len, kind, &v->shape, v->dtype, false, err))
        return err->code;
    if (t->rank > 0 || (ckpt_shape_numel(&numel, &v->shape) && numel == 0))
        return 0;
    return add_fragment(t, g, v, NULL, err);
}

static int take_shard(void *ctx, const char *name, size_t len, enum ckpt_kind kind,
                      const struct value *v, struct ckpt_err *err)
{
    struct torch_ranks *t = ctx;
    struct torch_shard s;
    struct gathered *g;

    t->sharded = true;
    if (len >= 10 && strncmp(name + len - 10, "flat_param", 10) == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%.*s: FSDP's local state dict, whose files do "
                         "not say what shapes the parameters have",
                         (int)(len < 256 ? len : 256), name);
    if (torch_shard_read(&s, &t->scratch, v, err))
        return ckpt_err_in(err, "tensor %.*s", (int)(len < 256 ? len : 256), name);
    if (t->optim && !(name = optim_name(t, name, &len)))
        return 0;
    if (entry(t, &g, name, len, kind, &s.shape, s.dtype, true, err))
        return err->code;
    for (size_t i = 0; i < s.n; i++)
        if (add_fragment(t, g, s.piece[i].tensor, s.piece[i].start, err))
            return err->code;
    return 0;
}

/* What all ranks gave, proved to be whole. */
static int list_gathered(struct torch_ranks *t, struct ckpt_err *err)
{
    for (size_t i = 0; i < t->n; i++) {
        struct gathered *g = &t->item[i];
        struct ckpt_fragment *frag = NULL;
        struct ckpt_tensor *added;

        if (ckpt_fragments_check(&g->shape, g->dtype, g->frag, g->n, err))
            return ckpt_err_in(err, "tensor %s", g->name);
        if (g->n && !(frag = ckpt_arena_alloc(&t->list->arena, g->n, sizeof *frag)))
            return ckpt_nomem(err, g->n * sizeof *frag);
        if (g->n)
            memcpy(frag, g->frag, g->n * sizeof *frag);
        if (ckpt_tensors_add(t->list, &added, g->name, g->len, g->dtype, &g->shape, frag, g->n,
                             false, err))
            return err->code;
        added->kind = g->kind;
    }
    return 0;
}

static void release_gathered(struct torch_ranks *t)
{
    for (size_t i = 0; i < t->n; i++)
        ckpt_free(t->item[i].frag);
    ckpt_free(t->item);
    t->item = NULL;
    t->n = t->cap = 0;
    ckpt_map_free(t->by_name);
    t->by_name = NULL;
    ckpt_arena_release(&t->scratch);
}

/* One set of files into the list. */
static int read_set(struct torch_ranks *t, const struct ckpt_place *p, const struct rank_name *set,
                    bool optim, struct ckpt_err *err)
{
    struct torch_visitor visitor = {.ctx = t, .tensor = take_tensor, .shard = take_shard};
    int rc = open_set(t, p, set, err);

    t->optim = optim;
    t->sharded = false;
    if (rc == 0)
        rc = ckpt_map_new(&t->by_name, 256, err);
    for (t->rank = 0; rc == 0 && t->rank < t->n_archive - t->first; t->rank++)
        rc = torch_walk(t->archive[t->first + t->rank], &visitor, err);
    if (rc == 0 && !t->sharded)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: no sharded tensor in it and its kin: which "
                       "part a rank has is not said", set->name);
    if (rc == 0)
        rc = list_gathered(t, err);
    release_gathered(t);
    return rc;
}

/* -- the format row -------------------------------------------------------------------------- */

static void close_ranks(void *self)
{
    struct torch_ranks *t = self;

    if (!t)
        return;
    release_gathered(t);
    for (size_t i = 0; i < t->n_archive; i++)
        torch_archive_close(t->archive[i]);
    ckpt_free(t->archive);
    ckpt_dir_close(t->dir);
    ckpt_free(t);
}

static const struct ckpt_source_ops ops = {.format = "torch-ranks", .close = close_ranks};

static int bid(const struct ckpt_place *p)
{
    struct rank_name r;

    for (size_t i = 0; p->dir && i < p->n_entry; i++)
        if (p->entry[i].is_file && parse_name(&r, p->entry[i].name) && r.rank == 0 &&
            kind_of(&r) == SET_MODEL)
            return 30;
    return 0;
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct torch_ranks *t;
    struct ckpt_tensors list = {0};
    struct rank_name set;
    bool found;
    size_t world;
    int rc;

    *out = NULL;
    if (!place->dir)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is a file, a directory wanted", place->path);
    t = ckpt_alloc(1, sizeof *t);
    if (!t)
        return ckpt_nomem(err, sizeof *t);
    place->took = true;
    t->dir = place->dir;
    t->list = &list;
    rc = find_set(&set, place, SET_MODEL, &found, err);
    if (rc == 0 && !found)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "no files of a model's ranks");
    if (rc == 0)
        rc = read_set(t, place, &set, false, err);
    world = t->n_archive;
    if (rc == 0 && opts->optimizer && (rc = find_set(&set, place, SET_OPTIM, &found, err)) == 0 &&
        found)
        rc = read_set(t, place, &set, true, err);
    t->list = NULL;
    if (rc) {
        ckpt_err_in(err, "%s", place->path);
        ckpt_tensors_release(&list);
        close_ranks(t);
        return rc;
    }
    return ckpt_source_new(out, &ops, t, &list, NULL, 0,
                           json_pack("{s:s,s:I}", "format", "torch-ranks", "world_size",
                                     (json_int_t)world), err);
}

const struct ckpt_format ckpt_format_torch_ranks = {
    .name = "torch-ranks", .title = "torch files of all ranks", .bid = bid, .open = open_source,
};
