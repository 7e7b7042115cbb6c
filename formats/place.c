/* place - see place.h. */
#include "formats/place.h"

#include <fnmatch.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "libckpt/io/archive.h"
#include "libckpt/io/file_at.h"
#include "libckpt/io/path.h"
#include "libckpt/io/spool.h"

static int read_head(struct ckpt_place *p, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(p->file);

    p->head_len = size < CKPT_HEAD_BYTES ? (size_t)size : CKPT_HEAD_BYTES;
    return ckpt_file_read_at(p->file, p->head, p->head_len, 0, err);
}

int place_of_file(struct ckpt_place *p, struct ckpt_file *file, struct ckpt_err *err)
{
    int rc;

    memset(p, 0, sizeof *p);
    p->path = ckpt_file_name(file);
    p->file = file;
    rc = read_head(p, err);
    if (rc)
        place_close(p);
    return rc;
}

/* The members of torch's format before 0.1.11. */
static bool is_torch_tar(struct ckpt_dir *dir)
{
    return ckpt_dir_has(dir, "pickle") && ckpt_dir_has(dir, "storages") &&
           ckpt_dir_has(dir, "tensors");
}

/* Whether torch.save's first member comes first; such an archive stays a file, even if damaged. */
static bool begins_as_torch(const struct ckpt_place *p)
{
    size_t n = p->head_len > 30 ? p->head[26] + 256u * p->head[27] : 0;

    return n >= 8 && n <= p->head_len - 30 && memcmp(p->head + 30 + n - 8, "data.pkl", 8) == 0;
}

/* Turn a tar or zip file into the directory inside.  torch's own archives stay files. */
static int enter_archive(struct ckpt_place *p, const char *spool, struct ckpt_err *err)
{
    struct ckpt_file *copy;
    int rc;

    if (!ckpt_archive_is_tar(p->head, p->head_len) &&
        (p->head_len < 4 || memcmp(p->head, "PK\3\4", 4) != 0 || begins_as_torch(p) ||
         !ckpt_archive_is_zip(p->file)))
        return 0;
    if ((rc = file_part(&copy, p->file, 0, ckpt_file_size(p->file), ckpt_file_name(p->file),
                        err)) != 0)
        return rc;
    rc = ckpt_archive_open(&p->dir, copy, spool, err);
    if (rc == 0 && is_torch_tar(p->dir)) {
        ckpt_dir_close(p->dir);
        p->dir = NULL;
    } else if (rc == 0) {
        ckpt_file_close(p->file);
        p->file = NULL;
        p->packed = true;
    }
    return rc;
}

/* Open a path as it is, or as the directory it packs: p->dir or p->file. */
static int open_one(struct ckpt_place *p, const char *path, unsigned flags, const char *spool,
                    struct ckpt_err *err)
{
    int rc;

    if (strcmp(path, "-") == 0)
        rc = ckpt_spool_fd(&p->file, STDIN_FILENO,
                           &(struct ckpt_spool){.name = "standard input", .flags = flags,
                                                .where = spool}, err);
    else if (ckpt_path_is_dir(path))
        return ckpt_path_dir(&p->dir, path, flags, err);
    else if ((rc = ckpt_path_file(&p->file, path, flags, err)) == CKPT_ENOTFOUND &&
             !ckpt_path_is_remote(path) && access(path, F_OK) != 0)
        rc = ckpt_path_hint_hub(path, err);
    if (rc == 0)
        rc = read_head(p, err);
    if (rc == 0 && ckpt_spool_is_compressed(p->head, p->head_len)) {
        struct ckpt_file *packed = p->file;

        p->file = NULL;
        rc = ckpt_spool_file(&p->file, packed, spool, err);
        if (rc == 0)
            rc = read_head(p, err);
    }
    return rc ? rc : enter_archive(p, spool, err);
}

/* Put p->dir and the directories that opts names together. */
static int join_parts(struct ckpt_place *p, unsigned flags, const struct ckpt_open_opts *opts,
                      struct ckpt_err *err)
{
    struct ckpt_dir **part = ckpt_alloc(opts->n_part + 1, sizeof *part);
    size_t n = 1;
    int rc = part ? 0 : ckpt_nomem(err, (opts->n_part + 1) * sizeof *part);

    if (rc == 0 && !p->dir)
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: is a file, parts of a checkpoint are folders",
                       p->path);
    for (size_t i = 0; rc == 0 && i < opts->n_part; i++) {
        struct ckpt_place other = {.path = opts->part[i]};

        rc = open_one(&other, other.path, flags, opts->spool, err);
        if (rc == 0 && !other.dir)
            rc = ckpt_fail(err, CKPT_EUSAGE, "%s: is a file, parts of a checkpoint are folders",
                           other.path);
        if (rc)
            place_close(&other);
        else
            part[n++] = other.dir;
    }
    if (rc == 0) {
        part[0] = p->dir;
        p->dir = NULL;
        rc = ckpt_dir_union(&p->dir, part, n, err);
        n = 1;
    }
    while (n > 1)
        ckpt_dir_close(part[--n]);
    ckpt_free(part);
    return rc;
}

int place_open(struct ckpt_place *p, const char *path, const struct ckpt_open_opts *opts,
               struct ckpt_arena *arena, struct ckpt_err *err)
{
    unsigned flags = (opts->follow ? CKPT_FOLLOW : 0) | (opts->prove ? CKPT_PROVE : 0);
    struct ckpt_entry *entry = NULL;
    int rc;

    memset(p, 0, sizeof *p);
    p->path = path;
    rc = open_one(p, path, flags, opts->spool, err);
    if (rc == 0 && opts->n_part > 0)
        rc = join_parts(p, flags, opts, err);
    if (rc == 0 && p->dir)
        rc = ckpt_dir_list(p->dir, arena, &entry, &p->n_entry, err);
    p->entry = entry;
    if (rc)
        place_close(p);
    return rc;
}

int place_enter(struct ckpt_place *p, struct ckpt_arena *arena, bool *entered,
                struct ckpt_err *err)
{
    struct ckpt_dir *outer = p->dir;
    struct ckpt_entry *entry = NULL;
    const char *name;
    int rc;

    *entered = p->packed && outer && p->n_entry == 1 && (p->entry[0].is_file || p->entry[0].is_dir);
    if (!*entered)
        return 0;
    name = p->entry[0].name;
    p->dir = NULL;
    if (p->entry[0].is_file) {
        rc = ckpt_file_open_at(&p->file, outer, name, err);
        p->n_entry = 0;
        if (rc == 0)
            rc = read_head(p, err);
    } else {
        rc = ckpt_dir_open_at(&p->dir, outer, name, err);
        if (rc == 0)
            rc = ckpt_dir_list(p->dir, arena, &entry, &p->n_entry, err);
    }
    p->entry = entry;
    ckpt_dir_close(outer);
    return rc;
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

bool place_name_like(const char *name, const char *const *glob, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(glob[i], name, 0) == 0)
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

bool place_is_partial(const struct ckpt_place *p)
{
    return place_has_like(p, "*.incomplete") || place_has_like(p, "*.part") ||
           place_has_like(p, "*.aria2");
}

bool place_is_html(const struct ckpt_place *p)
{
    static const char *const tags[] = {"<!doctype html", "<html"};
    size_t i = 0;

    while (i < p->head_len && p->head[i] && strchr(" \t\r\n", p->head[i]))
        i++;
    for (size_t k = 0; k < 2; k++)
        if (p->head_len - i >= strlen(tags[k]) &&
            strncasecmp((const char *)p->head + i, tags[k], strlen(tags[k])) == 0)
            return true;
    return false;
}
