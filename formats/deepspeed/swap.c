/* deepspeed/swap - see deepspeed/swap.h. */
#include "formats/deepspeed/swap.h"

#include <stdio.h>
#include <string.h>

#define FOLDER "offloaded_tensors"

struct ds_swap {
    struct ckpt_dir   *dir;
    struct ckpt_file **file;            /* [n] opened when their tensors were requested */
    size_t             n, cap;
};

int ds_swap_open(struct ds_files *f, struct ckpt_dir *dir, struct ckpt_err *err)
{
    f->swap = ckpt_alloc(1, sizeof *f->swap);
    return f->swap ? ckpt_dir_open_at(&f->swap->dir, dir, FOLDER, err)
                   : ckpt_nomem(err, sizeof *f->swap);
}

void ds_swap_close(struct ds_swap *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        ckpt_file_close(s->file[i]);
    ckpt_free(s->file);
    ckpt_dir_close(s->dir);
    ckpt_free(s);
}

static int open_file(struct ckpt_file **out, struct ds_swap *s, const char *path,
                     struct ckpt_err *err)
{
    int rc;

    if (ckpt_reserve(&s->file, s->n, &s->cap, sizeof *s->file, err))
        return CKPT_ENOMEM;
    if ((rc = ckpt_file_open_at(out, s->dir, path, err)) != 0)
        return rc;
    s->file[s->n++] = *out;
    return 0;
}

int ds_swap_fragment(struct ckpt_fragment **out, struct ckpt_arena *arena,
                     const struct ds_files *f, size_t rank, const struct value_tensor *t,
                     int64_t numel, const char *what, struct ckpt_err *err)
{
    const char *id = value_as_str(value_get(t->attrs, "ds_id"));
    uint64_t bytes = (uint64_t)numel * ckpt_dtype_size(t->dtype);
    struct ckpt_fragment *frag;
    char path[512];

    if (!f->swap || !id)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "rank %zu: %s is an empty tensor: its %lld "
                         "elements were swapped out, and %s", rank, what, (long long)numel,
                         f->swap ? "it has no ds_id to find them by"
                                 : FOLDER "/ is not in the folder");
    if (!ckpt_file_name_is_clean(id) ||
        (size_t)snprintf(path, sizeof path, "rank%02zu/%s.tensor.swp", rank, id) >= sizeof path)
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "rank %zu: the ds_id \"%s\" is no "
                            "clean name", rank, id);
    frag = ckpt_arena_alloc(arena, 1, sizeof *frag);
    if (!frag)
        return ckpt_nomem(err, sizeof *frag);
    if (open_file(&frag->file, f->swap, path, err))
        return ckpt_err_in(err, FOLDER);
    if (ckpt_file_size(frag->file) < bytes)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", FOLDER "/%s: has %llu bytes, %lld "
                            "elements of %s need %llu", path,
                            (unsigned long long)ckpt_file_size(frag->file), (long long)numel, what,
                            (unsigned long long)bytes);
    *out = frag;
    return 0;
}
