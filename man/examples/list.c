/*
 * list - print every tensor of a checkpoint, and the first value of those in F32.
 *
 *     cc list.c $(pkg-config --cflags --libs ckpt) -o list
 *     ./list PATH
 */
#include <stdio.h>

#include "libckpt/ckpt.h"

int main(int argc, char **argv)
{
    struct ckpt_source *src;
    struct ckpt_err err;

    if (argc != 2) {
        fprintf(stderr, "usage: list PATH\n");
        return 64;
    }
    if (ckpt_open(&src, argv[1], NULL, &err)) {
        fprintf(stderr, "list: %s\n", err.text);
        return ckpt_err_status(err.code);
    }
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        char shape[128];
        float first;

        printf("%s %s %s", t->name, ckpt_dtype_name(t->dtype),
               ckpt_shape_text(shape, sizeof shape, &t->shape));
        if (t->dtype == CKPT_F32 && t->numel > 0 &&
            ckpt_source_read(src, i, 0, 1, &first, &err) == 0)
            printf(" %g", (double)first);
        putchar('\n');
    }
    ckpt_source_close(src);
    return 0;
}
