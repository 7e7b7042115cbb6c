/* path - see path.h. */
#include "libckpt/io/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/commit.h"
#include "libckpt/mem.h"
#include "libckpt/remote/git/source.h"
#include "libckpt/remote/http.h"
#include "libckpt/remote/remote.h"

#define ADDRESS (4 * PATH_MAX)

/* The local path that *path, a path or a file:// address, means; NULL when it is remote.  *path
 * gets the address then: a path into a bare repository of git has one. */
static const char *local(char buf[ADDRESS], const char **address)
{
    static const char scheme[] = "file://", here[] = "localhost/";
    const char *path = *address, *at = path + sizeof scheme - 1;

    if (!ckpt_remote_is_address(path)) {
        if (!git_source_of_path(buf, ADDRESS, path))
            return path;
        *address = buf;
        return NULL;
    }
    if (strncmp(path, scheme, sizeof scheme - 1) != 0)
        return NULL;
    if (strncmp(at, here, sizeof here - 1) == 0)
        at += sizeof here - 2;
    if (*at != '/' || (size_t)snprintf(buf, ADDRESS, "%s", at) >= PATH_MAX ||
        !http_unescape(buf))
        return path;                    /* opening it will report that it does not exist */
    return buf;
}

bool ckpt_path_ends_in(const char *path, const char *tail)
{
    size_t n = strlen(path), k = strlen(tail);

    return n >= k && strcmp(path + n - k, tail) == 0;
}

bool ckpt_path_ends_in_any(const char *path, const char *const *tails)
{
    while (*tails && !ckpt_path_ends_in(path, *tails))
        tails++;
    return *tails;
}

bool ckpt_path_is_descriptor(const char *path)
{
    static const char *const above[] = {"/dev/fd/", "/proc/self/fd/"};

    for (size_t i = 0; i < sizeof above / sizeof above[0]; i++) {
        size_t n = strlen(above[i]);

        if (strncmp(path, above[i], n) == 0)
            return path[n] && strspn(path + n, "0123456789") == strlen(path + n);
    }
    return strcmp(path, "/dev/stdin") == 0;
}

bool ckpt_path_is_remote(const char *path)
{
    char buf[ADDRESS];

    return !local(buf, &path);
}

static bool is_mode(const char *path, mode_t mode, int kind)
{
    char buf[ADDRESS];
    const char *here = local(buf, &path);
    struct stat st;

    return here ? stat(here, &st) == 0 && (st.st_mode & S_IFMT) == mode
                : ckpt_remote_kind(path) == kind;
}

int64_t ckpt_path_number(const char *name, const char *stem)
{
    size_t n = strlen(stem), digits;

    if (strncmp(name, stem, n) != 0)
        return -1;
    digits = strspn(name + n, "0123456789");
    if (digits == 0 || digits > 18 || name[n + digits])
        return -1;
    return strtoll(name + n, NULL, 10);
}

bool ckpt_path_is_dir(const char *path) { return is_mode(path, S_IFDIR, 2); }
bool ckpt_path_is_file(const char *path) { return is_mode(path, S_IFREG, 1); }

int ckpt_path_file(struct ckpt_file **out, const char *path, unsigned flags,
                   struct ckpt_err *err)
{
    char buf[ADDRESS];
    const char *here = local(buf, &path);

    return here ? ckpt_file_open(out, here, flags, err)
                : ckpt_remote_file(out, path, flags, err);
}

int ckpt_path_dir(struct ckpt_dir **out, const char *path, unsigned flags, struct ckpt_err *err)
{
    char buf[ADDRESS];
    const char *here = local(buf, &path);

    return here ? ckpt_dir_open(out, here, flags, err) : ckpt_remote_dir(out, path, flags, err);
}

/* One part of a path after the other, from the first; false in *on: the last one. */
typedef int part_fn(void *ctx, const char *part, bool *on, struct ckpt_err *err);

static int each_part(const char *path, part_fn *one, void *ctx, struct ckpt_err *err)
{
    char *part = ckpt_strdup(path);
    bool on = true;
    int rc;

    if (!part)
        return ckpt_nomem(err, strlen(path));
    rc = ckpt_out_check(path, err);
    for (char *p = part + (*part != 0); rc == 0 && on; p++) {
        char was = *p;

        if (was != '/' && was)
            continue;
        *p = '\0';
        on = was;
        rc = one(ctx, part, &on, err);
        *p = was;
    }
    ckpt_free(part);
    return rc;
}

static int must_be_dir(const char *part, struct ckpt_err *err)
{
    struct stat st;

    return stat(part, &st) == 0 && S_ISDIR(st.st_mode)
               ? 0 : ckpt_fail(err, CKPT_ECREATE, "%s: exists, and is no directory", part);
}

static int make_dir(void *ctx, const char *part, bool *on, struct ckpt_err *err)
{
    (void)ctx;
    (void)on;
    if (mkdir(part, 0777) && errno != EEXIST)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", part);
    return must_be_dir(part, err);
}

int ckpt_path_make_dirs(const char *path, struct ckpt_err *err)
{
    return each_part(path, make_dir, NULL, err);
}

struct missing { char *first; size_t size; };

static int find_missing(void *ctx, const char *part, bool *on, struct ckpt_err *err)
{
    const struct missing *m = ctx;
    struct stat st;

    if (lstat(part, &st) == 0 || errno != ENOENT)
        return must_be_dir(part, err);
    *on = false;
    snprintf(m->first, m->size, "%s", part);
    return ckpt_outdir_ready(part, err);
}

int ckpt_path_dirs_ready(char *first, size_t size, const char *path, struct ckpt_err *err)
{
    *first = '\0';
    return each_part(path, find_missing, &(struct missing){first, size}, err);
}

/* Whether s has the form of a Hub name: NAME or OWNER/NAME. */
static bool is_hub_name(const char *s)
{
    static const char chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t first = strspn(s, chars), second;

    if (first == 0 || s[0] == '.' || s[0] == '-')
        return false;
    if (s[first] == '\0')
        return true;
    second = s[first] == '/' ? strspn(s + first + 1, chars) : 0;
    return second > 0 && s[first + 1] != '.' && s[first + 1 + second] == '\0';
}

int ckpt_path_hint_hub(const char *path, struct ckpt_err *err)
{
    const char *slash = strchr(path, '/');
    char owner[PATH_MAX];

    if (!is_hub_name(path))
        return ckpt_err_code(err);
    if (!slash)
        return ckpt_err_hint(err, "a model of the Hub is named hf://OWNER/%s", path);
    snprintf(owner, sizeof owner, "%.*s", (int)(slash - path), path);
    return ckpt_path_is_dir(owner)
               ? ckpt_err_code(err)
               : ckpt_err_hint(err, "a model of the Hub is named hf://%s", path);
}
