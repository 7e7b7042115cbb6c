/*
 * Any adapter on a fixed base: the first line is adapter_config.json, each further line a tensor,
 * "NAME ROWS COLUMNS [MORE]".  Refused with a sentence, or every element of the merged model can be
 * read, and what it changed can be extracted again.  Seeds: the goldens' names.
 */
#include "formats/peft/peft.h"
#include "formats/peft/extract.h"
#include "libckpt/base/json.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static const struct { const char *name; int64_t dim[3]; } base_rows[] = {
    {"model.embed_tokens.weight", {20, 6, 0}},
    {"model.layers.0.self_attn.q_proj.weight", {6, 6, 0}},
    {"model.layers.0.self_attn.q_proj.bias", {6, 0, 0}},
    {"model.layers.0.mlp.up_proj.weight", {10, 6, 0}},
    {"model.layers.0.mlp.down_proj.weight", {6, 10, 0}},
    {"model.layers.0.block_sparse_moe.experts.0.w1.weight", {5, 6, 0}},
    {"model.layers.0.block_sparse_moe.experts.0.w2.weight", {6, 5, 0}},
    {"model.layers.0.block_sparse_moe.experts.0.w3.weight", {5, 6, 0}},
    {"model.layers.0.block_sparse_moe.experts.1.w1.weight", {5, 6, 0}},
    {"model.layers.0.block_sparse_moe.experts.1.w2.weight", {6, 5, 0}},
    {"model.layers.0.block_sparse_moe.experts.1.w3.weight", {5, 6, 0}},
    {"model.layers.1.mlp.experts.gate_up_proj", {2, 6, 8}},
    {"model.layers.1.mlp.experts.down_proj", {2, 4, 6}},
    {"model.conv.weight", {4, 3, 5}},
    {"model.norm.weight", {6, 0, 0}},
};

/* Elements count up, so that no matrix is of rank 1. */
static int read_any(void *self, size_t i, int64_t start, int64_t count, void *dst,
                    struct ckpt_err *err)
{
    (void)self;
    (void)err;
    for (int64_t k = 0; k < count; k++)
        ((float *)dst)[k] = (float)((start + k) * 37 % 61 + (int64_t)i) / 64;
    return 0;
}

static const struct ckpt_source_ops ops = {.format = "fuzz", .read = read_any};

static struct ckpt_source *make(struct ckpt_tensors *list, json_t *info)
{
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};

    must(ckpt_source_new(&s, &ops, NULL, list, NULL, 0, info, &err) == 0);
    return s;
}

static struct ckpt_source *make_base(bool tied)
{
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof base_rows / sizeof base_rows[0]; i++) {
        struct ckpt_shape s = {.rank = base_rows[i].dim[2] ? 3 : base_rows[i].dim[1] ? 2 : 1};

        memcpy(s.dim, base_rows[i].dim, sizeof base_rows[i].dim);
        must(ckpt_tensors_add(&list, NULL, base_rows[i].name, strlen(base_rows[i].name),
                              CKPT_F32, &s, NULL, 0, false, &err) == 0);
    }
    return make(&list, json_pack("{s:{s:b,s:s,s:[s]}}", "config", "tie_word_embeddings", tied,
                                 "model_type", "mixtral", "architectures", "MixtralForCausalLM"));
}

/* One line; false when it is no tensor of a bearable size. */
static bool add_line(struct ckpt_tensors *list, const char *line, size_t n)
{
    const char *space = memchr(line, ' ', n);
    struct ckpt_shape s = {0};
    struct ckpt_err err = {0};
    char numbers[64] = {0}, *at = numbers, *end;
    int64_t numel = 1;

    if (!space || n - (size_t)(space - line) >= sizeof numbers)
        return false;
    memcpy(numbers, space, n - (size_t)(space - line));
    for (; s.rank < 4; s.rank++) {
        s.dim[s.rank] = strtol(at, &end, 10);
        if (end == at)
            break;
        if (s.dim[s.rank] < 0 || s.dim[s.rank] > 300 || (numel *= s.dim[s.rank]) > 5000)
            return false;
        at = end;
    }
    return ckpt_tensors_add(list, NULL, line, (size_t)(space - line), CKPT_F32, &s, NULL, 0, false,
                            &err) == 0;
}

static void read_all(struct ckpt_source *s)
{
    float part[97];
    struct ckpt_err err = {0};

    for (size_t i = 0; i < ckpt_source_count(s); i++)
        for (int64_t at = 0, n = ckpt_source_tensor(s, i)->numel; at < n; at += 97)
            must(ckpt_source_read(s, i, at, n - at < 97 ? n - at : 97, part, &err) == 0 ||
                 err.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *line = memchr(text, '\n', size);
    struct peft_extract_opts opts = {.rank = 2, .base_name = "base"};
    struct ckpt_source *merged, *again;
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};
    json_t *config;
    bool good = true;

    if (!line || ckpt_json_parse(&config, text, (size_t)(line - text), CKPT_JSON_PYTHON, &err))
        return 0;
    for (const char *end; good && ++line < text + size && list.n < 60; line = end) {
        end = memchr(line, '\n', (size_t)(text + size - line));
        end = end ? end : text + size;
        good = add_line(&list, line, (size_t)(end - line));
    }
    if (!good) {
        json_decref(config);
        ckpt_tensors_release(&list);
        return 0;
    }
    if (peft_merge(&merged, make_base(size % 2),
                   &(struct peft_adapter){make(&list, json_pack("{s:o}", "adapter_config", config)),
                                          "adapter", 1}, 1, &err)) {
        must(err.text[0] && !merged);
        return 0;
    }
    read_all(merged);
    if (peft_extract(&again, make_base(size % 2), merged, &opts, &err) == 0) {
        read_all(again);
        ckpt_source_close(again);
    }
    return 0;
}
