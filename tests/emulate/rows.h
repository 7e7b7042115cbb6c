/*
 * rows - rows of the GPU's table that run emulated, on a device of the CPU whose weights are of the
 * GPU's type.
 */
#ifndef CKPT_TESTS_EMULATE_ROWS_H
#define CKPT_TESTS_EMULATE_ROWS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "trainer/ops/ops.h"

/* What a GPU's device holds of its own memory: doubles, and bytes after them. */
enum { ROWS_SMALL = 8192, ROWS_BYTES = ROWS_SMALL * 8 + (1 << 16) };
void rows_open(void *memory);
void rows_adamw(struct device *dev, const struct adamw_run *run, int64_t n_run,
                const struct adamw *a);
void rows_factored(struct device *dev, enum op_factored_part part, const struct op_factored *f,
                   int64_t n, const struct adamw *a);
void rows_muon(struct device *dev, enum op_muon_part part, const struct op_matrix *m,
               const struct adamw *a);
void rows_sum_squares(struct device *dev, double *sum, const float *grad, int64_t n);
void rows_judge(struct device *dev, struct op_verdict *verdict, const double *sum, double max_norm,
                double scale);
void rows_add(struct device *dev, enum op_stream stream, float *dst, const float *src, int64_t n);
uint64_t rows_linear_work(const struct device *dev, const struct op_limits *l);
void rows_linear_fwd(struct device *dev, const struct op_linear *a);
void rows_linear_bwd(struct device *dev, const struct op_linear *a);
void rows_linears_fwd(struct device *dev, const struct op_linear *a, int n);
void rows_linears_bwd(struct device *dev, const struct op_linear *a, int n);
void rows_gated_fwd(struct device *dev, const struct op_linear *a, const struct op_gate *gate);
void rows_normed_fwd(struct device *dev, const struct op_rownorm *norm, const struct op_linear *a,
                     const struct op_gate *gate);

#ifdef __cplusplus
}
#endif

#endif
