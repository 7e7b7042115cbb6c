/* A projection with its gate at once, as generation makes it: the same values as one after the
 * other, which are tested against the CPU. */
#include "tests/gpu/gpu.h"

static void check(enum ckpt_dtype type, int64_t n, int64_t n_in, int64_t ff, enum op_act act)
{
    struct op_limits lim = {.n = n, .n_rows = 1, .max_doc = 1, .dim = n_in, .n_head = 1, .n_kv = 1,
                            .head_dim = 8, .ff = ff, .vocab = 8};
    size_t size = ckpt_dtype_size(type);
    float *x = malloc((size_t)(2 * ff * n_in) * sizeof *x), *one = malloc((size_t)(n * ff) * 4);
    float *two = malloc((size_t)(n * ff) * 4);
    const struct ops *ops;
    struct both bx, bw;
    struct gpu g;
    void *u, *out, *wide;

    gpu_open(&g, type, &lim);
    ops = g.gpu->ops;
    rng_normal(x, 0, 2 * ff * n_in, 1.0f / sqrtf((float)n_in), 3, 1);
    bw = gpu_values(&g, type, x, 2 * ff * n_in);
    rng_normal(x, 0, n * n_in, 1.0f, 3, 2);
    bx = gpu_values(&g, type, x, n * n_in);
    u = ops->alloc(g.gpu, (size_t)(2 * n * ff) * size);
    out = ops->alloc(g.gpu, (size_t)(n * ff) * size);
    wide = ops->alloc(g.gpu, (size_t)(n * ff) * sizeof(float));
    for (int i = 0; i < 2; i++) {
        struct op_linear a = {.out = u, .x = bx.gpu, .w = bw.gpu, .n = n, .n_in = n_in,
                              .n_out = 2 * ff};
        struct op_gate gate = {.out = out, .u = u, .act = act, .n = n, .ff = ff};

        if (i == 0) {
            ops->linear_fwd(g.gpu, &a);
            ops->gate_fwd(g.gpu, &gate);
        } else {
            ops->gated_fwd(g.gpu, &a, &gate);
        }
        ops->cast(g.gpu, wide, CKPT_F32, out, type, n * ff);
        ops->to_host(g.gpu, i ? two : one, wide, (size_t)(n * ff) * sizeof *one);
        ops->zero(g.gpu, out, (size_t)(n * ff) * size);
    }
    gpu_fine(&g);
    for (int64_t i = 0; i < n * ff; i++)
        if (!(one[i] == two[i]))
            fail_msg("%lld rows, %lld to %lld: element %lld is %g, wanted %g", (long long)n,
                     (long long)n_in, (long long)ff, (long long)i, two[i], one[i]);
    free(x);
    free(one);
    free(two);
    gpu_close(&g);
}

static void test_gated_is_a_projection_and_a_gate(void **state)
{
    (void)state;
    for (int t = 0; t < gpu_n_types(); t++) {
        for (int64_t n = 1; n <= 5; n++)
            check(gpu_types[t], n, 512, 96, n % 2 ? OP_ACT_SILU : OP_ACT_GELU_TANH);
        check(gpu_types[t], 1, 4096, 300, OP_ACT_SILU);
        check(gpu_types[t], 2, 72, 7, OP_ACT_GELU_ERF);
        check(gpu_types[t], 1, 2056, 33, OP_ACT_RELU);
        check(gpu_types[t], 3, 50, 20, OP_ACT_SILU);        /* rows that cannot be read by 16 bytes */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gated_is_a_projection_and_a_gate)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
