/*
 * The index of a run of Ray Train 2 of any bytes: a clean name, or a sentence.
 * Seeds: tests/golden/wholes/ray-*, tests/fuzz/seeds/ray_run.
 */
#include "formats/ray_run.h"
#include "tests/fuzz/lib/memory_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct memory_file file = {RAY_RUN_INDEX, data, size};
    struct ckpt_dir *dir = memory_dir_of(&file, 1);

    for (int best = 0; best < 2; best++) {
        struct ckpt_arena arena = {0};
        struct ckpt_file *f = NULL;
        struct ckpt_err err = {0};
        const char *name;

        must(ckpt_file_open_at(&f, dir, RAY_RUN_INDEX, &err) == 0);
        if (ray_run_find(&name, f, best, "memory", &arena, &err) == 0)
            must(ckpt_file_name_is_clean(name));
        else
            must(err.text[0] && !name);
        ckpt_file_close(f);
        ckpt_arena_release(&arena);
    }
    ckpt_dir_close(dir);
    return 0;
}
