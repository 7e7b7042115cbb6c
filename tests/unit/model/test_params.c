/* The parameter list of a description: names, order, layers, offsets, lookup. */
#include "tests/unit/model_help.h"

#include "trainer/model/params.h"

TEST(params_build_gives_torch_order_and_units)
{
    struct arch *arch = arch_of("{\"model_type\":\"bloom\",\"vocab_size\":11,\"hidden_size\":8,"
                                "\"n_layer\":2,\"n_head\":2}");
    struct ckpt_err err = {0};
    struct params p;
    int64_t at = 0;
    int layer = 0;

    assert_int_equal(params_build(&p, arch, NULL, &err), 0);
    assert_int_equal(p.n, 3 + 2 * 12 + 2);
    assert_int_equal(p.n_layers, 4);
    assert_int_equal(p.numel, 11 * 8 + 16 + 2 * (12 * 64 + 13 * 8) + 16);
    assert_int_equal(p.numel, arch_numel(arch));
    assert_string_equal(p.item[0].name, "transformer.word_embeddings.weight");
    assert_string_equal(p.item[5].name,
                        "transformer.h.0.self_attention.query_key_value.weight");
    assert_int_equal(p.item[5].shape.dim[0], 24);
    assert_string_equal(p.item[15 + 11].name, "transformer.h.1.mlp.dense_4h_to_h.bias");
    assert_string_equal(p.item[p.n - 1].name, "transformer.ln_f.bias");
    for (size_t i = 0; i < p.n; i++) {
        if (p.item[i].layer != layer) {
            assert_int_equal(at, p.layer_numel[layer]);
            assert_int_equal(p.item[i].layer, ++layer);
            at = 0;
        }
        assert_int_equal(p.item[i].offset, at);
        at += p.item[i].numel;
    }
    assert_true(p.item[0].decay && !p.item[1].decay && p.item[5].decay && !p.item[6].decay);
    params_release(&p);
    arch_free(arch);
}

TEST(params_find_when_prefix_is_missing)
{
    struct arch *arch = arch_of("{\"model_type\":\"bloom\",\"tie_word_embeddings\":false}");
    struct ckpt_err err = {0};
    struct params p;

    assert_null(arch_tied_name(arch));
    assert_int_equal(params_build(&p, arch, NULL, &err), 0);
    assert_int_equal(params_find(&p, "transformer.ln_f.weight"), p.n - 3);
    assert_int_equal(params_find(&p, "ln_f.weight"), p.n - 3);
    assert_int_equal(params_find(&p, "lm_head.weight"), p.n - 1);
    assert_int_equal(params_find(&p, "ln_f"), SIZE_MAX);
    assert_int_equal(params_find(&p, "transformer.transformer.ln_f.weight"), SIZE_MAX);
    params_release(&p);
    params_release(&p);                         /* a zeroed list is a valid empty one */
    arch_free(arch);
}

/* model-families.md part 4: totals of published models. */
TEST(params_count_when_published)
{
    static const struct {
        int64_t h, layers, heads, total;
    } row[] = {{1024, 24, 16, 559214592},
               {1536, 24, 16, 1065314304},
               {4096, 30, 32, 7069016064},
               {14336, 70, 112, 176247271424}};

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char text[256];
        struct arch *arch;

        snprintf(text, sizeof text,
                 "{\"model_type\":\"bloom\",\"n_embed\":%lld,\"num_hidden_layers\":%lld,"
                 "\"num_attention_heads\":%lld}",
                 (long long)row[i].h, (long long)row[i].layers, (long long)row[i].heads);
        arch = arch_of(text);
        assert_int_equal(arch_numel(arch), row[i].total);
        arch_free(arch);
    }
}
