/*
 * act - activation functions over rows: values, and values with derivatives.
 */
#ifndef CKPT_TRAINER_CPU_ACT_H
#define CKPT_TRAINER_CPU_ACT_H

#include "trainer/ops/ops.h"

/* out[i] = act(pre[i]); act is not NONE.  out may be pre. */
void cpu_act_rows(enum op_act act, float *out, const float *pre, int64_t n);
/* x[i] = act(pre[i]), dx[i] *= act'(pre[i]).  x may be pre. */
void cpu_act_back(enum op_act act, float *x, float *dx, const float *pre, int64_t n);
/* out = act(g) * u. */
void cpu_act_gate(enum op_act act, float *out, const float *g, const float *u, int64_t n);
/* dg = dout * u * act'(g), du = dout * act(g). */
void cpu_act_gate_back(enum op_act act, float *dg, float *du, const float *dout, const float *g,
                       const float *u, int64_t n);

#endif
