/*
 * Memory that is refused at any moment of making, filling, reading and stepping a rank's arrays,
 * wherever they lie: a clean error, nothing left behind.
 */
#include "tests/unit/golden_model.h"
#include "tests/unit/faults.h"

#include "trainer/comm/comm.h"
#include "trainer/plan/fit.h"

static const struct model_opts train = {.max_tokens = 16, .max_docs = 2, .max_rows = 16,
                                        .train = true};
static const struct zero_opts places[] = {
    {.train = true},
    {.train = true, .moments = OP_MOMENTS_8BIT, .paged = true, .optim_on_device = 60000,
     .chunk = 512},
    {.train = true, .offload_param = true, .chunk = 512},
};

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    (void)ctx;
    (void)err;
    for (int64_t k = 0; k < count; k++)
        dst[k] = (float)(i + 1) * 0.01f * (float)((start + k) % 7);
    return 0;
}

/* What a run does with its arrays, once. */
static int use(const struct golden *g, struct device *dev, struct comm *comm,
               const struct zero_opts *opts, struct ckpt_err *err)
{
    struct fit_opts want = {.arch = g->arch, .dev = dev, .world_size = 1, .model = train,
                            .zero = *opts, .free_bytes = UINT64_MAX};
    const struct params *p = model_params(g->model);
    struct zero *z = NULL;
    struct fit f;
    int rc = fit_find(&f, &want, err);

    if (rc == 0)
        rc = zero_new(&z, p, opts, dev, comm, err);
    if (rc == 0)
        rc = zero_fill(z, ZERO_MASTER, fill, NULL, err);
    if (rc == 0) {
        struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = 1,
                          .verdict = zero_verdict(z)};

        zero_begin(z);
        zero_reduce(z);
        zero_judge(z, 1, 1);
        zero_step(z, &a, 0.1);
        if (!zero_master(z, 1, err))
            rc = err->code;
    }
    if (rc == 0)
        rc = device_sync(dev, err);
    zero_free(z);
    return rc;
}

/* f: NULL for no failure. */
static void run(const struct zero_opts *place, struct faults *f)
{
    struct ckpt_err err = {0};
    struct device *dev;
    struct comm *comm;
    struct golden g;
    int rc;

    golden_open(&g, "bloom-a", &train, 1);
    OK(device_open_cpu(&dev, 1, &err), err);
    OK(comm_open(&comm, 0, &err), err);
    dev->weight = CKPT_BF16;
    dev->discrete = true;
    if (f)
        faults_arm(f);
    rc = use(&g, dev, comm, place, &err);
    if (f) {
        faults_disarm(f);
        faults_fail(f, rc, CKPT_ENOMEM, &err, "arrays");
    } else {
        OK(rc, err);
    }
    comm_close(comm);
    device_close(dev);
    golden_close(&g);
}

TEST(nothing_fails)
{
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        run(&places[i], NULL);
}

TEST(each_failure_is_told)
{
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct faults f = {.kinds = FAULT(ALLOC), .later = true};

        while (faults_next(&f))
            run(&places[i], &f);
        assert_true(f.rounds > 20);
    }
}
