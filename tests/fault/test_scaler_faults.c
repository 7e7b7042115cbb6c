/* scaler.pt under failure, read and written. */
#include "tests/fault/jobs.h"

#include "trainer/optim/scaler.h"

SCRATCH_EACH("scaler-faults")

static const struct scaler_opts opts = {.on = true, .initial_scale_power = 16,
                                        .loss_scale_window = 1000, .hysteresis = 2,
                                        .min_loss_scale = 1};

static const char *out(void) { return text_of("%s/out.pt", dir); }

static int read_scale(const char *path, struct ckpt_err *err)
{
    struct ckpt_file *f;
    struct scaler s;
    int rc;

    scaler_init(&s, &opts);
    rc = ckpt_file_open(&f, path, 0, err);
    return rc ? rc : scaler_file_read(&s, f, err);
}

static int read_file(const struct job *job, struct ckpt_err *err)
{
    return read_scale(job->name, err);
}

static int write_file(const struct job *job, struct ckpt_err *err)
{
    struct ckpt_out *to;
    struct scaler s;
    int rc;

    (void)job;
    scaler_init(&s, &opts);
    rc = ckpt_out_create(&to, out(), 0, err);
    return rc ? rc : scaler_file_write(to, &s, err);
}

static void check(const struct job *job)
{
    struct ckpt_err err = {0};

    if (read_scale(out(), &err))
        fail_msg("%s: %s", job->name, err.text);
    remove(out());
}

static const struct job jobs[] = {
    {.name = "tests/golden/optim/scaler.pt", .run = read_file},
    {.name = "scaler.pt", .run = write_file, .check = check},
};

TEST(undisturbed) { jobs_undisturbed(jobs, 2, dir); }
TEST(each_failure_is_told) { jobs_fail(jobs, 2, dir); }
