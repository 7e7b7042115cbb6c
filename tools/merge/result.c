/* result - check that the output of a merge can be loaded; see parts.h. */
#include "tools/merge/parts.h"

#include <string.h>

#include "formats/peft/live.h"

/* The first tensor that only adapters have, or NULL. */
static const char *of_adapter(const struct ckpt_source *src)
{
    for (size_t i = 0; i < ckpt_source_count(src); i++)
        if (peft_live_is_adapter(ckpt_source_tensor(src, i)->name))
            return ckpt_source_tensor(src, i)->name;
    return NULL;
}

static bool is_wrapped(const char *name) { return strncmp(name, "base_model.model.", 17) == 0; }

/* Whether the input is a file of tensors, which is no complete model either. */
static bool is_file(const struct ckpt_source *origin)
{
    const char *format = origin ? ckpt_source_format(origin) : "";

    return strcmp(format, "safetensors") == 0 || strcmp(format, "torch") == 0;
}

int merge_check_result(const struct ckpt_source *src, const struct ckpt_source *origin,
                       const struct merge_job *job, const char *format, struct ckpt_err *err)
{
    bool config = ckpt_source_extra(src, "config.json") != NULL;
    const char *name;

    if (strcmp(format, "hf") != 0)
        return 0;
    name = of_adapter(src);
    if (name && config && !is_wrapped(name))   /* a few models have low-rank factors of their own */
        name = NULL;
    if (name && !is_file(origin)) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s belongs to an adapter, no model has it, and "
                  "there is no adapter_config.json", job->input[0], name);
        return ckpt_err_hint(err, "put the run's adapter_config.json beside its shards; --to "
                             "safetensors -o FILE.safetensors writes the tensors as they are");
    }
    if (name)
        ckpt_log(CKPT_LOG_WARNING, "%s: %s belongs to an adapter, no model has it: the output is "
                 "a directory of tensors", job->input[0], name);
    else if (!config)
        ckpt_log(CKPT_LOG_WARNING, "%s: no config.json comes along, which transformers asks for; "
                 "put the model's into the output", job->input[0]);
    return 0;
}
