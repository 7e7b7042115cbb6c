/* sink - every element is counted, streams keep their order, and the end is told once. */
#include "tests/unit/store.h"

static const struct store_row rows[] = {
    {"a", CKPT_U8, 1, {10}, 0}, {"empty", CKPT_U8, 1, {0}, 0}, {"b", CKPT_U8, 1, {5}, 0},
};

static void begin(struct store_pair *f, bool stream)
{
    store_open_pair(f, rows, 3, stream);
    assert_int_equal(ckpt_sink_is_stream(f->sink), stream);
    assert_ptr_equal(ckpt_sink_tensors(f->sink), ckpt_source_tensors(f->src));
}

static int put(struct store_pair *f, size_t i, int64_t start, int64_t count)
{
    return ckpt_sink_write(f->sink, i, start, count, "0123456789", &f->err);
}

static void end(struct store_pair *f, int code)
{
    assert_int_equal(ckpt_sink_commit(f->sink, &f->err), code);
    assert_int_equal(f->committed, code == 0);
    assert_int_equal(f->aborted, code != 0);
    ckpt_source_close(f->src);
}

TEST(any_order_and_all_written)
{
    struct store_pair f;

    begin(&f, false);
    assert_int_equal(put(&f, 2, 0, 5), 0);
    assert_int_equal(put(&f, 0, 4, 6), 0);
    assert_int_equal(put(&f, 0, 0, 4), 0);
    assert_memory_equal(f.out->bytes[0], "0123012345", 10);
    end(&f, 0);
}

TEST(commit_refuses_what_is_missing_or_twice)
{
    struct store_pair f;

    begin(&f, false);
    assert_int_equal(put(&f, 2, 0, 5), 0);
    assert_int_equal(put(&f, 0, 0, 9), 0);
    end(&f, CKPT_ESTATE);
    assert_string_equal(f.err.text, "tensor a: 9 of 10 elements were written");
    begin(&f, false);
    assert_int_equal(put(&f, 2, 0, 5), 0);
    assert_int_equal(put(&f, 0, 0, 10), 0);
    assert_int_equal(put(&f, 0, 0, 1), 0);
    end(&f, CKPT_ESTATE);
    begin(&f, false);
    end(&f, CKPT_ESTATE);
}

TEST(ranges_are_checked)
{
    struct store_pair f;

    begin(&f, false);
    assert_int_equal(put(&f, 3, 0, 1), CKPT_ESTATE);
    assert_int_equal(put(&f, 0, 0, 11), CKPT_ESTATE);
    assert_int_equal(put(&f, 0, -1, 1), CKPT_ESTATE);
    assert_int_equal(put(&f, 0, 1, -1), CKPT_ESTATE);
    assert_int_equal(put(&f, 0, 11, 0), CKPT_ESTATE);
    assert_int_equal(put(&f, 1, 0, 1), CKPT_ESTATE);
    assert_int_equal(put(&f, 1, 0, 0), 0);
    assert_int_equal(atomic_load(&f.out->writes), 0);
    ckpt_sink_abort(f.sink);
    assert_int_equal(f.aborted, 1);
    ckpt_source_close(f.src);
    ckpt_sink_abort(NULL);
}

TEST(stream_takes_elements_in_order)
{
    struct store_pair f;

    begin(&f, true);
    assert_int_equal(put(&f, 2, 0, 5), CKPT_ESTATE);
    assert_int_equal(put(&f, 0, 1, 2), CKPT_ESTATE);
    assert_int_equal(put(&f, 0, 0, 3), 0);
    assert_int_equal(put(&f, 0, 0, 3), CKPT_ESTATE);
    assert_int_equal(put(&f, 0, 4, 3), CKPT_ESTATE);
    assert_int_equal(put(&f, 2, 0, 5), CKPT_ESTATE);
    assert_int_equal(put(&f, 0, 3, 7), 0);
    assert_int_equal(put(&f, 2, 0, 5), 0);      /* over the empty one */
    assert_int_equal(put(&f, 0, 0, 1), CKPT_ESTATE);
    end(&f, 0);
}

TEST(failed_write_is_not_counted)
{
    struct store_pair f;

    begin(&f, false);
    f.out->fail_at = 2;
    assert_int_equal(put(&f, 0, 0, 10), 0);
    assert_int_equal(put(&f, 2, 0, 5), CKPT_EIO);
    assert_string_equal(f.err.text, "tensor b: the store is full");
    end(&f, CKPT_ESTATE);
}

/* -- located ranges ------------------------------------------------------------------------ */

static bool anywhere(void *self, size_t i, int64_t start, int64_t count,
                     struct ckpt_sink_extent *out)
{
    (void)self;
    (void)count;
    *out = (struct ckpt_sink_extent){NULL, (uint64_t)(i * 100) + (uint64_t)start, false};
    return true;
}

static const struct ckpt_sink_ops located_ops = {
    .format = "store", .write = store_write, .locate = anywhere, .commit = store_commit,
    .abort = store_abort,
};

TEST(located_ranges_are_checked_and_counted)
{
    struct ckpt_sink_extent at;
    struct store_pair f;

    begin(&f, false);
    assert_false(ckpt_sink_locate(f.sink, 0, 0, 10, &at));      /* the store cannot tell */
    ckpt_sink_abort(f.sink);
    for (int stream = 0; stream < 2; stream++) {
        f.out = store_new(ckpt_source_tensors(f.src), &f.committed, &f.aborted);
        assert_int_equal(ckpt_sink_new(&f.sink, &located_ops, f.out, ckpt_source_tensors(f.src),
                                       stream, &f.err), 0);
        assert_int_equal(ckpt_sink_locate(f.sink, 2, 1, 4, &at), !stream);
        if (!stream)
            assert_int_equal(at.offset, 201);
        assert_false(ckpt_sink_locate(f.sink, 2, 1, 5, &at));
        assert_false(ckpt_sink_locate(f.sink, 3, 0, 1, &at));
        assert_false(ckpt_sink_locate(f.sink, 0, 0, 0, &at));
        ckpt_sink_wrote(f.sink, 0, 10);
        ckpt_sink_wrote(f.sink, 2, 5);
        f.committed = f.aborted = 0;
        assert_int_equal(ckpt_sink_commit(f.sink, &f.err), 0);
        assert_int_equal(f.committed, 1);
    }
    ckpt_source_close(f.src);
}
