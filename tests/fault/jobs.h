/*
 * jobs - each job under each failure: the n-th allocation, read, write, sync, rename and open
 * fails, for every n there is; it is told, and nothing is left of what a job writes.
 */
#ifndef CKPT_TESTS_FAULT_JOBS_H
#define CKPT_TESTS_FAULT_JOBS_H

#include "libckpt/source.h"
#include "tests/unit/faults.h"

struct job {
    int (*run)(const char *path, struct ckpt_err *err);
    const char *path;
};

/* Every tensor to its end.  Closes src. */
static inline int jobs_read_all(struct ckpt_source *src, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        void *p = malloc((size_t)ckpt_tensor_bytes(t) + 1);

        rc = ckpt_source_read(src, i, 0, t->numel, p, err);
        free(p);
    }
    ckpt_source_close(src);
    return rc;
}

static inline void jobs_undisturbed(const struct job *job, size_t n)
{
    struct ckpt_err err = {0};

    mkdir("build", 0777);
    for (size_t i = 0; i < n; i++)
        if (job[i].run(job[i].path, &err))
            fail_msg("job %zu: %s", i, err.text);
}

/* out: what jobs write; a failing sync may leave it. */
static inline void jobs_fail(const struct job *job, size_t n_job, const char *out)
{
    for (size_t i = 0; i < n_job; i++)
        for (struct faults f = {0}; faults_next(&f);) {
            struct ckpt_err err = {0};
            int rc = job[i].run(job[i].path, &err);

            faults_disarm(&f);
            faults_told(&f, rc, &err, job[i].path ? job[i].path : out);
            if (rc && access(out, F_OK) == 0 && f.kind != CKPT_FAULT_SYNC)
                fail_msg("job %zu, kind %d, %lu: leaves something", i, f.kind, f.n);
            remove(out);
        }
}

#endif
