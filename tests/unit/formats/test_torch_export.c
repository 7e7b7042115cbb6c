/* torch_export: weights and constants of a .pt2; configs that lie are refused with a sentence. */
#include "tests/unit/compare.h"

#include "formats/torch/export.h"
#include "libckpt/base/crc32.h"

#define P "tests/golden/torch/"

TEST(a_program_holds_its_state)
{
    struct ckpt_source *s = must_open(P "export.pt2", NULL);

    assert_int_equal(assert_holds(s, P "export.expected.safetensors"), ckpt_source_count(s));
    assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "steps"))->kind, CKPT_BUFFER);
    assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "l.bias"))->kind, CKPT_WEIGHT);
    ckpt_source_close(s);
}

/* The list of an archive with this config, and 64 bytes of zeros as weight_0. */
static int list_of(struct ckpt_tensors *list, const char *config, struct ckpt_err *err)
{
    static char text[4096];
    size_t n = strlen(config);
    struct zip_entry entry[] = {
        {.name = "archive_format", .offset = 0, .size = 0},
        {.name = "data/weights/m_weights_config.json", .offset = 64, .size = n, .plain = n},
        {.name = "data/weights/weight_0", .offset = 0, .size = 64, .plain = 64},
    };
    struct zip z = {.entry = entry, .n = 3};
    int rc;

    memset(text, 0, 64);
    memcpy(text + 64, config, n);
    entry[1].crc = ckpt_crc32(0, config, n);
    if (ckpt_file_memory(&z.file, text, 64 + n, "x.pt2", err))
        return err->code;
    rc = torch_export_list(list, &z, err);
    ckpt_file_close(z.file);
    return rc;
}

#define W(meta) "{\"config\":{\"w\":{\"path_name\":\"weight_0\",\"is_param\":true,\"use_pickle\":" \
                "false,\"tensor_meta\":{" meta "}}}}"
#define I(n) "{\"as_int\":" #n "}"

TEST(configs_that_lie_are_refused)
{
    static const struct { const char *config, *says; } row[] = {
        {W("\"dtype\":7,\"sizes\":[" I(17) "],\"strides\":[" I(1) "],\"storage_offset\":" I(0)),
         "element 16 of F32 lies outside"},
        {W("\"dtype\":7,\"sizes\":[" I(2) "],\"strides\":[" I(16) "],\"storage_offset\":" I(0)),
         "lies outside"},
        {W("\"dtype\":7,\"sizes\":[" I(2) "],\"strides\":[" I(1) "],\"storage_offset\":" I(15)),
         "lies outside"},
        {W("\"dtype\":7,\"sizes\":[" I(2) "],\"strides\":[],\"storage_offset\":" I(0)),
         "0 strides for 1 axes"},
        {W("\"dtype\":7,\"sizes\":[" I(-2) "],\"strides\":[" I(1) "],\"storage_offset\":" I(0)),
         "sizes is no number"},
        {W("\"dtype\":7,\"sizes\":[{\"as_expr\":\"s0\"}],\"strides\":[],\"storage_offset\":" I(0)),
         "sizes is no number"},
        {W("\"dtype\":7,\"sizes\":[" I(3) "," I(4611686018427387904) "],\"strides\":[]"),
         "its size overflows"},
        {W("\"dtype\":7,\"sizes\":[" I(3) "," I(3) "],\"strides\":[" I(4611686018427387904) ","
           I(4611686018427387904) "],\"storage_offset\":" I(0)), "beyond all sizes"},
        {W("\"dtype\":99,\"sizes\":[],\"strides\":[],\"storage_offset\":" I(0)), "dtype 99"},
        {W("\"dtype\":-1,\"sizes\":[],\"strides\":[],\"storage_offset\":" I(0)), "dtype -1"},
        {W("\"dtype\":\"x\",\"sizes\":[]"), "dtype"},
        {"{\"config\":{\"w\":{\"path_name\":\"../weight_0\",\"tensor_meta\":{\"dtype\":7,"
         "\"sizes\":[],\"strides\":[],\"storage_offset\":{\"as_int\":0}}}}}", "is not there"},
        {"{\"config\":[]}", "config"},
        {"{", "m_weights_config.json"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_tensors list = {0};
        struct ckpt_err err = {0};

        if (list_of(&list, row[i].config, &err) == 0 || !strstr(err.text, row[i].says))
            fail_msg("%s: %d %s", row[i].config, err.code, err.text);
        ckpt_tensors_release(&list);
    }
}

TEST(a_pickled_tensor_is_listed)
{
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};

    assert_int_equal(list_of(&list, "{\"config\":{\"w\":{\"path_name\":\"weight_0\",\"use_pickle\":"
                             "true,\"tensor_meta\":{\"dtype\":7,\"sizes\":[{\"as_int\":3}]}}}}",
                             &err), 0);
    assert_int_equal(list.n, 1);
    assert_non_null(list.item[0].unread);
    ckpt_tensors_release(&list);
}

TEST(compiled_code_is_named)
{
    struct zip_entry entry[] = {{.name = "archive_format"}, {.name = "data/aotinductor/m/m.so"}};
    struct zip z = {.entry = entry, .n = 2};
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};

    assert_int_equal(torch_export_list(&list, &z, &err), CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "a package of AOTInductor"));
    assert_true(err.hint[0]);
}
