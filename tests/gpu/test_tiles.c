/* Projections by our own kernel against the CPU: a file of choices asks for it in all
 * products. */
#include "tests/gpu/choices_file.h"
#include "tests/gpu/linear_pair.h"

TEST(tiles)
{
    static const struct linear_case c[] = {
        {.n = 1024, .in = 128, .out = 128},
        {.n = 1025, .in = 136, .out = 264, .bias = true},
        {.n = 1100, .in = 200, .out = 136, .bias = true, .residual = true},
        {.n = 1100, .in = 264, .out = 136, .bias = true, .in_place = true, .dx_add = true},
        {.n = 1200, .in = 128, .out = 384, .bias = true, .act = OP_ACT_GELU_TANH, .pre = true},
        {.n = 1200, .in = 136, .out = 392, .act = OP_ACT_GELU_TANH},
        {.n = 1200, .in = 136, .out = 392, .bias = true, .act = OP_ACT_RELU},
        {.n = 1300, .in = 520, .out = 128, .bias = true, .x_act = OP_ACT_GELU_TANH},
        {.n = 1300, .in = 520, .out = 128, .x_act = OP_ACT_GELU_TANH, .made = true},
        {.n = 1300, .in = 384, .out = 136, .x_act = OP_ACT_RELU, .kept = true},
        {.n = 1300, .in = 512, .out = 128, .bias = true, .x_act = OP_ACT_RELU, .made = true},
        {.n = 1400, .in = 264, .out = 136, .bias = true, .in_out = true, .dx_add = true},
        {.n = 1400, .in = 136, .out = 128, .out_ld = 272, .bias = true},
        {.n = 1030, .in = 136, .out = 136, .bias = true, .rank = 8, .frozen = true},
        {.n = 1030, .in = 136, .out = 136, .odd = true, .bias = true},
        {.n = 6000, .in = 1032, .out = 2056, .bias = true, .frozen = true},
    };
    size_t n = gpu_small() ? 3 : sizeof c / sizeof c[0];    /* timing is slow there */
    const char *folder = choices_folder();

    linear_check_all(c, n, 6000);
    assert_true(choices_put(folder, 0) >= (int)n);
    linear_check_all(c, n, 6000);
    folder_gone(folder);
}
