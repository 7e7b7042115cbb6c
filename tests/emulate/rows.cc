/* rows - see rows.h: what rooms of trainer/cuda need of their device. */
#include "tests/emulate/rows.h"

#include <stdarg.h>
#include <stdio.h>

#include "trainer/cuda/cuda.h"

extern "C" {
#include "formats/bnb/codes.h"
}

static_assert((int)ROWS_SMALL == (int)CUDA_SMALL, "the device's scratch");
static_assert(2 * sizeof(struct bnb_codec) <= ROWS_BYTES - ROWS_SMALL * 8, "its tables");

static struct cuda_device gpu;

void rows_open(void *memory)
{
    gpu.sms = 2;
    gpu.small = (double *)memory;
    gpu.codec = (struct bnb_codec *)(gpu.small + ROWS_SMALL);
    bnb_codec_init(&gpu.codec[0], true);
    bnb_codec_init(&gpu.codec[1], false);
}

bool cuda_fail(struct device *dev, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (dev->err.code == 0) {
        dev->err.code = code;
        vsnprintf(dev->err.text, sizeof dev->err.text, fmt, ap);
    }
    va_end(ap);
    return false;
}

bool cuda_launched(struct device *dev, const char *) { return dev->err.code == 0; }
cudaStream_t cuda_stream_of(struct device *, enum op_stream) { return NULL; }

/* The GPU that stands for a device while a row runs. */
struct as_gpu {
    struct device *dev;

    as_gpu(struct device *of) : dev(of)
    {
        gpu.dev = *of;
        gpu.dev.act = of->weight;
    }
    ~as_gpu() { dev->err = gpu.dev.err; }
    operator struct device *() { return &gpu.dev; }
};

void rows_adamw(struct device *dev, const struct adamw_run *run, int64_t n_run,
                const struct adamw *a)
{
    cuda_adamw(as_gpu(dev), run, n_run, a);
}

void rows_factored(struct device *dev, enum op_factored_part part, const struct op_factored *f,
                   int64_t n, const struct adamw *a)
{
    cuda_factored(as_gpu(dev), part, f, n, a);
}

void rows_muon(struct device *dev, enum op_muon_part part, const struct op_matrix *m,
               const struct adamw *a)
{
    cuda_muon(as_gpu(dev), part, m, a);
}

void rows_sum_squares(struct device *dev, double *sum, const float *grad, int64_t n)
{
    cuda_sum_squares(as_gpu(dev), sum, grad, n);
}

void rows_judge(struct device *dev, struct op_verdict *verdict, const double *sum, double max_norm,
                double scale)
{
    cuda_judge(as_gpu(dev), verdict, sum, max_norm, scale);
}

void rows_add(struct device *dev, enum op_stream stream, float *dst, const float *src, int64_t n)
{
    cuda_add(as_gpu(dev), stream, dst, src, n);
}

uint64_t rows_linear_work(const struct device *dev, const struct op_limits *l)
{
    struct device of = *dev;

    of.act = dev->weight;
    return cuda_linear_work(&of, l);
}

void rows_linear_fwd(struct device *dev, const struct op_linear *a)
{
    cuda_linear_fwd(as_gpu(dev), a);
}

void rows_linear_bwd(struct device *dev, const struct op_linear *a)
{
    cuda_linear_bwd(as_gpu(dev), a);
}

void rows_linears_fwd(struct device *dev, const struct op_linear *a, int n)
{
    cuda_linears_fwd(as_gpu(dev), a, n);
}

void rows_linears_bwd(struct device *dev, const struct op_linear *a, int n)
{
    cuda_linears_bwd(as_gpu(dev), a, n);
}

void rows_gated_fwd(struct device *dev, const struct op_linear *a, const struct op_gate *gate)
{
    cuda_gated_fwd(as_gpu(dev), a, gate);
}

void rows_normed_fwd(struct device *dev, const struct op_rownorm *norm, const struct op_linear *a,
                     const struct op_gate *gate)
{
    cuda_normed_fwd(as_gpu(dev), norm, a, gate);
}
