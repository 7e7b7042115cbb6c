/*
 * cuda/device - open a GPU; its memory, and the table of its operations.
 *
 * One stream for operations, and streams of copies beside it (cuda/streams.cu).  Memory comes
 * from plain cudaMalloc, zeroed, and is counted against the limit.  Copies from the host return
 * when the host's bytes may be reused, copies to the host when the bytes have arrived.
 */
#include "trainer/cuda/matmul/fp8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "formats/bnb/codes.h"
#include "trainer/cuda/plugin.h"
}
#include "trainer/cuda/hopper/wgmma.cuh"
#include "trainer/cuda/nccl.h"
#include "trainer/cuda/simulate.h"

/* As ckpt_fail, which a plug-in does not have. */
static int fail_ap(struct ckpt_err *err, int code, const char *fmt, va_list ap)
{
    err->code = code;
    err->reason[0] = err->hint[0] = '\0';
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    return code;
}

__attribute__((format(printf, 3, 4))) static int fail(struct ckpt_err *err, int code,
                                                       const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fail_ap(err, code, fmt, ap);
    va_end(ap);
    return code;
}

bool cuda_fail(struct device *dev, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (dev->err.code == 0)
        fail_ap(&dev->err, code, fmt, ap);
    va_end(ap);
    return false;
}

/* Whether the error is of an earlier kernel, whichever call reports it. */
static bool of_a_kernel(cudaError_t rc)
{
    return rc == cudaErrorIllegalAddress || rc == cudaErrorMisalignedAddress ||
           rc == cudaErrorInvalidAddressSpace || rc == cudaErrorInvalidPc ||
           rc == cudaErrorIllegalInstruction || rc == cudaErrorHardwareStackError ||
           rc == cudaErrorAssert || rc == cudaErrorLaunchTimeout || rc == cudaErrorLaunchFailure;
}

bool cuda_ok(struct device *dev, const char *op, cudaError_t rc)
{
    if (rc == cudaSuccess)
        return dev->err.code == 0;
    if (dev->err.code)
        return false;
    fail(&dev->err, rc == cudaErrorMemoryAllocation ? CKPT_ENOMEM : CKPT_EDEVICE,
         "GPU %d, %s: %s", cuda_of(dev)->index, op, cudaGetErrorString(rc));
    if (of_a_kernel(rc))
        snprintf(dev->err.hint, sizeof dev->err.hint,
                 "an earlier operation may have failed: CUDA_LAUNCH_BLOCKING=1 in the "
                 "environment names it");
    return false;
}

bool cuda_launched(struct device *dev, const char *op)
{
    return cuda_ok(dev, op, cudaGetLastError());
}

/* The size of each allocation, kept on the host: cudaFree does not return it. */
struct block {
    struct block *next;
    void         *at;
    uint64_t      bytes;
};

struct opened {
    struct cuda_device cuda;            /* first */
    struct block      *blocks;
};

static void *cuda_alloc(struct device *dev, size_t bytes)
{
    struct cuda_device *d = cuda_of(dev);
    struct opened *o = (struct opened *)d;
    size_t whole = bytes ? cuda_align(bytes) : 256;
    struct block *b;

    dev->n_alloc++;
    if (dev->err.code)
        return NULL;
    if (d->limit && dev->held + dev->context + whole > d->limit) {
        fail(&dev->err, CKPT_ENOMEM,
             "GPU %d: %.2f GiB beside %.2f GiB in use exceed the limit of %.2f GiB", d->index,
             (double)whole / (1 << 30), (double)(dev->held + dev->context) / (1 << 30),
             (double)d->limit / (1 << 30));
        return NULL;
    }
    b = (struct block *)calloc(1, sizeof *b);
    if (!b || cudaMalloc(&b->at, whole) != cudaSuccess) {
        size_t unused = 0, all = 0;

        cudaGetLastError();
        cudaMemGetInfo(&unused, &all);
        fail(&dev->err, CKPT_ENOMEM,
             "GPU %d: no memory for %.2f GiB: %.2f of %.2f GiB are free, %.2f in use here",
             d->index, (double)whole / (1 << 30), (double)unused / (1 << 30),
             (double)all / (1 << 30), (double)dev->held / (1 << 30));
        free(b);
        return NULL;
    }
    b->bytes = whole;
    b->next = o->blocks;
    o->blocks = b;
    dev->held += whole;
    cuda_ok(dev, "zeroing", cudaMemsetAsync(b->at, 0, whole, d->stream));
    return b->at;
}

static void cuda_free(struct device *dev, void *p)
{
    struct cuda_device *d = cuda_of(dev);
    struct block **at = &((struct opened *)d)->blocks, *b;

    while (*at && (*at)->at != p)
        at = &(*at)->next;
    if (!p || !*at)
        return;
    b = *at;
    *at = b->next;
    dev->held -= b->bytes;
    cudaFree(p);
    free(b);
}

static void cuda_zero(struct device *dev, void *p, size_t bytes)
{
    if (!dev->err.code && bytes)
        cuda_ok(dev, "zero", cudaMemsetAsync(p, 0, bytes, cuda_of(dev)->stream));
}

static void move(struct device *dev, void *dst, const void *src, size_t bytes,
                 enum cudaMemcpyKind kind, const char *name)
{
    if (!dev->err.code && bytes)
        cuda_ok(dev, name, cudaMemcpyAsync(dst, src, bytes, kind, cuda_of(dev)->stream));
}

/* From pageable memory the call returns once the bytes are staged. */
static void cuda_to_device(struct device *dev, void *dst, const void *src, size_t bytes)
{
    move(dev, dst, src, bytes, cudaMemcpyHostToDevice, "copy to the GPU");
}

static void cuda_to_host(struct device *dev, void *dst, const void *src, size_t bytes)
{
    move(dev, dst, src, bytes, cudaMemcpyDeviceToHost, "copy from the GPU");
    if (!dev->err.code && bytes)
        cuda_ok(dev, "copy from the GPU", cudaStreamSynchronize(cuda_of(dev)->stream));
}

static void cuda_copy(struct device *dev, void *dst, const void *src, size_t bytes)
{
    move(dev, dst, src, bytes, cudaMemcpyDeviceToDevice, "copy");
}

static void cuda_sync(struct device *dev)
{
    cuda_streams_sync(dev);
    cuda_ok(dev, "earlier work", cudaStreamSynchronize(cuda_of(dev)->stream));
}

static void cuda_timestamp(struct device *dev, int64_t i)
{
    struct cuda_device *d = cuda_of(dev);

    if (dev->err.code)
        return;
    if (i >= d->n_timestamps) {
        int64_t n = i < 2048 ? 4096 : 2 * i;
        cudaEvent_t *more = (cudaEvent_t *)realloc(d->timestamps, (size_t)n * sizeof *more);

        if (!more) {
            cuda_ok(dev, "profile", cudaErrorMemoryAllocation);
            return;
        }
        d->timestamps = more;
        for (; d->n_timestamps < n; d->n_timestamps++)
            if (!cuda_ok(dev, "profile", cudaEventCreate(&d->timestamps[d->n_timestamps])))
                return;
    }
    cuda_ok(dev, "profile", cudaEventRecord(d->timestamps[i], d->stream));
}

static double cuda_elapsed(struct device *dev, int64_t from, int64_t to)
{
    struct cuda_device *d = cuda_of(dev);
    float ms = 0;

    if (from < d->n_timestamps && to < d->n_timestamps)
        cuda_ok(dev, "profile", cudaEventElapsedTime(&ms, d->timestamps[from], d->timestamps[to]));
    return (double)ms;
}

static void cuda_close(struct device *dev)
{
    struct cuda_device *d = cuda_of(dev);
    struct opened *o = (struct opened *)d;

    if (d->stream)
        cudaStreamSynchronize(d->stream);
    cuda_streams_close(d);
    matmul_close(d);
    fp8_close(d);
    while (o->blocks)
        cuda_free(dev, o->blocks->at);
    for (int64_t i = 0; i < d->n_timestamps; i++)
        cudaEventDestroy(d->timestamps[i]);
    free(d->timestamps);
    cudaFreeHost(d->host);
    cudaFree(d->small);
    cudaFree(d->codec);
    if (d->stream)
        cudaStreamDestroy(d->stream);
    free(o);
}

static uint64_t cuda_workspace(const struct device *dev, const struct op_limits *l)
{
    uint64_t need[] = {cuda_norm_work(dev, l),   cuda_embed_work(dev, l),
                       cuda_rope_work(dev, l),   cuda_linear_work(dev, l),
                       cuda_experts_work(dev, l), cuda_attention_work(dev, l),
                       cuda_cached_work(dev, l), cuda_head_work(dev, l),
                       cuda_top_work(dev, l)};
    uint64_t most = 0;

    for (size_t i = 0; i < sizeof need / sizeof need[0]; i++)
        most = need[i] > most ? need[i] : most;
    return most;
}

/* Reserved: a kernel's code is loaded when it is first used, and allocations are rounded up to
 * 2 MiB. */
enum { LATER = 256 << 20 };

static uint64_t cuda_free_bytes(struct device *dev)
{
    struct cuda_device *d = cuda_of(dev);
    size_t unused = 0, all = 0;
    uint64_t left, taken = dev->held + dev->context;

    if (!cuda_ok(dev, "memory", cudaMemGetInfo(&unused, &all)))
        return 0;
    left = d->limit == 0 ? unused : d->limit > taken ? d->limit - taken : 0;
    left = left < unused ? left : unused;
    return left > LATER ? left - LATER : 0;
}

/* Memory that the driver holds for this process: memory in use after opening, at most 1 GiB,
 * since other processes use some too. (The caller may know better.) */
static void measure_context(struct device *dev)
{
    const uint64_t most = (uint64_t)1 << 30;
    size_t unused = 0, all = 0;

    if (cuda_ok(dev, "memory", cudaMemGetInfo(&unused, &all)))
        dev->context = all - unused < most ? all - unused : most;
}

/* In the order of struct ops, as C++ requires. */
static const struct ops cuda_row = {
    .name = "cuda", .can = OP_CAN_FUSE | OP_CAN_GRAPH,
    .alloc = cuda_alloc, .free = cuda_free, .zero = cuda_zero,
    .to_device = cuda_to_device, .to_host = cuda_to_host, .copy = cuda_copy,
    .sync = cuda_sync, .close = cuda_close, .timestamp = cuda_timestamp, .elapsed = cuda_elapsed,
    .pin = cuda_pin, .unpin = cuda_unpin, .stream_copy = cuda_stream_copy,
    .event_record = cuda_event_record, .stream_wait_event = cuda_stream_wait_event,
    .event_sync = cuda_event_sync,
    .workspace = cuda_workspace, .free_bytes = cuda_free_bytes,
    .cast = cuda_cast,
    .adamw = cuda_adamw, .factored = cuda_factored, .muon = cuda_muon,
    .sum_squares = cuda_sum_squares, .judge = cuda_judge, .add = cuda_add,
    .embed_fwd = cuda_embed_fwd, .embed_bwd = cuda_embed_bwd,
    .drop = cuda_drop_op, .jitter = cuda_jitter,
    .norm_fwd = cuda_norm_fwd, .norm_bwd = cuda_norm_bwd,
    .linear_fwd = cuda_linear_fwd, .linear_bwd = cuda_linear_bwd,
    .linears_fwd = cuda_linears_fwd, .linears_bwd = cuda_linears_bwd,
    .rope_fwd = cuda_rope_fwd, .rope_bwd = cuda_rope_bwd,
    .gate_fwd = cuda_gate_fwd, .gate_bwd = cuda_gate_bwd,
    .experts_fwd = cuda_experts_fwd, .experts_bwd = cuda_experts_bwd,
    .attention_fwd = cuda_attention_fwd, .attention_bwd = cuda_attention_bwd,
    .attention_cached = cuda_attention_cached,
    .head_loss = cuda_head_loss, .head_logits = cuda_head_logits, .head_top = cuda_head_top,
    .head_forbid = cuda_head_forbid,
    .gated_fwd = cuda_gated_fwd,
    .normed_fwd = cuda_normed_fwd,
    .graph_begin = cuda_graph_begin, .graph_end = cuda_graph_end, .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
};

/* Check that the backend has code for the chip: sm_90 code runs on 9.x alone, the rest through
 * PTX. */
static int check_chip(int index, const struct device_opts *opts, struct cudaDeviceProp *prop,
                      struct ckpt_err *err)
{
    cudaError_t rc = cudaGetDeviceProperties(prop, index);

    if (rc != cudaSuccess)
        return fail(err, CKPT_EDEVICE, "GPU %d: %s", index, cudaGetErrorString(rc));
    if (prop->major < 8)
        return fail(err, CKPT_EDEVICE,
                    "GPU %d is a %s of compute capability %d.%d: 8.0 is required", index,
                    prop->name, prop->major, prop->minor);
    if (opts->fp8 && opts->weights != CKPT_BF16)
        return fail(err, CKPT_ECONFIG, "GPU %d: 8-bit products need bf16 weights", index);
    if (opts->fp8 && prop->major * 10 + prop->minor < 89)
        return fail(err, CKPT_EDEVICE,
                    "`fp8`: GPU %d is a %s of compute capability %d.%d: 8.9 is required", index,
                    prop->name, prop->major, prop->minor);
    return 0;
}

/* The tables of 8-bit moments. */
static bool open_codec(struct cuda_device *d)
{
    struct bnb_codec codec[2];

    bnb_codec_init(&codec[0], true);
    bnb_codec_init(&codec[1], false);
    return cuda_ok(&d->dev, "opening", cudaMalloc((void **)&d->codec, sizeof codec)) &&
           cuda_ok(&d->dev, "opening", cudaMemcpy(d->codec, codec, sizeof codec,
                                                  cudaMemcpyHostToDevice));
}

/* Reveals which code was loaded: the code for 9.0a has more shared memory here.  Every element
 * is used, since the compiler would drop unused ones. */
static __global__ void probe(int *out)
{
    const int n = WGMMA_HERE ? 256 : 1;
    __shared__ int x[n];

    x[threadIdx.x % n] = (int)threadIdx.x;
    __syncthreads();
    if (out)
        *out = x[blockIdx.x % n];
}

static bool is_hopper(struct device *dev)
{
    struct cudaFuncAttributes attr = {};

    return cuda_ok(dev, "opening", cudaFuncGetAttributes(&attr, probe)) &&
           attr.sharedSizeBytes >= 1024;
}

static void bus_of_device(int index, char *to, int size)
{
    if (cudaDeviceGetPCIBusId(to, size, index) != cudaSuccess)
        to[0] = '\0';
}

static int open_device(struct device **out, int index, const struct device_opts *opts,
                       struct ckpt_err *err)
{
    struct cudaDeviceProp prop;
    struct opened *o;
    struct device *dev;
    cudaError_t rc;
    int n = 0, bad;

    *out = NULL;
    rc = cudaGetDeviceCount(&n);
    if (rc != cudaSuccess)
        return fail(err, CKPT_EDEVICE, "no GPU can be used: %s", cudaGetErrorString(rc));
    if (index < 0 || index >= n)
        return fail(err, CKPT_EDEVICE, "GPU %d: there are only %d", index, n);
    bad = check_chip(index, opts, &prop, err);
    if (bad)
        return bad;
    o = (struct opened *)calloc(1, sizeof *o);
    if (!o)
        return fail(err, CKPT_ENOMEM, "no memory for a device");
    dev = &o->cuda.dev;
    dev->ops = &cuda_row;
    dev->act = dev->weight = opts->weights;
    dev->grad = CKPT_F32;
    dev->discrete = true;
    dev->fp8 = opts->fp8;
    snprintf(dev->label, sizeof dev->label, "GPU %d (%.48s)", index, prop.name);
    bus_of_device(index, dev->bus, sizeof dev->bus);
    o->cuda.index = index;
    o->cuda.limit = opts->memory_limit;
    o->cuda.tf32 = opts->tf32;
    o->cuda.sms = prop.multiProcessorCount;
    o->cuda.shared_most = prop.sharedMemPerBlockOptin;
    if (cuda_ok(dev, "opening", cudaSetDevice(index)) &&
        cuda_ok(dev, "opening", cudaStreamCreateWithFlags(&o->cuda.stream,
                                                          cudaStreamNonBlocking)) &&
        cuda_ok(dev, "opening", cudaMallocHost((void **)&o->cuda.host,
                                               CUDA_SMALL * sizeof(double))) &&
        cuda_ok(dev, "opening", cudaMalloc((void **)&o->cuda.small,
                                           CUDA_SMALL * sizeof(double))) &&
        open_codec(&o->cuda) && matmul_open(&o->cuda) && fp8_open(&o->cuda)) {
        o->cuda.hopper = is_hopper(dev);
        measure_context(dev);
    }
    if (dev->err.code) {
        *err = dev->err;
        bad = dev->err.code;
        cuda_close(dev);
        return bad;
    }
    *out = dev;
    return 0;
}

static int count_devices(void)
{
    int n = 0;

    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

extern "C" __attribute__((visibility("default"))) const struct cuda_plugin cuda_plugin = {
    CUDA_PLUGIN_VERSION, open_device, count_devices, bus_of_device,
    cuda_nccl_size, cuda_nccl_id, cuda_nccl_connect, &cuda_simulate};
