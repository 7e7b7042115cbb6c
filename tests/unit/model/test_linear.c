/*
 * Projections and embeddings with LoRA and with dropout: every gradient against
 * finite differences of the forward operation, with the masks as they are; and the masks
 * themselves.
 */
#include "tests/unit/model_help.h"

#include <math.h>

#include "trainer/cpu/drop.h"
#include "trainer/rng.h"

enum { N = 21, IN = 13, OUT = 18, R = 3, V = 11, TOKENS = 2 };

/* Everything that an operation reads and writes; all floats lie in one block each. */
struct arrays {
    float x[N * IN], w[IN * OUT], b[OUT], a[R * IN], lb[OUT * R], m[OUT], res[N * OUT];
    float table[V * OUT], ea[R * V], tokens[TOKENS * OUT], norm_w[OUT], norm_b[OUT];
};

static struct device *dev;
static float work[1 << 16];

/* Rows of one sample. */
static const uint64_t *rows_of_one(void)
{
    static uint64_t rows[700];

    for (int i = 0; i < 700; i++)
        rows[i] = op_drop_row(5, i);
    return rows;
}

static void fill(void *to, size_t floats, const char *name)
{
    rng_normal(to, 0, (int64_t)floats, 0.7f, 5, rng_stream(name));
}

BEFORE_ALL()
{
    dev = cpu_device(3);
    dev->work = work;
    dev->work_bytes = sizeof work;
}

AFTER_ALL()
{
    device_close(dev);
}

/* sum of out * probe: a loss whose gradient of out is the probe. */
static double loss_of(const float *out, const float *probe, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)out[i] * (double)probe[i];
    return sum;
}

struct linear_case {
    const char *name;
    bool        in_out, magnitude, dx_add, bias, residual, in_place;
    int64_t     rank;
    float       drop, lora_drop;
    enum op_act act;            /* of what leaves; backward goes through x_act of the next */
};

static struct op_linear make(const struct linear_case *c, struct arrays *v, float *out)
{
    struct op_linear a = {
        .out = out,
        .x = v->x,
        .proj.w = v->w,
        .proj.b = c->bias ? v->b : NULL,
        .residual = c->residual ? v->res : NULL,
        .n = N,
        .n_in = IN,
        .n_out = OUT,
        .flags = c->in_out ? OP_LINEAR_IN_OUT : 0,
        .drop = {c->drop, 9, 77, rows_of_one()},
        .proj.lora = {.a = v->a,
                      .b = v->lb,
                      .magnitude = c->magnitude ? v->m : NULL,
                      .rank = c->rank,
                      .scale = 0.6f,
                      .drop = {c->lora_drop, 9, 78, rows_of_one()}},
    };

    if (!c->rank)
        a.proj.lora = (struct op_lora){0};
    if (c->in_place) {
        memcpy(out, v->res, sizeof v->res);
        a.residual = out;
    }
    return a;
}

static double linear_loss(const struct linear_case *c, struct arrays *v, const float *probe)
{
    static float out[N * OUT];
    struct op_linear a = make(c, v, out);

    dev->ops->linear_fwd(dev, &a);
    return loss_of(out, probe, N * OUT);
}

/* c is constant in DoRA's gradients: its magnitude is moved along with it. */
static void length_of(const struct linear_case *c, const struct arrays *v, double len[OUT])
{
    for (int o = 0; o < OUT; o++) {
        len[o] = 0;
        for (int i = 0; i < IN; i++) {
            double w = (double)(c->in_out ? v->w[i * OUT + o] : v->w[o * IN + i]);

            for (int k = 0; k < R; k++)
                w += (double)(0.6f * v->lb[o * R + k] * v->a[k * IN + i]);
            len[o] += w * w;
        }
        len[o] = sqrt(len[o]);
    }
}

static double moved(const struct linear_case *c, const struct arrays *v, size_t at, float by,
                    const float *probe)
{
    struct arrays u = *v;
    double was[OUT], is[OUT];

    ((float *)&u)[at] += by;
    if (c->magnitude) {
        length_of(c, v, was);
        length_of(c, &u, is);
        for (int o = 0; o < OUT; o++)
            u.m[o] *= (float)(is[o] / was[o]);
    }
    return linear_loss(c, &u, probe);
}

static void check(const struct linear_case *c, const struct arrays *v, const float *member,
                  size_t n, const float *grad, const float *probe, const char *what)
{
    size_t first = (size_t)(member - (const float *)v);
    float max = 0;

    for (size_t i = 0; i < n; i++)
        max = fmaxf(max, fabsf(grad[i]));
    for (size_t i = 0; i < n; i++) {
        double found = (moved(c, v, first + i, 1e-2f, probe) -
                        moved(c, v, first + i, -1e-2f, probe)) / 2e-2;

        if (!(fabs(found - (double)grad[i]) <= 2e-3 * (double)max + 1e-3))
            fail_msg("%s: gradient of %s[%zu] is %.7g, by differences %.7g", c->name, what, i,
                     (double)grad[i], found);
    }
}

TEST(gradients_of_projections_are_those_of_differences)
{
    static const struct linear_case cases[] = {
        {.name = "lora", .rank = R, .bias = true, .residual = true},
        {.name = "lora in-out", .rank = R, .in_out = true, .dx_add = true},
        {.name = "lora dropped", .rank = R, .lora_drop = 0.4f, .bias = true},
        {.name = "dora", .rank = R, .magnitude = true, .bias = true, .in_place = true},
        {.name = "dora in-out", .rank = R, .magnitude = true, .in_out = true, .residual = true},
        {.name = "dora dropped", .rank = R, .magnitude = true, .lora_drop = 0.4f, .dx_add = true},
        {.name = "dropped", .drop = 0.3f, .bias = true, .residual = true},
        {.name = "all", .rank = R, .magnitude = true, .lora_drop = 0.2f, .drop = 0.3f,
         .bias = true, .residual = true},
        {.name = "lora in place", .rank = R, .in_place = true, .bias = true},
    };
    static struct arrays v;
    static float probe[N * OUT], dx[N * IN], out[N * OUT];

    fill(&v, sizeof v / sizeof(float), "v");
    fill(probe, N * OUT, "probe");
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const struct linear_case *c = &cases[k];
        struct op_linear a = make(c, &v, out);
        float dw[IN * OUT] = {0}, db[OUT] = {0}, da[R * IN] = {0}, dlb[OUT * R] = {0};
        float dm[OUT] = {0};

        for (int i = 0; i < N * IN; i++)
            dx[i] = c->dx_add ? 1.5f : NAN;
        a.dout = probe;
        a.dx = dx;
        a.flags |= c->dx_add ? OP_LINEAR_DX_ADD : 0u;
        a.proj.dw = c->rank ? NULL : dw;
        a.proj.db = c->bias ? db : NULL;
        a.proj.lora.da = da;
        a.proj.lora.db = dlb;
        a.proj.lora.dmagnitude = c->magnitude ? dm : NULL;
        dev->ops->linear_bwd(dev, &a);
        assert_int_equal(dev->err.code, 0);
        for (int i = 0; i < N * IN && c->dx_add; i++)
            dx[i] -= 1.5f;
        check(c, &v, v.x, N * IN, dx, probe, "x");
        if (!c->rank)
            check(c, &v, v.w, IN * OUT, dw, probe, "w");
        if (c->bias)
            check(c, &v, v.b, OUT, db, probe, "b");
        if (c->rank) {
            check(c, &v, v.a, R * IN, da, probe, "A");
            check(c, &v, v.lb, OUT * R, dlb, probe, "B");
        }
        if (c->magnitude)
            check(c, &v, v.m, OUT, dm, probe, "magnitude");
    }
}

/* x = drop(act(x_pre)) is recomputed and differentiated through. */
TEST(dropped_activations_go_back_through_the_next_product)
{
    static float pre[N * IN], x[N * IN], dx[N * IN], dout[N * OUT], w[IN * OUT], out[N * OUT];
    struct op_linear up = {.n = N, .n_in = 1, .n_out = IN, .act = OP_ACT_GELU_TANH,
                           .drop = {0.25f, 3, 4, rows_of_one()}};
    struct op_linear down = {.x = x, .proj.w = w, .dx = dx, .dout = dout, .n = N, .n_in = IN,
                             .n_out = OUT, .x_act = OP_ACT_GELU_TANH, .x_pre = pre,
                             .x_drop = {0.25f, 3, 4, rows_of_one()}};
    float one[N], weights[IN], made[N * IN];

    for (int i = 0; i < N; i++)
        one[i] = (float)(i + 1) * 0.1f;
    fill(weights, IN, "weights");
    fill(w, IN * OUT, "w");
    fill(dout, N * OUT, "dout");
    up.x = one;
    up.proj.w = weights;
    up.out = made;
    up.pre = pre;
    dev->ops->linear_fwd(dev, &up);
    dev->ops->linear_bwd(dev, &down);
    assert_memory_equal(x, made, sizeof made);
    for (int i = 0; i < N * IN; i += 7) {
        double side[2];

        for (int s = 0; s < 2; s++) {
            float g[N * IN];
            struct op_linear f = {
                .out = out, .x = g, .proj.w = w, .n = N, .n_in = IN, .n_out = OUT};
            float was = pre[i];
            double h = (s ? 1e-2 : -1e-2);

            memcpy(g, made, sizeof g);
            pre[i] = was + (float)h;
            g[i] = made[i] == 0 ? 0 : 0.5f * pre[i] * (1 + tanhf(0.7978845608f *
                       (pre[i] + 0.044715f * pre[i] * pre[i] * pre[i]))) / 0.75f;
            pre[i] = was;
            dev->ops->linear_fwd(dev, &f);
            side[s] = loss_of(out, dout, N * OUT);
        }
        if (!(fabs((side[1] - side[0]) / 2e-2 - (double)dx[i]) <= 2e-3))
            fail_msg("dx[%d] is %g, by differences %g", i, (double)dx[i],
                     (side[1] - side[0]) / 2e-2);
    }
}

static const int32_t ids[N] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6};
static const int32_t token_ids[TOKENS] = {9, 2};

static struct op_embed embed_of(struct arrays *v, struct op_norm *norm, float *out, float *stats,
                                int which)
{
    *norm = (struct op_norm){.kind = OP_NORM_LAYER, .eps = 1e-5f, .w = v->norm_w, .b = v->norm_b};
    return (struct op_embed){
        .out = out, .stats = stats, .table = v->table, .ids = ids, .norm = which & 1 ? norm : NULL,
        .n = N, .dim = OUT, .vocab = V, .no_grad = -1, .drop = {which & 2 ? 0.3f : 0, 1, 2, rows_of_one()},
        .lora = {.a = v->ea, .b = v->lb, .rank = which & 4 ? R : 0, .scale = 0.5f},
        .tokens = which & 8 ? v->tokens : NULL, .token_ids = token_ids, .n_tokens = TOKENS,
    };
}

static double embed_loss(struct arrays *v, const float *probe, int which)
{
    static float out[N * OUT], stats[2 * N];
    struct op_norm norm;
    struct op_embed a = embed_of(v, &norm, out, stats, which);

    dev->ops->embed_fwd(dev, &a);
    return loss_of(out, probe, N * OUT);
}

static void embed_check(struct arrays *v, float *member, size_t n, const float *grad,
                        const float *probe, int which, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        float was = member[i];
        double up, down;

        member[i] = was + 1e-2f;
        up = embed_loss(v, probe, which);
        member[i] = was - 1e-2f;
        down = embed_loss(v, probe, which);
        member[i] = was;
        if (!(fabs((up - down) / 2e-2 - (double)grad[i]) <= 5e-3 * fabs((double)grad[i]) + 5e-3))
            fail_msg("case %d: gradient of %s[%zu] is %g, by differences %g", which, what, i,
                     (double)grad[i], (up - down) / 2e-2);
    }
}

TEST(gradients_of_embeddings_are_those_of_differences)
{
    static struct arrays v;
    static float probe[N * OUT], out[N * OUT], stats[2 * N], dout[N * OUT];

    fill(&v, sizeof v / sizeof(float), "embed");
    fill(probe, N * OUT, "probe");
    for (int which = 0; which < 16; which++) {
        float dtable[V * OUT] = {0}, da[R * V] = {0}, db[OUT * R] = {0}, dtok[TOKENS * OUT] = {0};
        float dnorm[2][OUT] = {{0}};
        struct op_norm norm;
        struct op_embed a = embed_of(&v, &norm, out, stats, which);

        norm.dw = dnorm[0];
        norm.db = dnorm[1];
        dev->ops->embed_fwd(dev, &a);
        memcpy(dout, probe, sizeof dout);
        a.dout = dout;
        a.dtable = which & 8 ? NULL : dtable;
        a.lora.da = da;
        a.lora.db = db;
        a.dtokens = dtok;
        dev->ops->embed_bwd(dev, &a);
        assert_int_equal(dev->err.code, 0);
        if (!(which & 8))
            embed_check(&v, v.table, V * OUT, dtable, probe, which, "table");
        if (which & 4) {
            embed_check(&v, v.ea, R * V, da, probe, which, "A");
            embed_check(&v, v.lb, OUT * R, db, probe, which, "B");
        }
        if (which & 8)
            embed_check(&v, v.tokens, TOKENS * OUT, dtok, probe, which, "tokens");
        if (which & 1)
            embed_check(&v, v.norm_w, OUT, dnorm[0], probe, which, "gain");
    }
}

/* How many stay, what they become, and that a mask is its arguments' alone. */
TEST(masks_drop_the_part_they_are_told)
{
    enum { ROWS = 700, WIDTH = 301 };
    static const float ps[] = {0, 0.1f, 0.5f, 0.9f, 1};
    float *in = malloc(ROWS * WIDTH * sizeof *in), *out = malloc(ROWS * WIDTH * sizeof *out);
    float part[WIDTH];

    for (int i = 0; i < ROWS * WIDTH; i++)
        in[i] = 2;
    for (size_t k = 0; k < sizeof ps / sizeof ps[0]; k++) {
        struct op_drop d = {ps[k], 12, 34, rows_of_one()}, other = d;
        double n = (double)ROWS * WIDTH, kept = 0, sum = 0, both = 0, q = 1 - (double)ps[k];

        other.stream++;
        cpu_drop_rows(out, WIDTH, in, WIDTH, &d, 0, ROWS, WIDTH);
        for (int i = 0; i < ROWS * WIDTH; i++) {
            kept += out[i] != 0;
            sum += (double)out[i];
            if (out[i] != 0)
                assert_true(fabs((double)out[i] - 2 / q) < 1e-5);
        }
        /* Four deviations of a binomial count. */
        assert_true(fabs(kept - n * q) <= 4 * sqrt(n * q * (1 - q)));
        assert_true(k == 4 ? sum == 0 : fabs(sum / n - 2) <= 8 * sqrt((1 - q) / q / n) + 1e-6);
        for (int r = 0; r < ROWS; r += 97) {            /* a row by itself is the same row */
            cpu_drop_rows(part, WIDTH, in, WIDTH, &d, r, r + 1, WIDTH);
            assert_memory_equal(part, out + r * WIDTH, sizeof part);
        }
        for (int r = 0; r < ROWS; r++) {                /* another stream is another mask */
            cpu_drop_rows(part, WIDTH, in, WIDTH, &other, r, r + 1, WIDTH);
            for (int j = 0; j < WIDTH; j++)
                both += part[j] != 0 && out[r * WIDTH + j] != 0;
        }
        assert_true(fabs(both - n * q * q) <= 4 * sqrt(n * q * q * (1 - q * q)) + 1e-9);
    }
    free(in);
    free(out);
}
