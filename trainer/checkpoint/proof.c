/* proof - see proof.h. */
#include "trainer/checkpoint/proof.h"

#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/side_files.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/io/path.h"
#include "libckpt/base/pool.h"
#include "trainer/checkpoint/dcp.h"
#include "trainer/checkpoint/manifest.h"

#define MAX_THREADS 4           /* per rank: one file each, enough to keep a disk busy */

/* How a resumed run uses a file. */
enum use {
    USE_NONE,                   /* not read */
    USE_EARLY,                  /* read before the load */
    USE_IF_THERE,               /* the same, but it may be absent */
    USE_LOAD,                   /* loaded */
    USE_UNLESS_SHARDED          /* loaded where there are no shards to load instead */
};

/* The first row that matches a name is used; other files are read early. */
static const struct {
    const char *glob;
    enum use    use;
} uses[] = {
    {"config.json", USE_EARLY},
    {"tokenizer*", USE_IF_THERE},
    {"special_tokens_map.json", USE_IF_THERE},
    {"added_tokens.json", USE_IF_THERE},
    {"vocab*", USE_IF_THERE},
    {"merges.txt", USE_IF_THERE},
    {"*.model", USE_IF_THERE},
    {"*.tiktoken", USE_IF_THERE},
    {"chat_template.jinja", USE_IF_THERE},
    {"additional_chat_templates/*", USE_IF_THERE},
    {"zero_to_fp32.py", USE_NONE},
    {"training_args.bin", USE_NONE},    /* settings come from the command line; often left out */
    {"rng_state*.pth", USE_NONE},       /* random streams follow from seed and step */
    {"scheduler.pt", USE_IF_THERE},     /* without it the settings' learning rate counts */
    {"*.safetensors", USE_UNLESS_SHARDED},
    {"optimizer.pt", USE_LOAD},
    {"global_step*/*", USE_LOAD},
    {DCP_MODEL_FOLDER "/*", USE_LOAD},
    {DCP_OPTIM_FOLDER "/*", USE_LOAD},
};

static enum use use_of(const char *name, bool sharded)
{
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++)
        if (fnmatch(uses[i].glob, name, FNM_PATHNAME) == 0)
            return uses[i].use != USE_UNLESS_SHARDED ? uses[i].use
                   : sharded                         ? USE_NONE : USE_LOAD;
    return side_file_name(name) ? USE_NONE : USE_EARLY;     /* cards, licences, code */
}

static const char *name_of(const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "name"));

    return name ? name : "";
}

/* Whether shards are loaded instead of a model's own files. */
static bool is_sharded(const json_t *files)
{
    for (size_t i = 0; i < json_array_size(files); i++)
        if (strcmp(name_of(json_array_get(files, i)), "latest") == 0 ||
            strcmp(name_of(json_array_get(files, i)), DCP_MODEL_FOLDER "/.metadata") == 0)
            return true;
    return false;
}

/* Append a name to a list for people. */
static void list(char *text, size_t size, const char *name)
{
    size_t n = strlen(text);

    snprintf(text + n, size - n, "%s%s", n ? ", " : "", name);
}

int proof_first(const char *path, bool speak, struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    json_t *m = NULL, *files;
    char absent[512] = "";
    bool sharded;
    int rc = ckpt_path_dir(&dir, path, 0, err);

    if (rc == 0 && !ckpt_dir_has(dir, MANIFEST_NAME))
        rc = ckpt_fail_as(err, CKPT_ENOTFOUND, "unproved", "no %s: written by another program",
                          MANIFEST_NAME);
    if (rc == 0)
        rc = manifest_read(&m, dir, err);
    files = json_object_get(m, "files");
    sharded = is_sharded(files);
    for (size_t i = 0; rc == 0 && i < json_array_size(files); i++) {
        const json_t *row = json_array_get(files, i);
        enum use use = use_of(name_of(row), sharded);
        bool there = ckpt_file_path_is_kept(name_of(row)) && ckpt_dir_has(dir, name_of(row));

        if (!there && (use == USE_NONE || use == USE_IF_THERE))
            list(absent, sizeof absent, name_of(row));
        else if (use != USE_NONE)
            rc = manifest_check_file(row, dir, use == USE_LOAD ? MANIFEST_SIZES : MANIFEST_DIGESTS,
                                     err);
    }
    if (rc)
        ckpt_err_in(err, "%s", path);
    else if (speak && *absent)
        ckpt_log(CKPT_LOG_NOTE, "%s: continuing without %s, which resuming does not need", path,
                 absent);
    json_decref(m);
    ckpt_dir_close(dir);
    return rc;
}

struct proof {
    struct ckpt_dir *dir;
    const json_t   **row;       /* [n] files of this rank, largest first */
    size_t           n, next;   /* next: the first that no thread has taken */
    size_t           wrong;     /* the first in order that differs; n: none */
    pthread_mutex_t  lock;
    pthread_t        thread[MAX_THREADS];
    size_t           n_thread;
    char             path[4096];
    struct ckpt_err  err;
};

static void *work(void *ctx)
{
    struct proof *p = ctx;

    for (;;) {
        struct ckpt_err err = {0};
        size_t i;

        pthread_mutex_lock(&p->lock);
        i = p->wrong < p->n ? p->n : p->next++;
        pthread_mutex_unlock(&p->lock);
        if (i >= p->n)
            return NULL;
        if (manifest_check_file(p->row[i], p->dir, MANIFEST_DIGESTS, &err) == 0)
            continue;
        pthread_mutex_lock(&p->lock);
        if (i < p->wrong) {
            p->wrong = i;
            p->err = err;
        }
        pthread_mutex_unlock(&p->lock);
    }
}

static int by_size_down(const void *a, const void *b)
{
    json_int_t x = json_integer_value(json_object_get(*(const json_t *const *)a, "size"));
    json_int_t y = json_integer_value(json_object_get(*(const json_t *const *)b, "size"));

    return x < y ? 1 : x > y ? -1 : strcmp(name_of(*(const json_t *const *)a),
                                           name_of(*(const json_t *const *)b));
}

/* Distribute the loaded files by size: each goes to the rank with the fewest bytes so far. */
static int deal(struct proof *p, const json_t *files, int rank, int world_size,
                struct ckpt_err *err)
{
    size_t n = json_array_size(files), found = 0;
    json_int_t *bytes = ckpt_alloc((size_t)world_size, sizeof *bytes);
    bool sharded = is_sharded(files);

    p->row = ckpt_alloc(n + 1, sizeof *p->row);
    if (!p->row || !bytes) {
        ckpt_free(bytes);
        return ckpt_nomem(err, (n + 1) * sizeof *p->row);
    }
    for (size_t i = 0; i < n; i++)
        if (use_of(name_of(json_array_get(files, i)), sharded) == USE_LOAD)
            p->row[found++] = json_array_get(files, i);
    qsort(p->row, found, sizeof *p->row, by_size_down);
    for (size_t i = 0; i < found; i++) {
        int least = 0;

        for (int r = 1; r < world_size; r++)
            if (bytes[r] < bytes[least])
                least = r;
        bytes[least] += json_integer_value(json_object_get(p->row[i], "size")) + 1;
        if (least == rank)
            p->row[p->n++] = p->row[i];
    }
    ckpt_free(bytes);
    return 0;
}

int proof_begin(struct proof **out, const char *path, const json_t *manifest, int rank,
                int world_size, struct ckpt_err *err)
{
    struct proof *p = ckpt_alloc(1, sizeof *p);
    size_t wanted = world_size > 1 ? 1 : ckpt_pool_default(MAX_THREADS);
    int rc;

    *out = NULL;
    if (!p)
        return ckpt_nomem(err, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    snprintf(p->path, sizeof p->path, "%s", path);
    rc = ckpt_path_dir(&p->dir, path, 0, err);
    if (rc == 0)
        rc = deal(p, json_object_get(manifest, "files"), rank, world_size, err);
    p->wrong = p->n;
    if (wanted > p->n)
        wanted = p->n;
    for (; rc == 0 && p->n_thread < wanted; p->n_thread++)
        if (pthread_create(&p->thread[p->n_thread], NULL, work, p))
            break;
    if (rc == 0 && p->n_thread == 0)
        work(p);                        /* no thread could be started: verify before the load */
    *out = p;
    return rc;
}

int proof_end(struct proof *p, struct ckpt_err *err)
{
    int rc = 0;

    if (!p)
        return 0;
    for (size_t i = 0; i < p->n_thread; i++)
        pthread_join(p->thread[i], NULL);
    if (p->wrong < p->n) {
        *err = p->err;
        rc = ckpt_err_in(err, "%s", p->path);
    }
    ckpt_dir_close(p->dir);
    pthread_mutex_destroy(&p->lock);
    ckpt_free(p->row);
    ckpt_free(p);
    return rc;
}
