/*
 * jobs - each job under each failure: the n-th allocation, read, write, sync, rename and open
 * fails, for every n there is.  Each time: a sentence, nothing under the final name and nothing
 * beside it, no leak (asan tells); or the output is complete.
 */
#ifndef CKPT_TESTS_FAULT_JOBS_H
#define CKPT_TESTS_FAULT_JOBS_H

#include "tests/unit/compare.h"
#include "tests/unit/faults.h"
#include "tests/unit/files.h"

struct job {
    const char *name;                   /* in failures; mostly the path that is read */
    int (*run)(const struct job *job, struct ckpt_err *err);
    /* Holds what run wrote against what it should, then removes it; NULL: run writes nothing. */
    void (*check)(const struct job *job);
    unsigned    kinds;                  /* of failures; 0: all */
    const void *input;                  /* a suite's own */
};

/* out: the directory that jobs write into. */
static inline void jobs_undisturbed(const struct job *job, size_t n, const char *out)
{
    for (size_t i = 0; i < n; i++) {
        struct ckpt_err err = {0};

        if (job[i].run(&job[i], &err))
            fail_msg("%s: %s", job[i].name, err.text);
        assert_int_equal(entries(out), job[i].check != NULL);
        if (job[i].check)
            job[i].check(&job[i]);
    }
}

static inline void jobs_fail(const struct job *job, size_t n, const char *out)
{
    for (size_t i = 0; i < n; i++)
        for (struct faults f = {.kinds = job[i].kinds}; faults_next(&f);) {
            struct ckpt_err err = {0};
            int rc = job[i].run(&job[i], &err);
            bool left;

            faults_disarm(&f);
            faults_told(&f, rc, &err, job[i].name);
            left = entries(out) > 0;
            /* A commit whose last sync failed may have got its name already. */
            if (rc && left && f.kind != CKPT_FAULT_SYNC)
                fail_msg("%s, kind %d, %lu: leaves something: %s", job[i].name, f.kind, f.n,
                         err.text);
            if (job[i].check && (rc == 0 || left))
                job[i].check(&job[i]);
            assert_int_equal(entries(out), 0);
        }
}

/* Read every tensor of s and close it. */
static inline int jobs_read(struct ckpt_source *s, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ckpt_source_count(s); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
        void *p = malloc((size_t)ckpt_tensor_bytes(t) + 1);

        rc = ckpt_source_read(s, i, 0, t->numel, p, err);
        free(p);
    }
    ckpt_source_close(s);
    return rc;
}

#endif
