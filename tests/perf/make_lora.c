/*
 * make_lora DIR GIB - DIR/base, a Llama of some GIB GiB in bf16, and DIR/adapter, rank 32 on all its
 * linear layers: what the LoRA merge is measured with.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/formats.h"
#include "libckpt/ckpt.h"

#define HIDDEN 2048
#define INNER  8192
#define VOCAB  32000
#define RANK   32
#define P      "base_model.model."

static const struct { const char *name; int out, in; } linear[] = {
    {"self_attn.q_proj", HIDDEN, HIDDEN}, {"self_attn.k_proj", HIDDEN, HIDDEN},
    {"self_attn.v_proj", HIDDEN, HIDDEN}, {"self_attn.o_proj", HIDDEN, HIDDEN},
    {"mlp.gate_proj", INNER, HIDDEN},     {"mlp.up_proj", INNER, HIDDEN},
    {"mlp.down_proj", HIDDEN, INNER},
};

static void die(const struct ckpt_err *err)
{
    fprintf(stderr, "make_lora: %s\n", err->text);
    exit(1);
}

static void add(struct ckpt_tensors *l, const char *name, int rows, int cols, enum ckpt_dtype t)
{
    struct ckpt_shape s = cols ? ckpt_shape_2d(rows, cols) : ckpt_shape_1d(rows);
    struct ckpt_err err = {0};

    if (ckpt_tensors_add(l, NULL, name, strlen(name), t, &s, NULL, 0, false, &err))
        die(&err);
}

/* Numbers near 2^-6 of either sign, whatever the dtype: bits from a counter. */
static void fill(unsigned char *p, size_t n, enum ckpt_dtype t, uint64_t *state)
{
    size_t width = ckpt_dtype_size(t);

    for (size_t i = 0; i < n; i++) {
        uint16_t high;

        *state = *state * 6364136223846793005u + 1442695040888963407u;
        high = (uint16_t)(0x3c00 | (*state >> 40 & 0x80ff));
        memset(p + i * width, 0, width);
        memcpy(p + (i + 1) * width - 2, &high, 2);
    }
}

static void write_all(const char *path, struct ckpt_tensors *l)
{
    static unsigned char block[1 << 22];
    struct ckpt_create_opts opts = {.flags = CKPT_REPLACE};
    struct ckpt_sink *sink;
    struct ckpt_err err = {0};
    uint64_t state = 1;

    if (ckpt_create(&sink, "safetensors", path, l, &opts, &err))
        die(&err);
    for (size_t i = 0; i < l->n; i++) {
        const struct ckpt_tensor *t = &l->item[i];
        int64_t step = (int64_t)(sizeof block / ckpt_dtype_size(t->dtype));

        for (int64_t at = 0; at < t->numel; at += step) {
            int64_t n = t->numel - at < step ? t->numel - at : step;

            fill(block, (size_t)n, t->dtype, &state);
            if (ckpt_sink_write(sink, i, at, n, block, &err))
                die(&err);
        }
    }
    if (ckpt_sink_commit(sink, &err))
        die(&err);
    ckpt_tensors_release(l);
}

static void make_base(const char *dir, int layers)
{
    struct ckpt_tensors l = {0};
    char name[600], text[900];
    struct ckpt_err err = {0};

    snprintf(text, sizeof text,
             "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": %d, "
             "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": 16, "
             "\"num_key_value_heads\": 16, \"vocab_size\": %d, \"tie_word_embeddings\": false, "
             "\"dtype\": \"bfloat16\"}", HIDDEN, INNER, layers, VOCAB);
    snprintf(name, sizeof name, "%s/config.json", dir);
    if (ckpt_out_put(name, text, strlen(text), &err))
        die(&err);
    add(&l, "model.embed_tokens.weight", VOCAB, HIDDEN, CKPT_BF16);
    for (int i = 0; i < layers; i++) {
        for (size_t k = 0; k < sizeof linear / sizeof linear[0]; k++) {
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", i, linear[k].name);
            add(&l, name, linear[k].out, linear[k].in, CKPT_BF16);
        }
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "model.layers.%d.%s_layernorm.weight", i,
                     k ? "post_attention" : "input");
            add(&l, name, HIDDEN, 0, CKPT_BF16);
        }
    }
    add(&l, "model.norm.weight", HIDDEN, 0, CKPT_BF16);
    add(&l, "lm_head.weight", VOCAB, HIDDEN, CKPT_BF16);
    snprintf(name, sizeof name, "%s/model.safetensors", dir);
    write_all(name, &l);
}

static void make_adapter(const char *dir, int layers)
{
    static const char text[] =
        "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"r\": 32, \"lora_alpha\": 64, "
        "\"base_model_name_or_path\": \"../base\", \"target_modules\": [\"q_proj\", \"k_proj\", "
        "\"v_proj\", \"o_proj\", \"gate_proj\", \"up_proj\", \"down_proj\"]}";
    struct ckpt_tensors l = {0};
    struct ckpt_err err = {0};
    char name[600];

    snprintf(name, sizeof name, "%s/adapter_config.json", dir);
    if (ckpt_out_put(name, text, strlen(text), &err))
        die(&err);
    for (int i = 0; i < layers; i++)
        for (size_t k = 0; k < sizeof linear / sizeof linear[0]; k++) {
            snprintf(name, sizeof name, P "model.layers.%d.%s.lora_A.weight", i, linear[k].name);
            add(&l, name, RANK, linear[k].in, CKPT_F32);
            snprintf(name, sizeof name, P "model.layers.%d.%s.lora_B.weight", i, linear[k].name);
            add(&l, name, linear[k].out, RANK, CKPT_F32);
        }
    snprintf(name, sizeof name, "%s/adapter_model.safetensors", dir);
    write_all(name, &l);
}

int main(int argc, char **argv)
{
    int64_t bytes, layer = 2LL * (4LL * HIDDEN * HIDDEN + 3LL * HIDDEN * INNER), layers;
    char dir[500];

    if (argc != 3) {
        fprintf(stderr, "usage: make_lora DIR GIB\n");
        return 64;
    }
    bytes = (int64_t)(strtod(argv[2], NULL) * (1 << 30));
    layers = (bytes - 4LL * VOCAB * HIDDEN + layer - 1) / layer;
    if (layers < 1)
        layers = 1;
    mkdir(argv[1], 0777);
    snprintf(dir, sizeof dir, "%s/base", argv[1]);
    mkdir(dir, 0777);
    make_base(dir, (int)layers);
    snprintf(dir, sizeof dir, "%s/adapter", argv[1]);
    mkdir(dir, 0777);
    make_adapter(dir, (int)layers);
    return 0;
}
