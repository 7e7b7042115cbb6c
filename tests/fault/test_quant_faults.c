/* Quantised weights seen as values, under failure: the n-th allocation, read and open fails, for
 * every n there is. */
#include "tests/fault/jobs.h"
#include "tests/unit/compare.h"

#include "formats/quant/quant.h"

static int see(const char *path, struct ckpt_err *err)
{
    struct ckpt_source *src, *seen;
    struct quant_told told;
    int rc = ckpt_open(&src, path, NULL, err);

    if (rc)
        return rc;
    rc = quant_tell(&told, src, err);
    if (rc) {
        ckpt_source_close(src);
        return rc;
    }
    rc = quant_view(&seen, src, err);
    return rc ? rc : jobs_read_all(seen, err);
}

static const struct job jobs[] = {
    {see, "tests/golden/quant/fp8"}, {see, "tests/golden/quant/ct-pack"},
    {see, "tests/golden/quant/gptq"}, {see, "tests/golden/bnb/weights.safetensors"},
};

TEST(undisturbed)
{
    jobs_undisturbed(jobs, 4);
}

TEST(each_failure_is_told)
{
    jobs_fail(jobs, 4, "build/test_quant_faults.none");
}
