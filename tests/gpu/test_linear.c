/*
 * Projections on the GPU against the CPU: every field, awkward widths, reruns of the same bits.
 */
#include "tests/gpu/linear_pair.h"

static void test_plain(void **state)
{
    static const struct linear_case c[] = {
        {.n = 1, .in = 8, .out = 8},
        {.n = 1, .in = 512, .out = 264, .bias = true},
        {.n = 1, .in = 328, .out = 133, .bias = true, .odd = true},
        {.n = 2, .in = 2056, .out = 57, .bias = true},
        {.n = 4, .in = 4104, .out = 33},
        {.n = 7, .in = 40, .out = 24, .bias = true},
        {.n = 5, .in = 33, .out = 17, .bias = true},
        {.n = 130, .in = 200, .out = 136, .bias = true, .dx_add = true},
        {.n = 257, .in = 512, .out = 384},
        {.n = 300, .in = 65, .out = 520, .bias = true, .in_out = true},
        {.n = 64, .in = 96, .out = 64, .bias = true, .in_out = true, .dx_add = true},
        {.n = 31, .in = 64, .out = 72, .bias = true, .odd = true},
        {.n = 31, .in = 64, .out = 72, .frozen = true, .bias = true},
        {.n = 31, .in = 64, .out = 72, .no_dx = true, .bias = true},
        {.n = 0, .in = 64, .out = 72, .bias = true},
    };

    (void)state;
    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

static void test_residual(void **state)
{
    static const struct linear_case c[] = {
        {.n = 33, .in = 64, .out = 48, .bias = true, .residual = true},
        {.n = 33, .in = 64, .out = 48, .bias = true, .in_place = true},
        {.n = 33, .in = 64, .out = 48, .in_place = true},
        {.n = 3, .in = 64, .out = 48, .bias = true, .in_place = true},
        {.n = 2, .in = 64, .out = 40, .out_ld = 88, .bias = true},
        {.n = 9, .in = 31, .out = 13, .bias = true, .residual = true, .odd = true},
        {.n = 33, .in = 64, .out = 48, .bias = true, .residual = true, .drop = 0.25f},
        {.n = 9, .in = 30, .out = 13, .residual = true, .drop = 0.5f},
        {.n = 40, .in = 64, .out = 48, .bias = true, .drop = 0.1f, .dx_add = true},
        {.n = 40, .in = 64, .out = 48, .bias = true, .drop = 1.0f},
        {.n = 21, .in = 64, .out = 40, .out_ld = 80},
        {.n = 21, .in = 64, .out = 40, .out_ld = 80, .bias = true, .in_out = true},
        {.n = 21, .in = 64, .out = 13, .out_ld = 31, .bias = true},
    };

    (void)state;
    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

static void test_activations(void **state)
{
    static const enum op_act acts[] = {OP_ACT_GELU_TANH, OP_ACT_GELU_ERF, OP_ACT_RELU,
                                       OP_ACT_SILU};
    struct linear_case c[48];
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        enum op_act act = acts[i];

        c[n++] = (struct linear_case){.n = 40, .in = 64, .out = 128, .bias = true, .act = act};
        c[n++] = (struct linear_case){.n = 40, .in = 64, .out = 128, .bias = true, .act = act,
                                      .pre = true};
        c[n++] = (struct linear_case){.n = 2, .in = 64, .out = 19, .bias = true, .act = act,
                                      .pre = true};
        c[n++] = (struct linear_case){.n = 3, .in = 21, .out = 19, .act = act, .pre = true,
                                      .odd = true};
        c[n++] = (struct linear_case){.n = 40, .in = 64, .out = 128, .bias = true, .act = act,
                                      .pre = true, .drop = 0.2f};
        c[n++] = (struct linear_case){.n = 40, .in = 128, .out = 64, .bias = true, .x_act = act};
        c[n++] = (struct linear_case){.n = 5, .in = 27, .out = 64, .x_act = act};
        c[n++] = (struct linear_case){.n = 40, .in = 128, .out = 64, .bias = true, .x_act = act,
                                      .x_drop = 0.3f, .drop = 0.1f};
        c[n++] = (struct linear_case){.n = 40, .in = 128, .out = 64, .bias = true, .x_act = act,
                                      .in_out = true};
    }
    c[n++] = (struct linear_case){.n = 40, .in = 128, .out = 64, .bias = true,
                                  .x_act = OP_ACT_RELU, .kept = true};
    c[n++] = (struct linear_case){.n = 5, .in = 27, .out = 64, .x_act = OP_ACT_RELU,
                                  .kept = true};
    c[n++] = (struct linear_case){.n = 40, .in = 128, .out = 64, .x_act = OP_ACT_RELU,
                                  .kept = true, .x_drop = 0.25f};
    linear_check_all(c, n, 300);
}

/* Sizes of real models: sums in parts, epilogues that are faster, others that are not. */
static void test_large(void **state)
{
    static const struct linear_case c[] = {
        {.n = 8192, .in = 1536, .out = 1536, .bias = true, .residual = true},
        {.n = 2048, .in = 1024, .out = 4096, .bias = true, .act = OP_ACT_GELU_TANH, .pre = true},
        {.n = 2048, .in = 4096, .out = 1024, .bias = true, .x_act = OP_ACT_GELU_TANH},
        {.n = 2048, .in = 4096, .out = 1024, .x_act = OP_ACT_RELU, .kept = true},
        {.n = 2048, .in = 1024, .out = 1024, .bias = true, .in_out = true},
    };

    (void)state;
    linear_check_all(c, sizeof c / sizeof c[0], 8192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
