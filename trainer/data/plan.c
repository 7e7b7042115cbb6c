/* plan - see plan.h. */
#include "trainer/data/plan.h"

#include <string.h>

static void shuffle_opts_of(struct shuffle_opts *out, const struct data_plan *p, bool bins)
{
    *out = (struct shuffle_opts){
        .n = bins ? p->bins.n_bin : data_source_count(p->source), .seed = p->o.seed,
        .shuffle = p->o.shuffle && !bins, .tail = p->o.tail,
        .micro_batch = p->o.packing ? 1 : p->o.micro_batch, .grad_accum = p->o.grad_accum,
        .rank = p->o.rank, .world_size = p->o.world_size, .distributed = p->o.distributed,
        .length = p->o.by_length && !bins ? data_source_lengths(p->source) : NULL,
        .group = p->o.micro_batch * p->o.grad_accum,
    };
    /* With packing, samples are only put in order; bins may be dropped. */
    if (p->o.packing && !bins)
        out->tail = SHUFFLE_WRAP;
}

static int enter(struct data_plan *p, int64_t epoch, struct ckpt_err *err)
{
    struct shuffle_opts o;
    int rc;

    p->epoch = epoch;
    if (p->o.packing) {
        if ((rc = pack_plan_make(&p->bins, shuffle_order(p->order, epoch),
                                 data_source_count(p->source), data_source_lengths(p->source),
                                 p->o.max_tokens, err)) != 0)
            return rc;
        shuffle_free(p->cut);
        shuffle_opts_of(&o, p, true);
        if ((rc = shuffle_new(&p->cut, &o, err)) != 0)
            return rc;
    }
    p->steps = shuffle_steps(p->o.packing ? p->cut : p->order);
    return 0;
}

int data_plan_init(struct data_plan *p, const struct data_source *source,
                   const struct loader_opts *opts, struct ckpt_err *err)
{
    struct shuffle_opts o;
    int rc;

    memset(p, 0, sizeof *p);
    p->source = source;
    p->o = *opts;
    shuffle_opts_of(&o, p, false);
    rc = shuffle_new(&p->order, &o, err);
    if (rc == 0)
        rc = enter(p, 0, err);
    if (rc)
        data_plan_release(p);
    return rc;
}

void data_plan_release(struct data_plan *p)
{
    shuffle_free(p->order);
    shuffle_free(p->cut);
    pack_plan_release(&p->bins);
    memset(p, 0, sizeof *p);
}

int data_plan_next(struct data_plan *p, struct ckpt_err *err)
{
    p->first_step += p->steps;
    return enter(p, p->epoch + 1, err);
}

int data_plan_find(struct data_plan *p, int64_t step, struct ckpt_err *err)
{
    int rc = 0;

    if (!p->o.packing) {
        p->epoch = step / p->steps;
        p->first_step = p->epoch * p->steps;
        return 0;
    }
    if (step < p->first_step) {
        p->first_step = 0;
        rc = enter(p, 0, err);
    }
    while (rc == 0 && step - p->first_step >= p->steps)
        rc = data_plan_next(p, err);
    return rc;
}

struct data_group data_plan_group(struct data_plan *p, const struct shuffle_slice *slice,
                                  int64_t k)
{
    int64_t entry = slice->first + k * slice->stride;
    int64_t n = p->o.packing ? p->bins.n_bin : data_source_count(p->source), at = entry % n;

    if (p->o.packing)
        return (struct data_group){.item = p->bins.item + p->bins.bin[at],
                                   .n = p->bins.bin[at + 1] - p->bins.bin[at],
                                   .again = entry / n};
    return (struct data_group){.item = shuffle_order(p->order, p->epoch) + at, .n = 1,
                               .again = entry / n};
}
