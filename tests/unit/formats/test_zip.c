/* zip, zip_out: what torch writes, what it never writes, and where bytes lie. */
#include "tests/unit/files.h"
#include "tests/unit/zip_of.h"

#include "formats/container/zip.h"
#include "formats/container/zip_out.h"

SCRATCH_EACH("zip")

/* Opens bytes; 0 or the code.  *text gets the sentence. */
static int open_bytes(struct zip *z, struct ckpt_file **f, const struct ckpt_buf *b,
                      struct ckpt_err *err)
{
    assert_true(ckpt_buf_ok(b));
    assert_int_equal(ckpt_file_memory(f, b->data, b->len, "memory", err), 0);
    return zip_open(z, *f, err);
}

static void expect(const struct part *p, size_t n, int code, const char *word)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    struct ckpt_buf b;
    struct zip z;
    int rc;

    ckpt_buf_init(&b, 1 << 20);
    zip_of(&b, p, n);
    rc = open_bytes(&z, &f, &b, &err);
    if (rc != code || (word && !strstr(err.text, word)))
        fail_msg("%d instead of %d, \"%s\" instead of \"%s\"", rc, code, err.text, word);
    zip_release(&z);
    ckpt_file_close(f);
    ckpt_buf_release(&b);
}

TEST(plain_archives_of_other_writers)
{
    struct part p[] = {
        {.name = "a..b/data.pkl", .data = "one"},
        {.name = "a..b/.data/x", .data = ""},
        {.name = "a..b/data/0", .data = "three", .zip64 = true},
        {.name = "a..b/data/1", .data = "four", .flags = 8},
    };
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    struct ckpt_buf b;
    struct zip z;
    char *text, room[2];

    ckpt_buf_init(&b, 1 << 20);
    zip_of(&b, p, 4);
    assert_int_equal(open_bytes(&z, &f, &b, &err), 0);
    assert_string_equal(z.top, "a..b");
    assert_int_equal(z.n, 4);
    assert_null(zip_find(&z, "data"));
    assert_int_equal(zip_slurp(&z, zip_find(&z, "data/0"), &a, 5, &text, &err), 0);
    assert_string_equal(text, "three");
    assert_int_equal(zip_slurp(&z, zip_find(&z, "data/0"), &a, 4, &text, &err), CKPT_ELIMIT);
    assert_int_equal(zip_verify(&z, zip_find(&z, "data/1"), room, 2, &err), 0);
    assert_int_equal(zip_verify(&z, zip_find(&z, ".data/x"), room, 2, &err), 0);
    zip_release(&z);
    ckpt_file_close(f);

    /* A changed payload opens, and is found when somebody looks at it. */
    ((char *)memmem(b.data, b.len, "four", 4))[3] = 'R';
    assert_int_equal(open_bytes(&z, &f, &b, &err), 0);
    assert_int_equal(zip_verify(&z, zip_find(&z, "data/1"), room, 2, &err), CKPT_EFORMAT);
    assert_string_equal(err.reason, "digest");
    zip_release(&z);
    ckpt_file_close(f);
    ckpt_buf_release(&b);
    ckpt_arena_release(&a);
}

TEST(names)
{
    static const struct { const char *name; int code; } rows[] = {
        {"t/x", 0}, {"t/..x", 0}, {"t/x..", 0}, {"t/.x", 0}, {"t/a/b", 0},
        {"t/..", CKPT_EREFUSED}, {"t/../x", CKPT_EREFUSED}, {"t/.", CKPT_EREFUSED},
        {"t/a\\b", CKPT_EREFUSED}, {"t/a/", CKPT_EREFUSED}, {"t//a", CKPT_EREFUSED},
        {"/x", CKPT_EREFUSED}, {"u/x", CKPT_EFORMAT}, {"t", CKPT_EFORMAT},
        {"t/DATA.PKL", CKPT_EFORMAT}, {"t/data.pkl", CKPT_EFORMAT}, {"t/\xff", CKPT_EFORMAT},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct part p[] = {{.name = "t/data.pkl", .data = "1"},
                           {.name = rows[i].name, .data = "2"}};

        expect(p, 2, rows[i].code, NULL);
    }
}

TEST(readers_could_differ)
{
    static const struct { struct part part; int code; const char *word; } rows[] = {
        {{.name = "t/a", .data = "1", .before = "x"}, CKPT_EFORMAT, "in front"},
        {{.name = "t/a", .data = "1", .local_name = "t/b"}, CKPT_EFORMAT, "another name"},
        {{.name = "t/a", .data = "1", .local_size = 1}, CKPT_EFORMAT, "differ in size"},
        {{.name = "t/a", .data = "1", .zip64 = true, .local_size = 1}, CKPT_EFORMAT,
         "differ in size"},
        {{.name = "t/a", .data = "1", .flags = 8, .skip_descriptor = 1}, CKPT_EFORMAT,
         "descriptor"},
        {{.name = "t/a", .data = "1", .flags = 1}, CKPT_EUNSUPPORTED, "encrypted"},
        {{.name = "t/a", .data = "1", .flags = 0x2000}, CKPT_EUNSUPPORTED, "encrypted"},
    };
    static const char *const gaps[] = {"1234567890123456789012345678901234567890", "123"};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect(&rows[i].part, 1, rows[i].code, rows[i].word);
    for (size_t i = 0; i < 2; i++)
        expect((struct part[]){{.name = "t/a", .data = "1"},
                               {.name = "t/b", .data = "2", .before = gaps[i]}}, 2, CKPT_EFORMAT,
               "belong to no member");
}

/* -- writing --------------------------------------------------------------------------------- */

/* Check values of torch's padding: the first from every file, the second from one of 4 GiB. */
TEST(layout_is_torchs)
{
    struct zip_member basic[] = {{.name = "basic/data.pkl", .size = 100}};
    struct zip_member big[] = {
        {.name = "big/data.pkl", .size = 660},
        {.name = "big/data/0", .size = (UINT64_C(1) << 32) + 16},
        {.name = "big/data/1", .size = 32},
    };
    static const uint64_t sizes[] = {0, 1, 63, 64, 65};
    char name[64];

    zip_layout(basic, 1);
    assert_int_equal(basic[0].data, 64);
    zip_layout(big, 3);
    assert_int_equal(big[1].data, 832);
    assert_int_equal(big[2].header, 4294968168u);
    assert_int_equal(big[2].data, 4294968256u);
    for (size_t n = 8; n <= 40; n++)
        for (size_t k = 0; k < 5; k++) {
            struct zip_member m[] = {{.name = name, .size = sizes[k]}, {.name = "t/b", .size = 1}};

            snprintf(name, sizeof name, "t/%0*d", (int)n - 2, 0);
            zip_layout(m, 2);
            assert_int_equal(m[0].data % 64, 0);
            assert_true(m[0].data - (30 + n + 4) < 64);
            assert_int_equal(m[1].header, m[0].data + sizes[k] + (sizes[k] ? 16 : 0));
        }
}

/*
 * Members beyond 4 GiB: zip64 in headers, descriptors and directory.  The file is a hole, so
 * nothing of its size touches the disk.
 */
TEST(archives_beyond_4_gib)
{
    const char *path = text_of("%s/zip64.pt", dir);
    struct zip_member m[] = {
        {.name = "big/data.pkl", .size = 3},
        {.name = "big/data/0", .size = (UINT64_C(1) << 32) + 16, .crc = 7},
        {.name = "big/data/1", .size = 32},
        {.name = "big/empty", .size = 0},
        {.name = "big/version", .size = 2},
    };
    uint64_t directory = zip_layout(m, 5);
    static const unsigned char zeros[32];
    struct ckpt_err err = {0};
    struct ckpt_out *out;
    struct ckpt_file *f;
    struct zip z;
    char room[64];

    m[2].crc = (uint32_t)crc32_z(0, zeros, sizeof zeros);
    assert_int_equal(ckpt_out_create(&out, path, 0, &err), 0);
    assert_int_equal(zip_begin(out, 0, m, 5, &err), 0);
    assert_int_equal(zip_finish(out, 0, m, 5, directory, &err), 0);
    assert_int_equal(ckpt_out_commit(out, &err), 0);
    assert_int_equal(ckpt_file_open(&f, path, 0, &err), 0);
    assert_int_equal(ckpt_file_size(f), zip_total(m, 5, directory));
    if (zip_open(&z, f, &err))
        fail_msg("%s", err.text);
    assert_int_equal(z.n, 5);
    assert_int_equal(zip_find(&z, "data/0")->size, (UINT64_C(1) << 32) + 16);
    assert_int_equal(zip_find(&z, "data/1")->offset, m[2].data);
    assert_int_equal(m[2].data % 64, 0);
    assert_int_equal(zip_verify(&z, zip_find(&z, "data/1"), room, sizeof room, &err), 0);
    zip_release(&z);
    ckpt_file_close(f);
}
