/* peft/out - see peft/out.h. */
#include "formats/peft/out.h"

#include <string.h>

#include "formats/hf/safetensors_out.h"
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

static int put_config(struct sink *s, const json_t *config, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc;

    ckpt_buf_init(&b, MAX_CONFIG);
    rc = ckpt_json_write(&b, config, 2, true, err);
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0)
        rc = ckpt_outdir_put(s->dir, "adapter_config.json", b.data, b.len, err);
    ckpt_buf_release(&b);
    return rc;
}

static int put_weights(struct sink *s, const json_t *metadata, struct ckpt_err *err)
{
    size_t *pick = ckpt_alloc(s->list->n, sizeof *pick);
    struct ckpt_out *out;
    int rc = pick ? ckpt_outdir_file(&out, s->dir, "adapter_model.safetensors", err)
                  : ckpt_nomem(err, s->list->n * sizeof *pick);

    for (size_t i = 0; rc == 0 && i < s->list->n; i++)
        pick[i] = i;
    if (rc == 0)
        rc = safetensors_begin(&s->file, out, s->list, pick, s->list->n, metadata, NULL,
                               err);
    ckpt_free(pick);
    return rc;
}

int peft_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    const json_t *config = json_object_get(opts->info, "adapter_config");
    struct sink *s = ckpt_alloc(1, sizeof *s);
    int rc = s ? 0 : ckpt_nomem(err, sizeof *s);

    *out = NULL;
    if (rc == 0 && opts->stream_fd > 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "an adapter directory is not written to a stream");
    if (rc == 0)
        rc = check_list(tensors, config, err);
    if (rc == 0) {
        s->list = tensors;
        s->record = opts->record;
        rc = ckpt_outdir_create(&s->dir, path, err);
    }
    if (rc == 0)
        rc = put_config(s, config, err);
    if (rc == 0)
        rc = put_weights(s, opts->metadata, err);
    if (rc == 0 && opts->run)
        rc = side_files_put_states(s->dir, opts->run, err);
    if (rc) {
        if (s)
            sink_abort(s);
        return rc;
    }
    return ckpt_sink_new(out, &sink_ops, s, tensors, false, err);
}
