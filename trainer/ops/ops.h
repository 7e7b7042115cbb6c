/*
 * ops - the row of operations: the law for cpu/ and cuda/.
 *
 * Letters in comments: B batch, T positions, V vocabulary, L layers, D hidden size, H query
 * heads, K key/value heads, d head size, F feed-forward width, N = rows (tokens of a packed
 * batch), R ranks.
 *
 * Gradients of parameters are ADDED, gradients of activations are OVERWRITTEN, except where an
 * entry says otherwise.  Sums are accumulated in f32 at least, in a fixed order, so a rerun on
 * the same machine gives the same bits.  Operations return nothing: the first failure marks the
 * device, later ones do nothing, and device_sync reports it.
 *
 * Types: `void *` that is called an activation has the device's `act` type, a weight its
 * `weight` type, a parameter's gradient its `grad` type (on the CPU weights may be bf16 or f16,
 * the others are f32).  `float *` is f32
 * on every device: statistics, losses, logits that leave the device, optimizer state.  Integer
 * arrays are i32.  All arrays are dense and row-major, the last dim innermost, unless strides
 * are passed.  Every pointer is the device's, sizes are elements; a size of 0 rows is legal and
 * adds nothing.  Outputs never overlap inputs unless the entry says "may be".
 *
 * Operations are as coarse as speed needs them: what a fast backend would fuse is one entry, so
 * that a backend decides how.  What an entry needs beyond its arguments comes from the device's
 * workspace, whose size `workspace` tells before anything is allocated.
 */
#ifndef CKPT_TRAINER_OPS_OPS_H
#define CKPT_TRAINER_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/dtype.h"
#include "libckpt/err.h"

struct device;
struct op_graph;

/*
 * Products of the blocks' projections with factors of 8 bits, each with one scale for the whole:
 * HYBRID rounds weights and what is multiplied by them to e4m3, gradients of outputs to e5m2; E4M3
 * rounds all to e4m3.  (The words are Transformer Engine's.)
 */
enum device_fp8 { DEVICE_FP8_OFF, DEVICE_FP8_HYBRID, DEVICE_FP8_E4M3 };

/*
 * How moments are stored.  BF16: exp_avg is rounded to nearest, exp_avg_sq stochastically, since at
 * a beta2 of 0.999 what a step adds is less than half a unit in its last place: rounded to
 * nearest it would stand still.  8BIT: bitsandbytes' block-wise dynamic codes of one byte
 * (formats/bnb/codes.h), with one f32 absmax for each 256 of them counted from the run's
 * start.  Zeros are codes and absmax all 0.
 */
enum op_moments { OP_MOMENTS_F32, OP_MOMENTS_BF16, OP_MOMENTS_8BIT };
enum { OP_MOMENTS_BLOCK = 256 };

/* Neighbouring elements that are stepped alike. */
struct adamw_run {
    float       *param;             /* [n] true weights */
    void        *exp_avg, *exp_avg_sq;      /* [n] of `moments` */
    float       *absmax, *absmax_sq;        /* 8BIT: [ceil(n / 256)] */
    const float *grad;              /* [n] */
    void        *rounded;           /* [n] of the device's weight type, written beside param;
                                       NULL: none */
    int64_t      n;
    uint64_t     index;             /* BF16: of the first element among all that are trained: what
                                       its random bits are made of */
    double       weight_decay;
    enum op_moments moments;
};

/* What a step has to know of the whole gradient; in the device's memory. */
struct op_verdict {
    double  norm;                   /* of the gradient without its scale, before clipping */
    float   factor;                 /* gradients are multiplied by it: unscales and clips */
    int32_t finite;                 /* 0: nothing is stepped */
};

/*
 * Scalars of one AdamW step, as torch.optim.AdamW applies them (decoupled decay first).  With
 * 8BIT moments the update is made from what the moments were before they are coded again.
 */
struct adamw {
    double lr, beta1, beta2, eps;
    double grad_scale;              /* gradients are multiplied by it first, without a verdict */
    const struct op_verdict *verdict;       /* NULL: none */
    int64_t step;                   /* 1 for the first: bias correction */
    uint64_t seed;                  /* BF16: element e's 16 bits are those of half e % 2 (0: the
                                       low one) of word e % 8 / 2 of Philox(seed, step, e / 8) */
};

/* Activation functions; formulas in model-families' words:
 * GELU_TANH  0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3))) = x * sigmoid(2 sqrt(2/pi)(...))
 * GELU_ERF   0.5x(1 + erf(x / sqrt(2)))
 * RELU       max(0, x), its derivative at 0 is 0
 * SILU       x * sigmoid(x) */
enum op_act { OP_ACT_NONE, OP_ACT_GELU_TANH, OP_ACT_GELU_ERF, OP_ACT_RELU, OP_ACT_SILU };

/* LAYER: (x - mean) / sqrt(var + eps) * w + b, biased variance.
 * RMS:   x / sqrt(mean(x^2) + eps) * w; b, db are NULL, and the statistics' mean is 0. */
enum op_norm_kind { OP_NORM_LAYER, OP_NORM_RMS };

/* Weights and constants of one normalisation over the last dim D. */
struct op_norm {
    enum op_norm_kind kind;
    float             eps;
    const void       *w, *b;        /* weights [D]; b NULL: no bias */
    void             *dw, *db;      /* gradients [D]; read by _bwd only, NULL: frozen */
};

/*
 * Dropout of an activation [n, width]: element (i, j) stays where word j % 4 of Philox(seed,
 * stream, i * ceil(width / 4) + j / 4) is at least p * 2^32, and is then divided by 1 - p; the
 * others become 0.  A pure function of its arguments: backward and recomputing make the same mask
 * again, on any number of threads.  p 0: all stay.
 * Source: Srivastava et al. 2014; torch.nn.functional.dropout for the scale.
 */
struct op_drop {
    double   p;                     /* in [0, 1] */
    uint64_t seed, stream;
};

/*
 * A low-rank change beside a frozen matrix W (LoRA): W' = W + scale * B A.  With a magnitude
 * (DoRA) W' = m * (W + scale * B A) / c, by rows, where c is the length of each row, which counts
 * as a constant in gradients.  drop is of the change's input alone: with xd = drop(x)
 *   p = W x + scale * B A xd,  DoRA:  p = W (x - xd) + (m / c) * (W + scale * B A) xd.
 * Source: Hu et al. 2021; Liu et al. 2024 (DoRA); peft 0.21 tuners/lora/{layer,dora}.py.
 */
struct op_lora {
    const void    *a, *b;           /* weights [r, n_in], [n_out, r]; of an embedding
                                       [r, V], [D, r] */
    void          *da, *db;         /* bwd: gradients; NULL both: frozen */
    void          *t;               /* activation [n, r rounded up to 8]: fwd leaves scale * A xd
                                       there for bwd, where the device has a use for it; of
                                       projections done at once the first's has room for all;
                                       NULL: not kept */
    const void    *magnitude;       /* weight [n_out], or NULL */
    void          *dmagnitude;      /* bwd: gradient; NULL: frozen */
    int64_t        rank;            /* r; 0: no change */
    float          scale;
    struct op_drop drop;
};

/*
 * embed: e = table[ids] (row gather), with tables of positions and of kinds
 * e = table[ids] + pos[positions] + kind[kinds]; out = norm(e), or e without norm (norm NULL).
 * (Kinds, and a norm with positions, are forward only and without what follows.)
 * Ids among token_ids take their rows from tokens.  A change adds scale * (B A)^T's row to e.
 * What leaves is dropped out.  Backward gathers e again, so that it is not kept between the passes.
 */
struct op_embed {
    void                 *out;      /* fwd: activation [N, D] */
    float                *stats;    /* fwd writes, bwd reads: [N, 2] mean and 1/std */
    void                 *dout;     /* bwd: activation [N, D], its contents are destroyed */
    void                 *dtable;   /* bwd: gradient [V, D], added to by row; NULL: frozen */
    const void           *table;    /* weight [V, D] */
    void                 *dpos;     /* bwd: gradient [P, D], added to by row; NULL: frozen */
    const void           *pos;      /* weight [P, D], or NULL */
    const int32_t        *ids;      /* [N], each in [0, V) */
    const int32_t        *positions;/* [N], each in [0, P); with pos */
    const void           *token_type;/* fwd: weight [types, D], or NULL */
    const int32_t        *token_type_ids;/* [N]; NULL: all 0 */
    const struct op_norm *norm;     /* NULL: none */
    int64_t               n, dim, vocab;
    int64_t               no_grad;  /* bwd: the id whose lookup gives no gradient; -1: none */
    struct op_lora        lora;     /* without magnitude and drop */
    struct op_drop        drop;
    const void           *tokens;   /* weight [n_tokens, D]; NULL: none */
    void                 *dtokens;  /* bwd: gradient; NULL: frozen */
    const int32_t        *token_ids;/* [n_tokens], each once */
    int64_t               n_tokens;
    bool                  gather;   /* the table is an activation: rows are only picked */
};

/*
 * norm: out[i] = norm(x[r(i)]), r(i) = rows[i], or i without rows.
 * Backward: g = dout[i] (+ dout_add[i]);  dx[r(i)] = d norm(g) (+ dx_add[r(i)]).  With rows,
 * every other row of dx is set to zero (dx_add must be NULL then).
 * Source: Ba et al. 2016; torch.nn.functional.layer_norm.
 */
struct op_rownorm {
    void           *out;            /* fwd: activation [n, D] */
    float          *stats;          /* fwd writes, bwd reads: [n, 2] mean and 1/std */
    void           *dx;             /* bwd: activation [n_x, D]; may be dx_add, dout_add or,
                                       without rows, dout */
    const void     *x;              /* activation [n_x, D] */
    const void     *dout;           /* bwd: activation [n, D] */
    const void     *dout_add;       /* bwd: activation [n, D] or NULL */
    const void     *dx_add;         /* bwd: activation [n_x, D] or NULL */
    const int32_t  *rows;           /* [n] increasing, or NULL */
    void           *dx_sum, *add_sum;   /* bwd: gradients [D], to each of which the column sums
                                           of dx, and of dx_add as it was, are added; NULL: not
                                           asked for.  Not with rows */
    bool            fresh;          /* those two are written instead */
    struct op_norm  norm;
    int64_t         n, n_x, dim;    /* n_x = n without rows */
};

/*
 * linear, forward:  p = x W^T + b;  pre = p (when asked for);  out = drop(act(p)) + residual.
 * (act and residual are not used together.)  With in_out W is stored [n_in, n_out]: p = x W.
 * With lora W is W' as said there.
 *
 * Backward, with x = x_act(x_pre) when x_act is not NONE:
 *   dW += dout^T x;  db += column sums of dout;  dx = dout W,
 *   or, with x_act:  dx = (dout W) * x_act'(x_pre), the gradient of x_pre, and x, which need
 *   not be kept between the passes, is written again from x_pre; with x_drop both are dropped
 *   out.  With dx_add (and no x_act) dx += dout W.  With drop dout is dropped out first.
 *   With RELU x may be x_pre, both drop(max(0, p)): then it stays as it is.
 *   With x_made x was kept: a device need not write it again.
 *   With fresh dW and db (not a change's) are written instead of added to, also of 0 rows.
 */
struct op_linear {
    void       *out;                /* fwd: activation [n, n_out] */
    void       *pre;                /* fwd: activation [n, n_out] or NULL */
    void       *x;                  /* activation [n, n_in]; fwd reads, bwd see above */
    void       *dx;                 /* bwd: activation [n, n_in]; NULL: not wanted */
    void       *dw;                 /* bwd: gradient [n_out, n_in]; NULL: frozen */
    void       *db;                 /* bwd: gradient [n_out]; NULL: frozen or no bias */
    const void *w;                  /* weight [n_out, n_in] (torch.nn.Linear), or see in_out */
    const void *b;                  /* weight [n_out]; NULL: none */
    const void *residual;           /* fwd: activation [n, n_out], may be out (but with drop);
                                       NULL: none */
    const void *dout;               /* bwd: activation [n, n_out] */
    const void *x_pre;              /* bwd: activation [n, n_in], with x_act */
    enum op_act act, x_act;
    int64_t     n, n_in, n_out;
    int64_t     out_ld;             /* elements from row to row of out and dout; 0: n_out.  Not
                                       with pre, residual, act or drop */
    bool        in_out;             /* dw likewise */
    bool        dx_add, x_made, fresh;
    bool        x_again;            /* x is what the last linear_fwd, or linear_bwd, read, and has
                                       not changed: what was made of it may serve again */
    struct op_drop drop, x_drop;
    struct op_lora lora;
};

/*
 * Where the heads of queries, keys and values lie: element (row, head, j) of q is
 * q[row * row_stride + head * head_stride + j].  One struct covers fused layouts (BLOOM:
 * [H, 3, d]; blocks of q, k, v) and separate matrices.
 */
struct op_heads {
    void   *q, *k, *v;              /* activations; gradients have the same layout */
    int64_t row_stride;
    int64_t kv_stride;              /* from row to row of k and v; 0: row_stride */
    int64_t q_head, kv_head;        /* strides from head to head */
};

/*
 * A term of the scores by distance: query row i and key row j (both counted inside their
 * document) get table[bucket[reach + clamp(j - i, -reach, reach)], h].
 * Source: Raffel et al. 2020, section 2.1; transformers 5.17, models/t5/modeling_t5.py.
 */
struct op_rel_bias {
    const void    *table;           /* weight [buckets, H]; NULL: no such term */
    void          *dtable;          /* bwd: gradient [buckets, H]; NULL: frozen */
    const int32_t *bucket;          /* [2 * reach + 1] */
    int64_t        reach, n_bucket;
};

/*
 * rope: queries and keys turned by their positions, normalised by heads first where norms are.
 *   y[j]         = x[j] c - x[j + R/2] s
 *   y[j + R/2]   = x[j + R/2] c + x[j] s        c, s = table[position][j], j < R/2
 * Elements from R on pass.  With norms x = RMS(in) * w over the d elements of each head, in and
 * out lie apart and v is copied; without, out is `in`.
 * Backward turns the gradients in place, from those of out to those of in.
 * Source: Su et al. 2021; transformers 5.17, rotate_half of modeling_llama.py.
 */
struct op_rope {
    struct op_heads in, out;        /* bwd reads in, with norms */
    struct op_heads grad;           /* bwd: in place; row_stride as in `in` */
    float          *stats;          /* fwd writes, bwd reads: [N, H + K] 1/rms; NULL: no norms */
    const float    *table;          /* [P, 2, R/2]: cosines, then sines; NULL: no turning */
    const int32_t  *positions;      /* [N], each in [0, P) */
    const void     *q_norm, *k_norm;/* weight [d] each, or NULL both */
    void           *dq_norm, *dk_norm;      /* bwd: gradients [d]; NULL: frozen */
    int64_t         n, n_head, n_kv, dim, rotary_dim;   /* H, K, d, R */
    float           eps;
};

/*
 * gate: out[i, j] = drop(act(u[i, j]) * u[i, F + j]).
 * Backward: du from dout, which drop changes; out need not be kept: with again it is written too.
 */
struct op_gate {
    void       *out;                /* fwd, bwd with again: activation [n, F] */
    void       *du;                 /* bwd: activation [n, 2F] */
    const void *u;                  /* activation [n, 2F] */
    void       *dout;               /* bwd: activation [n, F] */
    enum op_act act;
    int64_t     n, ff;
    bool        recompute;
    struct op_drop drop;
};

/*
 * experts: a router picks k of E gated feed-forwards for each row.
 *   p = softmax(x Wr^T) over all E, in f32;  the k largest are picked (equal ones: the first)
 *   w = p of those, divided by their sum with renorm
 *   out = residual + sum over the picked, by rising e, of w_e Wdown_e (act(Wgate_e x) * Wup_e x)
 * Matrices of expert e lie e * stride elements behind those of expert 0.
 * Backward: dx; with them the gradients of p's path through w.  u and what was picked are kept.
 * For a loss that keeps experts evenly used: forward adds to used[e] how many rows picked e, and
 * to used[E + e] the sum of p[e] over the rows; backward adds dused[e] to every row's dp[e].
 * Source: transformers 5.17, models/mixtral/modeling_mixtral.py, models/qwen3_moe.
 */
struct op_experts {
    void       *out;                /* fwd: activation [n, D] */
    void       *dx;                 /* bwd: activation [n, D] */
    void       *u;                  /* fwd writes, bwd reads: activation [n * k, 2F], by slot */
    float      *probs;              /* likewise [n, E] */
    float      *used;               /* fwd: [2, E], added to; NULL: not wanted */
    const float *dused;             /* bwd: [E]; NULL: none */
    int32_t    *top_k_index;        /* likewise [n, k], rising */
    const void *x, *residual;       /* activation [n, D]; residual NULL: none */
    const void *dout;               /* bwd: activation [n, D] */
    const void *router;             /* weight [E, D] */
    const void *gate, *up, *down;   /* weights [F, D], [F, D], [D, F] of expert 0 */
    void       *drouter, *dgate, *dup, *ddown;      /* gradients; NULL: frozen */
    int64_t     n, dim, ff, n_expert, top_k, stride;
    enum op_act act;
    bool        renorm;
};

/*
 * attention over packed documents: row i sees rows j of its document with j <= i and, with a
 * window, j > i - window.  For head h (its keys: head h * K / H):
 *   s[i,j] = scale * q[i].k[j] + slope[h] * (j - i) + distance(i, j, h)
 *   P = softmax_j(s);  out[i] = sum_j P[i,j] v[j]
 * whole: row i sees all keys of its document.  Keys may be other rows than the queries (a
 * decoder's of what its encoder made): those of document d are then rows
 * [key_start[d], key_end[d]), one at least, all of them seen; documents may share keys forward
 * only.
 *
 * lse[h, i] = log sum_j exp s[i,j] is kept so that backward rebuilds P without a new softmax:
 *   D[i] = dout[i].out[i];  dS = P * (dout v^T - D);  dq = scale dS k;  dk = scale dS^T q;
 *   dv = P^T dout;  dtable[bucket, h] += sum of dS there.
 * With K < H gradients of k, v are summed over the heads that share them.
 * drop is of P: its row for head h and query i is row h * N + i of an activation [H * N, max_doc],
 * columns count from the document's first key.
 * Source: Dao 2023 (FlashAttention-2), Press et al. 2022 (ALiBi).
 */
struct op_attention {
    void           *out;            /* fwd writes, bwd reads: activation [N, H * d] */
    float          *lse;            /* fwd writes (NULL: not kept), bwd reads: [H, N] */
    struct op_heads in;             /* q, k, v */
    struct op_heads grad;           /* bwd: dq, dk, dv, overwritten; strides of rows as in `in` */
    const void     *dout;           /* bwd: activation [N, H * d] */
    const int32_t  *doc_start;      /* [n_docs + 1] */
    const int32_t  *key_start, *key_end;    /* [n_docs] each, or NULL both: a document's own */
    const float    *slopes;         /* [H] or NULL: no position term */
    struct op_rel_bias rel_bias;
    int64_t         n, n_docs, max_doc;     /* max_doc: rows of the longest document, keys too */
    int64_t         n_head, n_kv, dim;      /* H, K, d */
    int64_t         window;         /* 0: none */
    float           scale;
    bool            whole;
    struct op_drop  drop;
};

/*
 * attention of new rows against a cache (generation).  With rope the new rows are turned first, as
 * rope_fwd does; `in` is its out, which need not be written, nor its statistics.  Segment g is rows
 * [seg_start[g], seg_start[g + 1]) of the new rows: they continue sequence seg_seq[g], of which
 * seg_past[g] keys are in the cache.  First k and v of the new rows are put into the cache
 * behind those, then each new row attends as above to its sequence up to itself.
 * Cache layout: [n_seq][K][capacity][d], one array for keys and one for values.
 */
struct op_cached {
    void           *out;            /* activation [n, H * d] */
    void           *k_cache, *v_cache;
    struct op_heads in;             /* q, k, v of the new rows */
    const struct op_rope *rope;     /* NULL: they stand there as they are */
    const int32_t  *seg_start;      /* [n_seg + 1]; no segment is empty */
    const int32_t  *seg_seq, *seg_past;     /* [n_seg] */
    const float    *slopes;
    struct op_rel_bias rel_bias;
    int64_t         n, n_seg, capacity;
    int64_t         max_keys;       /* the largest past + new of a segment, at most */
    int64_t         n_head, n_kv, dim, window;
    float           scale;
};

/*
 * head and cross-entropy over the rows that carry a loss; logits [n, V] never exist whole.
 *   z = mul * x W^T;  nll[i] = logsumexp(z[i]) - z[i, target[i]]
 * With dx not NULL also the gradients of scale * sum_i nll[i]:
 *   dz = scale * (softmax(z) - onehot);  dx = mul dz W;  dW += mul dz^T x.
 * With fresh dW is written instead of added to, also of 0 rows.
 */
struct op_head {
    float         *nll;             /* [n] */
    void          *dx;              /* activation [n, D]; NULL: no gradients */
    void          *dw;              /* gradient [V, D]; NULL: frozen */
    const void    *x;               /* activation [n, D] */
    const void    *w;               /* weight [V, D] */
    const int32_t *targets;         /* [n] */
    int64_t        n, dim, vocab;
    float          mul, scale;
    bool           fresh;
};

/*
 * head_top: of each row of logits [n, V] the k largest, falling, of equal ones the lowest id
 * first; and sum[i] = sum over j of exp((z[i, j] - max) / temperature), in f64, the difference in
 * f32.  In a row with a NaN all values are NaN.  The sum of a row without a finite value means
 * nothing.
 */
enum { OP_TOP_MOST = 256 };

struct op_top {
    float         *value;           /* [n, k] */
    int32_t       *id;              /* [n, k] */
    double        *sum;             /* [n]; NULL: not wanted */
    const float   *logits;          /* [n, V] */
    int64_t        n, vocab, k;     /* k in [1, min(V, OP_TOP_MOST)] */
    double         temperature;
};

/* The largest sizes that will be asked of a device: what its workspace depends on. */
struct op_limits {
    int64_t n, n_rows, max_doc;     /* N, rows with a loss, rows of the longest document */
    int64_t max_keys;               /* generation: keys of the longest sequence */
    int64_t dim, n_head, n_kv, head_dim, ff, vocab;
    int64_t n_expert, top_k, expert_ff;     /* 0: no experts */
    int64_t embed;                  /* width of the embedding, where it is another than D */
    int64_t lora_rank;              /* the largest; 0: no changes beside matrices */
    bool    lora_drop, lora_magnitude;
    bool    drop;                   /* of hidden activations */
    bool    train;
    int64_t top_rows;               /* of head_top; 0: it is not asked for */
};

/*
 * Streams: the work of one runs in order, and concurrently with that of the others.  Operations,
 * and copies by to_device, to_host and copy, go to OP_STREAM_MAIN; OP_STREAM_IN copies from pinned
 * host memory to the device, OP_STREAM_OUT back.  An event marks the work queued on a stream so
 * far; one that was never recorded counts as done.
 */
enum op_stream { OP_STREAM_MAIN, OP_STREAM_IN, OP_STREAM_OUT, OP_N_STREAMS };
enum { OP_N_EVENTS = 64 };

struct ops {
    const char *name;               /* "cpu", "cuda" */

    /* -- memory and order (device pointers; on the CPU plain memory) ---------------------- */
    void *(*alloc)(struct device *dev, size_t bytes);           /* 256-byte aligned, zeroed */
    void (*free)(struct device *dev, void *p);
    void (*zero)(struct device *dev, void *p, size_t bytes);
    void (*to_device)(struct device *dev, void *dst, const void *src, size_t bytes);
    void (*to_host)(struct device *dev, void *dst, const void *src, size_t bytes);
    void (*copy)(struct device *dev, void *dst, const void *src, size_t bytes);
    void (*sync)(struct device *dev);                   /* waits for all streams */
    void (*close)(struct device *dev);
    /* Record timestamp i (from 0 up) after the operations so far; the milliseconds between two
     * of them, valid after a sync (profile.h). */
    void (*timestamp)(struct device *dev, int64_t i);
    double (*elapsed)(struct device *dev, int64_t from, int64_t to);
    /* Host memory for stream_copy, zeroed, 256-byte aligned; page-locked where a GPU copies. */
    void *(*pin)(struct device *dev, size_t bytes);
    void (*unpin)(struct device *dev, void *p);
    void (*stream_copy)(struct device *dev, enum op_stream stream, void *dst, const void *src,
                        size_t bytes);
    /* Record event i < OP_N_EVENTS on a stream; make later work of a stream wait for event i as
     * last recorded; make the host wait for it. */
    void (*event_record)(struct device *dev, enum op_stream stream, int i);
    void (*stream_wait_event)(struct device *dev, enum op_stream stream, int i);
    void (*event_sync)(struct device *dev, int i);
    /* Bytes of workspace these sizes need. */
    uint64_t (*workspace)(const struct device *dev, const struct op_limits *limits);
    /* Bytes that alloc may still give, when what the device needs for itself is taken off. */
    uint64_t (*free_bytes)(struct device *dev);

    /* dst[n] of type `to` <- src[n] of type `from`: f32, bf16, f16; to nearest, ties to even. */
    void (*cast)(struct device *dev, void *dst, enum ckpt_dtype to, const void *src,
                 enum ckpt_dtype from, int64_t n);

    /* -- optimizer ------------------------------------------------------------------------- */
    /* All runs are stepped in place.  They do not overlap; any may have n 0.
     * Source: torch/optim/adamw.py, _single_tensor_adamw (2.x); of 8BIT bitsandbytes 0.50.2,
     * csrc/kernels.cu, kOptimizerStatic8bit2StateBlockwise. */
    void (*adamw)(struct device *dev, const struct adamw_run *run, int64_t n_run,
                  const struct adamw *a);
    /* *sum (host) <- sum of grad[i]^2 in f64, fixed order. */
    void (*sum_squares)(struct device *dev, double *sum, const float *grad, int64_t n);
    /* *verdict (device) of the gradient grad[n] / scale (verdict.h); the host does not wait. */
    void (*grad_norm)(struct device *dev, struct op_verdict *verdict, const float *grad, int64_t n,
                      double max_norm, double scale);

    /* -- model: embedding, norms, projections, attention, head and loss ------------------- */
    void (*embed_fwd)(struct device *dev, const struct op_embed *a);
    void (*embed_bwd)(struct device *dev, const struct op_embed *a);
    /* x[n, width] <- drop(x); also of gradients. */
    void (*drop)(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d);
    /* x[n, width] <- x * (1 + p (2 u - 1)), u the high 24 bits of the element's word (the word
     * is op_drop's) * 2^-24: uniform factors in [1 - p, 1 + p); also of gradients.  A router's
     * noise.  Source: transformers 5.17, models/mixtral/modeling_mixtral.py. */
    void (*jitter)(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d);
    void (*norm_fwd)(struct device *dev, const struct op_rownorm *a);
    void (*norm_bwd)(struct device *dev, const struct op_rownorm *a);
    void (*linear_fwd)(struct device *dev, const struct op_linear *a);
    void (*linear_bwd)(struct device *dev, const struct op_linear *a);
    /* n projections with changes, of one x and back into one dx, as one after another (the first
     * says whether dx is added to).  NULL: the device gains nothing by having them at once. */
    void (*linears_fwd)(struct device *dev, const struct op_linear *a, int n);
    void (*linears_bwd)(struct device *dev, const struct op_linear *a, int n);
    void (*rope_fwd)(struct device *dev, const struct op_rope *a);
    void (*rope_bwd)(struct device *dev, const struct op_rope *a);
    void (*gate_fwd)(struct device *dev, const struct op_gate *a);
    void (*gate_bwd)(struct device *dev, const struct op_gate *a);
    void (*experts_fwd)(struct device *dev, const struct op_experts *a);
    void (*experts_bwd)(struct device *dev, const struct op_experts *a);
    void (*attention_fwd)(struct device *dev, const struct op_attention *a);
    void (*attention_bwd)(struct device *dev, const struct op_attention *a);
    void (*attention_cached)(struct device *dev, const struct op_cached *a);
    void (*head_loss)(struct device *dev, const struct op_head *a);
    /* logits[n, V] f32 = mul * x W^T; x activation [n, D], w weight [V, D]. */
    void (*head_logits)(struct device *dev, float *logits, const void *x, const void *w,
                        int64_t n, int64_t dim, int64_t vocab, float mul);
    void (*head_top)(struct device *dev, const struct op_top *a);

    /* A projection forward whose output is the gate's u, and the gate, without dropout: u need not
     * be written.  NULL: the device gains nothing by having them at once. */
    void (*gated_fwd)(struct device *dev, const struct op_linear *a, const struct op_gate *gate);
    /* A norm whose out is the projection's x, then the projection, with a gate (NULL: without) as
     * gated_fwd: neither x nor the norm's statistics need be written.  NULL likewise. */
    void (*normed_fwd)(struct device *dev, const struct op_rownorm *norm,
                       const struct op_linear *a, const struct op_gate *gate);

    /* -- graphs ---------------------------------------------------------------------------- */
    /*
     * Operations between graph_begin and graph_end are captured instead of run; each graph_launch
     * runs them all, with the captured arguments and the memory's contents at that time.  They
     * must have run before with the same sizes, must neither wait nor copy to or from the host,
     * nor write weights, which a device may prefetch.  graph_begin returns false where the device
     * has no graphs (the CPU), graph_end NULL when an operation could not be captured: the state
     * is then as if graph_begin had not been called.
     */
    bool (*graph_begin)(struct device *dev);
    struct op_graph *(*graph_end)(struct device *dev);
    void (*graph_launch)(struct device *dev, struct op_graph *r);
    void (*graph_free)(struct device *dev, struct op_graph *r);    /* NULL: nothing */
};

/* The head of every device; a backend puts its own fields behind it. */
struct device {
    const struct ops *ops;
    struct ckpt_err   err;          /* err.code != 0: broken, with the name of the op */
    int               threads;      /* CPU: threads of this rank */
    int64_t           grain;        /* CPU: multiply-adds below which one thread does an op */
    enum ckpt_dtype   act, weight, grad;    /* see the top */
    bool              discrete;     /* its memory is not the host's */
    bool              untimed;      /* which algorithms are fast here is not known: as products are
                                       first met they are timed, which takes seconds */
    enum device_fp8   fp8;          /* projections may round their factors to 8 bits */
    /* Memory for weights in 8 bits: the caller's, or NULL: they are made at each use.  Who lends
     * it keeps all weights where they are and raises a count after each change: `stepped` where
     * an optimizer changed what is trained, `loaded` where anything may be new. */
    void             *fp8_cache;
    uint64_t          fp8_cache_bytes, stepped, loaded;
    char              label[64];    /* apart: what it is, for a person */
    char             bus[32];       /* apart: where it is, as NVML knows it */
    void             *work;         /* workspace: the caller's memory, set before operations */
    uint64_t          work_bytes;
    uint64_t          held;         /* apart: bytes that alloc has given and free not taken */
    uint64_t          context;      /* apart: bytes that its driver holds for this process */
    struct profile   *profile;      /* profile.h, or NULL */
    uint64_t          n_alloc;      /* calls of alloc so far: a step must not raise it */
};

/* Open the CPU device with so many threads (0: by CPUs). */
int device_open_cpu(struct device **out, int threads, struct ckpt_err *err);

struct device_opts {
    const char     *name;           /* "cpu", "cuda", "cuda:N"; NULL or "auto": a GPU when there is
                                       one and its plug-in, else the CPU */
    int             threads;        /* of the CPU, 0: by CPUs */
    enum ckpt_dtype weights;        /* F32, BF16, F16: the device's weight type, a GPU's act too */
    uint64_t        memory_limit;   /* bytes of a GPU's memory, 0: all */
    bool            tf32;           /* of a GPU: f32 products may round their factors to tf32 */
    enum device_fp8 fp8;            /* of a GPU, with weights of bf16 */
};

/* Open a device by name (device_open.c).  CKPT_ECONFIG for an unknown name, CKPT_EDEVICE when it
 * is asked for by name and cannot be used. */
int device_open(struct device **out, const struct device_opts *opts, struct ckpt_err *err);
/* Whether "auto" would be a GPU. */
bool device_gpu_usable(void);
void device_close(struct device *dev);
/* As ops->alloc, with the reason in err when it is NULL. */
void *device_alloc(struct device *dev, size_t bytes, struct ckpt_err *err);
/* Wait for everything; 0 or the sticky failure. */
int device_sync(struct device *dev, struct ckpt_err *err);

#endif
