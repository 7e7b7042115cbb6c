/* s3 - see s3.h. */
#include "libckpt/remote/s3/s3.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/xml.h"

#define MAX_PAGES  10000
#define NEXT_BYTES 1100
#define KEY_BYTES  3400           /* 1024 bytes, each as %XX */

static int locate(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                  struct ckpt_file **have, struct ckpt_err *err)
{
    struct s3 *s = t->self;
    char key[5300];

    *have = NULL;
    snprintf(key, sizeof key, "%s%s", s->prefix, f->path);
    return s3_place_address(url, s, key, NULL, err);
}

/* -- lists ------------------------------------------------------------------------------------ */

static int bad_page(struct tree *t, const char *what, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EPROTOCOL, "%s: %s", t->name, what);
}

/* Parse one <Contents>. */
static int read_object(struct tree *t, struct xml object, const char *prefix, bool escaped,
                       struct ckpt_err *err)
{
    unsigned long long n;
    char key[KEY_BYTES];

    if (!xml_text(key, sizeof key, object, "Key"))
        return bad_page(t, "lists an object without a key", err);
    if (!xml_number(&n, object, "Size"))
        return bad_page(t, "lists an object without a size", err);
    for (char *p = key; escaped && *p; p++)
        *p = *p == '+' ? ' ' : *p;
    if (escaped && !http_unescape(key))
        return bad_page(t, "lists a key that cannot be read", err);
    if (strncmp(key, prefix, strlen(prefix)) != 0 || !key[strlen(prefix)] ||
        key[strlen(key) - 1] == '/')
        return 0;               /* an empty object that stands for a folder, as some tools create */
    return tree_add(t, key + strlen(prefix), n, "", err);
}

int s3_read_page(struct tree *t, const char *text, const char *prefix, char next[1100],
                 struct ckpt_err *err)
{
    struct xml page = xml_of(text), list, object, at;
    char word[8] = "";
    bool escaped, more;
    int rc;

    next[0] = '\0';
    if (!xml_next(&list, &page, "ListBucketResult"))
        return bad_page(t, "the answer is no list of a bucket", err);
    escaped = xml_text(word, sizeof word, list, "EncodingType") && strcmp(word, "url") == 0;
    more = xml_text(word, sizeof word, list, "IsTruncated") && strcmp(word, "true") == 0;
    for (at = list; xml_next(&object, &at, "Contents");)
        if ((rc = read_object(t, object, prefix, escaped, err)) != 0)
            return rc;
    if (xml_next(&object, &at, "Key"))
        return bad_page(t, "the list breaks off", err);
    if (more && (!xml_text(next, NEXT_BYTES, list, "NextContinuationToken") || !*next))
        return bad_page(t, "the list's continuation token cannot be used", err);
    return 0;
}

int s3_list(struct tree *t, struct s3 *s, const char *prefix, struct ckpt_err *err)
{
    char *query = ckpt_alloc(1, HTTP_URL), below[3400], next[NEXT_BYTES] = "", token[3400];
    int rc = query ? 0 : ckpt_nomem(err, HTTP_URL);

    if (rc == 0 && !http_escape(below, sizeof below, prefix, ""))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the key is too long", t->name);
    for (int pages = 0; rc == 0; pages++) {
        struct http_answer a;
        char *text = NULL;

        if (pages == MAX_PAGES)
            rc = bad_page(t, "the list does not end", err);
        else if (!http_escape(token, sizeof token, next, ""))
            rc = bad_page(t, "the list's continuation token cannot be used", err);
        else
            snprintf(query, HTTP_URL, "%s%s%sencoding-type=url&list-type=2&prefix=%s",
                     *next ? "continuation-token=" : "", token, *next ? "&" : "", below);
        rc = rc ? rc : s3_place_ask(&text, s, &(struct s3_call){.name = t->name, .key = "",
                                                                .query = query}, &a, err);
        rc = rc ? rc : s3_read_page(t, text, prefix, next, err);
        ckpt_free(text);
        if (!*next)
            break;
    }
    ckpt_free(query);
    return rc ? rc : tree_ready(t, err);
}

int s3_open(struct tree **tree, struct range **object, const char *url, struct ckpt_err *err)
{
    struct s3 *s = ckpt_alloc(1, sizeof *s);
    struct tree *t = NULL;
    const char *key = "";
    char *at = NULL;
    size_t n = strlen(url);
    int rc = s ? 0 : ckpt_nomem(err, sizeof *s);

    *tree = NULL;
    *object = NULL;
    if (rc == 0)
        rc = s3_place_open(s, &key, url, err);
    if (rc == 0 && strlen(key) + 2 > sizeof s->prefix)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%.200s: a key of %zu bytes", url, strlen(key));
    if (rc == 0)
        rc = tree_new(&t, url, err);
    if (rc == 0) {
        while (n > 0 && t->name[n - 1] == '/')
            t->name[--n] = '\0';
        snprintf(s->prefix, sizeof s->prefix, "%s%s", key,
                 *key && key[strlen(key) - 1] != '/' ? "/" : "");
        t->self = s;
        t->locate = locate;
        t->auth = s3_place_auth(s);
        rc = s3_list(t, s, s->prefix, err);
    }
    if (rc == 0 && t->n > 0) {
        *tree = t;
        return 0;
    }
    if (rc == 0 && (at = ckpt_alloc(1, HTTP_URL)) == NULL)
        rc = ckpt_nomem(err, HTTP_URL);
    if (rc == 0 && (!*key || key[strlen(key) - 1] == '/'))
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%.300s: nothing lies there", url);
    if (rc == 0)
        rc = s3_place_address(at, s, key, NULL, err);
    if (rc == 0)
        rc = range_new(object, &(struct range_at){.name = url, .url = at, .auth = t->auth,
                                                  .size = FIELD_NONE, .digest = ""}, err);
    ckpt_free(at);
    tree_free(t);
    if (s && !(*object && s->is_signed)) {      /* an object keeps only what signing needs */
        s3_place_close(s);
        ckpt_free(s);
    }
    return rc;
}
