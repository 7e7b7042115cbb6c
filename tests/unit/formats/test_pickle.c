/* pickle, pickle_out: what Python wrote, what nobody writes, and writing it again. */
#include "tests/unit/unit.h"

#include "formats/container/pickle/pickle.h"
#include "formats/container/pickle/out.h"
#include "formats/container/zip.h"
#include "formats/torch/value.h"
#include "libckpt/base/json.h"

static int read_pickle(struct value **out, const void *p, size_t n, struct ckpt_arena *a,
                       struct ckpt_err *err)
{
    struct ckpt_cursor c;

    ckpt_cursor_init(&c, p, n);
    return pickle_read(out, &c, a, NULL, err);
}

/* -- what CPython wrote, protocols 0 to 5 ---------------------------------------------------- */

static unsigned char *from_hex(const char *hex, size_t *n)
{
    unsigned char *p = malloc(strlen(hex) / 2 + 1);

    for (*n = 0; hex[2 * *n]; ++*n) {
        char two[3] = {hex[2 * *n], hex[2 * *n + 1], 0};

        p[*n] = (unsigned char)strtoul(two, NULL, 16);
    }
    return p;
}

static void check_vector(const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    json_t *wanted = json_object_get(row, "shown"), *shown;
    struct torch_storages none = {0};
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct ckpt_buf b;
    struct value *v;
    size_t n;
    unsigned char *p = from_hex(json_string_value(json_object_get(row, "hex")), &n);

    if (read_pickle(&v, p, n, &a, &err) || torch_value_resolve(v, &none, &a, false, &err))
        fail_msg("%s: %s", name, err.text);
    shown = value_to_json(v, 1000000);
    if (wanted && !json_equal(shown, wanted))
        fail_msg("%s: shown as %s", name, json_dumps(shown, JSON_ENCODE_ANY));
    ckpt_buf_init(&b, SIZE_MAX);
    if (json_is_true(json_object_get(row, "same"))) {
        if (pickle_write(&b, v, NULL, 0, &err))
            fail_msg("%s: %s", name, err.text);
        if (b.len != n || memcmp(b.data, p, n) != 0)
            fail_msg("%s: written otherwise than Python does", name);
    }
    ckpt_buf_release(&b);
    json_decref(shown);
    torch_storages_release(&none);
    ckpt_arena_release(&a);
    free(p);
}

TEST(what_python_writes)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    json_t *rows, *row;
    size_t i;

    assert_int_equal(ckpt_file_open(&f, "tests/golden/pickle/vectors.json", 0, &err), 0);
    if (ckpt_json_read(&rows, f, CKPT_JSON_MAX_BYTES, 0, &err))
        fail_msg("%s", err.text);
    assert_true(json_array_size(rows) > 70);
    json_array_foreach (rows, i, row)
        check_vector(row);
    json_decref(rows);
    ckpt_file_close(f);
}

/* -- single opcodes -------------------------------------------------------------------------- */

#define P(s) s, sizeof(s) - 1

TEST(opcodes)
{
    static const struct { const char *p; size_t n; const char *shown; } rows[] = {
        {P("N."), "null"},
        {P("\x80\x02K\x07."), "7"},
        {P("\x8a\x00."), "0"},
        {P("\x8a\x01\xff."), "-1"},
        {P("\x8a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff."), "-1"},
        {P("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."), "\"18446744073709551615\""},
        {P("\x8b\x02\x00\x00\x00\x00\x80."), "-32768"},
        {P("I01\n."), "true"},
        {P("I-12\n."), "-12"},
        {P("L123456789012345678901234567890L\n."), "\"123456789012345678901234567890\""},
        {P("F1.5\n."), "1.5"},
        {P("S'a\\x41\\n\\101\\''\n."), "\"aA\\nA'\""},
        {P("S\"\"\n."), "\"\""},
        {P("S'\\xff'\n."), "{\"$bytes\":1,\"hex\":\"ff\"}"},
        {P("Vz\\u00e4\\U0001f600\xe4\n."), "\"z\xc3\xa4\xf0\x9f\x98\x80\xc3\xa4\""},
        {P("U\x02hi."), "\"hi\""},
        {P("T\x01\x00\x00\x00\xfe."), "{\"$bytes\":1,\"hex\":\"fe\"}"},
        {P("K\x01K\x02K\x03\x87."), "[1,2,3]"},
        {P("(K\x01K\x02l."), "[1,2]"},
        {P("(K\x01K\x02""d."), "{\"1\":2}"},
        {P("]K\x01""a(K\x02K\x03""e."), "[1,2,3]"},
        {P("\x8f(K\x01\x90."), "[1]"},
        {P("(K\x01\x91."), "[1]"},
        {P("K\x01K\x02""0."), "1"},
        {P("K\x01(K\x02K\x03""1."), "1"},
        {P("K\x01""2\x86."), "[1,1]"},
        {P("]p0\n0g0\n."), "[]"},
        {P("]q\x05""0h\x05."), "[]"},
        {P("]\x94""0h\x00."), "[]"},
        {P("cm\nn\n."), "{\"$object\":\"m.n\"}"},
        {P("cm\r\nn\n."), "{\"$object\":\"m\\r.n\"}"},     /* CPython asks for that too */
        {P("\x8c\x01m\x8c\x01n\x93."), "{\"$object\":\"m.n\"}"},
        {P("cm\nn\nK\x01\x85R."), "{\"$object\":\"m.n\",\"args\":[1]}"},
        {P("cm\nn\n)\x81}b."), "{\"$object\":\"m.n\",\"state\":{}}"},
        {P("cm\nn\n)}\x92."), "{\"$object\":\"m.n\",\"kwargs\":{}}"},
        {P("(K\x01im\nn\n."), "{\"$object\":\"m.n\",\"args\":[1]}"},
        {P("(cm\nn\nK\x01o."), "{\"$object\":\"m.n\",\"args\":[1]}"},
        {P("cm\nn\n)RK\x02\x85R."),
         "{\"$object\":\"m.n()\",\"callee\":{\"$object\":\"m.n\"},\"args\":[2]}"},
        {P("K\x05Q."), "{\"$persistent\":[5]}"},
        {P("Pid\n."), "{\"$persistent\":[\"id\"]}"},
        {P("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N."), "null"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_arena a = {0};
        struct ckpt_err err = {0};
        struct value *v;
        json_t *json;
        char *shown;

        if (read_pickle(&v, rows[i].p, rows[i].n, &a, &err))
            fail_msg("row %zu: %s", i, err.text);
        json = value_to_json(v, 100);
        shown = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
        if (strcmp(shown, rows[i].shown) != 0)
            fail_msg("row %zu: %s instead of %s", i, shown, rows[i].shown);
        free(shown);
        json_decref(json);
        ckpt_arena_release(&a);
    }
}

TEST(refusals)
{
    static const struct { const char *p; size_t n; int code; const char *word; } rows[] = {
        {P(""), CKPT_EFORMAT, "without STOP"},
        {P("N"), CKPT_EFORMAT, "without STOP"},
        {P("."), CKPT_EFORMAT, "other than one"},
        {P("NN."), CKPT_EFORMAT, "other than one"},
        {P("(N."), CKPT_EFORMAT, "other than one"},
        {P("N\x80\x02."), CKPT_EFORMAT, "in the middle"},
        {P("\x80\x06N."), CKPT_EFORMAT, "0 to 5"},
        {P("K"), CKPT_EFORMAT, "inside an argument"},
        {P("J\x01\x02"), CKPT_EFORMAT, "inside an argument"},
        {P("X\xff\xff\xff\xff."), CKPT_ELIMIT, "at most"},
        {P("X\x05\x00\x00\x00""abc."), CKPT_EFORMAT, "inside a text"},
        {P("\x8c\x02\xc0\x80."), CKPT_EFORMAT, "UTF-8"},
        {P("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), CKPT_ELIMIT, "at most"},
        {P("\x8b\xff\xff\xff\xff."), CKPT_EFORMAT, "inside a number"},
        {P("Ix\n."), CKPT_EFORMAT, "no number"},
        {P("I-x\n."), CKPT_EFORMAT, "no number"},
        {P("I010\n."), CKPT_EFORMAT, "no number"},      /* 8 to C, wrong to Python */
        {P("I1\r\n."), CKPT_EFORMAT, "no number"},
        {P("I\n."), CKPT_EFORMAT, "no number"},
        {P("I1"), CKPT_EFORMAT, "inside a line"},
        {P("F0x1p3\n."), CKPT_EFORMAT, "no number"},
        {P("F 1\n."), CKPT_EFORMAT, "no number"},
        {P("F1.5.2\n."), CKPT_EFORMAT, "no number"},
        {P("S'\n."), CKPT_EFORMAT, "quotes"},
        {P("S'a\"\n."), CKPT_EFORMAT, "quotes"},
        {P("S'\\q'\n."), CKPT_EFORMAT, "escape"},
        {P("V\\u12\n."), CKPT_EFORMAT, "escape"},
        {P("V\\U00110000\n."), CKPT_EFORMAT, "escape"},
        {P("t."), CKPT_EFORMAT, "no mark"},
        {P("K\x01(\x85."), CKPT_EFORMAT, "too few"},
        {P("(0."), CKPT_EFORMAT, "nothing to pop"},
        {P("2."), CKPT_EFORMAT, "nothing to duplicate"},
        {P("NK\x01""a."), CKPT_EFORMAT, "no list"},
        {P("](K\x01u."), CKPT_EFORMAT, "key without"},
        {P("](K\x01K\x02u."), CKPT_EFORMAT, "no dictionary"},
        {P("}]K\x01s."), CKPT_EFORMAT, "cannot be one"},
        {P("](K\x01\x90."), CKPT_EFORMAT, "no set"},
        {P("h\x00."), CKPT_EFORMAT, "no such memo"},
        {P("q\x00."), CKPT_EFORMAT, "nothing to remember"},
        {P("Nr\xff\xff\x00\x00."), CKPT_ELIMIT, "memo index"},
        {P("p\n."), CKPT_EFORMAT, "nothing to remember"},
        {P("Npx\n."), CKPT_EFORMAT, "no memo index"},
        {P("cm\n"), CKPT_EFORMAT, "inside a line"},
        {P("K\x01K\x02\x93."), CKPT_EFORMAT, "no texts"},
        {P("N)R."), CKPT_EFORMAT, "no global"},
        {P("cm\nn\nNR."), CKPT_EFORMAT, "no tuple"},
        {P("cm\nn\n))\x92."), CKPT_EFORMAT, "no dictionary"},
        {P("]}b."), CKPT_EFORMAT, "no record"},
        {P("cm\nn\n)R}b}b."), CKPT_EREFUSED, "malicious"},
        {P("\x82\x01."), CKPT_EREFUSED, "extension"},
        {P("\x97."), CKPT_EUNSUPPORTED, "out-of-band"},
        {P("\x98."), CKPT_EUNSUPPORTED, "out-of-band"},
        {P("\xf0."), CKPT_EFORMAT, "no such opcode"},
        {P("\x95\xff\x00\x00\x00\x00\x00\x00\x00N."), CKPT_EFORMAT, "passes the end"},
        {P("\x95\x02\x00\x00\x00\x00\x00\x00\x00K\x01\x85."), 0, NULL},
        {P("\x95\x01\x00\x00\x00\x00\x00\x00\x00K\x01\x85."), CKPT_EFORMAT, "end of its frame"},
        {P("\x95\x0a\x00\x00\x00\x00\x00\x00\x00\x95\x00\x00\x00\x00\x00\x00\x00\x00N."),
         CKPT_EFORMAT, "inside a frame"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_arena a = {0};
        struct ckpt_err err = {0};
        struct value *v;
        int rc = read_pickle(&v, rows[i].p, rows[i].n, &a, &err);

        if (rc != rows[i].code || (rc && !strstr(err.text, rows[i].word)))
            fail_msg("row %zu: code %d, %s", i, rc, err.text);
        if (rc)
            assert_null(v);
        ckpt_arena_release(&a);
    }
}

/* -- limits ---------------------------------------------------------------------------------- */

TEST(limits)
{
    size_t n = PICKLE_MAX_STACK + 2;
    char *p = malloc(n + 1);
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct value *v;

    memset(p, 'N', n);
    p[n] = '.';
    assert_int_equal(read_pickle(&v, p, n + 1, &a, &err), CKPT_ELIMIT);
    ckpt_arena_release(&a);
    memset(p, '(', n);
    assert_int_equal(read_pickle(&v, p, n + 1, &a, &err), CKPT_ELIMIT);
    ckpt_arena_release(&a);
    /* What an arena refuses is an error, whenever it does. */
    memset(p, 'N', 1000);
    memcpy(p + 1000, "t.", 2);
    p[0] = '(';
    for (uint64_t limit = 16; limit < 100000; limit += 977) {
        int rc;

        a.limit = limit;
        rc = read_pickle(&v, p, 1002, &a, &err);
        assert_true(rc == CKPT_ENOMEM || limit > 50000);
        ckpt_arena_release(&a);
    }
    free(p);
}

TEST(deep_values_are_refused_in_writing)
{
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct value *v = value_list(&a);
    struct ckpt_buf b;

    for (int i = 0; i < 2000; i++) {
        struct value *outer = value_list(&a);

        value_append(&a, outer, v);
        v = outer;
    }
    ckpt_buf_init(&b, SIZE_MAX);
    assert_int_equal(pickle_write(&b, v, NULL, 0, &err), CKPT_ELIMIT);
    ckpt_buf_release(&b);
    ckpt_arena_release(&a);
}

/* A list in itself, and a tuple that holds a list that holds the tuple. */
TEST(cycles_are_written)
{
    static const char want[] = "\x80\x02]q\x00(h\x00]q\x01h\x01\x85q\x02""a0h\x02""e.";
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct value *l = value_list(&a), *inner = value_list(&a), *t = value_tuple(&a), *v;
    struct ckpt_buf b;

    value_append(&a, l, l);
    value_append(&a, t, inner);
    value_append(&a, inner, t);
    value_append(&a, l, t);
    ckpt_buf_init(&b, SIZE_MAX);
    assert_int_equal(pickle_write(&b, l, NULL, 0, &err), 0);
    assert_int_equal(b.len, sizeof want - 1);
    assert_memory_equal(b.data, want, sizeof want - 1);
    assert_int_equal(read_pickle(&v, b.data, b.len, &a, &err), 0);
    assert_ptr_equal(v->u.seq.item[0], v);
    assert_ptr_equal(v->u.seq.item[1]->u.seq.item[0]->u.seq.item[0], v->u.seq.item[1]);
    ckpt_buf_release(&b);
    ckpt_arena_release(&a);
}

TEST(what_cannot_be_written)
{
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct pickle_storage s[] = {{CKPT_F32, 4}, {CKPT_QI8, 4}};
    struct value_tensor good = {.dtype = CKPT_F32, .shape = {1, {4}}, .stride = {1}};
    struct value_tensor bad[] = {good, good, good, good, good, good};
    struct value *o = value_object(&a, "m", "n", value_tuple(&a), NULL, true);
    struct ckpt_buf b;

    bad[0].storage = 2;
    bad[1].dtype = CKPT_F16;
    bad[2].offset = 1;
    bad[3].stride[0] = 2;
    bad[4].stride[0] = INT64_MAX;
    bad[5].storage = 1, bad[5].dtype = CKPT_QI8;
    ckpt_buf_init(&b, SIZE_MAX);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pickle_write(&b, value_tensor_new(&a, &bad[i]), s, 2, &err), CKPT_ESTATE);
    assert_int_equal(pickle_write(&b, value_tensor_new(&a, &good), s, 2, &err), 0);
    o->u.obj.kwargs = value_dict(&a, false);
    assert_int_equal(pickle_write(&b, o, NULL, 0, &err), CKPT_EUNSUPPORTED);
    o->u.obj.kwargs = NULL;
    o->u.obj.name = "n\nm";             /* protocol 2 ends a name there */
    assert_int_equal(pickle_write(&b, o, NULL, 0, &err), CKPT_EUNSUPPORTED);
    o->kind = VALUE_PERSISTENT;
    assert_int_equal(pickle_write(&b, o, NULL, 0, &err), CKPT_EUNSUPPORTED);
    ckpt_buf_release(&b);
    b = (struct ckpt_buf){.limit = 10};
    assert_int_equal(pickle_write(&b, value_str(&a, "too long for it"), NULL, 0, &err),
                     CKPT_ENOMEM);
    ckpt_buf_release(&b);
    ckpt_arena_release(&a);
}

/* -- what torch wrote, written again --------------------------------------------------------- */

/* Storages without a class of their own are bytes in the pickle; the writer wants their dtype. */
static void name_untyped(struct pickle_storage *s, const struct value *v)
{
    for (size_t i = 0; value_is(v, VALUE_DICT) && i < v->u.dict.n; i++)
        name_untyped(s, v->u.dict.val[i]);
    if (value_is(v, VALUE_TENSOR) && !ckpt_dtype_torch_storage(v->u.tensor->dtype)) {
        struct pickle_storage *t = &s[v->u.tensor->storage];

        t->numel /= (int64_t)ckpt_dtype_size(v->u.tensor->dtype);
        t->dtype = v->u.tensor->dtype;
    }
}

static void check_torch(const char *path)
{
    struct pickle_storage *s = calloc(2000, sizeof *s);
    const struct torch_storage *st;
    struct torch_archive *a;
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    struct ckpt_buf b;
    struct zip z;
    size_t n;
    char *text;

    assert_int_equal(ckpt_file_open(&f, path, 0, &err), 0);
    if (torch_archive_open_any(&a, f, &err))
        fail_msg("%s", err.text);
    n = torch_archive_storages(a, &st);
    assert_true(n < 2000);
    for (size_t i = 0; i < n; i++)
        s[i] = (struct pickle_storage){st[i].dtype, st[i].numel};
    name_untyped(s, torch_archive_root(a));
    ckpt_buf_init(&b, SIZE_MAX);
    if (pickle_write(&b, torch_archive_root(a), s, n, &err))
        fail_msg("%s: %s", path, err.text);
    assert_int_equal(zip_open(&z, f, &err), 0);
    assert_int_equal(zip_slurp(&z, zip_find(&z, "data.pkl"), &arena, 1 << 24, &text, &err), 0);
    if (b.len != zip_find(&z, "data.pkl")->size || memcmp(b.data, text, b.len) != 0)
        fail_msg("%s: written otherwise than torch did", path);
    zip_release(&z);
    ckpt_buf_release(&b);
    ckpt_arena_release(&arena);
    torch_archive_close(a);
    free(s);
}

TEST(torchs_pickles_are_written_as_torch_did)
{
    static const char *const paths[] = {
        "torch/big_endian.pt", "torch/dtypes.pt", "torch/many_tensors.pt", "torch/noncontig.pt",
        "torch/numpy_mix.pt", "torch/proto2.pt", "torch/shared.pt", "torch/state_dict.pt",
        "torch/zero_d.pt", "torch/shared_t24.pt", "torch/state_dict_t24.pt",
        "hf-trainer/plain_w1/run/checkpoint-2/optimizer.pt",
        "hf-trainer/plain_w1/run/checkpoint-2/rng_state.pth",
        "hf-trainer/plain_w1/run/checkpoint-2/scheduler.pt",
    };
    char path[256];

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        snprintf(path, sizeof path, "tests/golden/%s", paths[i]);
        check_torch(path);
    }
}
