/* follow: digests of files while they are written. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/io/follow.h"
#include "libckpt/mem.h"

enum { BYTES = 5 << 20 };

/* A file of these bytes below dir, and its digest. */
static int a_file(char path[4096], char hex[CKPT_SHA256_HEX], const char *dir,
                  const unsigned char *bytes)
{
    unsigned char digest[CKPT_SHA256_BYTES];
    struct ckpt_sha256 *s;
    struct ckpt_err err = {0};
    int fd;

    snprintf(path, 4096, "%s/file", dir);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, BYTES, 0), BYTES);
    assert_int_equal(ckpt_sha256_new(&s, &err), 0);
    assert_int_equal(ckpt_sha256_add(s, bytes, BYTES, &err), 0);
    assert_int_equal(ckpt_sha256_end(s, digest, &err), 0);
    ckpt_sha256_free(s);
    ckpt_digest_hex(hex, digest, sizeof digest);
    return fd;
}

static unsigned char *some_bytes(void)
{
    unsigned char *p = malloc(BYTES);

    assert_non_null(p);
    for (size_t i = 0; i < BYTES; i++)
        p[i] = (unsigned char)(i * 2654435761u >> 13);
    return p;
}

TEST(ranges_of_any_order_give_the_digest_of_the_file)
{
    unsigned char *bytes = some_bytes();
    char path[4096], hex[CKPT_SHA256_HEX], got[CKPT_SHA256_HEX] = "";
    int fd = a_file(path, hex, scratch("follow"), bytes);

    for (size_t step = 4096; step < 3 * BYTES; step *= 7) {
        struct follow *f = follow_begin(fd, BYTES);
        size_t n = (BYTES + step - 1) / step;

        assert_non_null(f);
        for (size_t k = 0; k < n; k++) {        /* even ones, then odd ones backwards */
            size_t i = k < (n + 1) / 2 ? 2 * k : 2 * (n - k) - 1;
            size_t at = i * step;

            follow_wrote(f, at, at + step < BYTES ? step : BYTES - at);
        }
        assert_true(follow_end(f, got));
        assert_string_equal(got, hex);
    }
    close(fd);
    free(bytes);
}

TEST(what_is_written_twice_or_never_has_no_digest)
{
    unsigned char *bytes = some_bytes();
    char path[4096], hex[CKPT_SHA256_HEX], got[CKPT_SHA256_HEX] = "";
    int fd = a_file(path, hex, scratch("follow"), bytes);
    struct follow *f = follow_begin(fd, BYTES);

    follow_wrote(f, 0, 100);
    follow_wrote(f, 50, 10);
    follow_wrote(f, 100, BYTES - 100);
    assert_false(follow_end(f, got));
    f = follow_begin(fd, BYTES);
    follow_wrote(f, 0, 100);
    follow_wrote(f, 101, BYTES - 101);
    assert_false(follow_end(f, got));
    f = follow_begin(fd, BYTES + 1);            /* the file is shorter than that */
    follow_wrote(f, 0, BYTES + 1);
    assert_false(follow_end(f, got));
    f = follow_begin(fd, BYTES);                /* a range too many waits: given up, not wrong */
    for (uint64_t i = 0; i < 5000; i++)
        follow_wrote(f, 2 * i + 1, 1);
    follow_wrote(f, 0, 1);
    follow_wrote(f, 10000, BYTES - 10000);
    assert_false(follow_end(f, got));
    f = follow_begin(fd, BYTES);
    follow_wrote(f, 0, BYTES / 2);
    follow_abort(f);
    follow_abort(NULL);
    assert_string_equal(got, "");
    close(fd);
    free(bytes);
}

TEST_ERR(a_file_of_a_directory_leaves_its_digest_to_be_taken_once)
{
    unsigned char *bytes = some_bytes();
    const char *at = scratch("follow");
    char path[4096], dir_path[4200], hex[CKPT_SHA256_HEX], got[CKPT_SHA256_HEX];
    struct ckpt_outdir *dir;
    struct ckpt_out *out;

    close(a_file(path, hex, at, bytes));
    snprintf(dir_path, sizeof dir_path, "%s/dir", at);
    assert_int_equal(ckpt_outdir_create(&dir, dir_path, err), 0);
    follow_outdir(dir, BYTES);
    for (int small = 0; small < 2; small++) {
        assert_int_equal(ckpt_outdir_file(&out, dir, small ? "in/small" : "in/large", err), 0);
        assert_int_equal(ckpt_out_reserve(out, BYTES - (unsigned)small, err), 0);
        assert_int_equal(ckpt_out_write_at(out, bytes + 1000, BYTES - 1000 - (unsigned)small, 1000, err), 0);
        assert_int_equal(ckpt_out_write_at(out, bytes, 1000, 0, err), 0);
        assert_int_equal(ckpt_out_commit(out, err), 0);
    }
    snprintf(path, sizeof path, "%s", ckpt_outdir_staging(dir));
    assert_false(follow_take(got, path, "in/small", BYTES - 1));
    assert_true(follow_take(got, path, "in/large", BYTES));
    assert_string_equal(got, hex);
    assert_false(follow_take(got, path, "in/large", BYTES));
    snprintf(dir_path, sizeof dir_path, "%s/in", path);
    assert_int_equal(entries(dir_path), 2);
    ckpt_outdir_abort(dir);
    free(bytes);
}

TEST(a_digest_of_another_size_or_damaged_is_not_taken)
{
    static const char hex[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const char *at = scratch("follow");
    char got[CKPT_SHA256_HEX], path[4096];
    int fd = open(at, O_RDONLY | O_DIRECTORY);

    follow_leave(fd, "x", 10, hex);
    assert_false(follow_take(got, at, "x", 11));
    follow_leave(fd, "x", 10, hex);
    assert_true(follow_take(got, at, "x", 10));
    assert_string_equal(got, hex);
    snprintf(path, sizeof path, "%s/.x.sha256", at);
    follow_leave(fd, "x", 10, hex);
    assert_int_equal(truncate(path, 40), 0);
    assert_false(follow_take(got, at, "x", 10));
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_false(follow_take(got, at, "x", 10));
    close(fd);
}
