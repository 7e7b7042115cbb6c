/* torch: archives that torch wrote, and archives that nobody should open. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include <sys/resource.h>
#include <time.h>

#include "formats/container/zip.h"
#include "formats/place.h"
#include "formats/torch/torch.h"
#include "libckpt/base/json.h"

#define GOLDEN "tests/golden/torch/"

TEST(tensors_equal_what_torch_reads)
{
    static const char *const names[] = {
        "shared", "noncontig", "zero_d", "dtypes", "state_dict", "proto2", "proto3",
        "proto5", "big_endian", "no_byteorder_addrkeys", "shared_t24", "state_dict_t24",
        "zero_d_t24", "proto4_t24", "legacy", "legacy_t24", "legacy_proto4", "no_crc",
        "script", "tar", "keys",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct ckpt_source *s = must_open(text_of(GOLDEN "%s.pt", names[i]), NULL);

        assert_true(assert_holds(s, text_of(GOLDEN "%s.expected.safetensors", names[i])) > 0);
        ckpt_source_close(s);
    }
}

static int open_any(struct torch_archive **out, const char *path, struct ckpt_err *err)
{
    struct ckpt_file *f;
    int rc;

    memset(err, 0, sizeof *err);
    rc = ckpt_file_open(&f, path, 0, err);
    return rc ? rc : torch_archive_open_any(out, f, err);
}

TEST(trees_without_tensors_are_shown)
{
    struct torch_archive *a;
    struct ckpt_err err;
    json_t *json;

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

/* Quantised tensors are read as what dequantize() gives, to the bit. */
TEST(quantised_tensors_are_their_values)
{
    static const char *const names[] = {"quantised", "quantised_legacy"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct ckpt_source *s = must_open(text_of(GOLDEN "%s.pt", names[i]), NULL);
        const struct ckpt_tensor *row, *tied;

        assert_int_equal(assert_holds(s, GOLDEN "quantised.expected.safetensors"), 13);
        row = ckpt_source_tensor(s, ckpt_source_find(s, "row"));
        tied = ckpt_source_tensor(s, ckpt_source_find(s, "tied"));
        assert_int_equal(row->dtype, CKPT_F32);
        assert_string_equal(ckpt_tensor_stored(row), "QI8");
        assert_int_equal(ckpt_tensor_stored_bytes(row), 15);
        assert_int_equal(tied->alias_of, ckpt_source_find(s, "row"));
        ckpt_source_close(s);
    }
}

/* Any range of them gives what the whole does. */
TEST(quantised_tensors_are_read_by_ranges)
{
    static const char *const names[] = {"row", "column", "conv", "long", "i8"};
    struct ckpt_source *s = must_open(GOLDEN "quantised.pt", NULL);
    struct ckpt_err err = {0};
    float all[10000], some[10000];

    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        size_t i = ckpt_source_find(s, names[k]);
        int64_t n = ckpt_source_tensor(s, i)->numel, step = n > 100 ? 1237 : 1;

        assert_int_equal(ckpt_source_read(s, i, 0, n, all, &err), 0);
        for (int64_t from = 0; from < n; from += step)
            for (int64_t to = from + 1; to <= n; to += step) {
                assert_int_equal(ckpt_source_read(s, i, from, to - from, some, &err), 0);
                assert_memory_equal(some, all + from, (size_t)(to - from) * sizeof *some);
            }
    }
    ckpt_source_close(s);
}

/* A quantizer that is none is refused; a scheme that is not read is listed, and named. */
TEST(bad_quantizers_are_named)
{
    static const struct { const char *name, *word; } rows[] = {
        {"axis", "tensor q: a quantised tensor of torch: its channels lie along no axis"},
        {"count", "tensor q: a quantised tensor of torch: not one scale and zero point a channel"},
        {"none", "tensor q: a quantised tensor of torch: its scale or zero point is no number"},
        {"number", "tensor q: a quantised tensor of torch: its scale or zero point is no number"},
    };
    struct ckpt_err err = {0};
    struct ckpt_source *s;
    float value[15];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        must_not_open(text_of(GOLDEN "quantised_%s.pt", rows[i].name), NULL, CKPT_EFORMAT,
                      rows[i].word);
    s = must_open(GOLDEN "quantised_scheme.pt", NULL);
    assert_int_equal(ckpt_source_read(s, 0, 0, 15, value, &err), CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "tensor q: a quantised tensor of torch, per_tensor_symmetric, "
                           "which is not read"));
    ckpt_source_close(s);
}

/* Dtypes that have a name and a place here, and no more: two values to a byte, half complex. */
TEST(dtypes_that_are_listed_only)
{
    static const struct { const char *name; enum ckpt_dtype dtype; int64_t n; } rows[] = {
        {"ty_t_float4_e2m1fn_x2", CKPT_F4, 8},
        {"ty_t_complex32", CKPT_C32, 4},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_source *s = must_open(text_of(GOLDEN "%s.pt", rows[i].name), NULL);
        struct ckpt_sink *sink;
        struct ckpt_err err = {0};

        assert_int_equal(ckpt_source_count(s), 1);
        assert_int_equal(ckpt_source_tensor(s, 0)->dtype, rows[i].dtype);
        assert_int_equal(ckpt_source_tensor(s, 0)->shape.rank, 1);
        assert_int_equal(ckpt_source_tensor(s, 0)->numel, rows[i].n);
        for (size_t k = 0; k < 2 && rows[i].dtype != CKPT_C32; k++) {
            assert_int_equal(ckpt_create(&sink, k ? "torch" : "safetensors", "build/none",
                                         ckpt_source_tensors(s), NULL, &err),
                             k ? CKPT_EUNSUPPORTED : 0);
            if (sink)
                ckpt_sink_abort(sink);
        }
        ckpt_source_close(s);
    }
}

/* Kinds that are not read: refused by name when asked for tensors, shown when only looked at. */
TEST(what_is_not_read_is_named)
{
    static const struct { const char *path, *word; int code; } rows[] = {
        {"dtensor", "1 files of its set", CKPT_EFORMAT},
        {"sharded", "1 files of its set", CKPT_EFORMAT},
        {"param_od", "__main__.Sub", CKPT_EREFUSED},
        {"python_mix", "__main__.Conf", CKPT_EREFUSED},
        {"module", "torch.nn.modules.container.Sequential", CKPT_EREFUSED},
        {"module_legacy", "torch.nn.modules.container.Sequential", CKPT_EREFUSED},
        {"tar_evil", "posix.system", CKPT_EREFUSED},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *path = text_of(GOLDEN "%s.pt", rows[i].path);
        struct torch_archive *a;
        struct ckpt_err err;

        must_not_open(path, NULL, rows[i].code, rows[i].word);
        if (open_any(&a, path, &err))
            fail_msg("%s: %s", path, err.text);
        torch_archive_close(a);
    }
}

/* Kinds without values here: listed by what they are, beside tensors that read. */
TEST(kinds_that_are_listed_only)
{
    static const struct {
        const char     *name, *kind;
        enum ckpt_dtype dtype;
        int             rank;
        int64_t         dim[2];
        uint64_t        bytes;
    } rows[] = {
        {"coo", "sparse_coo", CKPT_F32, 2, {3, 4}, 40},
        {"csr", "sparse_csr", CKPT_F32, 2, {3, 4}, 176},
        {"bsr", "sparse_bsr", CKPT_F32, 2, {6, 4}, 176},
        {"nested", "nested", CKPT_F32, 1, {9}, 116},
        {"meta", "meta", CKPT_F32, 2, {5, 6}, 0},
        {"param", "sparse_coo", CKPT_F32, 2, {3, 4}, 40},
        {"bits", "bits8", CKPT_U8, 1, {4}, 4},
        {"q4", "QUInt4x2", CKPT_U8, 2, {2, 4}, 4},
    };
    struct ckpt_source *s = must_open(GOLDEN "unread.pt", NULL);
    struct ckpt_err err = {0};
    unsigned char buf[256];

    assert_int_equal(assert_holds(s, GOLDEN "unread.expected.safetensors"), 2);
    assert_int_equal(ckpt_source_count(s), 6 + sizeof rows / sizeof rows[0]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t k = ckpt_source_find(s, rows[i].name);
        const struct ckpt_tensor *t = ckpt_source_tensor(s, k);
        struct ckpt_shape shape = ckpt_shape_of(rows[i].rank, rows[i].dim);

        if (!t || strcmp(t->stored, rows[i].kind) != 0 || t->dtype != rows[i].dtype ||
            !ckpt_shape_equal(&t->shape, &shape) || t->stored_bytes != rows[i].bytes)
            fail_msg("%s: %s of %s, %llu bytes", rows[i].name, t ? t->stored : "none",
                     t ? ckpt_dtype_name(t->dtype) : "none",
                     t ? (unsigned long long)t->stored_bytes : 0);
        assert_non_null(t->unread);
        assert_int_equal(ckpt_source_read(s, k, 0, 1, buf, &err), CKPT_EUNSUPPORTED);
        assert_non_null(strstr(err.text, rows[i].kind));
        assert_false(ckpt_source_locate(s, k, 0, 1, &(struct ckpt_extent){0}));
    }
    ckpt_source_close(s);
}

/* What torch leaves to be computed: read in any range, and never taken for a tie of the plain. */
TEST(conjugates_and_negatives)
{
    static const char *const path[] = {GOLDEN "conj.pt", GOLDEN "conj_legacy.pt"};

    for (size_t f = 0; f < 2; f++) {
        struct ckpt_source *s = must_open(path[f], NULL);
        struct ckpt_err err = {0};

        assert_int_equal(assert_holds(s, GOLDEN "conj.expected.pt"), ckpt_source_count(s));
        for (size_t i = 0; i < ckpt_source_count(s); i++) {
            const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
            size_t width = ckpt_dtype_size(t->dtype);
            unsigned char *all = read_whole(s, i), one[16];

            assert_int_equal(t->alias_of, i);
            for (int64_t k = 0; k < t->numel; k++) {
                assert_int_equal(ckpt_source_read(s, i, k, 1, one, &err), 0);
                assert_memory_equal(one, all + (size_t)k * width, width);
            }
            if (strcmp(t->name, "plain") != 0)
                assert_false(ckpt_source_locate(s, i, 0, 1, &(struct ckpt_extent){0}));
            free(all);
        }
        ckpt_source_close(s);
    }
}

/* Arrays of every dtype and order, as each protocol spells them; what is none is counted. */
TEST(numpy_arrays)
{
    for (int protocol = 2; protocol <= 5; protocol++) {
        struct ckpt_source *s = must_open(text_of(GOLDEN "arrays_p%d.pt", protocol), NULL);
        double last;

        assert_int_equal(assert_holds(s, GOLDEN "arrays.expected.safetensors"), 19);
        assert_int_equal(ckpt_source_count(s), 20);
        assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "arrays.c16"))->dtype,
                         CKPT_C128);
        assert_int_equal(json_integer_value(json_object_get(ckpt_source_info(s),
                                                            "arrays_left_out")), 2);
        /* Part of one that lies in another order. */
        struct ckpt_err err = {0};
        size_t i = ckpt_source_find(s, "arrays.f");
        double *all = read_whole(s, i);

        assert_int_equal(ckpt_source_read(s, i, 7, 1, &last, &err), 0);
        assert_true(last == all[7]);
        free(all);
        ckpt_source_close(s);
    }
}

/* Dtypes beyond those of older files: their bytes, gathered along the axes. */
TEST(more_dtypes)
{
    static const struct { const char *name; enum ckpt_dtype dtype; } rows[] = {
        {"float8_e4m3fn", CKPT_F8_E4M3}, {"float8_e4m3fnuz", CKPT_F8_E4M3FNUZ},
        {"float8_e5m2", CKPT_F8_E5M2}, {"float8_e5m2fnuz", CKPT_F8_E5M2FNUZ},
        {"float8_e8m0fnu", CKPT_F8_E8M0}, {"complex128", CKPT_C128}, {"complex64_0d", CKPT_C64},
    };
    struct ckpt_source *s = must_open(GOLDEN "more_dtypes.pt", NULL);
    struct ckpt_source *raw = must_open(GOLDEN "more_dtypes.raw.safetensors", NULL);

    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        size_t i = ckpt_source_find(s, rows[k].name), j = ckpt_source_find(raw, rows[k].name);
        uint64_t n = ckpt_tensor_bytes(ckpt_source_tensor(raw, j));
        void *a = read_whole(s, i), *b = read_whole(raw, j);

        assert_int_equal(ckpt_source_tensor(s, i)->dtype, rows[k].dtype);
        assert_int_equal(ckpt_tensor_bytes(ckpt_source_tensor(s, i)), n);
        assert_memory_equal(a, b, n);
        free(a);
        free(b);
    }
    ckpt_source_close(raw);
    ckpt_source_close(s);
}

TEST(ties_share_and_views_do_not)
{
    struct ckpt_source *s = must_open(GOLDEN "shared.pt", NULL);
    size_t aliases = 0;

    for (size_t i = 0; i < ckpt_source_count(s); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s, i), *o;

        o = ckpt_source_tensor(s, t->alias_of);
        assert_true(t->alias_of <= i && ckpt_shape_equal(&t->shape, &o->shape));
        aliases += t->alias_of != i;
    }
    assert_int_equal(aliases, 1);
    ckpt_source_close(s);
}

TEST(kinds)
{
    struct ckpt_source *s = must_open(GOLDEN "optimizer.pt", NULL);
    const struct ckpt_tensor *t;

    t = ckpt_source_tensor(s, ckpt_source_find(s, "state.0.exp_avg"));
    assert_int_equal(t->kind, CKPT_OTHER);
    ckpt_source_close(s);
    s = must_open(GOLDEN "state_dict.pt", NULL);
    assert_int_equal(ckpt_source_tensor(s, 0)->kind, CKPT_WEIGHT);
    ckpt_source_close(s);
}

TEST(checksums_are_proved_on_demand)
{
    struct torch_archive *a;
    struct ckpt_err err;

    assert_int_equal(open_any(&a, GOLDEN "shared.pt", &err), 0);
    assert_int_equal(torch_archive_verify(a, &err), 0);
    torch_archive_close(a);
    assert_int_equal(open_any(&a, GOLDEN "legacy.pt", &err), 0);
    assert_int_equal(torch_archive_verify(a, &err), 0);
    torch_archive_close(a);
    assert_int_equal(open_any(&a, "tests/golden/malicious/pt/zip_bad_crc.pt", &err), 0);
    assert_int_equal(torch_archive_verify(a, &err), CKPT_EFORMAT);
    assert_string_equal(err.reason, "digest");
    torch_archive_close(a);
}

TEST(ten_thousand_tensors)
{
    struct ckpt_source *s = must_open(GOLDEN "many_tensors.pt", NULL);

    assert_int_equal(ckpt_source_count(s), 10000);
    ckpt_source_close(s);
}

/* -- the hostile set ------------------------------------------------------------------------- */

#define HOSTILE "tests/golden/malicious/"

#define MAX_SECONDS 5

static void check_verdict(const char *kind, const char *name, const char *want)
{
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    clock_t begin = clock();
    const char *path = text_of(HOSTILE "%s/%s", kind, name);
    int rc = ckpt_open(&s, path, NULL, &err);

    ckpt_source_close(s);
    if (rc && !err.text[0])
        fail_msg("%s: refused without a word", path);
    if (rc == CKPT_ENOMEM || (clock() - begin) / CLOCKS_PER_SEC > MAX_SECONDS)
        fail_msg("%s: took too much: %s", path, err.text);
    if (strcmp(want, "accept") == 0 && rc)
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

TEST(hostile_archives_meet_their_verdict)
{
    check_set("pt", 100);
}

/* Who only looks meets them as well: no verdict, but an answer, within bounds. */
TEST(hostile_archives_can_be_looked_at)
{
    static const char *const shown[] = {"reduce_posix_system.pt", "builtins_exec_py3.pt",
                                        "functools_partial.pt", "newobj_popen.pt"};
    struct torch_archive *a;
    struct ckpt_err err;
    json_t *json;
    char *text;

    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        if (open_any(&a, text_of(HOSTILE "pt/%s", shown[i]), &err))
            fail_msg("%s", err.text);
        json = value_to_json(torch_archive_root(a), 1000);
        text = json_dumps(json, 0);
        assert_non_null(strstr(text, "$object"));
        free(text);
        json_decref(json);
        torch_archive_close(a);
    }
}

TEST(hostile_safetensors_meet_their_verdict)
{
    check_set("safetensors", 60);
}

/* -- damage: every length, every bit of the structure ---------------------------------------- */

/* Open as the format does, and read every tensor. */
static int open_bytes(const unsigned char *p, size_t n)
{
    struct ckpt_place place = {.path = "memory"};
    struct ckpt_open_opts opts = {0};
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    int rc;

    assert_int_equal(ckpt_file_memory(&place.file, p, n, "memory", &err), 0);
    place.head_len = n < CKPT_HEAD_BYTES ? n : CKPT_HEAD_BYTES;
    memcpy(place.head, p, place.head_len);
    rc = ckpt_format_torch.open(&s, &place, &opts, &err);
    for (size_t i = 0; rc == 0 && i < ckpt_source_count(s); i++)
        free(read_whole(s, i));
    ckpt_source_close(s);
    place_close(&place);
    if (rc && !err.text[0])
        fail_msg("code %d without a word", rc);
    return rc;
}

TEST(every_truncation_is_refused)
{
    static const char *const paths[] = {GOLDEN "zero_d.pt", GOLDEN "legacy.pt"};

    for (size_t i = 0; i < 2; i++) {
        size_t n;
        unsigned char *p = slurp(paths[i], &n);

        assert_int_equal(open_bytes(p, n), 0);
        for (size_t k = 0; k < n; k++)
            assert_true(open_bytes(p, k) != 0);
        free(p);
    }
}

/* torch's tar ends in zeros, which may be fewer; payloads may change unnoticed. */
TEST(damaged_tars)
{
    size_t n, end, refused = 0;
    unsigned char *p;

    p = slurp(GOLDEN "tar.pt", &n);
    assert_int_equal(open_bytes(p, n), 0);
    for (end = n; end > 0 && p[end - 1] == 0; end--)
        ;
    for (size_t k = 0; k < end; k += 5)
        assert_true(open_bytes(p, k) != 0);
    for (size_t k = 0; k < end; k++) {
        p[k] ^= (unsigned char)(1u << (k % 8));
        refused += open_bytes(p, n) != 0;
        p[k] ^= (unsigned char)(1u << (k % 8));
    }
    assert_true(refused > end / 3);
    free(p);
}

/* Open a file of these bytes, checksums to be proved, and read every tensor. */
static int read_proved(const unsigned char *p, size_t n, struct ckpt_err *err)
{
    const char *path = "build/test-torch-proved.pt";
    struct ckpt_open_opts opts = {.prove = true};
    struct ckpt_source *s = NULL;
    unsigned char buf[4096];
    int rc;

    put_bytes(path, p, n);
    memset(err, 0, sizeof *err);
    rc = ckpt_open(&s, path, &opts, err);
    for (size_t i = 0; rc == 0 && i < ckpt_source_count(s); i++)
        rc = ckpt_source_read(s, i, 0, ckpt_source_tensor(s, i)->numel, buf, err);
    ckpt_source_close(s);
    remove(path);
    return rc;
}

/* A byte of a payload that changed is found by who reads the tensor, if it is to be. */
TEST(damaged_payloads_are_found)
{
    const struct torch_storage *storage;
    struct torch_archive *a;
    struct ckpt_err err;
    unsigned char *p;
    size_t n, count;

    p = slurp(GOLDEN "state_dict.pt", &n);
    assert_int_equal(read_proved(p, n, &err), 0);
    assert_int_equal(open_any(&a, GOLDEN "state_dict.pt", &err), 0);
    assert_true(torch_archive_has_sums(a));
    count = torch_archive_storages(a, &storage);
    assert_true(count > 2);
    for (size_t i = 0; i < count; i++) {
        if (storage[i].numel == 0)
            continue;
        p[storage[i].offset] ^= 1;
        assert_int_equal(read_proved(p, n, &err), CKPT_EFORMAT);
        assert_string_equal(err.reason, "digest");
        assert_int_equal(open_bytes(p, n), 0);      /* who does not ask is not told */
        p[storage[i].offset] ^= 1;
    }
    torch_archive_close(a);
    free(p);
    assert_int_equal(open_any(&a, GOLDEN "no_crc.pt", &err), 0);
    assert_false(torch_archive_has_sums(a));
    assert_int_equal(torch_archive_verify(a, &err), 0);
    torch_archive_close(a);
}

/* Code is deflated, and proved by unfolding it; the module's tensors are as they were. */
TEST(damaged_code_is_found)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    unsigned char *p;
    size_t n, found = 0;
    struct zip z;

    p = slurp(GOLDEN "script.pt", &n);
    assert_int_equal(ckpt_file_memory(&f, p, n, "script", &err), 0);
    assert_int_equal(zip_open(&z, f, &err), 0);
    for (size_t i = 0; i < z.n; i++) {
        char buf[512], *text;
        struct ckpt_arena a = {0};
        size_t unnoticed = 0;

        assert_int_equal(zip_verify(&z, &z.entry[i], buf, sizeof buf, &err), 0);
        if (!z.entry[i].deflated)
            continue;
        assert_int_equal(zip_slurp(&z, &z.entry[i], &a, 1 << 20, &text, &err), CKPT_EUNSUPPORTED);
        for (size_t k = 0; k < 8 * z.entry[i].size; k++) {
            p[z.entry[i].offset + k / 8] ^= (unsigned char)(1u << (k % 8));
            memset(&err, 0, sizeof err);
            unnoticed += zip_verify(&z, &z.entry[i], buf, sizeof buf, &err) == 0;
            p[z.entry[i].offset + k / 8] ^= (unsigned char)(1u << (k % 8));
        }
        found++;
        /* Bits beyond the end; copies of the same bytes from another place. */
        assert_true(unnoticed < z.entry[i].size / 16);
    }
    assert_true(found >= 3);
    zip_release(&z);
    ckpt_file_close(f);
    free(p);
}

/* Every bit: nothing crashes, hangs or reads beside the file; most flips are found. */
TEST(no_bit_flip_is_fatal)
{
    static const char *const paths[] = {GOLDEN "ty_pattr.pt", GOLDEN "legacy.pt"};

    for (size_t i = 0; i < 2; i++) {
        size_t n, refused = 0;
        unsigned char *p = slurp(paths[i], &n);

        for (size_t k = 0; k < 8 * n; k++) {
            p[k / 8] ^= (unsigned char)(1u << (k % 8));
            refused += open_bytes(p, n) != 0;
            p[k / 8] ^= (unsigned char)(1u << (k % 8));
        }
        assert_true(refused > 8 * n / 4);       /* padding and payload may change unnoticed */
        free(p);
    }
}

#ifndef __SANITIZE_ADDRESS__
/* Hostile files may not take more memory than this, whatever they declare. */
BEFORE_ALL()
{
    struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};

    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}
#endif
