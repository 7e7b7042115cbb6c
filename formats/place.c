/* place - see place.h. */
#include "formats/place.h"

#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

static int read_head(struct ckpt_place *p, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(p->file);

    p->head_len = size < CKPT_HEAD_BYTES ? (size_t)size : CKPT_HEAD_BYTES;
    return ckpt_file_read_at(p->file, p->head, p->head_len, 0, err);
}

int place_of_file(struct ckpt_place *p, struct ckpt_file *file, struct ckpt_err *err)
{
    memset(p, 0, sizeof *p);
    p->path = ckpt_file_name(file);
    p->file = file;
    if (read_head(p, err) == 0)
        return 0;
    place_close(p);
    return err->code;
}

int place_open(struct ckpt_place *p, const char *path, unsigned flags, struct ckpt_arena *arena,
               struct ckpt_err *err)
{
    struct ckpt_entry *entry;
    struct stat st;

    memset(p, 0, sizeof *p);
    p->path = path;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (ckpt_dir_open(&p->dir, path, flags, err))
            return err->code;
        if (ckpt_dir_list(p->dir, arena, &entry, &p->n_entry, err)) {
            place_close(p);
            return err->code;
        }
        p->entry = entry;
        return 0;
    }
    if (ckpt_file_open(&p->file, path, flags, err))
        return err->code;
    if (read_head(p, err) == 0)
        return 0;
    place_close(p);
    return err->code;
}

void place_close(struct ckpt_place *p)
{
    if (p->took)
        return;
    ckpt_file_close(p->file);
    ckpt_dir_close(p->dir);
    p->file = NULL;
    p->dir = NULL;
}

bool place_has(const struct ckpt_place *p, const char *name)
{
    for (size_t i = 0; i < p->n_entry; i++)
        if (p->entry[i].is_file && strcmp(p->entry[i].name, name) == 0)
            return true;
    return false;
}

bool place_has_like(const struct ckpt_place *p, const char *glob)
{
    for (size_t i = 0; i < p->n_entry; i++)
        if (p->entry[i].is_file && fnmatch(glob, p->entry[i].name, 0) == 0)
            return true;
    return false;
}
