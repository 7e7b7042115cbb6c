/* plan - see plan.h. */
#include "tools/push/plan.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/formats.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/remote/git/lfs.h"
#include "tools/push/judge.h"
#include "tools/push/secrets.h"

#define MAX_DEPTH 8

static bool matches(const struct opt_list *l, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    for (size_t i = 0; i < l->n; i++)
        if (fnmatch(l->item[i], path, 0) == 0 || fnmatch(l->item[i], name, 0) == 0)
            return true;
    return false;
}

/* Note in one line that a file is left out, and why. */
static bool leave_out(struct push_plan *p, const char *path, const char *why)
{
    const char *slash = strrchr(path, '/');

    ckpt_log(CKPT_LOG_NOTE, "%s: left out, %s; --include %s sends it", path, why,
             slash ? slash + 1 : path);
    p->n_left_out++;
    return false;
}

/* Whether to publish a file: a run's settings only if they are safe to load and contain no
 * token. */
static bool wanted(struct push_plan *p, const struct push_filter *f, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;
    char why[100];

    if (matches(&f->exclude, path))
        return false;
    if (strcmp(name, "training_args.bin") != 0 || matches(&f->include, path))
        return true;
    if (ckpt_file_open_at(&file, p->dir, path, &ignored))
        return leave_out(p, path, "it cannot be read");
    return judge_settings(why, sizeof why, file) || leave_out(p, path, why);
}

/* Files that readers take as a sign of completeness are sent last. */
static bool is_index(const char *path)
{
    return fnmatch("*.index.json", path, 0) == 0 || fnmatch("*config.json", path, 0) == 0 ||
           fnmatch("*latest", path, 0) == 0 || fnmatch("*MANIFEST.json", path, 0) == 0;
}

static int add_file(struct push_plan *p, const char *rel, uint64_t size, size_t *cap,
                    struct ckpt_err *err)
{
    struct push_file *file;

    if (p->n == *cap) {
        size_t grown = *cap ? 2 * *cap : 64;
        struct push_file *more = ckpt_arena_alloc(&p->arena, grown, sizeof *more);

        if (!more)
            return ckpt_nomem(err, grown * sizeof *more);
        if (p->n)
            memcpy(more, p->file, p->n * sizeof *more);
        p->file = more;
        *cap = grown;
    }
    file = &p->file[p->n++];
    file->from = ckpt_arena_printf(&p->arena, "%s", rel);
    file->to = *p->below ? ckpt_arena_printf(&p->arena, "%s/%s", p->below, rel) : file->from;
    file->size = size;
    file->index = is_index(file->to ? file->to : rel);
    file->large = ckpt_lfs_by_name(rel) || size > CKPT_LFS_THRESHOLD;
    p->bytes += size;
    return file->from && file->to ? 0 : ckpt_nomem(err, strlen(rel));
}

/* List one directory of the walk; sub-directories go onto the stack. */
static int walk_dir(struct push_plan *p, const struct push_filter *f, const char *prefix,
                    int depth, char **stack, int *depths, size_t *n_stack, size_t *cap,
                    struct ckpt_err *err)
{
    struct ckpt_dir *sub = NULL, *dir = p->dir;
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = *prefix ? ckpt_dir_open_at(&sub, p->dir, prefix, err) : 0;

    if (sub)
        dir = sub;
    if (rc == 0)
        rc = ckpt_dir_list(dir, &p->arena, &entry, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *rel = ckpt_arena_printf(&p->arena, "%s%s%s", prefix, *prefix ? "/" : "",
                                      entry[i].name);

        if (!rel) {
            rc = ckpt_nomem(err, 64);
        } else if (!ckpt_file_name_is_kept(entry[i].name)) {
            continue;
        } else if (entry[i].is_dir) {
            if (depth + 1 >= MAX_DEPTH || *n_stack >= 4096)
                rc = ckpt_fail(err, CKPT_ELIMIT, "%s: deeper than %d levels", rel, MAX_DEPTH);
            else {
                depths[*n_stack] = depth + 1;
                stack[(*n_stack)++] = rel;
            }
        } else if (!entry[i].is_file) {
            ckpt_log(CKPT_LOG_WARNING, "%s: no regular file, left out", rel);
            p->n_left_out++;
        } else if (wanted(p, f, rel)) {
            rc = add_file(p, rel, entry[i].size, cap, err);
        }
    }
    ckpt_dir_close(sub);
    return rc;
}

/* Refuse LFS pointers in place of weights, as a clone without git-lfs has them. */
static int refuse_pointers(const struct push_plan *p, bool follow, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        char text[CKPT_LFS_POINTER_MAX], oid[CKPT_SHA256_HEX];
        struct ckpt_file *file = NULL;
        uint64_t size;

        if (p->file[i].size < 100 || p->file[i].size >= sizeof text)
            continue;
        rc = push_plan_open(&file, p, i, follow, err);
        if (rc == 0 && ckpt_file_size(file) < sizeof text)
            rc = ckpt_file_read_at(file, text, (size_t)ckpt_file_size(file), 0, err);
        if (rc == 0 && ckpt_lfs_parse(text, (size_t)ckpt_file_size(file), oid, &size)) {
            rc = ckpt_fail_as(err, CKPT_EFORMAT, "pointer", "%s: is a pointer of Git LFS, not the "
                              "file of %llu bytes that it stands for", ckpt_file_name(file),
                              (unsigned long long)size);
            ckpt_err_hint(err, "git lfs pull fetches the file");
        }
        ckpt_file_close(file);
    }
    return rc;
}

static int refuse_secrets(const struct push_plan *p, bool follow, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        struct ckpt_file *file = NULL;

        rc = push_plan_open(&file, p, i, follow, err);
        if (rc == 0)
            rc = secrets_refuse(file, err);
        ckpt_file_close(file);
    }
    return rc;
}

static int by_path(const void *a, const void *b)
{
    const struct push_file *x = a, *y = b;

    return x->index != y->index ? (int)x->index - (int)y->index : strcmp(x->to, y->to);
}

/* Open the directory in an archive on stdin, or in a shell's <(command). */
static int open_stream(struct push_plan *p, const char *source, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.spool = cli_spool()};
    struct ckpt_file *file = NULL;
    int rc = formats_unpack(&p->dir, &file, source, &opts, err);

    if (rc == 0 && file) {
        ckpt_file_close(file);
        rc = ckpt_fail(err, CKPT_EUSAGE, "a single file on %s has no name to publish it by, an "
                       "archive of it has", strcmp(source, "-") == 0 ? "standard input" : source);
    }
    return rc;
}

/* The folder of this source in the destination. */
static int place_below(struct push_plan *p, const struct push_filter *f, struct ckpt_err *err)
{
    static const char name[] = "{name}";
    const char *at = f->path_in_repo ? strstr(f->path_in_repo, name) : NULL;
    size_t n = strlen(p->source), from;

    while (n > 1 && p->source[n - 1] == '/')
        n--;
    for (from = n; from > 0 && p->source[from - 1] != '/'; from--)
        ;
    p->below = f->path_in_repo ? f->path_in_repo : "";
    if (at)
        p->below = ckpt_arena_printf(&p->arena, "%.*s%.*s%s", (int)(at - f->path_in_repo),
                                     f->path_in_repo, (int)(n - from), p->source + from,
                                     at + strlen(name));
    if (!p->below)
        return ckpt_nomem(err, n);
    return !*p->below || ckpt_file_path_is_clean(p->below)
               ? 0 : ckpt_fail(err, CKPT_EUSAGE, "--path-in-repo %s: no clean relative path",
                               p->below);
}

int push_plan_make(struct push_plan *p, const char *source, const struct push_filter *f,
                   struct ckpt_err *err)
{
    char **stack = NULL;
    int *depths = NULL, rc = 0;
    size_t n_stack = 0, cap = 0;
    struct stat st;
    bool streams;

    memset(p, 0, sizeof *p);
    p->source = source;
    if ((rc = place_below(p, f, err)) != 0)
        return rc;
    streams = strcmp(source, "-") == 0 || ckpt_path_is_descriptor(source);
    if (!streams && stat(source, &st) == 0 && S_ISREG(st.st_mode)) {
        const char *slash = strrchr(source, '/');

        rc = add_file(p, slash ? slash + 1 : source, (uint64_t)st.st_size, &cap, err);
        rc = rc ? rc : refuse_pointers(p, f->follow, err);
        return rc || f->allow_secrets ? rc : refuse_secrets(p, f->follow, err);
    }
    stack = ckpt_alloc(4096, sizeof *stack);
    depths = ckpt_alloc(4096, sizeof *depths);
    if (!stack || !depths)
        rc = ckpt_nomem(err, 4096 * sizeof *stack);
    if (rc == 0 && streams)
        rc = open_stream(p, source, err);
    else if (rc == 0)
        rc = ckpt_dir_open(&p->dir, source, f->follow ? CKPT_FOLLOW : 0, err);
    if (rc == 0)
        rc = walk_dir(p, f, "", 0, stack, depths, &n_stack, &cap, err);
    while (rc == 0 && n_stack > 0) {
        n_stack--;
        rc = walk_dir(p, f, stack[n_stack], depths[n_stack], stack, depths, &n_stack, &cap, err);
    }
    if (rc == 0 && p->n == 0)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: nothing to publish in it", source);
    if (rc == 0)
        qsort(p->file, p->n, sizeof *p->file, by_path);
    if (rc == 0)
        rc = refuse_pointers(p, f->follow, err);
    if (rc == 0 && !f->allow_secrets)
        rc = refuse_secrets(p, f->follow, err);
    ckpt_free(stack);
    ckpt_free(depths);
    return rc;
}

void push_plan_release(struct push_plan *p)
{
    ckpt_dir_close(p->dir);
    ckpt_arena_release(&p->arena);
    memset(p, 0, sizeof *p);
}

int push_plan_open(struct ckpt_file **out, const struct push_plan *p, size_t i, bool follow,
                   struct ckpt_err *err)
{
    return p->dir ? ckpt_file_open_at(out, p->dir, p->file[i].from, err)
                  : ckpt_file_open(out, p->source, follow ? CKPT_FOLLOW : 0, err);
}
