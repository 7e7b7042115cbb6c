/*
 * cpu_ops - the CPU device: memory, order, and the table of its operations.
 *
 * Threads: OpenMP, as many as the device was opened with.  OpenBLAS is set to one thread and is
 * called by each OpenMP thread for its own part, so that two thread pools never compete for a
 * core.
 */
#include "trainer/cpu/cpu.h"

#include <pthread.h>
#include <string.h>

#include "libckpt/convert.h"
#include "libckpt/base/fault.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/cpu/blas.h"
#include "trainer/cpu/typed.h"

#define ALIGNMENT 256u
#define PAGE      4096                  /* bytes: unit by which threads share a fill */
#define GRAIN     ((int64_t)1 << 18)    /* about 6 us of one core, several times the start of a
                                           team */

static void *cpu_alloc(struct device *dev, size_t bytes)
{
    unsigned char *raw, *p;
    uint64_t whole;

    dev->n_alloc++;
    if (!ckpt_add(&whole, bytes, ALIGNMENT + sizeof raw) || !(raw = ckpt_alloc(whole, 1))) {
        if (!dev->err.code)
            ckpt_nomem(&dev->err, bytes);
        return NULL;
    }
    /* The allocated block's address is stored right before the returned memory. */
    p = raw + sizeof raw;
    p += (ALIGNMENT - (uintptr_t)p % ALIGNMENT) % ALIGNMENT;
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
}

static void cpu_free(struct device *dev, void *p)
{
    void *raw;

    (void)dev;
    if (!p)
        return;
    memcpy(&raw, (unsigned char *)p - sizeof raw, sizeof raw);
    ckpt_free(raw);
}

static void cpu_zero(struct device *dev, void *p, size_t bytes)
{
    if (dev->err.code || !bytes)
        return;
#pragma omp parallel num_threads(cpu_threads(dev, 2 * (int64_t)bytes))
    {
        int64_t begin, end;

        cpu_range(&begin, &end, (int64_t)bytes, PAGE, omp_get_thread_num(), omp_get_num_threads());
        memset((unsigned char *)p + begin, 0, (size_t)(end - begin));
    }
}

static void cpu_move(struct device *dev, void *dst, const void *src, size_t bytes)
{
    unsigned char *to = dst;
    const unsigned char *from = src;

    if (dev->err.code || !bytes)
        return;
    if ((uintptr_t)to < (uintptr_t)from + bytes && (uintptr_t)from < (uintptr_t)to + bytes) {
        memmove(to, from, bytes);       /* they overlap: copy in one thread */
        return;
    }
#pragma omp parallel num_threads(cpu_threads(dev, 2 * (int64_t)bytes))
    {
        int64_t begin, end;

        cpu_range(&begin, &end, (int64_t)bytes, PAGE, omp_get_thread_num(), omp_get_num_threads());
        memcpy(to + begin, from + begin, (size_t)(end - begin));
    }
}

static void cpu_cast(struct device *dev, enum op_stream stream, void *dst, enum ckpt_dtype to,
                     const void *src, enum ckpt_dtype from, int64_t n)
{
    (void)stream;
    if (dev->err.code)
        return;
#pragma omp parallel num_threads(cpu_threads(dev, 8 * n))
    {
        int64_t begin, end;

        cpu_range(&begin, &end, n, 64, omp_get_thread_num(), omp_get_num_threads());
        ckpt_convert((unsigned char *)dst + (size_t)begin * ckpt_dtype_size(to), to,
                     (const unsigned char *)src + (size_t)begin * ckpt_dtype_size(from), from,
                     (size_t)(end - begin));
    }
}

static void cpu_sync(struct device *dev) { (void)dev; }

static void cpu_close(struct device *dev)
{
    ckpt_free(((struct cpu_device *)dev)->timestamps);
    ckpt_free(dev);
}

/* Timestamps are read from the clock: an operation has ended when its call returns. */
static void cpu_timestamp(struct device *dev, int64_t i)
{
    struct cpu_device *c = (struct cpu_device *)dev;

    if (i >= c->n_timestamps) {
        int64_t n = i < 2048 ? 4096 : 2 * i;
        double *more = ckpt_grow(c->timestamps, (size_t)n, sizeof *more);

        if (!more) {
            ckpt_nomem(&dev->err, (size_t)n * sizeof *more);
            return;
        }
        c->timestamps = more;
        c->n_timestamps = n;
    }
    c->timestamps[i] = clock_now() * 1e3;
}

static double cpu_elapsed(struct device *dev, int64_t from, int64_t to)
{
    const struct cpu_device *c = (const struct cpu_device *)dev;

    return from < c->n_timestamps && to < c->n_timestamps
               ? c->timestamps[to] - c->timestamps[from] : 0;
}

/* Streams: a copy is complete when its call returns. */
static void cpu_stream_copy(struct device *dev, enum op_stream stream, void *dst, const void *src,
                          size_t bytes)
{
    (void)stream;
    cpu_move(dev, dst, src, bytes);
}

static void cpu_event_record(struct device *dev, enum op_stream stream, int i)
{
    (void)dev;
    (void)stream;
    (void)i;
}

static void cpu_event_sync(struct device *dev, int i)
{
    (void)dev;
    (void)i;
}

static uint64_t cpu_workspace(const struct device *dev, const struct op_limits *l)
{
    uint64_t need[] = {cpu_norm_work(dev, l),    cpu_attention_work(dev, l),
                       cpu_rope_work(dev, l),    cpu_experts_work(dev, l),
                       cpu_linear_work(dev, l),  cpu_embed_work(dev, l),
                       cpu_head_work(dev, l)};
    uint64_t most = 0;

    for (size_t i = 0; i < sizeof need / sizeof need[0]; i++)
        most = need[i] > most ? need[i] : most;
    return most + typed_reserve(dev);
}

/* Unknown: the system may promise more memory than it has. */
static uint64_t cpu_free_bytes(struct device *dev)
{
    (void)dev;
    return UINT64_MAX;
}

bool cpu_work_short(struct device *dev, const char *op, uint64_t bytes)
{
    bytes += typed_reserve(dev);
    if (bytes <= dev->work_bytes)
        return false;
    ckpt_fail(&dev->err, CKPT_ESTATE, "%s: workspace has %llu bytes, %llu are needed", op,
              (unsigned long long)dev->work_bytes, (unsigned long long)bytes);
    return true;
}

static const struct ops cpu_row = {
    .name = "cpu",
    .alloc = cpu_alloc, .free = cpu_free, .zero = cpu_zero,
    .to_device = cpu_move, .to_host = cpu_move, .copy = cpu_move, .cast = cpu_cast,
    .sync = cpu_sync, .close = cpu_close, .timestamp = cpu_timestamp, .elapsed = cpu_elapsed,
    .pin = cpu_alloc, .unpin = cpu_free, .stream_copy = cpu_stream_copy,
    .event_record = cpu_event_record, .stream_wait_event = cpu_event_record,
    .event_sync = cpu_event_sync,
    .workspace = cpu_workspace, .free_bytes = cpu_free_bytes,
    .adamw = cpu_adamw, .factored = cpu_factored, .muon = cpu_muon,
    .sum_squares = cpu_sum_squares, .judge = cpu_judge,
    .add = cpu_add,
    .embed_fwd = cpu_embed_fwd, .embed_bwd = cpu_embed_bwd,
    .drop = cpu_drop, .jitter = cpu_jitter,
    .norm_fwd = cpu_norm_fwd, .norm_bwd = cpu_norm_bwd,
    .linear_fwd = cpu_linear_fwd, .linear_bwd = cpu_linear_bwd,
    .rope_fwd = cpu_rope_fwd, .rope_bwd = cpu_rope_bwd,
    .gate_fwd = cpu_gate_fwd, .gate_bwd = cpu_gate_bwd,
    .experts_fwd = cpu_experts_fwd, .experts_bwd = cpu_experts_bwd,
    .attention_fwd = cpu_attention_fwd, .attention_bwd = cpu_attention_bwd,
    .attention_cached = cpu_attention_cached,
    .head_loss = cpu_head_loss, .head_logits = cpu_head_logits, .head_top = cpu_head_top,
    .head_forbid = cpu_head_forbid,
};

static void *idle(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* OpenMP ends the process if it cannot start a team: first try to start that many threads at
 * once. */
static int start_team(int n, struct ckpt_err *err)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *thread = ckpt_alloc((size_t)n, sizeof *thread);
    int k = 0, rc = 0;

    if (!thread)
        return ckpt_nomem(err, (size_t)n * sizeof *thread);
    pthread_mutex_lock(&gate);
    while (k < n - 1 && (rc = pthread_create(&thread[k], NULL, idle, &gate)) == 0)
        k++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < k; i++)
        pthread_join(thread[i], NULL);
    ckpt_free(thread);
    if (rc) {
        ckpt_fail_errno(err, CKPT_ENOMEM, rc, "thread %d of %d", k + 2, n);
        return ckpt_err_hint(err, "fewer threads: `threads 1`");
    }
#pragma omp parallel num_threads(n)
    {
    }
    return 0;
}

int device_open_cpu(struct device **out, int threads, struct ckpt_err *err)
{
    struct cpu_device *cpu;
    struct device *dev;
    int rc;

    *out = NULL;
    if (threads < 0 || threads > 1024)
        return ckpt_fail(err, CKPT_ECONFIG, "%d threads: wanted 0 (by CPUs) to 1024", threads);
    cpu = ckpt_alloc(1, sizeof *cpu);
    if (!cpu)
        return ckpt_nomem(err, sizeof *cpu);
    cpu->kernel = tiles_best();
    bnb_codec_init(&cpu->codec[0], true);
    bnb_codec_init(&cpu->codec[1], false);
    dev = &cpu->head;
    dev->ops = &cpu_row;
    dev->threads = threads ? threads : omp_get_max_threads();
    dev->grain = GRAIN;
    dev->act = dev->weight = dev->grad = CKPT_F32;
    rc = blas_open(dev->threads, err);
    rc = rc ? rc : start_team(dev->threads, err);
    if (rc)
        ckpt_free(cpu);
    else
        *out = dev;
    return rc;
}
