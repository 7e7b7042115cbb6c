/* push/sign - see sign.h. */
#include "tools/push/sign.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/json.h"
#include "libckpt/base/pool.h"
#include "libckpt/base/secret.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/cache.h"
#include "libckpt/remote/cache/proof.h"
#include "libckpt/sign/folder.h"
#include "libckpt/sign/manifest.h"
#include "tools/cli.h"

#define NAME       "model.sig"
#define MAX_PHRASE 1024u
#define WORKERS    8

/* -- the key ---------------------------------------------------------------------------------- */

/* The first line of a file. */
static int read_phrase(char phrase[MAX_PHRASE], const char *path, struct ckpt_err *err)
{
    struct ckpt_file *file;
    size_t n;
    int rc = ckpt_file_open(&file, path, CKPT_FOLLOW, err);

    if (rc)
        return rc;
    n = ckpt_file_size(file) < MAX_PHRASE ? (size_t)ckpt_file_size(file) : MAX_PHRASE - 1;
    rc = ckpt_file_read_at(file, phrase, n, 0, err);
    ckpt_file_close(file);
    phrase[rc ? 0 : n] = '\0';
    phrase[strcspn(phrase, "\r\n")] = '\0';
    return rc;
}

static void warn_of_others(const char *path)
{
    struct stat st;

    if (stat(path, &st) == 0 && (st.st_mode & (S_IRGRP | S_IROTH)))
        ckpt_log(CKPT_LOG_WARNING, "%s: others can read this private key; chmod 600 forbids it",
                 path);
}

int push_sign_open(struct sign_key *k, const struct sign_want *w, struct ckpt_err *err)
{
    const char *given = getenv("CKPT_SIGN_PASSPHRASE");
    char phrase[MAX_PHRASE] = "";
    int rc = 0;

    memset(k, 0, sizeof *k);
    if (!w->key && (w->certificates || w->passphrase))
        return ckpt_fail(err, CKPT_EUSAGE, "--%s has an effect with --sign only",
                         w->certificates ? "sign-cert" : "sign-passphrase-file");
    if (!w->key)
        return 0;
    if (w->passphrase)
        rc = read_phrase(phrase, w->passphrase, err);
    if (w->passphrase || given)
        ckpt_secret_add(w->passphrase ? phrase : given);
    if (rc == 0)
        rc = sign_key_open(k, w->key, w->certificates, w->passphrase ? phrase : given, err);
    OPENSSL_cleanse(phrase, sizeof phrase);
    if (rc == CKPT_EREFUSED)
        ckpt_err_hint(err, "CKPT_SIGN_PASSPHRASE, or the file of --sign-passphrase-file, tells it");
    if (rc == 0)
        warn_of_others(w->key);
    return rc;
}

/* -- the list of files ------------------------------------------------------------------------ */

struct digests {
    struct push_plan *p;
    bool              follow;
    pthread_mutex_t   lock;             /* of the plan's arena */
};

static int digest(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct digests *d = ctx;
    struct push_file *f = &d->p->file[i];
    struct ckpt_file *file = NULL;
    uint64_t base = 0;
    int fd, rc;

    (void)worker;
    if (cli_stop)
        return cli_stopped(err);
    rc = push_plan_open(&file, d->p, i, d->follow, err);
    if (rc)
        return rc;
    fd = ckpt_file_fd(file, &base);
    pthread_mutex_lock(&d->lock);
    rc = fd >= 0 ? push_plan_pin(d->p, i, fd, err) : 0;
    pthread_mutex_unlock(&d->lock);
    if (rc == 0)
        rc = fd >= 0 && base == 0 ? cache_digest(f->oid, fd, false, err)
                                  : ckpt_sha256_file(f->oid, file, err);
    if (rc)
        ckpt_err_in(err, "%s", f->from);
    ckpt_file_close(file);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const struct push_file *const *x = a, *const *y = b;

    return strcmp((*x)->from, (*y)->from);
}

/* All files in the order of their names. */
static int list_files(struct sign_manifest *m, struct push_plan *p, struct ckpt_err *err)
{
    const struct push_file **file = ckpt_alloc(p->n, sizeof *file);
    int rc = file ? 0 : ckpt_nomem(err, p->n * sizeof *file);

    for (size_t i = 0; rc == 0 && i < p->n; i++)
        file[i] = &p->file[i];
    if (rc == 0)
        qsort(file, p->n, sizeof *file, by_name);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        unsigned char bytes[CKPT_SHA256_BYTES];

        for (size_t k = 0; k < sizeof bytes; k++) {
            char pair[3] = {file[i]->oid[2 * k], file[i]->oid[2 * k + 1], '\0'};

            bytes[k] = (unsigned char)strtoul(pair, NULL, 16);
        }
        rc = sign_manifest_add(m, file[i]->from, bytes, err);
    }
    ckpt_free(file);
    return rc;
}

/* The last component of the source: what the signature calls the model. */
static const char *name_of(struct push_plan *p)
{
    size_t n = strlen(p->source), from;

    while (n > 1 && p->source[n - 1] == '/')
        n--;
    for (from = n; from > 0 && p->source[from - 1] != '/'; from--)
        ;
    return strcmp(p->source, "-") == 0 || n == from
               ? "model" : ckpt_arena_strndup(&p->arena, p->source + from, n - from);
}

/* -- the signature ---------------------------------------------------------------------------- */

/* The remembered signature of a statement by this key, if it is one. */
static json_t *remembered(const char *key, const struct sign_key *k, const struct sign_bundle *b)
{
    struct ckpt_err ignored = {0};
    json_t *there = *key ? cache_list(key) : NULL;
    char *text = there ? json_dumps(there, JSON_COMPACT) : NULL;
    struct sign_bundle old = {0};
    bool good = text && sign_bundle_parse(&old, text, strlen(text), &ignored) == 0 &&
                old.payload.n == b->payload.n &&
                memcmp(old.payload.data, b->payload.data, b->payload.n) == 0 &&
                sign_key_check(&old, k->key, &ignored) == 0;

    sign_bundle_release(&old);
    free(text);
    if (good)
        return there;
    json_decref(there);
    return NULL;
}

/* What makes a signature the same: the key, the certificates, the statement. */
static void remember_by(char key[CACHE_KEY], const struct sign_key *k, const char *statement)
{
    unsigned char digest[CKPT_SHA256_BYTES];
    struct ckpt_err ignored = {0};
    struct ckpt_sha256 *s = NULL;
    char hex[2 * CKPT_SHA256_BYTES + 1];
    int rc = ckpt_sha256_new(&s, &ignored);

    rc = rc ? rc : ckpt_sha256_add(s, k->hint, sizeof k->hint, &ignored);
    for (int i = 0; rc == 0 && k->chain && i < sk_X509_num(k->chain); i++) {
        unsigned char md[EVP_MAX_MD_SIZE];
        unsigned n = 0;

        X509_digest(sk_X509_value(k->chain, i), EVP_sha256(), md, &n);
        rc = ckpt_sha256_add(s, md, n, &ignored);
    }
    rc = rc ? rc : ckpt_sha256_add(s, statement, strlen(statement), &ignored);
    rc = rc ? rc : ckpt_sha256_end(s, digest, &ignored);
    *key = '\0';
    if (rc == 0) {
        ckpt_digest_hex(hex, digest, sizeof digest);
        cache_key(key, "signature", hex);
    }
    ckpt_sha256_free(s);
}

/* The text of the file. */
static int make_signature(struct ckpt_buf *out, const struct sign_manifest *m,
                          const struct sign_key *k, struct ckpt_err *err)
{
    struct sign_bundle b = {0};
    struct ckpt_buf statement;
    char key[CACHE_KEY] = "";
    json_t *json = NULL;
    int rc;

    ckpt_buf_init(&statement, SIGN_TEXT_MAX);
    rc = sign_manifest_write(&statement, m, err);
    if (rc == 0 && !ckpt_buf_str(&statement))
        rc = ckpt_nomem(err, statement.len);
    b.payload = (struct sign_bytes){statement.data, statement.len};
    if (rc == 0) {
        remember_by(key, k, (const char *)statement.data);
        json = remembered(key, k, &b);
    }
    if (rc == 0 && !json) {
        rc = sign_key_sign(&b, k, err);
        if (rc == 0 && !(json = sign_bundle_json(&b)))
            rc = ckpt_nomem(err, 2 * statement.len);
        if (rc == 0 && *key)
            cache_keep_list(key, json);
    }
    if (rc == 0)
        rc = ckpt_json_write(out, json, 0, false, err);
    ckpt_buf_put(out, "\n", 1);
    if (rc == 0 && !ckpt_buf_ok(out))
        rc = ckpt_nomem(err, 2 * statement.len);
    json_decref(json);
    sign_bundle_release(&b);
    ckpt_buf_release(&statement);
    return rc;
}

int push_sign(struct push_plan *p, const struct sign_key *k, bool follow, struct ckpt_err *err)
{
    struct digests d = {.p = p, .follow = follow, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct sign_manifest m = {0};
    struct ckpt_buf text;
    int rc;

    push_plan_drop(p, NAME);            /* an older one does not cover what is published now */
    rc = ckpt_pool_run(ckpt_pool_default(WORKERS), p->n, digest, &d, err);
    ckpt_buf_init(&text, SIGN_BUNDLE_MAX);
    if (rc == 0 && !(m.model = name_of(p)))
        rc = ckpt_nomem(err, strlen(p->source));
    if (rc == 0)
        rc = list_files(&m, p, err);
    if (rc == 0)
        rc = make_signature(&text, &m, k, err);
    if (rc == 0)
        rc = push_plan_put(p, NAME, text.data, text.len, err);
    ckpt_buf_release(&text);
    sign_manifest_release(&m);
    return rc;
}
