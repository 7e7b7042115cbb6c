/* The largest logits of rows: beside a sort of them, with equal values, infinities and NaN. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/top_check.h"

static void test_top_is_what_a_sort_gives(void **state)
{
    static const int64_t vocab[] = {1, 2, 7, 300, 5000};
    static const int64_t k[] = {1, 2, 5, 64, 256};
    struct ckpt_err err = {0};
    struct device *dev;

    (void)state;
    assert_int_equal(device_open_cpu(&dev, 2, &err), 0);
    for (int v = 0; v < 5; v++)
        for (int i = 0; i < 5; i++)
            for (int kind = 0; kind < TOP_KINDS; kind++)
                if (k[i] <= vocab[v])
                    top_check(dev, 3, vocab[v], k[i], kind);
    device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_top_is_what_a_sort_gives)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
