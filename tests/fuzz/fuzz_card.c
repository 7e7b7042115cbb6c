/*
 * A README.md of any bytes: configurations with names and patterns that stay below their folder, or
 * an error; each pattern matches a path or does not, and one can be picked or is told.
 */
#include "formats/records/card.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = (char *)copy_of(data, size);
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    const struct card_config *one;
    struct card_config *all;
    size_t n = 0;

    must(card_parse(&all, &n, text, size, "README.md", &arena, &err) == 0 || err.text[0]);
    if (err.text[0])
        n = 0;
    for (size_t i = 0; i < n; i++) {
        must(all[i].name && (!*all[i].data_dir || ckpt_file_path_is_clean(all[i].data_dir)));
        for (size_t k = 0; k < all[i].n; k++) {
            must(*all[i].files[k].split && *all[i].files[k].pattern != '/');
            card_matches(all[i].files[k].pattern, "data/a/train-00000-of-00001.parquet");
        }
    }
    must(n == 0 || card_pick(&one, all, n, NULL, "here", &err) == 0 ||
         strstr(err.text, "several"));
    ckpt_arena_release(&arena);
    free(text);
    return 0;
}
