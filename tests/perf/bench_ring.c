/*
 * bench_ring [GIB] - the speed of streams and of the ring between host and GPU: bytes each way
 * over the time of a run, and that of plain large copies; the time of pinning; and GPU memory
 * in use beyond the allocations.
 */
#include <dlfcn.h>

#include "tests/perf/gpu_bench.h"
#include "trainer/shard/ring.h"

/* One way, bytes per second, as measured on the chip. */
#define PCIE 55.5e9

struct link {
    struct bench   b;
    unsigned char *host;
    size_t         piece;
    bool           in, out;
    double         plain;               /* bytes per second of the link in this way */
};

static int moves(void *ctx, int64_t k, struct ring_move *move)
{
    const struct link *l = ctx;
    unsigned char *at = l->host + (size_t)k * l->piece;

    *move = (struct ring_move){l->in ? at : NULL, l->out ? at : NULL, 0, l->piece};
    return 1;
}

static void no_work(void *ctx, int64_t k, unsigned char *slot)
{
    (void)ctx;
    (void)k;
    (void)slot;
}

/* The best of three runs after one to warm up, seconds. */
static double best_of(struct link *l, void (*run)(struct link *l, const void *of), const void *of)
{
    double best = 1e30;

    for (int t = 0; t < 4; t++) {
        double took = bench_now();

        run(l, of);
        bench_sync(&l->b);
        took = bench_now() - took;
        best = t && took < best ? took : best;
    }
    return best;
}

struct ring_of {
    struct ring *ring;
    int64_t      n;
};

static void ring_once(struct link *l, const void *of)
{
    const struct ring_of *r = of;

    ring_run(r->ring, &(struct ring_run){.ctx = l, .n = r->n, .moves = moves, .work = no_work});
}

static void row(struct link *l, const char *name, size_t piece, size_t bytes)
{
    struct ring_of r = {.n = (int64_t)(bytes / piece)};
    struct ckpt_err err = {0};
    double rate;

    l->piece = piece;
    bench_need(ring_new(&r.ring, l->b.dev, piece, 1, 0, &err), &err);
    rate = (double)(bytes / piece * piece) / best_of(l, ring_once, &r);
    ring_free(r.ring);
    printf("%-8s pieces of %3zu MiB: %5.1f GB/s each way, %5.1f %% of %.1f\n", name, piece >> 20,
           1e-9 * rate, 100 * rate / l->plain, 1e-9 * l->plain);
    fflush(stdout);
}

enum { PIECE = 64 << 20 };

struct plain {
    unsigned char *dev;             /* [2 * PIECE] on the GPU */
    size_t         bytes;           /* half of them in, half out */
};

/* Both streams at once, without events between them: the speed of the link both ways. */
static void plain_once(struct link *l, const void *of)
{
    const struct plain *p = of;
    struct device *dev = l->b.dev;

    for (size_t at = 0; at + PIECE <= p->bytes / 2; at += PIECE) {
        if (l->in)
            dev->ops->stream_copy(dev, OP_STREAM_IN, p->dev, l->host + at, PIECE);
        if (l->out)
            dev->ops->stream_copy(dev, OP_STREAM_OUT, l->host + p->bytes / 2 + at,
                                  p->dev + PIECE, PIECE);
    }
}

static double plain(struct link *l, size_t bytes, bool in, bool out)
{
    struct plain p = {l->b.dev->ops->alloc(l->b.dev, 2 * PIECE), bytes};
    double best;

    l->in = in;
    l->out = out;
    bench_sync(&l->b);
    best = best_of(l, plain_once, &p);
    l->b.dev->ops->free(l->b.dev, p.dev);
    return (double)(bytes / 2 / PIECE * PIECE) / best;
}

/* Bytes of the GPU in use by all processes, from the driver. */
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
    struct link l = {0};
    double began, in, out;

    bench_open(&l.b, &opts, NULL);
    printf("%s: %.0f MiB in use after opening\n", l.b.dev->label, in_use() / (1 << 20));
    began = bench_now();
    l.host = l.b.dev->ops->pin(l.b.dev, bytes);
    bench_sync(&l.b);
    printf("%.1f GiB pinned in %.2f s\n", (double)bytes / (1 << 30), bench_now() - began);
    in = plain(&l, bytes, true, false);
    out = plain(&l, bytes, false, true);
    l.plain = plain(&l, bytes, true, true);
    printf("plain copies: in %.1f, out %.1f, both at once %.1f GB/s each way\n", 1e-9 * in,
           1e-9 * out, 1e-9 * l.plain);
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++)
        row(&l, "both", piece[i], bytes);
    l.plain = PCIE;
    l.out = false;
    row(&l, "in", piece[2], bytes);
    l.in = false;
    l.out = true;
    row(&l, "out", piece[2], bytes);
    printf("%.0f MiB in use, %.0f MiB of it allocated\n", in_use() / (1 << 20),
           (double)l.b.dev->held / (1 << 20));
    device_close(l.b.dev);
    return 0;
}
