/* run/histograms - see histograms.h. */
#include "trainer/tell/histograms.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/mem.h"
#include "libckpt/sink.h"
#include "trainer/checkpoint/weights.h"

/* A sink that keeps nothing of the tensors but how their numbers are distributed. */
struct counting {
    const char                *of;      /* "gradients" */
    const struct ckpt_tensors *list;
    histograms_fn             *put;
    void                      *ctx;
    struct histogram           h;
};

static int count(void *self, size_t i, int64_t start, int64_t n, const void *src,
                 struct ckpt_err *err)
{
    struct counting *c = self;
    const struct ckpt_tensor *t = &c->list->item[i];
    char tag[CKPT_MAX_NAME + 32];

    (void)err;
    if (start == 0)
        memset(&c->h, 0, sizeof c->h);
    histogram_add(&c->h, src, (size_t)n);
    if (start + n < t->numel)
        return 0;
    snprintf(tag, sizeof tag, "%s/%s", c->of, t->name);
    c->put(c->ctx, tag, &c->h);
    return 0;
}

static int commit(void *self, struct ckpt_err *err)
{
    (void)err;
    ckpt_free(self);
    return 0;
}

static const struct ckpt_sink_ops counts = {.format = "histograms", .write = count,
                                            .commit = commit, .abort = ckpt_free};

/* Ranges come in order, tensor by tensor. */
static int open_sink(struct ckpt_sink **sink, const char *of, const struct ckpt_tensors *list,
                     histograms_fn *put, void *ctx, struct ckpt_err *err)
{
    struct counting *c = ckpt_alloc(1, sizeof *c);

    if (!c)
        return ckpt_nomem(err, sizeof *c);
    c->of = of;
    c->list = list;
    c->put = put;
    c->ctx = ctx;
    return ckpt_sink_new(sink, &counts, c, list, true, err);
}

static int gather(struct zero *zero, struct comm *comm, bool grads, double scale,
                  histograms_fn *put, void *ctx, struct ckpt_err *err)
{
    const struct params *p = zero_flat(zero)->params;
    struct ckpt_tensors list = {0};
    struct ckpt_sink *sink = NULL;
    int rc = 0;

    if (comm->rank == 0)
        rc = grads ? weights_trained_list(&list, p, CKPT_F32, err)
                   : weights_list(&list, p, CKPT_F32, err);
    if (comm->rank == 0 && rc == 0)
        rc = open_sink(&sink, grads ? "gradients" : "parameters", &list, put, ctx, err);
    if ((rc = comm_agree(comm, rc, err)) == 0)
        rc = grads ? weights_gather_grads(zero, comm, sink, (float)(1 / scale), err)
                   : weights_gather(zero, comm, sink, err);
    if (sink && rc == 0)
        rc = ckpt_sink_commit(sink, err);
    else
        ckpt_sink_abort(sink);
    ckpt_tensors_release(&list);
    return comm_agree(comm, rc, err);
}

int histograms_gather(struct zero *zero, struct comm *comm, double scale, histograms_fn *put,
                      void *ctx, struct ckpt_err *err)
{
    int rc = gather(zero, comm, true, scale, put, ctx, err);

    return rc ? rc : gather(zero, comm, false, 1, put, ctx, err);
}
