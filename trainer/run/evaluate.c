/* evaluate - see evaluate.h. */
#include "trainer/run/evaluate.h"

#include "libckpt/log.h"
#include "trainer/clock.h"

/* Whether any rank is to stop. */
static bool is_stopped(struct comm *comm, const volatile int *stop)
{
    int64_t any = stop && *stop;

    if (stop)
        comm_all_reduce(comm, &any, 1, CKPT_I64, COMM_MAX);
    return any;
}

int evaluate_run(struct evaluate_result *out, struct model *model,
                 const struct model_weights *weights, struct comm *comm, struct loader *loader,
                 const volatile int *stop, struct ckpt_err *err)
{
    int64_t steps = loader_steps_per_epoch(loader), count[2] = {0, 0};
    double start = clock_now(), loss = 0;
    int rc;

    if ((rc = loader_seek(loader, 0, err)) != 0)
        return rc;
    for (int64_t i = 0; i < steps; i++) {
        const struct loader_step *s;

        if (is_stopped(comm, stop)) {
            *out = (struct evaluate_result){.stopped = true};
            return comm_error(comm, err);
        }
        if ((rc = loader_next(loader, &s, err)) != 0)
            return rc;
        for (int64_t j = 0; j < s->n_micro; j++) {
            double sum = 0;

            if ((rc = model_loss(model, weights, s->micro[j], &sum, NULL, err)) != 0)
                return rc;
            loss += sum;
        }
        count[0] += s->n_targets;
        count[1] += s->n_samples;
        if (comm->rank == 0)
            ckpt_log_progress("evaluation", "batches", (uint64_t)i + 1, (uint64_t)steps);
    }
    comm_all_reduce(comm, &loss, 1, CKPT_F64, COMM_SUM);
    comm_all_reduce(comm, count, 2, CKPT_I64, COMM_SUM);
    if ((rc = comm_error(comm, err)) != 0)
        return rc;
    if (count[0] == 0) {
        comm->agreed = true;            /* the counts are of all ranks */
        return ckpt_fail(err, CKPT_EFORMAT, "evaluation data: no supervised token in %lld samples",
                         (long long)count[1]);
    }
    *out = (struct evaluate_result){.loss = loss / (double)count[0], .n_targets = count[0],
                                    .n_samples = count[1], .n_batches = steps,
                                    .seconds = clock_now() - start};
    return 0;
}
