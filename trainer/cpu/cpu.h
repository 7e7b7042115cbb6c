/*
 * cpu - shared by the files of the CPU backend: the loops' compile switches, thread ranges,
 * workspace, and the launchers that cpu_ops lists in the row.
 *
 * Floating point: sums may be reordered inside a loop (SIMD lanes) and products contracted into
 * fused multiply-adds, both fixed at compile time, so results repeat bit for bit on one kind of
 * machine with one number of threads.  No fast-math: NaN and infinity behave; operations that
 * treat denormals as 0 say so (cpu_flush).
 *
 * Abbreviations: task (tile_tasks), row (attention_rows), tiles, lora (their linear).
 */
#ifndef CKPT_TRAINER_CPU_CPU_H
#define CKPT_TRAINER_CPU_CPU_H

#include <omp.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "formats/bnb/codes.h"
#include "trainer/cpu/tiles.h"
#include "trainer/ops/ops.h"

/* The device. */
struct cpu_device {
    struct device     head;
    enum tiles_kernel kernel;           /* of products with bf16 weights */
    double       *timestamps;           /* [n_timestamps] milliseconds (profile.h) */
    int64_t       n_timestamps;
    struct bnb_codec codec[2];          /* for exp_avg and exp_avg_sq (OP_MOMENTS_8BIT) */
};

/* The kernel that multiplies this device's weights; TILES_NONE: weights are widened to f32. */
static inline enum tiles_kernel cpu_kernel(const struct device *dev)
{
    const struct cpu_device *cpu = (const struct cpu_device *)dev;

    return dev->weight == CKPT_BF16 ? cpu->kernel : TILES_NONE;
}

/* For files with hot loops, before their first function. */
#pragma GCC optimize("O3", "fp-contract=fast", "no-math-errno", "no-trapping-math")

/* A hot function: compiled for AVX2 + FMA and for any x86-64, chosen when the program starts.
 */
#if defined(__x86_64__)
#define CPU_HOT __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define CPU_HOT
#endif
#define CPU_INLINE static inline __attribute__((always_inline))

/*
 * The calling thread treats denormals as 0 until cpu_flush_end(the value cpu_flush returned). For
 * operations that often reach denormals (softmax over distances, decaying moments): on Intel's
 * processors each one costs some hundred cycles.
 */
#if defined(__x86_64__)
#define CPU_FLUSH 0x8040u               /* of MXCSR: results to zero, operands as zero */
static inline unsigned cpu_flush(void)
{
    unsigned was = _mm_getcsr();

    _mm_setcsr(was | CPU_FLUSH);
    return was;
}

static inline void cpu_flush_end(unsigned was)
{
    _mm_setcsr((_mm_getcsr() & ~CPU_FLUSH) | (was & CPU_FLUSH));
}
#else
static inline unsigned cpu_flush(void) { return 0; }
static inline void cpu_flush_end(unsigned was) { (void)was; }
#endif

/* Rows [*begin, *end) of n for thread i of that many; cuts lie at multiples of unit. */
static inline void cpu_range(int64_t *begin, int64_t *end, int64_t n, int64_t unit, int i,
                             int threads)
{
    int64_t blocks = (n + unit - 1) / unit, each = blocks / threads, rest = blocks % threads;
    int64_t b = each * i + (i < rest ? i : rest), e = b + each + (i < rest ? 1 : 0);

    *begin = b * unit < n ? b * unit : n;
    *end = e * unit < n ? e * unit : n;
}

/*
 * Threads for an operation of that much work (multiply-adds, or eight times the elements it
 * reads): all, or one when waking the others would take longer.  Nothing in between, because
 * libgomp ends threads that a smaller team does not use.
 */
static inline int cpu_threads(const struct device *dev, int64_t work)
{
    return work < dev->grain ? 1 : dev->threads;
}

/* Whether operations do nothing any more: something failed, or the caller stops the work.  Tasks of
 * long operations ask too, so that one of them delays a stop by no more than a task. */
static inline bool cpu_ended(const struct device *dev)
{
    return dev->err.code || device_stopped(dev);
}

/* True, with the device marked, when the workspace is too small for the op: our bug. */
bool cpu_work_short(struct device *dev, const char *op, uint64_t bytes);

/* Workspace of each kind of operation, bytes. */
uint64_t cpu_norm_work(const struct device *dev, const struct op_limits *l);
uint64_t cpu_linear_work(const struct device *dev, const struct op_limits *l);
uint64_t cpu_embed_work(const struct device *dev, const struct op_limits *l);
uint64_t cpu_rope_work(const struct device *dev, const struct op_limits *l);
uint64_t cpu_experts_work(const struct device *dev, const struct op_limits *l);
uint64_t cpu_attention_work(const struct device *dev, const struct op_limits *l);
uint64_t cpu_head_work(const struct device *dev, const struct op_limits *l);

/* As norm_bwd with rows, but dx is [n, D], one row per row of dout; dx may be dout. */
void cpu_norm_bwd_gathered(struct device *dev, const struct op_rownorm *a);

/* Entries of the operations' table, by file. */
void cpu_adamw(struct device *dev, const struct adamw_run *run, int64_t n_run,
               const struct adamw *a);
void cpu_factored(struct device *dev, enum op_factored_part part, const struct op_factored *f,
                  int64_t n, const struct adamw *a);
void cpu_muon(struct device *dev, enum op_muon_part part, const struct op_matrix *m,
              const struct adamw *a);
void cpu_sum_squares(struct device *dev, double *sum, const float *grad, int64_t n);
void cpu_judge(struct device *dev, struct op_verdict *verdict, const double *sum, double max_norm,
               double scale);
void cpu_add(struct device *dev, enum op_stream stream, float *dst, const float *src, int64_t n);
void cpu_embed_fwd(struct device *dev, const struct op_embed *a);
void cpu_embed_bwd(struct device *dev, const struct op_embed *a);
void cpu_drop(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d);
void cpu_jitter(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d);
void cpu_norm_fwd(struct device *dev, const struct op_rownorm *a);
void cpu_norm_bwd(struct device *dev, const struct op_rownorm *a);
void cpu_linear_fwd(struct device *dev, const struct op_linear *a);
void cpu_linear_bwd(struct device *dev, const struct op_linear *a);
void cpu_rope_fwd(struct device *dev, const struct op_rope *a);
void cpu_rope_bwd(struct device *dev, const struct op_rope *a);
void cpu_gate_fwd(struct device *dev, const struct op_gate *a);
void cpu_gate_bwd(struct device *dev, const struct op_gate *a);
void cpu_experts_fwd(struct device *dev, const struct op_experts *a);
void cpu_experts_bwd(struct device *dev, const struct op_experts *a);
void cpu_attention_fwd(struct device *dev, const struct op_attention *a);
void cpu_attention_bwd(struct device *dev, const struct op_attention *a);
void cpu_attention_cached(struct device *dev, const struct op_cached *a);
void cpu_head_loss(struct device *dev, const struct op_head *a);
void cpu_head_top(struct device *dev, const struct op_top *a);
void cpu_head_forbid(struct device *dev, const struct op_forbid *a);
void cpu_head_logits(struct device *dev, float *logits, const void *x, const void *w, int64_t n,
                     int64_t dim, int64_t vocab, float mul);

#endif
