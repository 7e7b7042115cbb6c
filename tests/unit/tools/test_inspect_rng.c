/* inspect's rng: states of every kind give the numbers that their own generators give next. */
#include "tests/unit/stdio_to.h"

#include "formats/torch/torch.h"
#include "formats/torch/out.h"
#include "formats/hf/trainer_files.h"
#include "tools/inspect/inspect.h"

static char path[300];

BEFORE_ALL()
{
    snprintf(path, sizeof path, "%s/rng.pth", scratch("inspect_rng"));
}

AFTER_ALL()
{
    *strrchr(path, '/') = '\0';
    scratch_remove(path);
}

static struct torch_archive *reopen(void)
{
    struct ckpt_err err = {0};
    struct torch_archive *a;
    struct ckpt_file *f;

    assert_int_equal(ckpt_file_open(&f, path, 0, &err), 0);
    if (torch_archive_open_any(&a, f, &err))
        fail_msg("%s", err.text);
    return a;
}

/* What is told of the file: JSON, and the lines for people. */
static json_t *told(char **lines)
{
    struct torch_archive *a = reopen();
    struct ckpt_err err = {0};
    struct ckpt_buf text;
    struct out *o;
    json_t *all = NULL;

    assert_true(inspect_is_rng(a));
    assert_int_equal(out_new(&o, false, &err), 0);
    assert_int_equal(inspect_rng(o, NULL, a, true, &all, &err), 0);
    assert_int_equal(out_take(o, &text, &err), 0);
    *lines = strdup(ckpt_buf_str(&text));
    ckpt_buf_release(&text);
    torch_archive_close(a);
    return all;
}

static double next_of(const json_t *all, const char *stream, size_t i)
{
    return json_real_value(json_array_get(json_object_get(json_object_get(all, stream), "next"),
                                          i));
}

/* After random.seed(42), numpy.random.seed(42), torch.manual_seed(42): CPython 3.11, numpy 2.4,
 * torch 2.15. */
TEST_ERR(fresh_streams)
{
    static const char *const stream[] = {"python", "numpy", "cpu"};
    struct rng_streams s;
    struct ckpt_out *out;
    char *lines;
    json_t *all;

    hf_rng_seed(&s, 42);
    assert_int_equal(ckpt_out_create(&out, path, 0, err), 0);
    assert_int_equal(hf_rng_write(out, &s, err), 0);
    all = told(&lines);
    assert_true(next_of(all, "python", 0) == 0.6394267984578837);
    assert_true(next_of(all, "python", 1) == 0.025010755222666936);
    assert_true(next_of(all, "numpy", 0) == 0.3745401188473625);
    assert_true(next_of(all, "numpy", 1) == 0.9507143064099162);
    assert_true((float)next_of(all, "cpu", 0) == 0.88226926326751709f);
    assert_true((float)next_of(all, "cpu", 1) == 0.91500395536422729f);
    for (size_t i = 0; i < 3; i++) {
        const json_t *g = json_object_get(all, stream[i]);

        assert_int_equal(json_integer_value(json_object_get(g, "seed")), 42);
        assert_int_equal(json_integer_value(json_object_get(g, "drawn")), 0);
        assert_int_equal(json_integer_value(json_object_get(g, "position")), 624);
    }
    assert_non_null(strstr(lines, "python: MT19937 at 624 of 624, seed 42, 0 words drawn, next "
                                  "0.639427 0.0250108 "));
    free(lines);
    json_decref(all);
    unlink(path);
}

/* Write a file with CUDA states (seed, offset) and nothing else that is well-formed. */
static void write_cuda(const uint64_t (*pair)[2], size_t n, const char *python)
{
    struct torch_storage storage[4];
    const void *data[4];
    struct ckpt_err err = {0};
    struct ckpt_arena a = {0};
    struct ckpt_out *out;
    struct value *root = value_dict(&a, false), *list = value_list(&a);

    for (size_t i = 0; i < n; i++) {
        struct value_tensor t = {.dtype = CKPT_U8, .shape = ckpt_shape_1d(16), .stride = {1},
                                 .storage = i};

        storage[i] = (struct torch_storage){.dtype = CKPT_U8, .numel = 16};
        data[i] = pair[i];
        value_append(&a, list, value_tensor_new(&a, &t));
    }
    value_set_str(&a, root, python, value_none(&a));
    value_set_str(&a, root, "numpy", value_str(&a, "not a state"));
    value_set_str(&a, root, "cpu", value_int(&a, 1));
    value_set_str(&a, root, "cuda", list);
    assert_int_equal(ckpt_out_create(&out, path, 0, &err), 0);
    assert_int_equal(torch_write(out, "archive", root, storage, data, n, &err), 0);
    ckpt_arena_release(&a);
}

/* Random123's known answers for a zero key: 6627e8d5 e169c58d ...; torch.rand on CUDA after
 * manual_seed(0) is 0.3990.  Parts that are no states are left out. */
TEST(cuda)
{
    static const uint64_t pair[3][2] = {{0, 0}, {0, 1}, {UINT64_MAX, 8}};
    json_t *all, *cuda;
    char *lines;

    write_cuda(pair, 3, "python");
    all = told(&lines);
    cuda = json_object_get(all, "cuda");
    assert_int_equal(json_array_size(cuda), 3);
    assert_true(json_real_value(json_object_get(json_array_get(cuda, 0), "next")) ==
                0x6627e8d5 * 0x1p-32 + 0x1p-33);
    assert_true(json_real_value(json_object_get(json_array_get(cuda, 1), "next")) ==
                0xe169c58d * 0x1p-32 + 0x1p-33);
    assert_string_equal(json_string_value(json_object_get(json_array_get(cuda, 2), "seed")),
                        "18446744073709551615");    /* more than readers of JSON keep */
    assert_null(json_object_get(all, "python"));
    assert_null(json_object_get(all, "numpy"));
    assert_null(json_object_get(all, "cpu"));
    assert_non_null(strstr(lines, "cuda 0: Philox4x32-10, seed 0, offset 0, next 0.399046\n"));
    free(lines);
    json_decref(all);
    unlink(path);
}

TEST(what_is_none)
{
    static const uint64_t pair[1][2] = {{0, 0}};
    struct torch_archive *a;

    write_cuda(pair, 1, "pythons");
    a = reopen();
    assert_false(inspect_is_rng(a));
    torch_archive_close(a);
    unlink(path);
}
