/*
 * scaler.pt under failure, read and written: the n-th allocation, read, write, sync, rename and
 * open fails, for every n there is.
 */
#include "tests/fault/jobs.h"

#include "trainer/optim/scaler.h"

#define OUT "build/test_scaler_faults.pt"

static const struct scaler_opts opts = {.on = true, .initial_scale_power = 16,
                                        .loss_scale_window = 1000, .hysteresis = 2,
                                        .min_loss_scale = 1};

static int read_scale(const char *path, struct ckpt_err *err)
{
    struct ckpt_file *f;
    struct scaler s;

    scaler_init(&s, &opts);
    return ckpt_file_open(&f, path, 0, err) ? err->code : scaler_file_read(&s, f, err);
}

static int write_scale(const char *path, struct ckpt_err *err)
{
    struct ckpt_out *out;
    struct scaler s;

    (void)path;
    scaler_init(&s, &opts);
    return ckpt_out_create(&out, OUT, 0, err) ? err->code : scaler_file_write(out, &s, err);
}

static const struct job jobs[] = {
    {read_scale, "tests/golden/optim/scaler.pt"}, {write_scale, NULL},
};

TEST(undisturbed)
{
    struct ckpt_err err = {0};

    jobs_undisturbed(jobs, 2);
    if (read_scale(OUT, &err))
        fail_msg("%s", err.text);
    remove(OUT);
}

TEST(each_failure_is_told)
{
    jobs_fail(jobs, 2, OUT);
}
