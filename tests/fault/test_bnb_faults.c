/*
 * What bitsandbytes packs, under failure: seen and read, and written as an optimizer's file; the
 * n-th allocation, read, write, sync, rename and open fails, for every n there is.
 */
#include "tests/fault/jobs.h"
#include "tests/unit/compare.h"

#include "formats/bnb/bnb.h"
#include "formats/bnb/optim.h"

#define OUT "build/test_bnb_faults.pt"

static int see(const char *path, struct ckpt_err *err)
{
    struct ckpt_source *src, *seen;
    int rc = ckpt_open(&src, path, NULL, err);

    if (rc == 0)
        rc = bnb_view(&seen, src, err);
    return rc ? rc : jobs_read_all(seen, err);
}

static int write_file(const char *unused, struct ckpt_err *err)
{
    static float moment[2][4500];
    const struct adamw_param param = {{1, {4500}}, 0, moment[0], moment[1], ADAMW_8BIT};
    const struct adamw_group group = {1e-3, 1e-3, 0.9, 0.999, 1e-8, 0.01};
    struct ckpt_out *out;
    int rc = ckpt_out_create(&out, OUT, 0, err);

    (void)unused;
    return rc ? rc : bnb_optimizer_file_write(out, &param, 1, &group, 1, 3, NULL, err);
}

static const struct job jobs[] = {
    {see, "tests/golden/bnb/weights.safetensors"}, {see, "tests/golden/bnb/AdEMAMix8bit.pt"},
    {write_file, NULL},
};

TEST(undisturbed)
{
    struct ckpt_err err = {0};

    jobs_undisturbed(jobs, 3);
    if (see(OUT, &err))
        fail_msg("%s", err.text);
    remove(OUT);
}

TEST(each_failure_is_told)
{
    jobs_fail(jobs, 3, OUT);
}
