/* optimizer.pt of torch's optimizers and of Adafactor under failure: written, seen and read. */
#include "tests/fault/jobs.h"

#include <math.h>

#include "formats/hf/adafactor.h"

SCRATCH_EACH("optim-faults")

enum { N = 4500 };

static float moment[2][N];

static const char *out(void) { return text_of("%s/optimizer.pt", dir); }

static int give(void *ctx, size_t i, enum adamw_array of, int64_t start, int64_t count, void *to,
                struct ckpt_err *err)
{
    (void)ctx;
    (void)i;
    (void)of;
    (void)start;
    (void)err;
    memset(to, 0, (size_t)count * sizeof(float));
    return 0;
}

static const struct adamw_reader reader = {give, NULL};

static int write_adafactor(const struct job *job, struct ckpt_err *err)
{
    static const struct adafactor_group numbers = {1e-30, 1e-3, 1, -0.8, NAN, false, false, false};
    static const struct adamw_group group = {.lr = 1e-3, .initial_lr = 1e-3,
                                             .adafactor = &numbers};
    static const struct adafactor_param param[] = {{{2, {90, 50}}, 0, moment[0], moment[1], 1},
                                                   {{1, {N}}, 0, moment[0], NULL, 1}};
    struct ckpt_out *to;
    int rc;

    (void)job;
    if ((rc = ckpt_out_create(&to, out(), 0, err)) != 0)
        return rc;
    return hf_adafactor_write(to, param, 2, &group, 1, 3, &reader, err);
}

static int write_muon(const struct job *job, struct ckpt_err *err)
{
    static const struct muon_group numbers = {.momentum = 0.95, .ns_steps = 5,
                                              .adjust_lr_fn = "original"};
    static const struct adamw_group group[] = {
        {.lr = 1e-3, .initial_lr = 1e-3, .muon = &numbers},
        {.lr = 1e-3, .initial_lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}};
    static const struct adamw_param param[] = {{{2, {90, 50}}, 0, moment[0], NULL, ADAMW_F32},
                                               {{1, {N}}, 1, NULL, NULL, ADAMW_F32}};
    struct ckpt_out *to;
    int rc;

    (void)job;
    if ((rc = ckpt_out_create(&to, out(), 0, err)) != 0)
        return rc;
    return hf_optimizer_write(to, param, 2, group, 2, 3, &reader, err);
}

static void check(const struct job *job)
{
    const char *const has[] = {job->run == write_muon ? "state.0.momentum_buffer" : "state.0.RMS",
                               job->run == write_muon ? "state.1.exp_avg_sq" : "state.1.exp_avg"};
    struct ckpt_source *src = NULL;
    struct ckpt_err err = {0};

    if (ckpt_open(&src, out(), NULL, &err))
        fail_msg("%s: %s", job->name, err.text);
    for (size_t i = 0; i < 2; i++)
        assert_true(ckpt_source_find(src, has[i]) != SIZE_MAX);
    if (jobs_read(src, &err))
        fail_msg("%s: %s", job->name, err.text);
    remove(out());
}

static const struct job jobs[] = {
    {.name = "Adafactor's file", .run = write_adafactor, .check = check},
    {.name = "Muon's and AdamW's file", .run = write_muon, .check = check},
};

TEST(undisturbed) { jobs_undisturbed(jobs, 2, dir); }
TEST(each_failure_is_told) { jobs_fail(jobs, 2, dir); }
