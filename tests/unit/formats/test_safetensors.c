/* safetensors: headers as the reference writes them, and headers that lie. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include <sys/resource.h>
#include <unistd.h>

#include "formats/hf/safetensors.h"
#include "libckpt/base/json.h"

/* A file of a header and n_data bytes that count up. */
static size_t build(unsigned char *to, size_t room, const char *header, size_t n_data)
{
    size_t at = put_header(to, room, header, n_data);

    for (size_t i = 0; i < n_data; i++)
        to[at + i] = (unsigned char)i;
    return at + n_data;
}

static int read_bytes(struct ckpt_tensors *list, const void *bytes, size_t n, json_t **metadata,
                      struct ckpt_err *err)
{
    struct ckpt_file *f;
    int rc;

    memset(list, 0, sizeof *list);
    memset(err, 0, sizeof *err);
    assert_int_equal(ckpt_file_memory(&f, bytes, n, "m", err), 0);
    rc = safetensors_read(list, f, metadata, err);
    ckpt_file_close(f);
    return rc;
}

/* The code that a header with n_data bytes of data behind it gives. */
static int code_of(const char *header, size_t n_data, struct ckpt_err *err)
{
    static unsigned char bytes[1 << 17];
    struct ckpt_tensors list;
    int rc = read_bytes(&list, bytes, build(bytes, sizeof bytes, header, n_data), NULL, err);

    ckpt_tensors_release(&list);
    return rc;
}

TEST(the_smallest_file_of_the_specification_is_read)
{
    unsigned char bytes[128];
    size_t n = build(bytes, sizeof bytes,
                     "{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 16);
    struct ckpt_tensors list;
    struct ckpt_err err;
    json_t *metadata;

    assert_int_equal(bytes[0], 0x3c);
    assert_int_equal(read_bytes(&list, bytes, n, &metadata, &err), 0);
    assert_null(metadata);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.item[0].name, "test");
    assert_int_equal(list.item[0].dtype, CKPT_I32);
    assert_int_equal(list.item[0].shape.rank, 2);
    assert_int_equal(list.item[0].numel, 4);
    assert_int_equal(list.item[0].frag[0].offset, 8 + 60);
    ckpt_tensors_release(&list);
}

TEST(names_metadata_and_order_are_kept)
{
    unsigned char bytes[1024];
    size_t n = build(bytes, sizeof bytes,
                     " \t{ \"z\\u00e9\\n\\ud83d\\ude00\\/\" : {\"shape\":[ 2 , 1 ],\"extra\":[1.5e3,"
                     "{\"a\":[true,null,\"\\\\\"]},[],{}],\"data_offsets\":[4,6],\"dtype\":\"U8\"},"
                     "\"__metadata__\":{\"k\\u0065y\":\"v\\t\",\"\":\"\"},"
                     "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                     "\"none\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[4,4]}} \n", 6);
    struct ckpt_tensors list;
    struct ckpt_err err;
    json_t *metadata;

    if (read_bytes(&list, bytes, n, &metadata, &err))
        fail_msg("%s", err.text);
    assert_int_equal(list.n, 3);
    assert_string_equal(list.item[0].name, "z\xc3\xa9\n\xf0\x9f\x98\x80/");
    assert_string_equal(list.item[1].name, "a");
    assert_int_equal(list.item[1].shape.rank, 0);
    assert_int_equal(list.item[2].n_frag, 0);
    assert_string_equal(json_string_value(json_object_get(metadata, "key")), "v\t");
    assert_int_equal(json_object_size(metadata), 2);
    json_decref(metadata);
    ckpt_tensors_release(&list);
}

#define T(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

TEST(each_fault_has_its_code_and_word)
{
    static const struct {
        const char *header;
        size_t      data;
        int         code;
        const char *reason, *says;
    } row[] = {
        {"{" T("a", "F32", "[1]", "[0,4]") "}", 4, 0, "", ""},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("\\u0061", "F32", "[1]", "[0,4]") "}", 4,
         CKPT_EFORMAT, "duplicate", "a: appears twice"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[2,6]") "}", 6, CKPT_EFORMAT,
         "overlap", "tensor b: begins at 2, the one before it ends at 4"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[5,9]") "}", 9, CKPT_EFORMAT,
         "hole", "tensor b: begins at 5, the one before it ends at 4"},
        {"{" T("a", "F32", "[1]", "[0,4]") "}", 3, CKPT_EFORMAT, "truncated",
         "tensors need 4 bytes of data, the file has 3"},
        {"{" T("a", "F32", "[1]", "[0,4]") "}", 5, CKPT_EFORMAT, "trailing", "the file has 5"},
        {"{" T("a", "F32", "[2]", "[0,4]") "}", 4, CKPT_EFORMAT, "malformed",
         "data_offsets give 4 bytes, F32 [2] has 8"},
        {"{" T("a", "F4", "[3]", "[0,1]") "}", 1, CKPT_EFORMAT, "malformed", "whole bytes"},
        {"{" T("a", "C128", "[1]", "[0,16]") "}", 16, CKPT_EUNSUPPORTED, "unsupported",
         "unknown dtype \"C128\""},
        {"{" T("a", "f32", "[1]", "[0,4]") "}", 4, CKPT_EUNSUPPORTED, "unsupported", "\"f32\""},
        {"{" T("a", "F32", "[1]", "[4,0]") "}", 4, CKPT_EFORMAT, "malformed",
         "end at 0 before they begin at 4"},
        {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, CKPT_ELIMIT,
         "budget", "more than 16 axes"},
        {"{" T("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1, CKPT_EFORMAT, "malformed",
         "below 2^63"},
        {"{" T("a", "U8", "[4294967296,4294967296,0]", "[0,0]") "}", 0, CKPT_EFORMAT, "malformed",
         "a:"},
        {"{" T("a", "U8", "[01]", "[0,1]") "}", 1, CKPT_EFORMAT, "malformed", "leading zeros"},
        {"{" T("a", "U8", "[1e0]", "[0,1]") "}", 1, CKPT_EFORMAT, "malformed", "whole number"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, CKPT_EFORMAT, "malformed",
         "\"data_offsets\" is absent"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, CKPT_EFORMAT, "duplicate",
         "dtype appears twice"},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, CKPT_EFORMAT, "duplicate", "k appears"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, CKPT_EFORMAT, "duplicate", "__metadata__"},
        {"{\"__metadata__\":{\"k\":1}}", 0, CKPT_EFORMAT, "malformed", "a string wanted"},
        {"{\"a\\u0000b\":{}}", 0, CKPT_EFORMAT, "malformed", "escape"},
        {"{\"a\\ud800\":{}}", 0, CKPT_EFORMAT, "malformed", "surrogate"},
        {"{} x", 0, CKPT_EFORMAT, "malformed", "nothing but blanks"},
        {"{\"a\":{\"x\":[1,]}}", 0, CKPT_EFORMAT, "malformed", "a value wanted"},
        {"", 0, CKPT_EFORMAT, "malformed", "header ends at byte 0"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_err err;
        int rc = code_of(row[i].header, row[i].data, &err);

        if (rc != row[i].code || strcmp(err.reason, row[i].reason) != 0 ||
            !strstr(err.text, row[i].says))
            fail_msg("%s: code %d (%s) %s", row[i].header, rc, err.reason, err.text);
    }
}

TEST(limits_come_before_memory)
{
    static const unsigned char over[16] = {0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0, '{', '}'};
    static const unsigned char past[16] = {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    static char deep[200000];
    struct ckpt_tensors list;
    struct ckpt_err err;

    assert_int_equal(read_bytes(&list, over, sizeof over, NULL, &err), CKPT_ELIMIT);
    ckpt_tensors_release(&list);
    assert_int_equal(read_bytes(&list, past, sizeof past, NULL, &err), CKPT_EFORMAT);
    assert_string_equal(err.reason, "truncated");
    ckpt_tensors_release(&list);
    memcpy(deep, "{\"a\":{\"x\":", 10);
    memset(deep + 10, '[', 100000);
    assert_int_equal(code_of(deep, 0, &err), CKPT_ELIMIT);
}

TEST(nul_padding_has_its_own_word)
{
    unsigned char bytes[] = {4, 0, 0, 0, 0, 0, 0, 0, '{', '}', 0, 0};
    struct ckpt_tensors list;
    struct ckpt_err err;

    assert_int_equal(read_bytes(&list, bytes, sizeof bytes, NULL, &err), CKPT_EFORMAT);
    if (!strstr(err.text, "padded with NUL"))
        fail_msg("%s", err.text);
    ckpt_tensors_release(&list);
}

static const char plain[] =
    "{\"__metadata__\":{\"format\":\"pt\"}," T("a.weight", "BF16", "[2,3]", "[0,12]") ","
    T("b", "I64", "[]", "[12,20]") "," T("c", "U8", "[0]", "[20,20]") "}  ";

TEST(every_truncation_is_refused)
{
    unsigned char bytes[1024];
    size_t n = build(bytes, sizeof bytes, plain, 20);
    struct ckpt_tensors list;
    struct ckpt_err err;

    assert_int_equal(read_bytes(&list, bytes, n, NULL, &err), 0);
    ckpt_tensors_release(&list);
    for (size_t k = 0; k < n; k++) {
        unsigned char *cut = malloc(k ? k : 1);     /* so that a sanitizer sees the end */

        memcpy(cut, bytes, k);
        assert_int_equal(read_bytes(&list, cut, k, NULL, &err), CKPT_EFORMAT);
        ckpt_tensors_release(&list);
        free(cut);
    }
}

/* What an accepted file must hold, however it came about: JSON, and tensors that tile it. */
static void assert_sound(const unsigned char *bytes, size_t n, const struct ckpt_tensors *list)
{
    uint64_t header = 0, sum = 0;
    json_error_t why;
    json_t *v;

    for (int i = 7; i >= 0; i--)
        header = header << 8 | bytes[i];
    v = json_loadb((const char *)bytes + 8, (size_t)header, 0, &why);
    if (!v)
        fail_msg("accepted what is no JSON: %.*s", (int)header, (const char *)bytes + 8);
    json_decref(v);
    for (size_t i = 0; i < list->n; i++) {
        sum += ckpt_tensor_bytes(&list->item[i]);
        for (size_t f = 0; f < list->item[i].n_frag; f++)
            assert_true(list->item[i].frag[f].offset + ckpt_tensor_bytes(&list->item[i]) <= n);
    }
    assert_int_equal(sum, n - 8 - header);
}

TEST(no_changed_byte_is_believed)
{
    unsigned char bytes[1024];
    size_t n = build(bytes, sizeof bytes, plain, 20), refused = 0, tried = 0;

    for (size_t k = 0; k < n - 20; k++)
        for (int bit = 0; bit < 8; bit++) {
            struct ckpt_tensors list;
            struct ckpt_err err;

            bytes[k] ^= (unsigned char)(1 << bit);
            if (read_bytes(&list, bytes, n, NULL, &err) == 0)
                assert_sound(bytes, n, &list);
            else
                refused++;
            ckpt_tensors_release(&list);
            bytes[k] ^= (unsigned char)(1 << bit);
            tried++;
        }
    assert_true(refused > tried / 2);
}

/* Our parser and jansson's must agree on what is JSON, over many small damages. */
TEST(random_damage_is_judged_as_json_is)
{
    static const char spice[] = "{}[]\",:\\u0019aeE.-+ \ntrue";
    unsigned char bytes[1024];
    uint32_t seed = 12345;
    size_t accepted = 0;

    for (int round = 0; round < 20000; round++) {
        size_t n = build(bytes, sizeof bytes, plain, 20);
        struct ckpt_tensors list;
        struct ckpt_err err;

        for (int k = 0; k < 1 + round % 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[8 + (seed >> 8) % (n - 28)] =
                (unsigned char)spice[(seed >> 24) % (sizeof spice - 1)];
        }
        if (read_bytes(&list, bytes, n, NULL, &err) == 0) {
            assert_sound(bytes, n, &list);
            accepted++;
        }
        ckpt_tensors_release(&list);
    }
    assert_true(accepted > 100);
}

TEST(a_source_reads_and_locates)
{
    struct ckpt_source *s = must_open("tests/golden/torch/zero_d.expected.safetensors", NULL);
    struct ckpt_extent e;
    size_t located = 0;

    assert_string_equal(ckpt_source_format(s), "safetensors");
    for (size_t i = 0; i < ckpt_source_count(s); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s, i);

        free(read_whole(s, i));
        located += t->numel > 0 && ckpt_source_locate(s, i, 0, t->numel, &e);
        assert_int_equal(t->alias_of, i);
    }
    assert_true(located > 0);
    ckpt_source_close(s);
}

TEST(ten_thousand_tensors_open)
{
    size_t n = 10000, room = n * 160, at = 1;
    char *header = calloc(room, 1), *bytes = calloc(room, 1);
    struct ckpt_tensors list;
    struct ckpt_err err;

    header[0] = '{';
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(header + at, room - at,
                               "%s\"model.layers.%zu.mlp.experts.%zu.down_proj.weight\":{\"dtype\":"
                              "\"BF16\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}", i ? "," : "",
                              i / 128, i % 128, 2 * i, 2 * i + 2);
    header[at] = '}';
    at = put_header(bytes, room, header, 2 * n);
    assert_int_equal(read_bytes(&list, bytes, at + 2 * n, NULL, &err), 0);
    assert_int_equal(list.n, n);
    assert_int_equal(ckpt_tensors_find(&list, "model.layers.78.mlp.experts.15.down_proj.weight"),
                     9999);
    ckpt_tensors_release(&list);
    free(header);
    free(bytes);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true          /* memory is not the program's own */
#else
#define SANITIZED false
#endif

static long resident_kb(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
}

/* A header of 11 MB takes 4 times as much, read and written again.  P7 */
TEST(memory_of_a_large_header)
{
    const char *from = "build/test_safetensors.many", *to = "build/test_safetensors.again";
    struct ckpt_create_opts opts = {.flags = CKPT_REPLACE};
    FILE *f = fopen(from, "w");
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};
    const float one[4] = {1, 2, 3, 4};
    struct ckpt_file *file;
    struct ckpt_sink *sink;
    unsigned char size[8];
    long n = 0, before;

    assert_non_null(f);
    fprintf(f, "........{");
    for (int i = 0; i < 100000; i++)
        n += fprintf(f, "%s\"model.layers.%d.mlp.experts.%d.down_proj.weight\":{\"dtype\":\"F32\","
                     "\"shape\":[2,2],\"data_offsets\":[%d,%d]}", i ? "," : "", i / 100, i % 100,
                     16 * i, 16 * i + 16);
    fprintf(f, "}");
    n += 2;
    for (int i = 0; i < 100000; i++)
        assert_int_equal(fwrite(one, sizeof one, 1, f), 1);
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)((uint64_t)n >> 8 * i);
    rewind(f);
    assert_int_equal(fwrite(size, sizeof size, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    before = resident_kb();
    assert_int_equal(ckpt_file_open(&file, from, 0, &err), 0);
    assert_int_equal(safetensors_read(&list, file, NULL, &err), 0);
    assert_int_equal(list.n, 100000);
    assert_int_equal(ckpt_format_safetensors.create(&sink, to, &list, &opts, &err), 0);
    for (size_t i = 0; i < list.n; i++)
        assert_int_equal(ckpt_sink_write(sink, i, 0, 4, one, &err), 0);
    assert_int_equal(ckpt_sink_commit(sink, &err), 0);
    ckpt_tensors_release(&list);
    ckpt_file_close(file);
    unlink(from);
    unlink(to);
    if (!SANITIZED && resident_kb() - before > 4 * n / 1024 + 1024)
        fail_msg("%ld KiB for a header of %ld", resident_kb() - before, n / 1024);
}
