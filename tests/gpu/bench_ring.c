/*
 * bench_ring [GIB] - the speed of streams and of the ring between host and GPU: bytes each way
 * over the time of a whole run, beside that of plain large copies; the time of pinning; and GPU
 * memory in use beyond what was allocated.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trainer/ops/ops.h"
#include "trainer/shard/ring.h"

/* One way, bytes per second, as read on the chip. */
#define PCIE 55.5e9

struct bench {
    struct device *dev;
    unsigned char *host;
    size_t         piece;
    bool           in, out;
    double         plain;               /* bytes per second of the link in this way */
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void need(int rc, const struct ckpt_err *err)
{
    if (rc) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

static int moves(void *ctx, int64_t k, struct ring_move *move)
{
    const struct bench *b = ctx;
    unsigned char *at = b->host + (size_t)k * b->piece;

    *move = (struct ring_move){b->in ? at : NULL, b->out ? at : NULL, 0, b->piece};
    return 1;
}

static void no_work(void *ctx, int64_t k, unsigned char *slot)
{
    (void)ctx;
    (void)k;
    (void)slot;
}

static void row(struct bench *b, const char *name, size_t piece, size_t bytes)
{
    struct ckpt_err err = {0};
    struct ring *r;
    double best = 1e30, rate;

    b->piece = piece;
    need(ring_new(&r, b->dev, piece, 1, 0, &err), &err);
    for (int t = 0; t < 4; t++) {
        double began = now();

        ring_run(r, &(struct ring_run){.ctx = b, .n = (int64_t)(bytes / piece), .moves = moves,
                                       .work = no_work});
        need(device_sync(b->dev, &err), &err);
        began = now() - began;
        best = t && began < best ? began : best;
    }
    ring_free(r);
    rate = (double)(bytes / piece * piece) / best;
    printf("%-8s pieces of %3zu MiB: %5.1f GB/s each way, %5.1f %% of %.1f\n", name, piece >> 20,
           1e-9 * rate, 100 * rate / b->plain, 1e-9 * b->plain);
    fflush(stdout);
}

/* Both streams at once, without events between them: the speed of the link both ways. */
static double plain(struct bench *b, size_t bytes, bool in, bool out)
{
    const size_t piece = (size_t)64 << 20;
    struct ckpt_err err = {0};
    unsigned char *dev = b->dev->ops->alloc(b->dev, 2 * piece);
    double best = 1e30;

    need(device_sync(b->dev, &err), &err);
    for (int t = 0; t < 4; t++) {
        double began = now();

        for (size_t at = 0; at + piece <= bytes / 2; at += piece) {
            if (in)
                b->dev->ops->stream_copy(b->dev, OP_STREAM_IN, dev, b->host + at, piece);
            if (out)
                b->dev->ops->stream_copy(b->dev, OP_STREAM_OUT, b->host + bytes / 2 + at, dev + piece,
                                       piece);
        }
        need(device_sync(b->dev, &err), &err);
        began = now() - began;
        best = t && began < best ? began : best;
    }
    b->dev->ops->free(b->dev, dev);
    return (double)(bytes / 2 / piece * piece) / best;
}

/* Bytes of the GPU in use by anybody, as the driver tells. */
static double in_use(void)
{
    void *so = dlopen("libcuda.so.1", RTLD_NOW);
    int (*info)(size_t *, size_t *) = NULL;
    void *p = so ? dlsym(so, "cuMemGetInfo_v2") : NULL;
    size_t unused = 0, all = 0;

    memcpy(&info, &p, sizeof info);
    return info && info(&unused, &all) == 0 ? (double)(all - unused) : -1;
}

int main(int argc, char **argv)
{
    size_t bytes = (size_t)(argc > 1 ? atof(argv[1]) * (1 << 30) : (double)((size_t)4 << 30));
    struct device_opts opts = {.name = "cuda", .weights = CKPT_BF16};
    static const size_t piece[] = {4u << 20, 16u << 20, 32u << 20, 64u << 20};
    struct ckpt_err err = {0};
    struct bench b = {0};
    double began;

    need(device_open(&b.dev, &opts, &err), &err);
    printf("%s: %.0f MiB in use behind an open device\n", b.dev->label, in_use() / (1 << 20));
    began = now();
    b.host = b.dev->ops->pin(b.dev, bytes);
    need(device_sync(b.dev, &err), &err);
    printf("%.1f GiB pinned in %.2f s\n", (double)bytes / (1 << 30), now() - began);
    b.plain = plain(&b, bytes, true, true);
    printf("plain copies: in %.1f, out %.1f, both at once %.1f GB/s each way\n",
           1e-9 * plain(&b, bytes, true, false), 1e-9 * plain(&b, bytes, false, true),
           1e-9 * b.plain);
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++) {
        b.in = b.out = true;
        row(&b, "both", piece[i], bytes);
    }
    b.plain = PCIE;
    b.out = false;
    row(&b, "in", piece[2], bytes);
    b.in = false;
    b.out = true;
    row(&b, "out", piece[2], bytes);
    printf("%.0f MiB in use, %.0f MiB of it allocated\n", in_use() / (1 << 20),
           (double)b.dev->held / (1 << 20));
    device_close(b.dev);
    return 0;
}
