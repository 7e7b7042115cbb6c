/*
 * Operations whose work is cut in blocks for many threads: they give what one thread gives, and
 * the same bits each time; softmax by distance meets no number without a full mantissa.
 */
#include "tests/unit/model_help.h"

#include <math.h>

#include "trainer/cpu/cpu.h"
#include "trainer/rng.h"

enum { N = 203, IN = 150, OUT = 278, V = 1001, D = 16, MANY = 9 };

/* Arrays that are drawn anew for each run: inputs, then results. */
struct bench {
    struct device *dev;
    void          *work;
    float         *x, *w, *dout, *y, *dx, *dw, *db;
};

static float *draw(int64_t n, uint64_t name)
{
    float *p = malloc((size_t)n * sizeof *p);

    assert_non_null(p);
    rng_normal(p, 0, n, 0.5f, 7, name);
    return p;
}

static struct bench start(int threads)
{
    struct op_limits l = {.n = N, .n_rows = N, .max_doc = N, .dim = OUT, .n_head = 2, .n_kv = 1,
                          .head_dim = D, .ff = OUT, .vocab = V, .train = true};
    struct bench b = {.dev = cpu_device(threads)};

    b.dev->work_bytes = b.dev->ops->workspace(b.dev, &l);
    b.dev->work = b.work = malloc(b.dev->work_bytes);
    assert_non_null(b.work);
    b.x = draw(N * V, 1);
    b.w = draw(V * OUT, 2);
    b.dout = draw(N * OUT, 3);
    b.y = draw(N * OUT, 4);
    b.dx = draw(N * OUT, 5);
    b.dw = draw(V * OUT, 6);
    b.db = draw(OUT, 7);
    return b;
}

static void stop(struct bench *b)
{
    float *all[] = {b->x, b->w, b->dout, b->y, b->dx, b->dw, b->db};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(b->work);
    assert_int_equal(b->dev->err.code, 0);
    device_close(b->dev);
}

static void near_enough(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_true(fabsf(a[i] - b[i]) <= 2e-5f * (1 + fabsf(b[i])));
}

/* `run` with many threads twice, and with one. */
static void compare(void (*run)(struct bench *b, int how), int how)
{
    struct bench many = start(MANY), again = start(MANY), one = start(1);
    float *a[] = {many.x, many.y, many.dx, many.dw, many.db};
    float *same[] = {again.x, again.y, again.dx, again.dw, again.db};
    float *b[] = {one.x, one.y, one.dx, one.dw, one.db};
    int64_t n[] = {N * V, N * OUT, N * OUT, V * OUT, OUT};

    run(&many, how);
    run(&again, how);
    run(&one, how);
    for (size_t i = 0; i < 5; i++) {
        near_enough(a[i], b[i], n[i]);
        assert_memory_equal(a[i], same[i], (size_t)n[i] * sizeof(float));
    }
    stop(&many);
    stop(&again);
    stop(&one);
}

static void project(struct bench *b, int how)
{
    struct op_linear a = {.out = b->y,
                          .x = b->x,
                          .proj.w = b->w,
                          .n = N,
                          .n_in = IN,
                          .n_out = OUT,
                          .flags = how & 1 ? OP_LINEAR_IN_OUT : 0,
                          .residual = how & 2 ? b->dout : NULL};

    b->dev->ops->linear_fwd(b->dev, &a);
    a.dout = b->dout;
    a.dx = b->dx;
    a.proj.dw = b->dw;
    a.proj.db = b->db;
    a.flags |= how & 2 ? OP_LINEAR_DX_ADD : 0u;
    if (how & 2) {                      /* x is rebuilt, and read for dw after that */
        a.x_act = OP_ACT_SILU;
        a.x_pre = b->w;
    }
    b->dev->ops->linear_bwd(b->dev, &a);
}

TEST(projections)
{
    for (int how = 0; how < 4; how++)
        compare(project, how);
}

static void head(struct bench *b, int how)
{
    int32_t targets[N];
    float nll[N];
    struct op_head a = {.nll = nll, .dx = b->dx, .dw = how ? b->dw : NULL, .x = b->dout,
                        .w = b->w, .targets = targets, .n = N, .dim = OUT, .vocab = V,
                        .mul = 0.5f, .scale = 0.25f};

    for (int i = 0; i < N; i++)
        targets[i] = i * 4;
    b->dev->ops->head_loss(b->dev, &a);
    memcpy(b->y, nll, sizeof nll);
}

TEST(the_head)
{
    compare(head, 0);
    compare(head, 1);
}

/* One document, or two; a head with keys of its own, or two heads that share them. */
static void attend(struct bench *b, int how)
{
    static const float slopes[] = {0.5f, 0.0625f};
    const int32_t one[] = {0, N}, two[] = {0, 130, N};
    int64_t heads = 2, row = 3 * heads * D;
    float lse[2 * N];
    struct op_heads in = {.q = b->x, .k = b->x + heads * D, .v = b->x + 2 * heads * D,
                          .row_stride = row, .q_head = D, .kv_head = D};
    struct op_attention a = {.out = b->y, .lse = lse, .in = in, .dout = b->dout, .n = N,
                             .doc_start = how & 1 ? two : one, .n_docs = how & 1 ? 2 : 1,
                             .max_doc = how & 1 ? 130 : N, .n_head = heads,
                             .n_kv = how & 2 ? 1 : 2, .dim = D, .scale = 0.25f,
                             .slopes = how & 4 ? slopes : NULL, .window = how & 8 ? 70 : 0};

    b->dev->ops->attention_fwd(b->dev, &a);
    a.grad = in;
    a.grad.q = b->dw;
    a.grad.k = b->dw + heads * D;
    a.grad.v = b->dw + 2 * heads * D;
    b->dev->ops->attention_bwd(b->dev, &a);
}

TEST(attention)
{
    for (int how = 0; how < 16; how++)
        compare(attend, how);
}

#if defined(__x86_64__)
#define SEEN 0x2u                       /* of MXCSR: an operand without a full mantissa */

TEST(terms_by_distance_fade_to_nothing)
{
    struct bench b = start(1);
    unsigned was = _mm_getcsr();

    for (int64_t i = 0; i < N * OUT; i++)
        b.dout[i] *= 1e-4f;
    _mm_setcsr(was & ~0x3fu);
    attend(&b, 4);
    assert_int_equal(_mm_getcsr() & SEEN, 0);
    assert_int_equal(_mm_getcsr() & CPU_FLUSH, was & CPU_FLUSH);
    _mm_setcsr(was);
    stop(&b);
}
#endif

TEST(memory_is_cleared_and_copied_whole)
{
    enum { BYTES = 9 * 4096 * 5 + 77 };
    struct bench b = start(MANY);
    unsigned char *p = malloc(BYTES + 2), *q = malloc(BYTES + 2);

    assert_true(p && q);
    for (int i = 0; i < BYTES + 2; i++) {
        p[i] = (unsigned char)(i % 251 + 1);
        q[i] = 255;
    }
    b.dev->ops->copy(b.dev, q + 1, p + 1, BYTES);
    assert_memory_equal(q + 1, p + 1, BYTES);
    assert_true(q[0] == 255 && q[BYTES + 1] == 255);
    b.dev->ops->copy(b.dev, q + 1, q, BYTES);       /* they overlap */
    assert_memory_equal(q + 2, p + 1, BYTES - 1);
    b.dev->ops->zero(b.dev, p + 1, BYTES);
    for (int i = 1; i <= BYTES; i++)
        assert_int_equal(p[i], 0);
    assert_true(p[0] != 0 && p[BYTES + 1] != 0);
    free(p);
    free(q);
    stop(&b);
}
