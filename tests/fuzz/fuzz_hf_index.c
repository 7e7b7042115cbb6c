/*
 * A model directory whose index is any bytes, beside two genuine shards: refused with a
 * sentence, or a list of the shards' own tensors.  config.json is the same bytes, once to be
 * read and once to be edited.  Seed: tests/golden/hf/sharded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/formats.h"
#include "formats/weights/config_text.h"
#include "libckpt/json.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static const char shard[] =
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}..";

static void put(const char *dir, const char *name, const void *bytes, size_t n)
{
    char path[200];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
        abort();
}

static void put_shard(const char *dir, const char *name, char tensor)
{
    unsigned char bytes[8 + sizeof shard - 1] = {sizeof shard - 3};

    memcpy(bytes + 8, shard, sizeof shard - 1);
    bytes[10] = (unsigned char)tensor;
    put(dir, name, bytes, sizeof bytes);
}

/* What an edit gives is JSON that says what was asked for. */
static void edit(const unsigned char *data, size_t size)
{
    struct ckpt_err err = {0};
    struct ckpt_buf b;
    json_t *v;

    ckpt_buf_init(&b, SIZE_MAX);
    if (config_set(&b, (const char *)data, size, "tie_word_embeddings", "false", &err) == 0) {
        if (ckpt_json_parse(&v, (const char *)b.data, b.len, CKPT_JSON_PYTHON, &err) ||
            !json_is_false(json_object_get(v, "tie_word_embeddings")))
            abort();
        json_decref(v);
    }
    ckpt_buf_release(&b);
    ckpt_buf_init(&b, SIZE_MAX);
    if (config_set_dtype(&b, (const char *)data, size, "bfloat16", &err) == 0) {
        if (ckpt_json_parse(&v, (const char *)b.data, b.len, CKPT_JSON_PYTHON, &err))
            abort();
        json_decref(v);
    }
    ckpt_buf_release(&b);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static char dir[64];
    struct ckpt_source *s;
    struct ckpt_err err = {0};

    if (!dir[0]) {
        snprintf(dir, sizeof dir, "/tmp/fuzz-hf-index-%ld", (long)getpid());
        mkdir(dir, 0700);
        put_shard(dir, "x", 'a');
        put_shard(dir, "y", 'b');
    }
    put(dir, "model.safetensors.index.json", data, size);
    put(dir, "config.json", data, size);
    if (ckpt_open(&s, dir, NULL, &err) == 0) {
        for (size_t i = 0; i < ckpt_source_count(s); i++)
            if (strlen(ckpt_source_tensor(s, i)->name) != 1)
                abort();
    } else if (!err.text[0] || s) {
        abort();
    }
    ckpt_source_close(s);
    edit(data, size);
    return 0;
}
