/* fuzz_dcp: any bytes as a .metadata: entries with boxes inside their tensors, or a refusal. */
#include "formats/dcp/meta.h"
#include "formats/dcp/names.h"
#include "tests/fuzz/lib/target.h"

static void check(const struct dcp_entry *e)
{
    for (size_t k = 0; k < e->n_chunk; k++)
        for (int d = 0; d < e->shape.rank; d++)
            must(e->chunk[k].start[d] >= 0 && e->chunk[k].count[d] > 0 &&
                 e->chunk[k].count[d] <= e->shape.dim[d] - e->chunk[k].start[d]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, ".metadata");
    struct dcp_item *item;
    struct dcp_meta m = {0};
    struct ckpt_err err = {0};

    if (dcp_meta_read(&m, file, &err) == 0) {
        item = ckpt_arena_alloc(&m.arena, m.n, sizeof *item);
        for (size_t i = 0; item && i < m.n; i++) {
            check(&m.entry[i]);
            item[i] = (struct dcp_item){.part = m.entry[i].part, .n_part = m.entry[i].n_part,
                                        .tensor = !m.entry[i].bytes};
        }
        if (item && dcp_names_fill(item, m.n, &m.arena, &err) == 0)
            for (size_t i = 0; i < m.n; i++)
                must(!item[i].tensor || item[i].name);
    } else {
        must(err.text[0]);
    }
    dcp_meta_release(&m);
    ckpt_file_close(file);
    return 0;
}
