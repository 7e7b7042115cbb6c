/*
 * average - the mean of several checkpoints of one model, as a Hugging Face model directory with
 * the config and tokenizer of the first.
 *
 *     cc average.c $(pkg-config --cflags --libs ckpt) -o average
 *     ./average TO FROM...
 */
#include <stdio.h>

#include "libckpt/ckpt.h"

#define MAX_INPUTS 64

static void show(void *ctx, uint64_t done, uint64_t total)
{
    fprintf(stderr, "\r%s: %d%%", (const char *)ctx, (int)(done * 100.0 / total));
    if (done == total)
        fputc('\n', stderr);
}

/* The mean of n checkpoints as one source; nothing stays open when that fails. */
static int open_mean(struct ckpt_source **mean, char **from, size_t n, struct ckpt_err *err)
{
    struct ckpt_source *src[MAX_INPUTS];

    for (size_t i = 0; i < n; i++) {
        int rc = ckpt_open(&src[i], from[i], NULL, err);

        if (rc) {
            while (i > 0)
                ckpt_source_close(src[--i]);
            return rc;
        }
    }
    return ckpt_view_average(mean, src, n, NULL, err);  /* takes them all */
}

static int average(char *to, char **from, size_t n, struct ckpt_err *err)
{
    struct ckpt_create_opts create = {0};
    struct ckpt_copy_opts copy = {0};
    struct ckpt_source *mean;
    struct ckpt_sink *sink;
    int rc = open_mean(&mean, from, n, err);

    if (rc)
        return rc;
    create.n_extra = ckpt_source_extras(mean, &create.extra);
    copy.progress = show;
    copy.progress_ctx = to;
    rc = ckpt_create(&sink, "hf", to, ckpt_source_tensors(mean), &create, err);
    if (rc == 0) {
        rc = ckpt_copy(sink, mean, &copy, err);
        if (rc == 0)
            rc = ckpt_sink_commit(sink, err);
        else
            ckpt_sink_abort(sink);
    }
    ckpt_source_close(mean);
    return rc;
}

int main(int argc, char **argv)
{
    struct ckpt_err err;
    int rc;

    if (argc < 3 || argc - 2 > MAX_INPUTS) {
        fprintf(stderr, "usage: average TO FROM...\n");
        return 64;
    }
    rc = average(argv[1], argv + 2, (size_t)argc - 2, &err);
    if (rc)
        fprintf(stderr, "average: %s\n", err.text);
    return ckpt_err_status(rc);
}
