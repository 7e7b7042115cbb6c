/* merge/verify - every byte of an output is compared, by any number of workers; failures end all. */
#include "tests/unit/faults.h"
#include "tests/unit/store.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "libckpt/copy.h"
#include "libckpt/format.h"
#include "tools/merge/parts.h"

/* Several pieces of 512 KiB, the last ones shorter. */
static const struct store_row rows[] = {
    {"a", CKPT_F32, 2, {600, 1001}, 0}, {"empty", CKPT_F32, 1, {0}, 0},
    {"b", CKPT_BF16, 1, {777777}, 0},   {"c", CKPT_U8, 1, {3}, 0},
};

#define N_ROWS (sizeof rows / sizeof rows[0])

static char path[300];

/* Write all of src but its last `less` tensors. */
static void write_out(struct ckpt_source *src, size_t less)
{
    struct ckpt_tensors list = *ckpt_source_tensors(src);
    struct ckpt_create_opts opts = {.flags = CKPT_REPLACE};
    struct ckpt_sink *sink = NULL;
    struct ckpt_err err = {0};

    snprintf(path, sizeof path, "%s/out.safetensors", scratch("merge-verify"));
    list.n -= less;
    assert_int_equal(ckpt_create(&sink, "safetensors", path, &list, &opts, &err), 0);
    assert_int_equal(ckpt_copy(sink, src, NULL, &err), 0);
    assert_int_equal(ckpt_sink_commit(sink, &err), 0);
}

static int verify(struct ckpt_source *src, int64_t jobs, struct ckpt_err *err)
{
    struct cli cli = {.quiet = true, .jobs = jobs};

    return merge_verify(src, path, false, &cli, err);
}

/* Invert a byte, counted from the end. */
static void spoil(off_t from_end)
{
    int fd = open(path, O_RDWR);
    off_t at = lseek(fd, -from_end, SEEK_END);
    unsigned char byte;

    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0xff;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

TEST_ERR(every_piece_is_compared)
{
    struct ckpt_source *src = store_source(rows, N_ROWS, NULL);
    static const struct { off_t from_end; const char *name; } bad[] = {
        {1, " c "}, {4, " b "}, {3 + 1000000, " b "}, {3 + 2 * 777777, " b "},
        {3 + 2 * 777777 + 1, " a "}, {3 + 2 * 777777 + 4 * 600 * 1001, " a "},
    };

    write_out(src, 0);
    for (int64_t jobs = 0; jobs < 6; jobs++) {
        assert_int_equal(verify(src, jobs, err), 0);
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            spoil(bad[k].from_end);
            assert_int_equal(verify(src, jobs, err), CKPT_EIO);
            assert_string_equal(err->reason, "digest");
            assert_non_null(strstr(err->text, bad[k].name));
            ckpt_err_clear(err);
            spoil(bad[k].from_end);
        }
    }
    ckpt_source_close(src);
}

TEST_ERR(a_tensor_that_is_not_there_is_told)
{
    struct ckpt_source *src = store_source(rows, N_ROWS, NULL);

    write_out(src, 1);
    assert_int_equal(verify(src, 3, err), CKPT_EIO);
    assert_non_null(strstr(err->text, "c is not there after writing"));
    ckpt_source_close(src);
}

TEST_ERR(a_signal_ends_verifying)
{
    struct ckpt_source *src = store_source(rows, N_ROWS, NULL);

    write_out(src, 0);
    cli_stop = SIGTERM;
    assert_int_equal(verify(src, 2, err), CKPT_ESTOPPED);
    cli_stop = 0;
    ckpt_source_close(src);
}

TEST_ERR(verifying_under_failure)
{
    struct ckpt_source *src = store_source(rows, N_ROWS, NULL);

    write_out(src, 0);
    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(READ) | FAULT(OPEN)}; faults_next(&f);) {
        int rc = verify(src, 3, err);

        faults_disarm(&f);
        faults_told(&f, rc, err, "verifying");
    }
    ckpt_source_close(src);
}
