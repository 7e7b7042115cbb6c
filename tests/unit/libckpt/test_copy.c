/* copy - every byte arrives, whatever the workers; failures stop; memory stays bounded. */
#include "tests/unit/store.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libckpt/copy.h"

static const struct store_row rows[] = {
    {"a", CKPT_F32, 2, {300, 70}, 0},  {"empty", CKPT_F32, 2, {0, 5}, 0},
    {"b", CKPT_BF16, 1, {77777}, 0},   {"scalar", CKPT_I64, 0, {0}, 0},
    {"c", CKPT_U8, 3, {3, 5, 7}, 0},   {"d", CKPT_C128, 1, {4099}, 0},
};

#define N_ROWS (sizeof rows / sizeof rows[0])

static void check_and_commit(struct store_pair *p)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(p->src, i);
        unsigned char *want = store_whole(p->src, i);

        assert_memory_equal(p->out->bytes[i], want, (size_t)ckpt_tensor_bytes(t));
        free(want);
    }
    assert_int_equal(ckpt_sink_commit(p->sink, &p->err), 0);
    assert_int_equal(p->committed, 1);
    assert_int_equal(p->aborted, 0);
    ckpt_source_close(p->src);
}

TEST(copy_with_any_workers_and_chunks)
{
    for (size_t workers = 0; workers < 5; workers++)
        for (size_t chunk = 0; chunk < 3; chunk++)
            for (int stream = 0; stream < 2; stream++) {
                struct ckpt_copy_opts opts = {.workers = workers, .chunk_bytes = chunk * 4999};
                struct store_pair p;

                store_open_pair(&p, rows, N_ROWS, stream);
                assert_int_equal(ckpt_copy(p.sink, p.src, &opts, &p.err), 0);
                if (workers == 1 && chunk == 2)
                    assert_int_equal(p.out->most, 4999);        /* of the BF16 one */
                check_and_commit(&p);
            }
}

TEST(copy_without_options)
{
    struct store_pair p;

    store_open_pair(&p, rows, N_ROWS, false);
    assert_int_equal(ckpt_copy(p.sink, p.src, NULL, &p.err), 0);
    check_and_commit(&p);
}

/* The reason is told, not "stopped" of a worker that waited; the sink can then be aborted. */
TEST(copy_tells_the_first_failure)
{
    for (int fail_at = 1; fail_at < 60; fail_at++)
        for (int stream = 0; stream < 2; stream++) {
            struct ckpt_copy_opts opts = {.workers = 4, .chunk_bytes = 4096};
            struct store_pair p;

            store_open_pair(&p, rows, N_ROWS, stream);
            p.out->fail_at = fail_at;
            assert_int_equal(ckpt_copy(p.sink, p.src, &opts, &p.err), CKPT_EIO);
            assert_non_null(strstr(p.err.text, "the store is full"));
            assert_int_equal(strncmp(p.err.text, "tensor ", 7), 0);
            ckpt_sink_abort(p.sink);
            assert_int_equal(p.aborted, 1);
            ckpt_source_close(p.src);
        }
}

TEST(copy_after_failure_does_not_commit)
{
    struct store_pair p;

    store_open_pair(&p, rows, N_ROWS, false);
    p.out->fail_at = 2;
    assert_int_equal(ckpt_copy(p.sink, p.src, NULL, &p.err), CKPT_EIO);
    assert_int_equal(ckpt_sink_commit(p.sink, &p.err), CKPT_ESTATE);
    assert_int_equal(p.aborted, 1);
    assert_int_equal(p.committed, 0);
    ckpt_source_close(p.src);
}

TEST(copy_stops_when_told)
{
    volatile int stop = 1;
    struct ckpt_copy_opts opts = {.stop = &stop};
    struct store_pair p;

    for (int stream = 0; stream < 2; stream++) {
        store_open_pair(&p, rows, N_ROWS, stream);
        assert_int_equal(ckpt_copy(p.sink, p.src, &opts, &p.err), CKPT_ESTOPPED);
        assert_int_equal(atomic_load(&p.out->writes), 0);
        ckpt_sink_abort(p.sink);
        ckpt_source_close(p.src);
    }
}

static void copy_mismatch(const struct store_row *row, size_t n, const char *text)
{
    struct ckpt_source *src = store_source(row, n, NULL);
    struct store_pair p;

    store_open_pair(&p, rows, N_ROWS, false);
    assert_int_equal(ckpt_copy(p.sink, src, NULL, &p.err), CKPT_EMISMATCH);
    if (!strstr(p.err.text, text))
        fail_msg("%s", p.err.text);
    ckpt_sink_abort(p.sink);
    ckpt_source_close(p.src);
    ckpt_source_close(src);
}

TEST(copy_refuses_what_differs)
{
    struct store_row other[N_ROWS];

    copy_mismatch(rows, 1, "tensor empty: the source has none");
    memcpy(other, rows, sizeof rows);
    other[0].dtype = CKPT_I32;
    copy_mismatch(other, N_ROWS, "tensor a: the source has I32 [300, 70], the sink wants F32");
    memcpy(other, rows, sizeof rows);
    other[2].dim[0]--;
    copy_mismatch(other, N_ROWS, "tensor b: the source has BF16 [77776], the sink wants");
}

struct told {
    uint64_t last, total;
    int      calls;
};

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct told *t = ctx;

    assert_true(done > t->last && done <= total);
    t->last = done;
    t->total = total;
    t->calls++;
}

TEST(progress_is_throttled_and_ends_at_the_total)
{
    struct told told = {0};
    struct ckpt_copy_opts opts = {.workers = 2, .chunk_bytes = 4096, .progress = on_progress,
                                  .progress_ctx = &told};
    struct store_pair p;
    uint64_t want = 0;

    store_open_pair(&p, rows, N_ROWS, false);
    for (size_t i = 0; i < N_ROWS; i++)
        want += ckpt_tensor_bytes(ckpt_source_tensor(p.src, i));
    assert_int_equal(ckpt_copy(p.sink, p.src, &opts, &p.err), 0);
    assert_int_equal(told.last, want);
    assert_int_equal(told.total, want);
    assert_true(told.calls < 20);       /* of some 75 pieces, in far less than a second */
    check_and_commit(&p);
}

/* -- located on both sides ----------------------------------------------------------------- */

static bool place_locate(void *self, size_t i, int64_t start, int64_t count,
                         struct ckpt_sink_extent *out)
{
    struct store_out *o = self;
    uint64_t at = 0;

    (void)count;
    for (size_t k = 0; k < i; k++)
        at += ckpt_tensor_bytes(&o->list->item[k]);
    *out = (struct ckpt_sink_extent){
        o->place, at + (uint64_t)start * ckpt_dtype_size(o->list->item[i].dtype), false};
    return o->list->item[i].dtype != CKPT_BF16;     /* that one passes through memory */
}

static const struct ckpt_sink_ops place_ops = {
    .format = "store", .write = store_write, .locate = place_locate, .commit = store_commit,
    .abort = store_abort,
};

TEST(located_ranges_go_from_file_to_file)
{
    struct ckpt_file *made;
    unsigned char *got;
    struct store_pair p;
    size_t at = 0;

    store_open_pair(&p, rows, N_ROWS, false);
    ckpt_sink_abort(p.sink);
    p.out = store_new(ckpt_source_tensors(p.src), &p.committed, &p.aborted);
    unlink("build/test_copy.out");
    assert_int_equal(ckpt_out_create(&p.out->place, "build/test_copy.out", 0, &p.err), 0);
    assert_int_equal(
        ckpt_sink_new(&p.sink, &place_ops, p.out, ckpt_source_tensors(p.src), false, &p.err),
        0);
    assert_int_equal(ckpt_copy(p.sink, p.src, NULL, &p.err), 0);
    assert_int_equal(atomic_load(&p.out->writes), 1);   /* the BF16 one */
    assert_int_equal(ckpt_out_commit(p.out->place, &p.err), 0);
    assert_int_equal(ckpt_file_open(&made, "build/test_copy.out", 0, &p.err), 0);
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(p.src, i);
        size_t n = (size_t)ckpt_tensor_bytes(t);

        got = malloc(n + 1);
        if (t->dtype != CKPT_BF16) {
            assert_int_equal(ckpt_file_read_at(made, got, n, at, &p.err), 0);
            memcpy(p.out->bytes[i], got, n);
        }
        free(got);
        at += n;
    }
    ckpt_file_close(made);
    unlink("build/test_copy.out");
    p.aborted = 0;
    check_and_commit(&p);
}

/* -- past the page cache ------------------------------------------------------------------- */

#define FIRST_BYTE 8211         /* of the file: inside of a page */

static const struct store_row large[] = {
    {"bytes", CKPT_U8, 1, {700001}, 0}, {"odd", CKPT_F32, 1, {2000003}, 0},
    {"none", CKPT_F32, 1, {0}, 0},      {"one", CKPT_F64, 1, {1}, 0},
    {"few", CKPT_BF16, 1, {900}, 0},    {"more", CKPT_F64, 1, {1000000}, 0},
};
#define N_LARGE (sizeof large / sizeof large[0])

struct aside {
    const struct ckpt_tensors *list;
    struct ckpt_out           *out;
    atomic_int                 misplaced;
};

static bool aside_locate(void *self, size_t i, int64_t start, int64_t count,
                         struct ckpt_sink_extent *out)
{
    struct aside *a = self;

    (void)count;
    *out = (struct ckpt_sink_extent){a->out, FIRST_BYTE, i % 2};
    for (size_t k = 0; k < i; k++)
        out->offset += ckpt_tensor_bytes(&a->list->item[k]);
    out->offset += (uint64_t)start * ckpt_dtype_size(a->list->item[i].dtype);
    return true;
}

static int aside_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                       struct ckpt_err *err)
{
    struct aside *a = self;
    struct ckpt_sink_extent to;

    aside_locate(self, i, start, count, &to);
    if ((uintptr_t)src % CKPT_OUT_PAGE != to.offset % CKPT_OUT_PAGE)
        atomic_fetch_add(&a->misplaced, 1);
    return ckpt_out_write_at(a->out, src, (size_t)count * ckpt_dtype_size(a->list->item[i].dtype),
                             to.offset, err);
}

static int aside_commit(void *self, struct ckpt_err *err)
{
    return ckpt_out_commit(((struct aside *)self)->out, err);
}

static void aside_abort(void *self) { ckpt_out_abort(((struct aside *)self)->out); }

static const struct ckpt_sink_ops aside_ops = {
    .format = "aside", .write = aside_write, .locate = aside_locate, .commit = aside_commit,
    .abort = aside_abort,
};

static void check_aside(struct ckpt_source *src, size_t chunk)
{
    struct ckpt_copy_opts opts = {.workers = 3, .chunk_bytes = chunk};
    struct aside a = {.list = ckpt_source_tensors(src)};
    struct ckpt_err err = {0};
    uint64_t at = FIRST_BYTE;
    struct ckpt_sink *sink;
    struct ckpt_file *made;

    unlink("build/test_copy.out");
    assert_int_equal(ckpt_out_create(&a.out, "build/test_copy.out", 0, &err), 0);
    assert_int_equal(ckpt_out_reserve(a.out, (uint64_t)64 << 20, &err), 0);
    assert_int_equal(ckpt_sink_new(&sink, &aside_ops, &a, a.list, false, &err), 0);
    if (ckpt_copy(sink, src, &opts, &err))
        fail_msg("%s", err.text);
    assert_int_equal(opts.chunk_bytes == 200000 ? 0 : atomic_load(&a.misplaced), 0);
    assert_int_equal(ckpt_sink_commit(sink, &err), 0);
    assert_int_equal(ckpt_file_open(&made, "build/test_copy.out", 0, &err), 0);
    assert_int_equal(ckpt_file_size(made), 64 << 20);
    for (size_t i = 0; i < N_LARGE; i++) {
        size_t n = (size_t)ckpt_tensor_bytes(&a.list->item[i]);
        unsigned char *found = malloc(n + 1), *want = store_whole(src, i);

        assert_int_equal(ckpt_file_read_at(made, found, n, at, &err), 0);
        for (size_t k = 0; k < n; k++)
            if (found[k] != want[k])
                fail_msg("%s: byte %zu, chunks of %zu", a.list->item[i].name, k, chunk);
        free(found);
        free(want);
        at += n;
    }
    ckpt_file_close(made);
    unlink("build/test_copy.out");
}

TEST(large_files_get_memory_that_suits_their_pages)
{
    struct ckpt_source *src = store_source(large, N_LARGE, NULL);

    check_aside(src, 0);
    check_aside(src, 1 << 20);
    check_aside(src, 200000);           /* buffers that are no pages: all through the cache */
    ckpt_source_close(src);
}

/* -- bounded memory ------------------------------------------------------------------------ */

struct counted {
    atomic_ullong bytes;
    atomic_int    wrong;
    bool          slow_start;
};

static int count_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                       struct ckpt_err *err)
{
    struct counted *c = self;
    const unsigned char *s = src;

    (void)i;
    (void)start;
    (void)err;
    if (s[0] || s[count - 1])
        atomic_fetch_add(&c->wrong, 1);
    atomic_fetch_add(&c->bytes, (unsigned long long)count);
    return 0;
}

static int count_commit(void *self, struct ckpt_err *err)
{
    (void)self;
    (void)err;
    return 0;
}

static void count_abort(void *self) { (void)self; }

static const struct ckpt_sink_ops count_ops = {
    .format = "count", .write = count_write, .commit = count_commit, .abort = count_abort,
};

static void file_close(void *self) { ckpt_file_close(self); }

static const struct ckpt_source_ops file_ops = {.format = "file", .close = file_close};

/* A source of one tensor: `size` bytes of a file with a hole. */
static struct ckpt_source *sparse_source(int64_t size, const char *path)
{
    struct ckpt_tensors list = {0};
    struct ckpt_shape shape = ckpt_shape_1d(size);
    struct ckpt_fragment *f = ckpt_arena_alloc(&list.arena, 1, sizeof *f);
    struct ckpt_source *src;
    struct ckpt_err err = {0};
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
    assert_int_equal(ckpt_file_open(&f->file, path, 0, &err), 0);
    unlink(path);
    assert_int_equal(ckpt_fragment_check(&shape, CKPT_U8, f, 1, &err), 0);
    assert_int_equal(ckpt_tensors_add(&list, NULL, "big", 3, CKPT_U8, &shape, f, 1, true, &err),
                     0);
    assert_int_equal(ckpt_source_new(&src, &file_ops, f->file, &list, NULL, 0, NULL, &err), 0);
    return src;
}

static long resident_kb(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
}

/* 2 GiB pass through; the process never holds more than its buffers. */
TEST(large_tensor_takes_little_memory)
{
    const int64_t size = (int64_t)2 << 30;

    for (int stream = 0; stream < 2; stream++) {
        struct ckpt_copy_opts opts = {.workers = 4};
        struct ckpt_source *src = sparse_source(size, "build/test_copy.sparse");
        struct counted c = {0};
        struct ckpt_err err = {0};
        struct ckpt_sink *sink;
        long before = resident_kb();

        assert_int_equal(ckpt_sink_new(&sink, &count_ops, &c, ckpt_source_tensors(src), stream,
                                       &err), 0);
        assert_int_equal(ckpt_copy(sink, src, &opts, &err), 0);
        assert_int_equal(atomic_load(&c.bytes), size);
        assert_int_equal(atomic_load(&c.wrong), 0);
        assert_int_equal(ckpt_sink_commit(sink, &err), 0);
        ckpt_source_close(src);
        if (resident_kb() - before >= 40 * 1024)
            fail_msg("%ld KiB more than before", resident_kb() - before);
    }
}

/* A tensor may claim 2^60 elements that are one byte: no list of its pieces is made. */
TEST_ERR(expanded_tensor_of_any_size_can_be_begun)
{
    static const unsigned char byte[1] = {0};
    static const int64_t zero[1] = {0};
    struct ckpt_tensors list = {0};
    struct ckpt_shape shape = ckpt_shape_1d((int64_t)1 << 60);
    struct ckpt_fragment *f = ckpt_arena_alloc(&list.arena, 1, sizeof *f);
    volatile int stop = 1;
    struct ckpt_copy_opts opts = {.stop = &stop};
    struct counted c = {0};
    struct ckpt_source *src;
    struct ckpt_sink *sink;
    unsigned char got[3] = {1, 1, 1};

    f->stride = zero;
    assert_int_equal(ckpt_file_memory(&f->file, byte, 1, "byte", err), 0);
    assert_int_equal(ckpt_fragment_check(&shape, CKPT_U8, f, 1, err), 0);
    assert_int_equal(ckpt_tensors_add(&list, NULL, "big", 3, CKPT_U8, &shape, f, 1, true, err),
                     0);
    assert_int_equal(ckpt_source_new(&src, &file_ops, f->file, &list, NULL, 0, NULL, err), 0);
    assert_int_equal(ckpt_source_read(src, 0, shape.dim[0] - 3, 3, got, err), 0);
    assert_int_equal(got[0] + got[1] + got[2], 0);
    assert_int_equal(
        ckpt_sink_new(&sink, &count_ops, &c, ckpt_source_tensors(src), false, err), 0);
    assert_int_equal(ckpt_copy(sink, src, &opts, err), CKPT_ESTOPPED);
    ckpt_sink_abort(sink);
    ckpt_source_close(src);
}

/* -- several files -------------------------------------------------------------------------- */

#define FILES 5

/* Tensor i goes into file i; what is written is counted by file. */
struct filing {
    struct store_out  *out;
    struct ckpt_out   *file[FILES];
    _Atomic(int64_t)   got[FILES], lead;        /* lead: most elements of file 0 or 1 beyond the other */
};

static bool filing_locate(void *self, size_t i, int64_t start, int64_t count,
                          struct ckpt_sink_extent *out)
{
    struct filing *f = self;

    (void)count;
    *out = (struct ckpt_sink_extent){
        f->file[i], (uint64_t)start * ckpt_dtype_size(f->out->list->item[i].dtype), true};
    return true;
}

static int filing_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                        struct ckpt_err *err)
{
    struct filing *f = self;
    int64_t lead;

    atomic_fetch_add(&f->got[i], count);
    lead = atomic_load(&f->got[0]) - atomic_load(&f->got[1]);
    lead = lead < 0 ? -lead : lead;
    for (int64_t most = atomic_load(&f->lead); i < 2 && lead > most;)
        if (atomic_compare_exchange_weak(&f->lead, &most, lead))
            break;
    return store_write(f->out, i, start, count, src, err);
}

static int filing_commit(void *self, struct ckpt_err *err)
{
    return store_commit(((struct filing *)self)->out, err);
}

static void filing_abort(void *self) { store_abort(((struct filing *)self)->out); }

static const struct ckpt_sink_ops filing_ops = {
    .format = "store", .write = filing_write, .locate = filing_locate, .commit = filing_commit,
    .abort = filing_abort,
};

static const struct store_row filed[FILES] = {
    {"a", CKPT_F32, 1, {200000}, 0}, {"b", CKPT_F32, 1, {200000}, 0}, {"c", CKPT_U8, 1, {1}, 0},
    {"d", CKPT_F32, 1, {70000}, 0},  {"e", CKPT_F32, 1, {90000}, 0},
};

/* Copy into five files; the fail_at-th write fails, if any. */
static int copy_filed(struct store_pair *p, struct filing *f, size_t workers, int fail_at)
{
    struct ckpt_copy_opts opts = {.workers = workers, .chunk_bytes = 4096};
    const char *dir = scratch("copy-files");
    char path[300];
    int rc;

    memset(p, 0, sizeof *p);
    p->src = store_source(filed, FILES, NULL);
    p->out = store_new(ckpt_source_tensors(p->src), &p->committed, &p->aborted);
    p->out->fail_at = fail_at;
    *f = (struct filing){.out = p->out};
    for (size_t k = 0; k < FILES; k++) {
        snprintf(path, sizeof path, "%s/%zu", dir, k);
        assert_int_equal(ckpt_out_create(&f->file[k], path, 0, &p->err), 0);
    }
    assert_int_equal(ckpt_sink_new(&p->sink, &filing_ops, f, ckpt_source_tensors(p->src), false,
                                   &p->err), 0);
    rc = ckpt_copy(p->sink, p->src, &opts, &p->err);
    for (size_t k = 0; k < FILES; k++)
        ckpt_out_abort(f->file[k]);
    return rc;
}

/* Few workers write one file after the other; more do so in turn: one is ahead by no more than the
 * workers have in hand, and a turn for each file that ends. */
TEST(several_files_are_written_at_a_time)
{
    for (size_t workers = 1; workers < 12; workers++) {
        struct store_pair p;
        struct filing f;

        assert_int_equal(copy_filed(&p, &f, workers, 0), 0);
        for (size_t i = 0; i < FILES; i++) {
            unsigned char *want = store_whole(p.src, i);

            assert_memory_equal(p.out->bytes[i], want,
                                (size_t)ckpt_tensor_bytes(ckpt_source_tensor(p.src, i)));
            free(want);
        }
        if (workers < 4)
            assert_true(atomic_load(&f.lead) >= 200000 - 1024 * (int64_t)(workers - 1));
        else
            assert_true(atomic_load(&f.lead) <= 1024 * ((int64_t)workers + FILES));
        assert_int_equal(ckpt_sink_commit(p.sink, &p.err), 0);
        assert_int_equal(p.committed, 1);
        ckpt_source_close(p.src);
    }
}

TEST(a_failure_in_one_of_several_files_ends_all)
{
    for (int fail_at = 1; fail_at < 500; fail_at += 7) {
        struct store_pair p;
        struct filing f;

        assert_int_equal(copy_filed(&p, &f, 8, fail_at), CKPT_EIO);
        assert_non_null(strstr(p.err.text, "the store is full"));
        ckpt_sink_abort(p.sink);
        assert_int_equal(p.aborted, 1);
        ckpt_source_close(p.src);
    }
}
