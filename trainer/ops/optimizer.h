/*
 * ops/optimizer - the arguments of a step of the optimizer: part of ops.h.
 */
#ifndef CKPT_TRAINER_OPS_OPTIMIZER_H
#define CKPT_TRAINER_OPS_OPTIMIZER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * How moments are stored.  BF16: exp_avg is rounded to nearest, exp_avg_sq stochastically, since at
 * a beta2 of 0.999 what a step adds is less than half a unit in its last place: rounded to
 * nearest it would never change.  8BIT: bitsandbytes' block-wise dynamic codes of one byte
 * (formats/bnb/codes.h), with one f32 absmax for each 256 of them counted from the run's
 * start.  Zeros are codes and absmax all 0.
 */
enum op_moments { OP_MOMENTS_F32, OP_MOMENTS_BF16, OP_MOMENTS_8BIT };
enum { OP_MOMENTS_BLOCK = 256 };

/*
 * By which formulas a step goes, with g the gradient; the moments that a rule lacks are NULL.
 *   ADAMW  see struct adamw
 *   SGD    g += wd p;  b = g in the first step, else momentum b + (1 - dampening) g;
 *          p -= lr b, or with nesterov p -= lr (g + momentum b).  b is exp_avg, none for momentum 0
 *   LION   p -= lr wd p;  p -= lr sign(b1 m + (1 - b1) g);  m = b2 m + (1 - b2) g.  m is exp_avg
 *   ADAFACTOR  see struct op_adafactor
 *   MUON   hidden matrices: see struct op_muon; all else is stepped by ADAMW, and called so
 * Source: torch/optim/sgd.py, _single_tensor_sgd (2.15); Chen et al. 2023 (Lion).
 */
enum op_rule { OP_RULE_ADAMW, OP_RULE_SGD, OP_RULE_LION, OP_RULE_ADAFACTOR, OP_RULE_MUON };

/* Neighbouring elements that are stepped alike. */
struct adamw_run {
    float       *param;             /* [n] true weights; NULL: `rounded` has them, BF16, and is
                                       rounded stochastically */
    void        *exp_avg, *exp_avg_sq;      /* [n] of `moments` */
    float       *absmax, *absmax_sq;        /* 8BIT: [ceil(n / 256)] */
    const double *lr;               /* of its own; NULL: the step's */
    const float *grad;              /* [n] */
    void        *rounded;           /* [n] of the device's weight type, written beside param;
                                       NULL: none */
    int64_t      n;
    uint64_t     index;             /* of the first element among all of the model that are trained,
                                       on any rank: what random bits are made of, of BF16 moments
                                       and without param */
    double       weight_decay;
    enum op_moments moments;
};

/* What a step needs to know of all gradients together; in the device's memory. */
struct op_verdict {
    double  norm;                   /* of the gradient without its scale, before clipping */
    float   factor;                 /* gradients are multiplied by it: unscales and clips */
    int32_t finite;                 /* 0: nothing is stepped */
};

/*
 * Scalars of one step; AdamW's as torch.optim.AdamW applies them (decoupled decay first).  With
 * 8BIT moments the update is made from the moments before they are coded again.
 */
struct adamw {
    enum op_rule rule;
    double lr, beta1, beta2, eps;
    double momentum, dampening;     /* SGD */
    bool   nesterov;
    double grad_scale;              /* gradients are multiplied by it first, without a verdict */
    const struct op_verdict *verdict;       /* NULL: none */
    int64_t step;                   /* 1 for the first: bias correction */
    const struct op_adafactor *adafactor;   /* ADAFACTOR: its numbers */
    const struct op_muon *muon;             /* MUON: likewise */
    uint64_t seed;                  /* BF16: element e's 16 bits are those of half e % 2 (0: the
                                       low one) of word e % 8 / 2 of Philox(seed, step, e / 8);
                                       those of weights have the key seed ^ OP_WEIGHT_BITS */
};
#define OP_WEIGHT_BITS 0x9E3779B97F4A7C15u

/*
 * Adafactor: the second moment of a matrix is the product of one number for each row and one for
 * each column.  With t the step and d = 1 - t^decay_rate:
 *   row = d row + (1 - d) (mean of g^2 over the row + eps),  col likewise over the columns
 *   u = g / sqrt(row / mean(row)) / sqrt(col),  of a vector g / sqrt(exp_avg_sq)
 *   u /= max(1, rms(u) / clip_threshold);  u *= lr;  with beta1: u = m = beta1 m + (1 - beta1) u
 *   p -= lr wd p;  p -= u
 * lr: of the group, or with relative_step min(1e-2, or 1e-6 t with warmup_init; 1 / sqrt(t)); with
 * scale_parameter times max(eps_rms, rms(p)).
 * Source: Shazeer and Stern 2018; transformers 5.24, optimization.py (Adafactor).
 */
struct op_adafactor {
    double eps, eps_rms, clip_threshold, decay_rate;
    double beta1;                   /* NaN: no first moment */
    bool   scale_parameter, relative_step, warmup_init;
};

/*
 * One parameter, of which this rank steps elements [start, start + n).  Several may make up one
 * tensor, of which there is one rms(u) and one rms(p), as those of a layer's experts do: they
 * follow one another, first says which begins.  Two may have the rows of one matrix, one's above
 * the other's; a parameter that shares its matrix has that one alone.
 */
struct op_factored {
    float       *param;             /* [n] */
    const float *grad;              /* [n] */
    float       *exp_avg;           /* [n]; NULL without beta1 */
    void        *rounded;           /* [n] as in adamw_run */
    int64_t      n, start;
    int64_t      rows, cols;        /* of all matrices one below another; cols 0: a vector [rows] */
    int64_t      height;            /* its rows of one matrix */
    int64_t      above, tall;       /* rows of that matrix which another parameter has above them,
                                       and of all of it: 0, height where it is not shared */
    bool         first;             /* of its tensor */
    int64_t      numel;             /* of the tensor */
    float       *row, *col;         /* [rows], [rows / height][cols]; a vector's row: exp_avg_sq */
    float       *rms;               /* of the tensor's weights before the step */
    double      *sum;               /* [rows] and [rows / height][cols]: of g^2; from MOMENTS to
                                       UPDATE what a backend needs */
    const double *beside;           /* [cols] those of the columns below it in the same matrix;
                                       NULL: none */
    double      *weight_square, *update_square;     /* sums over elements; of the tensor */
    double       lr, weight_decay;
};

/*
 * A step in three parts; what each leaves is summed over the ranks that own parts before the next.
 *   SUMS    sum and weight_square of a rank's own elements
 *   MOMENTS row, col and rms from those; update_square of a rank's own elements
 *   UPDATE  the weights
 */
enum op_factored_part { OP_FACTORED_SUMS, OP_FACTORED_MOMENTS, OP_FACTORED_UPDATE };

/*
 * Muon: a matrix moves by a matrix near to the orthogonal one that is nearest to its momentum.
 *   m += (1 - momentum) (g - m);  d = m, or with nesterov g + momentum (m - g)
 *   x = d / max(|d|, eps), of which ns_steps times:  s = x x^T;  x = a x + (b s + c s s) x
 *   p -= lr wd p;  p -= lr adjust(rows, cols) x
 * All in f32, where torch's x and s are bfloat16: the sums of several ranks differ in their last
 * bits, which is to make no more than that of a difference.
 * Source: Jordan et al. 2024; Liu et al. 2025 (match_rms_adamw); torch/optim/_muon.py (2.15).
 */
enum op_muon_adjusts {
    OP_MUON_ORIGINAL,                   /* sqrt(max(1, rows / cols)) */
    OP_MUON_MATCH_RMS_ADAMW,            /* 0.2 sqrt(max(rows, cols)) */
    OP_MUON_SPECTRAL_UNCLAMPED          /* sqrt(rows / cols) */
};
struct op_muon {
    double  momentum, eps;
    bool    nesterov;
    int64_t ns_steps;
    double  a, b, c;
    int     adjust;                     /* enum op_muon_adjusts */
};

/* What the learning rate of a matrix is multiplied by. */
static inline double op_muon_adjust(const struct op_muon *o, int64_t rows, int64_t cols)
{
    double r = (double)rows, c = (double)cols;

    return o->adjust == OP_MUON_MATCH_RMS_ADAMW      ? 0.2 * sqrt(fmax(r, c))
           : o->adjust == OP_MUON_SPECTRAL_UNCLAMPED ? sqrt(r / c)
                                                     : sqrt(fmax(1.0, r / c));
}

/* One matrix, of which this rank steps elements [start, start + n). */
struct op_matrix {
    float       *param;             /* [n] */
    const float *grad;              /* [n] */
    float       *momentum;          /* [n] */
    void        *rounded;           /* [n] as in adamw_run */
    int64_t      n, start;
    int64_t      rows, cols;
    float       *direction;         /* [rows * cols] of all ranks */
    float       *work;              /* [op_muon_work(rows, cols)] */
    double       lr, weight_decay;
};

/* Floats of work: another x, s and what x is multiplied by. */
static inline int64_t op_muon_work(int64_t rows, int64_t cols)
{
    int64_t least = rows < cols ? rows : cols;

    return rows * cols + 2 * least * least;
}

/*
 * A step in three parts.  After the first a rank that makes the matrix orthogonal gets the others'
 * elements of the direction, after the second all get what it made.
 *   MOMENTUM    momentum, and a rank's own elements of the direction
 *   ORTHOGONAL  all of the direction becomes x; needs work
 *   UPDATE      the weights
 */
enum op_muon_part { OP_MUON_MOMENTUM, OP_MUON_ORTHOGONAL, OP_MUON_UPDATE };

#endif
