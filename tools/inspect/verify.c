/*
 * verify - check that everything in a path is present and can be read completely; see inspect.h.
 *
 * With a manifest every file must have its digest.  Without one, each member of each zip archive
 * (such as torch files) must have its checksum, and every tensor must be readable, moments too.
 */
#include <string.h>

#include "formats/container/zip.h"
#include "formats/formats.h"
#include "tools/inspect/inspect.h"
#include "trainer/checkpoint/manifest.h"

#define PIECE_BYTES ((size_t)4 << 20)

/* Counts for the closing line. */
struct proof { int64_t archives, without, tensors; };

static bool is_zip(const struct ckpt_file *file)
{
    struct ckpt_err ignored = {0};
    char magic[4];

    return ckpt_file_size(file) >= sizeof magic &&
           ckpt_file_read_at(file, magic, sizeof magic, 0, &ignored) == 0 &&
           memcmp(magic, "PK\003\004", sizeof magic) == 0;
}

static int prove_file(struct proof *p, struct ckpt_file *file, struct ckpt_err *err)
{
    struct zip z;
    void *buf;
    int rc;

    if (!is_zip(file))
        return 0;
    if (zip_open(&z, file, err))
        return ckpt_err_in(err, "%s", ckpt_file_name(file));
    buf = ckpt_alloc_buffer(PIECE_BYTES);
    rc = buf ? 0 : ckpt_nomem(err, PIECE_BYTES);
    for (size_t i = 0; rc == 0 && i < z.n; i++)
        rc = zip_verify(&z, &z.entry[i], buf, PIECE_BYTES, err);
    if (rc)
        ckpt_err_in(err, "%s", ckpt_file_name(file));
    p->archives += rc == 0 && !z.no_sums;
    p->without += rc == 0 && z.no_sums;
    ckpt_free(buf);
    zip_release(&z);
    return rc;
}

/* Check the regular files of a directory, and with deep those of the directories in it. */
static int prove_dir(struct proof *p, struct ckpt_dir *dir, bool deep, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_list(dir, &a, &entry, &n, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_file *file = NULL;
        struct ckpt_dir *sub = NULL;

        if (entry[i].name[0] == '.')
            continue;
        if (entry[i].is_file && (rc = ckpt_file_open_at(&file, dir, entry[i].name, err)) == 0)
            rc = prove_file(p, file, err);
        if (deep && entry[i].is_dir &&
            (rc = ckpt_dir_open_at(&sub, dir, entry[i].name, err)) == 0)
            rc = prove_dir(p, sub, false, err);
        ckpt_file_close(file);
        ckpt_dir_close(sub);
    }
    ckpt_arena_release(&a);
    return rc;
}

static int prove_tensors(struct proof *p, const struct inspect_want *w, const struct cli *cli,
                         const char *path, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.tag = w->tag, .optimizer = true, .follow = cli->follow,
                                  .prove = ckpt_path_is_remote(path),
                                  .spool = cli_spool(), .part = w->part, .n_part = w->n_part};
    struct ckpt_source *src;
    int rc = ckpt_open(&src, path, &opts, err);

    if (rc)
        return rc;
    for (size_t i = 0; i < ckpt_source_count(src); i++)
        p->tensors += ckpt_dtype_size(ckpt_source_tensor(src, i)->dtype) > 0 &&
                      !ckpt_source_tensor(src, i)->unread;
    rc = inspect_measure(NULL, src, NULL, ckpt_source_count(src), 0, (int)cli->jobs, err);
    ckpt_source_close(src);
    return rc;
}

/* Whether each of several folders has the files its own manifest tells; then all tensors are read,
 * so that none lacks.  CKPT_ENOTFOUND: one has no manifest. */
static int prove_folders(struct proof *p, const struct inspect_want *w, const struct cli *cli,
                         const char *path, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i <= w->n_part; i++) {
        const char *folder = i == 0 ? path : w->part[i - 1];

        rc = ckpt_path_is_dir(folder) ? manifest_check(NULL, folder, MANIFEST_DIGESTS, err)
                                      : CKPT_ENOTFOUND;
    }
    return rc ? rc : prove_tensors(p, w, cli, path, err);
}

int inspect_verify(struct out *o, const struct inspect_want *w, const struct cli *cli,
                   const char *path, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.follow = cli->follow, .spool = cli_spool(), .part = w->part,
                                  .n_part = w->n_part, .prove = ckpt_path_is_remote(path)};
    struct ckpt_file *file = NULL;
    struct ckpt_dir *dir = NULL;
    struct proof p = {0};
    bool is_dir = ckpt_path_is_dir(path);
    int rc = is_dir && !w->n_part ? manifest_check(NULL, path, MANIFEST_DIGESTS, err)
             : w->n_part ? prove_folders(&p, w, cli, path, err) : CKPT_ENOTFOUND;

    if (rc == 0 && w->n_part)
        out_int(o, "verified_tensors", "tensors that read to their end", p.tensors);
    if (rc == 0)
        out_str(o, "verified", "verified", "every file has the digest its manifest tells");
    if (rc != CKPT_ENOTFOUND)
        return rc;
    ckpt_err_clear(err);
    rc = formats_unpack(&dir, &file, path, &opts, err);
    if (rc == 0)
        rc = dir ? prove_dir(&p, dir, true, err) : prove_file(&p, file, err);
    if (rc == 0 && !inspect_shown_as_values(w, cli, path))
        rc = prove_tensors(&p, w, cli, path, err);
    if (rc == 0) {
        out_int(o, "verified_archives", "archives with all checksums right", p.archives);
        if (p.without)
            out_int(o, "archives_without_checksums", "archives without checksums", p.without);
        out_int(o, "verified_tensors", "tensors that read to their end", p.tensors);
        out_str(o, "verified", "verified",
                dir && ckpt_dir_has(dir, MANIFEST_NAME)
                    ? "the manifest is that of a folder as it was, all there is reads"
                    : "there is no manifest, all there is reads");
    }
    ckpt_dir_close(dir);
    ckpt_file_close(file);
    return rc;
}
