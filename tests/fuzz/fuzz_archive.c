/* fuzz_archive: any bytes as a tar or zip: files inside what is there, or a refusal. */
#include "libckpt/io/archive.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, "fuzz"), *member;
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct ckpt_entry *entry;
    struct ckpt_dir *dir;
    size_t n;
    char byte;

    ckpt_archive_is_zip(file);
    if (ckpt_archive_open(&dir, file, "/tmp", &err))
        return 0;
    must(ckpt_dir_list(dir, &arena, &entry, &n, &err) == 0);
    for (size_t i = 0; i < n; i++) {
        must(ckpt_file_name_is_clean(entry[i].name));
        if (!entry[i].is_file)
            continue;
        must(ckpt_file_open_at(&member, dir, entry[i].name, &err) == 0);
        must(ckpt_file_size(member) == entry[i].size);
        must(entry[i].size == 0 ||
             ckpt_file_read_at(member, &byte, 1, entry[i].size - 1, &err) == 0);
        ckpt_file_close(member);
    }
    ckpt_dir_close(dir);
    ckpt_arena_release(&arena);
    return 0;
}
