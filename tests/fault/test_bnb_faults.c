/* Weights and optimizer files of bitsandbytes under failure: seen and read, and written. */
#include "tests/fault/jobs.h"

#include "formats/bnb/bnb.h"
#include "formats/bnb/optim.h"

SCRATCH_EACH("bnb-faults")

static const char *out(void) { return text_of("%s/out.pt", dir); }

static int see(const char *path, struct ckpt_err *err)
{
    struct ckpt_source *src, *seen;
    int rc;

    if ((rc = ckpt_open(&src, path, NULL, err)) != 0 || (rc = bnb_view(&seen, src, err)) != 0)
        return rc;
    return jobs_read(seen, err);
}

static int see_file(const struct job *job, struct ckpt_err *err) { return see(job->name, err); }

static int write_file(const struct job *job, struct ckpt_err *err)
{
    static float moment[2][4500];
    const struct adamw_param param = {{1, {4500}}, 0, moment[0], moment[1], ADAMW_8BIT};
    const struct adamw_group group = {.lr = 1e-3, .initial_lr = 1e-3, .beta1 = 0.9,
                                      .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
    struct ckpt_out *to;
    int rc;

    (void)job;
    if ((rc = ckpt_out_create(&to, out(), 0, err)) != 0)
        return rc;
    return bnb_optimizer_file_write(to, &param, 1, &group, 1, 2, 3, NULL, err);
}

static void check(const struct job *job)
{
    struct ckpt_err err = {0};

    if (see(out(), &err))
        fail_msg("%s: %s", job->name, err.text);
    remove(out());
}

static const struct job jobs[] = {
    {.name = "tests/golden/bnb/weights.safetensors", .run = see_file},
    {.name = "tests/golden/bnb/AdEMAMix8bit.pt", .run = see_file},
    {.name = "an optimizer's file", .run = write_file, .check = check},
};

TEST(undisturbed) { jobs_undisturbed(jobs, 3, dir); }
TEST(each_failure_is_told) { jobs_fail(jobs, 3, dir); }
