/* zip_walk: every member that some reader would find, and the bytes of none. */
#include "tests/unit/zip_of.h"

#include "formats/container/zip_walk.h"

static size_t walk(struct zip_piece **p, struct ckpt_arena *a, const struct ckpt_buf *b)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    size_t n;

    assert_int_equal(ckpt_file_memory(&file, b->data, b->len, "zip", &err), 0);
    if (zip_walk(p, &n, file, a, &err))
        fail_msg("%s", err.text);
    ckpt_file_close(file);
    return n;
}

TEST(members_gaps_and_names)
{
    struct ckpt_arena a = {0};
    struct ckpt_buf file;
    struct zip_piece *p;
    size_t n;

    ckpt_buf_init(&file, 4096);
    zip_of(&file, (struct part[]){{.before = "front", .name = "a", .data = "one"},
                                  {.before = "between", .name = "b", .local_name = "c",
                                   .data = "two"}}, 2);
    ckpt_buf_put_str(&file, "behind");
    n = walk(&p, &a, &file);
    assert_int_equal(n, 5);
    assert_null(p[0].name);
    assert_int_equal(p[0].size, 5);
    assert_string_equal(p[1].name, "a");
    assert_null(p[1].wrong);
    assert_memory_equal(file.data + p[1].offset, "one", 3);
    assert_memory_equal(file.data + p[2].offset, "between", 7);
    assert_string_equal(p[3].name, "b");
    assert_string_equal(p[3].wrong, "has another name in its local header");
    assert_memory_equal(file.data + p[4].offset, "behind", 6);
    ckpt_arena_release(&a);
    ckpt_buf_release(&file);
}

/* Each offset counts from where its own archive begins. */
TEST(an_archive_in_front_of_another)
{
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct ckpt_buf file;
    struct ckpt_file *f;
    struct zip_piece *p;
    size_t base = 0, n;

    ckpt_buf_init(&file, 4096);
    for (int i = 0; i < 2; i++) {
        base = file.len;
        zip_of(&file, &(struct part){.name = "a", .data = "one"}, 1);
    }
    assert_int_equal(ckpt_file_memory(&f, file.data, file.len, "zip", &err), 0);
    assert_true(zip_ends_here(f));
    assert_int_equal(zip_front(f), base);
    ckpt_file_close(f);
    n = walk(&p, &a, &file);
    assert_int_equal(n, 2);
    assert_int_equal(p[0].size, base);
    assert_memory_equal(file.data + p[1].offset, "one", 3);
    ckpt_arena_release(&a);
    ckpt_buf_release(&file);
}

/* A local header past the end once gave a piece past the end. */
TEST(seeds_stay_inside_the_file)
{
    static const char *const seeds[] = {"tests/fuzz/seeds/scan/zip-local-header-past-the-end"};

    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        struct ckpt_arena a = {0};
        struct ckpt_err err = {0};
        struct ckpt_file *f;
        struct zip_piece *p;
        size_t n;

        assert_int_equal(ckpt_file_open(&f, seeds[i], 0, &err), 0);
        assert_int_equal(zip_walk(&p, &n, f, &a, &err), 0);
        for (size_t k = 0; k < n; k++) {
            assert_true(p[k].offset <= ckpt_file_size(f));
            assert_true(p[k].size <= ckpt_file_size(f) - p[k].offset);
        }
        ckpt_arena_release(&a);
        ckpt_file_close(f);
    }
}
