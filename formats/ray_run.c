/* ray_run - see formats/ray_run.h. */
#include "formats/ray_run.h"

#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"

int ray_run_find(const char **name, struct ckpt_file *index, bool best, const char *path,
                 struct ckpt_arena *arena, struct ckpt_err *err)
{
    json_t *doc = NULL, *results, *found;
    const char *which = best ? "best" : "latest", *text;
    int rc = ckpt_json_read(&doc, index, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);

    *name = NULL;
    results = json_object_get(doc, "checkpoint_results");
    found = json_object_get(doc, "latest_checkpoint_result");
    if (best)
        found = json_is_array(results) ? json_array_get(results, json_array_size(results) - 1)
                                       : NULL;
    text = json_string_value(json_object_get(found, "checkpoint_dir_name"));
    if (rc == 0 && (best ? !found : json_is_null(found)))
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s/" RAY_RUN_INDEX ": no checkpoint was reported", path);
    else if (rc == 0 && (!text || !ckpt_file_name_is_clean(text)))
        rc = ckpt_fail_as(err, CKPT_EREFUSED, "refused-path",
                          "%s/" RAY_RUN_INDEX ": the %s checkpoint has no clean name", path, which);
    if (rc == 0 && !(*name = ckpt_arena_strndup(arena, text, strlen(text))))
        rc = ckpt_nomem(err, strlen(text));
    json_decref(doc);
    return rc;
}
