/*
 * convert - write any checkpoint as one safetensors file, in bfloat16.
 *
 *     cc convert.c $(pkg-config --cflags --libs ckpt) -o convert
 *     ./convert FROM TO.safetensors
 */
#include <stdio.h>

#include "libckpt/ckpt.h"

static int convert(const char *from, const char *to, struct ckpt_err *err)
{
    const struct ckpt_cast_rule all = {"*", CKPT_BF16};
    struct ckpt_source *src;
    struct ckpt_sink *sink;
    int rc = ckpt_open(&src, from, NULL, err);

    if (rc == 0)
        rc = ckpt_view_cast(&src, src, &all, 1, err);   /* takes src, on failure too */
    if (rc)
        return rc;
    rc = ckpt_create(&sink, "safetensors", to, ckpt_source_tensors(src), NULL, err);
    if (rc == 0) {
        rc = ckpt_copy(sink, src, NULL, err);
        if (rc == 0)
            rc = ckpt_sink_commit(sink, err);           /* only now does TO exist */
        else
            ckpt_sink_abort(sink);
    }
    ckpt_source_close(src);
    return rc;
}

int main(int argc, char **argv)
{
    struct ckpt_err err;
    int rc;

    if (argc != 3) {
        fprintf(stderr, "usage: convert FROM TO.safetensors\n");
        return 64;
    }
    rc = convert(argv[1], argv[2], &err);
    if (rc)
        fprintf(stderr, "convert: %s\n", err.text);
    return ckpt_err_status(rc);
}
