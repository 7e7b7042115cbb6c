/* archives - judge each file inside a container as a file of its own; see scan.h. */
#include <stdio.h>
#include <string.h>

#include "formats/container/tar_walk.h"
#include "formats/container/unfold.h"
#include "formats/container/zip.h"
#include "formats/container/zip_walk.h"
#include "libckpt/err.h"
#include "libckpt/io/spool.h"
#include "tools/inspect/scan/scan.h"

#define MAX_MEMBERS  1048576
/* Limit of unpacked bytes in one scan, since bombs can be nested in each other: */
#define FREE_BYTES   ((uint64_t)4 << 30)
#define MOST_TIMES   64u                        /* and this many more for each packed byte */

static void put_limit(struct scan *s, const char *path, const char *what)
{
    scan_put(s, path, what, SCAN_NOWHERE, "", SCAN_UNJUDGED, "beyond a limit");
}

/* Whether an unpacker would write a file of this name elsewhere. */
static bool leads_out(const char *name)
{
    if (*name == '/' || *name == '\\' || (name[0] && name[1] == ':'))
        return true;
    for (const char *p = name; p; p = strpbrk(p, "/\\")) {
        p += *p == '/' || *p == '\\';
        if (strncmp(p, "..", 2) == 0 && (!p[2] || p[2] == '/' || p[2] == '\\'))
            return true;
    }
    return false;
}

/* Enter a member: judge its name.  False at the limit. */
static bool enter(struct scan *s, const char *path, const char *name)
{
    if (++s->members > MAX_MEMBERS)
        return false;
    if (leads_out(name))
        scan_put(s, path, name, SCAN_NOWHERE, "", SCAN_DANGEROUS,
                 "the member's name leads out of the folder");
    return true;
}

/* Judge the content of a stream; file is closed. */
static int unpacked(struct scan *s, const struct subject *f, const char *name,
                    struct ckpt_file *file, struct ckpt_err *err)
{
    struct subject whole = *f;

    whole.rest = false;                 /* the packed file has a name of its own */
    s->unpacked += ckpt_file_size(file);
    if (s->unpacked <= FREE_BYTES || (s->unpacked - FREE_BYTES) / MOST_TIMES <= s->read)
        return scan_made(s, &whole, name, file, err);
    ckpt_file_close(file);
    put_limit(s, f->path, "more bytes are packed than are unpacked in one scan");
    return 0;
}

/* A stream beyond a limit is a bomb, or looks like one: it cannot be judged. */
static int not_unpacked(struct scan *s, const struct subject *f, const char *name,
                        struct ckpt_err *err)
{
    char path[8192];

    snprintf(path, sizeof path, "%s%s%s", f->path, name ? "!" : "", name ? name : "");
    return scan_refused(s, path, err);
}

/* -- zip ------------------------------------------------------------------------------------- */

/* Whether a member contains a storage, in an archive that torch's strict reader accepts. */
static bool is_storage(const struct zip_piece *p)
{
    const char *slash = p->name ? strchr(p->name, '/') : NULL;

    return slash && p->method == 0 && !p->wrong &&
           (strncmp(slash, "/data/", 6) == 0 || strncmp(slash, "/constants/", 11) == 0);
}

static bool is_torch(struct ckpt_file *file)
{
    struct ckpt_err ignored = {0};
    struct zip z;
    bool yes;

    if (zip_open(&z, file, &ignored))
        return false;
    yes = zip_find(&z, "data.pkl") != NULL;
    zip_release(&z);
    return yes;
}

static int scan_piece(struct scan *s, const struct subject *f, const struct zip_piece *p,
                      struct ckpt_err *err)
{
    struct ckpt_file *file;
    char path[8192];
    uint64_t used;

    snprintf(path, sizeof path, "%s!%s", f->path, p->name);
    if (p->wrong)
        scan_put(s, path, p->wrong, SCAN_NOWHERE, "", SCAN_DAMAGED,
                 "readers of zip files disagree about it");
    if (p->encrypted) {
        scan_put(s, path, "an encrypted member", SCAN_NOWHERE, "", SCAN_UNJUDGED,
                 "cannot be read without its key");
        return 0;
    }
    if (p->size == 0 && p->name[0] && p->name[strlen(p->name) - 1] == '/')
        return 0;                                       /* a folder */
    if (p->method == 0)
        return scan_part(s, f, p->name, p->offset, p->size, false, err);
    if (p->method == 8) {
        if (unfold(&file, &used, f->file, p->offset, p->size, UNFOLD_DEFLATE, s->spool, err))
            return not_unpacked(s, f, p->name, err);
        return unpacked(s, f, p->name, file, err);
    }
    scan_put(s, path, "a member compressed by another method than deflate", SCAN_NOWHERE, "",
             SCAN_UNJUDGED, "is not unpacked");
    return 0;
}

/* Judge bytes between members: mostly zeros for alignment. */
static int scan_gap(struct scan *s, const struct subject *f, const struct zip_piece *p,
                    struct ckpt_err *err)
{
    char name[64];

    snprintf(name, sizeof name, "bytes of no member at %llu", (unsigned long long)p->offset);
    return scan_part(s, f, name, p->offset, p->size, true, err);
}

/* Judge all pieces of one archive. */
static int scan_pieces(struct scan *s, const struct subject *f, bool torch, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct zip_piece *piece;
    size_t n = 0;
    int rc = 0;

    if (zip_walk(&piece, &n, f->file, &a, err)) {
        ckpt_arena_release(&a);
        rc = scan_refused(s, f->path, err);
        return rc ? rc : scan_hidden(s, f, err);
    }
    if (n == 0)
        scan_put(s, f->path, "a zip file without members", SCAN_NOWHERE, "", SCAN_DAMAGED,
                 "holds nothing");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (piece[i].name && !enter(s, f->path, piece[i].name)) {
            put_limit(s, f->path, "more members than are looked at");
            break;
        }
        if (!torch || !is_storage(&piece[i]))
            rc = piece[i].name ? scan_piece(s, f, &piece[i], err) : scan_gap(s, f, &piece[i], err);
    }
    ckpt_arena_release(&a);
    return rc;
}

/* Number of findings with that verdict or a worse one. */
static int64_t findings(const struct scan *s, enum verdict from)
{
    int64_t n = 0;

    for (int v = (int)from; v < SCAN_VERDICTS; v++)
        n += s->count[v];
    return n;
}

/* Judge one archive, or several in sequence, as in torch's distributed checkpoints: from the
 * last to the first, since only an archive's end can be found. */
int scan_zip(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    static const char *const tails[] = {".pt", ".pth", ".bin", ".ckpt", ".th", NULL};
    uint64_t size = ckpt_file_size(f->file);
    int rc = 0;

    while (rc == 0 && size > 0) {
        struct subject one = *f;
        int64_t before = findings(s, SCAN_UNJUDGED);
        uint64_t front = 0;
        bool torch;

        if (ckpt_file_window(&one.file, f->file, 0, size, f->path, err))
            return scan_refused(s, f->path, err);
        front = zip_front(one.file);
        ckpt_file_close(one.file);
        if (ckpt_file_window(&one.file, f->file, front, size - front, f->path, err))
            return scan_refused(s, f->path, err);
        torch = is_torch(one.file);
        rc = scan_pieces(s, &one, torch, err);
        if (rc == 0 && findings(s, SCAN_UNJUDGED) == before &&
            (torch || ckpt_path_ends_in_any(f->path, tails)))
            rc = scan_strictly(s, &one, err);
        ckpt_file_close(one.file);
        size = front;
    }
    return rc;
}

/* -- tar and streams ------------------------------------------------------------------------- */

static int scan_member(struct scan *s, const struct subject *f, const struct tar_piece *p,
                       struct ckpt_err *err)
{
    char path[8192], what[160];

    if (p->kind == TAR_FILE)
        return scan_part(s, f, p->name, p->offset, p->size, false, err);
    if (p->kind == TAR_DIR)
        return 0;
    snprintf(path, sizeof path, "%s!%s", f->path, p->name);
    snprintf(what, sizeof what, "%s%s", p->kind == TAR_LINK ? "a link to " : "neither file nor "
             "folder", p->link);
    if (p->kind == TAR_LINK && leads_out(p->link))
        scan_put(s, path, what, SCAN_NOWHERE, "", SCAN_DANGEROUS, "leads out of the folder");
    else
        scan_put(s, path, what, SCAN_NOWHERE, "",
                 p->kind == TAR_LINK ? SCAN_NOTE : SCAN_SUSPICIOUS, "is not followed");
    return 0;
}

/* Search a member for pickles anywhere in it. */
static int scan_mixed(struct scan *s, const struct subject *f, const struct tar_piece *p,
                      struct ckpt_err *err)
{
    struct subject part = *f;
    char path[8192];
    int rc;

    snprintf(path, sizeof path, "%s!%s", f->path, p->name);
    part.path = path;
    if (ckpt_file_window(&part.file, f->file, p->offset, p->size, path, err))
        return scan_refused(s, path, err);
    rc = scan_hidden(s, &part, err);
    ckpt_file_close(part.file);
    return rc;
}

/* Only zeros may follow the end mark. */
static int scan_after(struct scan *s, const struct subject *f, uint64_t at, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(f->file);
    unsigned char buf[4096];

    while (at < size) {
        size_t n = size - at < sizeof buf ? (size_t)(size - at) : sizeof buf;

        if (ckpt_file_read_at(f->file, buf, n, at, err))
            return scan_refused(s, f->path, err);
        if (buf[0] || memcmp(buf, buf + 1, n - 1) != 0)
            return scan_part(s, f, "bytes after the end", at, size - at, true, err);
        at += n;
    }
    return 0;
}

int scan_tar(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    int64_t before = s->count[SCAN_DANGEROUS] + s->count[SCAN_SUSPICIOUS];
    struct tar_walk w = {.file = f->file};
    bool torch = false;
    struct tar_piece *p = ckpt_alloc(1, sizeof *p);
    int rc = p ? 0 : ckpt_nomem(err, sizeof *p), got = 1;

    while (rc == 0 && (got = tar_walk_next(&w, p, err)) == 1) {
        if (!enter(s, f->path, p->name)) {
            put_limit(s, f->path, "more members than are looked at");
            break;
        }
        /* A member of torch's legacy tar: pickles with numbers between them, which its own
         * reader judges. */
        if (p->kind == TAR_FILE &&
            (strcmp(p->name, "storages") == 0 || strcmp(p->name, "tensors") == 0)) {
            torch = true;
            rc = scan_mixed(s, f, p, err);
        } else {
            rc = scan_member(s, f, p, err);
        }
    }
    if (rc == 0 && got < 0)
        rc = scan_refused(s, f->path, err);
    else if (rc == 0 && got == 0)
        rc = scan_after(s, f, w.at, err);
    if (rc == 0 && torch && before == s->count[SCAN_DANGEROUS] + s->count[SCAN_SUSPICIOUS])
        rc = scan_strictly(s, f, err);
    ckpt_free(p);
    return rc;
}

/* A name without the suffix of its compression. */
static const char *unpacked_name(char dst[512], const char *path)
{
    static const char *const tails[] = {".gz", ".bz2", ".xz", ".zst", ".lz4", ".lzma", ".z", NULL};
    const char *base = scan_base(path);

    snprintf(dst, 512, "%s", base);
    for (size_t i = 0; tails[i]; i++)
        if (ckpt_path_ends_in(dst, tails[i])) {
            dst[strlen(dst) - strlen(tails[i])] = '\0';
            return dst;
        }
    if (ckpt_path_ends_in(dst, ".tgz"))
        memcpy(dst + strlen(dst) - 4, ".tar", 4);
    return dst;
}

int scan_packed(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    struct ckpt_file *again, *file;
    char name[512];
    bool tar;

    if (ckpt_file_window(&again, f->file, 0, ckpt_file_size(f->file), f->path, err))
        return scan_refused(s, f->path, err);
    if (ckpt_spool_file(&file, again, s->spool, err))   /* takes it */
        return not_unpacked(s, f, NULL, err);
    /* A tar file in it is judged as such: its members belong to the path. */
    tar = ckpt_path_ends_in(unpacked_name(name, f->path), ".tar");
    return unpacked(s, f, tar ? NULL : name, file, err);
}

int scan_zlib(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(f->file), used, skip = 0;
    struct ckpt_file *file;
    char head[2], name[512];
    int rc;

    /* joblib before 0.10: "ZF", then the length as text of 19 or 21 bytes. */
    if (ckpt_file_read_at(f->file, head, 2, 0, err))
        return scan_refused(s, f->path, err);
    if (memcmp(head, "ZF", 2) == 0)
        skip = 21;
    if (unfold(&file, &used, f->file, skip, size - skip, UNFOLD_ZLIB, s->spool, err))
        return not_unpacked(s, f, NULL, err);
    rc = unpacked(s, f, unpacked_name(name, f->path), file, err);
    if (rc == 0 && used < size - skip)
        rc = scan_part(s, f, "bytes after what is packed", skip + used, size - skip - used, true,
                       err);
    return rc;
}
