/* states - what --optimizer keep copies, for each kind of output; see parts.h. */
#include "tools/merge/parts.h"

#include <string.h>

#include "formats/hf/dir.h"
#include "formats/peft/peft.h"
#include "formats/hf/side_files.h"

bool merge_has_states(const struct ckpt_source *src)
{
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);

        if (t->kind == CKPT_OPTIM || merge_is_optimizer(t))
            return true;
    }
    return false;
}

/* An option after which a parameter has another index or another shape than before. */
static const char *renumbers(const struct merge_want *w, const struct ckpt_source *origin)
{
    return w->include.n ? "include" : w->exclude.n ? "exclude" : w->rename.n ? "rename"
           : w->adapter.n ? "adapter" : w->extract ? "extract-adapter" : w->base &&
           strcmp(ckpt_source_format(origin), "peft") != 0 ? "base" : NULL;
}

/* States in a file of their own, as HF Trainer stores them: copied, if they still match. */
static int keep_file(const char *file, const struct ckpt_source *origin,
                     const struct merge_want *w, const char *format, struct ckpt_err *err)
{
    const char *option = renumbers(w, origin);
    bool adapter = strcmp(ckpt_source_format(origin), "peft") == 0;

    if (option)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "--optimizer keep: the states in %s belong to the "
                         "tensors as they are, --%s changes those", file, option);
    if (adapter && strcmp(format, "peft") != 0) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "--optimizer keep: the states in %s are the adapter's, "
                  "a merged model has no place for them", file);
        return ckpt_err_hint(err, "--to peft writes the adapter with them");
    }
    if (strcmp(format, "hf") == 0 || adapter)
        return 0;
    ckpt_fail(err, CKPT_EUNSUPPORTED, "--optimizer keep: %s numbers its states and names none, %s "
              "wants names", file, format);
    return ckpt_err_hint(err, "--to hf writes a directory with the file as it is");
}

int merge_keep_states(struct ckpt_dir **run, const struct ckpt_source *src,
                      const struct ckpt_source *origin, const struct merge_want *w,
                      const struct merge_job *job, const char *format, struct ckpt_err *err)
{
    static const char *const without[] = {"hf", "peft", "gguf"};
    struct ckpt_dir *dir = hf_source_dir(origin);
    const char *file;
    int rc;

    *run = NULL;
    if (strcmp(w->optimizer, "keep") != 0)
        return 0;
    for (size_t i = 0; merge_has_states(src) && i < sizeof without / sizeof without[0]; i++)
        if (strcmp(format, without[i]) == 0) {
            ckpt_fail(err, CKPT_EUNSUPPORTED, "--optimizer keep: %s has no place for the states of "
                      "these shards", format);
            return ckpt_err_hint(err, "--to deepspeed, --to dcp or one .safetensors file has; "
                                 "--optimizer drop leaves them out");
        }
    if (job->n > 1 && !w->together && !merge_has_states(src))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "--optimizer keep: a mean has no optimizer of its "
                         "own");
    dir = dir ? dir : peft_source_dir(origin);
    file = dir ? side_files_optimizer(dir) : NULL;
    if (file && (rc = keep_file(file, origin, w, format, err)) != 0)
        return rc;
    if (file)
        *run = dir;
    else if (!merge_has_states(src) && !w->shards)
        ckpt_log(CKPT_LOG_WARNING, "%s: --optimizer keep: there is no optimizer's state to keep",
                 job->input[0]);
    return 0;
}
