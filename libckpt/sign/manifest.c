/* sign/manifest - see manifest.h. */
#include "libckpt/sign/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/digest.h"
#include "libckpt/err.h"

#define STATEMENT  "https://in-toto.io/Statement/v1"
#define PREDICATE  "https://model_signing/signature/v1.0"
#define EARLY      "https://model_signing/Digests/v0.1"
#define MAX_ITEMS  1048576u
#define MAX_PATH   4096u

/* What the reference leaves out too: a repository adds and changes these by itself. */
static const char *const of_git[] = {".git", ".gitattributes", ".github", ".gitignore"};
/* Left out when signing in addition: what the Hub's client adds to a folder, the signature. */
static const char *const not_signed[] = {".cache", ".git", ".gitattributes", ".github",
                                         ".gitignore", "model.sig"};
#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static const struct { enum sign_hash hash; const char *name; size_t bytes; } hashes[] = {
    {SIGN_SHA256, "sha256", 32}, {SIGN_BLAKE2B, "blake2b", 64},
};

size_t sign_hash_bytes(enum sign_hash hash) { return hashes[hash].bytes; }

void sign_manifest_release(struct sign_manifest *m)
{
    ckpt_free(m->item);
    ckpt_arena_release(&m->arena);
    memset(m, 0, sizeof *m);
}

/* -- paths ------------------------------------------------------------------------------------ */

/* Parts joined by "/", none empty, "." or "..".  Hidden names are allowed: they can be signed. */
static bool is_clean(const char *path)
{
    if (strlen(path) >= MAX_PATH || !ckpt_utf8_valid(path, strlen(path)))
        return false;
    for (;; path++) {
        size_t n = strcspn(path, "/");

        if (n == 0 || n > 255 || (n == 1 && path[0] == '.') ||
            (n == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += n;
        if (!*path)
            return true;
    }
}

static bool is_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    return strncmp(path, folder, n) == 0 && (!path[n] || path[n] == '/');
}

bool sign_manifest_ignored(const struct sign_manifest *m, const char *path)
{
    for (size_t i = 0; i < N_OF(of_git); i++)
        if (is_below(path, of_git[i]))
            return true;
    for (size_t i = 0; i < m->n_ignore; i++)
        if (is_below(path, m->ignore[i]))
            return true;
    return false;
}

/* -- items ------------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
    const struct sign_item *x = a, *y = b;
    int c = strcmp(x->name, y->name);

    return c ? c : x->start < y->start ? -1 : x->start > y->start;
}

const struct sign_item *sign_manifest_find(const struct sign_manifest *m, const char *name)
{
    size_t low = 0, high = m->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (strcmp(m->item[mid].name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low < m->n && strcmp(m->item[low].name, name) == 0 ? &m->item[low] : NULL;
}

static int add(struct sign_manifest *m, const char *name, size_t len, struct ckpt_err *err)
{
    struct sign_item *item;

    if (m->n == MAX_ITEMS)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %u files", MAX_ITEMS);
    if (ckpt_reserve(&m->item, m->n, &m->cap, sizeof *m->item, err))
        return CKPT_ENOMEM;
    item = &m->item[m->n];
    *item = (struct sign_item){.name = ckpt_arena_strndup(&m->arena, name, len)};
    if (!item->name)
        return ckpt_nomem(err, len);
    if (!is_clean(item->name))
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "\"%.200s\" is no path that can be "
                            "signed: relative, without \".\" and \"..\", in UTF-8", item->name);
    m->n++;
    return 0;
}

int sign_manifest_add(struct sign_manifest *m, const char *name, const unsigned char digest[32],
                      struct ckpt_err *err)
{
    int rc = add(m, name, strlen(name), err);

    if (rc == 0)
        memcpy(m->item[m->n - 1].digest, digest, 32);
    return rc;
}

/* SHA-256 of all digests in the present order, as hex. */
static int root_of(char hex[CKPT_SHA256_HEX], const struct sign_manifest *m, struct ckpt_err *err)
{
    struct ckpt_sha256 *s = NULL;
    int rc = ckpt_sha256_new(&s, err);

    for (size_t i = 0; rc == 0 && i < m->n; i++)
        rc = ckpt_sha256_add(s, m->item[i].digest, sign_hash_bytes(m->hash), err);
    return ckpt_sha256_finish(hex, s, rc, err);
}

/* -- writing ---------------------------------------------------------------------------------- */

static json_t *resources_of(const struct sign_manifest *m)
{
    json_t *list = json_array();
    bool ok = list != NULL;

    for (size_t i = 0; ok && i < m->n; i++) {
        char hex[2 * SIGN_DIGEST_MAX + 1];

        ckpt_digest_hex(hex, m->item[i].digest, sign_hash_bytes(m->hash));
        ok = json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", m->item[i].name,
                                                   "algorithm", hashes[m->hash].name, "digest",
                                                   hex)) == 0;
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *ignored_of(const struct sign_manifest *m)
{
    const char *const *path = m->n_ignore ? m->ignore : not_signed;
    size_t n = m->n_ignore ? m->n_ignore : N_OF(not_signed);
    json_t *list = json_array();
    bool ok = list != NULL;

    for (size_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(list, json_string(path[i])) == 0;
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

int sign_manifest_write(struct ckpt_buf *out, const struct sign_manifest *m, struct ckpt_err *err)
{
    char root[CKPT_SHA256_HEX];
    json_t *all;
    int rc;

    if (m->n == 0)
        return ckpt_fail(err, CKPT_ENOTFOUND, "there is no file to sign");
    if ((rc = root_of(root, m, err)) != 0)
        return rc;
    all = json_pack("{s:s, s:[{s:s, s:{s:s}}], s:s, s:{s:{s:s, s:s, s:b, s:o}, s:o}}",
                    "_type", STATEMENT, "subject", "name", m->model, "digest", "sha256", root,
                    "predicateType", PREDICATE, "predicate", "serialization", "method", "files",
                    "hash_type", hashes[m->hash].name, "allow_symlinks", 0, "ignore_paths",
                    ignored_of(m), "resources", resources_of(m));
    rc = all ? ckpt_json_write(out, all, 0, false, err) : ckpt_nomem(err, 256 * m->n);
    json_decref(all);
    if (rc == 0 && !ckpt_buf_ok(out))
        rc = ckpt_fail(err, CKPT_ELIMIT, "the list of %zu files is longer than %zu bytes", m->n,
                       out->limit);
    return rc;
}

/* -- reading ---------------------------------------------------------------------------------- */

/* "sha256", or the reference's name of a hash over shards: "sha256-sharded-1000000000". */
static int parse_hash(enum sign_hash *out, const char *name, struct ckpt_err *err)
{
    for (size_t i = 0; i < N_OF(hashes); i++) {
        size_t n = strlen(hashes[i].name);

        if (strncmp(name, hashes[i].name, n) == 0 &&
            (!name[n] || strncmp(name + n, "-sharded-", 9) == 0)) {
            *out = hashes[i].hash;
            return 0;
        }
    }
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "the digests are of the kind \"%.40s\", sha256 and "
                     "blake2b are read", name);
}

static int parse_ignored(struct sign_manifest *m, const json_t *serialization, struct ckpt_err *err)
{
    json_t *list = json_object_get(serialization, "ignore_paths"), *path;
    size_t i;

    if (list && !json_is_array(list))
        return ckpt_fail(err, CKPT_EFORMAT, "ignore_paths is no array");
    m->ignore = ckpt_arena_alloc(&m->arena, json_array_size(list) + 1, sizeof *m->ignore);
    if (!m->ignore)
        return ckpt_nomem(err, json_array_size(list) * sizeof *m->ignore);
    json_array_foreach (list, i, path) {
        const char *text = json_string_value(path);

        if (!text)
            return ckpt_fail(err, CKPT_EFORMAT, "ignore_paths has what is no string");
        if (!is_clean(text))            /* the reference passes over these as well */
            continue;
        if (!(m->ignore[m->n_ignore++] = ckpt_arena_strndup(&m->arena, text, strlen(text))))
            return ckpt_nomem(err, strlen(text));
    }
    return 0;
}

/* The kind of list: what is hashed, and how. */
static int parse_kind(struct sign_manifest *m, const json_t *predicate, struct ckpt_err *err)
{
    const char *method, *hash;
    json_t *kind;
    int rc = ckpt_json_get(&kind, predicate, "serialization", JSON_OBJECT, err);

    rc = rc ? rc : ckpt_json_str(&method, kind, "method", err);
    rc = rc ? rc : ckpt_json_str(&hash, kind, "hash_type", err);
    rc = rc ? rc : parse_hash(&m->hash, hash, err);
    if (rc)
        return rc;
    m->shards = strcmp(method, "shards") == 0;
    if (!m->shards && strcmp(method, "files") != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "the method is \"%.40s\", files and shards are "
                         "read", method);
    return parse_ignored(m, kind, err);
}

/* "weights.bin:0:1000": the numbers from the end of a name; *len: bytes of the path before. */
static bool split_shard(struct sign_item *item, size_t *len, const char *name)
{
    const char *end = strrchr(name, ':'), *start = end;
    uint64_t value[2] = {0};

    while (start && start > name && start[-1] != ':')
        start--;
    if (!start || start - name < 2 || end == start || !end[1])
        return false;
    *len = (size_t)(start - 1 - name);
    for (int i = 0; i < 2; i++)
        for (const char *c = i ? end + 1 : start; *c && *c != ':'; c++)
            if (*c < '0' || *c > '9' || value[i] > (UINT64_MAX >> 1) / 10)
                return false;
            else
                value[i] = value[i] * 10 + (uint64_t)(*c - '0');
    item->start = value[0];
    item->end = value[1];
    return value[0] < value[1];
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool parse_hex(unsigned char *dst, const char *hex, size_t n)
{
    if (strlen(hex) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        dst[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static int parse_item(struct sign_manifest *m, const json_t *resource, struct ckpt_err *err)
{
    const char *name, *algorithm, *hex;
    struct sign_item part = {0};
    enum sign_hash hash;
    size_t len;
    int rc = ckpt_json_str(&name, resource, "name", err);

    rc = rc ? rc : ckpt_json_str(&algorithm, resource, "algorithm", err);
    rc = rc ? rc : ckpt_json_str(&hex, resource, "digest", err);
    rc = rc ? rc : parse_hash(&hash, algorithm, err);
    if (rc)
        return rc;
    len = strlen(name);
    if (m->shards && !split_shard(&part, &len, name))
        return ckpt_fail(err, CKPT_EFORMAT, "\"%.200s\" is not PATH:START:END", name);
    if (hash != m->hash || !parse_hex(part.digest, hex, sign_hash_bytes(hash)))
        return ckpt_fail(err, CKPT_EFORMAT, "%.200s: \"%.140s\" is no %s in hex", name, hex,
                         hashes[m->hash].name);
    if ((rc = add(m, name, len, err)) == 0) {
        part.name = m->item[m->n - 1].name;
        m->item[m->n - 1] = part;
    }
    return rc;
}

/* Sort the items; each name, or part of a file, is there once, and parts cover their file. */
static int order_items(struct sign_manifest *m, struct ckpt_err *err)
{
    if (m->n)
        qsort(m->item, m->n, sizeof *m->item, compare);
    for (size_t i = 0; i < m->n; i++) {
        const struct sign_item *x = &m->item[i];
        bool again = i > 0 && strcmp(x->name, x[-1].name) == 0;

        if (m->shards ? x->start != (again ? x[-1].end : 0) : again)
            return ckpt_fail(err, CKPT_EFORMAT, "%.200s: %s", x->name, m->shards
                             ? "its parts do not follow one another" : "is listed twice");
    }
    return 0;
}

/* What the name and the predicate of a statement are. */
static int parse_head(json_t **predicate, const json_t *statement, struct ckpt_err *err)
{
    const char *type, *kind;
    int rc = ckpt_json_str(&type, statement, "_type", err);

    rc = rc ? rc : ckpt_json_str(&kind, statement, "predicateType", err);
    if (rc)
        return rc;
    if (strcmp(kind, EARLY) == 0) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "the signature is of model-signing before 1.0");
        return ckpt_err_hint(err, "sign it again with model-signing 1.0 or later, or with "
                             "ckpt-push --sign");
    }
    if (strcmp(type, STATEMENT) != 0 || strcmp(kind, PREDICATE) != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "a statement \"%.80s\" of \"%.80s\" is no signed "
                         "model", type, kind);
    return ckpt_json_get(predicate, statement, "predicate", JSON_OBJECT, err);
}

/* The only subject: a name, and the digest of the digests. */
static int parse_subject(struct sign_manifest *m, const char **root, const json_t *statement,
                         struct ckpt_err *err)
{
    json_t *list, *subject, *digest;
    const char *name;
    int rc = ckpt_json_get(&list, statement, "subject", JSON_ARRAY, err);

    if (rc == 0 && json_array_size(list) != 1)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%zu subjects, one is wanted", json_array_size(list));
    if (rc)
        return rc;
    subject = json_array_get(list, 0);
    rc = ckpt_json_str_or(&name, subject, "name", "", err);
    rc = rc ? rc : ckpt_json_get(&digest, subject, "digest", JSON_OBJECT, err);
    rc = rc ? rc : ckpt_json_str(root, digest, "sha256", err);
    if (rc == 0 && !(m->model = ckpt_arena_strndup(&m->arena, name, strlen(name))))
        rc = ckpt_nomem(err, strlen(name));
    return rc;
}

static int parse(struct sign_manifest *m, const json_t *statement, struct ckpt_err *err)
{
    json_t *predicate, *list = NULL, *resource;
    char hex[CKPT_SHA256_HEX];
    const char *root;
    size_t i;
    int rc = parse_head(&predicate, statement, err);

    rc = rc ? rc : parse_subject(m, &root, statement, err);
    rc = rc ? rc : parse_kind(m, predicate, err);
    rc = rc ? rc : ckpt_json_get(&list, predicate, "resources", JSON_ARRAY, err);
    if (rc == 0 && json_array_size(list) == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "the signature covers no file");
    if (rc == 0)
        json_array_foreach (list, i, resource)
            if ((rc = parse_item(m, resource, err)) != 0)
                break;
    rc = rc ? rc : root_of(hex, m, err);
    if (rc == 0 && strcmp(hex, root) != 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "the digest of its list is %.64s, it says %.64s", hex,
                       root);
    return rc ? rc : order_items(m, err);
}

int sign_manifest_parse(struct sign_manifest *m, const char *text, size_t len, struct ckpt_err *err)
{
    json_t *statement;
    int rc;

    memset(m, 0, sizeof *m);
    rc = ckpt_json_parse(&statement, text, len, CKPT_JSON_STRICT, err);
    if (rc == 0) {
        rc = parse(m, statement, err);
        json_decref(statement);
    }
    return rc;
}
