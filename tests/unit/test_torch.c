/* torch: archives that torch wrote, and archives that nobody should open. */
#include "tests/unit/compare.h"

#include <sys/stat.h>

#include "formats/container/pickle.h"
#include "formats/weights/torch.h"
#include "formats/weights/torch_out.h"
#include "libckpt/json.h"

#define GOLDEN "tests/golden/torch/"

static void test_tensors_equal_what_torch_reads(void **state)
{
    static const char *const names[] = {
        "shared", "noncontig", "zero_d", "dtypes", "state_dict", "proto2", "proto3",
        "proto5", "big_endian", "no_byteorder_addrkeys", "shared_t24", "state_dict_t24",
        "zero_d_t24", "proto4_t24",
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[256], expected[256];
        struct ckpt_source *s;

        snprintf(path, sizeof path, GOLDEN "%s.pt", names[i]);
        snprintf(expected, sizeof expected, GOLDEN "%s.expected.safetensors", names[i]);
        s = must_open(path, NULL);
        assert_true(assert_holds(s, expected) > 0);
        ckpt_source_close(s);
    }
}

static int open_any(struct torch_archive **out, const char *path, struct ckpt_err *err)
{
    struct ckpt_file *f;

    memset(err, 0, sizeof *err);
    return ckpt_file_open(&f, path, 0, err) ? err->code : torch_archive_open_any(out, f, err);
}

static void test_trees_without_tensors_are_shown(void **state)
{
    struct torch_archive *a;
    struct ckpt_err err;
    json_t *json;

    (void)state;
    assert_int_equal(open_any(&a, "tests/golden/hf-trainer/plain_w1/run/checkpoint-2/"
                                  "training_args.bin", &err), 0);
    json = value_to_json(torch_archive_root(a), 10000);
    assert_string_equal(json_string_value(json_object_get(json, "$object")),
                        "transformers.training_args.TrainingArguments");
    assert_int_equal(json_integer_value(json_object_get(
        json_object_get(json, "state"), "per_device_train_batch_size")), 2);
    json_decref(json);
    torch_archive_close(a);
    assert_int_equal(open_any(&a, GOLDEN "python_mix.pt", &err), 0);
    torch_archive_close(a);
}

static void test_legacy_and_torchscript_are_named(void **state)
{
    struct ckpt_source *s;
    struct ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_open(&s, GOLDEN "legacy.pt", NULL, &err), CKPT_EUNSUPPORTED);
    assert_int_equal(ckpt_open(&s, GOLDEN "torchscript.pt", NULL, &err), CKPT_EUNSUPPORTED);
    if (!strstr(err.text, "TorchScript"))
        fail_msg("TorchScript is not named: %s", err.text);
}

static void test_ten_thousand_tensors(void **state)
{
    struct ckpt_source *s = must_open(GOLDEN "many_tensors.pt", NULL);

    (void)state;
    assert_int_equal(ckpt_source_count(s), 10000);
    ckpt_source_close(s);
}

/* -- the hostile set ------------------------------------------------------------------------- */

#define HOSTILE "tests/golden/malicious/"

/* Containers that are not read at all here: refused, whatever is in them. */
static bool is_legacy(const char *name)
{
    return strncmp(name, "legacy", 6) == 0 || strcmp(name, "ok_legacy.pt") == 0;
}

static void check_verdict(const char *kind, const char *name, const char *want)
{
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    char path[512];
    int rc;

    snprintf(path, sizeof path, HOSTILE "%s/%s", kind, name);
    rc = ckpt_open(&s, path, NULL, &err);
    ckpt_source_close(s);
    if (rc && !err.text[0])
        fail_msg("%s: refused without a word", path);
    if (is_legacy(name))
        assert_true(rc != 0);
    else if (strcmp(want, "accept") == 0 && rc)
        fail_msg("%s: refused: %s", path, err.text);
    else if (strcmp(want, "refuse") == 0 && rc == 0)
        fail_msg("%s: accepted", path);
    else if (strcmp(want, "alarm") == 0 && rc != CKPT_EREFUSED)
        fail_msg("%s: code %d instead of an alarm: %s", path, rc, err.text);
}

static void check_set(const char *kind, size_t least)
{
    const char *name;
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    json_t *verdicts, *v;
    size_t n = 0;

    assert_int_equal(ckpt_file_open(&f, HOSTILE "verdicts.json", 0, &err), 0);
    assert_int_equal(ckpt_json_read(&verdicts, f, CKPT_JSON_MAX_BYTES, 0, &err), 0);
    json_object_foreach (json_object_get(verdicts, kind), name, v) {
        check_verdict(kind, name, json_string_value(json_object_get(v, "want")));
        n++;
    }
    assert_true(n >= least);
    json_decref(verdicts);
    ckpt_file_close(f);
}

static void test_hostile_archives_meet_their_verdict(void **state)
{
    (void)state;
    check_set("pt", 100);
}

static void test_hostile_safetensors_meet_their_verdict(void **state)
{
    (void)state;
    check_set("safetensors", 60);
}

/* -- damage: every length, every bit of the structure ---------------------------------------- */

static unsigned char *load(const char *path, size_t *n)
{
    unsigned char *p = malloc(1 << 20);
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    *n = fread(p, 1, 1 << 20, f);
    fclose(f);
    return p;
}

static int open_bytes(const unsigned char *p, size_t n)
{
    struct torch_archive *a = NULL;
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    int rc;

    assert_int_equal(ckpt_file_memory(&f, p, n, "memory", &err), 0);
    rc = torch_archive_open(&a, f, &err);
    torch_archive_close(a);
    return rc;
}

static void test_every_truncation_is_refused(void **state)
{
    size_t n;
    unsigned char *p = load(GOLDEN "zero_d.pt", &n);

    (void)state;
    assert_int_equal(open_bytes(p, n), 0);
    for (size_t k = 0; k < n; k++)
        assert_true(open_bytes(p, k) != 0);
    free(p);
}

static void test_no_bit_flip_is_fatal(void **state)
{
    size_t n, refused = 0;
    unsigned char *p = load(GOLDEN "zero_d.pt", &n);

    (void)state;
    for (size_t k = 0; k < n; k++) {
        p[k] ^= (unsigned char)(1u << (k % 8));
        refused += open_bytes(p, n) != 0;
        p[k] ^= (unsigned char)(1u << (k % 8));
    }
    assert_true(refused > n / 4);       /* padding and payload may change unnoticed */
    free(p);
}

/* -- writing --------------------------------------------------------------------------------- */

static void test_what_is_written_reads_back(void **state)
{
    const char *path = "build/test-torch-out.pt";
    float data[12];
    struct ckpt_err err = {0};
    struct ckpt_arena a = {0};
    struct torch_storage st[2] = {{.dtype = CKPT_F32, .numel = 12}, {.dtype = CKPT_F32}};
    struct value_tensor t = {.dtype = CKPT_F32, .shape = {2, {3, 4}}, .stride = {4, 1}};
    struct value_tensor empty = {.dtype = CKPT_F32, .shape = {1, {0}}, .stride = {1},
                                 .storage = 1};
    struct value *root = value_dict(&a, true);
    struct torch_writer *w;
    struct ckpt_out *out;
    struct ckpt_source *s;
    float *back;

    (void)state;
    for (int i = 0; i < 12; i++)
        data[i] = (float)i * 0.5f;
    mkdir("build", 0777);
    value_set_str(&a, root, "w", value_tensor_new(&a, &t));
    value_set_str(&a, root, "none", value_tensor_new(&a, &empty));
    value_set_str(&a, root, "big", value_int(&a, INT64_C(1) << 40));
    value_set_str(&a, root, "negative", value_int(&a, -129));
    value_set_str(&a, root, "bytes", value_bytes(&a, "\0\x80\xff", 3));
    assert_int_equal(ckpt_out_create(&out, path, CKPT_REPLACE, &err), 0);
    assert_int_equal(torch_writer_new(&w, out, "archive", root, st, 2, &err), 0);
    assert_int_equal(torch_writer_put(w, 0, 8, 4, data + 8, &err), 0);  /* out of order */
    assert_int_equal(torch_writer_put(w, 0, 0, 8, data, &err), 0);
    assert_int_equal(torch_writer_commit(w, &err), 0);
    s = must_open(path, NULL);
    back = read_whole(s, ckpt_source_find(s, "w"));
    assert_memory_equal(back, data, sizeof data);
    assert_int_equal(json_integer_value(json_object_get(
        json_object_get(ckpt_source_info(s), "value"), "big")), INT64_C(1) << 40);
    assert_int_equal(json_integer_value(json_object_get(
        json_object_get(ckpt_source_info(s), "value"), "negative")), -129);
    free(back);
    ckpt_source_close(s);
    ckpt_arena_release(&a);
    remove(path);
}

static void test_a_storage_left_out_is_no_archive(void **state)
{
    struct ckpt_err err = {0};
    struct ckpt_arena a = {0};
    struct torch_storage st = {.dtype = CKPT_F32, .numel = 4};
    struct torch_writer *w;
    struct ckpt_out *out;
    float data[2] = {1, 2};
    struct stat gone;

    (void)state;
    mkdir("build", 0777);
    assert_int_equal(ckpt_out_create(&out, "build/test-half.pt", CKPT_REPLACE, &err), 0);
    assert_int_equal(torch_writer_new(&w, out, "archive", value_dict(&a, false), &st, 1, &err), 0);
    assert_int_equal(torch_writer_put(w, 0, 0, 2, data, &err), 0);
    assert_int_equal(torch_writer_commit(w, &err), CKPT_ESTATE);
    assert_int_not_equal(stat("build/test-half.pt", &gone), 0);
    ckpt_arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_equal_what_torch_reads),
        cmocka_unit_test(test_trees_without_tensors_are_shown),
        cmocka_unit_test(test_legacy_and_torchscript_are_named),
        cmocka_unit_test(test_ten_thousand_tensors),
        cmocka_unit_test(test_hostile_archives_meet_their_verdict),
        cmocka_unit_test(test_hostile_safetensors_meet_their_verdict),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_no_bit_flip_is_fatal),
        cmocka_unit_test(test_what_is_written_reads_back),
        cmocka_unit_test(test_a_storage_left_out_is_no_archive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
