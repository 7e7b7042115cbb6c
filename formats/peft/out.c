/* peft/out - see peft/out.h. */
#include "formats/peft/out.h"

#include <string.h>

#include "formats/hf/dir_out.h"
#include "formats/hf/side_files.h"

/* Check names, by which PEFT finds its tensors.  Other kinds than LoRA, which are only copied, have
 * some without the prefix: prompt_embeddings, base_model.vera_A. */
static int check_list(const struct ckpt_tensors *list, const json_t *config, struct ckpt_err *err)
{
    static const char prefix[] = "base_model.model.";
    const char *type = json_string_value(json_object_get(config, "peft_type"));

    if (!json_is_object(config))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "these tensors are no adapter's: there is no adapter_config.json");
    for (size_t i = 0; type && strcmp(type, "LORA") == 0 && i < list->n; i++)
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

static int begin(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct hf_shards *s = self;
    int rc = dir_sink_put_json(s->base.dir, "adapter_config.json",
                               json_object_get(opts->info, "adapter_config"), "", err);

    if (rc == 0)
        rc = hf_shards_begin(s, opts->metadata, err);
    return rc || !opts->run ? rc : side_files_put_states(s->base.dir, opts->run, err);
}

/* A model's side files are not part of the adapter. */
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
