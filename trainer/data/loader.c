/*
 * loader - see loader.h.  One thread fills a ring of steps; the consumer holds one of them.
 */
#include "trainer/data/loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/err.h"
#include "trainer/data/plan.h"

#define PREFETCH     2
#define MAX_PREFETCH 64
#define MAX_ACCUM    65536

/* One step's memory. */
struct slot {
    struct loader_step   step;
    struct pack         *pack;          /* [grad_accum] */
    const struct batch **micro;         /* [grad_accum] */
};

struct loader {
    struct data_source *source;
    struct loader_opts  o;
    struct data_plan    plan;           /* used by the thread, or by callers while none runs */
    int64_t             max_tokens, max_docs, first_steps;
    struct slot        *slot;           /* [n_slot] */
    size_t              n_slot;
    struct sample       sample;         /* the thread's */

    pthread_t           thread;
    bool                running;
    pthread_mutex_t     lock;           /* of all below */
    pthread_cond_t      filled, freed;
    size_t              head, n_full;   /* ready slots: head, head + 1, ... */
    bool                held;           /* the consumer holds slot head - 1 */
    bool                quit;
    int64_t             next;           /* first step that the thread prepares */
    struct ckpt_err     err;            /* why it ended */
};

static bool asked_to_quit(struct loader *l)
{
    bool quit;

    pthread_mutex_lock(&l->lock);
    quit = l->quit;
    pthread_mutex_unlock(&l->lock);
    return quit;
}

static int fill_micro(struct loader *l, struct slot *slot, int64_t m, int64_t i_micro,
                      struct ckpt_err *err)
{
    struct pack *pack = &slot->pack[m];
    struct shuffle_slice slice;
    int rc;

    shuffle_slice(l->o.packing ? l->plan.cut : l->plan.order, i_micro, &slice);
    pack_clear(pack);
    for (int64_t k = 0; k < slice.n; k++) {
        struct data_group group = data_plan_group(&l->plan, &slice, k);
        int64_t names = group.again * data_source_count(l->source);

        for (int64_t i = 0; i < group.n; i++) {
            if (asked_to_quit(l))
                return CKPT_ESTOPPED;
            if ((rc = data_source_sample(l->source, group.item[i], &l->sample, err)) != 0 ||
                (rc = pack_add(pack, &l->sample, names + group.item[i], k < slice.real,
                               err)) != 0)
                return rc;
        }
        slot->step.n_samples += group.n;
    }
    slot->step.n_targets += pack->batch.n_rows;
    slot->step.n_tokens += pack->batch.n_tokens + pack->batch.n_enc;
    slot->micro[m] = &pack->batch;
    return 0;
}

static int fill(struct loader *l, struct slot *slot, int64_t step, struct ckpt_err *err)
{
    const struct shuffle *order;
    int64_t first;
    int rc = data_plan_find(&l->plan, step, err);

    if (rc)
        return rc;
    slot->step = (struct loader_step){
        .step = step, .epoch = l->plan.epoch, .step_of_epoch = step - l->plan.first_step,
        .steps_of_epoch = l->plan.steps, .micro = slot->micro,
    };
    order = l->o.packing ? l->plan.cut : l->plan.order;
    slot->step.n_micro = shuffle_step(order, slot->step.step_of_epoch, &first);
    slot->step.micro_done = first + slot->step.n_micro;
    slot->step.micro_of_epoch = shuffle_micros(order);
    for (int64_t m = 0; rc == 0 && m < slot->step.n_micro; m++)
        rc = fill_micro(l, slot, m, first + m, err);
    return rc;
}

static void *prepare(void *arg)
{
    struct loader *l = arg;
    struct ckpt_err err = {0};
    int64_t step = l->next;
    int rc = 0;

    while (rc == 0) {
        struct slot *slot = NULL;

        pthread_mutex_lock(&l->lock);
        while (!l->quit && l->n_full + l->held == l->n_slot)
            pthread_cond_wait(&l->freed, &l->lock);
        if (!l->quit)
            slot = &l->slot[(l->head + l->n_full) % l->n_slot];
        pthread_mutex_unlock(&l->lock);
        if (!slot)
            break;
        rc = fill(l, slot, step++, &err);
        pthread_mutex_lock(&l->lock);
        l->n_full += rc == 0;
        if (rc)
            l->err = err;
        pthread_cond_signal(&l->filled);
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

/* End the thread; prepared steps are dropped. */
static void stop(struct loader *l)
{
    if (!l->running)
        return;
    pthread_mutex_lock(&l->lock);
    l->quit = true;
    pthread_cond_signal(&l->freed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->running = l->quit = l->held = false;
    l->head = l->n_full = 0;
    ckpt_err_clear(&l->err);
}

static int start(struct loader *l, struct ckpt_err *err)
{
    int rc = pthread_create(&l->thread, NULL, prepare, l);

    if (rc)
        return ckpt_fail_errno(err, CKPT_ENOMEM, rc,
                               "cannot start the thread that prepares data");
    l->running = true;
    return 0;
}

/* One rank's tokens of a step. */
static int64_t step_tokens(struct data_plan *plan, const int32_t *token, int64_t step_of_epoch,
                           int64_t *n_micro)
{
    struct shuffle *cut = plan->o.packing ? plan->cut : plan->order;
    struct shuffle_slice slice;
    int64_t first, sum = 0, n = shuffle_step(cut, step_of_epoch, &first);

    for (int64_t m = 0; m < n; m++) {
        shuffle_slice(cut, first + m, &slice);
        for (int64_t k = 0; k < slice.n; k++) {
            struct data_group group = data_plan_group(plan, &slice, k);

            for (int64_t i = 0; i < group.n; i++)
                sum += token[group.item[i]];
        }
    }
    *n_micro += n;
    return sum;
}

int loader_count(const struct loader *l, const int32_t *token, int64_t steps,
                 struct loader_tokens *out, struct ckpt_err *err)
{
    struct loader_opts o = l->o;
    int64_t n_micro = 0;
    int rc = 0;

    *out = (struct loader_tokens){0};
    for (o.rank = 0; rc == 0 && o.rank < o.world_size; o.rank++) {
        struct data_plan plan;

        if ((rc = data_plan_init(&plan, l->source, &o, err)) != 0)
            return rc;
        for (int64_t s = 0; rc == 0 && s < steps; s++)
            if ((rc = data_plan_find(&plan, s, err)) == 0)
                out->tokens += step_tokens(&plan, token, s - plan.first_step, &n_micro);
        data_plan_release(&plan);
    }
    out->capacity = n_micro * l->o.max_tokens;
    return rc;
}

int loader_seek(struct loader *l, int64_t step, struct ckpt_err *err)
{
    if (step < 0)
        return ckpt_fail(err, CKPT_ECONFIG, "step %lld", (long long)step);
    stop(l);
    l->next = step;
    return 0;
}

int loader_next(struct loader *l, const struct loader_step **out, struct ckpt_err *err)
{
    int rc = 0;

    *out = NULL;
    if (!l->running && (rc = start(l, err)) != 0)
        return rc;
    pthread_mutex_lock(&l->lock);
    if (l->held) {
        l->held = false;
        pthread_cond_signal(&l->freed);
    }
    while (l->n_full == 0 && !l->err.code)
        pthread_cond_wait(&l->filled, &l->lock);
    if (l->n_full > 0) {
        *out = &l->slot[l->head].step;
        l->head = (l->head + 1) % l->n_slot;
        l->n_full--;
        l->held = true;
        l->next = (*out)->step + 1;
    } else {
        *err = l->err;
        rc = ckpt_err_code(err);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

static int by_length(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Most samples of a bin: as many of the shortest as fit. */
static int most_in_a_bin(struct loader *l, struct ckpt_err *err)
{
    size_t n = (size_t)data_source_count(l->source);
    int32_t *length = ckpt_alloc(n, sizeof *length);
    int64_t left = l->o.max_tokens;

    if (!length)
        return ckpt_nomem(err, n * sizeof *length);
    memcpy(length, data_source_lengths(l->source), n * sizeof *length);
    qsort(length, n, sizeof *length, by_length);
    l->max_docs = 0;
    for (size_t i = 0; i < n && length[i] <= left; i++) {
        left -= length[i];
        l->max_docs++;
    }
    ckpt_free(length);
    return l->max_docs > 0 ? 0
                           : ckpt_fail(err, CKPT_ECONFIG,
                                       "no sample fits into packed "
                                       "batches of %lld tokens",
                                       (long long)l->o.max_tokens);
}

/* Upper bounds of a micro-batch. */
static int bounds(struct loader *l, struct ckpt_err *err)
{
    const int32_t *length = data_source_lengths(l->source);
    int64_t longest = data_source_max_length(l->source);

    if (l->o.packing) {
        l->max_tokens = l->o.max_tokens;
        return most_in_a_bin(l, err);
    }
    if (length && !data_source_padded(l->source)) {
        longest = 1;
        for (int64_t i = 0; i < data_source_count(l->source); i++)
            longest = length[i] > longest ? length[i] : longest;
    }
    l->max_docs = l->o.micro_batch;
    if (__builtin_mul_overflow(l->o.micro_batch, longest, &l->max_tokens))
        return ckpt_fail(err, CKPT_ECONFIG, "micro-batches of %lld samples of %lld tokens are "
                         "too large", (long long)l->o.micro_batch, (long long)longest);
    return 0;
}

static int make_slots(struct loader *l, struct ckpt_err *err)
{
    size_t accum = (size_t)l->o.grad_accum;
    int rc;

    /* One more than the prefetched steps: the consumer's. */
    l->n_slot = (size_t)l->o.prefetch + 1;
    l->slot = ckpt_alloc(l->n_slot, sizeof *l->slot);
    if (!l->slot)
        return ckpt_nomem(err, l->n_slot * sizeof *l->slot);
    for (size_t i = 0; i < l->n_slot; i++) {
        l->slot[i].pack = ckpt_alloc(accum, sizeof *l->slot[i].pack);
        l->slot[i].micro = ckpt_alloc(accum, sizeof *l->slot[i].micro);
        if (!l->slot[i].pack || !l->slot[i].micro)
            return ckpt_nomem(err, accum * sizeof *l->slot[i].pack);
        for (size_t m = 0; m < accum; m++) {
            rc = pack_init(&l->slot[i].pack[m], l->max_tokens, l->max_docs, err);
            if (rc == 0 && data_source_pairs(l->source))
                rc = pack_init_pairs(&l->slot[i].pack[m], l->max_tokens, err);
            if (rc == 0 && data_source_padded(l->source))
                rc = pack_init_padded(&l->slot[i].pack[m], err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int check(struct loader_opts *o, struct ckpt_err *err)
{
    if (o->prefetch == 0)
        o->prefetch = PREFETCH;
    if (o->prefetch < 1 || o->prefetch > MAX_PREFETCH)
        return ckpt_fail(err, CKPT_ECONFIG, "prefetch of %d steps; 1 to %d", o->prefetch,
                         MAX_PREFETCH);
    if (o->grad_accum < 1 || o->grad_accum > MAX_ACCUM)
        return ckpt_fail(err, CKPT_ECONFIG, "%lld accumulated micro-batches; 1 to %d",
                         (long long)o->grad_accum, MAX_ACCUM);
    if (o->packing && o->max_tokens < 1)
        return ckpt_fail(err, CKPT_ECONFIG, "packed batches of %lld tokens",
                         (long long)o->max_tokens);
    return 0;
}

int loader_open(struct loader **out, struct data_source *source, const struct loader_opts *opts,
                struct ckpt_err *err)
{
    struct loader *l = ckpt_alloc(1, sizeof *l);
    int rc;

    *out = NULL;
    if (!l)
        return ckpt_nomem(err, sizeof *l);
    l->source = source;
    l->o = *opts;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->filled, NULL);
    pthread_cond_init(&l->freed, NULL);
    rc = check(&l->o, err);
    if (rc == 0 && (l->o.packing || l->o.by_length))
        rc = data_source_scan(source, NULL, err);
    if (rc == 0)
        rc = data_plan_init(&l->plan, source, &l->o, err);
    if (rc == 0)
        rc = bounds(l, err);
    if (rc == 0)
        rc = make_slots(l, err);
    if (rc) {
        loader_close(l);
        return rc;
    }
    l->first_steps = l->plan.steps;
    *out = l;
    return 0;
}

void loader_close(struct loader *l)
{
    if (!l)
        return;
    stop(l);
    for (size_t i = 0; l->slot && i < l->n_slot; i++) {
        for (int64_t m = 0; l->slot[i].pack && m < l->o.grad_accum; m++)
            pack_release(&l->slot[i].pack[m]);
        ckpt_free(l->slot[i].pack);
        ckpt_free(l->slot[i].micro);
    }
    ckpt_free(l->slot);
    data_plan_release(&l->plan);
    sample_release(&l->sample);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->filled);
    pthread_cond_destroy(&l->freed);
    ckpt_free(l);
}

int64_t loader_max_tokens(const struct loader *l) { return l->max_tokens; }
int64_t loader_max_docs(const struct loader *l) { return l->max_docs; }
int64_t loader_max_rows(const struct loader *l) { return l->max_tokens; }

int64_t loader_max_enc(const struct loader *l)
{
    return data_source_pairs(l->source) ? l->max_tokens : 0;
}

int64_t loader_steps_per_epoch(const struct loader *l) { return l->first_steps; }

int loader_steps_of(struct loader *l, int64_t n_epochs, int64_t *steps, struct ckpt_err *err)
{
    struct data_plan plan;
    int rc;

    if (!l->o.packing) {
        *steps = n_epochs * l->first_steps;
        return 0;
    }
    rc = data_plan_init(&plan, l->source, &l->o, err);
    if (rc)
        return rc;
    for (int64_t e = 1; rc == 0 && e < n_epochs; e++)
        rc = data_plan_next(&plan, err);
    *steps = plan.first_step + plan.steps;
    data_plan_release(&plan);
    return rc;
}
