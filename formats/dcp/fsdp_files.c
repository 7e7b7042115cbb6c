/* fsdp_files - see fsdp_files.h. */
#include "formats/dcp/fsdp_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fsdp_rank_in(const char *name, size_t *at, size_t *len)
{
    const char *found = NULL, *p = name;

    while ((p = strstr(p, "rank")) != NULL) {
        p += 4;
        found = p + (*p == '_');
    }
    if (!found)
        return false;
    *at = (size_t)(found - name);
    *len = strspn(found, "0123456789");
    return *len > 0 && *len < 7 && found[*len] == '.';
}

/* True when both belong to one set; *rank is name's. */
static bool of_set(const char *first, const char *name, unsigned long *rank)
{
    size_t at, len, at2, len2;

    if (!fsdp_rank_in(first, &at, &len) || !fsdp_rank_in(name, &at2, &len2) || at != at2 ||
        strncmp(first, name, at) != 0 || strcmp(first + at + len, name + at2 + len2) != 0)
        return false;
    *rank = strtoul(name + at2, NULL, 10);
    return true;
}

static int add(struct fsdp_set *s, size_t cap, unsigned long rank, const char *name,
               struct ckpt_arena *arena, struct ckpt_err *err)
{
    if (rank >= cap)
        return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                            "%s is there, but only %zu files of its set", name, cap);
    if (s->name[rank])
        return ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous", "%s and %s: a rank twice",
                            s->name[rank], name);
    s->name[rank] = ckpt_arena_strndup(arena, name, strlen(name));
    if (!s->name[rank])
        return ckpt_nomem(err, strlen(name));
    s->n++;
    return 0;
}

int fsdp_set_of(struct fsdp_set *s, const char *name, const struct ckpt_entry *entry,
                size_t n_entry, struct ckpt_arena *arena, struct ckpt_err *err)
{
    size_t cap = 0, at, len;
    unsigned long rank;
    int rc;

    *s = (struct fsdp_set){0};
    for (size_t i = 0; i < n_entry; i++)
        cap += entry[i].is_file && of_set(name, entry[i].name, &rank);
    if (cap > FSDP_MAX_RANKS)
        return ckpt_fail(err, CKPT_ELIMIT, "%zu files of a set, %u at most", cap, FSDP_MAX_RANKS);
    if (!fsdp_rank_in(name, &at, &len))
        cap = 1;
    s->name = ckpt_arena_alloc(arena, cap ? cap : 1, sizeof *s->name);
    if (!s->name)
        return ckpt_nomem(err, cap * sizeof *s->name);
    if (!fsdp_rank_in(name, &at, &len))
        return add(s, 1, 0, name, arena, err);
    for (size_t i = 0; i < n_entry; i++) {
        if (!entry[i].is_file || !of_set(name, entry[i].name, &rank))
            continue;
        rc = add(s, cap, rank, entry[i].name, arena, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Names without a rank, for sets of a single file. */
static const char *const alone[] = {[FSDP_WEIGHTS] = "pytorch_model_fsdp.bin",
                                    [FSDP_OPTIMIZER] = "optimizer.bin"};

/* Kind of a set, from the part of the name before the rank's number. */
static enum fsdp_kind kind_of(const char *name, size_t n_before)
{
    static const char *const aside[] = {"extra", "rng", "random", "mp_rank", "zero_pp"};
    char before[256];

    snprintf(before, sizeof before, "%.*s", (int)(n_before < 255 ? n_before : 255), name);
    for (size_t i = 0; i < sizeof aside / sizeof aside[0]; i++)
        if (strstr(before, aside[i]))
            return FSDP_ASIDE;
    return strstr(before, "optim") ? FSDP_OPTIMIZER : FSDP_WEIGHTS;
}

static bool is_torch_name(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && (strcmp(dot, ".pt") == 0 || strcmp(dot, ".pth") == 0 || strcmp(dot, ".bin") == 0);
}

int fsdp_set_in(const char **out, enum fsdp_kind kind, const struct ckpt_entry *entry, size_t n,
                struct ckpt_err *err)
{
    size_t at, len;
    unsigned long rank;

    *out = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = entry[i].name;

        if (!entry[i].is_file || !is_torch_name(name) || !fsdp_rank_in(name, &at, &len) ||
            kind_of(name, at) != kind)
            continue;
        if (*out && !of_set(*out, name, &rank))
            return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "ambiguous",
                                "files of two sets: %s and %s: name a file of the one that is "
                                "meant", *out, name);
        *out = name;
    }
    for (size_t i = 0; !*out && i < n; i++)
        if (entry[i].is_file && strcmp(entry[i].name, alone[kind]) == 0)
            *out = entry[i].name;
    return 0;
}
