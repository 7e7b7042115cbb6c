/*
 * dcp_out: what is written is read back the same, with every checksum right; the same input
 * gives the same bytes; and metadata of our own making that lies is caught.  That torch loads it
 * is held in tests/peers.
 */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "libckpt/base/crc32.h"
#include "formats/dcp/index.h"
#include "formats/dcp/meta.h"
#include "formats/torch/torch.h"

#define FSDP "tests/golden/fsdp/"

static const struct ckpt_open_opts with_optimizer = {.optimizer = true};

SCRATCH_EACH("dcp-out")

static int write_dcp(const char *to, struct ckpt_source *src, uint64_t shard, size_t chunk,
                     struct ckpt_err *err)
{
    struct ckpt_copy_opts copy = {.workers = 3, .chunk_bytes = chunk};
    struct ckpt_create_opts opts = {.max_shard_bytes = shard, .info = ckpt_source_info(src)};

    opts.n_extra = ckpt_source_extras(src, &opts.extra);
    return write_source(to, "dcp", src, &opts, &copy, err);
}

static void must_write(const char *to, const char *from, uint64_t shard, size_t chunk)
{
    struct ckpt_source *src = must_open(from, &with_optimizer);
    struct ckpt_err err;

    if (write_dcp(to, src, shard, chunk, &err))
        fail_msg("%s: %s", from, err.text);
    ckpt_source_close(src);
}

/* Every item of a directory is an archive whose checksums are right. */
static void assert_sound(const char *path)
{
    struct dcp_meta m = {0};
    struct ckpt_err err = {0};
    struct ckpt_file *file;

    assert_int_equal(ckpt_file_open(&file, text_of("%s/.metadata", path), 0, &err), 0);
    if (dcp_meta_read(&m, file, &err))
        fail_msg("%s", err.text);
    ckpt_file_close(file);
    for (size_t i = 0; i < m.n; i++) {
        const struct dcp_entry *e = &m.entry[i];
        const struct dcp_place *p = e->bytes ? &e->place
                                    : e->n_chunk ? &e->chunk[0].place : NULL;
        struct ckpt_file *window;
        struct torch_archive *a;

        if (!p)
            continue;                           /* of no elements: it has no box */
        assert_int_equal(ckpt_file_open(&file, text_of("%s/%s", path, p->file), 0, &err), 0);
        assert_int_equal(ckpt_file_window(&window, file, p->offset, p->length, "item", &err), 0);
        if (torch_archive_open(&a, window, &err) || torch_archive_verify(a, &err))
            fail_msg("%s: %s", e->fqn, err.text);
        torch_archive_close(a);
        ckpt_file_close(file);
    }
    dcp_meta_release(&m);
}

/* -- round trips ----------------------------------------------------------------------------- */

static const char *const inputs[] = {
    FSDP "2.15-fsdp2_w2/dcp", FSDP "2.15-fsdp2_w2_bf16/dcp", FSDP "2.15-more/mesh2d",
    FSDP "2.11-dcp_flatosd", FSDP "2.11-dcp_hf", FSDP "trainer/run/checkpoint-4",
    "tests/golden/deepspeed/0.19-s3_w2_bf16/ckpt", "tests/golden/torch/dtypes.pt",
    "tests/golden/torch/zero_d.pt", "tests/golden/torch/noncontig.pt", "tests/golden/hf/sharded",
};

TEST(round_trips)
{
    static const uint64_t shard[] = {0, 300};
    static const size_t chunk[] = {0, 64};
    char to[300];

    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        for (size_t k = 0; k < 2; k++) {
            struct ckpt_source *wanted = must_open(inputs[i], &with_optimizer), *found;

            snprintf(to, sizeof to, "%s/%zu-%zu", dir, i, k);
            must_write(to, inputs[i], shard[k], chunk[k]);
            found = must_open(to, &with_optimizer);
            assert_string_equal(ckpt_source_format(found), "dcp");
            for (size_t t = 0; t < ckpt_source_count(wanted); t++) {
                const struct ckpt_tensor *w = ckpt_source_tensor(wanted, t);
                size_t j = ckpt_source_find(found, w->name);

                assert_same_tensor(found, w->name, wanted, t, inputs[i]);
                assert_int_equal(ckpt_source_tensor(found, j)->kind,
                                 w->kind == CKPT_BUFFER ? CKPT_WEIGHT : w->kind);
            }
            assert_sound(to);
            ckpt_source_close(found);
            ckpt_source_close(wanted);
        }
}

TEST(facts_go_along)
{
    struct ckpt_source *a = must_open(inputs[0], &with_optimizer), *b;
    const char *to = text_of("%s/x", dir);

    must_write(to, inputs[0], 0, 0);
    b = must_open(to, &with_optimizer);
    assert_true(json_equal(json_object_get(ckpt_source_info(a), "param_groups"),
                           json_object_get(ckpt_source_info(b), "param_groups")));
    assert_int_equal(json_integer_value(json_object_get(ckpt_source_info(b), "step")), 3);
    ckpt_source_close(a);
    ckpt_source_close(b);
}

/* DeepSpeed counts steps for all: each parameter gets the number, as torch's optimizers want. */
TEST(steps_are_made)
{
    const char *to = text_of("%s/x", dir);
    struct ckpt_source *s;
    size_t n = 0;

    must_write(to, "tests/golden/deepspeed/0.19-s3_w2_bf16/ckpt", 0, 0);
    s = must_open(to, &with_optimizer);
    for (size_t i = 0; i < ckpt_source_count(s); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
        const char *bar = strrchr(t->name, '|');

        if (bar && strcmp(bar, "|step") == 0) {
            float *v = read_whole(s, i);

            assert_true(*v == 4.0f);
            free(v);
            n++;
        }
    }
    assert_int_equal(n, 10);
    assert_int_equal(json_array_size(json_object_get(ckpt_source_info(s), "param_groups")), 2);
    ckpt_source_close(s);
}

/* Enough tensors that threads look for them. */
TEST(many_tensors)
{
    struct ckpt_source *a = must_open("tests/golden/torch/many_tensors.pt", NULL), *b;
    const char *to = text_of("%s/x", dir);
    struct ckpt_err err;

    if (write_dcp(to, a, 0, 0, &err))
        fail_msg("%s", err.text);
    b = must_open(to, NULL);
    assert_true(ckpt_source_count(a) >= 1000);
    assert_int_equal(ckpt_source_count(a), ckpt_source_count(b));
    for (size_t i = 0; i < ckpt_source_count(a); i += 97)
        assert_same_tensor(b, ckpt_source_tensor(a, i)->name, a, i, to);
    ckpt_source_close(a);
    ckpt_source_close(b);
}

TEST(same_input_same_bytes)
{
    for (int k = 0; k < 2; k++)
        must_write(text_of("%s/%d", dir, k), inputs[0], 1000, k ? 64 : 0);
    shell(text_of("diff -r %s/0 %s/1", dir, dir));
}

/* -- refusals -------------------------------------------------------------------------------- */

static void add(struct ckpt_tensors *list, const char *name, enum ckpt_dtype dtype,
                enum ckpt_kind kind)
{
    struct ckpt_shape shape = ckpt_shape_1d(2);
    struct ckpt_tensor *t;
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_tensors_add(list, &t, name, strlen(name), dtype, &shape, NULL, 0, false,
                                      &err), 0);
    t->kind = kind;
}

static void assert_not_created(struct ckpt_tensors *list, int code, const char *words)
{
    struct ckpt_err err = {0};
    struct ckpt_sink *sink;

    assert_int_equal(ckpt_create(&sink, "dcp", text_of("%s/x", dir), list, NULL, &err), code);
    if (!strstr(err.text, words))
        fail_msg("\"%s\", \"%s\" expected", err.text, words);
    assert_null(sink);
    assert_int_equal(entries(dir), 0);
    ckpt_tensors_release(list);
}

TEST(refusals)
{
    struct ckpt_create_opts stream = {.stream_fd = 1};
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};
    struct ckpt_sink *sink;

    add(&list, "a", CKPT_F32, CKPT_WEIGHT);
    add(&list, "model.a", CKPT_F32, CKPT_OTHER);
    assert_not_created(&list, CKPT_EMISMATCH, "would be called model.a");
    add(&list, "a", CKPT_F6_E2M3, CKPT_WEIGHT);
    assert_not_created(&list, CKPT_EUNSUPPORTED, "torch has no");
    add(&list, "a", CKPT_F32, CKPT_WEIGHT);
    assert_int_equal(ckpt_create(&sink, "dcp", "build/never", &list, &stream, &err),
                     CKPT_EUNSUPPORTED);
    ckpt_tensors_release(&list);
}

TEST(an_existing_directory_stays)
{
    struct ckpt_source *src = must_open(inputs[2], NULL);
    const char *to = text_of("%s/x", dir);
    struct ckpt_err err;

    assert_int_equal(mkdir(to, 0777), 0);
    assert_int_equal(write_dcp(to, src, 0, 0, &err), CKPT_ECREATE);
    assert_int_equal(entries(to), 0);
    assert_int_equal(entries(dir), 1);
    ckpt_source_close(src);
}

TEST(an_unwritten_tensor_is_no_checkpoint)
{
    struct ckpt_source *src = must_open(inputs[2], NULL);
    struct ckpt_err err = {0};
    struct ckpt_sink *sink;

    assert_int_equal(ckpt_create(&sink, "dcp", text_of("%s/x", dir), ckpt_source_tensors(src),
                                 NULL, &err), 0);
    assert_int_equal(ckpt_sink_commit(sink, &err), CKPT_ESTATE);
    assert_int_equal(entries(dir), 0);
    ckpt_source_close(src);
}

/* -- metadata that lies ---------------------------------------------------------------------- */

/* One tensor of two floats, told otherwise. */
struct lie {
    enum ckpt_dtype   dtype;
    struct ckpt_shape shape;
    uint64_t          base, length;     /* added to what is true */
    size_t            file;
    int               code;
    const char       *words;
};

static void put_lie(const char *path, const struct lie *lie, bool true_length)
{
    struct dcp_index x = {0};
    struct ckpt_err err = {0};
    struct dcp_out_item *it;
    struct value *key = value_tuple(&x.arena);
    struct ckpt_shape shape = ckpt_shape_1d(2);
    struct ckpt_buf b;

    ckpt_buf_init(&b, 1 << 20);
    assert_int_equal(value_append(&x.arena, key, value_str(&x.arena, "t")), 0);
    assert_int_equal(dcp_index_add(&x, &it, key, &err), 0);
    assert_int_equal(dcp_blob_tensor_pickle(&b, CKPT_F32, &shape, &err), 0);
    dcp_blob_plan(&it->blob, &b, true, 8);
    it->dtype = lie->dtype;
    it->shape = &lie->shape;
    it->file = lie->file;
    it->blob.base = lie->base;
    it->blob.length = (true_length ? it->blob.length : 0) + lie->length;
    b.len = 0;
    assert_int_equal(dcp_index_pickle(&b, &x, &err), 0);
    put_bytes(text_of("%s/.metadata", path), b.data, b.len);
    ckpt_buf_release(&b);
    dcp_index_release(&x);
}

TEST(metadata_that_lies)
{
    static const struct lie lies[] = {
        {CKPT_F32, {1, {2}}, 0, 0, 0, 0, NULL},
        {CKPT_I32, {1, {2}}, 0, 0, 0, CKPT_EFORMAT, "the metadata says I32"},
        {CKPT_F32, {1, {3}}, 0, 0, 0, CKPT_EFORMAT, "the metadata says F32 [3]"},
        {CKPT_F32, {2, {1, 2}}, 0, 0, 0, CKPT_EFORMAT, "the metadata says F32 [1, 2]"},
        {CKPT_F32, {2, {INT64_MAX, INT64_MAX}}, 0, 0, 0, CKPT_EFORMAT, ""},
        {CKPT_F32, {1, {INT64_MAX}}, 0, 0, 0, CKPT_EFORMAT, ""},
        {CKPT_F32, {1, {2}}, 1, 0, 0, CKPT_EFORMAT, "the file ends at"},
        {CKPT_F32, {1, {2}}, 0, 1, 0, CKPT_EFORMAT, "the file ends at"},
        {CKPT_F32, {1, {2}}, 0, INT64_MAX - 100000, 0, CKPT_EFORMAT, "the file ends at"},
        {CKPT_F32, {1, {2}}, INT64_MAX, 0, 0, CKPT_EFORMAT, "the file ends at"},
        {CKPT_F32, {1, {2}}, 0, 0, 1, CKPT_EFORMAT, "__0_1.distcp is not there"},
    };
    static const struct lie shorter = {CKPT_F32, {1, {2}}, 0, 700, 0, CKPT_EFORMAT, ""};
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};
    struct ckpt_sink *sink;
    float v[2] = {1, 2};
    char to[300];

    snprintf(to, sizeof to, "%s/x", dir);
    add(&list, "t", CKPT_F32, CKPT_OTHER);
    assert_int_equal(ckpt_create(&sink, "dcp", to, &list, NULL, &err), 0);
    assert_int_equal(ckpt_sink_write(sink, 0, 0, 2, v, &err), 0);
    assert_int_equal(ckpt_sink_commit(sink, &err), 0);
    for (size_t i = 0; i <= sizeof lies / sizeof lies[0]; i++) {
        const struct lie *l = i < sizeof lies / sizeof lies[0] ? &lies[i] : &shorter;
        struct ckpt_source *s = NULL;
        int rc;

        put_lie(to, l, l != &shorter);
        rc = ckpt_open(&s, to, NULL, &err);
        if (rc != l->code || (rc && !strstr(err.text, l->words)))
            fail_msg("lie %zu: %d \"%s\"", i, rc, rc ? err.text : "");
        ckpt_source_close(s);
    }
    ckpt_tensors_release(&list);
}

/* -- checksums of pieces --------------------------------------------------------------------- */

TEST(pieces_in_any_order)
{
    unsigned char bytes[97];
    uint32_t whole, got;
    unsigned order[97], seed = 1;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37);
    whole = ckpt_crc32(0, bytes, sizeof bytes);
    for (int round = 0; round < 50; round++) {
        struct crc_join j = {0};
        struct ckpt_err err = {0};

        for (unsigned i = 0; i < 97; i++)
            order[i] = i;
        for (unsigned i = 97; i-- > 1;) {
            unsigned k = (seed = seed * 1103515245u + 12345u) / 65536u % (i + 1), t = order[i];

            order[i] = order[k];
            order[k] = t;
        }
        for (unsigned i = 0; i < 97; i++) {
            assert_false(crc_join_whole(&j, 97, &got));
            assert_int_equal(crc_join_add(&j, order[i], 1, ckpt_crc32(0, bytes + order[i], 1), &err), 0);
        }
        assert_true(crc_join_whole(&j, 97, &got));
        assert_int_equal(got, whole);
        assert_int_equal(crc_join_add(&j, 5, 1, 0, &err), CKPT_ESTATE);
        crc_join_release(&j);
    }
}
