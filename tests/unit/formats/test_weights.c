/* Which tensor of a file is which parameter: names of now and of before, what is left over. */
#include "tests/unit/model_help.h"

#include "trainer/model/params.h"
#include "trainer/checkpoint/weights.h"

#define OK(call, err) do { if (call) fail_msg("%s", (err).text); } while (0)
#define T5 "{\"model_type\":\"t5\",\"vocab_size\":16,\"d_model\":8,\"d_kv\":4,\"d_ff\":8,"            \
           "\"num_heads\":2,\"num_layers\":1}"
#define BERT "{\"model_type\":\"bert\",\"vocab_size\":16,\"hidden_size\":8,\"num_hidden_layers\":1,"  \
             "\"num_attention_heads\":2,\"intermediate_size\":8,\"max_position_embeddings\":6}"

static void nothing(void *self) { (void)self; }

struct renamed {
    const char *was, *is;               /* tails of names; is NULL: leave it out */
};

/* A file of all parameters, some under other names, and one tensor more of the first's shape. */
static struct ckpt_source *file_of(const struct params *p, const struct renamed *r,
                                   const char *more)
{
    static const struct ckpt_source_ops ops = {.format = "list", .close = nothing};
    static int self;
    struct ckpt_tensors list = {0};
    struct ckpt_source *src;
    struct ckpt_err err = {0};

    for (size_t i = 0; i < p->n; i++) {
        char name[256];
        bool out = false;

        snprintf(name, sizeof name, "%s", p->item[i].name);
        for (const struct renamed *one = r; one->was; one++) {
            size_t n = strlen(name), k = strlen(one->was);

            if (n < k || strcmp(name + n - k, one->was) != 0)
                continue;
            out = !one->is;
            snprintf(name + n - k, sizeof name - n + k, "%s", one->is ? one->is : "");
            break;
        }
        if (!out)
            OK(ckpt_tensors_add(&list, NULL, name, strlen(name), CKPT_F32, &p->item[i].shape, NULL,
                                0, false, &err), err);
    }
    if (more)
        OK(ckpt_tensors_add(&list, NULL, more, strlen(more), CKPT_F32, &p->item[0].shape, NULL, 0,
                            false, &err), err);
    OK(ckpt_source_new(&src, &ops, &self, &list, NULL, 0, NULL, &err), err);
    return src;
}

/* Match such a file; 0 or the error's code, the text or the hint of which must have that part. */
static int match(const char *config, const struct renamed *r, const char *more, const char *part)
{
    struct arch *arch = arch_of(config);
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    struct params p;
    size_t index[128];
    int rc;

    OK(params_build(&p, arch, NULL, &err), err);
    assert_true(p.n <= 128);
    src = file_of(&p, r, more);
    rc = weights_match(index, &p, src, NULL, arch_tied_name(arch), true, &err);
    for (size_t i = 0; rc == 0 && i < p.n; i++) {
        assert_true(index[i] < ckpt_source_count(src));
        if (!more)                      /* the file keeps the model's order */
            assert_int_equal(index[i], i);
    }
    if (part && !strstr(err.text, part) && !strstr(err.hint, part))
        fail_msg("%s\n%s", err.text, err.hint);
    ckpt_source_close(src);
    params_release(&p);
    arch_free(arch);
    return rc;
}

static const struct renamed same[] = {{NULL, NULL}};

TEST(the_embedding_may_lie_in_a_stack_of_t5)
{
    static const struct renamed encoder[] = {
        {"shared.weight", "encoder.embed_tokens.weight"}, {NULL, NULL},
    };
    static const struct renamed decoder[] = {
        {"shared.weight", "decoder.embed_tokens.weight"}, {NULL, NULL},
    };
    static const struct renamed nowhere[] = {{"shared.weight", NULL}, {NULL, NULL}};

    assert_int_equal(match(T5, same, NULL, NULL), 0);
    assert_int_equal(match(T5, same, "encoder.embed_tokens.weight", NULL), 0);
    assert_int_equal(match(T5, encoder, NULL, NULL), 0);
    assert_int_equal(match(T5, decoder, NULL, NULL), 0);
    assert_int_equal(match(T5, encoder, "decoder.embed_tokens.weight", NULL), 0);
    assert_int_equal(match(T5, nowhere, NULL, "shared.weight"), CKPT_EMISMATCH);
}

TEST(norms_of_bert_may_have_tensorflows_names)
{
    static const struct renamed old[] = {
        {"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"},
        {NULL, NULL},
    };

    assert_int_equal(match(BERT, old, NULL, NULL), 0);
    assert_int_equal(match(BERT, same, "bert.embeddings.LayerNorm.gamma", "LayerNorm.gamma"),
                     CKPT_EMISMATCH);
    assert_int_equal(match(BERT, same, "cls.predictions.bias", NULL), 0);
}

TEST(a_prefix_is_told_with_what_takes_it_away)
{
    assert_int_equal(match(T5, same, "module.shared.weight", "--rename module.= takes"),
                     CKPT_EMISMATCH);
    assert_int_equal(match(T5, same, "_orig_mod.encoder.final_layer_norm.weight",
                           "--rename _orig_mod.= takes"), CKPT_EMISMATCH);
}
