/*
 * The choice of OpenBLAS' kernels: which are too old for this processor, that choosing takes
 * effect, and that products are the same by either kind.
 */
#include "tests/unit/unit.h"

#include <math.h>
#include <sys/platform/x86.h>
#include <sys/resource.h>

#include <cblas.h>

#include "trainer/cpu/blas.h"

enum { M = 37, N = 70, K = 45 };

static void product(float *c)
{
    static float a[M * K], b[K * N];

    for (int i = 0; i < M * K; i++)
        a[i] = (float)(i % 13 - 6) * 0.25f;
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(i % 11 - 5) * 0.5f;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, M, N, K, 1.0f, a, K, b, N, 0.0f, c, N);
}

TEST(kernels_that_know_the_processor_stay)
{
    assert_null(blas_core("Haswell"));
    assert_null(blas_core("Zen"));
    assert_null(blas_core("Cooperlake"));
    if (CPU_FEATURE_ACTIVE(AVX2) && CPU_FEATURE_ACTIVE(FMA))
        assert_non_null(blas_core("Prescott"));
    else
        assert_null(blas_core("Prescott"));
}

TEST(a_choice_takes_effect_and_products_stay_the_same)
{
    static float was[M * N], old[M * N], new[M * N];
    char found[32] = "";
    const char *best;

    strncpy(found, openblas_get_corename(), sizeof found - 1);
    product(was);
    if (!blas_choose("Prescott") || strcmp(openblas_get_corename(), "Prescott") != 0)
        skip();                         /* built for one processor */
    assert_null(getenv("OPENBLAS_CORETYPE"));
    product(old);
    best = blas_core(openblas_get_corename());
    if (best) {
        assert_true(blas_choose(best));
        assert_string_equal(openblas_get_corename(), best);
    }
    product(new);
    /* numbers of few bits: every order of the sums gives the same */
    assert_memory_equal(was, old, sizeof was);
    assert_memory_equal(was, new, sizeof was);
    assert_true(blas_choose(found));
}

TEST(a_device_multiplies_by_one_thread_a_call)
{
    struct ckpt_err err = {0};

    openblas_set_num_threads(2);
    assert_int_equal(blas_open(1, &err), 0);
    assert_int_equal(openblas_get_num_threads(), 1);
    assert_null(blas_core(openblas_get_corename()));
}

#ifndef __SANITIZE_ADDRESS__            /* its shadow alone is larger than the space left */
TEST(buffers_that_the_system_refuses_are_told)
{
    struct rlimit was, little;
    struct ckpt_err err = {0};

    assert_int_equal(blas_open(1, &err), 0);
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    if (was.rlim_cur != RLIM_INFINITY)
        skip();
    little = was;
    little.rlim_cur = (rlim_t)1 << 30;  /* what the process has by now, and some more */
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
    assert_int_equal(blas_open(64, &err), CKPT_ENOMEM);
    assert_non_null(strstr(err.text, "64 threads take 8192 MiB"));
    ckpt_err_clear(&err);
    assert_int_equal(blas_open(1, &err), 0);        /* it has that one */
    assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
    assert_int_equal(blas_open(3, &err), 0);
}
#endif
