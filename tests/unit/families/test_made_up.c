/*
 * A family that nobody has heard of, known by its row alone: it is described, trained, exported
 * to GGUF and adapted.  The table here takes the place of the library's own.
 */
#include "tests/unit/unit.h"

#include "formats/families/keys.h"
#include "formats/gguf/names.h"
#include "formats/gguf/of_model.h"
#include "formats/peft/extract.h"
#include "tests/unit/compare.h"
#include "tests/unit/files.h"
#include "tests/unit/model_help.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/model/init.h"
#include "trainer/model/lora.h"
#include "trainer/model/resident.h"

/* -- the row ---------------------------------------------------------------------------------- */

static const struct family_key sprout_keys[] = {
    {"words", NULL, KEY_INT, AT(vocab_size), 32, 1, MAX_VOCAB},
    {"width", NULL, KEY_INT, AT(hidden_size), 16, 1, MAX_HIDDEN},
    {"stems", NULL, KEY_INT, AT(num_hidden_layers), 2, 1, MAX_LAYERS},
    {"eyes", NULL, KEY_INT, AT(num_attention_heads), 2, 1, MAX_HIDDEN},
    {"reach", NULL, KEY_INT, AT(max_position_embeddings), 64, 1, MAX_POSITIONS},
    {"tiny", NULL, KEY_NUM, AT(norm_eps), 1e-5, 1e-30, 1},
    {"spread", NULL, KEY_NUM, AT(initializer_range), 0.1, 0, 100}, END,
};
static const struct family_name sprout_before[] = {
    {ROLE_TOKENS, "seeds.weight"}, {ROLE_POS, "rows.weight"}, NAMES_END,
};
static const struct family_name sprout_block[] = {
    {ROLE_NORM1_W, "stems.#.calm.$"}, {ROLE_Q_W, "stems.#.look.ask.$"},
    {ROLE_K_W, "stems.#.look.key.$"}, {ROLE_V_W, "stems.#.look.tell.$"},
    {ROLE_OUT_W, "stems.#.look.join.$"}, {ROLE_NORM2_W, "stems.#.rest.$"},
    {ROLE_UP_W, "stems.#.grow.$"}, {ROLE_DOWN_W, "stems.#.fold.$"}, NAMES_END,
};
static const struct family_name sprout_after[] = {
    {ROLE_FINAL_NORM_W, "end.$"}, {ROLE_HEAD_W, "^bloom.weight"}, NAMES_END,
};

static const struct family made_up[] = {
    {
        .model_type = "sprout", .architecture = "SproutForCausalLM", .prefix = "garden.",
        .before = sprout_before, .block = sprout_block, .after = sprout_after,
        .lora_targets = "ask,tell", .gguf = "sprout",
        .fixed = {
            .pos = ARCH_POS_LEARNED, .norm = ARCH_LAYER_NORM, .place = ARCH_PRE_NORM,
            .final_norm = true, .act = ARCH_GELU_TANH, .qkv_bias = true, .out_bias = true,
            .mlp_bias = true, .emb_mul = 1, .head_mul = 1,
        },
        .ff_factor = 2, .keys = sprout_keys,
    },
    {.model_type = NULL},
};

/* Two tables of one name are what this program is about: address sanitizer is to let it pass. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_odr_violation=0"; }

const struct family *const family_table[] = {
    families_early, families_llama, families_encoders, families_others, made_up, NULL,
};

#define CONFIG "{\"model_type\":\"sprout\",\"architectures\":[\"SproutForCausalLM\"]," \
               "\"words\":24,\"width\":16,\"stems\":2,\"eyes\":2}"

/* -- a model of it ---------------------------------------------------------------------------- */

struct sprout {
    struct arch     *arch;
    struct device   *dev;
    struct model    *model;
    struct resident *weights;
};

#define OK(call, err)                                                                          \
    do {                                                                                       \
        if (call)                                                                              \
            fail_msg("%s: %s", #call, (err).text);                                             \
    } while (0)

static void sprout_open(struct sprout *s)
{
    struct device_opts device = {.name = "cpu", .threads = 1, .weights = CKPT_F32};
    struct model_opts opts = {.max_tokens = 8, .max_docs = 1, .max_rows = 8, .train = true};
    struct ckpt_err err = {0};
    const struct params *p;
    struct init init;

    s->arch = arch_of(CONFIG);
    OK(device_open(&s->dev, &device, &err), err);
    OK(model_new(&s->model, s->arch, &opts, s->dev, &err), err);
    p = model_params(s->model);
    OK(resident_new(&s->weights, p, true, s->dev, &err), err);
    init = (struct init){.arch = s->arch, .params = p, .seed = 7};
    for (size_t i = 0; i < p->n; i++)
        OK(init_fill(&init, i, 0, p->item[i].numel, resident_weight(s->weights, i), &err), err);
}

static void sprout_close(struct sprout *s)
{
    resident_free(s->weights);
    model_free(s->model);
    device_close(s->dev);
    arch_free(s->arch);
}

/* A model directory of the weights as they are; names without the prefix, as bare models have. */
static void sprout_save(const struct sprout *s, const char *dir)
{
    const struct params *p = model_params(s->model);
    struct ckpt_tensors list = {0};
    struct ckpt_create_opts opts = {.flags = CKPT_REPLACE};
    struct ckpt_sink *sink;
    struct ckpt_err err = {0};
    char path[400];

    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/config.json", dir);
    put_text(path, CONFIG);
    for (size_t i = 0; i < p->n; i++) {
        const char *name = p->item[i].name;

        name += strncmp(name, "garden.", 7) == 0 ? 7 : 0;
        OK(ckpt_tensors_add(&list, NULL, name, strlen(name), CKPT_F32, &p->item[i].shape, NULL, 0,
                            false, &err), err);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    OK(ckpt_create(&sink, "safetensors", path, &list, &opts, &err), err);
    for (size_t i = 0; i < p->n; i++)
        OK(ckpt_sink_write(sink, i, 0, p->item[i].numel, resident_weight(s->weights, i), &err),
           err);
    OK(ckpt_sink_commit(sink, &err), err);
    ckpt_tensors_release(&list);
}

/* -- what the row is enough for --------------------------------------------------------------- */

TEST(a_step_lowers_the_loss)
{
    static const int32_t ids[] = {1, 5, 9, 2, 7, 3}, rows[] = {0, 1, 2, 3, 4};
    static const int32_t at[] = {0, 1, 2, 3, 4, 5}, start[] = {0, 6};
    struct batch b = {.n_tokens = 6, .n_docs = 1, .n_rows = 5, .ids = ids, .positions = at,
                      .doc_start = start, .rows = rows, .targets = ids + 1};
    struct ckpt_err err = {0};
    double before, after;
    struct sprout s;

    sprout_open(&s);
    assert_string_equal(model_params(s.model)->item[0].name, "garden.seeds.weight");
    assert_true(params_find(model_params(s.model), "garden.stems.1.look.join.bias") != SIZE_MAX);
    OK(model_loss_grad(s.model, resident_door(s.weights), &b, 1.0f, &before, &err), err);
    for (size_t i = 0; i < model_params(s.model)->n; i++)
        for (int64_t k = 0; k < model_params(s.model)->item[i].numel; k++)
            resident_weight(s.weights, i)[k] -= 0.02f * resident_grad(s.weights, i)[k];
    OK(model_loss(s.model, resident_door(s.weights), &b, &after, NULL, &err), err);
    assert_true(before > 0 && after > 0 && after < before);
    sprout_close(&s);
}

TEST(its_gguf_has_llama_cpp_names)
{
    static const char *const names[] = {"token_embd.weight", "position_embd.weight",
                                        "blk.1.attn_q.bias", "blk.0.ffn_down.weight",
                                        "output_norm.bias", "output.weight"};
    const char *dir = scratch("sprout-gguf");
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    struct gguf_name back;
    bool blocks = false;
    const json_t *keys;
    struct sprout s;

    sprout_open(&s);
    sprout_save(&s, dir);
    OK(gguf_of_model(&src, must_open(dir, NULL), NULL, NULL, 0, &err), err);
    assert_int_equal(ckpt_source_count(src), model_params(s.model)->n);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (ckpt_source_find(src, names[i]) == SIZE_MAX)
            fail_msg("no %s", names[i]);
    keys = json_object_get(ckpt_source_info(src), "gguf");
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const json_t *pair = json_array_get(keys, i);

        if (strcmp(json_string_value(json_array_get(pair, 0)), "sprout.block_count") == 0)
            blocks = json_integer_value(json_array_get(pair, 2)) == 2;
    }
    assert_true(blocks);
    assert_true(gguf_name_of_gguf(&back, s.arch->family, "blk.1.attn_v.weight"));
    assert_string_equal(back.pattern, "stems.#.look.tell.$");
    ckpt_source_close(src);
    sprout_close(&s);
}

static void assert_targets(const json_t *config, const char *first, const char *second)
{
    const json_t *list = json_object_get(config, "target_modules");

    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_array_get(list, 0)), first);
    assert_string_equal(json_string_value(json_array_get(list, 1)), second);
}

TEST(its_adapter_has_the_row_s_targets)
{
    struct settings settings = {.lora_rank = 2, .lora_alpha = 4, .lora_bias = "none",
                                .init_lora_weights = "true", .model = "sprout"};
    struct arch *arch = arch_of(CONFIG);
    struct ckpt_err err = {0};
    struct params p = {0};
    struct lora *lora;
    json_t *config;

    OK(adapter_config_of(&config, &settings, arch, &err), err);
    assert_targets(config, "ask", "tell");
    OK(lora_new(&lora, config, &err), err);
    OK(params_build(&p, arch, lora, &err), err);
    assert_true(params_find(&p, "base_model.model.garden.stems.1.look.tell.lora_B.weight") !=
                SIZE_MAX);
    assert_int_equal(p.grad_numel, 2 * 2 * 2 * (16 * 2));   /* blocks, modules, factors */
    params_release(&p);
    lora_free(lora);
    json_decref(config);
    arch_free(arch);
}

TEST(an_adapter_is_extracted)
{
    struct peft_extract_opts opts = {.rank = 1, .base_name = "sprout"};
    const char *dir = scratch("sprout-peft");
    struct ckpt_err err = {0};
    struct ckpt_source *adapter;
    char base[300], tuned[300];
    struct sprout s;

    sprout_open(&s);
    snprintf(base, sizeof base, "%s/base", dir);
    snprintf(tuned, sizeof tuned, "%s/tuned", dir);
    sprout_save(&s, base);
    for (size_t i = 0; i < model_params(s.model)->n; i++) {
        const struct param *q = &model_params(s.model)->item[i];

        if (q->role == ROLE_Q_W || q->role == ROLE_V_W || q->role == ROLE_TOKENS)
            resident_weight(s.weights, i)[q->numel / 2] += 1;
    }
    sprout_save(&s, tuned);
    OK(peft_extract(&adapter, must_open(base, NULL), must_open(tuned, NULL), &opts, &err), err);
    assert_targets(json_object_get(ckpt_source_info(adapter), "adapter_config"), "ask", "tell");
    assert_true(ckpt_source_find(adapter, "base_model.model.garden.stems.0.look.ask.lora_A.weight")
                != SIZE_MAX);
    assert_true(ckpt_source_find(adapter, "base_model.model.garden.seeds.weight") != SIZE_MAX);
    ckpt_source_close(adapter);
    sprout_close(&s);
}
