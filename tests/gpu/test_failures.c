/*
 * A failure on a GPU marks the device once; later operations do nothing and do not hang.  The
 * last test leaves this process without a GPU.
 */
#include "tests/gpu/gpu.h"

TEST(an_allocation_beyond_memory_fails)
{
    struct ckpt_err err = {0};
    struct gpu g;

    gpu_open(&g, CKPT_BF16, NULL);
    assert_null(device_alloc(g.gpu, (size_t)1 << 46, &err));
    assert_int_equal(err.code, CKPT_ENOMEM);
    assert_non_null(strstr(err.text, "no memory for 65536.00 GiB"));
    gpu_close(&g);
}

TEST(a_workspace_too_small_fails)
{
    struct op_limits lim = {.top_rows = 1, .vocab = 32000, .n = 1, .max_doc = 1, .dim = 8,
                            .n_head = 1, .n_kv = 1, .head_dim = 8, .ff = 8};
    struct ckpt_err err = {0};
    struct op_top op = {.n = 1, .vocab = 32000, .k = 5};
    struct gpu g;

    gpu_open(&g, CKPT_BF16, &lim);
    g.gpu->work_bytes = 256;
    g.gpu->ops->head_top(g.gpu, &op);
    assert_int_equal(device_sync(g.gpu, &err), CKPT_ESTATE);
    assert_non_null(strstr(err.text, "head_top: workspace has 256 bytes"));
    gpu_close(&g);
}

TEST(a_kernel_that_fails_is_reported_once)
{
    struct ckpt_err err = {0}, again = {0};
    struct gpu g;
    float *x, host[64];

    gpu_open(&g, CKPT_F32, NULL);
    x = g.gpu->ops->alloc(g.gpu, sizeof host);
    gpu_fine(&g);
    g.gpu->ops->cast(g.gpu, OP_STREAM_MAIN, x, CKPT_F32, (const void *)(uintptr_t)4096, CKPT_BF16, 64);
    assert_int_equal(device_sync(g.gpu, &err), CKPT_EDEVICE);
    assert_non_null(strstr(err.text, "GPU 0, "));
    assert_non_null(strstr(err.text, "illegal memory access"));
    assert_non_null(strstr(err.hint, "CUDA_LAUNCH_BLOCKING=1"));
    g.gpu->ops->zero(g.gpu, x, sizeof host);
    g.gpu->ops->to_host(g.gpu, host, x, sizeof host);
    assert_null(g.gpu->ops->alloc(g.gpu, 16));
    assert_int_equal(device_sync(g.gpu, &again), CKPT_EDEVICE);
    assert_string_equal(err.text, again.text);
    gpu_close(&g);
}
