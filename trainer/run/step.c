/* step - see step.h. */
#include "trainer/run/step.h"

#include <math.h>
#include <stdio.h>

#include "formats/formats.h"
#include "libckpt/log.h"
#include "trainer/clock.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/comm/report.h"

/* The sticky failures of device and communicator, in that order. */
static int broken(const struct session *s, struct ckpt_err *err)
{
    int rc = device_sync(s->dev, err);

    return rc ? rc : comm_error(s->comm, err);
}

/* All gradients, those of a loss without its scale, as one file written by rank 0.  Collective. */
static int dump(const char *path, struct zero *zero, struct comm *comm, double scale,
                struct ckpt_err *err)
{
    struct ckpt_create_opts opts = {0};
    struct ckpt_tensors list = {0};
    struct ckpt_sink *sink = NULL;
    int rc = 0;

    if (comm->rank == 0)
        rc = weights_trained_list(&list, zero_flat(zero)->params, CKPT_F32, err);
    if (comm->rank == 0 && rc == 0)
        rc = ckpt_create(&sink, "safetensors", path, &list, &opts, err);
    if ((rc = comm_agree(comm, rc, err)) == 0)
        rc = weights_gather_grads(zero, comm, sink, (float)(1 / scale), err);
    if (sink && rc == 0)
        rc = ckpt_sink_commit(sink, err);
    else
        ckpt_sink_abort(sink);
    ckpt_tensors_release(&list);
    return comm_agree(comm, rc, err);
}

/* What a step that was not finite means for a loss that is not scaled. */
static int settle_plain(const struct step_result *out, const struct step_opts *opts,
                        struct comm *comm, int64_t number, struct ckpt_err *err)
{
    struct scaler *scaler = opts->scaler;
    char row[64] = "";

    scaler->in_row = out->skipped ? scaler->in_row + 1 : 0;
    scaler->skipped += out->skipped;
    if (!out->skipped)
        return 0;
    if (scaler->in_row <= opts->max_skipped) {
        if (comm->rank == 0)
            ckpt_log(CKPT_LOG_WARNING, "step %lld: loss is %g, gradient norm is %g: skipped, %lld "
                     "in a row of at most %lld", (long long)number, out->loss, out->grad_norm,
                     (long long)scaler->in_row, (long long)opts->max_skipped);
        return 0;
    }
    comm->agreed = true;
    if (opts->max_skipped)
        snprintf(row, sizeof row, ", %lld steps in a row", (long long)scaler->in_row);
    return ckpt_fail_as(err, CKPT_ENO, "non-finite",
                        "step %lld: loss is %g, gradient norm is %g: stopped before the update%s",
                        (long long)number, out->loss, out->grad_norm, row);
}

/* What a step that was not finite means; loss and norm are the same on every rank. */
static int settle(struct step_result *out, const struct op_verdict *verdict,
                  const struct step_opts *opts, struct comm *comm, int64_t number,
                  struct ckpt_err *err)
{
    struct scaler *scaler = opts->scaler;
    bool forward = !isfinite(out->loss);
    double was = scaler->scale;

    out->skipped = forward || !verdict->finite;
    if (!scaler->o.on)
        return settle_plain(out, opts, comm, number, err);
    if (scaler_update(scaler, out->skipped, err)) {
        comm->agreed = true;
        ckpt_err_in(err, "step %lld: loss is %g", (long long)number, out->loss);
        return ckpt_err_hint(err, "%s", forward
                             ? "activations leave float16's range, which no scale mends (T5's do "
                               "so by nature): train with `bf16`"
                             : "a smaller `learning_rate`, or `bf16`");
    }
    if (out->skipped && comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "step %lld: loss is %g, gradients are not finite at a loss "
                 "scale of %g: skipped, the scale is %g now", (long long)number, out->loss, was,
                 scaler->scale);
    return 0;
}

static int run(struct step_result *out, const struct session *s, struct loader *loader,
               const struct step_opts *opts, double lr, int64_t number, struct ckpt_err *err)
{
    struct comm *comm = s->comm;
    struct zero *zero = s->zero;
    const struct loader_step *data;
    int64_t count[4] = {0};             /* [2]: ranks whose data could not be read */
    struct scaler *scaler = opts->scaler;
    struct op_verdict verdict;
    double loss = 0;
    float scale;
    int rc = loader_next(loader, &data, err);

    if (rc == 0) {
        count[0] = data->n_targets;
        count[1] = data->n_tokens;
        count[3] = data->n_samples;
    } else {
        count[2] = 1;
    }
    comm_all_reduce(comm, count, 4, CKPT_I64, COMM_SUM);
    if (count[2])
        return comm_agree(comm, rc, err);
    scale = count[0] > 0 ? (float)(scaler->scale / (double)count[0]) : 0.0f;
    zero_begin(zero);
    model_drop_key(s->model, opts->seed, (uint64_t)number);
    model_noise_key(s->model, opts->seed, (uint64_t)number);
    for (int64_t j = 0; j < data->n_micro && rc == 0; j++) {
        double sum = 0;

        report_part();
        if (j + 1 == data->n_micro)
            zero_last(zero);
        rc = model_loss_grad(s->model, zero_weights(zero), data->micro[j], scale, &sum, err);
        loss += sum;
    }
    if (rc)                             /* peers may be in the midst of the micro-batch, in other */
        return rc;                      /* collectives than those below: none is joined */
    zero_reduce(zero);
    comm_all_reduce(comm, &loss, 1, CKPT_F64, COMM_SUM);
    *out = (struct step_result){.loss = count[0] > 0 ? loss / (double)count[0] : 0,
                                .n_targets = count[0], .n_tokens = count[1],
                                .n_samples = count[3],
                                .epoch = (double)data->epoch + (double)data->micro_done /
                                                                   (double)data->micro_of_epoch,
                                .epoch_ends = data->step_of_epoch + 1 == data->steps_of_epoch};
    zero_judge(zero, opts->optim.max_grad_norm, scaler->scale);
    if (s->dev->err.code || comm_error(comm, err))
        return broken(s, err);
    if (opts->dump_grads && number == opts->dump_step && zero_verdict_host(zero).finite &&
        (rc = dump(opts->dump_grads, zero, comm, scaler->scale, err)) != 0)
        return rc;
    if (opts->look && (rc = opts->look(opts->look_at, scaler->scale, err)) != 0)
        return rc;
    if (isfinite(out->loss))
        optim_step(zero, &opts->optim, lr, number - scaler->skipped - opts->optim.lag);
    verdict = zero_verdict_host(zero);
    rc = broken(s, err);
    if (rc)
        return rc;
    out->grad_norm = verdict.norm;
    return settle(out, &verdict, opts, comm, number, err);
}

int step_run(struct step_result *out, const struct session *s, struct loader *loader,
             const struct step_opts *opts, double lr, int64_t number, struct ckpt_err *err)
{
    double began = clock_now();
    int rc;

    comm_lap_begin(s->comm);
    rc = run(out, s, loader, opts, lr, number, err);
    out->seconds = clock_now() - began;
    out->communication = comm_lap_end(s->comm);
    return rc;
}
