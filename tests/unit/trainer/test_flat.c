/* flat: every element of every parameter is owned exactly once, and survives the round trip. */
#include "tests/unit/unit.h"

#include "trainer/shard/flat.h"

/* Units 0..2 of sizes that divide by no world. */
static const struct { int layer; int64_t numel; } shapes[] = {
    {0, 31 * 7}, {0, 5}, {1, 1}, {1, 23}, {1, 64}, {2, 2}, {2, 97},
};
#define N (sizeof shapes / sizeof shapes[0])

/* Every parameter but those of the mask is trained. */
static struct params *make_params(unsigned frozen)
{
    static struct param item[N];
    static int64_t layer_numel[3], layer_grad[3];
    static struct params p;

    memset(layer_numel, 0, sizeof layer_numel);
    memset(layer_grad, 0, sizeof layer_grad);
    p = (struct params){.item = item, .n = N, .n_layers = 3, .layer_numel = layer_numel,
                        .layer_grad = layer_grad};
    for (size_t i = 0; i < N; i++) {
        int layer = shapes[i].layer;
        bool trained = !(frozen >> i & 1);

        item[i] = (struct param){.name = "p", .layer = layer, .numel = shapes[i].numel,
                                 .offset = layer_numel[layer], .trainable = trained,
                                 .grad_offset = trained ? layer_grad[layer] : -1};
        layer_numel[layer] += shapes[i].numel;
        p.numel += shapes[i].numel;
        if (trained) {
            layer_grad[layer] += shapes[i].numel;
            p.grad_numel += shapes[i].numel;
        }
    }
    return &p;
}

static const int worlds[] = {1, 2, 3, 8};

TEST(stage_3_owns_each_element_once)
{
    const struct params *p = make_params(0);

    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < N; i++) {
            int64_t next = 0;

            for (int r = 0; r < worlds[k]; r++) {
                struct ckpt_err err = {0};
                struct flat f;
                struct flat_piece piece;

                assert_int_equal(flat_init(&f, p, 3, r, worlds[k], &err), 0);
                piece = flat_piece(&f, i, r);
                if (piece.count > 0) {
                    assert_int_equal(piece.start, next);
                    assert_int_equal(piece.at, f.base[i]);
                    next += piece.count;
                }
                assert_true(piece.count <= flat_part(&f, i));
                flat_release(&f);
            }
            assert_int_equal(next, p->item[i].numel);
        }
}

TEST(spread_then_assemble_gives_the_same_unit)
{
    const struct params *p = make_params(0);

    for (size_t k = 0; k < 4; k++)
        for (int layer = 0; layer < 3; layer++) {
            struct ckpt_err err = {0};
            struct flat f;
            size_t n = (size_t)p->layer_numel[layer], parts_n;
            float *whole = malloc(n * sizeof *whole), *again = calloc(n, sizeof *again), *parts;
            double padding = 0;

            assert_int_equal(flat_init(&f, p, 3, 0, worlds[k], &err), 0);
            parts_n = (size_t)flat_layer_part(&f, layer) * (size_t)worlds[k];
            parts = malloc(parts_n * sizeof *parts);
            memset(parts, 0xff, parts_n * sizeof *parts);
            for (size_t i = 0; i < n; i++)
                whole[i] = (float)(i + 1);
            flat_scatter(&f, layer, parts, whole);
            for (size_t i = 0; i < parts_n; i++)
                padding += (double)parts[i];
            assert_true(padding == (double)n * (double)(n + 1) / 2);    /* the rest is zero */
            flat_assemble(&f, layer, again, parts, sizeof *again);
            assert_memory_equal(whole, again, n * sizeof *whole);
            flat_release(&f);
            free(whole);
            free(again);
            free(parts);
        }
}

TEST(stage_0_holds_units_whole)
{
    const struct params *p = make_params(0);
    struct ckpt_err err = {0};
    struct flat f;

    assert_int_equal(flat_init(&f, p, 0, 1, 3, &err), 0);
    assert_int_equal(f.numel, p->numel);
    for (size_t i = 0; i < N; i++)      /* a layer's layout is the arrays' own */
        assert_int_equal(f.base[i], flat_layer_base(&f, p->item[i].layer) + p->item[i].offset);
    flat_release(&f);
}

/* Gradients of what is frozen are nowhere, those of the rest arrive in their order. */
TEST(frozen_parameters_have_no_gradient)
{
    const struct params *p = make_params(1u << 0 | 1u << 3 | 1u << 5 | 1u << 6);

    for (size_t k = 0; k < 4; k++)
        for (int stage = 0; stage <= 3; stage += 3) {
            float whole[1][96], parts[96 * 8 + 64];
            struct ckpt_err err = {0};
            int64_t held = 0;

            for (int r = 0; r < worlds[k]; r++) {
                struct flat f;

                assert_int_equal(flat_init(&f, p, stage, r, worlds[k], &err), 0);
                for (size_t i = 0; i < N; i++) {
                    struct flat_piece piece = flat_grad_piece(&f, i, r);

                    held += piece.count;
                    if (!p->item[i].trainable)
                        assert_int_equal(piece.count, 0);
                    else if (piece.count > 0)
                        assert_in_range(piece.at + piece.count, 1, f.grad_numel);
                }
                assert_int_equal(flat_grad_part(&f, 2), 0);
                assert_int_equal(flat_grad_base(&f, 1), f.grad_base[2]);
                flat_release(&f);
            }
            assert_int_equal(held, (5 + 1 + 64) * (stage == 0 ? worlds[k] : 1));
            if (stage == 3) {
                struct flat f;
                double sum = 0;

                assert_int_equal(flat_init(&f, p, stage, 0, worlds[k], &err), 0);
                for (int i = 0; i < 65; i++)
                    whole[0][i] = (float)(i + 1);
                memset(parts, 0xff, sizeof parts);
                flat_scatter(&f, 1, parts, whole[0]);
                for (int64_t i = 0; i < flat_grad_part(&f, 1) * worlds[k]; i++)
                    sum += (double)parts[i];
                assert_true(sum == 65.0 * 66 / 2);
                flat_release(&f);
            }
        }
}
