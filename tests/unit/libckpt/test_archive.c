/*
 * archive, spool, dir_union: a packed directory is the directory it was; a name leads nowhere
 * else; what is damaged, cut, doubled or bloated is refused; folders together are one.
 */
#include "tests/unit/pack_of.h"
#include "tests/unit/faults.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "formats/formats.h"
#include "libckpt/io/archive.h"
#include "libckpt/io/spool.h"

#define WHERE "/tmp"
#define N(x)  (sizeof (x) / sizeof (x)[0])

static int open_bytes(struct ckpt_dir **out, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct ckpt_file *f;

    *out = NULL;
    if (ckpt_file_memory(&f, bytes, n, "x.tar", err))
        return err->code;
    return ckpt_archive_open(out, f, WHERE, err);
}

static void assert_text(struct ckpt_dir *d, const char *rel, const char *want)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    char got[400] = "";

    if (ckpt_file_open_at(&f, d, rel, &err))
        fail_msg("%s: %s", rel, err.text);
    assert_int_equal(ckpt_file_size(f), strlen(want));
    assert_int_equal(ckpt_file_read_at(f, got, strlen(want), 0, &err), 0);
    assert_string_equal(got, want);
    ckpt_file_close(f);
}

/* Names of a directory, joined by blanks, folders with a slash, what is neither in brackets. */
static void assert_names(struct ckpt_dir *d, const char *want)
{
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct ckpt_entry *e;
    char got[2000] = "";
    size_t n, at = 0;

    if (ckpt_dir_list(d, &arena, &e, &n, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%s%s", i ? " " : "",
                               e[i].is_file || e[i].is_dir ? "" : "?", e[i].name) +
              (e[i].is_dir ? (size_t)snprintf(got + strlen(got), 2, "/") : 0);
    assert_string_equal(got, want);
    ckpt_arena_release(&arena);
}

static char long_name[200];

TEST(a_packed_directory_is_the_directory)
{
    static const int formats[] = {ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FORMAT_TAR_PAX_RESTRICTED,
                                  ARCHIVE_FORMAT_TAR_GNUTAR, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE,
                                  ARCHIVE_FORMAT_ZIP, ARCHIVE_FORMAT_ZIP};
    const struct packed p[] = {
        {"./", AE_IFDIR, NULL, NULL},         {"./a", 0, NULL, "one"},
        {"./a-b/c", 0, NULL, "two"},          {"./d/e/f", 0, NULL, "three"},
        {"./d/e-/x", 0, NULL, ""},            {"./d", AE_IFDIR, NULL, NULL},
        {"./.h", 0, NULL, "hidden"},          {"./empty", AE_IFDIR, NULL, NULL},
        {"./\xc3\xa4", 0, NULL, "umlaut"},    {long_name, 0, NULL, "long"},
    };
    char names[400];

    memset(long_name, 'n', sizeof long_name - 1);
    memcpy(long_name, "./l/", 4);
    long_name[120] = '/';               /* ustar cuts there */
    snprintf(names, sizeof names, ".h a a-b/ d/ empty/ l/ \xc3\xa4");
    for (size_t i = 0; i < N(formats); i++) {
        const char *options = formats[i] != ARCHIVE_FORMAT_ZIP ? NULL
                              : i % 2 ? "zip:compression=deflate" : "zip:compression=store";
        size_t n = pack(formats[i], ARCHIVE_FILTER_NONE, options, p, N(p));
        struct ckpt_err err = {0};
        struct ckpt_dir *d, *sub, *below;
        struct ckpt_file *f;

        if (open_bytes(&d, pack_bytes, n, &err))
            fail_msg("%d: %s", formats[i], err.text);
        assert_names(d, names);
        assert_text(d, "a", "one");
        assert_text(d, "d/e/f", "three");
        assert_text(d, "d/e-/x", "");
        assert_text(d, long_name + 2, "long");
        assert_int_equal(ckpt_dir_open_at(&sub, d, "d", &err), 0);
        assert_names(sub, "e/ e-/");
        assert_int_equal(ckpt_dir_open_at(&below, sub, "e", &err), 0);
        assert_string_equal(ckpt_dir_path(below), "x.tar/d/e");
        ckpt_dir_close(d);
        ckpt_dir_close(sub);
        assert_text(below, "f", "three");       /* it lives by itself */
        assert_true(ckpt_dir_has(below, "f") && !ckpt_dir_has(below, "../e/f"));
        assert_int_equal(ckpt_file_open_at(&f, below, "../e/f", &err), CKPT_EREFUSED);
        assert_int_equal(ckpt_file_open_at(&f, below, "absent", &err), CKPT_ENOTFOUND);
        assert_int_equal(ckpt_dir_open_at(&sub, below, "f", &err), CKPT_ENOTFOUND);
        ckpt_dir_close(below);
    }
}

TEST_ERR(one_folder_is_entered)
{
    const struct packed p[] = {{"run", AE_IFDIR, NULL, NULL}, {"run/step", AE_IFDIR, NULL, NULL},
                               {"run/step/a", 0, NULL, "1"}, {"run/step/b", 0, NULL, "2"}};
    const struct packed q[] = {{"run/a", 0, NULL, "1"}, {"run-b", 0, NULL, "2"}};
    const struct packed here[] = {{".", AE_IFDIR, NULL, NULL}, {"run/a", 0, NULL, "1"}};
    const struct packed alone[] = {{"a", 0, NULL, "1"}};
    struct ckpt_dir *d;

    assert_int_equal(open_bytes(&d, pack_bytes, pack(ARCHIVE_FORMAT_TAR_USTAR, 0, NULL, p, 4), err), 0);
    assert_names(d, "step/");
    ckpt_dir_close(d);
    assert_int_equal(open_bytes(&d, pack_bytes, pack(ARCHIVE_FORMAT_TAR_USTAR, 0, NULL, here, 2), err), 0);
    assert_names(d, "run/");
    ckpt_dir_close(d);
    assert_int_equal(open_bytes(&d, pack_bytes, pack(ARCHIVE_FORMAT_TAR_USTAR, 0, NULL, q, 2), err), 0);
    assert_names(d, "run/ run-b");
    ckpt_dir_close(d);
    assert_int_equal(open_bytes(&d, pack_bytes, pack(ARCHIVE_FORMAT_TAR_USTAR, 0, NULL, alone, 1), err), 0);
    assert_names(d, "a");
    assert_text(d, "a", "1");
    ckpt_dir_close(d);
}

TEST(what_leads_out_is_refused)
{
    static char deep[140], wide[300];
    const struct {
        struct packed p[3];
        size_t        n;
        int           code;
        const char   *reason;
    } row[] = {
        {{{"/etc/x", 0, NULL, "x"}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"../x", 0, NULL, "x"}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"a/../../b", 0, NULL, "x"}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"a/..", 0, NULL, "x"}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"a//b", 0, NULL, "x"}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"a/./b", 0, NULL, "x"}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{".//../x", 0, NULL, "x"}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{deep, 0, NULL, "x"}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{wide, 0, NULL, "x"}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"l", AE_IFLNK, "/etc/passwd", NULL}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"d/l", AE_IFLNK, "../../x", NULL}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"d/l", AE_IFLNK, "x/../../../d", NULL}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"h", 0, "/etc/passwd", NULL}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"h", 0, "../x", NULL}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"h", 0, "absent", NULL}}, 1, CKPT_EFORMAT, "malformed"},
        {{{"h", 0, "h", NULL}}, 1, CKPT_EFORMAT, "malformed"},
        {{{"f", AE_IFIFO, NULL, NULL}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"c", AE_IFCHR, NULL, NULL}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"b", AE_IFBLK, NULL, NULL}}, 1, CKPT_EREFUSED, "refused-path"},
        {{{"a", 0, NULL, "1"}, {"a", 0, NULL, "2"}}, 2, CKPT_EFORMAT, "duplicate"},
        {{{"a", 0, NULL, "1"}, {"./a", 0, NULL, "1"}}, 2, CKPT_EFORMAT, "duplicate"},
        {{{"a", 0, NULL, "1"}, {"a", AE_IFDIR, NULL, NULL}}, 2, CKPT_EFORMAT, "duplicate"},
        {{{"a", 0, NULL, "1"}, {"a-b", 0, NULL, "2"}, {"a/c", 0, NULL, "3"}}, 3, CKPT_EFORMAT,
         "ambiguous"},
        {{{"l", AE_IFLNK, "d", NULL}, {"d/x", 0, NULL, "x"}, {"l/y", 0, NULL, "x"}}, 3,
         CKPT_EFORMAT, "ambiguous"},
    };

    for (size_t i = 0; i < 65; i++)
        memcpy(deep + 2 * i, "d/", 2);
    deep[129] = '\0';
    memset(wide, 'w', 256);
    for (size_t i = 0; i < N(row); i++) {
        struct ckpt_err err = {0};
        struct ckpt_dir *d;
        size_t n = pack(ARCHIVE_FORMAT_TAR_PAX_RESTRICTED, 0, NULL, row[i].p, row[i].n);

        if (open_bytes(&d, pack_bytes, n, &err) != row[i].code ||
            strcmp(err.reason, row[i].reason) != 0)
            fail_msg("%zu %s: %d %s %s", i, row[i].p[0].name, err.code, err.reason, err.text);
        assert_null(d);
    }
}

TEST_ERR(links_inside)
{
    const struct packed p[] = {{"d/a", 0, NULL, "bytes"}, {"hard", 0, "d/a", NULL},
                               {"soft", AE_IFLNK, "d/../d/a", NULL}};
    struct ckpt_dir *d;
    struct ckpt_file *f;

    assert_int_equal(open_bytes(&d, pack_bytes, pack(ARCHIVE_FORMAT_TAR_USTAR, 0, NULL, p, 3), err), 0);
    assert_names(d, "d/ hard ?soft");
    assert_text(d, "hard", "bytes");
    assert_false(ckpt_dir_has(d, "soft"));
    assert_int_equal(ckpt_file_open_at(&f, d, "soft", err), CKPT_EREFUSED);
    ckpt_dir_close(d);
}

/* A header of ustar in zeros: an empty file, or a hard link to target. */
static void put_header(unsigned char block[512], const char *name, const char *target)
{
    unsigned sum = 0;

    snprintf((char *)block, 100, "%s", name);
    memcpy(block + 100, "0000644\0000000000\0000000000\00000000000000\00000000000000", 48);
    memset(block + 148, ' ', 8);
    block[156] = target ? '1' : '0';
    if (target)
        snprintf((char *)block + 157, 100, "%s", target);
    memcpy(block + 257, "ustar\00000", 8);
    for (size_t i = 0; i < 512; i++)
        sum += block[i];
    snprintf((char *)block + 148, 8, "%06o", sum);
}

/* Seconds of CPU, far from those of a search through all members for each of them. */
TEST_ERR(links_may_be_as_many_as_members)
{
    enum { LINKS = 100000, MOST_SECONDS = 8 };
    unsigned char *tar = calloc(LINKS + 3, 512);
    clock_t begun = clock();
    struct ckpt_dir *d;

    put_header(tar, "a", NULL);
    for (size_t i = 1; i <= LINKS; i++) {
        char name[32];

        snprintf(name, sizeof name, "d/%07zu", i);
        put_header(tar + 512 * i, name, i == LINKS ? "d/0000001" : "a");
    }
    assert_int_equal(open_bytes(&d, tar, (LINKS + 3) * (size_t)512, err), 0);
    assert_text(d, "d/0100000", "");
    assert_true((clock() - begun) / CLOCKS_PER_SEC < MOST_SECONDS);
    ckpt_dir_close(d);
    free(tar);
}

TEST(every_cut_is_an_error)
{
    static const int formats[] = {ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FORMAT_TAR_GNUTAR,
                                  ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, ARCHIVE_FORMAT_ZIP};
    const struct packed p[] = {{"a", 0, NULL, "one"}, {long_name, 0, NULL, "two"},
                               {"b", 0, NULL, "three"}};

    memset(long_name, 'n', sizeof long_name - 1);
    long_name[120] = '/';
    for (size_t i = 0; i < N(formats); i++) {
        size_t n = pack(formats[i], 0, NULL, p, 3);
        /* Of the two blocks that end a tar, one is enough. */
        size_t most = formats[i] == ARCHIVE_FORMAT_ZIP ? n : n - 512;
        struct ckpt_err err = {0};
        struct ckpt_dir *d;

        for (size_t cut = 0; cut < most; cut += cut % 512 < 8 || cut % 512 > 504 ? 1 : 7) {
            ckpt_err_clear(&err);
            if (open_bytes(&d, pack_bytes, cut, &err) == 0)
                fail_msg("format %d is taken with %zu bytes of %zu", formats[i], cut, n);
        }
        assert_int_equal(open_bytes(&d, pack_bytes, n, &err), 0);
        ckpt_dir_close(d);
    }
}

TEST(flips)
{
    static const int formats[] = {ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FORMAT_ZIP};
    const struct packed p[] = {{"a", 0, NULL, "one"}, {"b/c", 0, NULL, "two"}};

    for (size_t i = 0; i < N(formats); i++) {
        size_t n = pack(formats[i], 0, NULL, p, 2);

        for (size_t bit = 0; bit < 8 * n; bit++) {
            /* Of a tar all of a header is under its checksum, and of the end all must be zero. */
            bool guarded = i == 0 && (bit / 4096 % 2 == 0 || bit / 4096 > 3);
            struct ckpt_arena arena = {0};
            struct ckpt_err err = {0};
            struct ckpt_entry *e;
            struct ckpt_dir *d;
            size_t k;

            pack_bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            if (open_bytes(&d, pack_bytes, n, &err) == 0) {
                if (guarded && (bit / 8 % 512 < 148 || bit / 8 % 512 > 155))
                    fail_msg("bit %zu of byte %zu", bit % 8, bit / 8);
                assert_int_equal(ckpt_dir_list(d, &arena, &e, &k, &err), 0);
                ckpt_arena_release(&arena);
            } else {
                assert_int_not_equal(err.text[0], 0);
            }
            ckpt_dir_close(d);
            pack_bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
}

TEST_ERR(nothing_lies_behind_the_end)
{
    const struct packed p[] = {{"a", 0, NULL, "one"}};
    size_t n = pack(ARCHIVE_FORMAT_TAR_USTAR, 0, NULL, p, 1);
    struct ckpt_dir *d;

    memset(pack_bytes + n, 0, 10240);
    assert_int_equal(open_bytes(&d, pack_bytes, n + 10240, err), 0);
    ckpt_dir_close(d);
    pack_bytes[n + 10239] = 1;
    assert_int_equal(open_bytes(&d, pack_bytes, n + 10240, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "ambiguous");
    memcpy(pack_bytes + n, pack_bytes, n);      /* two archives behind each other */
    assert_int_equal(open_bytes(&d, pack_bytes, 2 * n, err), CKPT_EFORMAT);
}

TEST_ERR(the_two_directories_of_a_zip_agree)
{
    const struct packed p[] = {{"aaaa", 0, NULL, "payload"}, {"bbbb", 0, NULL, "x"}};
    size_t n = pack(ARCHIVE_FORMAT_ZIP, 0, "zip:compression=store", p, 2);
    unsigned char *at = memmem(pack_bytes, n, "aaaa", 4);
    struct ckpt_dir *d;

    at[0] = 'c';                                /* only before the member */
    assert_int_equal(open_bytes(&d, pack_bytes, n, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "ambiguous");
    at[0] = 'a';
    at = memmem(pack_bytes, n, "payload", 7);
    at[3] ^= 1;
    assert_int_equal(open_bytes(&d, pack_bytes, n, err), CKPT_EFORMAT);
    at[3] ^= 1;
    assert_int_equal(open_bytes(&d, pack_bytes, n, err), 0);
    ckpt_dir_close(d);
}

/* A zip file that was streamed, with one inside that was, as it is: sizes follow the bytes, and who
 * looks for headers finds those inside.  F11 */
TEST_ERR(a_zip_inside_a_zip)
{
    struct ckpt_file *f;
    struct ckpt_dir *d;

    assert_int_equal(ckpt_file_open(&f, "tests/fuzz/seeds/archive/nested.zip", 0, err), 0);
    if (ckpt_archive_open(&d, f, WHERE, err))
        fail_msg("%s", err->text);
    assert_text(d, "before", "one");
    assert_text(d, "behind", "two");
    ckpt_dir_close(d);
}

/* A member that the directory does not tell, first, between two others and last. */
TEST_ERR(a_member_that_is_hidden)
{
    const struct packed p[] = {{"aaaa", 0, NULL, "one"}, {"bbbb", 0, NULL, "two"},
                               {"cccc", 0, NULL, "three"}};
    struct ckpt_dir *d;

    for (size_t k = 0; k < 3; k++) {
        size_t n = pack(ARCHIVE_FORMAT_ZIP, 0, "zip:compression=store", p, 3);
        unsigned char *at = memmem(pack_bytes, n, "PK\1\2", 4), *end, *next;
        size_t gone;

        for (size_t i = 0; i < k; i++)
            at = memmem(at + 4, n - (size_t)(at + 4 - pack_bytes), "PK\1\2", 4);
        gone = 46u + at[28] + at[30] + at[32];
        next = at + gone;
        memmove(at, next, n - (size_t)(next - pack_bytes));
        n -= gone;
        end = pack_bytes + n - 22;
        assert_memory_equal(end, "PK\5\6", 4);
        end[8]--;
        end[10]--;
        end[12] = (unsigned char)(end[12] - gone);      /* of less than 256 bytes */
        assert_int_equal(end[13], 0);
        assert_int_equal(open_bytes(&d, pack_bytes, n, err), CKPT_EFORMAT);
        assert_string_equal(err->reason, "ambiguous");
        ckpt_err_clear(err);
    }
}

struct stream {
    int    fd;
    size_t n;
};

static void *pour(void *arg)
{
    struct stream *s = arg;

    for (size_t at = 0; at < s->n;) {
        ssize_t k = write(s->fd, pack_bytes + at, s->n - at < 1000 ? s->n - at : 1000);

        if (k < 0)
            break;
        at += (size_t)k;
    }
    close(s->fd);
    return NULL;
}

TEST(streams_are_unpacked)
{
    static const int filters[] = {ARCHIVE_FILTER_NONE, ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_BZIP2,
                                  ARCHIVE_FILTER_XZ, ARCHIVE_FILTER_LZ4, ARCHIVE_FILTER_ZSTD};
    const struct packed p[] = {{"a", 0, NULL, "one"}, {"b", 0, NULL, "two"}};

    for (size_t i = 0; i < N(filters); i++)
        for (size_t cut = 0; cut < 2; cut++) {
            size_t n = pack(ARCHIVE_FORMAT_TAR_USTAR, filters[i], NULL, p, 2);
            struct stream s = {.n = n - cut * n / 3};
            struct ckpt_err err = {0};
            struct ckpt_file *f, *m;
            struct ckpt_dir *d;
            pthread_t thread;
            int fd[2], rc;

            assert_int_equal(ckpt_spool_is_compressed(pack_bytes, n), i > 0);
            assert_int_equal(pipe(fd), 0);
            s.fd = fd[1];
            assert_int_equal(pthread_create(&thread, NULL, pour, &s), 0);
            rc = ckpt_spool_fd(&f, fd[0], &(struct ckpt_spool){.name = "stream", .where = WHERE}, &err);
            pthread_join(thread, NULL);
            close(fd[0]);
            if (rc == 0)
                rc = ckpt_archive_open(&d, f, WHERE, &err);
            assert_int_equal(rc, cut ? CKPT_EFORMAT : 0);
            if (rc == 0) {
                struct ckpt_file *a1, *a2, *b;

                assert_text(d, "b", "two");
                assert_int_equal(ckpt_file_open_at(&a1, d, "a", &err), 0);
                assert_int_equal(ckpt_file_open_at(&a2, d, "a", &err), 0);
                assert_int_equal(ckpt_file_open_at(&b, d, "b", &err), 0);
                assert_true(ckpt_file_same(a1, a2));
                assert_false(ckpt_file_same(a1, b));    /* two files of one archive */
                ckpt_file_close(a1);
                ckpt_file_close(a2);
                ckpt_file_close(b);
                ckpt_dir_close(d);
            }
            assert_int_equal(ckpt_file_memory(&m, pack_bytes, n, "m", &err), 0);
            rc = ckpt_spool_file(&f, m, WHERE, &err);
            assert_int_equal(rc, 0);
            ckpt_file_close(f);
        }
}

TEST_ERR(a_bomb_is_refused)
{
    static const char zeros[1 << 16];
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    struct ckpt_file *f, *m;
    size_t n = 0;

    assert_int_equal(archive_write_set_format_raw(a), ARCHIVE_OK);
    assert_int_equal(archive_write_add_filter_zstd(a), ARCHIVE_OK);
    assert_int_equal(archive_write_open_memory(a, pack_bytes, PACK_ROOM, &n), ARCHIVE_OK);
    archive_entry_set_filetype(e, AE_IFREG);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    for (size_t i = 0; i < 4096; i++)           /* 256 MiB */
        assert_int_equal(archive_write_data(a, zeros, sizeof zeros), sizeof zeros);
    archive_entry_free(e);
    assert_int_equal(archive_write_free(a), ARCHIVE_OK);
    assert_int_equal(ckpt_file_memory(&m, pack_bytes, n, "bomb", err), 0);
    assert_int_equal(ckpt_spool_file(&f, m, WHERE, err), CKPT_ELIMIT);
    assert_null(f);
    assert_int_equal(ckpt_file_memory(&m, pack_bytes, n, "bomb", err), 0);
    assert_int_equal(ckpt_spool_file(&f, m, "/absent", err), CKPT_ECREATE);
}

static void make_dir(const char *dir, const char *name)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static int join(struct ckpt_dir **out, const char *dir, const char *const *name, size_t n,
                struct ckpt_err *err)
{
    struct ckpt_dir *part[4];
    char path[600];

    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        assert_int_equal(ckpt_dir_open(&part[i], path, 0, err), 0);
    }
    return ckpt_dir_union(out, part, n, err);
}

TEST_ERR(folders_together_are_one)
{
    static const char *const nodes[] = {"n0", "n1", "n2"};
    const char *d = scratch("union");
    struct ckpt_arena arena = {0};
    struct ckpt_entry *e;
    struct ckpt_dir *u, *sub;
    struct ckpt_file *f;
    size_t n;

    for (size_t i = 0; i < 3; i++)
        make_dir(d, nodes[i]);
    make_dir(d, "n0/step");
    make_dir(d, "n1/step");
    make_dir(d, "n1/only");
    file_put(d, "n0/latest", "step");
    file_put(d, "n1/latest", "step");
    file_put(d, "n2/latest", "step");
    file_put(d, "n0/step/rank0", "zero");
    file_put(d, "n1/step/rank1", "one");
    file_put(d, "n0/other", "same size");
    file_put(d, "n2/other", "SAME SIZE");
    assert_int_equal(join(&u, d, nodes, 3, err), 0);
    assert_names(u, "latest only/ other step/");
    assert_text(u, "latest", "step");
    assert_text(u, "step/rank1", "one");
    assert_int_equal(ckpt_file_open_at(&f, u, "other", err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "ambiguous");
    assert_int_equal(ckpt_file_open_at(&f, u, "absent", err), CKPT_ENOTFOUND);
    assert_int_equal(ckpt_file_open_at(&f, u, "../n0/latest", err), CKPT_EREFUSED);
    assert_int_equal(ckpt_dir_open_at(&sub, u, "absent", err), CKPT_ENOTFOUND);
    assert_int_equal(ckpt_dir_open_at(&sub, u, "step", err), 0);
    ckpt_dir_close(u);
    assert_names(sub, "rank0 rank1");
    ckpt_dir_close(sub);
    file_put(d, "n2/step", "a file");
    assert_int_equal(join(&u, d, nodes, 3, err), 0);
    assert_int_equal(ckpt_dir_list(u, &arena, &e, &n, err), CKPT_EFORMAT);
    ckpt_dir_close(u);
    ckpt_arena_release(&arena);
}

#define DS "tests/golden/deepspeed/0.14-s3_w2_bf16/ckpt"

/* A checkpoint whose ranks lie apart: not one without the other, whole with both. */
TEST_ERR(a_checkpoint_of_two_nodes)
{
    const char *d = scratch("nodes");
    struct ckpt_source *s;
    char a[600], b[600], command[6000];
    const char *part[1] = {b};

    snprintf(a, sizeof a, "%s/a", d);
    snprintf(b, sizeof b, "%s/b", d);
    snprintf(command, sizeof command,
             "mkdir -p %s/global_step4 %s/global_step4 && cp " DS "/latest %s && "
             "cp " DS "/global_step4/*rank_0_* %s/global_step4 && "
             "cp " DS "/global_step4/*rank_1_* %s/global_step4 && "
             "tar -cf %s.tar -C %s .", a, b, a, a, b, b, b);
    assert_int_equal(system(command), 0);
    assert_int_not_equal(ckpt_open(&s, a, NULL, err), 0);
    for (int packed = 0; packed < 2; packed++) {
        struct ckpt_open_opts opts = {.part = part, .n_part = 1, .spool = WHERE};

        if (packed)
            strcat(b, ".tar");
        if (ckpt_open(&s, a, &opts, err))
            fail_msg("%s", err->text);
        assert_string_equal(ckpt_source_format(s), "deepspeed");
        ckpt_source_close(s);
    }
    part[0] = DS "/latest";
    assert_int_equal(ckpt_open(&s, a, &(struct ckpt_open_opts){.part = part, .n_part = 1}, err),
                     CKPT_EUSAGE);
}

TEST(each_allocation_read_and_open_fails)
{
    const struct packed p[] = {{"d/a", 0, NULL, "one"}, {"d/b", 0, NULL, "two"}, {"e", 0, NULL, ""}};
    size_t n = pack(ARCHIVE_FORMAT_ZIP, 0, NULL, p, 3);

    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(OPEN) | FAULT(WRITE)}; faults_next(&f);) {
        struct ckpt_arena arena = {0};
        struct ckpt_err err = {0};
        struct ckpt_dir *d, *sub = NULL, *u = NULL;
        struct ckpt_entry *e;
        struct ckpt_file *file = NULL;
        size_t count;
        int rc = open_bytes(&d, pack_bytes, n, &err);

        if (rc == 0 && (rc = ckpt_dir_open_at(&sub, d, "d", &err)) == 0) {
            struct ckpt_dir *both[2] = {d, sub};

            d = sub = NULL;
            rc = ckpt_dir_union(&u, both, 2, &err);
        }
        if (rc == 0)
            rc = ckpt_dir_list(u, &arena, &e, &count, &err);
        if (rc == 0)
            rc = ckpt_file_open_at(&file, u, "d/b", &err);
        faults_disarm(&f);
        ckpt_file_close(file);
        ckpt_dir_close(u);
        ckpt_dir_close(sub);
        ckpt_dir_close(d);
        ckpt_arena_release(&arena);
        assert_int_equal(rc != 0, f.struck);
    }
}
