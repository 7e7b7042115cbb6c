/* run/simulate - see run/simulate.h. */
#include "trainer/run/simulate.h"

#include <math.h>

#include "libckpt/log.h"
#include "trainer/clock.h"

enum { WARM = 5, STEADY = 3, WARM_MOST = 40, STEPS = 20 };

/* A simulation in work. */
struct simulation {
    const struct session   *s;
    struct loader          *loader;
    const struct step_opts *opts;
    const volatile int     *stop;
    int64_t                 number, expected;   /* steps done, and how many there will be about */
};

/* One step: its seconds and this rank's tokens. */
static int timed(double *seconds, double *tokens, struct simulation *m, struct ckpt_err *err)
{
    double start = clock_now();
    struct step_result res;
    int rc = step_run(&res, m->s, m->loader, m->opts, 0, ++m->number, err);

    *seconds = clock_now() - start;
    *tokens = (double)res.n_tokens;     /* the others' are not there to be added */
    if (rc == CKPT_ENO)
        ckpt_err_hint(err, "every rank's part of a weight is a copy of this rank's: fresh weights "
                      "(`init CONFIG`) keep such a model finite");
    if (rc == 0 && m->stop && *m->stop)
        rc = ckpt_fail(err, CKPT_ESTOPPED, "stopped in step %lld of a simulation",
                       (long long)m->number);
    ckpt_log_progress("simulating", "steps", (uint64_t)m->number,
                      (uint64_t)(m->number > m->expected ? m->number : m->expected));
    return rc;
}

static int warm_up(struct simulation *m, struct ckpt_err *err)
{
    double best = INFINITY, took, tokens;
    int steady = 0, rc = 0;

    for (int i = 0; rc == 0 && i < WARM_MOST && (i < WARM || steady < STEADY); i++) {
        rc = timed(&took, &tokens, m, err);
        best = fmin(best, took);
        steady = took <= 1.05 * best ? steady + 1 : 0;
    }
    return rc;
}

/* The data's first steps; sums of seconds and tokens. */
static int measure(double *seconds, double *least, double *tokens, struct simulation *m,
                   int64_t steps, struct ckpt_err *err)
{
    int rc = loader_seek(m->loader, 0, err);

    *seconds = *tokens = 0;
    *least = INFINITY;
    for (int64_t i = 0; rc == 0 && i < steps; i++) {
        double took, n;

        rc = timed(&took, &n, m, err);
        *seconds += took;
        *least = fmin(*least, took);
        *tokens += n;
    }
    return rc;
}

/* A world may want more samples of a step than there are: then its steps are smaller. */
static void warn_of_little(const struct session *s, const struct run_data *data)
{
    const struct settings *set = data->settings;
    int64_t n = data_source_count(data->train.source);
    double whole = (double)set->per_device_train_batch_size *
                   (double)set->gradient_accumulation_steps * s->comm->world_size;

    if (!set->packing && (double)n < whole)
        ckpt_log(CKPT_LOG_WARNING, "the data has %lld samples, a step of %d ranks takes %.0f: "
                 "rank 0 has fewer micro-batches than `gradient_accumulation_steps %lld`, or "
                 "samples that it has had before", (long long)n, s->comm->world_size, whole,
                 (long long)set->gradient_accumulation_steps);
}

/* The communicators of the device: the world's, or those of its parts; NULL after the last. */
static struct comm *simulated(struct comm *world, struct comm *before)
{
    struct comm *c = before ? before->next : world->parts ? world->parts : world;

    while (c && !c->device)
        c = c->next;
    return c;
}

static struct simulate_sum take_all(struct comm *world)
{
    struct simulate_sum sum = {0};

    for (struct comm *c = simulated(world, NULL); c; c = simulated(world, c)) {
        struct simulate_sum one = simulate_take(c->device);

        sum.n += one.n;
        sum.seconds += one.seconds;
        sum.bytes += one.bytes;
    }
    return sum;
}

static void pause_all(struct comm *world, bool paused)
{
    for (struct comm *c = simulated(world, NULL); c; c = simulated(world, c))
        simulate_pause(c->device, paused);
}

int run_simulate(struct run_simulated *out, const struct session *s, const struct run_data *data,
                 const struct step_opts *opts, int64_t steps, const volatile int *stop,
                 struct ckpt_err *err)
{
    int64_t n = steps > 0 ? steps : STEPS;
    struct simulation m = {.s = s, .loader = data->train.loader, .opts = opts, .stop = stop,
                           .expected = WARM + 2 * n};
    struct comm *comm = s->comm;
    double seconds, least, tokens, alone = 0, unused;
    struct simulate_sum sum;
    int rc;

    warn_of_little(s, data);
    if ((rc = warm_up(&m, err)) != 0)
        return rc;
    take_all(comm);
    if ((rc = measure(&seconds, &least, &tokens, &m, n, err)) != 0)
        return rc;
    sum = take_all(comm);
    pause_all(comm, true);
    rc = measure(&alone, &unused, &unused, &m, n, err);
    pause_all(comm, false);
    *out = (struct run_simulated){
        .net = s->simulate, .world = comm->world_size, .stage = s->zero_opts.stage,
        .group = s->shard->world_size,
        .nodes = simulate_nodes(&s->simulate, comm->world_size), .steps = n,
        .tokens = tokens * comm->world_size / (double)n,
        .seconds = seconds / (double)n, .seconds_least = least,
        .exposed = fmax(0, seconds - alone) / (double)n,
        .communication = sum.seconds / (double)n, .bytes = sum.bytes / (double)n,
        .collectives = (double)sum.n / (double)n,
    };
    return rc;
}
