/* scan - the folder, the findings and the conclusion; see scan.h. */
#include "tools/inspect/scan/scan.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/torch/torch.h"
#include "libckpt/io/lock.h"
#include "tools/inspect/inspect.h"

#define MAX_FOLDERS 64              /* nested folders */
#define MAX_FILES   1048576
#define MAX_ROWS    100000          /* most rows; further findings are only counted */
#define MAX_PATH    8192

static const char *const words[SCAN_VERDICTS] = {
    "clean", "note", "suspicious", "unjudged", "damaged", "dangerous",
};

const char *scan_base(const char *path)
{
    const char *bang = strrchr(path, '!'), *slash = strrchr(bang ? bang : path, '/');

    return slash ? slash + 1 : bang ? bang + 1 : path;
}

void scan_put(struct scan *s, const char *path, const char *what, int64_t at, const char *use,
              enum verdict verdict, const char *reason)
{
    const char *bang = strchr(path, '!');
    char file[MAX_PATH];
    int64_t rows = 0;

    for (size_t i = 0; i < SCAN_VERDICTS; i++)
        rows += s->count[i];
    s->count[verdict]++;
    if (verdict == SCAN_DANGEROUS && !s->worst[0])
        snprintf(s->worst, sizeof s->worst, "%.250s: %.150s: %.150s", path, what, reason);
    if (!s->o || rows > MAX_ROWS)
        return;
    if (rows == MAX_ROWS) {             /* the last row says that rows are missing */
        path = "";
        bang = NULL;
        what = "more findings than are told: these are counted only";
        reason = use = "";
        at = SCAN_NOWHERE;
    }
    snprintf(file, sizeof file, "%.*s", bang ? (int)(bang - path) : (int)strlen(path), path);
    out_cell_str(s->o, path);
    out_cell_str(s->o, file);
    out_cell_str(s->o, bang ? bang + 1 : "");
    out_cell_str(s->o, what);
    if (at == SCAN_NOWHERE)
        out_cell_none(s->o);
    else
        out_cell_int(s->o, at);
    out_cell_str(s->o, use);
    out_cell_str(s->o, words[verdict]);
    out_cell_str(s->o, reason);
}

int scan_refused(struct scan *s, const char *path, struct ckpt_err *err)
{
    enum verdict v = err->code == CKPT_EREFUSED ? SCAN_DANGEROUS
                     : err->code == CKPT_EFORMAT || err->code == CKPT_EMISMATCH ? SCAN_DAMAGED
                                                                                : SCAN_UNJUDGED;

    if (err->code == CKPT_ENOMEM)
        return ckpt_err_code(err);
    scan_put(s, path, err->text, SCAN_NOWHERE, "", v,
             v == SCAN_DANGEROUS ? "is refused by every reader here"
             : v == SCAN_DAMAGED ? "is not as its format has it" : "cannot be looked into");
    ckpt_err_clear(err);
    return 0;
}

/* Interpret the error of torch's strict reader on an archive whose names are reported already: a
 * refused name is not reported again, and a kind of tensor that it cannot read is a note. */
static int scan_strict_word(struct scan *s, const char *path, struct ckpt_err *err)
{
    bool unread = err->code == CKPT_EUNSUPPORTED;
    bool known = strstr(err->text, "in no table of known names") != NULL;

    if (!unread && !known)
        return scan_refused(s, path, err);
    if (unread)
        scan_put(s, path, err->text, SCAN_NOWHERE, "", SCAN_NOTE, "is not read here");
    ckpt_err_clear(err);
    return 0;
}

int scan_strictly(struct scan *s, const struct subject *f, struct ckpt_err *err)
{
    struct torch_archive *a;
    struct ckpt_file *again;

    if (ckpt_file_window(&again, f->file, 0, ckpt_file_size(f->file), f->path, err))
        return scan_refused(s, f->path, err);
    if (torch_archive_open(&a, again, err))             /* takes it */
        return scan_strict_word(s, f->path, err);
    torch_archive_close(a);
    return 0;
}

int scan_made(struct scan *s, const struct subject *f, const char *name, struct ckpt_file *file,
              struct ckpt_err *err)
{
    char path[MAX_PATH];
    struct subject part = {.file = file, .path = path, .depth = f->depth + 1, .rest = f->rest};
    int rc;

    if ((size_t)snprintf(path, sizeof path, "%s%s%s", f->path, name ? "!" : "",
                         name ? name : "") >= sizeof path)
        scan_put(s, f->path, "a path of too many bytes", SCAN_NOWHERE, "", SCAN_UNJUDGED,
                 "beyond a limit");
    rc = scan_subject(s, &part, err);
    ckpt_file_close(file);
    return rc;
}

int scan_part(struct scan *s, const struct subject *f, const char *name, uint64_t offset,
              uint64_t size, bool rest, struct ckpt_err *err)
{
    struct subject whole = *f;
    struct ckpt_file *window;

    whole.rest = rest;
    if (ckpt_file_window(&window, f->file, offset, size, ckpt_file_name(f->file), err))
        return scan_refused(s, f->path, err);
    return scan_made(s, &whole, name, window, err);
}

/* -- folders --------------------------------------------------------------------------------- */

/* Report a name that could not be opened: for a link its target, if that is on this host. */
static int put_unopened(struct scan *s, const char *path, struct ckpt_dir *dir,
                        const struct ckpt_entry *entry, struct ckpt_err *err)
{
    char full[MAX_PATH];
    struct stat st;

    snprintf(full, sizeof full, "%s/%s", ckpt_dir_path(dir), entry->name);
    if (strcmp(err->reason, "refused-path") == 0 && lstat(full, &st) == 0 &&
        S_ISLNK(st.st_mode)) {
        scan_put(s, path, "a symbolic link", SCAN_NOWHERE, "", SCAN_DANGEROUS,
                 "is not followed: it may lead out of the folder (--follow-symlinks)");
        ckpt_err_clear(err);
        return 0;
    }
    if (strcmp(err->reason, "refused-path") != 0 && err->code != CKPT_ENOMEM) {
        scan_put(s, path, err->text, SCAN_NOWHERE, "", SCAN_UNJUDGED, "cannot be read");
        ckpt_err_clear(err);
        return 0;
    }
    return scan_refused(s, path, err);
}

static int scan_dir(struct scan *s, const char *prefix, struct ckpt_dir *dir, int depth,
                    struct ckpt_err *err);

/* Whether a folder on disk was met before: links may lead in circles. */
static int met(bool *yes, struct scan *s, const struct ckpt_dir *dir, struct ckpt_err *err)
{
    uint64_t id[2], *kept;
    struct stat st;

    *yes = false;
    if (!s->seen || stat(ckpt_dir_path(dir), &st))
        return 0;
    id[0] = (uint64_t)st.st_dev;
    id[1] = (uint64_t)st.st_ino;
    *yes = ckpt_map_get(s->seen, (const char *)id, sizeof id) != CKPT_MAP_NONE;
    if (*yes)
        return 0;
    kept = ckpt_arena_alloc(&s->ids, 2, sizeof *kept);
    if (!kept)
        return ckpt_nomem(err, sizeof id);
    memcpy(kept, id, sizeof id);
    return ckpt_map_add(s->seen, (const char *)kept, sizeof id, 0, err);
}

static int scan_folder(struct scan *s, const char *path, struct ckpt_dir *dir,
                       const struct ckpt_entry *entry, int depth, struct ckpt_err *err)
{
    struct ckpt_dir *sub;
    char prefix[MAX_PATH + 1];
    bool before;
    int rc;

    if (strcmp(entry->name, ".git") == 0) {
        scan_put(s, path, "git's own folder", SCAN_NOWHERE, "", SCAN_NOTE,
                 "is no part of the model, and was not looked at");
        return 0;
    }
    if (depth == MAX_FOLDERS) {
        scan_put(s, path, "folders below each other", SCAN_NOWHERE, "", SCAN_UNJUDGED,
                 "deeper than 64");
        return 0;
    }
    if (ckpt_dir_open_at(&sub, dir, entry->name, err))
        return put_unopened(s, path, dir, entry, err);
    snprintf(prefix, sizeof prefix, "%s/", path);
    rc = met(&before, s, sub, err);
    if (rc == 0 && before)
        scan_put(s, path, "a folder of several names", SCAN_NOWHERE, "", SCAN_NOTE,
                 "was looked at under another");
    else if (rc == 0)
        rc = scan_dir(s, prefix, sub, depth + 1, err);
    ckpt_dir_close(sub);
    return rc;
}

/* Whether it is a writer's lock (libckpt/io/lock.h): empty, or one line that names the holder. */
static bool is_lock(const char *name, const struct ckpt_file *file)
{
    struct ckpt_err ignored = {0};
    uint64_t n = ckpt_file_size(file);
    char text[200];

    if (strcmp(name, CKPT_LOCK_NAME) != 0 || n >= sizeof text)
        return false;
    if (n == 0)
        return true;
    return ckpt_file_read_at(file, text, (size_t)n, 0, &ignored) == 0 &&
           strncmp(text, "process ", n < 8 ? (size_t)n : 8) == 0 &&
           memchr(text, '\n', (size_t)n) == text + n - 1;
}

static int scan_dir(struct scan *s, const char *prefix, struct ckpt_dir *dir, int depth,
                    struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_list(dir, &a, &entry, &n, err) ? scan_refused(s, prefix, err) : 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct subject f = {0};
        char path[MAX_PATH];

        if ((size_t)snprintf(path, sizeof path, "%s%s", prefix, entry[i].name) >= sizeof path ||
            s->files == MAX_FILES) {
            scan_put(s, prefix, "more files, or longer paths, than are looked at", SCAN_NOWHERE,
                     "", SCAN_UNJUDGED, "beyond a limit");
            break;
        }
        f.path = path;
        if (entry[i].is_dir) {
            rc = scan_folder(s, path, dir, &entry[i], depth, err);
        } else if (ckpt_file_open_at(&f.file, dir, entry[i].name, err)) {
            s->files++;
            rc = put_unopened(s, path, dir, &entry[i], err);
        } else if (!is_lock(entry[i].name, f.file)) {
            s->files++;
            rc = scan_subject(s, &f, err);
        }
        ckpt_file_close(f.file);
    }
    ckpt_arena_release(&a);
    return rc;
}

static int scan_path(struct scan *s, const char *path, bool follow, struct ckpt_err *err)
{
    unsigned flags = follow ? CKPT_FOLLOW : 0;
    const char *slash = strrchr(path, '/');
    struct subject f = {.path = slash ? slash + 1 : path};
    struct ckpt_dir *dir;
    bool before;
    int rc;

    if (ckpt_path_is_dir(path)) {
        rc = ckpt_path_dir(&dir, path, flags, err);
        if (rc == 0) {
            if ((rc = ckpt_map_new(&s->seen, 64, err)) == 0 &&
                (rc = met(&before, s, dir, err)) == 0)
                rc = scan_dir(s, "", dir, 0, err);
            ckpt_dir_close(dir);
            ckpt_map_free(s->seen);
            ckpt_arena_release(&s->ids);
            s->seen = NULL;
        }
        if (rc == 0 && s->files == 0)
            scan_put(s, "", "a folder without files", SCAN_NOWHERE, "", SCAN_UNJUDGED,
                     "there is nothing to judge");
        return rc;
    }
    rc = ckpt_path_file(&f.file, path, flags, err);
    if (rc == 0) {
        s->files++;
        rc = scan_subject(s, &f, err);
    }
    ckpt_file_close(f.file);
    return rc;
}

/* -- the door -------------------------------------------------------------------------------- */

static void put_counts(struct out *o, const struct scan *s)
{
    out_int(o, "files", "files", s->files);
    out_int(o, "members", "members", s->members);
    out_int(o, "pickles", "pickles", s->pickles);
    for (int v = SCAN_VERDICTS - 1; v > SCAN_NOTE; v--)
        out_int(o, words[v], words[v], s->count[v]);
}

/* The worst verdict determines the status. */
static int conclude(const struct scan *s, const char *path, struct ckpt_err *err)
{
    long long dangerous = s->count[SCAN_DANGEROUS], damaged = s->count[SCAN_DAMAGED];
    long long unjudged = s->count[SCAN_UNJUDGED], suspicious = s->count[SCAN_SUSPICIOUS];

    if (dangerous)
        return ckpt_fail(err, CKPT_EREFUSED, "%s: %lld dangerous", path, dangerous);
    if (damaged)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %lld damaged", path, damaged);
    if (unjudged)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %lld that could not be judged", path,
                         unjudged);
    return suspicious ? ckpt_fail(err, CKPT_ENO, "%s: %lld suspicious", path, suspicious) : 0;
}

int inspect_scan(struct out *o, const struct cli *cli, const char *path, struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"path", NULL, OUT_LEFT},        {"file", "file", OUT_LEFT},
        {"member", "member", OUT_LEFT},  {"what", "what", OUT_LEFT},
        {"at", "at", OUT_RIGHT},         {"use", "use", OUT_LEFT},
        {"verdict", "verdict", OUT_LEFT}, {"reason", "reason", OUT_LEFT},
    };
    struct scan s = {.o = o, .spool = cli_spool()};
    int rc;

    out_table(o, "scan", columns, sizeof columns / sizeof columns[0]);
    rc = scan_path(&s, path, cli->follow, err);
    out_table_end(o);
    if (rc == 0 || s.files > 0)         /* of what was not looked at, nothing is counted */
        put_counts(o, &s);
    return rc ? rc : conclude(&s, path, err);
}

int scan_refuse(struct ckpt_file *file, const char *path, const char *spool, struct ckpt_err *err)
{
    struct scan s = {.spool = spool};
    const struct subject f = {.file = file, .path = path};
    int rc = scan_subject(&s, &f, err);

    return rc || s.count[SCAN_DANGEROUS] == 0
               ? rc : ckpt_fail_as(err, CKPT_EREFUSED, "refused-global", "%s", s.worst);
}

int inspect_scan_quietly(const struct cli *cli, const char *path, struct ckpt_err *err)
{
    struct scan s = {.spool = cli_spool()};
    int rc = scan_path(&s, path, cli->follow, err);

    if (rc || s.count[SCAN_DANGEROUS] == 0)
        return rc;
    ckpt_fail_as(err, CKPT_EREFUSED, "refused-global", "%s", s.worst);
    return ckpt_err_hint(err, "ckpt-inspect --scan tells all that is dangerous in it");
}
