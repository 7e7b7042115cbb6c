/*
 * A README.md of any bytes: configurations with names and patterns that stay below their folder, or
 * an error; each pattern matches a path or does not, and one can be picked or is told.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/records/card.h"
#include "libckpt/err.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char *text = malloc(size + 1);
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    const struct card_config *one;
    struct card_config *all;
    size_t n;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (card_parse(&all, &n, text, size, "README.md", &arena, &err)) {
        if (!err.text[0])
            abort();
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        if (!all[i].name || (*all[i].data_dir && !ckpt_file_path_is_clean(all[i].data_dir)))
            abort();
        for (size_t k = 0; k < all[i].n; k++) {
            if (!*all[i].files[k].split || *all[i].files[k].pattern == '/')
                abort();
            card_matches(all[i].files[k].pattern, "data/a/train-00000-of-00001.parquet");
        }
    }
    if (n > 0 && card_pick(&one, all, n, NULL, "here", &err) && !strstr(err.text, "several"))
        abort();
out:
    ckpt_arena_release(&arena);
    free(text);
    return 0;
}
