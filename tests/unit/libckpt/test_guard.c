/* guard: a range is proved whole at its first read, and never in vain. */
#include "tests/unit/unit.h"

#include <string.h>
#include <zlib.h>

#include "libckpt/base/fault.h"
#include "libckpt/io/guard.h"
#include "libckpt/base/pool.h"

#define BIG ((size_t)3 << 20)           /* more than a piece */

struct guarded {
    struct ckpt_file *file;
    unsigned char    *bytes;
    struct ckpt_sum   sum[3];
};

/* Bytes 10 to 20, 20 to BIG, BIG + 5 to BIG + 10. */
static void guarded_open(struct guarded *g)
{
    struct ckpt_err err = {0};

    g->bytes = malloc(BIG + 20);
    for (size_t i = 0; i < BIG + 20; i++)
        g->bytes[i] = (unsigned char)(i * 7 ^ i >> 8);
    g->sum[0] = (struct ckpt_sum){.name = "a", .offset = 10, .size = 10};
    g->sum[1] = (struct ckpt_sum){.name = "b", .offset = 20, .size = BIG - 20};
    g->sum[2] = (struct ckpt_sum){.name = "c", .offset = BIG + 5, .size = 5};
    for (size_t i = 0; i < 3; i++)
        g->sum[i].crc = (uint32_t)crc32_z(0, g->bytes + g->sum[i].offset, g->sum[i].size);
    assert_int_equal(ckpt_file_memory(&g->file, g->bytes, BIG + 20, "guarded", &err), 0);
    assert_int_equal(ckpt_guard_file(g->file, g->sum, 3, &err), 0);
}

static void guarded_close(struct guarded *g)
{
    ckpt_file_close(g->file);
    free(g->bytes);
}

TEST_ERR(right_bytes_are_read)
{
    struct guarded g;
    unsigned char *back = malloc(BIG + 20), byte;

    guarded_open(&g);
    for (int i = 0; i < 2; i++) {
        memset(back, 0, BIG + 20);
        assert_int_equal(ckpt_file_read_at(g.file, back, BIG + 20, 0, err), 0);
        assert_memory_equal(back, g.bytes, BIG + 20);
    }
    assert_int_equal(ckpt_file_read_at(g.file, &byte, 0, BIG + 20, err), 0);
    assert_int_equal(ckpt_file_read_at(g.file, &byte, 1, BIG + 20, err), CKPT_EFORMAT);
    free(back);
    guarded_close(&g);
}

/* The range around the byte, and no other, is told to be wrong; at every read. */
TEST(a_wrong_range_is_told)
{
    static const struct { size_t flip; const char *name; size_t at, n; } rows[] = {
        {10, "a", 19, 1}, {19, "a", 0, 11}, {20, "b", BIG - 1, 1}, {BIG - 1, "b", 19, 2},
        {BIG + 9, "c", BIG, 20}, {BIG / 2, "b", 0, BIG + 20},
    };
    unsigned char *back = malloc(BIG + 20);
    struct guarded g;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char words[32];

        guarded_open(&g);
        g.bytes[rows[i].flip] ^= 1;
        snprintf(words, sizeof words, "guarded: %s: ", rows[i].name);
        for (int k = 0; k < 2; k++) {
            struct ckpt_err err = {0};

            assert_int_equal(ckpt_file_read_at(g.file, back, rows[i].n, rows[i].at, &err),
                             CKPT_EFORMAT);
            assert_string_equal(err.reason, "digest");
            assert_non_null(strstr(err.text, words));
        }
        guarded_close(&g);
    }
    free(back);
}

TEST_ERR(bytes_outside_and_other_ranges_are_read)
{
    static const struct { size_t at, n; } rows[] = {
        {0, 10}, {10, 10}, {BIG, 5}, {BIG + 10, 10}, {BIG + 5, 5}, {20, 0}, {BIG - 1, 0},
    };
    unsigned char back[32];
    struct guarded g;

    guarded_open(&g);
    g.bytes[BIG / 2] ^= 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(ckpt_file_read_at(g.file, back, rows[i].n, rows[i].at, err), 0);
        assert_memory_equal(back, g.bytes + rows[i].at, rows[i].n);
    }
    assert_int_equal(ckpt_guard_prove(g.file, 0, 20, err), 0);
    assert_int_equal(ckpt_guard_prove(g.file, 0, 21, err), CKPT_EFORMAT);
    guarded_close(&g);
}

static int read_piece(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    unsigned char back[4096];

    (void)worker;
    return ckpt_file_read_at(ctx, back, sizeof back, i * sizeof back, err);
}

/* Whoever comes first: the work of all fails. */
TEST(workers_hear_of_it)
{
    struct guarded g;

    for (int wrong = 0; wrong < 2; wrong++) {
        struct ckpt_err err = {0};

        guarded_open(&g);
        g.bytes[BIG - 1] ^= (unsigned char)wrong;
        assert_int_equal(ckpt_pool_run(4, BIG / 4096, read_piece, g.file, &err),
                         wrong ? CKPT_EFORMAT : 0);
        guarded_close(&g);
    }
}

#ifdef CKPT_FAULTS
TEST_ERR(failures_are_told)
{
    struct guarded g;
    unsigned char byte;

    guarded_open(&g);
    ckpt_fault_arm(CKPT_FAULT_ALLOC, 1);
    assert_int_equal(ckpt_file_read_at(g.file, &byte, 1, 12, err), CKPT_ENOMEM);
    ckpt_fault_arm(CKPT_FAULT_ALLOC, 0);
    guarded_close(&g);
}
#endif
