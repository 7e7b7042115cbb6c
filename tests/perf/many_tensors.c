/* many_tensors FILE N - a safetensors file of N small tensors, for timing ckpt-inspect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"

int main(int argc, char **argv)
{
    long n = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    struct ckpt_create_opts opts = {.flags = CKPT_REPLACE};
    struct ckpt_shape shape = ckpt_shape_2d(2, 2);
    struct ckpt_tensors list = {0};
    struct ckpt_sink *sink = NULL;
    struct ckpt_err err = {0};
    float zero[4] = {0};
    int rc = n < 1;

    for (long i = 0; rc == 0 && i < n; i++) {
        char name[80];

        snprintf(name, sizeof name, "model.layers.%ld.mlp.experts.%ld.weight", i / 100, i % 100);
        rc = ckpt_tensors_add(&list, NULL, name, strlen(name), CKPT_F32, &shape, NULL, 0, false,
                              &err);
    }
    if (rc == 0)
        rc = ckpt_create(&sink, "safetensors", argv[1], &list, &opts, &err);
    for (long i = 0; rc == 0 && i < n; i++)
        rc = ckpt_sink_write(sink, (size_t)i, 0, 4, zero, &err);
    if (rc == 0)
        rc = ckpt_sink_commit(sink, &err);
    if (rc)
        fprintf(stderr, "many_tensors: %s\n", err.text);
    ckpt_tensors_release(&list);
    return rc != 0;
}
