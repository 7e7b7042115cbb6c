/*
 * memory_dir - a directory of files that are memory: no target opens, writes or syncs one on disk.
 */
#ifndef CKPT_TESTS_FUZZ_LIB_MEMORY_DIR_H
#define CKPT_TESTS_FUZZ_LIB_MEMORY_DIR_H

#include <string.h>

#include "libckpt/io/file_at.h"

struct memory_file {
    const char *name;                   /* one component */
    const void *bytes;
    size_t      n;
};

/* Borrowed by its directory. */
struct memory_dir {
    const struct memory_file *file;
    size_t                    n;
};

static const struct memory_file *memory_find(const struct memory_dir *d, const char *rel)
{
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->file[i].name, rel) == 0)
            return &d->file[i];
    return NULL;
}

static int memory_open(void *self, struct ckpt_file **out, const char *rel, const char *path,
                       struct ckpt_err *err)
{
    const struct memory_file *f = memory_find(self, rel);

    return f ? ckpt_file_memory(out, f->bytes, f->n, path, err)
             : ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such file", path);
}

static int memory_open_dir(void *self, struct ckpt_dir **out, const char *rel, const char *path,
                           struct ckpt_err *err)
{
    (void)self;
    (void)rel;
    *out = NULL;
    return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such directory", path);
}

static int memory_list(void *self, const char *path, struct ckpt_arena *arena,
                       struct ckpt_entry **out, size_t *n, struct ckpt_err *err)
{
    const struct memory_dir *d = self;

    (void)path;
    *out = ckpt_arena_alloc(arena, d->n, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, d->n * sizeof **out);
    for (*n = 0; *n < d->n; ++*n)
        (*out)[*n] = (struct ckpt_entry){.name = d->file[*n].name, .size = d->file[*n].n,
                                         .is_file = true};
    return 0;
}

static bool memory_has(void *self, const char *rel) { return memory_find(self, rel) != NULL; }
static void memory_close(void *self) { (void)self; }

static const struct dir_ops memory_ops = {.open_file = memory_open, .open_dir = memory_open_dir,
                                          .list = memory_list, .has = memory_has,
                                          .close = memory_close};

static inline int memory_dir_open(struct ckpt_dir **out, struct memory_dir *d,
                                  struct ckpt_err *err)
{
    return file_make_dir(out, &memory_ops, d, "memory", err);
}

#endif
