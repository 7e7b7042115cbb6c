/*
 * dcp_ranks_out: runs of elements are cut into boxes that tile them, and what several ranks write of
 * runs that end anywhere is read back as the tensors.
 */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/dcp/boxes.h"
#include "formats/dcp/ranks_out.h"

SCRATCH_EACH("dcp-ranks")

/* A box has the elements from *next on, in row-major order. */
static void assert_run(const struct ckpt_box *box, const struct ckpt_shape *shape, int64_t *next)
{
    int64_t n = 1, at = 0, end = 0;

    for (int d = 0; d < shape->rank; d++) {
        assert_true(box->count[d] >= 1 && box->start[d] + box->count[d] <= shape->dim[d]);
        at = at * shape->dim[d] + box->start[d];
        end = end * shape->dim[d] + box->start[d] + box->count[d] - 1;
        n *= box->count[d];
    }
    assert_int_equal(at, *next);
    assert_int_equal(end, *next + n - 1);       /* as many elements as lie between its corners */
    *next += n;
}

TEST(every_run_is_tiled)
{
    static const struct ckpt_shape shapes[] = {
        {.rank = 0}, {1, {7}}, {2, {5, 3}}, {3, {3, 4, 2}}, {3, {1, 5, 1}}, {4, {2, 3, 2, 3}}};

    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        int64_t numel = 0;

        ckpt_shape_numel(&numel, &shapes[s]);
        for (int64_t start = 0; start < numel; start++)
            for (int64_t count = 0; start + count <= numel; count++) {
                struct ckpt_box box[BOXES_OF_RUN];
                size_t n = boxes_of_run(box, &shapes[s], start, count);
                int64_t next = start;

                assert_true(n <= (size_t)(shapes[s].rank ? 2 * shapes[s].rank - 1 : 1));
                for (size_t k = 0; k < n; k++)
                    assert_run(&box[k], &shapes[s], &next);
                assert_int_equal(next, start + count);
            }
    }
}

#define WORLD 3

static const struct { const char *name; struct ckpt_shape shape; bool shared; } tensors[] = {
    {"head", {2, {5, 3}}, true},
    {"cube", {3, {3, 4, 2}}, false},
    {"few", {1, {2}}, false},           /* the last rank has none of it */
    {"scalar", {.rank = 0}, false},
};
#define N (sizeof tensors / sizeof tensors[0])

static float value_of(size_t t, int64_t i) { return (float)(100 * t + (size_t)i); }

/* One rank's part, put in pieces of `piece` elements. */
static void write_rank(struct ckpt_outdir *out, int rank, int64_t piece)
{
    struct ckpt_err err = {0};
    struct dcp_ranks *r;
    size_t number[N];

    assert_int_equal(dcp_ranks_new(&r, rank, WORLD, rank == 1, &err), 0);
    for (size_t t = 0; t < N; t++) {
        struct dcp_index *x = dcp_ranks_index(r);
        struct dcp_run run[WORLD];
        int64_t numel, part;

        ckpt_shape_numel(&numel, &tensors[t].shape);
        part = (numel + WORLD - 1) / WORLD;
        for (int k = 0; k < WORLD; k++)
            run[k] = (struct dcp_run){k * part,
                                      k * part >= numel ? 0 : numel - k * part < part
                                          ? numel - k * part : part};
        assert_int_equal(dcp_ranks_tensor(r, &number[t],
                             dcp_index_path(x, (const char *const[]){"model", tensors[t].name, NULL}),
                             CKPT_F32, &tensors[t].shape, run, &err), 0);
        if (tensors[t].shared)
            assert_int_equal(dcp_ranks_alias(r, dcp_index_path(x, (const char *const[]){"model",
                                             "tied", NULL}), &err), 0);
    }
    assert_int_equal(dcp_ranks_value(r, dcp_index_path(dcp_ranks_index(r),
                                     (const char *const[]){"step", NULL}),
                                     value_int(&dcp_ranks_index(r)->arena, 7), &err), 0);
    assert_int_equal(dcp_ranks_begin(r, out, "part", &err), 0);
    for (size_t t = 0; t < N; t++) {
        int64_t numel, part;

        ckpt_shape_numel(&numel, &tensors[t].shape);
        part = (numel + WORLD - 1) / WORLD;
        for (int64_t at = rank * part; at < numel && at < (rank + 1) * part; at += piece) {
            float some[64];
            int64_t end = at + piece;

            end = end < (rank + 1) * part ? end : (rank + 1) * part;
            end = end < numel ? end : numel;
            for (int64_t i = at; i < end; i++)
                some[i - at] = value_of(t, i);
            assert_int_equal(dcp_ranks_put(r, number[t], at, end - at, some, &err), 0);
        }
    }
    if (dcp_ranks_commit(r, &err))
        fail_msg("%s", err.text);
    dcp_ranks_close(r);
}

TEST(ranks_write_one_checkpoint)
{
    for (int64_t piece = 1; piece <= 5; piece += 2) {
        const char *path = text_of("%s/out-%d", dir, (int)piece);
        const struct ckpt_open_opts prove = {.prove = true};
        struct ckpt_err err = {0};
        struct ckpt_outdir *out;
        struct ckpt_source *s;

        assert_int_equal(ckpt_outdir_create(&out, path, &err), 0);
        for (int rank = WORLD - 1; rank >= 0; rank--)
            write_rank(out, rank, piece);
        assert_int_equal(ckpt_outdir_commit(out, &err), 0);
        s = must_open(text_of("%s/out-%d/part", dir, (int)piece), &prove);
        assert_int_equal(ckpt_source_count(s), N + 1);
        assert_int_equal(json_integer_value(json_object_get(ckpt_source_info(s), "step")), 7);
        for (size_t t = 0; t < N; t++) {
            size_t i = ckpt_source_find(s, tensors[t].name);
            const struct ckpt_tensor *x = ckpt_source_tensor(s, i);
            float got[64];

            assert_true(ckpt_shape_equal(&x->shape, &tensors[t].shape));
            assert_int_equal(ckpt_source_read(s, i, 0, x->numel, got, &err), 0);
            for (int64_t k = 0; k < x->numel; k++)
                assert_true(got[k] == value_of(t, k));
        }
        assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "tied"))->alias_of,
                         ckpt_source_find(s, "head"));
        ckpt_source_close(s);
    }
}

TEST(elements_that_were_not_put_are_missed)
{
    static const struct ckpt_shape shape = {1, {4}};
    static const float some[2] = {1, 2};
    struct ckpt_err err = {0};
    struct ckpt_outdir *out;
    struct dcp_ranks *r;
    size_t number;

    assert_int_equal(ckpt_outdir_create(&out, text_of("%s/out", dir), &err), 0);
    assert_int_equal(dcp_ranks_new(&r, 0, 1, true, &err), 0);
    assert_int_equal(dcp_ranks_tensor(r, &number, dcp_index_path(dcp_ranks_index(r),
                                      (const char *const[]){"model", "w", NULL}), CKPT_F32, &shape,
                                      NULL, &err), 0);
    assert_int_equal(dcp_ranks_begin(r, out, "part", &err), 0);
    assert_int_equal(dcp_ranks_put(r, number, 0, 2, some, &err), 0);
    assert_int_equal(dcp_ranks_commit(r, &err), CKPT_ESTATE);
    dcp_ranks_close(r);
    ckpt_outdir_abort(out);
}
