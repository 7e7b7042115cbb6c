/*
 * adamw - one AdamW step over a run of elements.
 *
 * Order of operations is torch's (torch/optim/adamw.py, _single_tensor_adamw, 2.x):
 *   p -= lr wd p;  m += (g - m)(1 - b1);  v = b2 v + (1 - b2) g g
 *   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 * Scalars are computed in f64 as Python does and rounded to f32 once.  Moments of elements that get
 * no gradient any more decay to 0, not to numbers without a full mantissa (cpu_flush).
 */
#include "trainer/cpu/cpu.h"

#include <math.h>

#include "libckpt/convert.h"

#define CHUNK 16384             /* elements a thread takes at once: four arrays stay in L2 */

struct scalars {
    float keep, one_minus_b1, b2, one_minus_b2, step_size, inv_bc2, eps, grad_scale;
};

CPU_HOT static void update(float *restrict p, float *restrict m, float *restrict v,
                           const float *restrict grad, int64_t n, const struct scalars *s)
{
    const struct scalars c = *s;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c.grad_scale;
        float mi = m[i] + (g - m[i]) * c.one_minus_b1;
        float vi = v[i] * c.b2 + c.one_minus_b2 * g * g;

        m[i] = mi;
        v[i] = vi;
        p[i] = p[i] * c.keep - c.step_size * mi / (sqrtf(vi) * c.inv_bc2 + c.eps);
    }
}

void cpu_adamw(struct device *dev, float *param, float *exp_avg, float *exp_avg_sq,
               const float *grad, int64_t n, const struct adamw *a)
{
    size_t wide = ckpt_dtype_size(dev->weight);
    double t = (double)a->step;
    const struct scalars s = {
        .keep = (float)(1.0 - a->lr * a->weight_decay),
        .one_minus_b1 = (float)(1.0 - a->beta1),
        .b2 = (float)a->beta2, .one_minus_b2 = (float)(1.0 - a->beta2),
        .step_size = (float)(a->lr / (1.0 - pow(a->beta1, t))),
        .inv_bc2 = (float)(1.0 / sqrt(1.0 - pow(a->beta2, t))),
        .eps = (float)a->eps, .grad_scale = (float)a->grad_scale,
    };

    if (dev->err.code)
        return;
#pragma omp parallel num_threads(cpu_threads(dev, 8 * n))
    {
        unsigned was = cpu_flush();

#pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i += CHUNK) {
            int64_t some = n - i < CHUNK ? n - i : CHUNK;

            update(param + i, exp_avg + i, exp_avg_sq + i, grad + i, some, &s);
            if (a->rounded)
                ckpt_convert((unsigned char *)a->rounded + (size_t)i * wide, dev->weight,
                             param + i, CKPT_F32, (size_t)some);
        }
        cpu_flush_end(was);
    }
}
