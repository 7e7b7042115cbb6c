/*
 * fuzz_hub: what places answer, and addresses of the Hub.  Bytes that begin "hf://" are an address, those
 * that begin "<" lists of a bucket, of the parts of an upload, of a folder of WebDAV; others are a page of a
 * tree, an answer about a revision, and the index of a folder on the web.
 */
#include "libckpt/base/json.h"
#include "libckpt/remote/dav/dav.h"
#include "libckpt/remote/hub.h"
#include "libckpt/remote/s3/s3.h"
#include "libckpt/remote/s3/s3_write.h"
#include "libckpt/remote/web.h"
#include "tests/fuzz/lib/target.h"

static void use(struct tree *t, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_entry *e;
    struct ckpt_dir *dir;
    size_t n;

    if (tree_ready(t, err) == 0 && tree_open_dir(&dir, t, "", "x", 0, err) == 0) {
        if (ckpt_dir_list(dir, &a, &e, &n, err) == 0)
            for (size_t i = 0; i < n; i++)
                must(ckpt_file_name_is_clean(e[i].name) &&
                     (i == 0 || strcmp(e[i - 1].name, e[i].name) != 0));
        ckpt_dir_close(dir);
        ckpt_arena_release(&a);
    }
}

static int add_entry(void *ctx, const struct dav_entry *e, struct ckpt_err *err)
{
    must(!strchr(e->path, '/'));
    return e->is_folder ? 0 : tree_add(ctx, e->path, e->size, "", err);
}

static void read_parts(const char *text, struct ckpt_err *err)
{
    static struct s3_part part[8];
    unsigned long long next = 3;

    memset(part, 0, sizeof part);
    if (s3_read_parts(part, 8, text, "s3://b/m", &next, err) == 0)
        must(next == 0 || next > 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    struct hub_place p;
    struct tree *t;
    char commit[41];
    json_t *json;

    if (size > 5 && memcmp(data, "hf://", 5) == 0 && size < 6000) {
        char *url = (char *)copy_of(data, size);

        if (hub_parse(&p, url, &err) == 0)
            must(p.id[0] && p.revision[0] && !strstr(p.id, ".."));
        free(url);
        return 0;
    }
    if (size > 0 && data[0] == '<' && size < 65536) {
        char *text = (char *)copy_of(data, size), next[1100];

        if (tree_new(&t, "s3://b/m", &err) == 0) {
            if (s3_read_page(t, text, "m/", next, &err) == 0)
                use(t, &err);
            tree_free(t);
        }
        ckpt_err_clear(&err);
        read_parts(text, &err);
        ckpt_err_clear(&err);
        if (tree_new(&t, "dav://h/m", &err) == 0) {
            if (dav_read_page(text, "http://h/m/", "m", add_entry, t, &err) == 0)
                use(t, &err);
            tree_free(t);
        }
        free(text);
        return 0;
    }
    if (ckpt_json_parse(&json, (const char *)data, size, CKPT_JSON_STRICT, &err))
        return 0;
    (void)hub_read_commit(commit, json, &err);
    for (int i = 0; i < 2; i++)
        if (tree_new(&t, "hf://o/n", &err) == 0) {
            if ((i ? web_read_index(t, json, &err) : hub_read_page(t, json, &err)) == 0)
                use(t, &err);
            tree_free(t);
        }
    json_decref(json);
    return 0;
}
