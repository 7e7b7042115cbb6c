/* inspect - which of the rooms beside it answers for a path; see inspect.h. */
#include "tools/inspect/inspect.h"

#include <string.h>
#include <sys/stat.h>

#include "formats/formats.h"
#include "libckpt/json.h"
#include "trainer/manifest.h"

static bool ends_in(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && strcmp(s + n - k, tail) == 0;
}

static int open_source(struct ckpt_source **out, const struct inspect_want *w,
                       const struct cli *cli, const char *path, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.tag = w->tag, .optimizer = w->optimizer,
                                  .follow = cli->follow};

    return ckpt_open(out, path, &opts, err);
}

/* A JSON file: a run's state, or shown as it is. */
static int json_file(struct out *o, const struct inspect_want *w, bool for_programs,
                     struct ckpt_file *file, struct ckpt_err *err)
{
    json_t *json;
    int rc = ckpt_json_read(&json, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);

    if (rc)
        return rc;
    if (json_object_get(json, "log_history") && json_object_get(json, "global_step")) {
        rc = inspect_trainer_state(o, json, w->curve, for_programs);
    } else {
        out_str(o, "format", "format", "json");
        out_json(o, "value", "value", json);
    }
    json_decref(json);
    return rc;
}

/* A checkpoint directory: its parts first, with the step its state tells of. */
static int run_directory(struct out *o, const char *path, struct ckpt_err *err)
{
    struct ckpt_err ignored = {0};
    struct ckpt_dir *dir;
    struct ckpt_file *f = NULL;
    json_t *state = NULL;
    int rc = ckpt_dir_open(&dir, path, CKPT_FOLLOW, err);

    if (rc)
        return rc;
    if (ckpt_dir_has(dir, "trainer_state.json")) {
        if (ckpt_file_open_at(&f, dir, "trainer_state.json", &ignored) == 0 &&
            ckpt_json_read(&state, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, &ignored) == 0)
            out_int(o, "global_step", "step",
                    json_integer_value(json_object_get(state, "global_step")));
        json_decref(state);
        ckpt_file_close(f);
        rc = inspect_run(o, dir, err);
    }
    ckpt_dir_close(dir);
    return rc;
}

/* Everything is there and reads: the manifest's digests where there is one, else every tensor. */
static int verify(struct out *o, struct ckpt_source *src, const char *path, struct ckpt_err *err)
{
    char hex[CKPT_SHA256_HEX];
    int rc = manifest_check(NULL, path, MANIFEST_DIGESTS, err);

    if (rc == 0) {
        out_str(o, "verified", "verified", "every file has the digest its manifest tells");
        return 0;
    }
    if (rc != CKPT_ENOTFOUND)
        return rc;
    ckpt_err_clear(err);
    for (size_t i = 0; i < ckpt_source_count(src); i++)
        if (tensor_digest(hex, src, i, err))
            return err->code;
    out_str(o, "verified", "verified", "every tensor reads to its end");
    return 0;
}

static int compare(struct out *o, const struct inspect_want *w, const struct cli *cli,
                   struct ckpt_source *src, bool *differ, struct ckpt_err *err)
{
    struct ckpt_source *other;
    int rc = open_source(&other, w, cli, w->compare, err);

    if (rc)
        return rc;
    out_str(o, "compared_with", "compared with", w->compare);
    rc = inspect_compare(o, src, other, differ, err);
    ckpt_source_close(other);
    return rc;
}

static int source_path(struct out *o, const struct inspect_want *w, struct cli *cli,
                       const char *path, bool *differ, struct ckpt_err *err)
{
    struct ckpt_source *src;
    struct stat st;
    int rc = open_source(&src, w, cli, path, err);

    if (rc)
        return rc;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        rc = run_directory(o, path, err);
    if (rc == 0 && w->compare)
        rc = compare(o, w, cli, src, differ, err);
    else if (rc == 0 && w->tensor)
        rc = inspect_tensor(o, src, w->tensor, err);
    else if (rc == 0)
        rc = inspect_source(o, w, src, err);
    if (rc == 0 && w->verify)
        rc = verify(o, src, path, err);
    ckpt_source_close(src);
    return rc;
}

/* A file that is looked at as something other than a list of tensors; 1 when it is not one. */
static int special_file(struct out *o, const struct inspect_want *w, const struct cli *cli,
                        const char *path, struct ckpt_err *err)
{
    bool json = ends_in(path, ".json");
    bool tree = w->tree || ends_in(path, ".pth") || ends_in(path, "scheduler.pt") ||
                ends_in(path, "training_args.bin");
    struct ckpt_file *file;
    struct stat st;
    int rc;

    if ((!json && !tree) || stat(path, &st) || !S_ISREG(st.st_mode))
        return 1;
    if (ckpt_file_open(&file, path, CKPT_FOLLOW, err))
        return err->code;
    if (!json)
        return inspect_tree(o, file, err);      /* takes the file */
    rc = json_file(o, w, cli->json, file, err);
    ckpt_file_close(file);
    return rc;
}

int inspect_path(const struct inspect_want *w, struct cli *cli, const char *path,
                 struct ckpt_err *err)
{
    bool differ = false;
    struct out *o;
    int rc;

    if (out_new(&o, cli->json, err))
        return err->code;
    out_str(o, "path", "path", path);
    rc = special_file(o, w, cli, path, err);
    if (rc == 1)
        rc = source_path(o, w, cli, path, &differ, err);
    if (rc == 0)
        return out_end(o, err) ? err->code
               : differ ? ckpt_fail(err, CKPT_ENO, "%s and %s differ", path, w->compare) : 0;
    out_abort(o);
    return rc;
}
