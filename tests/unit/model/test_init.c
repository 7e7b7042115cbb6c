/* First weights: what each role gets, the same from any rank, and the generator beneath. */
#include "tests/unit/model_help.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/model/init.h"
#include "trainer/rng.h"

/* Random123's known answers for philox4x32-10 (kat_vectors). */
TEST(rng_words_equal_known_answers)
{
    uint32_t w[4];
    static const uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    static const uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};

    rng_words(w, 0, 0, 0);
    assert_memory_equal(w, zero, sizeof w);
    rng_words(w, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_memory_equal(w, ones, sizeof w);
    /* counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0 */
    rng_words(w, 0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
    assert_memory_equal(w, pi, sizeof w);
}

TEST(rng_normal_is_normal)
{
    enum { N = 200000 };
    float *x = malloc(N * sizeof *x);
    double m[5] = {0}, inside = 0;

    assert_non_null(x);
    rng_normal(x, 0, N, 1.0f, 42, rng_stream("a"));
    for (int i = 0; i < N; i++) {
        for (int k = 1; k < 5; k++)
            m[k] += pow((double)x[i], k) / N;
        inside += fabs((double)x[i]) < 1;
    }
    /* five standard errors of each moment */
    assert_true(fabs(m[1]) < 5 / sqrt(N));
    assert_true(fabs(m[2] - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(m[3]) < 5 * sqrt(15.0 / N));
    assert_true(fabs(m[4] - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(inside / N - 0.682689) < 5 * sqrt(0.2166 / N));
    free(x);
}

/* Threads and ranks share the work by parts, from odd elements too. */
TEST(rng_normal_of_parts)
{
    enum { N = 100003, FROM = 17 };
    float *whole = malloc(N * sizeof *whole), *part = malloc(N * sizeof *part);
    const int64_t cut[] = {0, 1, 2, 4099, 40000, 40001, N};

    assert_true(whole && part);
    rng_normal(whole, FROM, N, 0.5f, 3, 9);
    for (size_t i = 0; i + 1 < sizeof cut / sizeof *cut; i++)
        rng_normal(part + cut[i], FROM + cut[i], cut[i + 1] - cut[i], 0.5f, 3, 9);
    assert_memory_equal(whole, part, N * sizeof *whole);
    free(whole);
    free(part);
}

TEST(rng_uniform_stays_below_one)
{
    double sum = 0;

    for (uint64_t i = 0; i < 10000; i++) {
        double u = rng_uniform(1, 2, i);

        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 5 * sqrt(1.0 / 12 / 10000));
}

TEST(init_is_the_same_however_it_is_cut)
{
    struct arch *arch =
        arch_of("{\"model_type\":\"bloom\",\"vocab_size\":31,\"hidden_size\":24,"
                "\"initializer_range\":0.05}");
    struct ckpt_err err = {0};
    struct params p;
    struct init init = {.arch = arch, .params = &p, .seed = 3};
    float whole[31 * 24], part[31 * 24];

    assert_int_equal(params_build(&p, arch, NULL, &err), 0);
    assert_int_equal(init_fill(&init, 0, 0, 31 * 24, whole, &err), 0);
    for (int64_t ranks = 2; ranks < 12; ranks++) {
        int64_t each = (31 * 24 + ranks - 1) / ranks;

        for (int64_t r = 0, at = 0; r < ranks; r++, at += each) {
            int64_t n = at + each < 31 * 24 ? each : 31 * 24 - at;

            if (n > 0)
                assert_int_equal(init_fill(&init, 0, at, n, part + at, &err), 0);
        }
        assert_memory_equal(whole, part, sizeof whole);
    }
    init.seed = 4;
    assert_int_equal(init_fill(&init, 0, 0, 31 * 24, part, &err), 0);
    assert_memory_not_equal(whole, part, sizeof whole);
    assert_int_equal(init_fill(&init, 0, 31 * 24 - 1, 2, part, &err), CKPT_ESTATE);
    assert_int_equal(init_fill(&init, p.n, 0, 1, part, &err), CKPT_ESTATE);
    params_release(&p);
    arch_free(arch);
}

TEST(init_gives_each_role_its_kind)
{
    struct arch *arch = arch_of("{\"model_type\":\"bloom\",\"vocab_size\":5,\"hidden_size\":64,"
                                "\"n_layer\":2,\"initializer_range\":0.05}");
    struct ckpt_err err = {0};
    struct params p;
    struct init init = {.arch = arch, .params = &p, .seed = 3};
    static float x[256 * 64], before[64 * 192];
    bool have = false;

    assert_int_equal(params_build(&p, arch, NULL, &err), 0);
    for (size_t i = 0; i < p.n; i++) {
        const char *name = p.item[i].name;
        double sum = 0, sq = 0;
        int64_t n = p.item[i].numel;

        assert_int_equal(init_fill(&init, i, 0, n, x, &err), 0);
        for (int64_t j = 0; j < n; j++) {
            sum += (double)x[j];
            sq += (double)x[j] * (double)x[j];
        }
        if (strstr(name, ".bias"))
            assert_true(sq == 0);
        else if (strstr(name, "layernorm") || strstr(name, "ln_f"))
            assert_true(sum == (double)n && sq == (double)n);
        else
            assert_true(fabs(sqrt(sq / (double)n) / 0.05 - 1) < 4 / sqrt(2.0 * (double)n));
        if (strstr(name, "query_key_value.weight")) {   /* two layers differ */
            if (have)
                assert_memory_not_equal(before, x, sizeof before);
            memcpy(before, x, sizeof before);
            have = true;
        }
    }
    params_release(&p);
    arch_free(arch);
}

/* Root mean square of a parameter's elements, and of one of its rows. */
static double strength(const struct init *init, const char *name, int64_t row)
{
    static float x[64 * 96];
    size_t i = params_find(init->params, name);
    const struct param *q;
    struct ckpt_err err = {0};
    int64_t from, n;
    double sq = 0;

    assert_true(i != SIZE_MAX);
    q = &init->params->item[i];
    from = row < 0 ? 0 : row * q->shape.dim[1];
    n = row < 0 ? q->numel : q->shape.dim[1];
    assert_true(n <= 64 * 96);
    assert_int_equal(init_fill((void *)(uintptr_t)init, i, from, n, x, &err), 0);
    for (int64_t k = 0; k < n; k++)
        sq += (double)x[k] * (double)x[k];
    return sqrt(sq / (double)n);
}

struct wanted {
    const char *name;
    double      value;
};

static void check_strengths(const char *config, const struct wanted *w)
{
    struct arch *arch = arch_of(config);
    struct ckpt_err err = {0};
    struct params p;
    struct init init = {.arch = arch, .params = &p, .seed = 3};

    assert_int_equal(params_build(&p, arch, NULL, &err), 0);
    for (; w->name; w++) {
        double got = strength(&init, w->name, -1);

        /* of 1024 elements or more: six standard errors */
        if (!(fabs(got / w->value - 1) < 6 / sqrt(2.0 * 1024)))
            fail_msg("%s: %g, %g is wanted", w->name, got, w->value);
    }
    params_release(&p);
    arch_free(arch);
}

TEST(deviations_are_the_references)
{
    static const struct wanted t5[] = {
        {"shared.weight", 0.5}, {"lm_head.weight", 0.5},
        {"encoder.block.0.layer.0.SelfAttention.q.weight", 0.5 / 32},   /* (64 * 16)^-1/2 */
        {"encoder.block.0.layer.0.SelfAttention.k.weight", 0.5 / 8},
        {"decoder.block.0.layer.1.EncDecAttention.q.weight", 0.5 / 32},
        {"decoder.block.0.layer.1.EncDecAttention.v.weight", 0.5 / 8},
        {"decoder.block.0.layer.1.EncDecAttention.o.weight", 0.5 / 8},  /* (4 * 16)^-1/2 */
        {"encoder.block.0.layer.1.DenseReluDense.wi.weight", 0.5 / 8},
        {"encoder.block.0.layer.1.DenseReluDense.wo.weight", 0.5 / 9.797958971132712},
        {NULL, 0},
    };
    static const struct wanted gpt2[] = {
        {"transformer.wte.weight", 0.1}, {"transformer.h.0.mlp.c_fc.weight", 0.1},
        {"transformer.h.0.attn.c_proj.weight", 0.1 / 2.449489742783178},
        {"transformer.h.2.mlp.c_proj.weight", 0.1 / 2.449489742783178}, {NULL, 0},
    };

    check_strengths("{\"model_type\":\"t5\",\"vocab_size\":64,\"d_model\":64,\"d_kv\":16,"
                    "\"d_ff\":96,\"num_heads\":4,\"num_layers\":1,\"initializer_factor\":0.5,"
                    "\"tie_word_embeddings\":false}", t5);
    check_strengths("{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_embd\":64,\"n_layer\":3,"
                    "\"n_head\":4,\"n_inner\":96,\"n_positions\":8,\"initializer_range\":0.1}",
                    gpt2);
}

TEST(constants_are_exact)
{
    struct arch *t5 = arch_of("{\"model_type\":\"t5\",\"vocab_size\":16,\"d_model\":8,"
                              "\"d_kv\":4,\"d_ff\":8,\"num_heads\":2,\"num_layers\":1,"
                              "\"initializer_factor\":0.25}");
    struct arch *opt = arch_of("{\"model_type\":\"opt\",\"vocab_size\":16,\"hidden_size\":8,"
                               "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"ffn_dim\":8,"
                               "\"max_position_embeddings\":6,\"pad_token_id\":5}");
    struct ckpt_err err = {0};
    struct params p;
    struct init init = {.params = &p, .seed = 3};

    init.arch = t5;
    assert_int_equal(params_build(&p, t5, NULL, &err), 0);
    assert_true(strength(&init, "decoder.final_layer_norm.weight", -1) == 0.25);
    assert_true(strength(&init, "shared.weight", 0) > 0);       /* its pad id is like any other */
    params_release(&p);
    init.arch = opt;
    assert_int_equal(params_build(&p, opt, NULL, &err), 0);
    assert_true(strength(&init, "model.decoder.embed_tokens.weight", 5) == 0);
    assert_true(strength(&init, "model.decoder.embed_tokens.weight", 4) > 0);
    assert_true(strength(&init, "model.decoder.embed_positions.weight", 1) > 0);
    assert_true(strength(&init, "model.decoder.final_layer_norm.weight", -1) == 1);
    assert_true(strength(&init, "model.decoder.layers.0.fc1.bias", -1) == 0);
    params_release(&p);
    arch_free(t5);
    arch_free(opt);
}
