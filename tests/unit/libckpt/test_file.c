/* file, dir, digest: one way in, and nothing leads out of a directory. */
#include "tests/unit/unit.h"

#include "libckpt/digest.h"
#include "libckpt/file.h"

TEST_ERR(reads_inside_only)
{
    const char *d = scratch("file");
    struct ckpt_file *f, *w;
    char path[600], bytes[8];

    file_put(d, "a", "0123456789");
    assert_int_equal(ckpt_file_open(&f, file_in(path, d, "a"), 0, err), 0);
    assert_int_equal(ckpt_file_size(f), 10);
    assert_int_equal(ckpt_file_read_at(f, bytes, 4, 6, err), 0);
    assert_memory_equal(bytes, "6789", 4);
    assert_int_equal(ckpt_file_read_at(f, bytes, 4, 7, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "truncated");
    assert_int_equal(ckpt_file_read_at(f, bytes, 1, UINT64_MAX, err), CKPT_EFORMAT);
    assert_int_equal(ckpt_file_window(&w, f, 2, 4, "w", err), 0);
    assert_int_equal(ckpt_file_read_at(w, bytes, 4, 0, err), 0);
    assert_memory_equal(bytes, "2345", 4);
    assert_int_equal(ckpt_file_read_at(w, bytes, 1, 4, err), CKPT_EFORMAT);
    assert_true(ckpt_file_same(f, w));
    ckpt_file_close(w);
    assert_int_equal(ckpt_file_window(&w, f, 8, 4, "w", err), CKPT_EFORMAT);
    ckpt_file_close(f);
}

TEST_ERR(only_regular_files)
{
    const char *d = scratch("kinds");
    struct ckpt_file *f;
    char path[600], link_path[600];

    file_put(d, "a", "x");
    assert_int_equal(mkfifo(file_in(path, d, "fifo"), 0600), 0);
    assert_int_equal(ckpt_file_open(&f, path, 0, err), CKPT_ENOTFOUND);
    assert_int_equal(ckpt_file_open(&f, d, 0, err), CKPT_ENOTFOUND);
    assert_int_equal(ckpt_file_open(&f, "/dev/null", 0, err), CKPT_ENOTFOUND);
    assert_int_equal(symlink("a", file_in(link_path, d, "link")), 0);
    assert_int_equal(ckpt_file_open(&f, link_path, 0, err), CKPT_EREFUSED);
    assert_int_equal(ckpt_file_open(&f, link_path, CKPT_FOLLOW, err), 0);
    ckpt_file_close(f);
}

TEST_ERR(nothing_leads_out_of_a_directory)
{
    static const char *const out[] = {"../file", "/etc/passwd", "sub/../../x", "link", "up/passwd",
                                      ""};
    const char *d = scratch("below");
    struct ckpt_dir *dir;
    struct ckpt_file *f;
    char path[600];

    assert_int_equal(mkdir(file_in(path, d, "sub"), 0777), 0);
    file_put(d, "sub/in", "x");
    assert_int_equal(symlink("/etc/passwd", file_in(path, d, "link")), 0);
    assert_int_equal(symlink("/etc", file_in(path, d, "up")), 0);
    assert_int_equal(ckpt_dir_open(&dir, d, 0, err), 0);
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) {
        assert_int_not_equal(ckpt_file_open_at(&f, dir, out[i], err), 0);
        assert_false(ckpt_dir_has(dir, out[i]));
    }
    assert_int_equal(ckpt_file_open_at(&f, dir, "sub/in", err), 0);
    ckpt_file_close(f);
    ckpt_dir_close(dir);
    assert_int_equal(ckpt_dir_open(&dir, path, 0, err), CKPT_EREFUSED);
}

TEST_ERR(followed_links_lead_out_but_no_name_does)
{
    static const char *const out[] = {"../file", "/etc/passwd", "sub/..", "sub/../../x", "..",
                                      "up/..", "up/../below/blob", ""};
    const char *d = scratch("follow");
    struct ckpt_dir *dir, *sub;
    struct ckpt_file *f;
    char path[600];

    file_put(d, "blob", "x");
    file_put(d, "file", "x");
    assert_int_equal(mkdir(file_in(path, d, "below"), 0777), 0);
    assert_int_equal(ckpt_dir_open(&dir, path, CKPT_FOLLOW, err), 0);
    file_put(path, "in", "x");
    assert_int_equal(symlink("../blob", file_in(path, d, "below/link")), 0);  /* as in the hub's caches */
    assert_int_equal(symlink("..", file_in(path, d, "below/up")), 0);
    assert_int_equal(mkdir(file_in(path, d, "below/sub"), 0777), 0);
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) {
        assert_int_equal(ckpt_file_open_at(&f, dir, out[i], err), CKPT_EREFUSED);
        assert_non_null(strstr(err->text, "leads out of the directory"));
        assert_int_equal(ckpt_dir_open_at(&sub, dir, out[i], err), CKPT_EREFUSED);
        assert_false(ckpt_dir_has(dir, out[i]));
    }
    assert_int_equal(ckpt_file_open_at(&f, dir, "link", err), 0);
    ckpt_file_close(f);
    assert_int_equal(ckpt_file_open_at(&f, dir, "up/blob", err), 0);
    ckpt_file_close(f);
    ckpt_dir_close(dir);
}

TEST_ERR(list_is_sorted)
{
    const char *d = scratch("list");
    struct ckpt_arena a = {0};
    struct ckpt_entry *e;
    struct ckpt_dir *dir;
    size_t n;

    file_put(d, "b", "22");
    file_put(d, "a", "1");
    file_put(d, ".h", "");
    assert_int_equal(ckpt_dir_open(&dir, d, 0, err), 0);
    assert_int_equal(ckpt_dir_list(dir, &a, &e, &n, err), 0);
    assert_int_equal(n, 3);
    assert_string_equal(e[0].name, ".h");
    assert_string_equal(e[2].name, "b");
    assert_int_equal(e[2].size, 2);
    assert_true(e[2].is_file && !e[2].is_dir);
    ckpt_arena_release(&a);
    ckpt_dir_close(dir);
}

TEST(clean_names)
{
    assert_true(ckpt_file_name_is_clean("a"));
    assert_false(ckpt_file_name_is_clean(""));
    assert_false(ckpt_file_name_is_clean(".."));
    assert_false(ckpt_file_name_is_clean("a/b"));
    assert_true(ckpt_file_path_is_clean("a/b.c"));
    assert_false(ckpt_file_path_is_clean("a//b"));
    assert_true(ckpt_file_path_is_kept("a/.metadata"));
    assert_true(ckpt_file_path_is_kept(".metadata"));
    assert_true(ckpt_file_path_is_kept("a/b.c"));
    assert_false(ckpt_file_path_is_kept("a/.b"));
    assert_false(ckpt_file_path_is_kept("../.metadata"));
    assert_false(ckpt_file_path_is_kept("/.metadata"));
    assert_false(ckpt_file_path_is_kept(".a/.metadata"));
    assert_false(ckpt_file_path_is_clean("/a"));
    assert_false(ckpt_file_path_is_clean("a/../b"));
    assert_false(ckpt_file_path_is_clean("a/.b"));
    assert_true(ckpt_file_path_is_kept("a/.metadata"));
    assert_true(ckpt_file_path_is_kept(".metadata"));
    assert_true(ckpt_file_path_is_kept("a/b.c"));
    assert_false(ckpt_file_path_is_kept("a/.b"));
    assert_false(ckpt_file_path_is_kept("../.metadata"));
    assert_false(ckpt_file_path_is_kept("/.metadata"));
    assert_false(ckpt_file_path_is_kept(".a/.metadata"));
}

TEST_ERR(digests)
{
    char hex[CKPT_SHA256_HEX];
    unsigned char x[16];
    struct ckpt_file *f;

    assert_int_equal(ckpt_file_memory(&f, "abc", 3, "abc", err), 0);
    assert_int_equal(ckpt_sha256_file(hex, f, err), 0);        /* FIPS 180-2, B.1 */
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ckpt_file_close(f);
    ckpt_xxh128(x, "", 0);                                      /* xxHash's own vector */
    ckpt_digest_hex(hex, x, 16);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
}
