/* gguf: files of the reference writer, values of every block type, headers that lie. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/gguf/gguf.h"
#include "libckpt/base/buf.h"

#define G "tests/golden/gguf/"

TEST(values_of_every_type_are_the_reference_s)
{
    struct ckpt_source *s = must_open(G "types.gguf", NULL);
    struct ckpt_source *w = must_open(G "types.safetensors", NULL);
    const struct ckpt_tensor *t;

    assert_int_equal(ckpt_source_count(w), 24);
    assert_int_equal(ckpt_source_count(s), 25);
    for (size_t i = 0; i < ckpt_source_count(w); i++) {
        const char *name = ckpt_source_tensor(w, i)->name;
        void *a, *b;

        t = ckpt_source_tensor(s, ckpt_source_find(s, name));
        if (strcmp(name, "BF16") != 0) {
            assert_same_tensor(s, name, w, i, "types");
            assert_int_equal(t->stored != NULL, name[0] == 'Q' || strchr("TMN", name[0]) ||
                                                    strncmp(name, "IQ", 2) == 0);
            continue;
        }
        a = read_whole(s, ckpt_source_find(s, name));   /* the expected ones are bits */
        b = read_whole(w, i);
        assert_int_equal(t->dtype, CKPT_BF16);
        assert_memory_equal(a, b, 16);
        free(a);
        free(b);
    }
    t = ckpt_source_tensor(s, ckpt_source_find(s, "Q4_K"));
    assert_string_equal(t->stored, "Q4_K");
    assert_int_equal(t->stored_bytes, 288);
    ckpt_source_close(s);
    ckpt_source_close(w);
}

TEST(any_range_of_a_packed_tensor_is_that_of_the_whole)
{
    struct ckpt_source *s = must_open(G "types.gguf", NULL);
    static const char *const names[] = {"Q4_0", "Q6_K", "NVFP4"};
    struct ckpt_extent e;

    for (size_t k = 0; k < 3; k++) {
        size_t i = ckpt_source_find(s, names[k]);
        int64_t n = ckpt_source_tensor(s, i)->numel;

        assert_false(ckpt_source_locate(s, i, 0, n, &e));
        assert_any_range(s, i, 13, 29, n + 1);
    }
    ckpt_source_close(s);
}

TEST(blocks_without_values_are_listed_and_refused)
{
    struct ckpt_source *s = must_open(G "types.gguf", NULL);
    size_t i = ckpt_source_find(s, "IQ2_XXS");
    struct ckpt_err err = {0};
    float x;

    assert_string_equal(ckpt_source_tensor(s, i)->stored, "IQ2_XXS");
    assert_int_equal(ckpt_source_read(s, i, 0, 1, &x, &err), CKPT_EUNSUPPORTED);
    assert_string_equal(err.text, "tensor IQ2_XXS: the values of IQ2_XXS blocks are not read");
    ckpt_source_close(s);
}

static const json_t *key(const struct ckpt_source *s, const char *name)
{
    return json_object_get(json_object_get(ckpt_source_info(s), "keys"), name);
}

TEST(keys_of_every_kind_are_told)
{
    static const struct { const char *key; int64_t value; } integers[] = {
        {"k.u8", 200}, {"k.i8", -100}, {"k.u16", 60000}, {"k.i16", -30000}, {"k.u32", 4000000000},
        {"k.i32", -2000000000}, {"k.u64", 9000000000}, {"k.i64", -9000000000},
    };
    struct ckpt_source *s = must_open(G "kinds.gguf", NULL);
    const struct ckpt_tensor *t = ckpt_source_tensor(s, ckpt_source_find(s, "rows"));
    uint16_t *rows;

    assert_string_equal(json_string_value(json_object_get(ckpt_source_info(s), "architecture")),
                        "test");
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        assert_true(json_integer_value(key(s, integers[i].key)) == integers[i].value);
    assert_true(json_real_value(key(s, "k.f32")) == (double)0.1f);
    assert_true(json_real_value(key(s, "k.f64")) == 0.1);
    assert_true(json_is_true(key(s, "k.yes")) && json_is_false(key(s, "k.no")));
    assert_string_equal(json_string_value(key(s, "k.text")), "h\xc3\xa9 \xf0\x9f\x98\x80\n");
    assert_int_equal(json_array_size(key(s, "k.few")), 3);
    assert_true(json_real_value(json_array_get(key(s, "k.floats"), 1)) == -1.5);
    assert_string_equal(json_string_value(json_array_get(key(s, "k.names"), 2)), "b\xc3\xa9");
    assert_string_equal(json_string_value(key(s, "k.many")), "string[500]");
    assert_string_equal(json_string_value(key(s, "k.numbers")), "i32[1000]");
    assert_string_equal(json_string_value(key(s, "k.long")), "string of 70000 bytes");
    assert_int_equal(t->shape.rank, 3);
    assert_int_equal(t->shape.dim[0], 2);
    assert_int_equal(t->shape.dim[2], 4);
    rows = read_whole(s, ckpt_source_find(s, "rows"));
    assert_int_equal(rows[23], 0x4dc0);                 /* 23 */
    free(rows);
    ckpt_source_close(s);
}

TEST(a_split_model_is_one)
{
    static const char *const name[] = {"t00", "t01", "t10"};
    static const float value[] = {0, 1, 10};

    for (int part = 1; part <= 2; part++) {
        struct ckpt_source *s = must_open(part == 1 ? G "part-00001-of-00002.gguf"
                                                    : G "part-00002-of-00002.gguf", NULL);

        assert_int_equal(ckpt_source_count(s), 3);
        assert_int_equal(json_integer_value(json_object_get(ckpt_source_info(s), "files")), 2);
        for (size_t k = 0; k < 3; k++) {
            float *x = read_whole(s, ckpt_source_find(s, name[k]));

            assert_true(x[5] == value[k]);
            free(x);
        }
        ckpt_source_close(s);
    }
}

TEST(a_split_model_lacking_a_part_is_told)
{
    static const struct { const char *from, *to, *open; int code; const char *says; } step[] = {
        {"part-00001-of-00002", "m-00001-of-00002", "m-00001-of-00002", CKPT_ENOTFOUND,
         "m-00002-of-00002.gguf"},
        {"part-00001-of-00002", "m-00002-of-00002", "m-00001-of-00002", CKPT_EMISMATCH,
         "is not part 2 of 2"},
        {"part-00001-of-00002", "m", "m", CKPT_ENOTFOUND,
         "it is not called NAME-00001-of-00002.gguf"},
    };
    const char *dir = scratch("gguf-split");

    for (size_t i = 0; i < sizeof step / sizeof step[0]; i++) {
        char path[400], from[400];
        struct ckpt_source *s;
        struct ckpt_err err = {0};

        snprintf(from, sizeof from, G "%s.gguf", step[i].from);
        snprintf(path, sizeof path, "%s/%s.gguf", dir, step[i].to);
        put_copy(path, from);
        snprintf(path, sizeof path, "%s/%s.gguf", dir, step[i].open);
        assert_int_equal(ckpt_open(&s, path, NULL, &err), step[i].code);
        assert_non_null(strstr(err.text, step[i].says));
    }
    scratch_remove(dir);
}

/* -- headers that lie ------------------------------------------------------------------------ */

static void put_name(struct ckpt_buf *b, const char *s)
{
    ckpt_buf_put_u64le(b, strlen(s));
    ckpt_buf_put_str(b, s);
}

/* One key of a u32, one tensor [n] of a type at an offset, and bytes of data. */
struct lie {
    uint32_t    version, kind, type;
    uint64_t    n_row, n_pair, dim, offset, data;
    const char *key;
    uint32_t    value;
    int         code;
    const char *reason, *says;
};

static int open_bytes(const struct ckpt_buf *b, struct ckpt_err *err)
{
    struct ckpt_source *s;
    int rc;

    put_bytes("build/gguf-lie", b->data, b->len);
    memset(err, 0, sizeof *err);
    rc = ckpt_open_as(&s, "gguf", "build/gguf-lie", NULL, err);
    ckpt_source_close(s);
    remove("build/gguf-lie");
    return rc;
}

static void build(struct ckpt_buf *b, const struct lie *l)
{
    ckpt_buf_init(b, SIZE_MAX);
    ckpt_buf_put_str(b, "GGUF");
    ckpt_buf_put_u32le(b, l->version);
    ckpt_buf_put_u64le(b, l->n_row);
    ckpt_buf_put_u64le(b, l->n_pair);
    put_name(b, l->key);
    ckpt_buf_put_u32le(b, l->kind);
    ckpt_buf_put_u32le(b, l->value);
    put_name(b, "t");
    ckpt_buf_put_u32le(b, 1);
    ckpt_buf_put_u64le(b, l->dim);
    ckpt_buf_put_u32le(b, l->type);
    ckpt_buf_put_u64le(b, l->offset);
    while (b->len % 32)
        ckpt_buf_put_u8(b, 0);
    for (uint64_t i = 0; i < l->data; i++)
        ckpt_buf_put_u8(b, (uint8_t)i);
}

#define OK 3, GGUF_U32, 0, 1, 1

TEST(each_fault_has_its_code_and_word)
{
    static const struct lie row[] = {
        {OK, 8, 0, 32, "k", 1, 0, "", ""},
        {2, GGUF_U32, 0, 1, 1, 8, 0, 32, "k", 1, 0, "", ""},
        {1, GGUF_U32, 0, 1, 1, 8, 0, 32, "k", 1, CKPT_EUNSUPPORTED, "unsupported", "version 1"},
        {4, GGUF_U32, 0, 1, 1, 8, 0, 32, "k", 1, CKPT_EUNSUPPORTED, "unsupported", "version 4"},
        {0x3000000, GGUF_U32, 0, 1, 1, 8, 0, 32, "k", 1, CKPT_EUNSUPPORTED, "unsupported",
         "big-endian"},
        {3, 13, 0, 1, 1, 8, 0, 32, "k", 1, CKPT_EFORMAT, "malformed", "key k: kind 13"},
        {3, GGUF_U32, 0, 0, 0, 8, 0, 32, "k", 1, CKPT_EFORMAT, "malformed", "neither"},
        {3, GGUF_U32, 0, 5, 1, 8, 0, 32, "k", 1, CKPT_EFORMAT, "truncated", "5 tensors"},
        {3, GGUF_U32, 0, 1, 50, 8, 0, 32, "k", 1, CKPT_EFORMAT, "truncated", "50 keys"},
        {3, GGUF_U32, 0, UINT64_MAX, 1, 8, 0, 32, "k", 1, CKPT_ELIMIT, "budget", "tensors"},
        {3, GGUF_U32, 0, 1, UINT64_MAX, 8, 0, 32, "k", 1, CKPT_ELIMIT, "budget", "keys"},
        {3, GGUF_BOOL, 0, 1, 1, 8, 0, 32, "k", 2, CKPT_EFORMAT, "malformed", "a bool is 2"},
        {3, GGUF_ARRAY, 0, 1, 1, 8, 0, 32, "k", GGUF_ARRAY, CKPT_EUNSUPPORTED, "unsupported",
         "an array of kind 9"},
        {3, GGUF_STRING, 0, 1, 1, 8, 0, 32, "k", 200, CKPT_EFORMAT, "truncated", "key k: a string"},
        {OK, 8, 0, 32, "general.alignment", 24, CKPT_EFORMAT, "malformed", "power of two"},
        {OK, 8, 0, 32, "general.alignment", 0, CKPT_EFORMAT, "malformed", "power of two"},
        {OK, 8, 0, 31, "k", 1, CKPT_EFORMAT, "truncated", "tensor t: needs 32 bytes at 0"},
        {OK, 8, 0, 64, "k", 1, CKPT_EFORMAT, "trailing", "the file has 64"},
        {OK, 8, 32, 64, "k", 1, CKPT_EFORMAT, "hole", "begins at 32"},
        {OK, UINT64_MAX, 0, 32, "k", 1, CKPT_EFORMAT, "malformed", "out of range"},
        {OK, INT64_MAX, 0, 32, "k", 1, CKPT_EFORMAT, "malformed", "out of range"},
        {OK, UINT64_C(1) << 40, 0, 32, "k", 1, CKPT_EFORMAT, "truncated", "tensor t: needs"},
        {3, GGUF_U32, 8, 1, 1, 8, 0, 32, "k", 1, CKPT_EFORMAT, "malformed",
         "rows of 8 elements in Q8_0 blocks of 32"},
        {3, GGUF_U32, 4, 1, 1, 32, 0, 32, "k", 1, CKPT_EUNSUPPORTED, "unsupported", "type 4"},
        {3, GGUF_U32, 9, 1, 1, 32, 0, 32, "k", 1, CKPT_EUNSUPPORTED, "unsupported", "type Q8_1"},
        {3, GGUF_U32, 999, 1, 1, 32, 0, 32, "k", 1, CKPT_EUNSUPPORTED, "unsupported",
         "type 999"},
        {OK, 0, 0, 0, "k", 1, 0, "", ""},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_err err;
        struct ckpt_buf b;
        int rc;

        build(&b, &row[i]);
        rc = open_bytes(&b, &err);
        if (rc != row[i].code || (rc && (!strstr(err.text, row[i].says) ||
                                         strcmp(err.reason, row[i].reason) != 0)))
            fail_msg("row %zu: code %d (%s): %s", i, rc, err.reason, err.text);
        ckpt_buf_release(&b);
    }
}

TEST(names_repeated_are_refused)
{
    for (int tensors = 0; tensors < 2; tensors++) {
        struct ckpt_err err;
        struct ckpt_buf b;

        ckpt_buf_init(&b, SIZE_MAX);
        ckpt_buf_put_str(&b, "GGUF");
        ckpt_buf_put_u32le(&b, 3);
        ckpt_buf_put_u64le(&b, tensors ? 2 : 0);
        ckpt_buf_put_u64le(&b, tensors ? 0 : 2);
        for (uint64_t i = 0; i < 2; i++) {
            put_name(&b, "t");
            ckpt_buf_put_u32le(&b, tensors ? 0 : GGUF_U32);
            ckpt_buf_put_u32le(&b, 0);          /* the type F32, or a value */
            if (tensors)
                ckpt_buf_put_u64le(&b, 32 * i);
        }
        while (tensors && b.len % 32)
            ckpt_buf_put_u8(&b, 0);
        for (int i = 0; tensors && i < 36; i++)
            ckpt_buf_put_u8(&b, 0);
        assert_int_equal(open_bytes(&b, &err), CKPT_EFORMAT);
        assert_string_equal(err.reason, "duplicate");
        ckpt_buf_release(&b);
    }
}

/* A file cut anywhere is refused, or is a header whose data is not needed. */
TEST(a_file_cut_short_is_refused_at_every_byte)
{
    struct ckpt_err err;
    struct ckpt_buf b;
    size_t n;
    char *bytes = slurp(G "types.gguf", &n);

    for (size_t cut = 0; cut + 32 < n; cut += cut < 2000 ? 3 : 61) {
        b = (struct ckpt_buf){.data = (unsigned char *)bytes, .len = cut};
        if (open_bytes(&b, &err) != CKPT_EFORMAT || !err.text[0])
            fail_msg("cut at %zu: %s", cut, err.text);
    }
    free(bytes);
}
