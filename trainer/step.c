/* step - see step.h. */
#include "trainer/step.h"

#include <math.h>

#include "formats/formats.h"
#include "trainer/weights.h"

/* The sticky failures of device and communicator, in that order. */
static int broken(struct device *dev, struct comm *comm, struct ckpt_err *err)
{
    return device_sync(dev, err) ? err->code : comm_error(comm, err);
}

/* All gradients as one file, written by rank 0.  Collective. */
static int dump(const char *path, struct zero *zero, struct comm *comm, struct ckpt_err *err)
{
    struct ckpt_create_opts opts = {.stream_fd = -1};
    struct ckpt_tensors list = {0};
    struct ckpt_sink *sink = NULL;

    if (comm->rank == 0 &&
        weights_trained_list(&list, zero_flat(zero)->params, CKPT_F32, err) == 0)
        ckpt_create(&sink, "safetensors", path, &list, &opts, err);
    if (comm_agree(comm, err) == 0)
        weights_gather_grads(zero, comm, sink, err);
    if (sink && err->code == 0)
        ckpt_sink_commit(sink, err);
    else
        ckpt_sink_abort(sink);
    ckpt_tensors_release(&list);
    return comm_agree(comm, err);
}

int step_run(struct step_result *out, struct model *model, struct zero *zero, struct device *dev,
             struct comm *comm, struct loader *loader, const struct step_opts *opts, double lr,
             int64_t number, struct ckpt_err *err)
{
    const struct loader_step *data;
    int64_t count[3] = {0, 0, 0};       /* the last: ranks whose data could not be read */
    double loss = 0, norm;
    float scale;
    int rc = loader_next(loader, &data, err);

    if (rc == 0) {
        count[0] = data->n_targets;
        count[1] = data->n_tokens;
    } else {
        count[2] = 1;
    }
    comm_all_reduce(comm, count, 3, CKPT_I64, COMM_SUM);
    if (count[2])
        return comm_agree(comm, err);
    scale = count[0] > 0 ? (float)(1.0 / (double)count[0]) : 0.0f;
    zero_begin(zero);
    for (int64_t j = 0; j < data->n_micro && rc == 0; j++) {
        double sum = 0;

        model_drop_key(model, opts->seed, comm->rank, (uint64_t)number << 24 | (uint64_t)j);
        rc = model_loss_grad(model, zero_weights(zero), data->micro[j], scale, &sum, err);
        loss += sum;
    }
    zero_reduce(zero);
    comm_all_reduce(comm, &loss, 1, CKPT_F64, COMM_SUM);
    norm = sqrt(zero_grad_sum_squares(zero));
    if (rc || broken(dev, comm, err))
        return err->code;
    *out = (struct step_result){.loss = count[0] > 0 ? loss / (double)count[0] : 0,
                                .grad_norm = norm, .n_targets = count[0], .n_tokens = count[1],
                                .epoch = (double)data->epoch + (double)(data->step_of_epoch + 1) /
                                                                   (double)data->steps_of_epoch};
    if (!isfinite(out->loss) || !isfinite(norm)) {
        comm->agreed = true;            /* loss and norm are the same on every rank */
        return ckpt_fail_as(err, CKPT_ENO, "non-finite",
                            "step %lld: loss is %g, gradient norm is %g: stopped before the update",
                            (long long)number, out->loss, norm);
    }
    if (opts->dump_grads && number == opts->dump_step &&
        dump(opts->dump_grads, zero, comm, err))
        return err->code;
    optim_step(zero, &opts->optim, lr, number, norm);
    return broken(dev, comm, err);
}
