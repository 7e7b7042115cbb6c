/*
 * cuda/nccl - collectives over NCCL, in the order of the device's OP_STREAM_COMM.
 *
 * NCCL is opened when several ranks meet on GPUs, from wherever device_open.c finds it; the few
 * declarations here are those of its stable interface, so that no header of it is needed.  Nothing
 * waits for the host: what a collective gives is there for the operations queued after it.  For a
 * given world NCCL's algorithms are fixed, so that reruns give the same bits.
 *
 * Source: nccl.h of NCCL 2.27 (types and enumerations, unchanged since 2.10).
 */
#include "trainer/cuda/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

namespace {

struct unique_id { char bytes[CUDA_NCCL_ID]; };
typedef struct ncclComm *handle;

/* ncclDataType_t, ncclRedOp_t, ncclResult_t. */
enum { UINT8 = 1, INT32 = 2, INT64 = 4, FLOAT16 = 6, FLOAT32 = 7, FLOAT64 = 8, BFLOAT16 = 9 };
enum { SUM = 0, MAX = 2, MIN = 3 };
enum { SUCCESS = 0, IN_PROGRESS = 7 };

struct library {
    int (*get_unique_id)(unique_id *id);
    int (*init)(handle *comm, int n, unique_id id, int rank);
    int (*all_reduce)(const void *src, void *dst, size_t n, int type, int op, handle c,
                      cudaStream_t s);
    int (*all_gather)(const void *src, void *dst, size_t n, int type, handle c, cudaStream_t s);
    int (*reduce_scatter)(const void *src, void *dst, size_t n, int type, int op, handle c,
                          cudaStream_t s);
    int (*broadcast)(const void *src, void *dst, size_t n, int type, int root, handle c,
                     cudaStream_t s);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*async_error)(handle c, int *rc);
    int (*destroy)(handle c);
    int (*abort)(handle c);
    const char *(*error_string)(int rc);
    const char *(*last_error)(handle c);
};

/* Events around collectives that are under way: a ring.  The host is ahead of a stream by less. */
enum { TIMED = 2048 };

struct timed { cudaEvent_t begin, end; };

struct comm_nccl {
    struct comm    head;
    struct device *dev;
    handle         nccl;
    struct timed   at[TIMED];           /* NULL: never used */
    uint64_t       first, next;         /* pairs [first, next), modulo TIMED, wait to be read */
    double         seconds;             /* of those read */
    bool           grouped, group;      /* between group calls; these are timed as one */
};

library lib;

struct comm_nccl *of(struct comm *c) { return reinterpret_cast<struct comm_nccl *>(c); }

template <typename F> bool find(void *so, F *f, const char *name)
{
    *f = reinterpret_cast<F>(dlsym(so, name));
    return *f != nullptr;
}

int fail(struct ckpt_err *err, const char *what, const char *why)
{
    err->code = CKPT_ECOMM;
    err->hint[0] = '\0';
    snprintf(err->reason, sizeof err->reason, "peer-dead");
    snprintf(err->text, sizeof err->text, "NCCL, %s: %s", what, why);
    return CKPT_ECOMM;
}

int open_library(struct ckpt_err *err)
{
    void *so = lib.init ? nullptr : dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);

    if (lib.init)
        return 0;
    if (!so || !find(so, &lib.get_unique_id, "ncclGetUniqueId") ||
        !find(so, &lib.all_reduce, "ncclAllReduce") ||
        !find(so, &lib.all_gather, "ncclAllGather") ||
        !find(so, &lib.reduce_scatter, "ncclReduceScatter") ||
        !find(so, &lib.group_start, "ncclGroupStart") ||
        !find(so, &lib.group_end, "ncclGroupEnd") ||
        !find(so, &lib.async_error, "ncclCommGetAsyncError") ||
        !find(so, &lib.broadcast, "ncclBroadcast") || !find(so, &lib.destroy, "ncclCommDestroy") ||
        !find(so, &lib.abort, "ncclCommAbort") ||
        !find(so, &lib.error_string, "ncclGetErrorString") ||
        !find(so, &lib.last_error, "ncclGetLastError") ||
        !find(so, &lib.init, "ncclCommInitRank")) {
        lib.init = nullptr;
        fail(err, "opening it", so ? "a function is missing" : "libnccl.so.2 is not found");
        err->code = CKPT_EDEVICE;
        snprintf(err->hint, sizeof err->hint,
                 "several ranks on GPUs need NCCL: install it, or name its folder in "
                 "CKPT_CUDA_PATH");
        return CKPT_EDEVICE;
    }
    return 0;
}

/* Mark the handle with the first failure, of this call or of one before that shows only now. */
void check(struct comm *c, const char *what, int rc)
{
    int later = SUCCESS;

    if (rc == SUCCESS && of(c)->nccl && lib.async_error(of(c)->nccl, &later) == SUCCESS)
        rc = later == IN_PROGRESS ? SUCCESS : later;
    if (rc == SUCCESS || c->err.code)
        return;
    fail(&c->err, what, of(c)->nccl ? lib.last_error(of(c)->nccl) : lib.error_string(rc));
}

int type_of(enum ckpt_dtype t)
{
    switch (t) {
    case CKPT_F32:  return FLOAT32;
    case CKPT_F64:  return FLOAT64;
    case CKPT_I64:  return INT64;
    case CKPT_I32:  return INT32;
    case CKPT_BF16: return BFLOAT16;
    case CKPT_F16:  return FLOAT16;
    default:        return UINT8;
    }
}

cudaStream_t stream_of(struct comm *c) { return cuda_stream_of(of(c)->dev, OP_STREAM_COMM); }

/* Add up the pairs that have passed. */
double nccl_seconds(struct comm *c)
{
    struct comm_nccl *n = of(c);

    for (; n->first < n->next && !n->grouped; n->first++) {
        const struct timed *t = &n->at[n->first % TIMED];
        float ms = 0;

        cudaError_t rc = cudaEventQuery(t->end);

        if (rc == cudaErrorNotReady)
            cudaGetLastError();         /* any other is for who waits for the device to tell */
        if (rc != cudaSuccess || cudaEventElapsedTime(&ms, t->begin, t->end) != cudaSuccess)
            break;
        n->seconds += 1e-3 * (double)ms;
    }
    return n->seconds;
}

/* The pair for a collective that is queued now; NULL: it is not timed. */
const struct timed *timed_of(struct comm *c)
{
    struct comm_nccl *n = of(c);
    struct timed *t = &n->at[n->next % TIMED];

    if (n->next - n->first == TIMED)
        nccl_seconds(c);
    if (n->next - n->first == TIMED || c->err.code || cuda_graph_capturing(n->dev) ||
        (!t->begin && cudaEventCreate(&t->begin) != cudaSuccess) ||
        (!t->end && cudaEventCreate(&t->end) != cudaSuccess)) {
        cudaGetLastError();
        return nullptr;
    }
    return t;
}

/* Queue a collective between a pair of events. */
template <typename F> void timed(struct comm *c, const char *what, F queue)
{
    const struct timed *t = of(c)->grouped ? nullptr : timed_of(c);

    if (t)
        cudaEventRecord(t->begin, stream_of(c));
    check(c, what, queue());
    if (!t)
        return;
    cudaEventRecord(t->end, stream_of(c));
    of(c)->next++;
}

void nccl_all_reduce(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t, enum comm_op op)
{
    static const int ops[] = {SUM, MAX, MIN};

    timed(c, "all_reduce", [&] { return lib.all_reduce(buf, buf, (size_t)n, type_of(t), ops[op],
                                                       of(c)->nccl, stream_of(c)); });
}

void nccl_all_gather(struct comm *c, void *dst, const void *src, int64_t n, enum ckpt_dtype t)
{
    timed(c, "all_gather", [&] { return lib.all_gather(src, dst, (size_t)n, type_of(t),
                                                       of(c)->nccl, stream_of(c)); });
}

void nccl_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t n, enum ckpt_dtype t)
{
    timed(c, "reduce_scatter", [&] { return lib.reduce_scatter(src, dst, (size_t)n, type_of(t), SUM,
                                                               of(c)->nccl, stream_of(c)); });
}

void nccl_broadcast(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t, int root)
{
    timed(c, "broadcast", [&] { return lib.broadcast(buf, buf, (size_t)n, type_of(t), root,
                                                     of(c)->nccl, stream_of(c)); });
}

void nccl_group(struct comm *c, bool begin)
{
    struct comm_nccl *n = of(c);

    if (begin) {
        const struct timed *t = timed_of(c);

        n->grouped = true;
        n->group = t != nullptr;
        if (t)
            cudaEventRecord(t->begin, stream_of(c));
        check(c, "group", lib.group_start());
        return;
    }
    check(c, "group", lib.group_end());
    n->grouped = false;
    if (n->group)
        cudaEventRecord(n->at[n->next++ % TIMED].end, stream_of(c));
    n->group = false;
}

/* Of the hosts: their communicator's. */
void nccl_barrier(struct comm *c) { (void)c; }

void nccl_close(struct comm *c)
{
    struct comm_nccl *n = of(c);

    if (!n->nccl)
        return;
    if (c->err.code)
        lib.abort(n->nccl);
    else
        lib.destroy(n->nccl);
    n->nccl = nullptr;
    for (struct timed &t : n->at) {
        if (t.begin)
            cudaEventDestroy(t.begin);
        if (t.end)
            cudaEventDestroy(t.end);
        t = {};
    }
}

const struct comm_ops nccl_ops = {
    "nccl", sizeof(struct comm_nccl), nccl_all_reduce, nccl_all_gather, nccl_reduce_scatter,
    nccl_broadcast, nccl_barrier, nullptr, nccl_group, nullptr, nccl_close, false,
    nccl_seconds,
};

} // namespace

int cuda_nccl_id(void *id, struct ckpt_err *err)
{
    int rc = open_library(err);

    if (rc)
        return rc;
    setenv("NCCL_NVLS_ENABLE", "0", 0);     /* its multicast objects fail in many containers */
    rc = lib.get_unique_id(static_cast<unique_id *>(id));
    return rc == SUCCESS ? 0 : fail(err, "a name for the ranks", lib.error_string(rc));
}

/* Bytes of this GPU that are in use. */
static uint64_t in_use(void)
{
    size_t unused = 0, all = 0;

    return cudaMemGetInfo(&unused, &all) == cudaSuccess ? all - unused : 0;
}

/* NCCL connects its ranks, and allocates memory for that, when it first meets each kind of
 * collective: here, so that memory is planned beside it and the first step need not wait. */
static void warm_up(struct comm *c)
{
    struct device *dev = of(c)->dev;
    const int64_t of_all = 1 << 21;     /* elements */
    const int64_t n = c->world_size < of_all ? of_all / c->world_size : 1;
    size_t bytes = (size_t)n * sizeof(float) * (size_t)c->world_size;
    float *all = nullptr;

    if (!cuda_ok(dev, "joining ranks", cudaMalloc((void **)&all, bytes)))
        return;
    cuda_ok(dev, "joining ranks", cudaMemsetAsync(all, 0, bytes, stream_of(c)));
    nccl_all_gather(c, all, all + c->rank * n, n, CKPT_F32);
    nccl_reduce_scatter(c, all + c->rank * n, all, n, CKPT_F32);
    nccl_all_reduce(c, all, n, CKPT_F32, COMM_SUM);
    nccl_all_reduce(c, all, 1, CKPT_F32, COMM_SUM);     /* small ones go another way */
    cuda_ok(dev, "joining ranks", cudaStreamSynchronize(stream_of(c)));
    cuda_ok(dev, "joining ranks", cudaFree(all));
}

int cuda_nccl_connect(struct comm *c, struct device *dev, const void *id, struct ckpt_err *err)
{
    struct comm_nccl *n = of(c);
    uint64_t before;
    int rc = open_library(err);

    if (rc)
        return rc;
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    c->ops = &nccl_ops;
    n->dev = dev;
    if (!cuda_ok(dev, "joining ranks", cudaSetDevice(cuda_of(dev)->index))) {
        *err = dev->err;
        return CKPT_EDEVICE;
    }
    before = in_use();
    rc = lib.init(&n->nccl, c->world_size, *static_cast<const unique_id *>(id), c->rank);
    if (rc != SUCCESS) {
        n->nccl = nullptr;
        return fail(err, "joining ranks", lib.error_string(rc));
    }
    warm_up(c);
    dev->context += in_use() > before ? in_use() - before : 0;
    if (c->err.code == 0 && dev->err.code)
        c->err = dev->err;
    *err = c->err;
    return c->err.code;
}

size_t cuda_nccl_size(void) { return sizeof(struct comm_nccl); }
