/*
 * memory_dir - a directory of files that are memory: no target opens, writes or syncs one on disk.
 */
#ifndef CKPT_TESTS_FUZZ_LIB_MEMORY_DIR_H
#define CKPT_TESTS_FUZZ_LIB_MEMORY_DIR_H

#include <stdio.h>

#include "libckpt/io/file_at.h"
#include "tests/fuzz/lib/target.h"

struct memory_file {
    const char *name;                   /* may lie in folders; "x/": folder x has
                                           every file, and each is this */
    const void *bytes;
    size_t      n;
};

struct memory_dir {
    const struct memory_file *file;     /* borrowed */
    size_t                    n;
    char                      prefix[64];   /* of the names that lie in it: "" or "zero/w/" */
};

static inline bool memory_holds(const struct memory_dir *d, const struct memory_file *f)
{
    return strncmp(f->name, d->prefix, strlen(d->prefix)) == 0;
}

static inline const struct memory_file *memory_find(const struct memory_dir *d, const char *rel)
{
    for (const struct memory_file *f = d->file; f < d->file + d->n; f++) {
        const char *name = f->name + strlen(d->prefix);

        if (memory_holds(d, f) && (strcmp(name, rel) == 0 || !*name))
            return f;
    }
    return NULL;
}

static inline int memory_open(void *self, struct ckpt_file **out, const char *rel,
                              const char *path, struct ckpt_err *err)
{
    const struct memory_file *f = memory_find(self, rel);

    return f ? ckpt_file_memory(out, f->bytes, f->n, path, err)
             : ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such file", path);
}

static int memory_open_dir(void *self, struct ckpt_dir **out, const char *rel, const char *path,
                           struct ckpt_err *err);

/* Each file, and each folder once. */
static inline int memory_list(void *self, const char *path, struct ckpt_arena *arena,
                              struct ckpt_entry **out, size_t *n, struct ckpt_err *err)
{
    const struct memory_dir *d = self;
    size_t k;

    (void)path;
    *n = 0;
    *out = ckpt_arena_alloc(arena, d->n, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, d->n * sizeof **out);
    for (const struct memory_file *f = d->file; f < d->file + d->n; f++) {
        const char *rest = f->name + strlen(d->prefix), *slash = NULL, *name;

        if (!memory_holds(d, f) || !*rest)
            continue;
        slash = strchr(rest, '/');
        name = ckpt_arena_strndup(arena, rest, strcspn(rest, "/"));
        if (!name)
            return ckpt_nomem(err, strlen(rest));
        for (k = 0; k < *n && strcmp((*out)[k].name, name) != 0; k++)
            ;
        if (k == *n)
            (*out)[(*n)++] = (struct ckpt_entry){.name = name, .size = slash ? 0 : f->n,
                                                 .is_dir = slash, .is_file = !slash};
    }
    return 0;
}

static inline bool memory_has(void *self, const char *rel)
{
    return memory_find(self, rel) != NULL;
}

static const struct dir_ops memory_ops = {.open_file = memory_open, .open_dir = memory_open_dir,
                                          .list = memory_list, .has = memory_has,
                                          .close = ckpt_free};

static inline int memory_dir_at(struct ckpt_dir **out, const struct memory_dir *dir,
                                const char *path, struct ckpt_err *err)
{
    struct memory_dir *d = ckpt_alloc(1, sizeof *d);

    *out = NULL;
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    *d = *dir;
    return file_make_dir(out, &memory_ops, d, path, err);
}

static int memory_open_dir(void *self, struct ckpt_dir **out, const char *rel, const char *path,
                           struct ckpt_err *err)
{
    const struct memory_dir *in = self;
    struct memory_dir d = *in;
    int len = snprintf(d.prefix, sizeof d.prefix, "%s%s/", in->prefix, rel);

    for (size_t i = 0; (size_t)len < sizeof d.prefix && i < d.n; i++)
        if (memory_holds(&d, &d.file[i]))
            return memory_dir_at(out, &d, path, err);
    *out = NULL;
    return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such directory", path);
}

static inline struct ckpt_dir *memory_dir_of(const struct memory_file *file, size_t n)
{
    struct ckpt_err err = {0};
    struct ckpt_dir *dir;

    must(memory_dir_at(&dir, &(struct memory_dir){.file = file, .n = n}, "memory", &err) == 0);
    return dir;
}

#endif
