/* The largest logits of rows on a GPU against a sort. */
#include "tests/gpu/gpu.h"

#include "tests/unit/top_check.h"

TEST(top_equals_a_sort)
{
    static const struct {
        int64_t n, vocab, k;
    } shape[] = {{1, 1, 1}, {3, 7, 5}, {2, 300, 256}, {5, 511, 50}, {1, 151936, 1},
                 {1, 151936, 64}, {64, 50272, 50}, {3, 250880, 256}, {300, 2000, 8},
                 {1, 1025, 256}, {2, 65537, 128},
                 {1, 20011, 64}};
    struct gpu g;

    gpu_open(&g, CKPT_F32, NULL);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int kind = 0; kind < TOP_KINDS && !gpu_left_out(shape[i].n * shape[i].vocab); kind++)
            if (gpu_small() < 2 || kind == TOP_NORMAL || shape[i].vocab < 512)
                top_check(g.gpu, shape[i].n, shape[i].vocab, shape[i].k, kind);
    gpu_close(&g);
}

TEST(forbidden_logits_are_the_cpus)
{
    enum { N = 70, V = 1031 };
    struct op_forbid on = {.n = N, .vocab = V, .n_ids = 3, .id = {0, 513, V - 1},
                           .rows = {0x80000005u, 0xfffffffeu, 0x21u}};
    static float z[N * V], got[N * V];
    struct ckpt_err err = {0};
    struct gpu g;
    void *at;

    gpu_open(&g, CKPT_F32, NULL);
    rng_normal(z, 0, N * V, 1.0f, 3, 0);
    at = g.gpu->ops->alloc(g.gpu, sizeof z);
    g.gpu->ops->to_device(g.gpu, at, z, sizeof z);
    on.logits = at;
    g.gpu->ops->head_forbid(g.gpu, &on);
    g.gpu->ops->to_host(g.gpu, got, at, sizeof got);
    assert_int_equal(device_sync(g.gpu, &err), 0);
    on.logits = z;
    g.cpu->ops->head_forbid(g.cpu, &on);
    assert_memory_equal(got, z, sizeof z);
    g.gpu->ops->free(g.gpu, at);
    gpu_close(&g);
}
