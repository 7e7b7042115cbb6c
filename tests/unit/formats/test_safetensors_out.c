/* safetensors_out: the bytes that the reference writes, whole or not at all. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN "tests/golden/safetensors/"
#define TMP    "build/test-safetensors-out.safetensors"

static int write_out(struct ckpt_source *src, const char *path, struct ckpt_create_opts opts,
                     struct ckpt_err *err)
{
    return write_to("safetensors", path, src, &opts, 4096, err);
}

TEST(bytes_are_those_of_the_reference)
{
    static const char *const files[] = {GOLDEN "dtypes.safetensors", GOLDEN "names.safetensors",
                                        "tests/golden/lora/llama-embed/base/model.safetensors"};
    struct ckpt_err err;

    for (size_t i = 0; i < 3; i++) {
        struct ckpt_source *s = must_open(files[i], NULL);

        if (write_out(s, TMP, (struct ckpt_create_opts){.flags = CKPT_REPLACE},
                      &err))
            fail_msg("%s: %s", files[i], err.text);
        ckpt_source_close(s);
        assert_same_file(files[i], TMP);
    }
    unlink(TMP);
}

TEST(a_stream_has_the_same_bytes)
{
    struct ckpt_source *s = must_open(GOLDEN "dtypes.safetensors", NULL);
    int fd = open(TMP, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    struct ckpt_err err;

    assert_true(fd >= 0);
    if (write_out(s, "-", (struct ckpt_create_opts){.stream_fd = fd}, &err))
        fail_msg("%s", err.text);
    close(fd);
    ckpt_source_close(s);
    assert_same_file(GOLDEN "dtypes.safetensors", TMP);
    unlink(TMP);
}

TEST(metadata_is_sorted_and_always_has_a_format)
{
    struct ckpt_source *s = must_open(GOLDEN "names.safetensors", NULL), *back;
    json_t *m = json_pack("{s:s,s:s}", "zeta", "1", "alpha", "\x01 \"");
    struct ckpt_err err;
    char *p;
    size_t n;

    assert_int_equal(write_out(s, TMP, (struct ckpt_create_opts){
        .flags = CKPT_REPLACE, .metadata = m}, &err), 0);
    p = slurp(TMP, &n);
    assert_memory_equal(p + 8, "{\"__metadata__\":{\"alpha\":\"\\u0001 \\\"\",\"format\":\"pt\","
                               "\"zeta\":\"1\"},", 56);
    assert_int_equal(p[0] % 8, 0);
    back = must_open(TMP, NULL);
    assert_string_equal(json_string_value(json_object_get(
        json_object_get(ckpt_source_info(back), "metadata"), "alpha")), "\x01 \"");
    assert_int_equal(json_object_size(m), 2);
    ckpt_source_close(back);
    ckpt_source_close(s);
    json_decref(m);
    free(p);
    unlink(TMP);
}

static struct ckpt_tensors list_of(const char *name, enum ckpt_dtype dtype, int64_t numel)
{
    struct ckpt_tensors list = {0};
    struct ckpt_shape shape = ckpt_shape_1d(numel);
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_tensors_add(&list, NULL, name, strlen(name), dtype, &shape, NULL, 0,
                                      false, &err), 0);
    return list;
}

static int create(struct ckpt_sink **sink, const struct ckpt_tensors *list, struct ckpt_err *err)
{
    memset(err, 0, sizeof *err);
    return ckpt_create(sink, "safetensors", TMP, list,
                       &(struct ckpt_create_opts){0}, err);
}

TEST(what_the_format_lacks_is_refused)
{
    static const enum ckpt_dtype lacking[] = {CKPT_C128, CKPT_C32, CKPT_QI8};
    struct ckpt_tensors list;
    struct ckpt_sink *sink;
    struct ckpt_err err;
    struct stat st;

    unlink(TMP);
    for (size_t i = 0; i < 3; i++) {
        list = list_of("w", lacking[i], 2);
        assert_int_equal(create(&sink, &list, &err), CKPT_EUNSUPPORTED);
        assert_non_null(strstr(err.text, ckpt_dtype_name(lacking[i])));
        ckpt_tensors_release(&list);
    }
    list = list_of("__metadata__", CKPT_F32, 2);
    assert_int_equal(create(&sink, &list, &err), CKPT_EUNSUPPORTED);
    ckpt_tensors_release(&list);
    assert_int_equal(stat(TMP, &st), -1);
}

TEST(half_a_file_never_appears)
{
    struct ckpt_tensors list = list_of("w", CKPT_F32, 4);
    float data[4] = {1, 2, 3, 4};
    struct ckpt_sink *sink;
    struct ckpt_err err;
    struct stat st;

    unlink(TMP);
    assert_int_equal(create(&sink, &list, &err), 0);
    assert_int_equal(ckpt_sink_write(sink, 0, 0, 3, data, &err), 0);
    assert_int_equal(stat(TMP, &st), -1);
    assert_int_equal(ckpt_sink_commit(sink, &err), CKPT_ESTATE);
    assert_int_equal(stat(TMP, &st), -1);
    assert_int_equal(create(&sink, &list, &err), 0);
    ckpt_sink_abort(sink);
    assert_int_equal(stat(TMP, &st), -1);
    assert_int_equal(create(&sink, &list, &err), 0);
    assert_int_equal(ckpt_sink_write(sink, 0, 0, 4, data, &err), 0);
    assert_int_equal(ckpt_sink_commit(sink, &err), 0);
    assert_int_equal(create(&sink, &list, &err), CKPT_ECREATE);     /* it is there already */
    ckpt_tensors_release(&list);
    unlink(TMP);
}

TEST(no_tensors_make_a_valid_file)
{
    struct ckpt_tensors list = {0};
    struct ckpt_source *s;
    struct ckpt_sink *sink;
    struct ckpt_err err;

    unlink(TMP);
    assert_int_equal(create(&sink, &list, &err), 0);
    assert_int_equal(ckpt_sink_commit(sink, &err), 0);
    s = must_open(TMP, NULL);
    assert_int_equal(ckpt_source_count(s), 0);
    ckpt_source_close(s);
    unlink(TMP);
}
