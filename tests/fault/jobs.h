/*
 * jobs - each job under each failure: the n-th allocation, read, write, sync, rename and open
 * fails, for every n there is; it is told, and nothing is left of what a job writes.
 */
#ifndef CKPT_FAULT_JOBS_H
#define CKPT_FAULT_JOBS_H

#include "tests/unit/unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/err.h"
#include "libckpt/base/fault.h"

struct job {
    int (*run)(const char *path, struct ckpt_err *err);
    const char *path;
};

static inline void jobs_undisturbed(const struct job *job, size_t n)
{
    struct ckpt_err err = {0};

    mkdir("build", 0777);
    for (size_t i = 0; i < n; i++)
        if (job[i].run(job[i].path, &err))
            fail_msg("job %zu: %s", i, err.text);
}

#ifdef CKPT_FAULTS
/* out: what jobs write; a failing sync may leave it. */
static inline void jobs_fail(const struct job *job, size_t n_job, const char *out)
{
    for (size_t i = 0; i < n_job; i++)
        for (int kind = 0; kind < CKPT_FAULT_KINDS; kind++)
            for (unsigned long n = 1, struck = 1; struck; n++) {
                struct ckpt_err err = {0};
                int rc;

                ckpt_fault_arm((enum ckpt_fault)kind, n);
                rc = job[i].run(job[i].path, &err);
                struck = ckpt_fault_struck();
                ckpt_fault_arm((enum ckpt_fault)kind, 0);
                if (rc && (!err.text[0] || !struck))
                    fail_msg("job %zu, kind %d, %lu: %s", i, kind, n, err.text);
                if (rc && access(out, F_OK) == 0 && kind != CKPT_FAULT_SYNC)
                    fail_msg("job %zu, kind %d, %lu: leaves something", i, kind, n);
                remove(out);
            }
}
#endif

#endif
