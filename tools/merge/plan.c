/* plan - print what a merge would write; see parts.h. */
#include "tools/merge/parts.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tools/out.h"

static uint64_t total_bytes(const struct ckpt_source *src)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < ckpt_source_count(src); i++)
        sum += ckpt_tensor_stored_bytes(ckpt_source_tensor(src, i));
    return sum;
}

/* Memory resident now, with everything that opening the inputs took, plus that of the copy. */
static uint64_t peak_memory(const struct ckpt_source *src, const struct cli *cli)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (uint64_t)use.ru_maxrss * 1024 +
           ckpt_copy_memory((size_t)cli->jobs, ckpt_source_count(src));
}

int merge_plan(const struct ckpt_source *src, const struct cli *cli, const char *format,
               const struct merge_job *job, struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"name", "tensor", OUT_LEFT}, {"dtype", "dtype", OUT_LEFT},
        {"shape", "shape", OUT_LEFT}, {"bytes", "bytes", OUT_RIGHT},
    };
    const char *from = json_string_value(json_object_get(ckpt_source_info(src), "format"));
    struct stat st;
    bool replaces;
    struct out *o;
    int rc;

    if ((rc = out_new(&o, cli->json, err)) != 0)
        return rc;
    out_str(o, "input", "input", job->input[0]);
    out_str(o, "input_format", "input format", from ? from : ckpt_source_format(src));
    out_str(o, "output", "output", job->output);
    replaces = strcmp(job->output, "-") != 0 && stat(job->output, &st) == 0;
    out_json(o, "replaces", NULL, replaces ? json_true() : json_false());
    if (replaces)
        out_line(o, "replaces: the file that has this name");
    out_str(o, "output_format", "output format", format);
    out_int(o, "tensors", "tensors", (int64_t)ckpt_source_count(src));
    out_bytes(o, "bytes", "bytes", total_bytes(src));
    out_bytes(o, "peak_memory", "peak memory", peak_memory(src, cli));
    out_table(o, "plan", columns, 4);
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        char shape[256];

        out_cell_str(o, t->name);
        out_cell_str(o, ckpt_tensor_stored(t));
        out_cell_json(o, ckpt_shape_text(shape, sizeof shape, &t->shape));
        out_cell_bytes(o, ckpt_tensor_stored_bytes(t));
    }
    out_table_end(o);
    return out_end(o, err);
}
