/* comm - see comm.h.  The checked wrappers; what holds for every backend. */
#include "trainer/comm/comm.h"

#include <stdbool.h>
#include <string.h>

#include "libckpt/mem.h"
#include "trainer/comm/meet.h"
#include "trainer/comm/report.h"

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
    if (count > 0)
        report_collective(what);
    return count > 0;
}

void comm_all_reduce(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, enum comm_op op)
{
    if (wanted(c, "all_reduce", count, t, true) && c->world_size > 1)
        c->ops->all_reduce(c, buf, count, t, op);
}

void comm_all_gather(struct comm *c, void *dst, const void *src, int64_t count, enum ckpt_dtype t)
{
    if (!wanted(c, "all_gather", count, t, false))
        return;
    if (c->world_size > 1)
        c->ops->all_gather(c, dst, src, count, t);
    else if (dst != src)
        memcpy(dst, src, (size_t)count * ckpt_dtype_size(t));
}

void comm_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t count,
                         enum ckpt_dtype t)
{
    if (!wanted(c, "reduce_scatter", count, t, true))
        return;
    if (c->world_size > 1)
        c->ops->reduce_scatter(c, dst, src, count, t);
    else if (dst != src)
        memcpy(dst, src, (size_t)count * ckpt_dtype_size(t));
}

void comm_broadcast(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, int root)
{
    if (wanted(c, "broadcast", count, t, false) && c->world_size > 1)
        c->ops->broadcast(c, buf, count, t, root);
}

void comm_barrier(struct comm *c)
{
    if (c->err.code || c->world_size == 1)
        return;
    report_collective("barrier");
    c->ops->barrier(c);
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
    if (c->err.code == 0 && c->device)
        return comm_error(c->device, err);
    if (c->err.code)
        *err = c->err;
    return c->err.code;
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
    struct ckpt_err told = *err;

    if (c->world_size == 1)
        return rc;
    comm_all_reduce(c, &first, 1, CKPT_I64, COMM_MIN);
    if (comm_error(c, &told) == 0 && first == c->world_size)
        return 0;
    if (c->err.code == 0) {
        name_rank(&told, c->rank);
        comm_broadcast(c, &told, (int64_t)sizeof told, CKPT_U8, (int)first);
    }
    if (comm_error(c, &told) && rc)
        return rc;                      /* our own cause says more than a broken peer */
    c->agreed = c->err.code == 0;
    *err = told;
    return ckpt_err_code(err);
}

bool comm_alone(const struct comm *c, struct ckpt_err *err)
{
    char cause[1000];

    if (!c || c->agreed || c->world_size == 1)
        return false;
    if (err->code == CKPT_ECOMM && meet_cause(c->meet, cause, sizeof cause))
        ckpt_fail_as(err, CKPT_ECOMM, "peer-dead", "ended: %s", cause);
    name_rank(err, c->rank);
    if (err->code != CKPT_ECOMM)
        meet_tell(c->meet, err->text);
    return true;
}

void comm_leave_device(struct comm *c)
{
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
    c->ops->close(c);
    meet_close(c->meet, well);
    ckpt_free(c);
}
