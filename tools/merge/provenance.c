/* provenance - see provenance.h. */
#include "tools/merge/provenance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "formats/container/zip.h"
#include "libckpt/base/buf.h"
#include "libckpt/base/pool.h"
#include "libckpt/digest.h"
#include "libckpt/base/json.h"
#include "tools/merge/parts.h"

#define WORKERS    16           /* at most, where --jobs is not given */
#define READ_BYTES ((size_t)1 << 20)
#define TEXT_BYTES ((size_t)64 << 20)
#define ZEROS      "0000000000000000000000000000000000000000000000000000000000000000"

/* A kind of digest: its key in a row of the text, and its length. */
struct kind {
    const char *key;
    size_t      digits;
};

static const struct kind kinds[] = {
    {"xxh128", 2 * CKPT_XXH128_BYTES}, {"sha256", 2 * CKPT_SHA256_BYTES},
};

struct entry {
    struct ckpt_file *file;     /* a source's */
    json_t           *row;      /* the root's */
    char              hex[CKPT_SHA256_HEX];
    bool              done;     /* digested by members: the row has the digest */
};

struct provenance {
    const struct kind *kind;                /* NULL: no digests requested */
    json_t            *root, *inputs;       /* inputs is owned by root */
    struct entry      *file;                /* in the order of the text */
    size_t             n, cap, n_before;    /* n_before: without those of the last input */
    size_t             workers;             /* that digest them */
    struct ckpt_buf    text;
    bool               runs;
    atomic_bool        stop;
    const char *const *part;                /* further folders of the input; borrowed */
    size_t             n_part;
    pthread_t          thread;
    int                failed;           /* set by the thread, as is err; read after it has ended */
    struct ckpt_err    err;
};

static int set_list(json_t *options, const char *name, const struct opt_list *l)
{
    json_t *list;
    int rc = 0;

    if (l->n == 0)
        return 0;
    list = json_array();
    for (size_t i = 0; i < l->n; i++)
        rc |= json_array_append_new(list, ckpt_json_text(l->item[i], strlen(l->item[i])));
    return rc | json_object_set_new(options, name, list);
}

/* One weight per adapter, as given, if any was given. */
static int set_adapter_weights(json_t *options, const struct opt_list *l)
{
    json_t *list = json_array();
    bool any = false;
    int rc = 0;

    for (size_t i = 0; i < l->n; i++) {
        const char *weight = merge_adapter_weight(l->item[i]);

        any = any || weight;
        rc |= json_array_append_new(list, json_string(weight ? weight : "1"));
    }
    if (any)
        return rc | json_object_set_new(options, "adapter_weights", list);
    json_decref(list);
    return rc;
}

static int set_number(json_t *options, const char *name, int64_t value)
{
    return value ? json_object_set_new(options, name, json_integer((json_int_t)value)) : 0;
}

/* Record the given options that influence the output's bytes. */
static int set_options(json_t *o, const struct merge_want *w)
{
    int rc = set_list(o, "dtype", &w->dtype) | set_list(o, "include", &w->include) |
             set_list(o, "exclude", &w->exclude) | set_list(o, "rename", &w->rename) |
             set_list(o, "exclude_adapter", &w->exclude_adapter);

    rc |= set_adapter_weights(o, &w->adapter);
    rc |= set_number(o, "extract_adapter", w->extract);
    rc |= set_number(o, "world", w->world) | set_number(o, "stage", w->stage);
    if (w->to)
        rc |= json_object_set_new(o, "to", json_string(w->to));
    if (w->tag)
        rc |= json_object_set_new(o, "tag", json_string(w->tag));
    if (w->average)
        rc |= json_object_set_new(o, "average", json_true());
    if (w->weights)
        rc |= json_object_set_new(o, "weights", json_string(w->weights));
    rc |= set_number(o, "max_shard_size", (int64_t)w->max_shard_size);
    rc |= json_object_set_new(o, "optimizer", json_string(w->optimizer));
    return rc | json_object_set_new(o, "tied", json_string(w->tied));
}

int provenance_new(struct provenance **p, const struct merge_want *w, struct ckpt_err *err)
{
    struct provenance *n = ckpt_alloc(1, sizeof *n);
    json_t *options = json_object();

    *p = NULL;
    if (n)
        n->root = json_object();
    for (size_t i = 0; n && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(w->provenance, kinds[i].key) == 0)
            n->kind = &kinds[i];
    if (!n || !options || set_options(options, w) ||
        json_object_set_new(n->root, "tool", json_string("ckpt-merge")) ||
        json_object_set_new(n->root, "version", json_string(CKPT_VERSION)) ||
        json_object_set(n->root, "options", options) ||
        json_object_set_new(n->root, "inputs", n->inputs = json_array())) {
        json_decref(options);
        provenance_free(n);
        return ckpt_nomem(err, 256);
    }
    json_decref(options);
    *p = n;
    return 0;
}

static int keep_file(struct provenance *p, struct entry e, struct ckpt_err *err)
{
    int rc = ckpt_reserve(&p->file, p->n, &p->cap, sizeof *p->file, err);

    if (rc == 0)
        p->file[p->n++] = e;
    return rc;
}

/* The last component of a path, without trailing slashes; len gets its length. */
static const char *last_part(const char *path, size_t *len)
{
    size_t n = strlen(path);
    const char *at;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (at = path + n; at > path && at[-1] != '/'; at--)
        ;
    *len = (size_t)(path + n - at);
    return at;
}

/* A file's path below the input, or its last part when it is not below it. */
static const char *name_below(const char *path, const char *name)
{
    size_t n = strlen(path), len;

    while (n > 1 && path[n - 1] == '/')
        n--;
    return strncmp(name, path, n) == 0 && name[n] == '/' ? name + n + 1 : last_part(name, &len);
}

/* The same, for several folders, or for input from stdin. */
static const char *name_in(const struct provenance *p, const char *path, const char *name)
{
    const char *below = name_below(strcmp(path, "-") == 0 ? "standard input" : path, name);
    size_t len;

    for (size_t i = 0; i < p->n_part && below == last_part(name, &len); i++)
        below = name_below(p->part[i], name);
    return below;
}

/* The names of the other folders of an input. */
static json_t *part_names(const struct provenance *p)
{
    json_t *names = json_array();
    bool ok = names != NULL;

    for (size_t i = 0; ok && i < p->n_part; i++) {
        size_t len;
        const char *name = last_part(p->part[i], &len);

        ok = json_array_append_new(names, ckpt_json_text(name, len)) == 0;
    }
    if (!ok) {
        json_decref(names);
        names = NULL;
    }
    return names;
}

void provenance_parts(struct provenance *p, const char *const *part, size_t n)
{
    p->part = part;
    p->n_part = n;
}

struct gather {
    struct provenance *p;
    const char        *path;
    json_t            *files;
    size_t             first;       /* index in p->file of this input's first */
};

/* Digest a zip archive by its directory's facts about members; done stays false for other files. */
static int digest_members(struct entry *e, struct ckpt_err *err)
{
    unsigned char head[4], digest[CKPT_XXH128_BYTES];
    struct ckpt_xxh128_state *xxh = NULL;
    struct zip z;
    int rc;

    if (ckpt_file_size(e->file) < sizeof head)
        return 0;
    rc = ckpt_file_read_at(e->file, head, sizeof head, 0, err);
    if (rc || memcmp(head, "PK\3\4", 4) != 0)
        return rc;
    rc = zip_open(&z, e->file, err);
    if (rc == CKPT_EIO || rc == CKPT_ENOMEM)
        return rc;
    if (rc) {                   /* not a sound archive: a reader of archives has refused it */
        ckpt_err_clear(err);
        return 0;
    }
    rc = ckpt_xxh128_new(&xxh, err);
    e->done = rc == 0;
    for (size_t i = 0; rc == 0 && i < z.n; i++) {
        char line[64];
        int n = snprintf(line, sizeof line, "%08x %llu ", (unsigned)z.entry[i].crc,
                         (unsigned long long)z.entry[i].size);

        ckpt_xxh128_add(xxh, line, (size_t)n);
        ckpt_xxh128_add(xxh, z.entry[i].name, strlen(z.entry[i].name));
        ckpt_xxh128_add(xxh, "\n", 1);
        if (z.entry[i].crc == 0 && z.entry[i].size > 0)
            e->done = false;
    }
    if (e->done) {
        ckpt_xxh128_end(xxh, digest);
        ckpt_digest_hex(e->hex, digest, sizeof digest);
        if (json_object_set_new(e->row, "members_xxh128", json_string(e->hex)))
            rc = ckpt_nomem(err, 64);
    }
    ckpt_xxh128_free(xxh);
    zip_release(&z);
    return rc;
}

static int take_file(struct gather *g, struct ckpt_file *file, struct ckpt_err *err)
{
    struct entry e = {.file = file};
    const char *name;
    int rc;

    for (size_t k = g->p->n; k-- > g->first;)
        if (g->p->file[k].file == file)
            return 0;
    for (size_t k = g->p->n; k-- > g->first;) /* compares with a system call: only for a new file */
        if (ckpt_file_same(g->p->file[k].file, file))
            return 0;
    name = name_in(g->p, g->path, ckpt_file_name(file));
    e.row = json_pack("{s:o,s:I}", "name", ckpt_json_text(name, strlen(name)), "bytes",
                    (json_int_t)ckpt_file_size(file));
    if (!e.row || json_array_append_new(g->files, e.row))
        return ckpt_nomem(err, 256);
    if (g->p->kind == &kinds[0] && (rc = digest_members(&e, err)) != 0)
        return rc;
    return keep_file(g->p, e, err);
}

int provenance_add(struct provenance *p, const char *role, const char *path,
                   const struct ckpt_source *src, struct ckpt_err *err)
{
    struct gather g = {.p = p, .path = path, .files = json_array(), .first = p->n};
    const struct ckpt_extra *extra;
    size_t n_extra = ckpt_source_extras(src, &extra), len;
    const char *name = last_part(path, &len);
    json_t *input;
    int rc = g.files ? 0 : ckpt_nomem(err, 64);

    p->n_before = p->n;
    for (size_t i = 0; rc == 0 && i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        const struct ckpt_file *last = NULL;

        for (size_t k = 0; rc == 0 && k < t->n_frag; k++)
            if (t->frag[k].file != last) {
                rc = take_file(&g, t->frag[k].file, err);
                last = t->frag[k].file;
            }
    }
    for (size_t i = 0; rc == 0 && i < n_extra; i++)
        rc = take_file(&g, extra[i].file, err);
    input = json_pack("{s:s,s:o,s:s,s:O}", "role", role, "name",
                      ckpt_json_text(name, len), "format", ckpt_source_format(src),
                      "files", g.files);
    if (rc == 0 && input && p->n_part && strcmp(role, "input") == 0 &&
        json_object_set_new(input, "with", part_names(p)))
        rc = ckpt_nomem(err, 256);
    if (rc == 0 && (!input || json_array_append(p->inputs, input)))
        rc = ckpt_nomem(err, 256);
    json_decref(input);
    json_decref(g.files);
    return rc;
}

void provenance_forget(struct provenance *p)
{
    p->n = p->n_before;
    json_array_remove(p->inputs, json_array_size(p->inputs) - 1);
}

bool provenance_has(const struct provenance *p, const struct stat *st)
{
    struct stat own;
    uint64_t base;

    for (size_t i = 0; i < p->n; i++) {
        int fd = ckpt_file_fd(p->file[i].file, &base);

        if (fd >= 0 && fstat(fd, &own) == 0 && own.st_dev == st->st_dev &&
            own.st_ino == st->st_ino)
            return true;
    }
    return false;
}

/* At least one of sha and xxh is not NULL. */
static int digest_one(struct provenance *p, size_t i, struct ckpt_sha256 *sha,
                      struct ckpt_xxh128_state *xxh, unsigned char *buffer, struct ckpt_err *err)
{
    struct ckpt_file *file = p->file[i].file;
    uint64_t size = ckpt_file_size(file);
    unsigned char digest[CKPT_SHA256_BYTES];
    int rc;

    ckpt_file_sequential(file);
    for (uint64_t at = 0; at < size; at += READ_BYTES) {
        size_t n = size - at < READ_BYTES ? (size_t)(size - at) : READ_BYTES;

        if (atomic_load(&p->stop))
            return ckpt_fail(err, CKPT_ESTOPPED, "stopped");
        rc = ckpt_file_read_at(file, buffer, n, at, err);
        if (rc == 0 && sha)
            rc = ckpt_sha256_add(sha, buffer, n, err);
        if (rc)
            return rc;
        if (xxh)
            ckpt_xxh128_add(xxh, buffer, n);
    }
    if (sha && (rc = ckpt_sha256_end(sha, digest, err)) != 0)
        return rc;
    if (xxh)
        ckpt_xxh128_end(xxh, digest);
    ckpt_digest_hex(p->file[i].hex, digest, p->kind->digits / 2);
    return 0;
}

static int digest_file(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct provenance *p = ctx;
    unsigned char *buffer = NULL;
    struct ckpt_xxh128_state *xxh = NULL;
    struct ckpt_sha256 *sha = NULL;
    int rc;

    (void)worker;
    if (p->file[i].done)
        return 0;
    buffer = ckpt_alloc_buffer(READ_BYTES);
    rc = buffer ? 0 : ckpt_nomem(err, READ_BYTES);
    if (rc == 0)
        rc = p->kind == &kinds[0] ? ckpt_xxh128_new(&xxh, err) : ckpt_sha256_new(&sha, err);
    if (rc == 0)
        rc = digest_one(p, i, sha, xxh, buffer, err);
    ckpt_xxh128_free(xxh);
    ckpt_sha256_free(sha);
    ckpt_free(buffer);
    return rc;
}

/* A digest is one stream, so files are what can be shared out. */
static void *digest_all(void *ctx)
{
    struct provenance *p = ctx;

    p->failed = ckpt_pool_run(p->workers, p->n, digest_file, p, &p->err);
    return NULL;
}

/* Allocate for every file's digest. */
static int add_zeros(struct provenance *p, struct ckpt_err *err)
{
    for (size_t i = 0; i < p->n; i++)
        if (!p->file[i].done && json_object_set_new(p->file[i].row, p->kind->key,
                                                    json_stringn(ZEROS, p->kind->digits)))
            return ckpt_nomem(err, 64);
    return 0;
}

int provenance_text(struct provenance *p, bool digests, size_t workers, const char **text,
                    struct ckpt_err *err)
{
    int rc;

    p->workers = workers ? workers : ckpt_pool_default(WORKERS);
    digests = digests && p->kind;
    if (digests && (rc = add_zeros(p, err)) != 0)
        return rc;
    ckpt_buf_init(&p->text, TEXT_BYTES);
    if ((rc = ckpt_json_write(&p->text, p->root, 0, false, err)) != 0)
        return rc;
    if (!ckpt_buf_str(&p->text))
        return ckpt_nomem(err, p->text.len);
    if (digests && pthread_create(&p->thread, NULL, digest_all, p) != 0)
        return ckpt_fail(err, CKPT_ENOMEM, "no thread can be started for digests");
    p->runs = digests;
    *text = (char *)p->text.data;
    return 0;
}

static void end_thread(struct provenance *p)
{
    if (p->runs)
        pthread_join(p->thread, NULL);
    p->runs = false;
}

int provenance_finish(struct provenance *p, struct ckpt_err *err)
{
    char *at = (char *)p->text.data, mark[16];

    if (!p->runs)
        return 0;
    end_thread(p);
    if (p->failed) {
        *err = p->err;
        return p->failed;
    }
    snprintf(mark, sizeof mark, "\"%s\":\"", p->kind->key);
    for (size_t i = 0; i < p->n; i++) {    /* no name contains the mark, since quotes are escaped */
        if (p->file[i].done)
            continue;
        at = strstr(at, mark) + strlen(mark);
        memcpy(at, p->file[i].hex, p->kind->digits);
    }
    return 0;
}

void provenance_free(struct provenance *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    end_thread(p);
    json_decref(p->root);
    ckpt_buf_release(&p->text);
    ckpt_free(p->file);
    ckpt_free(p);
}
