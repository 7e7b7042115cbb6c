/* there - see there.h. */
#include "tools/push/there.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/err.h"

static int by_path(const void *key, const void *file)
{
    return strcmp(key, ((const struct tree_file *)file)->path);
}

const struct tree_file *there_file(const struct tree *t, const char *path)
{
    return t && t->n ? bsearch(path, t->file, t->n, sizeof *t->file, by_path) : NULL;
}

static bool in_plan(const struct push_plan *p, const char *path)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->file[i].to, path) == 0)
            return true;
    return false;
}

int there_gone(const char ***gone, size_t *n, const struct tree *t, struct push_plan *p,
               const struct opt_list *globs, struct ckpt_err *err)
{
    *n = 0;
    *gone = ckpt_arena_alloc(&p->arena, t->n ? t->n : 1, sizeof **gone);
    if (!*gone)
        return ckpt_nomem(err, t->n * sizeof **gone);
    for (int index = 1; index >= 0; index--)
        for (size_t i = 0; i < t->n; i++) {
            const char *path = t->file[i].path;
            bool match = false;

            for (size_t k = 0; k < globs->n && !match; k++)
                match = fnmatch(globs->item[k], path, 0) == 0;
            if (match && (fnmatch("*.json", path, 0) == 0) == index && !in_plan(p, path))
                (*gone)[(*n)++] = path;
        }
    return 0;
}

int there_confirm(const struct tree *t, const struct push_plan *p, const char *address,
                  struct ckpt_err *err)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct tree_file *there = there_file(t, p->file[i].to);

        if (!there || there->size != p->file[i].size)
            return ckpt_fail_as(err, CKPT_EPROTOCOL, "unconfirmed", "%s: %s is not listed as it "
                                "was sent", address, p->file[i].to);
    }
    return 0;
}
