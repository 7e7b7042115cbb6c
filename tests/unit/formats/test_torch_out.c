/* torch_out, torch_sink: archives as torch would have written them, put in any order. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/container/zip.h"
#include "formats/torch/out.h"
#include "libckpt/copy.h"
#include "libckpt/base/pool.h"

#define GOLDEN "tests/golden/torch/"

SCRATCH_EACH("torch-out")

/* An archive of that value and its storages, begun as a file of that name. */
static struct torch_writer *begin(const char *name, const struct value *root,
                                  const struct torch_storage *storage, size_t n)
{
    struct torch_writer *w;
    struct ckpt_out *out;
    struct ckpt_err err;

    if (ckpt_out_create(&out, text_of("%s/%s", dir, name), 0, &err) ||
        torch_writer_new(&w, out, "archive", root, storage, n, NULL, &err))
        fail_msg("%s", err.text);
    return w;
}

static struct torch_archive *must_open_archive(const char *path)
{
    struct torch_archive *a;
    struct ckpt_file *f;
    struct ckpt_err err;

    if (ckpt_file_open(&f, path, 0, &err) || torch_archive_open(&a, f, &err))
        fail_msg("%s: %s", path, err.text);
    return a;
}

TEST(what_is_written_reads_back)
{
    const char *path = text_of("%s/x.pt", dir);
    float data[12];
    struct ckpt_err err = {0};
    struct ckpt_arena a = {0};
    struct torch_storage st[2] = {{.dtype = CKPT_F32, .numel = 12}, {.dtype = CKPT_F32}};
    struct value_tensor t = {.dtype = CKPT_F32, .shape = {2, {3, 4}}, .stride = {4, 1}};
    struct value_tensor empty = {.dtype = CKPT_F32, .shape = {1, {0}}, .stride = {1},
                                 .storage = 1};
    struct value *root = value_dict(&a, true);
    struct torch_writer *w;
    struct ckpt_source *s;
    struct torch_archive *archive;
    float *back;
    int64_t got;

    for (int i = 0; i < 12; i++)
        data[i] = (float)i * 0.5f;
    value_set_str(&a, root, "w", value_tensor_new(&a, &t));
    value_set_str(&a, root, "none", value_tensor_new(&a, &empty));
    value_set_str(&a, root, "big", value_int(&a, INT64_C(1) << 40));
    value_set_str(&a, root, "negative", value_int(&a, -129));
    value_set_str(&a, root, "bytes", value_bytes(&a, "\0\x80\xff", 3));
    w = begin("x.pt", root, st, 2);
    assert_int_equal(torch_writer_put(w, 0, 8, 4, data + 8, &err), 0);  /* out of order */
    assert_int_equal(torch_writer_put(w, 0, 0, 8, data, &err), 0);
    assert_int_equal(torch_writer_commit(w, &err), 0);
    s = must_open(path, NULL);
    back = read_whole(s, ckpt_source_find(s, "w"));
    assert_memory_equal(back, data, sizeof data);
    free(back);
    ckpt_source_close(s);
    archive = must_open_archive(path);
    assert_true(value_as_int(value_get(torch_archive_root(archive), "big"), &got));
    assert_int_equal(got, INT64_C(1) << 40);
    assert_true(value_as_int(value_get(torch_archive_root(archive), "negative"), &got));
    assert_int_equal(got, -129);
    torch_archive_close(archive);
    ckpt_arena_release(&a);
}

TEST(a_storage_left_out_is_no_archive)
{
    struct ckpt_err err = {0};
    struct ckpt_arena a = {0};
    struct torch_storage st = {.dtype = CKPT_F32, .numel = 4};
    struct torch_writer *w = begin("half.pt", value_dict(&a, false), &st, 1);
    float data[2] = {1, 2};

    assert_int_equal(torch_writer_put(w, 0, 0, 2, data, &err), 0);
    assert_int_equal(torch_writer_commit(w, &err), CKPT_ESTATE);
    assert_int_equal(entries(dir), 0);
    ckpt_arena_release(&a);
}

/* Pieces with a hole between are no archive; one that was there already is refused. */
TEST(pieces_must_tile)
{
    static const struct { int64_t start[3], count[3]; int put[3], code; } rows[] = {
        {{2, 0, 1}, {2, 1, 1}, {0}, 0},
        {{0, 2, 3}, {1, 1, 1}, {0}, CKPT_ESTATE},
        {{0, 0, 2}, {2, 2, 2}, {0, CKPT_ESTATE}, 0},
        {{0, 1, 2}, {2, 2, 2}, {0, CKPT_ESTATE}, 0},
        {{0, 1, 2}, {2, 2, 1}, {0, CKPT_ESTATE}, CKPT_ESTATE},
        {{0, 0, 0}, {4, 0, 0}, {0}, 0},
    };
    struct torch_storage st = {.dtype = CKPT_F32, .numel = 4};
    float data[4] = {1, 2, 3, 4};
    struct ckpt_arena a = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct torch_writer *w = begin(text_of("%zu.pt", i), value_dict(&a, false), &st, 1);
        struct ckpt_err err = {0};

        for (size_t k = 0; k < 3; k++)
            assert_int_equal(torch_writer_put(w, 0, rows[i].start[k], rows[i].count[k],
                                              data + rows[i].start[k], &err), rows[i].put[k]);
        assert_int_equal(torch_writer_put(w, 0, 3, 2, data, &err), CKPT_ESTATE);
        assert_int_equal(torch_writer_put(w, 1, 0, 1, data, &err), CKPT_ESTATE);
        assert_int_equal(torch_writer_put(w, 0, -1, 1, data, &err), CKPT_ESTATE);
        assert_int_equal(torch_writer_commit(w, &err), rows[i].code);
    }
    ckpt_arena_release(&a);
}

/* -- from many threads, backwards ------------------------------------------------------------ */

struct job {
    struct torch_writer *w;
    const uint16_t      *data;
};

#define N_PIECES 500
#define PIECE    1000

static int put_piece(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    const struct job *j = ctx;
    int64_t at = (int64_t)(N_PIECES - 1 - i) * PIECE;

    (void)worker;
    return torch_writer_put(j->w, 0, at, PIECE, j->data + at, err);
}

TEST(any_thread_any_order)
{
    uint16_t *data = malloc(N_PIECES * PIECE * sizeof *data);
    struct torch_storage st = {.dtype = CKPT_BF16, .numel = N_PIECES * PIECE};
    struct value_tensor t = {.dtype = CKPT_BF16, .shape = {1, {N_PIECES * PIECE}}, .stride = {1}};
    struct ckpt_err err = {0};
    struct ckpt_arena a = {0};
    struct torch_archive *back;
    struct job j = {.data = data};

    for (size_t i = 0; i < N_PIECES * PIECE; i++)
        data[i] = (uint16_t)(i * 40503u);
    j.w = begin("threads.pt", value_tensor_new(&a, &t), &st, 1);
    assert_int_equal(ckpt_pool_run(4, N_PIECES, put_piece, &j, &err), 0);
    assert_int_equal(torch_writer_commit(j.w, &err), 0);
    back = must_open_archive(text_of("%s/threads.pt", dir));
    if (torch_archive_verify(back, &err))
        fail_msg("%s", err.text);
    torch_archive_close(back);
    ckpt_arena_release(&a);
    free(data);
}

/* -- the whole file as torch wrote it -------------------------------------------------------- */

static void name_untyped(struct torch_storage *s, const struct value *v)
{
    for (size_t i = 0; value_is(v, VALUE_DICT) && i < v->u.dict.n; i++)
        name_untyped(s, v->u.dict.val[i]);
    if (value_is(v, VALUE_TENSOR) && !ckpt_dtype_torch_storage(v->u.tensor->dtype)) {
        struct torch_storage *t = &s[v->u.tensor->storage];

        t->numel /= (int64_t)ckpt_dtype_size(v->u.tensor->dtype);
        t->dtype = v->u.tensor->dtype;
    }
}

/* Write the archive at `from` anew, at `to`. */
static void write_again(const char *from, const char *to, const unsigned char *bytes)
{
    static const void *data[2000];
    static struct torch_storage mine[2000];
    const struct torch_storage *s;
    struct torch_archive *a = must_open_archive(from);
    struct ckpt_err err = {0};
    struct ckpt_out *out;
    struct zip z;
    size_t n = torch_archive_storages(a, &s);

    assert_true(n <= 2000);
    for (size_t i = 0; i < n; i++) {
        mine[i] = s[i];
        data[i] = bytes + s[i].offset;
    }
    name_untyped(mine, torch_archive_root(a));
    assert_int_equal(zip_open(&z, torch_archive_file(a), &err), 0);
    assert_int_equal(ckpt_out_create(&out, to, CKPT_REPLACE, &err), 0);
    if (torch_write(out, z.top, torch_archive_root(a), mine, data, n, &err))
        fail_msg("%s: %s", from, err.text);
    zip_release(&z);
    torch_archive_close(a);
}

/* The id, 40 digits in front of its descriptor, and its checksum, there and in the directory. */
static void blank_id(unsigned char *p, size_t n)
{
    static const unsigned char descriptor[] = {0x50, 0x4b, 7, 8};
    size_t last = 0;
    unsigned char crc[4], *at;

    for (size_t i = 40; i + 16 <= n; i++)
        if (memcmp(p + i, descriptor, 4) == 0)
            last = i;
    assert_true(last >= 40);
    memcpy(crc, p + last + 4, 4);
    memset(p + last - 40, '0', 40);
    memset(p + last + 4, 0, 4);
    at = memmem(p + last, n - last, crc, 4);
    assert_non_null(at);
    memset(at, 0, 4);
}

TEST(the_file_is_torchs_but_for_the_id)
{
    static const char *const names[] = {"zero_d", "noncontig", "shared", "dtypes", "state_dict",
                                        "many_tensors", "proto2", "numpy_mix"};
    const char *to = text_of("%s/again.pt", dir);

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = text_of(GOLDEN "%s.pt", names[i]);
        size_t n, m;
        unsigned char *theirs = slurp(path, &n), *ours;

        write_again(path, to, theirs);
        ours = slurp(to, &m);
        assert_int_equal(m, n);
        blank_id(theirs, n);
        blank_id(ours, n);
        for (size_t k = 0; k < n; k++)
            if (ours[k] != theirs[k])
                fail_msg("%s: byte %zu of %zu differs", path, k, n);
        free(theirs);
        free(ours);
    }
}

/* -- the sink -------------------------------------------------------------------------------- */

TEST(a_list_of_tensors_becomes_a_state_dict)
{
    const char *path = text_of("%s/model..v2.bin", dir);
    struct ckpt_source *from = must_open(GOLDEN "shared.pt", NULL), *back;
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    struct zip z;
    size_t n = 0;

    if (write_source(path, "torch", from, NULL, &(struct ckpt_copy_opts){.chunk_bytes = 16},
                     &err))
        fail_msg("%s", err.text);
    back = must_open(path, NULL);
    assert_same_tensors(back, from, path);
    for (size_t i = 0; i < ckpt_source_count(from); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(from, i);

        assert_int_equal(ckpt_source_tensor(back, i)->alias_of, t->alias_of);
        n += t->alias_of == i;
    }
    assert_int_equal(ckpt_file_open(&f, path, 0, &err), 0);
    assert_int_equal(zip_open(&z, f, &err), 0);
    assert_string_equal(z.top, "model..v2");
    assert_int_equal(z.n, 6 + n);       /* ties share one storage */
    zip_release(&z);
    ckpt_file_close(f);
    ckpt_source_close(back);
    ckpt_source_close(from);
}

TEST(what_torch_has_not_is_refused)
{
    struct ckpt_tensors list = {0};
    struct ckpt_shape shape = ckpt_shape_1d(8);
    struct ckpt_err err = {0};
    struct ckpt_sink *sink;

    assert_int_equal(ckpt_tensors_add(&list, NULL, "x", 1, CKPT_F6_E2M3, &shape, NULL, 0, false,
                                      &err), 0);
    assert_int_equal(ckpt_create(&sink, "torch", text_of("%s/no.pt", dir), &list, NULL, &err),
                     CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "F6_E2M3"));
    assert_int_equal(entries(dir), 0);
    ckpt_tensors_release(&list);
}

/* A dict of tensors of one element, 0, 1, ... , under these keys, as a file. */
static const char *keys_file(struct ckpt_arena *a, struct value *const *key, size_t n)
{
    struct value *root = value_dict(a, false);
    struct torch_storage storage[16];
    struct ckpt_shape shape = ckpt_shape_1d(1);
    float element[16];
    const void *data[16];
    const char *path = text_of("%s/keys.pt", dir);
    struct ckpt_err err = {0};
    struct ckpt_out *out;

    for (size_t i = 0; i < n; i++) {
        storage[i] = (struct torch_storage){.dtype = CKPT_F32, .numel = 1};
        element[i] = (float)i;
        data[i] = &element[i];
        assert_int_equal(value_set(a, root, key[i], value_tensor_whole(a, CKPT_F32, &shape, i)), 0);
    }
    if (ckpt_out_create(&out, path, CKPT_REPLACE, &err) ||
        torch_write(out, "archive", root, storage, data, n, &err))
        fail_msg("%s", err.text);
    return path;
}

static void assert_names(const char *path, const char *const *want, size_t n)
{
    struct ckpt_source *s = must_open(path, NULL);
    struct ckpt_err err = {0};
    float f;

    assert_int_equal(ckpt_source_count(s), n);
    for (size_t i = 0; i < n; i++) {
        size_t at = ckpt_source_find(s, want[i]);

        if (at == SIZE_MAX || ckpt_source_read(s, at, 0, 1, &f, &err))
            fail_msg("%s: %s", want[i], at == SIZE_MAX ? "absent" : err.text);
        assert_true(f == (float)i);
    }
    ckpt_source_close(s);
}

/* Python has all of them in one dict; and a text is as it is among texts. */
TEST(numbers_and_texts_that_look_like_them_are_two_keys)
{
    struct ckpt_arena a = {0};
    struct value *pair = value_tuple(&a);
    struct value *all[] = {value_int(&a, 1), value_str(&a, "1"), value_str(&a, "-2.5e-05"),
                           value_float(&a, -2.5e-05), value_none(&a), value_str(&a, "None"),
                           value_str(&a, "in"), pair, value_str(&a, "(1,)"), value_str(&a, "a.1")};
    static const char *const names[] = {"1", "'1'", "'-2.5e-05'", "-2.5e-05", "None", "'None'",
                                        "in", "(1,)", "'(1,)'", "a.1"};
    struct value *texts[] = {value_str(&a, "1"), value_str(&a, "None"), value_str(&a, "(1,)")};
    static const char *const same[] = {"1", "None", "(1,)"};

    assert_int_equal(value_append(&a, pair, value_int(&a, 1)), 0);
    assert_names(keys_file(&a, all, 10), names, 10);
    assert_names(keys_file(&a, texts, 3), same, 3);
    ckpt_arena_release(&a);
}

TEST(values_under_both_are_shown)
{
    struct ckpt_arena a = {0};
    struct value *d = value_dict(&a, false);
    json_t *json;

    assert_int_equal(value_set(&a, d, value_int(&a, 1), value_str(&a, "number")), 0);
    assert_int_equal(value_set(&a, d, value_str(&a, "1"), value_str(&a, "text")), 0);
    json = value_to_json(d, 100);
    assert_string_equal(json_string_value(json_object_get(json, "1")), "number");
    assert_string_equal(json_string_value(json_object_get(json, "#1")), "text");
    json_decref(json);
    ckpt_arena_release(&a);
}
