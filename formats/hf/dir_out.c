/* hf/dir_out - see hf/dir_out.h. */
#include "formats/hf/dir_out.h"

#include <stdio.h>
#include <string.h>

#include "formats/hf/config_text.h"
#include "formats/hf/safetensors_out.h"
#include "formats/hf/side_files.h"
#include "libckpt/base/json.h"
#include "libckpt/split.h"

struct sink {
    const struct ckpt_tensors *list;
    struct ckpt_outdir        *dir;
    size_t                    *shard_of, *place;    /* [n] shard, and index in its pick */
    struct safetensors_file  **file;                /* [n_shard] */
    size_t                     n_shard;
    const char                *record;              /* see create's opts */
};

static uint64_t offset_of(const struct sink *s, size_t i, int64_t start)
{
    return safetensors_offset(s->file[s->shard_of[i]], s->place[i]) +
           (uint64_t)start * ckpt_dtype_size(s->list->item[i].dtype);
}

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    struct sink *s = self;

    return ckpt_out_write_at(safetensors_out_file(s->file[s->shard_of[i]]), src,
                             (size_t)count * ckpt_dtype_size(s->list->item[i].dtype),
                             offset_of(s, i, start), err);
}

static bool sink_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_sink_extent *out)
{
    struct sink *s = self;

    (void)count;
    out->out = safetensors_out_file(s->file[s->shard_of[i]]);
    out->offset = offset_of(s, i, start);
    return true;
}

static void sink_abort(void *self)
{
    struct sink *s = self;

    for (size_t i = 0; s->file && i < s->n_shard; i++)
        safetensors_abort(s->file[i]);
    ckpt_outdir_abort(s->dir);
    ckpt_free(s->file);
    ckpt_free(s->shard_of);
    ckpt_free(s->place);
    ckpt_free(s);
}

static void shard_name(char *name, size_t size, size_t i, size_t n)
{
    if (n == 1)
        snprintf(name, size, "model.safetensors");
    else
        snprintf(name, size, "model-%05zu-of-%05zu.safetensors", i + 1, n);
}

/* model.safetensors.index.json, as huggingface_hub writes it. */
static int put_index(struct sink *s, struct ckpt_err *err)
{
    json_t *map = json_object(), *index;
    uint64_t total = 0;
    int64_t params = 0;
    struct ckpt_buf b;
    char name[64];
    int rc = map ? 0 : ckpt_nomem(err, 64);

    for (size_t i = 0; rc == 0 && i < s->list->n; i++) {
        shard_name(name, sizeof name, s->shard_of[i], s->n_shard);
        if (json_object_set_new(map, s->list->item[i].name, json_string(name)))
            rc = ckpt_nomem(err, 64);
        total += ckpt_tensor_bytes(&s->list->item[i]);
        params += s->list->item[i].numel;
    }
    index = json_pack("{s:{s:I,s:I},s:o}", "metadata", "total_parameters", (json_int_t)params,
                      "total_size", (json_int_t)total, "weight_map", map);
    ckpt_buf_init(&b, (size_t)1 << 30);
    if (rc == 0)
        rc = ckpt_json_write(&b, index, 2, true, err);
    ckpt_buf_put_u8(&b, '\n');
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0)
        rc = ckpt_outdir_put(s->dir, "model.safetensors.index.json", b.data, b.len, err);
    ckpt_buf_release(&b);
    json_decref(index);
    return rc;
}

static int sink_commit(void *self, struct ckpt_err *err)
{
    struct sink *s = self;
    struct ckpt_outdir *dir;
    int rc = 0;

    for (size_t i = 0; i < s->n_shard; i++) {
        struct safetensors_file *f = s->file[i];

        s->file[i] = NULL;
        if (rc == 0)
            rc = safetensors_commit(f, err);
        else
            safetensors_abort(f);
    }
    if (rc == 0 && s->n_shard > 1)
        rc = put_index(s, err);
    if (rc == 0 && s->record)
        rc = ckpt_outdir_put(s->dir, CKPT_RECORD_FILE, s->record, strlen(s->record), err);
    if (rc == 0) {
        dir = s->dir;
        s->dir = NULL;
        rc = ckpt_outdir_commit(dir, err);
    }
    sink_abort(s);
    return rc;
}

static const struct ckpt_sink_ops sink_ops = {
    .format = "hf", .write = sink_write, .locate = sink_locate, .commit = sink_commit,
    .abort = sink_abort,
};

/* The floating dtype that most elements have, as torch names it; NULL when there is none. */
static const char *main_dtype(const struct ckpt_tensors *list)
{
    int64_t count[CKPT_DTYPE_COUNT] = {0};
    int best = CKPT_DTYPE_NONE;

    for (size_t i = 0; i < list->n; i++)
        if (ckpt_dtype_class(list->item[i].dtype) == CKPT_CLASS_FLOAT)
            count[list->item[i].dtype] += list->item[i].numel;
    for (int t = 1; t < CKPT_DTYPE_COUNT; t++)
        if (count[t] > count[best])
            best = t;
    return best ? ckpt_dtype_torch_name((enum ckpt_dtype)best) : NULL;
}

/* config.json with the dtype it now has; everything else as it was, byte for byte. */
static int put_config(struct sink *s, const struct ckpt_extra *e, struct ckpt_err *err)
{
    const char *dtype = main_dtype(s->list);
    struct ckpt_arena a = {0};
    struct ckpt_buf b;
    char *text;
    size_t n;
    int rc = ckpt_file_slurp(e->file, &a, CKPT_JSON_MAX_BYTES, &text, &n, err);

    ckpt_buf_init(&b, SIZE_MAX);
    if (rc == 0 && dtype && config_set_dtype(&b, text, n, dtype, err))
        rc = ckpt_err_in(err, "%s", e->name);
    if (rc == 0)
        rc = dtype ? ckpt_outdir_put(s->dir, e->name, b.data, b.len, err)
                   : ckpt_outdir_put(s->dir, e->name, text, n, err);
    ckpt_buf_release(&b);
    ckpt_arena_release(&a);
    return rc;
}

/*
 * Begin every shard's file; s->place gets each tensor's index in its shard.  Tensors are sorted
 * into shards by counting: their number and that of shards are the input's.
 */
static int begin_shards(struct sink *s, const json_t *metadata, struct ckpt_err *err)
{
    size_t *pick = ckpt_alloc(s->list->n, sizeof *pick);
    size_t *end = ckpt_alloc(s->n_shard + 1, sizeof *end);      /* of each shard in pick */
    int rc = pick && end ? 0 : ckpt_nomem(err, s->list->n * sizeof *pick);

    for (size_t i = 0; rc == 0 && i < s->list->n; i++)
        s->place[i] = end[s->shard_of[i]]++;
    for (size_t shard = 1; rc == 0 && shard < s->n_shard; shard++)
        end[shard] += end[shard - 1];
    for (size_t i = 0; rc == 0 && i < s->list->n; i++)
        pick[(s->shard_of[i] ? end[s->shard_of[i] - 1] : 0) + s->place[i]] = i;
    for (size_t shard = 0; rc == 0 && shard < s->n_shard; shard++) {
        size_t first = shard ? end[shard - 1] : 0;
        struct ckpt_out *out;
        char name[64];

        shard_name(name, sizeof name, shard, s->n_shard);
        rc = ckpt_outdir_file(&out, s->dir, name, err);
        if (rc == 0)
            rc = safetensors_begin(&s->file[shard], out, s->list, pick + first,
                                   end[shard] - first, metadata, NULL, err);
    }
    ckpt_free(pick);
    ckpt_free(end);
    return rc;
}

int hf_dir_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                  const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct sink *s = ckpt_alloc(1, sizeof *s);
    int rc = 0;

    *out = NULL;
    if (!s)
        return ckpt_nomem(err, sizeof *s);
    if (opts->stream_fd > 0) {
        ckpt_free(s);
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "a model directory is not written to a stream");
    }
    s->list = tensors;
    s->record = opts->record;
    s->shard_of = ckpt_alloc(tensors->n, sizeof *s->shard_of);
    s->place = ckpt_alloc(tensors->n, sizeof *s->place);
    if (!s->shard_of || !s->place)
        rc = ckpt_nomem(err, tensors->n * sizeof *s->place);
    if (rc == 0) {
        s->n_shard = ckpt_split(s->shard_of, tensors, opts->max_shard_bytes
                                                          ? opts->max_shard_bytes
                                                          : CKPT_DEFAULT_SHARD_BYTES);
        s->file = ckpt_alloc(s->n_shard, sizeof *s->file);
        rc = s->file ? ckpt_outdir_create(&s->dir, path, err) : ckpt_nomem(err, s->n_shard);
    }
    if (rc == 0)
        rc = begin_shards(s, opts->metadata, err);
    for (size_t i = 0; rc == 0 && i < opts->n_extra; i++)
        rc = strcmp(opts->extra[i].name, "config.json") == 0
                 ? put_config(s, &opts->extra[i], err)
                 : side_file_put(s->dir, &opts->extra[i], err);
    if (rc == 0 && opts->run)
        rc = side_files_put_states(s->dir, opts->run, err);
    if (rc) {
        sink_abort(s);
        return rc;
    }
    return ckpt_sink_new(out, &sink_ops, s, tensors, false, err);
}
