/*
 * A model directory whose index is any bytes, beside two genuine shards: refused with a
 * sentence, or a list of the shards' own tensors.  config.json is the same bytes, once to be
 * read and once to be edited.  Seed: tests/golden/hf/sharded.
 */
#include "formats/place.h"
#include "formats/hf/config_text.h"
#include "formats/hf/dir.h"
#include "libckpt/base/json.h"
#include "tests/fuzz/lib/memory_dir.h"

static const char shard[] =
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}..";

static void make_shard(unsigned char bytes[8 + sizeof shard - 1], char tensor)
{
    memset(bytes, 0, 8);
    bytes[0] = sizeof shard - 3;
    memcpy(bytes + 8, shard, sizeof shard - 1);
    bytes[10] = (unsigned char)tensor;
}

/* What an edit gives is JSON that says what was asked for. */
static void edit(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    struct ckpt_buf b;
    json_t *v;

    ckpt_buf_init(&b, SIZE_MAX);
    if (config_set(&b, (const char *)data, size, "tie_word_embeddings", "false", &err) == 0) {
        must(ckpt_json_parse(&v, (const char *)b.data, b.len, CKPT_JSON_PYTHON, &err) == 0);
        must(json_is_false(json_object_get(v, "tie_word_embeddings")));
        json_decref(v);
    }
    ckpt_buf_release(&b);
    ckpt_buf_init(&b, SIZE_MAX);
    if (config_set_dtype(&b, (const char *)data, size, "bfloat16", &err) == 0) {
        must(ckpt_json_parse(&v, (const char *)b.data, b.len, CKPT_JSON_PYTHON, &err) == 0);
        json_decref(v);
    }
    ckpt_buf_release(&b);
}

static void open_folder(const uint8_t *data, size_t size)
{
    static unsigned char x[8 + sizeof shard - 1], y[8 + sizeof shard - 1];
    const struct memory_file file[] = {
        {"config.json", data, size}, {"model.safetensors.index.json", data, size},
        {"x", x, sizeof x}, {"y", y, sizeof y},
    };
    static const struct ckpt_open_opts none;
    struct ckpt_place place = {.path = "memory",
                               .dir = memory_dir_of(file, sizeof file / sizeof file[0])};
    struct ckpt_arena arena = {0};
    struct ckpt_source *s = NULL;
    struct ckpt_entry *entry;
    struct ckpt_err err = {0};

    make_shard(x, 'a');
    make_shard(y, 'b');
    must(ckpt_dir_list(place.dir, &arena, &entry, &place.n_entry, &err) == 0);
    place.entry = entry;
    if (ckpt_format_hf.bid(&place) && ckpt_format_hf.open(&s, &place, &none, &err) == 0) {
        for (size_t i = 0; i < ckpt_source_count(s); i++)
            must(strlen(ckpt_source_tensor(s, i)->name) == 1);
    } else {
        must(err.text[0] && !s);
    }
    ckpt_source_close(s);
    place_close(&place);
    ckpt_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_folder(data, size);
    edit(data, size);
    return 0;
}
