/* AdamW, sums of squares, casts, dropout and jitter on a GPU against the CPU. */
#include "tests/gpu/gpu.h"

/* One step's arithmetic in f32: contracted differently on each side, so a few units in the last
 * place, relative to values of one size. */
#define F32_BOUND 2e-6

/* The weights written beside the parameters are those, rounded, and nothing around them. */
static void check_rounded(struct gpu *g, const struct both *param, int64_t at,
                          const struct both *rounded, int64_t to, int64_t n)
{
    size_t size = ckpt_dtype_size(rounded->type);
    struct both blank = gpu_blank(g, rounded->type, rounded->n);
    unsigned char *want = gpu_bytes(g, &blank), *got = gpu_bytes(g, rounded);
    float *p = gpu_fetch(g, param);

    ckpt_convert(want + (size_t)to * size, rounded->type, p + at, CKPT_F32, (size_t)n);
    assert_memory_equal(got, want, (size_t)rounded->n * size);
    free(want);
    free(got);
    free(p);
}

/* Arrays of n that begin at those offsets of larger ones; to: that of the rounded, -1: none. */
static void check_adamw(struct gpu *g, int64_t n, const int at[4], int to)
{
    struct both a[4], rounded = gpu_blank(g, g->type, n + 8);
    struct device *dev[2] = {g->cpu, g->gpu};
    size_t size = ckpt_dtype_size(g->type);

    for (int i = 0; i < 4; i++)
        a[i] = gpu_random(g, CKPT_F32, n + 8, i == 0 ? 1.0f : i == 2 ? 0.0f : 0.1f);
    for (int step = 1; step <= 3; step++)
        for (int s = 0; s < 2; s++) {
            struct adamw o = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8,
                              .grad_scale = 0.7, .step = step};
            float *p[4];

            for (int i = 0; i < 4; i++)
                p[i] = (float *)(s ? a[i].gpu : a[i].cpu) + at[i];
            struct adamw_run run = {.param = p[0], .exp_avg = p[1], .exp_avg_sq = p[2],
                                    .grad = p[3], .n = n, .weight_decay = 0.1};

            if (s && to >= 0)
                run.rounded = (char *)rounded.gpu + (size_t)to * size;
            dev[s]->ops->adamw(dev[s], &run, 1, &o);
        }
    gpu_close_to(g, "param", &a[0], F32_BOUND);
    gpu_close_to(g, "exp_avg", &a[1], F32_BOUND);
    gpu_close_to(g, "exp_avg_sq", &a[2], F32_BOUND);
    check_rounded(g, &a[0], at[0], &rounded, to < 0 ? 0 : to, to < 0 ? 0 : n);
    gpu_release(g);
}

static void adamw_sizes(struct gpu *g)
{
    static const int64_t sizes[] = {1, 3, 4, 5, 1000, 1023, 100003};

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int skew = 0; skew < 6 && !gpu_left_out(sizes[k]); skew++) {
            /* 4, 5: the arrays lie differently */
            int lead = skew & 3;
            int at[4] = {lead, lead, skew == 4 ? 1 : lead, skew == 5 ? 2 : lead};

            check_adamw(g, sizes[k], at, skew == 5 ? -1 : skew == 3 ? 2 : lead);
        }
}

TEST(adamw) { gpu_over_types(0, NULL, adamw_sizes); }

/* SGD and Lion, with moments of float32. */
static void rules_once(struct gpu *g)
{
    static const struct { struct adamw a; bool moment; } rules[] = {
        {{.rule = OP_RULE_SGD}, false},
        {{.rule = OP_RULE_SGD, .momentum = 0.9, .dampening = 0.25}, true},
        {{.rule = OP_RULE_SGD, .momentum = 0.9, .nesterov = true}, true},
        {{.rule = OP_RULE_LION, .beta1 = 0.9, .beta2 = 0.99}, true},
    };
    static const int64_t sizes[] = {1, 1023, 100003};
    struct device *dev[2] = {g->cpu, g->gpu};

    for (size_t k = 0; k < 4 * sizeof sizes / sizeof sizes[0]; k++) {
        int64_t n = sizes[k / 4];
        struct both p = gpu_random(g, CKPT_F32, n, 1), m = gpu_random(g, CKPT_F32, n, 0);
        struct both x = gpu_random(g, CKPT_F32, n, 0.1f), rounded = gpu_blank(g, g->type, n + 8);
        struct adamw a = rules[k % 4].a;
        double lr = 1e-2;

        if (gpu_left_out(n))
            continue;
        a.lr = k % 2 ? 9 : lr;
        a.grad_scale = 0.7;
        for (a.step = 1; a.step <= 3; a.step++)
            for (int s = 0; s < 2; s++) {
                struct adamw_run run = {.param = s ? p.gpu : p.cpu, .grad = s ? x.gpu : x.cpu,
                                        .n = n, .weight_decay = 0.1, .lr = k % 2 ? &lr : NULL};

                if (rules[k % 4].moment)
                    run.exp_avg = s ? m.gpu : m.cpu;
                if (s)
                    run.rounded = rounded.gpu;
                dev[s]->ops->adamw(dev[s], &run, 1, &a);
            }
        gpu_close_to(g, "param", &p, F32_BOUND);
        gpu_close_to(g, "moment", &m, F32_BOUND);
        check_rounded(g, &p, 0, &rounded, 0, n);
        gpu_release(g);
    }
}

TEST(rules) { gpu_over_types(0, NULL, rules_once); }

TEST(sum_squares)
{
    static const int64_t sizes[] = {0, 1, 5, 1000, 4194304 + 3};
    struct gpu g;

    gpu_open(&g, CKPT_F32, NULL);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int at = 0; at < 4 && !gpu_left_out(sizes[k]); at++) {
            struct both x = gpu_random(&g, CKPT_F32, sizes[k] + 4, 3);
            struct both to = gpu_random(&g, CKPT_F32, 4, 3);
            double want = -1, got = -1, again = -1, *sum = (double *)to.gpu;

            g.cpu->ops->sum_squares(g.cpu, &want, (float *)x.cpu + at, sizes[k]);
            for (int i = 0; i < 2; i++)
                g.gpu->ops->sum_squares(g.gpu, sum + i, (float *)x.gpu + at, sizes[k]);
            g.gpu->ops->to_host(g.gpu, &got, sum, sizeof got);
            g.gpu->ops->to_host(g.gpu, &again, sum + 1, sizeof again);
            gpu_fine(&g);
            /* both sum in f64: what differs is their order */
            if (!(fabs(got - want) <= 1e-12 * want))
                fail_msg("sum of %lld squares: GPU %.17g, CPU %.17g", (long long)sizes[k], got,
                         want);
            assert_memory_equal(&got, &again, sizeof got);
            gpu_release(&g);
        }
    gpu_close(&g);
}

/* On each stream, whatever the alignment: the same bits as the CPU's. */
TEST(add)
{
    static const int64_t sizes[] = {0, 1, 5, 1000, 4194304 + 3};
    struct gpu g;

    gpu_open(&g, CKPT_F32, NULL);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int at = 0; at < 8 && !gpu_left_out(sizes[k]); at++) {
            struct both x = gpu_random(&g, CKPT_F32, sizes[k] + 4, 3);
            struct both y = gpu_random(&g, CKPT_F32, sizes[k] + 4, 4);
            int skew = at < 4 ? at : 0;
            float *got = malloc((size_t)(sizes[k] + 4) * sizeof *got);

            assert_non_null(got);
            g.cpu->ops->add(g.cpu, OP_STREAM_MAIN, (float *)x.cpu + skew, (float *)y.cpu + at % 4,
                            sizes[k]);
            gpu_fine(&g);
            g.gpu->ops->add(g.gpu, at % 2 ? OP_STREAM_COMM : OP_STREAM_MAIN,
                            (float *)x.gpu + skew, (float *)y.gpu + at % 4, sizes[k]);
            gpu_fine(&g);
            g.gpu->ops->to_host(g.gpu, got, x.gpu, (size_t)(sizes[k] + 4) * sizeof *got);
            assert_memory_equal(got, x.cpu, (size_t)(sizes[k] + 4) * sizeof *got);
            free(got);
            gpu_release(&g);
        }
    gpu_close(&g);
}

/* Every pair of types, aligned and not, against ckpt_convert: bit for bit. */
TEST(cast)
{
    static const int64_t sizes[] = {1, 7, 8, 9, 100003};
    struct gpu g;

    gpu_open(&g, CKPT_F32, NULL);
    for (int i = 0; i < 9; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            for (int at = 0; at < 2 && !gpu_left_out(sizes[k]); at++) {
                enum ckpt_dtype from = gpu_types[i / 3], to = gpu_types[i % 3];
                int64_t n = sizes[k];
                size_t in = ckpt_dtype_size(from), out = ckpt_dtype_size(to);
                struct both x = gpu_random(&g, from, n + 1, 100), y = gpu_blank(&g, to, n + 1);
                unsigned char *src = gpu_bytes(&g, &x), *want = malloc((size_t)n * out);
                unsigned char *got;

                ckpt_convert(want, to, src + (size_t)at * in, from, (size_t)n);
                g.gpu->ops->cast(g.gpu, OP_STREAM_MAIN, (char *)y.gpu + (size_t)at * out, to,
                                 (char *)x.gpu + (size_t)at * in, from, n);
                got = gpu_bytes(&g, &y);
                assert_memory_equal(got + (size_t)at * out, want, (size_t)n * out);
                free(src);
                free(want);
                free(got);
                gpu_release(&g);
            }
    gpu_close(&g);
}

/* Ends of the ranges: ties, overflow, subnormal numbers, infinity. */
TEST(cast_edges)
{
    static const float edge[] = {0.0f, -0.0f, 1.00390625f, 1.01171875f, 65504, 65519, 65520, 1e30f,
                                 6e-8f, 2.9e-8f, 1e-40f, -1e-40f, INFINITY, -INFINITY, 3.4e38f, 1};
    struct gpu g;

    gpu_open(&g, CKPT_F32, NULL);
    for (int i = 0; i < 3; i++) {
        int64_t n = sizeof edge / sizeof edge[0];
        struct both x = gpu_values(&g, CKPT_F32, edge, n), y = gpu_blank(&g, gpu_types[i], n);
        unsigned char want[sizeof edge], *got;

        ckpt_convert(want, gpu_types[i], edge, CKPT_F32, (size_t)n);
        g.gpu->ops->cast(g.gpu, OP_STREAM_MAIN, y.gpu, gpu_types[i], x.gpu, CKPT_F32, n);
        got = gpu_bytes(&g, &y);
        assert_memory_equal(got, want, (size_t)n * ckpt_dtype_size(gpu_types[i]));
        free(got);
    }
    gpu_close(&g);
}

/* Masks are the same words on both sides, so that each value is off by one rounding at most. */
static void masks(struct gpu *g)
{
    static const int64_t shape[][2] = {{1, 1}, {3, 7}, {5, 64}, {33, 1022}, {700, 1024}, {0, 8}};
    static const float ps[] = {0, 0.1f, 0.5f, 1};
    struct device *dev[2] = {g->cpu, g->gpu};

    for (size_t k = 0; k < sizeof shape / sizeof shape[0]; k++)
        for (int i = 0; i < 8; i++) {
            int64_t n = shape[k][0], width = shape[k][1];
            struct op_drop d = {ps[i % 4], 1234567890123456789u, 77, NULL};
            struct both x, rows;

            if (gpu_left_out(n * width))
                continue;
            x = gpu_random(g, g->type, n * width, 2);
            rows = gpu_drop_rows(g, n);
            for (int s = 0; s < 2; s++) {
                d.rows = s ? rows.gpu : rows.cpu;
                (i < 4 ? dev[s]->ops->drop : dev[s]->ops->jitter)(dev[s], s ? x.gpu : x.cpu, n,
                                                                  width, &d);
            }
            gpu_close_to(g, i < 4 ? "drop" : "jitter", &x, gpu_bound(g->type));
            gpu_release(g);
        }
}

TEST(masks) { gpu_over_types(0, NULL, masks); }
