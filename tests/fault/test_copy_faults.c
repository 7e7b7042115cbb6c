/*
 * copy under failure: a source of two files, views over it, and a sink into one file; the n-th
 * allocation, read, write, sync, rename and open fails, for every n there is.  Each time: a
 * clean error or a whole output, everything closed, no trace on disk, no leak (asan tells).
 */
#include "tests/unit/store.h"
#include "tests/unit/faults.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/copy.h"
#include "libckpt/view.h"

#define DIR_NAME "build/test_copy_faults"
#define N        30000          /* elements of each tensor: several chunks */

/* -- a source of one file with a dense F32, a transposed BF16 and a scalar ----------------- */

static const int64_t transposed[2] = {1, 100};

static void close_file(void *self) { ckpt_file_close(self); }

static const struct ckpt_source_ops ops_in = {.format = "file", .close = close_file};

static int add(struct ckpt_tensors *list, struct ckpt_file *file, const char *name,
               enum ckpt_dtype dtype, struct ckpt_shape shape, uint64_t offset,
               const int64_t *stride, struct ckpt_err *err)
{
    struct ckpt_fragment *f = ckpt_arena_alloc(&list->arena, 1, sizeof *f);

    if (!f)
        return ckpt_nomem(err, sizeof *f);
    *f = (struct ckpt_fragment){.file = file, .offset = offset, .stride = stride};
    if (ckpt_fragment_check(&shape, dtype, f, 1, err))
        return err->code;
    return ckpt_tensors_add(list, NULL, name, strlen(name), dtype, &shape, f, 1, false, err);
}

static int open_source(struct ckpt_source **out, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct ckpt_file *file = NULL;

    *out = NULL;
    if (ckpt_file_open(&file, DIR_NAME "/in", 0, err) ||
        add(&list, file, "dense", CKPT_F32, ckpt_shape_1d(N), 0, NULL, err) ||
        add(&list, file, "across", CKPT_BF16, ckpt_shape_2d(100, N / 100), N * 4, transposed,
            err) ||
        add(&list, file, "scalar", CKPT_F64, ckpt_shape_1d(1), 16, NULL, err)) {
        ckpt_tensors_release(&list);
        ckpt_file_close(file);
        return err->code;
    }
    return ckpt_source_new(out, &ops_in, file, &list, NULL, 0, NULL, err);
}

/* Two of them under different names, one cast, in another order. */
static int open_views(struct ckpt_source **out, struct ckpt_err *err)
{
    const struct ckpt_rename_rule rename = {"", "second."};
    const struct ckpt_cast_rule cast[] = {{"second.*", CKPT_F16}, {"second.across", CKPT_F64}};
    const size_t order[] = {5, 0, 1, 4, 3, 2};
    const char *all = "*";
    struct ckpt_source *both[2] = {NULL, NULL};

    *out = NULL;
    if (open_source(&both[0], err))
        return err->code;
    if (open_source(&both[1], err) || ckpt_view_rename(&both[1], both[1], &rename, 1, err)) {
        ckpt_source_close(both[0]);
        return err->code;
    }
    return ckpt_view_join(out, both, 2, err) || ckpt_view_cast(out, *out, cast, 2, err) ||
                   ckpt_view_select(out, *out, order, 6, err) ||
                   ckpt_view_filter(out, *out, &all, 1, NULL, 0, err)
               ? err->code
               : 0;
}

/* -- a sink: one tensor behind the other in a file that is committed ----------------------- */

struct to_file {
    struct ckpt_out           *out;
    const struct ckpt_tensors *list;
    int                       *ended;   /* commits and aborts */
};

static uint64_t place(const struct to_file *t, size_t i, int64_t start)
{
    uint64_t at = 0;

    for (size_t k = 0; k < i; k++)
        at += ckpt_tensor_bytes(&t->list->item[k]);
    return at + (uint64_t)start * ckpt_dtype_size(t->list->item[i].dtype);
}

static int file_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    struct to_file *t = self;

    return ckpt_out_write_at(t->out, src, (size_t)count *
                             ckpt_dtype_size(t->list->item[i].dtype), place(t, i, start), err);
}

static bool file_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_sink_extent *out)
{
    struct to_file *t = self;

    (void)count;
    *out = (struct ckpt_sink_extent){t->out, place(t, i, start), false};
    return true;
}

static int file_commit(void *self, struct ckpt_err *err)
{
    struct to_file *t = self;
    int rc = ckpt_out_commit(t->out, err);

    ++*t->ended;
    ckpt_free(t);
    return rc;
}

static void file_abort(void *self)
{
    struct to_file *t = self;

    ++*t->ended;
    ckpt_out_abort(t->out);
    ckpt_free(t);
}

static const struct ckpt_sink_ops ops_out = {
    .format = "file", .write = file_write, .locate = file_locate, .commit = file_commit,
    .abort = file_abort,
};

static int open_sink(struct ckpt_sink **out, const struct ckpt_tensors *list, bool stream,
                     int *ended, struct ckpt_err *err)
{
    struct to_file *t = ckpt_alloc(1, sizeof *t);

    *out = NULL;
    *ended = 1;
    if (!t)
        return ckpt_nomem(err, sizeof *t);
    t->list = list;
    t->ended = ended;
    if (ckpt_out_create(&t->out, DIR_NAME "/out", 0, err)) {
        ckpt_free(t);
        return err->code;
    }
    *ended = 0;
    return ckpt_sink_new(out, &ops_out, t, list, stream, err);
}

/* -- one run, and its traces --------------------------------------------------------------- */

static int run(size_t workers, bool stream, struct ckpt_err *err)
{
    struct ckpt_copy_opts opts = {.workers = workers, .chunk_bytes = 16384};
    struct ckpt_source *src;
    struct ckpt_sink *sink;
    int ended, rc;

    memset(err, 0, sizeof *err);
    rc = open_views(&src, err);
    if (rc)
        return rc;
    rc = open_sink(&sink, ckpt_source_tensors(src), stream, &ended, err);
    if (rc == 0) {
        rc = ckpt_copy(sink, src, &opts, err);
        if (rc)
            ckpt_sink_abort(sink);
        else
            rc = ckpt_sink_commit(sink, err);
    }
    assert_int_equal(ended, 1);
    ckpt_source_close(src);
    return rc;
}

static size_t read_out(unsigned char *bytes, size_t size)
{
    FILE *f = fopen(DIR_NAME "/out", "rb");
    size_t n = f ? fread(bytes, 1, size, f) : 0;

    if (f)
        fclose(f);
    return n;
}

/* What the whole pipeline writes when nothing fails. */
static struct whole {
    unsigned char *bytes, *got;
    size_t         n, size;
} whole;

BEFORE_ALL()
{
    struct whole *w = &whole;
    struct ckpt_err err;
    FILE *f;

    mkdir("build", 0777);
    mkdir(DIR_NAME, 0777);
    unlink(DIR_NAME "/out");
    f = fopen(DIR_NAME "/in", "wb");
    assert_non_null(f);
    for (int i = 0; i < N * 6 / 4; i++)
        fwrite(&(float){(float)i / 7}, 4, 1, f);
    fclose(f);
    w->size = N * 20;
    w->bytes = malloc(w->size);
    w->got = malloc(w->size);
    assert_int_equal(run(1, false, &err), 0);
    w->n = read_out(w->bytes, w->size);
    unlink(DIR_NAME "/out");
    assert_int_equal(w->n, N * (4 + 2 + 2 + 8) + 8 + 2);
}

AFTER_ALL()
{
    unlink(DIR_NAME "/in");
    rmdir(DIR_NAME);
    free(whole.bytes);
    free(whole.got);
}

static void expect_whole_output(const struct whole *w)
{
    assert_int_equal(read_out(w->got, w->size), w->n);
    assert_memory_equal(w->got, w->bytes, w->n);
    unlink(DIR_NAME "/out");
    assert_int_equal(entries(DIR_NAME), 1);
}

TEST(workers_and_streams_write_the_same)
{
    struct ckpt_err err;

    for (size_t workers = 1; workers < 5; workers++)
        for (int stream = 0; stream < 2; stream++) {
            assert_int_equal(run(workers, stream, &err), 0);
            expect_whole_output(&whole);
        }
}

static void fail_each(unsigned kinds, size_t workers, bool stream, int code, int other_code)
{
    struct faults f = {.kinds = kinds};

    while (faults_next(&f)) {
        struct ckpt_err err;
        int rc = run(workers, stream, &err);

        faults_disarm(&f);
        faults_told(&f, rc, &err, "copy");
        if (rc == 0) {                  /* not reached, or there was another way */
            expect_whole_output(&whole);
            continue;
        }
        if (rc != code && rc != other_code)
            fail_msg("kind %d, n %lu: code %d: %s", f.kind, f.n, rc, err.text);
        assert_true(err.reason[0]);
        if (access(DIR_NAME "/out", F_OK) == 0) {       /* only the directory's sync failed */
            assert_true(f.kind == CKPT_FAULT_SYNC && f.n == 2);
            unlink(DIR_NAME "/out");
        }
        assert_int_equal(entries(DIR_NAME), 1);
        assert_true(f.n < 5000);
    }
    assert_true(f.rounds > 1);          /* there was something to fail */
}

TEST(each_allocation_fails)
{
    fail_each(FAULT(ALLOC), 1, false, CKPT_ENOMEM, CKPT_ENOMEM);
    fail_each(FAULT(ALLOC), 3, true, CKPT_ENOMEM, CKPT_ENOMEM);
}

TEST(each_read_fails)
{
    fail_each(FAULT(READ), 1, false, CKPT_EIO, CKPT_EIO);
    fail_each(FAULT(READ), 3, false, CKPT_EIO, CKPT_EIO);
    fail_each(FAULT(READ), 3, true, CKPT_EIO, CKPT_EIO);
}

TEST(each_write_fails)
{
    fail_each(FAULT(WRITE), 1, false, CKPT_EIO, CKPT_EIO);
    fail_each(FAULT(WRITE), 3, false, CKPT_EIO, CKPT_EIO);
    fail_each(FAULT(WRITE), 3, true, CKPT_EIO, CKPT_EIO);
}

TEST(opens_syncs_and_renames_fail)
{
    fail_each(FAULT(OPEN), 1, false, CKPT_EIO, CKPT_ECREATE);
    fail_each(FAULT(SYNC), 1, false, CKPT_EIO, CKPT_EIO);
    fail_each(FAULT(RENAME), 1, false, CKPT_EIO, CKPT_EIO);
}
