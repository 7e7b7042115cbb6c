/* hf/dir_out - see hf/dir_out.h. */
#include "formats/hf/dir_out.h"

#include <stdio.h>
#include <string.h>

#include "formats/hf/config_text.h"
#include "formats/hf/safetensors_out.h"
#include "formats/hf/side_files.h"
#include "libckpt/base/json.h"
#include "libckpt/split.h"

/* NAME.safetensors, or NAME-00001-of-00003.safetensors. */
static void shard_name(char *name, size_t size, const struct hf_shards *s, size_t i)
{
    if (s->n == 1)
        snprintf(name, size, "%s.safetensors", s->name);
    else
        snprintf(name, size, "%s-%05zu-of-%05zu.safetensors", s->name, i + 1, s->n);
}

int hf_shards_plan(struct hf_shards *s, const char *name, uint64_t max_bytes,
                   struct ckpt_err *err)
{
    size_t n = s->base.list->n;

    s->name = name;
    s->shard_of = ckpt_alloc(n, sizeof *s->shard_of);
    s->place = ckpt_alloc(n, sizeof *s->place);
    if (!s->shard_of || !s->place)
        return ckpt_nomem(err, n * sizeof *s->place);
    s->n = ckpt_split(s->shard_of, s->base.list, max_bytes);
    s->file = ckpt_alloc(s->n, sizeof *s->file);
    return s->file ? safetensors_check(s->base.list, err)
                   : ckpt_nomem(err, s->n * sizeof *s->file);
}

/*
 * Set s->place to each tensor's index in its shard.  A counting sort: the numbers of tensors and
 * shards come from the input.
 */
int hf_shards_begin(struct hf_shards *s, const json_t *metadata, struct ckpt_err *err)
{
    const struct ckpt_tensors *list = s->base.list;
    size_t *pick = ckpt_alloc(list->n, sizeof *pick);
    size_t *end = ckpt_alloc(s->n + 1, sizeof *end);            /* end of each shard in pick */
    int rc = pick && end ? 0 : ckpt_nomem(err, list->n * sizeof *pick);

    for (size_t i = 0; rc == 0 && i < list->n; i++)
        s->place[i] = end[s->shard_of[i]]++;
    for (size_t shard = 1; rc == 0 && shard < s->n; shard++)
        end[shard] += end[shard - 1];
    for (size_t i = 0; rc == 0 && i < list->n; i++)
        pick[(s->shard_of[i] ? end[s->shard_of[i] - 1] : 0) + s->place[i]] = i;
    for (size_t shard = 0; rc == 0 && shard < s->n; shard++) {
        size_t first = shard ? end[shard - 1] : 0;
        struct ckpt_out *out;
        char name[64];

        shard_name(name, sizeof name, s, shard);
        rc = ckpt_outdir_file(&out, s->base.dir, name, err);
        if (rc == 0)
            rc = safetensors_begin(&s->file[shard], out, list, pick + first,
                                   end[shard] - first, metadata, NULL, err);
    }
    ckpt_free(pick);
    ckpt_free(end);
    return rc;
}

bool hf_shards_locate(void *self, size_t i, int64_t start, int64_t count,
                      struct ckpt_sink_extent *out)
{
    const struct hf_shards *s = self;
    const struct safetensors_file *f = s->file[s->shard_of[i]];

    (void)count;
    *out = (struct ckpt_sink_extent){
        .out = safetensors_out_file(f),
        .offset = safetensors_offset(f, s->place[i]) +
                  (uint64_t)start * ckpt_dtype_size(s->base.list->item[i].dtype)};
    return true;
}

int hf_shards_finish(void *self, struct ckpt_err *err)
{
    struct hf_shards *s = self;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        rc = safetensors_commit(s->file[i], err);
        s->file[i] = NULL;
    }
    return rc;
}

void hf_shards_release(void *self)
{
    struct hf_shards *s = self;

    for (size_t i = 0; s->file && i < s->n; i++)
        safetensors_abort(s->file[i]);
    ckpt_free(s->file);
    ckpt_free(s->shard_of);
    ckpt_free(s->place);
}

/* model.safetensors.index.json, as huggingface_hub writes it. */
static int put_index(void *self, struct ckpt_err *err)
{
    struct hf_shards *s = self;
    const struct ckpt_tensors *list = s->base.list;
    json_t *map, *index;
    uint64_t total = 0;
    int64_t params = 0;
    char name[64];
    int rc;

    if (s->n == 1)
        return 0;
    map = json_object();
    rc = map ? 0 : ckpt_nomem(err, 64);
    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        shard_name(name, sizeof name, s, s->shard_of[i]);
        if (json_object_set_new(map, list->item[i].name, json_string(name)))
            rc = ckpt_nomem(err, 64);
        total += ckpt_tensor_bytes(&list->item[i]);
        params += list->item[i].numel;
    }
    index = json_pack("{s:{s:I,s:I},s:o}", "metadata", "total_parameters", (json_int_t)params,
                      "total_size", (json_int_t)total, "weight_map", map);
    if (rc == 0)
        rc = dir_sink_put_json(s->base.dir, "model.safetensors.index.json", index, "\n", err);
    json_decref(index);
    return rc;
}

/* torch's name of the floating dtype of most elements; NULL when there is none. */
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

/* Write config.json with the new dtype; everything else is unchanged, byte for byte. */
static int put_config(struct hf_shards *s, const struct ckpt_extra *e, struct ckpt_err *err)
{
    const char *dtype = main_dtype(s->base.list);
    struct ckpt_arena a = {0};
    struct ckpt_buf b;
    char *text;
    size_t n;
    int rc = ckpt_file_slurp(e->file, &a, CKPT_JSON_MAX_BYTES, &text, &n, err);

    ckpt_buf_init(&b, SIZE_MAX);
    if (rc == 0 && dtype && config_set_dtype(&b, text, n, dtype, err))
        rc = ckpt_err_in(err, "%s", e->name);
    if (rc == 0)
        rc = dtype ? ckpt_outdir_put(s->base.dir, e->name, b.data, b.len, err)
                   : ckpt_outdir_put(s->base.dir, e->name, text, n, err);
    ckpt_buf_release(&b);
    ckpt_arena_release(&a);
    return rc;
}

static int put_extra(void *self, const struct ckpt_extra *e, struct ckpt_err *err)
{
    return strcmp(e->name, "config.json") == 0 ? put_config(self, e, err)
                                               : dir_sink_copy(self, e, err);
}

static int plan(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    uint64_t max = opts->max_shard_bytes ? opts->max_shard_bytes : CKPT_DEFAULT_SHARD_BYTES;

    return hf_shards_plan(self, "model", max, err);
}

static int begin(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct hf_shards *s = self;
    int rc = hf_shards_begin(s, opts->metadata, err);

    return rc || !opts->run ? rc : side_files_put_states(s->base.dir, opts->run, err);
}

static const struct dir_sink_ops dir_ops = {
    .title = "a model directory", .size = sizeof(struct hf_shards), .plan = plan,
    .begin = begin, .put_extra = put_extra, .locate = hf_shards_locate,
    .finish = hf_shards_finish, .put_index = put_index, .release = hf_shards_release,
};

int hf_dir_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                  const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    return dir_sink_create(out, &dir_ops, path, tensors, opts, err);
}
