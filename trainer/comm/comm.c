/* comm - see comm.h.  The checked wrappers; what holds for every backend. */
#include "trainer/comm/comm.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/comm/meet.h"
#include "trainer/comm/report.h"

#define MAX_EXCHANGED ((int64_t)1 << 30)        /* elements of a rank; MPI counts them as ints */

/* Whether a collective has anything to do; marks the handle on a call that cannot be right. */
static bool wanted(struct comm *c, const char *what, int64_t count, enum ckpt_dtype t, bool sums)
{
    bool moved = t == CKPT_BF16 || t == CKPT_F16;       /* on the host 16 bits are never summed */

    if (c->err.code)
        return false;
    if (count < 0 || (t != CKPT_F32 && t != CKPT_F64 && t != CKPT_I64 && t != CKPT_I32 &&
                      t != CKPT_U8 && !(moved && (!sums || comm_groups(c))))) {
        ckpt_fail(&c->err, CKPT_ESTATE, "%s: %lld elements of %s", what, (long long)count,
                  ckpt_dtype_name(t));
        return false;
    }
    c->calls += count > 0;
    if (count > 0 && !c->concurrent)
        report_collective(what);
    return count > 0;
}

/* Collectives of a device return before they are done. */
static void took(struct comm *c, double began)
{
    if (!comm_groups(c))
        c->seconds += clock_now() - began;
}

/* What a communicator's parts count for in its sums. */
static bool counts(const struct comm *part) { return !part->concurrent && part->world_size > 1; }

static double seconds_of(struct comm *c)
{
    struct comm *on = comm_on_device(c);
    double sum = c->seconds;

    if (on->ops->seconds)
        sum = on->ops->seconds(on);
    else if (on != c || comm_groups(on))
        return NAN;
    for (struct comm *p = c->parts; p; p = p->next)
        sum += counts(p) ? seconds_of(p) : 0;
    return sum;
}

static uint64_t calls_of(const struct comm *c)
{
    uint64_t n = c->calls + (c->device ? c->device->calls : 0);

    for (const struct comm *p = c->parts; p; p = p->next)
        n += counts(p) ? calls_of(p) : 0;
    return n;
}

void comm_lap_begin(struct comm *c)
{
    if (calls_of(c) != c->lap_calls)
        c->lap = seconds_of(c);
}

double comm_lap_end(struct comm *c)
{
    double now = seconds_of(c), took = c->world_size > 1 ? now - c->lap : NAN;

    c->lap = now;
    c->lap_calls = calls_of(c);
    return took;
}

void comm_all_reduce(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, enum comm_op op)
{
    double began = clock_now();

    if (!wanted(c, "all_reduce", count, t, true) || c->world_size == 1)
        return;
    c->ops->all_reduce(c, buf, count, t, op);
    took(c, began);
}

void comm_all_gather(struct comm *c, void *dst, const void *src, int64_t count, enum ckpt_dtype t)
{
    double began = clock_now();

    if (!wanted(c, "all_gather", count, t, false))
        return;
    if (c->world_size > 1)
        c->ops->all_gather(c, dst, src, count, t);
    else if (dst != src)
        memcpy(dst, src, (size_t)count * ckpt_dtype_size(t));
    took(c, began);
}

void comm_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t count,
                         enum ckpt_dtype t)
{
    double began = clock_now();

    if (!wanted(c, "reduce_scatter", count, t, true))
        return;
    if (c->world_size > 1)
        c->ops->reduce_scatter(c, dst, src, count, t);
    else if (dst != src)
        memcpy(dst, src, (size_t)count * ckpt_dtype_size(t));
    took(c, began);
}

void comm_broadcast(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, int root)
{
    double began = clock_now();

    if (!wanted(c, "broadcast", count, t, false) || c->world_size == 1)
        return;
    c->ops->broadcast(c, buf, count, t, root);
    took(c, began);
}

void comm_barrier(struct comm *c)
{
    double began = clock_now();

    if (c->err.code || c->world_size == 1)
        return;
    c->calls++;
    if (!c->concurrent)
        report_collective("barrier");
    c->ops->barrier(c);
    took(c, began);
}

static int64_t sum_of(const int64_t *count, int n)
{
    int64_t sum = 0;

    for (int r = 0; r < n; r++)
        sum = count[r] < 0 || sum > MAX_EXCHANGED ? MAX_EXCHANGED + 1 : sum + count[r];
    return sum;
}

void comm_exchange(struct comm *c, void *dst, const int64_t *taken, const void *src,
                   const int64_t *given, enum ckpt_dtype t)
{
    int64_t in = sum_of(taken, c->world_size), out = sum_of(given, c->world_size);
    double began = clock_now();

    if (c->err.code == 0 && (in > MAX_EXCHANGED || out > MAX_EXCHANGED ||
                             taken[c->rank] != given[c->rank] ||
                             (c->world_size > 1 && !c->ops->exchange)))
        ckpt_fail(&c->err, CKPT_ESTATE, "exchange: takes %lld elements, gives %lld",
                  (long long)in, (long long)out);
    /* A rank that neither gives nor takes calls too: the others count its calls. */
    if (!wanted(c, "exchange", c->world_size, t, false))
        return;
    if (c->world_size > 1)
        c->ops->exchange(c, dst, taken, src, given, t);
    else if (in > 0)
        memcpy(dst, src, (size_t)in * ckpt_dtype_size(t));
    took(c, began);
}

static void group(struct comm *c, bool begin)
{
    if (!c->err.code && c->world_size > 1 && c->ops->group)
        c->ops->group(c, begin);
}

void comm_group_begin(struct comm *c) { group(c, true); }
void comm_group_end(struct comm *c) { group(c, false); }

int comm_error(const struct comm *c, struct ckpt_err *err)
{
    int rc = c->err.code;

    if (rc)
        *err = c->err;
    else if (c->device)
        rc = comm_error(c->device, err);
    for (const struct comm *p = c->parts; p && rc == 0; p = p->next)
        rc = p->concurrent ? 0 : comm_error(p, err);
    return rc;
}

/* Put "rank N: " in front, unless a rank is named there already. */
static void name_rank(struct ckpt_err *err, int rank)
{
    if (strncmp(err->text, "rank ", 5) != 0)
        ckpt_err_in(err, "rank %d", rank);
}

int comm_agree(struct comm *c, int rc, struct ckpt_err *err)
{
    int64_t first = rc ? c->rank : c->world_size;       /* lowest failing rank */
    struct ckpt_err told;

    if (c->world_size == 1)
        return rc;
    if (rc == 0 && (rc = comm_error(c, err)) != 0)
        first = c->rank;                /* in a part, or on the device: c may still be whole */
    told = *err;
    comm_all_reduce(c, &first, 1, CKPT_I64, COMM_MIN);
    if (c->err.code == 0 && first == c->world_size)
        return 0;
    if (c->err.code == 0) {
        name_rank(&told, c->global_rank);
        comm_broadcast(c, &told, (int64_t)sizeof told, CKPT_U8, (int)first);
    }
    c->agreed = c->err.code == 0;
    if (c->agreed)
        *err = told;
    else if (rc)
        return rc;                      /* our own cause says more than a broken peer */
    else
        *err = c->err;
    return ckpt_err_code(err);
}

bool comm_alone(const struct comm *c, struct ckpt_err *err)
{
    struct ckpt_err cause = {0};

    if (!c || c->agreed || c->world_size == 1)
        return false;
    if (err->code == CKPT_ECOMM && meet_cause(c->meet, &cause)) {
        ckpt_fail_as(err, cause.code, cause.reason, "ended: %.900s", cause.text);
        ckpt_err_in(err, "rank %d", c->rank);
        return true;
    }
    name_rank(err, c->rank);
    if (err->code != CKPT_ECOMM)
        meet_tell(c->meet, err);
    return true;
}

void comm_leave_device(struct comm *c)
{
    for (struct comm *p = c ? c->parts : NULL; p; p = p->next) {
        if (c->err.code && p->err.code == 0)
            p->err = c->err;
        comm_leave_device(p);
    }
    if (!c || !c->device)
        return;
    if (c->err.code && c->device->err.code == 0)
        c->device->err = c->err;        /* not to wait for the others there either */
    c->device->ops->close(c->device);
    ckpt_free(c->device);
    c->device = NULL;
}

void comm_close(struct comm *c)
{
    bool well;

    if (!c)
        return;
    well = c->err.code == 0;
    c->status = ckpt_err_status(c->err.code);
    comm_leave_device(c);
    while (c->parts) {
        struct comm *p = c->parts;

        c->parts = p->next;
        p->ops->close(p);
        ckpt_free(p);
    }
    c->ops->close(c);
    meet_close(c->meet, well);
    ckpt_free(c);
}

/* -- groups ------------------------------------------------------------------------------------ */

/* The divisors of a world: "1, 2 or 4". */
static void sizes_of(char *to, size_t room, int64_t world_size)
{
    int64_t last = world_size > 1 ? world_size : 0;
    size_t used = (size_t)snprintf(to, room, "1");

    for (int64_t n = 2; n < world_size && used < room / 2; n++)
        if (world_size % n == 0)
            used += (size_t)snprintf(to + used, room - used, ", %lld", (long long)n);
    if (last)
        snprintf(to + used, room - used, " or %lld", (long long)last);
}

int comm_split_check(int64_t world_size, int64_t size, struct ckpt_err *err)
{
    char fit[256];

    if (size >= 1 && world_size % size == 0)
        return 0;
    sizes_of(fit, sizeof fit, world_size);
    ckpt_fail(err, CKPT_ECONFIG, "groups of %lld ranks do not fill a world of %lld",
              (long long)size, (long long)world_size);
    return ckpt_err_hint(err, "`hybrid_shard_size N` sets the ranks of a group: %s", fit);
}

int comm_split_node(int *size, struct comm *c, struct ckpt_err *err)
{
    int64_t most = c->local_rank, wrong;

    comm_all_reduce(c, &most, 1, CKPT_I64, COMM_MAX);
    *size = (int)most + 1;
    /* The first rank whose number on its node is not its place in a group of this size. */
    wrong = c->rank % *size == c->local_rank ? c->world_size : c->rank;
    comm_all_reduce(c, &wrong, 1, CKPT_I64, COMM_MIN);
    if (comm_error(c, err))
        return ckpt_err_code(err);
    if (wrong == c->world_size && c->world_size % *size == 0)
        return 0;
    c->agreed = true;
    if (wrong == c->world_size)
        ckpt_fail(err, CKPT_ECONFIG, "hybrid sharding: nodes have up to %d ranks, the last has "
                  "fewer", *size);
    else
        ckpt_fail(err, CKPT_ECONFIG, "hybrid sharding: nodes have up to %d ranks, but rank %lld is "
                  "not number %lld of its node", *size, (long long)wrong,
                  (long long)(wrong % *size));
    return ckpt_err_hint(err, "start as many ranks on every node, those of a node one after "
                         "another; or set the ranks of a group: `hybrid_shard_size N`");
}

int comm_split(struct comm **out, struct comm *c, enum comm_part which, int size,
               struct ckpt_err *err)
{
    bool within = which == COMM_WITHIN, connects;
    int n = within ? size : c->world_size / size, rc;
    int rank = within ? c->rank % size : c->rank / size;
    struct comm *part = NULL, **end = &c->parts;

    *out = NULL;
    if ((rc = comm_split_check(c->world_size, size, err)) != 0) {
        c->agreed = true;               /* the same on every rank */
        return rc;
    }
    connects = n > 1 && !c->planned;
    if (!connects)
        rc = comm_open_single(&part, n, err);
    else if ((part = ckpt_alloc(1, c->ops->size)) != NULL)
        part->ops = c->ops;
    else
        rc = ckpt_nomem(err, c->ops->size);
    rc = comm_agree(c, rc, err);
    if (rc || !part) {
        ckpt_free(part);
        return rc;
    }
    part->rank = rank;
    part->world_size = n;
    part->local_rank = c->local_rank;
    part->global_rank = c->global_rank;
    part->stride = c->stride * (within ? 1 : size);
    while (*end)
        end = &(*end)->next;
    *end = part;
    if (connects)
        c->ops->split(part, c, within ? c->rank / size : c->rank % size);
    if ((rc = comm_agree(c, 0, err)) == 0)
        *out = part;
    return rc;
}

int comm_twin_split(struct comm **out, struct comm *c, enum comm_part which, int size,
                    struct ckpt_err *err)
{
    int rc = 0;

    *out = NULL;
    if (c->world_size == 1 || c->ops->threads)
        rc = comm_split(out, c, which, size, err);
    if (*out)
        (*out)->concurrent = true;
    return rc;
}

int comm_twin(struct comm **out, struct comm *c, struct ckpt_err *err)
{
    return comm_twin_split(out, c, COMM_WITHIN, c->world_size, err);
}
