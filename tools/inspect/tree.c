/* tree - torch files that hold more than tensors: values, and random states decoded. */
#include <stdio.h>
#include <string.h>

#include "formats/weights/torch.h"
#include "libckpt/buf.h"
#include "tools/inspect/inspect.h"

#define MAX_VALUES 200000
#define MT_WORDS   624
#define CPU_BYTES  5056         /* of torch's CPU generator */

/* A generator: its algorithm, where it stands, its first words. */
static void put_generator(struct out *o, const char *key, const char *what, int64_t position,
                          const int64_t *word, size_t n_word, const uint64_t *seed)
{
    json_t *g = json_pack("{s:s}", "algorithm", what), *words = json_array();
    char text[160], seeded[40] = "";

    json_object_set_new(g, "position", json_integer(position));
    if (seed) {
        /* A number where JSON's readers keep it exact, else text. */
        snprintf(seeded, sizeof seeded, "%llu", (unsigned long long)*seed);
        json_object_set_new(g, "seed", *seed < 1ull << 53 ? json_integer((json_int_t)*seed)
                                                          : json_string(seeded));
        snprintf(seeded, sizeof seeded, ", seed %llu", (unsigned long long)*seed);
    }
    for (size_t i = 0; i < n_word; i++)
        json_array_append_new(words, json_integer(word[i]));
    json_object_set_new(g, "first_words", words);
    snprintf(text, sizeof text, "%s: %s at %lld of %d%s, first words %lld %lld", key, what,
             (long long)position, MT_WORDS, seeded, (long long)word[0], (long long)word[1]);
    out_line(o, text);
    out_json(o, key, NULL, g);          /* programs get the parts instead of the sentence */
    json_decref(g);
}

static const struct value *at(const struct value *v, size_t i)
{
    return (value_is(v, VALUE_TUPLE) || value_is(v, VALUE_LIST)) && i < v->u.seq.n
               ? v->u.seq.item[i] : NULL;
}

/* (3, (624 words, position), gauss) */
static void put_python(struct out *o, const struct value *v)
{
    const struct value *words = at(v, 1);
    int64_t word[4] = {0}, position = 0;

    if (!words || words->u.seq.n != MT_WORDS + 1)
        return;
    for (size_t i = 0; i < 4; i++)
        value_as_int(words->u.seq.item[i], &word[i]);
    value_as_int(words->u.seq.item[MT_WORDS], &position);
    put_generator(o, "python", "MT19937", position, word, 4, NULL);
}

/* ('MT19937', array, position, has_gauss, cached) */
static void put_numpy(struct out *o, const struct value *v)
{
    const struct value *array = at(v, 1), *bytes = NULL;
    int64_t word[4] = {0}, position = 0;

    if (value_is(array, VALUE_OBJECT))
        bytes = at(array->u.obj.state, 4);
    if (!value_as_str(at(v, 0)) || !value_is(bytes, VALUE_BYTES) || bytes->u.text.n < 16)
        return;
    for (size_t i = 0; i < 4; i++) {
        struct ckpt_cursor c;

        ckpt_cursor_init(&c, bytes->u.text.p + 4 * i, 4);
        word[i] = ckpt_get_u32le(&c);
    }
    value_as_int(at(v, 2), &position);
    put_generator(o, "numpy", value_as_str(at(v, 0)), position, word, 4, NULL);
}

/* The bytes of CPUGeneratorImplState: seed, left, seeded, next, 624 words. */
static int put_cpu(struct out *o, const struct torch_archive *a, const struct value *v,
                   struct ckpt_err *err)
{
    unsigned char bytes[56];
    const struct torch_storage *s;
    struct ckpt_cursor c;
    int64_t word[4], left;
    uint64_t seed;

    torch_archive_storages(a, &s);
    if (!value_is(v, VALUE_TENSOR) || v->u.tensor->shape.rank != 1 ||
        v->u.tensor->shape.dim[0] != CPU_BYTES)
        return 0;
    if (ckpt_file_read_at(torch_archive_file(a), bytes, sizeof bytes,
                          s[v->u.tensor->storage].offset + (uint64_t)v->u.tensor->offset, err))
        return err->code;
    ckpt_cursor_init(&c, bytes, sizeof bytes);
    seed = ckpt_get_u64le(&c);
    left = ckpt_get_u32le(&c);
    ckpt_skip(&c, 12);
    for (size_t i = 0; i < 4; i++)
        word[i] = (int64_t)ckpt_get_u64le(&c);
    put_generator(o, "cpu", "MT19937", MT_WORDS - left + 1, word, 4, &seed);
    return 0;
}

int inspect_tree(struct out *o, struct ckpt_file *file, struct ckpt_err *err)
{
    struct torch_archive *a;
    const struct value *root;
    json_t *tree;
    int rc = 0;

    if (torch_archive_open_any(&a, file, err))
        return err->code;
    root = torch_archive_root(a);
    out_str(o, "format", "format", "torch");
    if (value_get(root, "python") && value_get(root, "numpy") && value_get(root, "cpu")) {
        out_str(o, "kind", "kind", "random states of a rank");
        put_python(o, value_get(root, "python"));
        put_numpy(o, value_get(root, "numpy"));
        rc = put_cpu(o, a, value_get(root, "cpu"), err);
    } else {
        tree = value_to_json(root, MAX_VALUES);
        out_json(o, "value", "value", tree);
        json_decref(tree);
    }
    torch_archive_close(a);
    return rc;
}
