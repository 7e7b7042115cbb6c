/* First weights: what each role gets, the same from any rank, and the generator beneath. */
#include "tests/unit/model_help.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/model/init.h"
#include "trainer/rng.h"

/* Random123's known answers for philox4x32-10 (kat_vectors). */
static void test_rng_words_equal_known_answers(void **state)
{
    uint32_t w[4];
    static const uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    static const uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};

    (void)state;
    rng_words(w, 0, 0, 0);
    assert_memory_equal(w, zero, sizeof w);
    rng_words(w, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_memory_equal(w, ones, sizeof w);
    /* counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0 */
    rng_words(w, 0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
    assert_memory_equal(w, pi, sizeof w);
}

static void test_rng_normal_is_normal(void **state)
{
    enum { N = 200000 };
    float *x = malloc(N * sizeof *x);
    double m[5] = {0}, inside = 0;

    (void)state;
    assert_non_null(x);
    rng_normal(x, 0, N, 1.0f, 42, rng_stream("a"));
    for (int i = 0; i < N; i++) {
        for (int k = 1; k < 5; k++)
            m[k] += pow((double)x[i], k) / N;
        inside += fabs((double)x[i]) < 1;
    }
    /* five standard errors of each moment */
    assert_true(fabs(m[1]) < 5 / sqrt(N));
    assert_true(fabs(m[2] - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(m[3]) < 5 * sqrt(15.0 / N));
    assert_true(fabs(m[4] - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(inside / N - 0.682689) < 5 * sqrt(0.2166 / N));
    free(x);
}

static void test_rng_uniform_stays_below_one(void **state)
{
    double sum = 0;

    (void)state;
    for (uint64_t i = 0; i < 10000; i++) {
        double u = rng_uniform(1, 2, i);

        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 5 * sqrt(1.0 / 12 / 10000));
}

static void test_init_is_the_same_however_it_is_cut(void **state)
{
    struct arch *arch =
        arch_of("{\"model_type\":\"bloom\",\"vocab_size\":31,\"hidden_size\":24,"
                "\"initializer_range\":0.05}");
    struct ckpt_err err = {0};
    struct params p;
    struct init init = {.arch = arch, .params = &p, .seed = 3};
    float whole[31 * 24], part[31 * 24];

    (void)state;
    assert_int_equal(params_build(&p, arch, NULL, &err), 0);
    assert_int_equal(init_fill(&init, 0, 0, 31 * 24, whole, &err), 0);
    for (int64_t ranks = 2; ranks < 12; ranks++) {
        int64_t each = (31 * 24 + ranks - 1) / ranks;

        for (int64_t r = 0, at = 0; r < ranks; r++, at += each) {
            int64_t n = at + each < 31 * 24 ? each : 31 * 24 - at;

            if (n > 0)
                assert_int_equal(init_fill(&init, 0, at, n, part + at, &err), 0);
        }
        assert_memory_equal(whole, part, sizeof whole);
    }
    init.seed = 4;
    assert_int_equal(init_fill(&init, 0, 0, 31 * 24, part, &err), 0);
    assert_memory_not_equal(whole, part, sizeof whole);
    assert_int_equal(init_fill(&init, 0, 31 * 24 - 1, 2, part, &err), CKPT_ESTATE);
    assert_int_equal(init_fill(&init, p.n, 0, 1, part, &err), CKPT_ESTATE);
    params_release(&p);
    arch_free(arch);
}

static void test_init_gives_each_role_its_kind(void **state)
{
    struct arch *arch = arch_of("{\"model_type\":\"bloom\",\"vocab_size\":5,\"hidden_size\":64,"
                                "\"n_layer\":2,\"initializer_range\":0.05}");
    struct ckpt_err err = {0};
    struct params p;
    struct init init = {.arch = arch, .params = &p, .seed = 3};
    static float x[256 * 64], before[64 * 192];
    bool have = false;

    (void)state;
    assert_int_equal(params_build(&p, arch, NULL, &err), 0);
    for (size_t i = 0; i < p.n; i++) {
        const char *name = p.item[i].name;
        double sum = 0, sq = 0;
        int64_t n = p.item[i].numel;

        assert_int_equal(init_fill(&init, i, 0, n, x, &err), 0);
        for (int64_t j = 0; j < n; j++) {
            sum += (double)x[j];
            sq += (double)x[j] * (double)x[j];
        }
        if (strstr(name, ".bias"))
            assert_true(sq == 0);
        else if (strstr(name, "layernorm") || strstr(name, "ln_f"))
            assert_true(sum == (double)n && sq == (double)n);
        else
            assert_true(fabs(sqrt(sq / (double)n) / 0.05 - 1) < 4 / sqrt(2.0 * (double)n));
        if (strstr(name, "query_key_value.weight")) {   /* two layers differ */
            if (have)
                assert_memory_not_equal(before, x, sizeof before);
            memcpy(before, x, sizeof before);
            have = true;
        }
    }
    params_release(&p);
    arch_free(arch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rng_words_equal_known_answers),
        cmocka_unit_test(test_rng_normal_is_normal),
        cmocka_unit_test(test_rng_uniform_stays_below_one),
        cmocka_unit_test(test_init_is_the_same_however_it_is_cut),
        cmocka_unit_test(test_init_gives_each_role_its_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
