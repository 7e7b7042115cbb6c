/* The order and the shapes of torch's optimizer, family by family; either order of experts found. */
#include "tests/unit/model_help.h"

#include <stdio.h>

#include "trainer/optim/order.h"

#define OK(call, err) do { if (call) fail_msg("%s", (err).text); } while (0)

/* What a group has: names, of what is put together also places and shape. */
static char *told(char *dst, size_t size, const struct optim_order *o, const struct params *p,
                  int group)
{
    size_t n = 0;

    dst[0] = '\0';
    for (size_t k = 0; k < o->n; k++) {
        const struct optim_slot *s = &o->slot[k];
        char shape[128];

        if (s->group != group)
            continue;
        for (size_t j = 0; j < s->n_part; j++)
            n += (size_t)snprintf(dst + n, size - n, s->n_part > 1 ? "%s@%lld " : "%s ",
                                  p->item[s->part[j].param].name, (long long)s->part[j].at);
        if (s->n_part > 1)
            n += (size_t)snprintf(dst + n, size - n, "= %s ",
                                  ckpt_shape_text(shape, sizeof shape, &s->shape));
        assert_true(n < size);
    }
    return dst;
}

static void check(const char *config, bool fused, int group, const char *wanted)
{
    struct arch *arch = arch_of(config);
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct optim_order o;
    struct params p;
    char text[4096];

    OK(params_build(&p, arch, NULL, &err), err);
    OK(optim_order(&o, &a, &p, arch, fused, &err), err);
    assert_string_equal(told(text, sizeof text, &o, &p, group), wanted);
    ckpt_arena_release(&a);
    params_release(&p);
    arch_free(arch);
}

#define OPT "{\"model_type\":\"opt\",\"vocab_size\":9,\"hidden_size\":8,\"num_hidden_layers\":1,"    \
            "\"num_attention_heads\":2,\"ffn_dim\":4,\"max_position_embeddings\":6,"               \
            "\"word_embed_proj_dim\":4,\"tie_word_embeddings\":false,\"enable_bias\":false}"
#define LAYER "model.decoder.layers.0."

TEST(what_opt_makes_first_comes_first)
{
    check(OPT, true, 0, "model.decoder.embed_tokens.weight model.decoder.embed_positions.weight "
          "model.decoder.project_out.weight model.decoder.project_in.weight "
          LAYER "self_attn.k_proj.weight " LAYER "self_attn.v_proj.weight "
          LAYER "self_attn.q_proj.weight " LAYER "self_attn.out_proj.weight "
          LAYER "fc1.weight " LAYER "fc2.weight lm_head.weight ");
    check(OPT, true, 1, "model.decoder.final_layer_norm.weight model.decoder.final_layer_norm.bias "
          LAYER "self_attn_layer_norm.weight " LAYER "self_attn_layer_norm.bias "
          LAYER "final_layer_norm.weight " LAYER "final_layer_norm.bias ");
}

#define SIZES "\"vocab_size\":9,\"hidden_size\":4,\"num_hidden_layers\":1,"                         \
              "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":2,"                 \
              "\"num_experts_per_tok\":1,"
#define QWEN "{\"model_type\":\"qwen3_moe\"," SIZES                                                \
             "\"num_experts\":2,\"moe_intermediate_size\":3,\"tie_word_embeddings\":true}"
#define MIXTRAL "{\"model_type\":\"mixtral\"," SIZES                                               \
                "\"num_local_experts\":2,\"intermediate_size\":3,\"tie_word_embeddings\":true}"
#define L "model.layers.0."
#define QKVO "model.embed_tokens.weight " L "self_attn.q_proj.weight " L "self_attn.k_proj.weight " \
             L "self_attn.v_proj.weight " L "self_attn.o_proj.weight "
#define Q L "mlp.experts."
#define X L "block_sparse_moe."

TEST(experts_are_one_tensor_or_one_by_one)
{
    check(QWEN, true, 0, QKVO Q "0.gate_proj.weight@0 " Q "0.up_proj.weight@12 "
          Q "1.gate_proj.weight@24 " Q "1.up_proj.weight@36 = [2, 6, 4] "
          Q "0.down_proj.weight@0 " Q "1.down_proj.weight@12 = [2, 4, 3] " L "mlp.gate.weight ");
    check(QWEN, false, 0, QKVO L "mlp.gate.weight " Q "0.gate_proj.weight " Q "0.up_proj.weight "
          Q "0.down_proj.weight " Q "1.gate_proj.weight " Q "1.up_proj.weight "
          Q "1.down_proj.weight ");
    check(MIXTRAL, true, 0, QKVO X "gate.weight " X "experts.0.w1.weight@0 "
          X "experts.0.w3.weight@12 " X "experts.1.w1.weight@24 " X "experts.1.w3.weight@36 "
          "= [2, 6, 4] " X "experts.0.w2.weight@0 " X "experts.1.w2.weight@12 = [2, 4, 3] ");
    check(MIXTRAL, false, 0, QKVO X "gate.weight " X "experts.0.w1.weight " X "experts.0.w2.weight "
          X "experts.0.w3.weight " X "experts.1.w1.weight " X "experts.1.w2.weight "
          X "experts.1.w3.weight ");
}

static void nothing(void *self) { (void)self; }

/* A source that only lists. */
static struct ckpt_source *listed(struct ckpt_tensors *list)
{
    static const struct ckpt_source_ops ops = {.format = "list", .close = nothing};
    static int self;
    struct ckpt_source *src;
    struct ckpt_err err = {0};

    OK(ckpt_source_new(&src, &ops, &self, list, NULL, 0, NULL, &err), err);
    return src;
}

/* The same name for all. */
static const char *const *named(const char *name[64], size_t n, const char *of)
{
    for (size_t i = 0; i < n; i++)
        name[i] = of;
    return name;
}

TEST(a_file_is_matched_in_either_order)
{
    const char *name[64];
    struct arch *arch = arch_of(MIXTRAL);
    struct params p;
    struct ckpt_err err = {0};

    OK(params_build(&p, arch, NULL, &err), err);
    for (int fused = 0; fused < 2; fused++) {
        struct ckpt_source *src = NULL;
        struct ckpt_tensors list = {0};
        struct ckpt_arena a = {0};
        struct optim_order o;
        size_t index[64];
        int64_t at[64];

        assert_true(p.n < 64);
        OK(optim_order(&o, &a, &p, arch, fused, &err), err);
        for (size_t k = 0; k < o.n; k++) {
            char state[64];

            snprintf(state, sizeof state, "state.%zu.exp_avg", k);
            OK(ckpt_tensors_add(&list, NULL, state, strlen(state), CKPT_F32, &o.slot[k].shape, NULL,
                                0, false, &err), err);
        }
        src = listed(&list);
        OK(optim_match(index, at, &p, arch, src, named(name, p.n, "exp_avg"), &err), err);
        for (size_t k = 0; k < o.n; k++)
            for (size_t j = 0; j < o.slot[k].n_part; j++) {
                assert_int_equal(index[o.slot[k].part[j].param], k);
                assert_int_equal(at[o.slot[k].part[j].param], o.slot[k].part[j].at);
            }
        named(name, p.n, "exp_avg_sq");
        assert_int_equal(optim_match(index, at, &p, arch, src, name, &err), CKPT_EMISMATCH);
        ckpt_err_clear(&err);
        ckpt_source_close(src);
        ckpt_arena_release(&a);
    }
    params_release(&p);
    arch_free(arch);
}

TEST(one_group_of_all_is_matched_by_shapes)
{
    const char *name[64];
    struct arch *arch = arch_of(MIXTRAL);
    struct params p;
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    struct ckpt_tensors list = {0};
    struct ckpt_arena a = {0};
    struct optim_order o;
    size_t index[64];
    int64_t at[64];

    OK(params_build(&p, arch, NULL, &err), err);
    OK(optim_order_whole(&o, &a, &p, arch, true, &err), err);
    for (size_t k = 0; k < o.n; k++) {
        char state[64];

        snprintf(state, sizeof state, "state.%zu.exp_avg", k);
        OK(ckpt_tensors_add(&list, NULL, state, strlen(state), CKPT_F32, &o.slot[k].shape, NULL, 0,
                            false, &err), err);
    }
    src = listed(&list);
    OK(optim_match(index, at, &p, arch, src, named(name, p.n, "exp_avg"), &err), err);
    for (size_t k = 0; k < o.n; k++)
        assert_int_equal(index[o.slot[k].part[0].param], k);
    ckpt_source_close(src);
    ckpt_arena_release(&a);
    params_release(&p);
    arch_free(arch);
}
