/* Quantised weights seen as values, under failure. */
#include "tests/fault/jobs.h"

#include "formats/quant/quant.h"

SCRATCH_EACH("quant-faults")

static int see(const struct job *job, struct ckpt_err *err)
{
    struct ckpt_source *src, *seen;
    struct quant_told told;
    int rc;

    if ((rc = ckpt_open(&src, job->name, NULL, err)) != 0)
        return rc;
    if ((rc = quant_tell(&told, src, err)) != 0) {
        ckpt_source_close(src);
        return rc;
    }
    rc = quant_view(&seen, src, err);
    return rc ? rc : jobs_read(seen, err);
}

static const struct job jobs[] = {
    {.name = "tests/golden/quant/fp8", .run = see},
    {.name = "tests/golden/quant/ct-pack", .run = see},
    {.name = "tests/golden/quant/gptq", .run = see},
    {.name = "tests/golden/bnb/weights.safetensors", .run = see},
};

TEST(undisturbed) { jobs_undisturbed(jobs, 4, dir); }
TEST(each_failure_is_told) { jobs_fail(jobs, 4, dir); }
