/* fuzz_archive: any bytes as a tar or zip: files inside what is there, or a refusal. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "libckpt/err.h"
#include "libckpt/io/archive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct ckpt_file *file, *member;
    struct ckpt_entry *entry;
    struct ckpt_dir *dir;
    size_t n;
    char byte;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err))
        return 0;
    ckpt_archive_is_zip(file);
    if (ckpt_archive_open(&dir, file, "/tmp", &err))
        return 0;
    if (ckpt_dir_list(dir, &arena, &entry, &n, &err))
        abort();
    for (size_t i = 0; i < n; i++) {
        if (!ckpt_file_name_is_clean(entry[i].name))
            abort();
        if (!entry[i].is_file)
            continue;
        if (ckpt_file_open_at(&member, dir, entry[i].name, &err) ||
            ckpt_file_size(member) != entry[i].size ||
            (entry[i].size && ckpt_file_read_at(member, &byte, 1, entry[i].size - 1, &err)))
            abort();
        ckpt_file_close(member);
    }
    ckpt_dir_close(dir);
    ckpt_arena_release(&arena);
    return 0;
}
