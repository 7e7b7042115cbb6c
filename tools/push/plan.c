/* plan - see plan.h. */
#include "tools/push/plan.h"

#include <fnmatch.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "libckpt/io/file_at.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/proof.h"
#include "libckpt/remote/git/lfs.h"
#include "tools/inspect/scan/scan.h"
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

/* Double an array of the arena when it is full. */
static void *grow(struct ckpt_arena *arena, void *array, size_t n, size_t *cap, size_t size)
{
    size_t grown = *cap ? 2 * *cap : 64;
    void *more;

    if (n < *cap)
        return array;
    more = ckpt_arena_alloc(arena, grown, size);
    if (more && n)
        memcpy(more, array, n * size);
    *cap = more ? grown : *cap;
    return more;
}

/* Keep in mind that a file is left out; false. */
static bool leave(struct push_plan *p, const char *path, const char *why)
{
    struct push_left *more = grow(&p->arena, p->left, p->n_left, &p->cap_left, sizeof *more);

    if (more) {
        p->left = more;
        more[p->n_left].path = ckpt_arena_strndup(&p->arena, path, strlen(path));
        more[p->n_left].why = ckpt_arena_strndup(&p->arena, why, strlen(why));
        p->n_left += more[p->n_left].path && more[p->n_left].why;
    }
    return false;
}

/* Note in one line that a file is left out, and why. */
static bool leave_out(struct push_plan *p, const char *path, const char *why)
{
    const char *slash = strrchr(path, '/');

    ckpt_log(CKPT_LOG_NOTE, "%s: left out, %s; --also %s sends it", path, why,
             slash ? slash + 1 : path);
    return leave(p, path, why);
}

/* Whether to publish a file: one of those that were chosen, and a run's settings only if they are
 * safe to load and contain no token, or are named. */
static bool wanted(struct push_plan *p, const struct push_filter *f, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;
    char why[100];

    if (matches(&f->exclude, path))
        return leave(p, path, "--exclude");
    if (f->include.n > 0 && !matches(&f->include, path) && !matches(&f->also, path))
        return leave(p, path, "--include");
    if (strcmp(name, "training_args.bin") != 0 || matches(&f->include, path) ||
        matches(&f->also, path))
        return true;
    if (ckpt_file_open_at(&file, p->dir, path, &ignored))
        return leave_out(p, path, "it cannot be read");
    return judge_settings(why, sizeof why, file) || leave_out(p, path, why);
}

/* Files that readers take as a sign of completeness are sent last. */
static bool is_index(const char *path)
{
    return fnmatch("*.index.json", path, 0) == 0 || fnmatch("*config.json", path, 0) == 0 ||
           fnmatch("*latest", path, 0) == 0 || fnmatch("*MANIFEST.json", path, 0) == 0 ||
           fnmatch("*model.sig", path, 0) == 0;
}

void push_plan_judge(struct push_file *f)
{
    f->index = is_index(f->to);
    f->large = ckpt_lfs_by_name(f->from) || f->size > CKPT_LFS_THRESHOLD;
}

/* Add a file that will lie in folder below ("": the root). */
static int add_file(struct push_plan *p, const char *below, const char *rel, uint64_t size,
                    struct ckpt_err *err)
{
    struct push_file *file;

    if (ckpt_reserve(&p->file, p->n, &p->cap, sizeof *file, err))
        return CKPT_ENOMEM;
    file = &p->file[p->n++];
    *file = (struct push_file){0};
    file->from = ckpt_arena_printf(&p->arena, "%s", rel);
    file->to = *below ? ckpt_arena_printf(&p->arena, "%s/%s", below, rel) : file->from;
    if (!file->from || !file->to)
        return ckpt_nomem(err, strlen(rel));
    file->size = size;
    push_plan_judge(file);
    p->bytes += size;
    return 0;
}

/* List one directory of the walk; sub-directories go onto the stack. */
static int walk_dir(struct push_plan *p, const struct push_filter *f, const char *prefix,
                    int depth, char **stack, int *depths, size_t *n_stack,
                    struct ckpt_err *err)
{
    struct ckpt_dir *sub = NULL, *dir = p->dir;
    struct ckpt_arena names = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = *prefix ? ckpt_dir_open_at(&sub, p->dir, prefix, err) : 0;

    if (sub)
        dir = sub;
    if (rc == 0)
        rc = ckpt_dir_list(dir, &names, &entry, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *rel = ckpt_arena_printf(&p->arena, "%s%s%s", prefix, *prefix ? "/" : "",
                                      entry[i].name);

        if (!rel) {
            rc = ckpt_nomem(err, 64);
        } else if (!ckpt_file_name_is_kept(entry[i].name)) {
            leave(p, rel, "hidden");
        } else if (entry[i].is_dir) {
            if (depth + 1 >= MAX_DEPTH || *n_stack >= 4096)
                rc = ckpt_fail(err, CKPT_ELIMIT, "%s: deeper than %d levels", rel, MAX_DEPTH);
            else {
                depths[*n_stack] = depth + 1;
                stack[(*n_stack)++] = rel;
            }
        } else if (!entry[i].is_file) {
            bool excluded = matches(&f->exclude, rel);

            if (!excluded)
                ckpt_log(CKPT_LOG_WARNING, "%s: no regular file, left out", rel);
            leave(p, rel, excluded ? "--exclude" : "no regular file");
        } else if (wanted(p, f, rel)) {
            rc = add_file(p, p->below, rel, entry[i].size, err);
        }
    }
    ckpt_arena_release(&names);
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

/* Refuse files that hold what looks like a token, or that run code when someone loads them. */
static int refuse_unsafe(const struct push_plan *p, const struct push_filter *f,
                         struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->n && !(f->allow_secrets && f->allow_pickles); i++) {
        struct ckpt_file *file = NULL;

        rc = push_plan_open(&file, p, i, f->follow, err);
        if (rc == 0 && !f->allow_secrets)
            rc = secrets_refuse(file, err);
        if (rc == 0 && !f->allow_pickles &&
            (rc = scan_refuse(file, p->file[i].from, cli_spool(), err)) == CKPT_EREFUSED)
            ckpt_err_hint(err, "loading it runs that; --allow-pickles publishes it nevertheless, "
                          "--exclude leaves it out");
        ckpt_file_close(file);
    }
    return rc;
}

static int by_path(const void *a, const void *b)
{
    const struct push_file *x = a, *y = b;

    return x->index != y->index ? (int)x->index - (int)y->index : strcmp(x->to, y->to);
}

void push_plan_sort(struct push_plan *p)
{
    if (p->n)
        qsort(p->file, p->n, sizeof *p->file, by_path);
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

/* Remote files are verified before they are published. */
static unsigned flags_of(bool follow) { return (follow ? CKPT_FOLLOW : 0) | CKPT_PROVE; }

/* The folder of a source that is one file: where {name} ends the path, that is the file itself. */
static const char *folder_of_file(struct push_plan *p, const struct push_filter *f)
{
    static const char end[] = "/{name}";
    const char *path = f->path_in_repo ? f->path_in_repo : "";
    size_t n = strlen(path), k = sizeof end - 1;
    const char *slash = strrchr(p->below, '/');
    bool named = strcmp(path, end + 1) == 0 || (n > k && strcmp(path + n - k, end) == 0);

    if (f->strategy && strcmp(f->strategy, "checkpoint") == 0)
        return p->below;                /* last-checkpoint/ */
    if (f->strategy)
        return p->root;
    if (!named)
        return p->below;
    return ckpt_arena_strndup(&p->arena, p->below, slash ? (size_t)(slash - p->below) : 0);
}

/* A source that is one file. */
static int add_single(struct push_plan *p, const struct push_filter *f, struct ckpt_err *err)
{
    const char *slash = strrchr(p->source, '/'), *folder = folder_of_file(p, f);
    struct ckpt_file *file = NULL;
    int rc = folder ? ckpt_path_file(&file, p->source, flags_of(f->follow), err)
                    : ckpt_nomem(err, strlen(p->below));

    if (rc == 0)
        rc = add_file(p, folder, slash ? slash + 1 : p->source, ckpt_file_size(file), err);
    ckpt_file_close(file);
    return rc;
}

/* What only a run that goes on needs, of the files of a checkpoint's own folder. */
static bool is_for_resuming(const char *name)
{
    static const char *const globs[] = {
        "optimizer*", "scheduler*", "scaler*", "rng_state*", "random_states*", "trainer_state.json",
        "latest", "zero_to_fp32.py", "*_optim_states.pt", "*_model_states.pt", "MANIFEST.json",
        "*.distcp", "universal_checkpoint_info*",
    };

    for (size_t i = 0; i < sizeof globs / sizeof globs[0]; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return strchr(name, '/') != NULL;
}

/* The same files once more, at the root, as far as using the model needs them. */
static int add_root(struct push_plan *p, struct ckpt_err *err)
{
    size_t n = p->n;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!is_for_resuming(p->file[i].from))
            rc = add_file(p, p->root, p->file[i].from, p->file[i].size, err);
    return rc;
}

/* Put the name of the source for {name}, and the folder of the strategy after it. */
static const char *fill_name(struct push_plan *p, const char *path, const char *folder)
{
    static const char name[] = "{name}";
    const char *at = strstr(path, name);
    size_t n = strlen(p->source), from;
    bool own = *folder == '{';

    while (n > 1 && p->source[n - 1] == '/')
        n--;
    for (from = n; from > 0 && p->source[from - 1] != '/'; from--)
        ;
    return ckpt_arena_printf(&p->arena, "%.*s%.*s%s%s%.*s%s", (int)(at ? at - path : 0), path,
                             at ? (int)(n - from) : 0, p->source + from,
                             at ? at + strlen(name) : path, *path && *folder ? "/" : "",
                             own ? (int)(n - from) : 0, p->source + from, own ? "" : folder);
}

/* The folders of this source in the destination. */
static int place_below(struct push_plan *p, const struct push_filter *f, struct ckpt_err *err)
{
    const char *root = f->path_in_repo ? f->path_in_repo : "";

    p->root = fill_name(p, root, "");
    p->below = fill_name(p, root, !f->strategy ? "" : strcmp(f->strategy, "checkpoint") == 0
                                                   ? PUSH_LAST : "{name}");
    if (!p->root || !p->below)
        return ckpt_nomem(err, strlen(p->source));
    return !*p->below || ckpt_file_path_is_clean(p->below)
               ? 0 : ckpt_fail(err, CKPT_EUSAGE, "--path-in-repo %s: no clean relative path",
                               p->below);
}

int push_plan_make(struct push_plan *p, const char *source, const struct push_filter *f,
                   struct ckpt_err *err)
{
    char **stack = NULL;
    int *depths = NULL, rc = 0;
    size_t n_stack = 0;
    bool streams;

    memset(p, 0, sizeof *p);
    p->source = source;
    if ((rc = place_below(p, f, err)) != 0)
        return rc;
    streams = strcmp(source, "-") == 0 || ckpt_path_is_descriptor(source);
    if (!streams && ckpt_path_is_file(source)) {
        rc = add_single(p, f, err);
        rc = rc ? rc : refuse_pointers(p, f->follow, err);
        return rc ? rc : refuse_unsafe(p, f, err);
    }
    stack = ckpt_alloc(4096, sizeof *stack);
    depths = ckpt_alloc(4096, sizeof *depths);
    if (!stack || !depths)
        rc = ckpt_nomem(err, 4096 * sizeof *stack);
    if (rc == 0 && streams)
        rc = open_stream(p, source, err);
    else if (rc == 0)
        rc = ckpt_path_dir(&p->dir, source, flags_of(f->follow), err);
    if (rc == 0)
        rc = walk_dir(p, f, "", 0, stack, depths, &n_stack, err);
    while (rc == 0 && n_stack > 0) {
        n_stack--;
        rc = walk_dir(p, f, stack[n_stack], depths[n_stack], stack, depths, &n_stack, err);
    }
    if (rc == 0 && p->n == 0)
        rc = f->include.n > 0 && p->n_left > 0
                 ? ckpt_fail(err, CKPT_ENOTFOUND, "%s: no file of it is matched by --include %s%s",
                             source, f->include.item[0], f->include.n > 1 ? " and others" : "")
                 : ckpt_fail(err, CKPT_ENOTFOUND, "%s: nothing to publish in it", source);
    if (rc == 0 && f->strategy)
        rc = add_root(p, err);
    if (rc == 0)
        push_plan_sort(p);
    if (rc == 0)
        rc = refuse_pointers(p, f->follow, err);
    if (rc == 0)
        rc = refuse_unsafe(p, f, err);
    ckpt_free(stack);
    ckpt_free(depths);
    return rc;
}

void push_plan_release(struct push_plan *p)
{
    ckpt_dir_close(p->dir);
    ckpt_arena_release(&p->arena);
    ckpt_free(p->file);
    memset(p, 0, sizeof *p);
}

/* The SHA-1 of the git blob of these bytes. */
static int blob_digest(char hex[CKPT_SHA256_HEX], const void *bytes, size_t n, struct ckpt_err *err)
{
    unsigned char sha1[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    char head[40];
    int k = snprintf(head, sizeof head, "blob %zu", n) + 1;
    bool done = md && EVP_DigestInit_ex(md, EVP_sha1(), NULL) == 1 &&
                EVP_DigestUpdate(md, head, (size_t)k) == 1 &&
                EVP_DigestUpdate(md, bytes, n) == 1 && EVP_DigestFinal_ex(md, sha1, NULL) == 1;

    EVP_MD_CTX_free(md);
    if (!done)
        return ckpt_nomem(err, 256);
    ckpt_digest_hex(hex, sha1, 20);
    return 0;
}

int push_plan_digest(char hex[CKPT_SHA256_HEX], const struct push_plan *p, size_t i, bool follow,
                     bool git, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    uint64_t base = 0;
    bool came;
    int fd, rc = push_plan_open(&file, p, i, follow, err);

    if (rc)
        return rc;
    *hex = '\0';
    rc = file_fetch(file, false, &came, NULL, NULL, err);
    fd = ckpt_file_fd(file, &base);
    if (rc == 0 && fd >= 0 && base == 0)
        rc = cache_digest(hex, fd, git, err);
    else if (rc == 0 && !git)
        rc = ckpt_sha256_file(hex, file, err);
    else if (rc == 0 && p->file[i].made)
        rc = blob_digest(hex, p->file[i].made, (size_t)p->file[i].size, err);
    ckpt_file_close(file);
    return rc ? ckpt_err_in(err, "%s", p->file[i].from) : 0;
}

int push_plan_found(struct push_plan *p, size_t i, enum push_state state, const char *kind,
                    const char *hex, struct ckpt_err *err)
{
    p->file[i].state = state;
    p->file[i].digest = *hex ? ckpt_arena_printf(&p->arena, "%s-%s", kind, hex) : NULL;
    return p->file[i].digest || !*hex ? 0 : ckpt_nomem(err, strlen(hex));
}

int push_plan_remove(struct push_plan *p, const char *path, struct ckpt_err *err)
{
    const char **more = grow(&p->arena, p->gone, p->n_gone, &p->cap_gone, sizeof *more);

    if (!more)
        return ckpt_nomem(err, (p->n_gone + 1) * sizeof *more);
    p->gone = more;
    more[p->n_gone] = ckpt_arena_strndup(&p->arena, path, strlen(path));
    return more[p->n_gone++] ? 0 : ckpt_nomem(err, strlen(path));
}

void push_plan_forget(struct push_plan *p)
{
    p->n_gone = 0;
    p->head = NULL;
    for (size_t i = 0; i < p->n; i++) {
        p->file[i].state = PUSH_SENT;
        p->file[i].digest = NULL;
    }
}

int push_plan_open(struct ckpt_file **out, const struct push_plan *p, size_t i, bool follow,
                   struct ckpt_err *err)
{
    const struct push_file *f = &p->file[i];
    int rc;

    if (f->made)
        return ckpt_file_memory(out, f->made, (size_t)f->size, f->from, err);
    rc = p->dir ? ckpt_file_open_at(out, p->dir, f->from, err)
                : ckpt_path_file(out, p->source, flags_of(follow), err);
    if (rc == 0 && (rc = push_plan_pinned(f, *out, err)) != 0) {
        ckpt_file_close(*out);
        *out = NULL;
    }
    return rc;
}
