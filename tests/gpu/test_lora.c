/*
 * Low-rank changes beside projections, on the GPU against the CPU.
 */
#include "tests/gpu/linear_pair.h"

static void test_change(void **state)
{
    static const struct linear_case c[] = {
        {.n = 40, .in = 64, .out = 48, .rank = 8, .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .bias = true, .residual = true},
        {.n = 40, .in = 64, .out = 48, .rank = 16, .bias = true, .in_place = true},
        {.n = 1, .in = 64, .out = 48, .rank = 8, .no_dx = true},
        {.n = 40, .in = 33, .out = 21, .rank = 5, .bias = true, .odd = true, .dx_add = true},
        {.n = 257, .in = 512, .out = 384, .rank = 24, .dx_add = true, .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .in_out = true, .bias = true},
        {.n = 40, .in = 64, .out = 40, .rank = 8, .out_ld = 80, .bias = true},
        {.n = 40, .in = 64, .out = 128, .rank = 8, .act = OP_ACT_GELU_TANH, .bias = true,
         .pre = true},
        {.n = 40, .in = 64, .out = 128, .rank = 8, .act = OP_ACT_RELU, .bias = true},
        {.n = 40, .in = 64, .out = 128, .rank = 8, .act = OP_ACT_GELU_TANH},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .x_act = OP_ACT_GELU_TANH, .bias = true},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .x_act = OP_ACT_RELU, .x_drop = 0.2f},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .drop = 0.1f, .residual = true},
        {.n = 0, .in = 128, .out = 64, .rank = 8},
    };

    (void)state;
    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

static void test_dropout(void **state)
{
    static const struct linear_case c[] = {
        {.n = 40, .in = 64, .out = 48, .rank = 8, .lora_drop = 0.1f, .frozen = true},
        {.n = 40, .in = 61, .out = 48, .rank = 7, .lora_drop = 0.3f, .bias = true,
         .dx_add = true},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .lora_drop = 0.2f, .drop = 0.1f,
         .x_act = OP_ACT_GELU_TANH, .x_drop = 0.2f, .residual = true},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .lora_drop = 0.2f, .x_act = OP_ACT_SILU,
         .in_out = true},
    };

    (void)state;
    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

static void test_magnitude(void **state)
{
    static const struct linear_case c[] = {
        {.n = 40, .in = 64, .out = 48, .rank = 8, .magnitude = true, .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .magnitude = true, .bias = true,
         .residual = true, .dx_add = true, .frozen = true},
        {.n = 40, .in = 33, .out = 21, .rank = 5, .magnitude = true, .bias = true, .odd = true,
         .in_place = true, .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .magnitude = true, .in_out = true,
         .frozen = true},
        {.n = 40, .in = 64, .out = 40, .rank = 8, .magnitude = true, .out_ld = 80, .bias = true,
         .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .magnitude = true, .lora_drop = 0.25f,
         .bias = true, .residual = true, .frozen = true},
        {.n = 40, .in = 64, .out = 40, .rank = 8, .magnitude = true, .lora_drop = 0.25f,
         .out_ld = 80, .bias = true, .dx_add = true, .frozen = true},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .magnitude = true, .lora_drop = 0.25f,
         .x_act = OP_ACT_GELU_TANH, .drop = 0.2f, .residual = true, .frozen = true},
        {.n = 40, .in = 64, .out = 128, .rank = 8, .magnitude = true, .act = OP_ACT_GELU_TANH,
         .pre = true, .bias = true, .frozen = true},
    };

    (void)state;
    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

static void test_large(void **state)
{
    static const struct linear_case c[] = {
        {.n = 4096, .in = 2048, .out = 1024, .rank = 24, .residual = true, .frozen = true},
        {.n = 4096, .in = 1024, .out = 2048, .rank = 24, .lora_drop = 0.05f, .frozen = true},
    };

    (void)state;
    linear_check_all(c, sizeof c / sizeof c[0], 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_change),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_magnitude),
        cmocka_unit_test(test_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
