/* remote - see remote.h. */
#include "libckpt/remote/remote.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/cache.h"
#include "libckpt/remote/dav/dav.h"
#include "libckpt/remote/git/source.h"
#include "libckpt/remote/hub.h"
#include "libckpt/remote/oci/oci.h"
#include "libckpt/remote/s3/s3.h"
#include "libckpt/remote/web.h"

/* The result for an address, or for one above it: one of tree, range, local, or err. */
struct found {
    struct found   *next;
    char           *key;
    struct tree    *tree;
    struct range   *range;
    char            local[1024];    /* path of a directory on this host */
    int             failed;         /* the code of err: nothing was found */
    struct ckpt_err err;
};

/* One list per process, since paths are the process's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct found *all;

void ckpt_remote_stop_on(const volatile int *stop) { http_stop_on(stop); }

bool ckpt_remote_is_address(const char *path)
{
    size_t n = 0;

    while (isalnum((unsigned char)path[n]) || (n && path[n] && strchr("+.-", path[n])))
        n++;
    return n > 0 && isalpha((unsigned char)path[0]) && strncmp(path + n, "://", 3) == 0;
}

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

/* http is for this host; elsewhere it is warned of, or refused. */
static int check_plain(const char *address, struct ckpt_err *err)
{
    char origin[512];
    int rc;

    if ((rc = http_origin(origin, address, err)) != 0)
        return rc;
    if (http_is_loopback(address))
        return 0;
    if (!http_env_true("CKPT_INSECURE_HTTP")) {
        ckpt_fail(err, CKPT_EREFUSED, "%.300s: http authenticates neither the server nor "
                  "the data", address);
        return ckpt_err_hint(err, "use https, or set CKPT_INSECURE_HTTP=1");
    }
    ckpt_log(CKPT_LOG_WARNING, "%.300s: is read over http, which authenticates neither the "
             "server nor the data", address);
    return 0;
}

/* A query may be a secret: it stays in the address but not in the name. */
static int look_at_file(struct found *f, const char *address)
{
    size_t n = strcspn(address, "?#");
    char *name = ckpt_alloc(n + 1, 1);
    const struct range_at at = {.name = name, .url = address, .size = FIELD_NONE, .digest = ""};
    int rc;

    if (!name)
        return ckpt_nomem(&f->err, n);
    memcpy(name, address, n);
    rc = range_new(&f->range, &at, &f->err);
    ckpt_free(name);
    return rc;
}

static int look_at_oci(struct found *f)
{
    struct oci_place *place = ckpt_alloc(1, sizeof *place);
    int rc = place ? oci_parse(place, f->key, &f->err) : ckpt_nomem(&f->err, sizeof *place);

    rc = rc ? rc : oci_open(&f->tree, place, &f->err);
    ckpt_free(place);
    return rc;
}

static int look_at_git(struct found *f, const char *address)
{
    struct git_source_place *place = ckpt_alloc(1, sizeof *place);
    int rc = place ? git_source_parse(place, f->key, &f->err)
                   : ckpt_nomem(&f->err, sizeof *place);

    if (rc == 0 && begins(address, "git+http:"))
        rc = check_plain(address + strlen("git+"), &f->err);
    rc = rc ? rc : git_source_open(&f->tree, place, &f->err);
    ckpt_free(place);
    return rc;
}

/* Find out what a key is; f->err is set when it is nothing. */
static int look(struct found *f, const char *address)
{
    struct hub_place *place;
    int rc;

    if ((rc = cache_check(&f->err)) != 0)
        return rc;
    if (begins(address, "hf://")) {
        place = ckpt_alloc(1, sizeof *place);
        rc = place ? hub_parse(place, address, &f->err) : ckpt_nomem(&f->err, sizeof *place);
        if (rc == 0)
            rc = hub_open(&f->tree, f->local, place, &f->err);
        ckpt_free(place);
        if (f->local[0])
            ckpt_log(CKPT_LOG_NOTE, "%s: read from the cache of the Hub's own client, %s", f->key,
                     f->local);
        return rc;
    }
    if (begins(address, "oci://"))
        return look_at_oci(f);
    if (git_source_is(address))
        return look_at_git(f, address);
    if (begins(address, "s3://"))
        return s3_open(&f->tree, &f->range, address, &f->err);
    if (dav_is_address(address))
        return dav_open(&f->tree, &f->range, address, &f->err);
    if (begins(address, "http://") && (rc = check_plain(address, &f->err)) != 0)
        return rc;
    if (address[strlen(address) - 1] == '/' && !strchr(address, '?'))
        return web_open(&f->tree, address, &f->err);
    return look_at_file(f, address);
}

/* A path below an address without a tag looks like a longer name: one that was opened decides. */
static bool split_known(char *key, size_t size, char rel[4096], const char *address)
{
    bool known = false;

    pthread_mutex_lock(&lock);
    for (const struct found *f = all; f && !known; f = f->next) {
        size_t n = strlen(f->key);

        known = f->tree && strncmp(address, f->key, n) == 0 && address[n] == '/' &&
                (size_t)snprintf(key, size, "%s", f->key) < size &&
                (size_t)snprintf(rel, 4096, "%s", address + n + 1) < 4096;
    }
    pthread_mutex_unlock(&lock);
    return known;
}

static int split_oci(char *key, size_t size, char rel[4096], const char *address,
                     struct ckpt_err *err)
{
    struct oci_place *place;
    int rc;

    if (split_known(key, size, rel, address))
        return 0;
    place = ckpt_alloc(1, sizeof *place);
    rc = place ? oci_parse(place, address, err) : ckpt_nomem(err, sizeof *place);
    if (rc == 0) {
        snprintf(key, size, "%s", place->root);
        memcpy(rel, place->path, sizeof place->path);
    }
    ckpt_free(place);
    return rc;
}

static int split_git(char *key, size_t size, char rel[4096], const char *address,
                     struct ckpt_err *err)
{
    struct git_source_place *place;
    int rc;

    if (split_known(key, size, rel, address))
        return 0;
    place = ckpt_alloc(1, sizeof *place);
    rc = place ? git_source_parse(place, address, err) : ckpt_nomem(err, sizeof *place);
    if (rc == 0) {
        snprintf(key, size, "%s", place->root);
        memcpy(rel, place->path, sizeof place->path);
    }
    ckpt_free(place);
    return rc;
}

/* Split an address into its key in the list and the rest. */
static int split(char *key, size_t size, char rel[4096], const char *address,
                 struct ckpt_err *err)
{
    struct hub_place *place;
    char origin[512];
    int rc = 0;

    rel[0] = '\0';
    if (begins(address, "hf://")) {
        place = ckpt_alloc(1, sizeof *place);
        rc = place ? hub_parse(place, address, err) : ckpt_nomem(err, sizeof *place);
        if (rc == 0) {
            snprintf(key, size, "%s", place->root);
            memcpy(rel, place->path, sizeof place->path);
        }
        ckpt_free(place);
        return rc;
    }
    if (begins(address, "oci://"))
        return split_oci(key, size, rel, address, err);
    if (git_source_is(address))
        return split_git(key, size, rel, address, err);
    if (!begins(address, "https://") && !begins(address, "http://") &&
        !begins(address, "s3://") && !dav_is_address(address)) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "%.*s: such addresses are not read",
                  (int)strcspn(address, ":") + 3, address);
        return ckpt_err_hint(err, "hf://, s3://, oci://, davs://, git+https://, https:// and "
                             "file:// are");
    }
    if ((size_t)snprintf(key, size, "%s", address) >= size)
        return ckpt_fail(err, CKPT_ELIMIT, "an address of %zu bytes", strlen(address));
    return begins(address, "http") ? http_origin(origin, address, err) : 0;
}

static int find(struct found **out, char rel[4096], const char *address, struct ckpt_err *err)
{
    char key[HTTP_URL];
    struct found *f;
    int rc;

    *out = NULL;
    if ((rc = split(key, sizeof key, rel, address, err)) != 0)
        return rc;
    pthread_mutex_lock(&lock);
    for (f = all; f && strcmp(f->key, key) != 0;)
        f = f->next;
    if (!f) {
        f = ckpt_alloc(1, sizeof *f);
        if (f && !(f->key = ckpt_strdup(key))) {
            ckpt_free(f);
            f = NULL;
        }
        if (f) {
            f->failed = look(f, address);
            f->next = all;
            all = f;
        }
    }
    pthread_mutex_unlock(&lock);
    if (!f)
        return ckpt_nomem(err, sizeof *f);
    if (f->failed) {
        *err = f->err;
        return f->failed;
    }
    *out = f;
    return 0;
}

/* The local path of a file in a directory on this host. */
static int local_path(char *path, size_t size, const struct found *f, const char *rel,
                      struct ckpt_err *err)
{
    return (size_t)snprintf(path, size, "%s%s%s", f->local, *rel ? "/" : "", rel) < size
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%.200s: path too long", rel);
}

int ckpt_remote_kind(const char *address)
{
    struct ckpt_err ignored = {0};
    char rel[4096], path[5200];
    struct found *f;
    struct stat st;

    if (find(&f, rel, address, &ignored))
        return 0;
    if (f->tree)
        return tree_kind(f->tree, rel);
    if (f->range)
        return range_head(f->range, 0, &ignored) == 0;
    return local_path(path, sizeof path, f, rel, &ignored) || stat(path, &st)
               ? 0 : S_ISDIR(st.st_mode) ? 2 : S_ISREG(st.st_mode);
}

int ckpt_remote_file(struct ckpt_file **out, const char *address, unsigned flags,
                     struct ckpt_err *err)
{
    char rel[4096], path[5200];
    struct found *f;
    int rc;

    *out = NULL;
    if ((rc = find(&f, rel, address, err)) != 0)
        return rc;
    if (f->tree && !*rel)
        return ckpt_fail_as(err, CKPT_ENOTFOUND, "not-regular", "%.300s: is a directory, a regular "
                            "file wanted", address);
    if (f->tree)
        return tree_open_file(out, f->tree, rel, flags, err);
    if (f->range)
        return range_file(out, f->range, flags, err);
    return local_path(path, sizeof path, f, rel, err)
               ? ckpt_err_code(err) : ckpt_file_open(out, path, flags, err);
}

int ckpt_remote_dir(struct ckpt_dir **out, const char *address, unsigned flags,
                    struct ckpt_err *err)
{
    char rel[4096], path[HTTP_URL + 1];
    size_t n = strlen(address);
    struct found *f;
    int rc;

    *out = NULL;
    if (begins(address, "http") && n < HTTP_URL && address[n - 1] != '/' && !strchr(address, '?')) {
        snprintf(path, sizeof path, "%s/", address);    /* the user may mean it as a folder */
        address = path;
    }
    if ((rc = find(&f, rel, address, err)) != 0)
        return rc;
    if (f->tree) {
        snprintf(path, sizeof path, "%s%s%s", f->tree->name, *rel ? "/" : "", rel);
        return tree_open_dir(out, f->tree, rel, path, flags, err);
    }
    if (f->range)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%.300s: a directory wanted", address);
    return local_path(path, sizeof path, f, rel, err)
               ? ckpt_err_code(err) : ckpt_dir_open(out, path, flags, err);
}
