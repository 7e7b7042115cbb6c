/*
 * plugin - replaces libckpt_cuda.so: the CPU's device, with memory of its own and the optimizers'
 * rows of the GPU, emulated; with EMULATE_PRODUCTS in the environment those of projections too.
 *
 * Only an operation can touch the memory that alloc gives: the host's own access ends the program,
 * as it would with a GPU.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/emulate/rows.h"
#include "trainer/cuda/plugin.h"

/* -- memory ----------------------------------------------------------------------------------- */

enum { UNIT = 256, MOST_BLOCKS = 65536 };
#define ROOM ((size_t)16 << 30)         /* of addresses */

static struct block {
    size_t at, bytes;
    bool   used;
} blocks[MOST_BLOCKS];
static size_t n_blocks, top;
static unsigned char *memory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inside;

static void allow(int how)
{
    if (top && mprotect(memory, top, how) != 0) {
        perror("emulate: mprotect");
        abort();
    }
}

static void enter(void)
{
    pthread_mutex_lock(&lock);
    if (inside++ == 0)
        allow(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}

static void leave(void)
{
    pthread_mutex_lock(&lock);
    if (--inside == 0)
        allow(PROT_NONE);
    pthread_mutex_unlock(&lock);
}

/* A block that is free, or a new one, whose bytes are zero; with the lock. */
static struct block *take(size_t bytes, bool *fresh)
{
    *fresh = false;
    for (size_t i = 0; i < n_blocks; i++)
        if (!blocks[i].used && blocks[i].bytes >= bytes && blocks[i].bytes / 2 <= bytes)
            return &blocks[i];
    *fresh = true;
    if (n_blocks == MOST_BLOCKS || bytes > ROOM - top)
        return NULL;
    blocks[n_blocks] = (struct block){.at = top, .bytes = bytes};
    top += (bytes + 4095) / 4096 * 4096;
    return &blocks[n_blocks++];
}

static void *emulate_alloc(struct device *dev, size_t bytes)
{
    size_t whole = (bytes + UNIT) / UNIT * UNIT;
    struct block *b;
    bool fresh;

    dev->n_alloc++;
    pthread_mutex_lock(&lock);
    b = take(whole, &fresh);
    if (b)
        b->used = true;
    pthread_mutex_unlock(&lock);
    if (!b) {
        dev->err.code = dev->err.code ? dev->err.code : CKPT_ENOMEM;
        return NULL;
    }
    enter();
    allow(PROT_READ | PROT_WRITE);      /* also what was added meanwhile */
    if (!fresh)                         /* what nobody touched takes no time at each change of
                                           access */
        memset(memory + b->at, 0, b->bytes);
    leave();
    return memory + b->at;
}

static void emulate_free(struct device *dev, void *p)
{
    (void)dev;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; p && i < n_blocks; i++)
        if (memory + blocks[i].at == (unsigned char *)p)
            blocks[i].used = false;
    pthread_mutex_unlock(&lock);
}

/* -- rows ------------------------------------------------------------------------------------- */

static const struct ops *inner;

/* Rows that touch the device's memory: those of the CPU, and emulated ones. */
#define CPU_ROWS(X)                                                                            \
    X(zero, (struct device *dev, void *p, size_t n), (dev, p, n))                              \
    X(to_device, (struct device *dev, void *dst, const void *src, size_t n), (dev, dst, src, n)) \
    X(to_host, (struct device *dev, void *dst, const void *src, size_t n), (dev, dst, src, n)) \
    X(copy, (struct device *dev, void *dst, const void *src, size_t n), (dev, dst, src, n))    \
    X(stream_copy, (struct device *dev, enum op_stream on, void *dst, const void *src, size_t n), \
      (dev, on, dst, src, n))                                                                  \
    X(cast, (struct device *dev, enum op_stream on, void *dst, enum ckpt_dtype to,             \
             const void *src, enum ckpt_dtype from, int64_t n), (dev, on, dst, to, src, from, n)) \
    X(embed_fwd, (struct device *dev, const struct op_embed *a), (dev, a))                     \
    X(embed_bwd, (struct device *dev, const struct op_embed *a), (dev, a))                     \
    X(drop, (struct device *dev, void *x, int64_t n, int64_t w, const struct op_drop *d),      \
      (dev, x, n, w, d))                                                                       \
    X(jitter, (struct device *dev, void *x, int64_t n, int64_t w, const struct op_drop *d),    \
      (dev, x, n, w, d))                                                                       \
    X(norm_fwd, (struct device *dev, const struct op_rownorm *a), (dev, a))                    \
    X(norm_bwd, (struct device *dev, const struct op_rownorm *a), (dev, a))                    \
    X(linear_fwd, (struct device *dev, const struct op_linear *a), (dev, a))                   \
    X(linear_bwd, (struct device *dev, const struct op_linear *a), (dev, a))                   \
    X(rope_fwd, (struct device *dev, const struct op_rope *a), (dev, a))                       \
    X(rope_bwd, (struct device *dev, const struct op_rope *a), (dev, a))                       \
    X(gate_fwd, (struct device *dev, const struct op_gate *a), (dev, a))                       \
    X(gate_bwd, (struct device *dev, const struct op_gate *a), (dev, a))                       \
    X(experts_fwd, (struct device *dev, const struct op_experts *a), (dev, a))                 \
    X(experts_bwd, (struct device *dev, const struct op_experts *a), (dev, a))                 \
    X(attention_fwd, (struct device *dev, const struct op_attention *a), (dev, a))             \
    X(attention_bwd, (struct device *dev, const struct op_attention *a), (dev, a))             \
    X(attention_cached, (struct device *dev, const struct op_cached *a), (dev, a))             \
    X(head_loss, (struct device *dev, const struct op_head *a), (dev, a))                      \
    X(head_logits, (struct device *dev, float *y, const void *x, const void *w, int64_t n,     \
                    int64_t dim, int64_t vocab, float mul), (dev, y, x, w, n, dim, vocab, mul)) \
    X(head_top, (struct device *dev, const struct op_top *a), (dev, a))                        \
    X(head_forbid, (struct device *dev, const struct op_forbid *a), (dev, a))
#define GPU_ROWS(X)                                                                            \
    X(adamw, (struct device *dev, const struct adamw_run *r, int64_t n, const struct adamw *a), \
      (dev, r, n, a))                                                                          \
    X(factored, (struct device *dev, enum op_factored_part part, const struct op_factored *f,  \
                 int64_t n, const struct adamw *a), (dev, part, f, n, a))                      \
    X(muon, (struct device *dev, enum op_muon_part part, const struct op_matrix *m,            \
             const struct adamw *a), (dev, part, m, a))                                        \
    X(sum_squares, (struct device *dev, double *sum, const float *g, int64_t n),               \
      (dev, sum, g, n))                                                                        \
    X(judge, (struct device *dev, struct op_verdict *v, const double *sum, double most,        \
              double scale), (dev, v, sum, most, scale))                                       \
    X(add, (struct device *dev, enum op_stream on, float *dst, const float *src, int64_t n),   \
      (dev, on, dst, src, n))
/* Projections: their activations have the weights' type, which are f32 where a model runs. */
#define LINEAR_ROWS(X)                                                                         \
    X(linear_fwd, (struct device *dev, const struct op_linear *a), (dev, a))                   \
    X(linear_bwd, (struct device *dev, const struct op_linear *a), (dev, a))                   \
    X(linears_fwd, (struct device *dev, const struct op_linear *a, int n), (dev, a, n))        \
    X(linears_bwd, (struct device *dev, const struct op_linear *a, int n), (dev, a, n))        \
    X(gated_fwd, (struct device *dev, const struct op_linear *a, const struct op_gate *gate),  \
      (dev, a, gate))                                                                          \
    X(normed_fwd, (struct device *dev, const struct op_rownorm *norm,                          \
                   const struct op_linear *a, const struct op_gate *gate), (dev, norm, a, gate))

#define CPU_ROW(name, params, args)                                                            \
    static void cpu_##name params                                                              \
    {                                                                                          \
        enter();                                                                               \
        inner->name args;                                                                      \
        leave();                                                                               \
    }
#define GPU_ROW(name, params, args)                                                            \
    static void gpu_##name params                                                              \
    {                                                                                          \
        enter();                                                                               \
        rows_##name args;                                                                      \
        leave();                                                                               \
    }
CPU_ROWS(CPU_ROW)
GPU_ROWS(GPU_ROW)
LINEAR_ROWS(GPU_ROW)

static uint64_t emulate_workspace(const struct device *dev, const struct op_limits *l)
{
    uint64_t cpu = inner->workspace(dev, l), gpu = rows_linear_work(dev, l);

    return cpu > gpu ? cpu : gpu;
}

static int emulate_open(struct device **out, int index, const struct device_opts *opts,
                        struct ckpt_err *err)
{
#define BY_CPU(name, params, args) row.name = cpu_##name;
#define BY_GPU(name, params, args) row.name = gpu_##name;
    static struct ops row;
    void *own;
    int rc = device_open_cpu(out, 1, err);

    (void)index;
    if (rc)
        return rc;
    if (!memory) {
        memory = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            abort();
        inner = (*out)->ops;
    }
    row = *inner;
    row.alloc = emulate_alloc;
    row.free = emulate_free;
    CPU_ROWS(BY_CPU)
    GPU_ROWS(BY_GPU)
    if (getenv("EMULATE_PRODUCTS")) {
        LINEAR_ROWS(BY_GPU)
        row.workspace = emulate_workspace;
        row.can |= OP_CAN_FUSE;
    }
    (*out)->ops = &row;
    (*out)->weight = opts->weights;
    (*out)->discrete = true;
    snprintf((*out)->label, sizeof (*out)->label, "GPU 0 (emulated)");
    own = emulate_alloc(*out, ROWS_BYTES);
    (*out)->n_alloc = 0;
    enter();
    rows_open(own);
    leave();
    return 0;
}

static int count(void) { return 1; }

static void bus(int index, char *to, int size)
{
    (void)index;
    if (size > 0)
        to[0] = '\0';
}

__attribute__((visibility("default"))) const struct cuda_plugin cuda_plugin = {
    .version = CUDA_PLUGIN_VERSION, .open = emulate_open, .count = count, .bus = bus};
