/* peft/out - see peft/out.h. */
#include "formats/peft/out.h"

#include <string.h>

#include "formats/hf/dir_out.h"
#include "formats/hf/side_files.h"
#include "libckpt/base/json.h"

#define MAX_CONFIG ((size_t)64 << 20)

struct sink {
    const struct ckpt_tensors *list;
    struct ckpt_outdir        *dir;
    struct safetensors_file   *file;
    const char                *record;
};

static uint64_t offset_of(const struct sink *s, size_t i, int64_t start)
{
    return safetensors_offset(s->file, i) +
           (uint64_t)start * ckpt_dtype_size(s->list->item[i].dtype);
}

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    struct sink *s = self;

    return ckpt_out_write_at(safetensors_out_file(s->file), src,
                             (size_t)count * ckpt_dtype_size(s->list->item[i].dtype),
                             offset_of(s, i, start), err);
}

static bool sink_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_sink_extent *out)
{
    struct sink *s = self;

    (void)count;
    out->out = safetensors_out_file(s->file);
    out->offset = offset_of(s, i, start);
    return true;
}

static void sink_abort(void *self)
{
    struct sink *s = self;

    safetensors_abort(s->file);
    ckpt_outdir_abort(s->dir);
    ckpt_free(s);
}

static int sink_commit(void *self, struct ckpt_err *err)
{
    struct sink *s = self;
    struct safetensors_file *f = s->file;
    struct ckpt_outdir *dir = s->dir;
    int rc;

    s->file = NULL;
    rc = safetensors_commit(f, err);
    if (rc == 0 && s->record)
        rc = ckpt_outdir_put(dir, CKPT_RECORD_FILE, s->record, strlen(s->record), err);
    if (rc == 0) {
        s->dir = NULL;
        rc = ckpt_outdir_commit(dir, err);
    }
    sink_abort(s);
    return rc;
}

static const struct ckpt_sink_ops sink_ops = {
    .format = "peft", .write = sink_write, .locate = sink_locate, .commit = sink_commit,
    .abort = sink_abort,
};

/* PEFT finds its tensors by these names. */
static int check_list(const struct ckpt_tensors *list, const json_t *config, struct ckpt_err *err)
{
    static const char prefix[] = "base_model.model.";

    if (!json_is_object(config))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "these tensors are no adapter's: there is no adapter_config.json");
    for (size_t i = 0; i < list->n; i++)
        if (strncmp(list->item[i].name, prefix, sizeof prefix - 1) != 0)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: an adapter's tensors begin with %s",
                             list->item[i].name, prefix);
    return 0;
}

static int plan(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct hf_shards *s = self;
    int rc = check_list(s->base.list, json_object_get(opts->info, "adapter_config"), err);

    return rc ? rc : hf_shards_plan(s, "adapter_model", UINT64_MAX, err);
}

static int put_config(struct ckpt_outdir *dir, const json_t *config, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc;

    ckpt_buf_init(&b, MAX_CONFIG);
    rc = ckpt_json_write(&b, config, 2, true, err);
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0)
        rc = ckpt_outdir_put(dir, "adapter_config.json", b.data, b.len, err);
    ckpt_buf_release(&b);
    return rc;
}

static int begin(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct hf_shards *s = self;
    int rc = put_config(s->base.dir, json_object_get(opts->info, "adapter_config"), err);

    if (rc == 0)
        rc = hf_shards_begin(s, opts->metadata, err);
    return rc || !opts->run ? rc : side_files_put_states(s->base.dir, opts->run, err);
}

/* A model's side files are not the adapter's. */
static int leave_extra(void *self, const struct ckpt_extra *e, struct ckpt_err *err)
{
    (void)self;
    (void)e;
    (void)err;
    return 0;
}

static const struct dir_sink_ops dir_ops = {
    .title = "an adapter directory", .size = sizeof(struct hf_shards), .plan = plan,
    .begin = begin, .put_extra = leave_extra, .locate = hf_shards_locate,
    .finish = hf_shards_finish, .release = hf_shards_release,
};

int peft_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    return dir_sink_create(out, &dir_ops, path, tensors, opts, err);
}
