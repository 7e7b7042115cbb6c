/*
 * ops - the row of operations: the law for cpu/ and cuda/.
 *
 * Abbreviations: op (operation).
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
 * workspace, whose size `workspace` gives before anything is allocated.
 */
#ifndef CKPT_TRAINER_OPS_OPS_H
#define CKPT_TRAINER_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/ops/device.h"
#include "trainer/ops/optimizer.h"

struct op_graph;

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
 * Dropout of an activation [n, width]: where row i is row t of sample s, element (i, j) stays if
 * word j % 4 of Philox(seed, s * 2^32 + stream, t * 2^32 + j / 4) is at least p * 2^32, and is then
 * divided by 1 - p; the others become 0.  A pure function of these numbers: backward and
 * recomputing make the same mask, on any number of threads, and so does any other batch that
 * holds the sample.  p 0: all stay.
 * Source: Srivastava et al. 2014; torch.nn.functional.dropout for the scale.
 */
struct op_drop {
    double          p;              /* in [0, 1] */
    uint64_t        seed;
    uint32_t        stream;         /* under OP_DROP_STREAMS */
    const uint64_t *rows;           /* [n], op_drop_row of each row; not read where p is 0 */
};

#define OP_DROP_STREAMS (1u << 20)

/* Row t of sample s (modulo 2^32). */
static inline uint64_t op_drop_row(int64_t s, int64_t t)
{
    return (uint64_t)s << 32 | (uint32_t)t;
}

/*
 * LoRA beside a frozen matrix W: W' = W + scale * B A.  With a magnitude
 * (DoRA) W' = m * (W + scale * B A) / c, by rows, where c is the length of each row, which counts
 * as a constant in gradients.  drop is of LoRA's input alone: with xd = drop(x)
 *   p = W x + scale * B A xd,  DoRA:  p = W (x - xd) + (m / c) * (W + scale * B A) xd.
 * Source: Hu et al. 2021; Liu et al. 2024 (DoRA); peft 0.21 tuners/lora/{layer,dora}.py.
 */
struct op_lora {
    const void    *a, *b;           /* weights [r, n_in], [n_out, r]; of an embedding
                                       [r, V], [D, r] */
    void          *da, *db;         /* bwd: gradients; NULL both: frozen */
    void          *t;               /* activation [n, r rounded up to 8]: fwd leaves scale * A xd
                                       there for bwd, where the device has a use for it; of
                                       projections done at once the first's holds all;
                                       NULL: not kept */
    const void    *magnitude;       /* weight [n_out], or NULL */
    void          *dmagnitude;      /* bwd: gradient; NULL: frozen */
    int64_t        rank;            /* r; 0: no LoRA */
    float          scale;
    struct op_drop drop;
};

/*
 * Noise of an embedded row: column j gets size * (2 u - 1), u the high 24 bits of word j % 4 of
 * Philox(key, index, j / 4), times 2^-24.  Source: Jain et al. 2023 (NEFTune).
 */
struct op_noise_row {
    uint64_t key;                   /* of its document */
    uint32_t index;                 /* of the row in its document */
    float    size;
};

/*
 * embed: e = table[ids] (row gather), with tables of positions and of token types
 * e = table[ids] + pos[positions] + token_type[token_type_ids];  out = norm(e), or e (norm NULL).
 * (Token types, and a norm with positions, are forward only and without what follows.)
 * Ids among token_ids take their rows from tokens.  LoRA adds scale * (B A)^T's row to e; noise is
 * added too.
 * What leaves is dropped out.  Backward gathers e again: it is not kept.
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
    const struct op_noise_row *noise;   /* [N]; NULL: none */
    bool                  gather;   /* the table is an activation: rows are only gathered */
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

/* One matrix of a layer, and what is trained of it. */
struct op_projection {
    const void *w;                  /* weight [n_out, n_in] (torch.nn.Linear) */
    const void *b;                  /* weight [n_out]; NULL: none */
    void       *dw, *db;            /* bwd: gradients, as w and b; NULL: frozen */
    struct op_lora lora;
};

enum op_linear_flags {
    OP_LINEAR_IN_OUT = 1 << 0,      /* w and dw are stored [n_in, n_out] */
    OP_LINEAR_SAME_X = 1 << 1,      /* the last linear_fwd, or linear_bwd, read this x, which has
                                       not changed: a device may use its rounded x again */
    OP_LINEAR_X_KEPT = 1 << 2,      /* bwd: x was kept: a device need not recompute it */
    OP_LINEAR_DX_ADD = 1 << 3,      /* bwd: dx is added to, without x_act */
    OP_LINEAR_OVERWRITE = 1 << 4    /* bwd: dw and db (not LoRA's) are written instead of added
                                       to, also of 0 rows */
};

/*
 * linear, forward:  p = x W^T + b;  pre = p (when asked for);  out = drop(act(p)) + residual.
 * (act and residual are not used together.)  With LoRA W is W' as said there.
 *
 * Backward, with x = x_act(x_pre) when x_act is not NONE:
 *   dW += dout^T x;  db += column sums of dout;  dx = dout W,
 *   or, with x_act:  dx = (dout W) * x_act'(x_pre), the gradient of x_pre, and x, which need
 *   not be kept between the passes, is recomputed from x_pre; with x_drop both are dropped
 *   out.  With drop dout is dropped out first.
 *   With RELU x may be x_pre, both drop(max(0, p)): then it stays as it is.
 */
struct op_linear {
    struct op_projection proj;
    void       *out;                /* fwd: activation [n, n_out] */
    void       *pre;                /* fwd: activation [n, n_out] or NULL */
    void       *x;                  /* activation [n, n_in]; fwd reads, bwd see above */
    void       *dx;                 /* bwd: activation [n, n_in]; NULL: not wanted */
    const void *residual;           /* fwd: activation [n, n_out], may be out (but with drop);
                                       NULL: none */
    const void *dout;               /* bwd: activation [n, n_out] */
    const void *x_pre;              /* bwd: activation [n, n_in], with x_act */
    enum op_act act, x_act;
    unsigned    flags;              /* enum op_linear_flags */
    int64_t     n, n_in, n_out;
    int64_t     out_ld;             /* elements from row to row of out and dout; 0: n_out.  Not
                                       with pre, residual, act or drop */
    struct op_drop drop, x_drop;
};

static inline bool op_linear_in_out(const struct op_linear *a)
{
    return (a->flags & OP_LINEAR_IN_OUT) != 0;
}
/* Of the matrix as it is stored. */
static inline int64_t op_linear_rows(const struct op_linear *a)
{
    return op_linear_in_out(a) ? a->n_in : a->n_out;
}
static inline int64_t op_linear_cols(const struct op_linear *a)
{
    return op_linear_in_out(a) ? a->n_out : a->n_in;
}

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
 * rope: queries and keys rotated by their positions, normalised by heads first where norms are.
 *   y[j]         = x[j] c - x[j + R/2] s
 *   y[j + R/2]   = x[j + R/2] c + x[j] s        c, s = table[position][j], j < R/2
 * Elements from R on pass.  With norms x = RMS(in) * w over the d elements of each head, in and
 * out are different memory and v is copied; without, out is `in`.
 * Backward rotates the gradients in place, from those of out to those of in.
 * Source: Su et al. 2021; transformers 5.17, rotate_half of modeling_llama.py.
 */
struct op_rope {
    struct op_heads in, out;        /* bwd reads in, with norms */
    struct op_heads grad;           /* bwd: in place; row_stride as in `in` */
    float          *stats;          /* fwd writes, bwd reads: [N, H + K] 1/rms; NULL: no norms */
    const float    *table;          /* [P, 2, R/2]: cosines, then sines; NULL: not rotated */
    const int32_t  *positions;      /* [N], each in [0, P) */
    const void     *q_norm, *k_norm;/* weight [d] each, or NULL both */
    void           *dq_norm, *dk_norm;      /* bwd: gradients [d]; NULL: frozen */
    int64_t         n, n_head, n_kv, dim, rotary_dim;   /* H, K, d, R */
    float           eps;
};

/*
 * gate: out[i, j] = drop(act(u[i, j]) * u[i, F + j]).
 * Backward: du from dout, which drop changes; with recompute out, which need not be kept, too.
 */
struct op_gate {
    void       *out;                /* fwd, bwd with recompute: activation [n, F] */
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
 *   p = softmax(x Wr^T) over all E, in f32;  the top k are chosen (of equal ones the first)
 *   w = p of those, divided by their sum with renorm
 *   out = residual + sum over the top k, by rising e, of w_e Wdown_e (act(Wgate_e x) * Wup_e x)
 * Matrices of expert e lie e * stride elements after those of expert 0.
 * Backward: dx; with them the gradients of p's path through w.  u and top_k_index are kept.
 * For a loss that keeps experts evenly used: forward adds to used[e] how many rows chose e, and
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
 * Padding: of document d only the rows [real_start[d], real_end[d]) are keys.  A row that sees none
 * of them, as padding before the text, sees all rows of its document, the later ones too, each with
 * the same probability: transformers' eager attention, where every masked score is the least
 * number of its type.  Rows and columns of drop count from real_start[d] on, of rows before it from
 * the document's first.
 *
 * lse[h, i] = log sum_j exp s[i,j] is kept so that backward rebuilds P without a new softmax:
 *   D[i] = dout[i].out[i];  dS = P * (dout v^T - D);  dq = scale dS k;  dk = scale dS^T q;
 *   dv = P^T dout;  dtable[bucket, h] += sum of dS there.
 * With K < H gradients of k, v are summed over the heads that share them.
 * drop is of P: head h is an activation [N, max_doc] of its own, whose stream is stream + h *
 * OP_DROP_STREAMS, modulo 2^32; columns count from the document's first key, and the rows of a
 * document are rows 0, 1, ... of one sample.
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
    const int32_t  *real_start, *real_end;  /* [n_docs] each, or NULL both: no padding; without
                                               window, whole, table, and keys of other rows */
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
 * attention of new rows against a cache (generation).  With rope the new rows are rotated first, as
 * rope_fwd does; `in` is its out, which need not be written, nor its statistics.  Segment g is rows
 * [seg_start[g], seg_start[g + 1]) of the new rows: they continue a sequence whose rows of the
 * cache begin at seg_first[g], and of which seg_past[g] keys are in the cache.  First k and v of
 * the new rows are put into the cache after those, then each new row attends as above to its
 * sequence up to itself.  Cache layout: [K][capacity][d], one array for keys and one for values:
 * sequences of any length lie one after another among the `capacity` rows.
 */
struct op_cached {
    void           *out;            /* activation [n, H * d] */
    void           *k_cache, *v_cache;
    struct op_heads in;             /* q, k, v of the new rows */
    const struct op_rope *rope;     /* NULL: they are used as they are */
    const int32_t  *seg_start;      /* [n_seg + 1]; no segment is empty */
    const int32_t  *seg_first, *seg_past;   /* [n_seg] */
    const float    *slopes;
    struct op_rel_bias rel_bias;
    int64_t         n, n_seg, capacity;
    int64_t         max_keys;       /* the largest past + new of a segment, at most */
    int64_t         n_head, n_kv, dim, window;
    float           scale;
};

/*
 * head and cross-entropy over the rows that carry a loss; logits [n, V] never exist all at once.
 *   z = mul * x W^T;  nll[i] = logsumexp(z[i]) - z[i, target[i]]
 * With smoothing e in place of z[i, target[i]]: (1 - e) z[i, target[i]] + e * mean_j z[i, j]; with
 * z_loss c plus c * logsumexp(z[i])^2.
 * With dx not NULL also the gradients of scale * sum_i nll[i]:
 *   dz = scale * (softmax(z) * (1 + 2 c logsumexp(z[i])) - (1 - e) onehot - e / V)
 *   dx = mul dz W;  dW += mul dz^T x.
 * With fresh dW is written instead of added to, also of 0 rows.
 * Source: Szegedy et al. 2016; Chowdhery et al. 2022 (PaLM), section 5; transformers 5.23,
 * trainer_pt_utils.py, LabelSmoother.
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
    float          smoothing, z_loss;       /* e in [0, 1); c; 0: none */
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

/*
 * head_forbid: logits [n, V] of n_ids ids become -infinity in the rows whose bits are set; the rest
 * stays.  The struct is passed to the device whole.
 */
enum { OP_FORBID_IDS = 16, OP_FORBID_ROWS = 4096 };

struct op_forbid {
    float   *logits;                /* [n, V] */
    int64_t  n, vocab, n_ids;       /* n <= OP_FORBID_ROWS */
    int32_t  id[OP_FORBID_IDS];     /* [n_ids] in [0, V) */
    uint32_t rows[OP_FORBID_ROWS / 32];     /* row i: bit i % 32 of rows[i / 32] */
};

/* The largest sizes that will be asked of a device: what its workspace depends on. */
struct op_limits {
    int64_t n, n_rows, max_doc;     /* N, rows with a loss, rows of the longest document */
    int64_t max_keys;               /* generation: keys of the longest sequence */
    int64_t dim, n_head, n_kv, head_dim, ff, vocab;
    int64_t n_expert, top_k, expert_ff;     /* 0: no experts */
    int64_t embed;                  /* width of the embedding, where it is another than D */
    int64_t lora_rank;              /* the largest; 0: no LoRA */
    bool    lora_drop, lora_magnitude;
    bool    noise;                  /* of embedded rows */
    bool    drop;                   /* of hidden activations */
    bool    padding;                /* documents may have some */
    bool    train;
    int64_t top_rows;               /* of head_top; 0: it is not asked for */
};

/*
 * Streams: the work of one runs in order, and concurrently with that of the others.  Operations,
 * and copies by to_device, to_host and copy, go to OP_STREAM_MAIN; OP_STREAM_IN copies from pinned
 * host memory to the device, OP_STREAM_OUT back; collectives among ranks run on OP_STREAM_COMM,
 * which comes first where both are ready.  An event marks the work queued on a stream so
 * far; one that was never recorded counts as done.
 */
enum op_stream { OP_STREAM_MAIN, OP_STREAM_IN, OP_STREAM_OUT, OP_STREAM_COMM, OP_N_STREAMS };
enum { OP_N_EVENTS = 2048 };

/*
 * What a device can do, read while a model or a generation session is planned.  Every backend fills
 * every entry of its row but those of a capability it lacks.
 */
enum op_capability {
    OP_CAN_FUSE = 1 << 0,           /* linears_*, gated_fwd, normed_fwd: faster than their parts */
    OP_CAN_GRAPH = 1 << 1           /* graph_* */
};

struct ops {
    const char *name;               /* "cpu", "cuda" */
    unsigned    can;                /* enum op_capability */

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

    /* dst[n] of type `to` <- src[n] of type `from`: f32, bf16, f16; to nearest, ties to even; on
     * that stream. */
    void (*cast)(struct device *dev, enum op_stream stream, void *dst, enum ckpt_dtype to,
                 const void *src, enum ckpt_dtype from, int64_t n);

    /* -- optimizer ------------------------------------------------------------------------- */
    /* All runs are stepped in place.  They do not overlap; any may have n 0.
     * Source: torch/optim/adamw.py, _single_tensor_adamw (2.x); of 8BIT bitsandbytes 0.50.2,
     * csrc/kernels.cu, kOptimizerStatic8bit2StateBlockwise. */
    void (*adamw)(struct device *dev, const struct adamw_run *run, int64_t n_run,
                  const struct adamw *a);
    /* A part of a step of Adafactor over n parameters, whose numbers are a->adafactor. */
    void (*factored)(struct device *dev, enum op_factored_part part, const struct op_factored *f,
                     int64_t n, const struct adamw *a);
    /* A part of a step of Muon of one matrix, with numbers a->muon.  Within a pass's workspace. */
    void (*muon)(struct device *dev, enum op_muon_part part, const struct op_matrix *m,
                 const struct adamw *a);
    /* *sum <- sum of grad[i]^2 in f64, fixed order; 0 without any. */
    void (*sum_squares)(struct device *dev, double *sum, const float *grad, int64_t n);
    /* *verdict of a gradient, times scale, whose squares have that sum (verdict.h). */
    void (*judge)(struct device *dev, struct op_verdict *verdict, const double *sum,
                  double max_norm, double scale);
    /* dst[n] += src[n], on that stream. */
    void (*add)(struct device *dev, enum op_stream stream, float *dst, const float *src,
                int64_t n);

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
    /* OP_CAN_FUSE: n projections with LoRA, of one x and back into one dx, as one after another
     * (the first says whether dx is added to). */
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
    void (*head_forbid)(struct device *dev, const struct op_forbid *a);

    /* OP_CAN_FUSE: a projection forward whose output is the gate's u, and the gate, without
     * dropout: u need not be written. */
    void (*gated_fwd)(struct device *dev, const struct op_linear *a, const struct op_gate *gate);
    /* OP_CAN_FUSE: a norm whose out is the projection's x, then the projection, with a gate (NULL:
     * without) as gated_fwd: neither x nor the norm's statistics need be written. */
    void (*normed_fwd)(struct device *dev, const struct op_rownorm *norm,
                       const struct op_linear *a, const struct op_gate *gate);

    /* -- graphs: OP_CAN_GRAPH --------------------------------------------------------------- */
    /*
     * Operations between graph_begin and graph_end are captured instead of run; each graph_launch
     * runs them all, with the captured arguments and the memory's contents at that time.  They
     * must have run before with the same sizes, must neither wait nor copy to or from the host,
     * nor write weights, which a device may prefetch.  graph_begin returns false when capturing
     * cannot start, graph_end NULL when an operation could not be captured: the state is then as
     * if graph_begin had not been called.
     */
    bool (*graph_begin)(struct device *dev);
    struct op_graph *(*graph_end)(struct device *dev);
    void (*graph_launch)(struct device *dev, struct op_graph *r);
    void (*graph_free)(struct device *dev, struct op_graph *r);    /* NULL: nothing */
};

#endif
