/* fragment - boxes that tile or do not, and gathered ranges against a naive reading. */
#include "tests/unit/unit.h"

#include "libckpt/fragment.h"

#define FILE_BYTES (4 << 20)
#define MAX_PIECES 64
#define SMALL      1200         /* elements */
#define LARGE      60000        /* several stages of 64 KiB */

/* A tensor in pieces over two files in memory, and what is needed to make one by chance. */
struct puzzle {
    uint64_t             random;
    unsigned char        bytes[2][FILE_BYTES];
    struct ckpt_file    *file[2];
    struct ckpt_shape    shape;
    enum ckpt_dtype      dtype;
    struct ckpt_fragment frag[MAX_PIECES];
    struct ckpt_box      box[MAX_PIECES];       /* of these */
    int64_t              stride[MAX_PIECES][CKPT_MAX_RANK];
    size_t               n;
    int64_t              numel;
};

static int64_t pick(struct puzzle *p, int64_t n)
{
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((p->random >> 33) % (uint64_t)n);
}

static struct puzzle puzzle;

BEFORE_ALL()
{
    struct puzzle *p = &puzzle;
    struct ckpt_err err = {0};

    p->random = 20260101;
    for (int f = 0; f < 2; f++) {
        for (size_t i = 0; i < FILE_BYTES; i++)
            p->bytes[f][i] = (unsigned char)pick(p, 256);
        assert_int_equal(
            ckpt_file_memory(&p->file[f], p->bytes[f], FILE_BYTES, f ? "b" : "a", &err), 0);
    }
}

AFTER_ALL()
{
    struct puzzle *p = &puzzle;

    ckpt_file_close(p->file[0]);
    ckpt_file_close(p->file[1]);
}

static void make_shape(struct puzzle *p, int64_t limit)
{
    static const enum ckpt_dtype dtypes[] = {CKPT_U8, CKPT_BF16, CKPT_F32, CKPT_F64, CKPT_C64,
                                             CKPT_C128};

    p->dtype = dtypes[pick(p, 6)];
    p->shape.rank = (int)pick(p, 6);
    p->numel = 1;
    for (int d = 0; d < p->shape.rank; d++) {
        int64_t room = limit / p->numel, most = limit / 30;

        p->shape.dim[d] = 1 + pick(p, room < most ? room : most);
        p->numel *= p->shape.dim[d];
    }
}

/* Cut the whole box along random axes; pieces come in random order. */
static void make_boxes(struct puzzle *p)
{
    int64_t cuts = pick(p, 12);

    memset(p->frag, 0, sizeof p->frag);
    memset(p->box, 0, sizeof p->box);
    for (size_t i = 0; i < sizeof p->box / sizeof *p->box; i++)
        p->frag[i].box = &p->box[i];
    p->n = 1;
    for (int d = 0; d < p->shape.rank; d++)
        p->box[0].count[d] = p->shape.dim[d];
    while (p->shape.rank > 0 && cuts-- > 0) {
        int d = (int)pick(p, p->shape.rank);
        struct ckpt_box *whole = &p->box[pick(p, (int64_t)p->n)];
        struct ckpt_box *rest = &p->box[p->n];
        int64_t at;

        if (whole->count[d] < 2)
            continue;
        at = 1 + pick(p, whole->count[d] - 1);
        *rest = *whole;
        rest->start[d] += at;
        rest->count[d] -= at;
        whole->count[d] = at;
        p->n++;
    }
    for (size_t i = p->n; pick(p, 2) && i-- > 1;) {
        size_t k = (size_t)pick(p, (int64_t)i + 1);
        struct ckpt_box b = p->box[i];

        p->box[i] = p->box[k];
        p->box[k] = b;
    }
}

/* Give each box bytes: dense, or with axes permuted, padded, and now and then expanded. */
static void make_bytes(struct puzzle *p, int64_t most_pad)
{
    int64_t width = (int64_t)ckpt_dtype_size(p->dtype);

    for (size_t i = 0; i < p->n; i++) {
        struct ckpt_fragment *f = &p->frag[i];
        int64_t span = 1, last = 0, order[CKPT_MAX_RANK] = {0};
        bool strided = pick(p, 2);

        for (int d = 0; d < p->shape.rank; d++)
            order[d] = d;
        for (int d = p->shape.rank; strided && d-- > 1;) {
            int64_t k = pick(p, d + 1), t = order[d];

            order[d] = order[k];
            order[k] = t;
        }
        for (int d = p->shape.rank; d-- > 0;) {
            int64_t axis = order[d];

            p->stride[i][axis] = strided && pick(p, 12) == 0 ? 0 : span;
            last += (f->box->count[axis] - 1) * p->stride[i][axis];
            span = last + 1 + (strided && pick(p, 2) ? pick(p, most_pad) : 0);
        }
        if ((last + 1) * width >= FILE_BYTES) {         /* too large a gap: again */
            i--;
            continue;
        }
        f->stride = strided || pick(p, 4) == 0 ? p->stride[i] : NULL;
        f->swapped = pick(p, 3) == 0;
        f->file = p->file[pick(p, 2)];
        f->offset = (uint64_t)pick(p, FILE_BYTES - (last + 1) * width + 1);
    }
}

/* The file and offset of one element, found the long way. */
static const struct ckpt_fragment *find(const struct puzzle *p, int64_t flat, uint64_t *offset,
                                        int *times)
{
    const struct ckpt_fragment *found = NULL;
    int64_t at[CKPT_MAX_RANK];

    for (int d = p->shape.rank; d-- > 0; flat /= p->shape.dim[d])
        at[d] = flat % p->shape.dim[d];
    *times = 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct ckpt_fragment *f = &p->frag[i];
        int64_t in = 0;
        bool inside = true;

        for (int d = 0; d < p->shape.rank; d++) {
            int64_t k = at[d] - f->box->start[d];

            inside = inside && k >= 0 && k < f->box->count[d];
            in = f->stride ? in + k * f->stride[d] : in * f->box->count[d] + k;
        }
        if (!inside)
            continue;
        found = f;
        ++*times;
        *offset = f->offset + (uint64_t)in * ckpt_dtype_size(p->dtype);
    }
    return found;
}

static void naive(const struct puzzle *p, unsigned char *dst, int64_t flat)
{
    size_t width = ckpt_dtype_size(p->dtype);
    size_t part = ckpt_dtype_class(p->dtype) == CKPT_CLASS_COMPLEX ? width / 2 : width;
    uint64_t offset = 0;
    int times;
    const struct ckpt_fragment *f = find(p, flat, &offset, &times);
    const unsigned char *src = p->bytes[f->file == p->file[1]] + offset;

    assert_int_equal(times, 1);
    for (size_t i = 0; i < width; i++)
        dst[i] = src[f->swapped ? i / part * part + part - 1 - i % part : i];
}

TEST_ERR(gather_equals_naive_reading)
{
    struct puzzle *p = &puzzle;
    unsigned char got[SMALL * 16 + 16], want[SMALL * 16];

    for (int round = 0; round < 3000; round++) {
        make_shape(p, SMALL);
        make_boxes(p);
        make_bytes(p, 3);
        assert_int_equal(ckpt_fragment_check(&p->shape, p->dtype, p->frag, p->n, err), 0);
        for (int k = 0; k < 4; k++) {
            int64_t start = k ? pick(p, p->numel) : 0;
            int64_t count = k ? 1 + pick(p, p->numel - start) : p->numel;
            size_t width = ckpt_dtype_size(p->dtype), n = (size_t)count * width;

            for (int64_t i = 0; i < count; i++)
                naive(p, want + (size_t)i * width, start + i);
            memset(got, 0xa5, sizeof got);
            assert_int_equal(ckpt_fragment_gather(got, &p->shape, p->dtype, p->frag, p->n, start, count,
                                                  err), 0);
            assert_memory_equal(got, want, n);
            for (size_t i = n; i < n + 16; i++)
                assert_int_equal(got[i], 0xa5);
        }
    }
}

/* As above with strides and gaps that take a stage several times over. */
TEST_ERR(gather_of_large_strides_equals_naive_reading)
{
    struct puzzle *p = &puzzle;
    unsigned char *got = malloc(LARGE * 16 + 16), *want = malloc(LARGE * 16);

    for (int round = 0; round < 60; round++) {
        size_t width;
        int64_t start, count;

        do
            make_shape(p, LARGE);
        while (p->shape.rank == 0 || p->numel < LARGE / 8);
        make_boxes(p);
        make_bytes(p, 1 + pick(p, 3000));
        width = ckpt_dtype_size(p->dtype);
        start = round % 2 ? pick(p, p->numel) : 0;
        count = p->numel - start;
        for (int64_t i = 0; i < count; i++)
            naive(p, want + (size_t)i * width, start + i);
        memset(got, 0xa5, LARGE * 16 + 16);
        assert_int_equal(
            ckpt_fragment_gather(got, &p->shape, p->dtype, p->frag, p->n, start, count, err), 0);
        assert_memory_equal(got, want, (size_t)count * width);
        for (size_t i = 0; i < 16; i++)
            assert_int_equal(got[(size_t)count * width + i], 0xa5);
    }
    free(got);
    free(want);
}

TEST(locate_equals_naive_reading)
{
    struct puzzle *p = &puzzle;
    int yes = 0, no = 0;

    for (int round = 0; round < 3000; round++) {
        int64_t start, count;
        uint64_t first = 0, offset = 0;
        const struct ckpt_fragment *f;
        struct ckpt_extent got;
        bool want;
        int times;

        make_shape(p, SMALL);
        make_boxes(p);
        make_bytes(p, 3);
        start = pick(p, p->numel);
        count = 1 + pick(p, pick(p, 2) ? p->numel - start : 1);
        f = find(p, start, &first, &times);
        want = !f->swapped;
        for (int64_t i = 1; want && i < count; i++)
            want = find(p, start + i, &offset, &times) == f &&
                   offset == first + (uint64_t)i * ckpt_dtype_size(p->dtype);
        assert_int_equal(ckpt_fragment_locate(&got, &p->shape, p->dtype, p->frag, p->n, start, count),
                         want);
        if (want) {
            assert_ptr_equal(got.file, f->file);
            assert_int_equal(got.offset, first);
        }
        yes += want;
        no += !want;
    }
    assert_true(yes > 300 && no > 300);         /* both answers were put to the test */
}

/* Move, grow or shrink one box at random and ask whether every element is covered once. */
TEST(check_equals_counting)
{
    struct puzzle *p = &puzzle;
    int reasons[3] = {0};

    for (int round = 0; round < 3000; round++) {
        struct ckpt_err err = {0};
        bool hole = false, twice = false;
        uint64_t offset;
        int times, rc;

        make_shape(p, SMALL);
        make_boxes(p);
        make_bytes(p, 3);
        for (int64_t k = pick(p, 3); p->shape.rank > 0 && k-- > 0;) {
            struct ckpt_box *b = &p->box[pick(p, (int64_t)p->n)];
            int d = (int)pick(p, p->shape.rank);

            b->start[d] = pick(p, p->shape.dim[d]);
            b->count[d] = 1 + pick(p, p->shape.dim[d] - b->start[d]);
        }
        for (size_t i = 0; i < p->n; i++) {     /* so that only the tiling is in question */
            p->frag[i].stride = NULL;
            p->frag[i].offset = 0;
        }
        for (int64_t i = 0; i < p->numel; i++) {
            find(p, i, &offset, &times);
            hole = hole || times == 0;
            twice = twice || times > 1;
        }
        rc = ckpt_fragment_check(&p->shape, p->dtype, p->frag, p->n, &err);
        assert_int_equal(rc, hole || twice ? CKPT_EFORMAT : 0);
        if (rc == 0)
            reasons[0]++;
        else if (strcmp(err.reason, "hole") == 0 && hole)
            reasons[1]++;
        else if (strcmp(err.reason, "overlap") == 0 && twice)
            reasons[2]++;
        else
            fail_msg("reason %s, hole %d, twice %d: %s", err.reason, hole, twice, err.text);
    }
    for (int i = 0; i < 3; i++)
        assert_true(reasons[i] > 50);
}

/* One box of a [4, 6] tensor of F32 in a file of `size` bytes. */
static int check_one(struct ckpt_fragment f, size_t size, const char **reason)
{
    static const unsigned char bytes[4096];
    static struct ckpt_err err;
    struct ckpt_shape shape = ckpt_shape_2d(4, 6);
    int rc;

    assert_int_equal(ckpt_file_memory(&f.file, bytes, size, "f", &err), 0);
    rc = ckpt_fragment_check(&shape, CKPT_F32, &f, 1, &err);
    ckpt_file_close(f.file);
    *reason = rc ? err.reason : "";
    return rc;
}

TEST(check_refuses_what_sticks_out)
{
    const struct ckpt_box whole = {{0, 0}, {4, 6}};
    const int64_t column[2] = {1, 4}, wide[2] = {7, 1}, zero[2] = {0, 1};
    const int64_t huge[2] = {INT64_MAX, INT64_MAX}, below[2] = {-1, 1};
    const struct {
        struct ckpt_fragment f;
        size_t               size;
        const char          *reason;
    } cases[] = {
        {{.box = NULL}, 96, ""},
        {{.box = NULL}, 95, "truncated"},
        {{.box = NULL, .stride = column}, 96, ""},
        {{.box = &whole}, 96, ""},
        {{.box = &whole}, 95, "truncated"},
        {{.box = &whole, .offset = 1}, 96, "truncated"},
        {{.box = &whole, .offset = 1}, 97, ""},
        {{.box = &whole, .offset = UINT64_MAX}, 96, "truncated"},
        {{.box = &whole, .offset = UINT64_MAX - 95}, 96, "truncated"},
        {{.box = &whole, .stride = column}, 96, ""},
        {{.box = &whole, .stride = column}, 95, "truncated"},
        {{.box = &whole, .stride = wide}, 107, "truncated"},
        {{.box = &whole, .stride = wide}, 108, ""},
        {{.box = &whole, .stride = zero}, 24, ""},
        {{.box = &whole, .stride = zero}, 23, "truncated"},
        {{.box = &whole, .stride = huge}, 96, "bounds"},
        {{.box = &whole, .stride = below}, 96, "bounds"},
        {{.box = &(struct ckpt_box){{0, 0}, {4, 7}}}, 4096, "bounds"},
        {{.box = &(struct ckpt_box){{0, 1}, {4, 6}}}, 4096, "bounds"},
        {{.box = &(struct ckpt_box){{-1, 0}, {4, 6}}}, 4096, "bounds"},
        {{.box = &(struct ckpt_box){{0, 0}, {4, 0}}}, 4096, "bounds"},
        {{.box = &(struct ckpt_box){{0, 0}, {4, INT64_MIN}}}, 4096, "bounds"},
        {{.box = &(struct ckpt_box){{5, 0}, {INT64_MAX, 6}}}, 4096, "bounds"},
        {{.box = &(struct ckpt_box){{0, 0}, {4, 5}}}, 4096, "hole"},
        {{.box = &(struct ckpt_box){{1, 0}, {3, 6}}}, 4096, "hole"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *reason;
        int rc = check_one(cases[i].f, cases[i].size, &reason);

        if (strcmp(reason, cases[i].reason) != 0)
            fail_msg("case %zu: \"%s\", \"%s\" wanted", i, reason, cases[i].reason);
        assert_int_equal(rc, reason[0] ? CKPT_EFORMAT : 0);
    }
}

TEST_ERR(check_names_the_element)
{
    struct puzzle *p = &puzzle;
    struct ckpt_shape shape = ckpt_shape_2d(4, 6);
    struct ckpt_box box[3] = {{{0, 0}, {2, 6}}, {{2, 0}, {2, 3}}, {{2, 4}, {2, 2}}};
    struct ckpt_fragment f[3] = {{.box = &box[0], .file = p->file[0]},
                                 {.box = &box[1], .file = p->file[0]},
                                 {.box = &box[2], .file = p->file[0]}};

    assert_int_equal(ckpt_fragment_check(&shape, CKPT_F32, f, 3, err), CKPT_EFORMAT);
    assert_string_equal(err->text, "element [2, 3] lies in none of 3 pieces");
    box[2].start[1] = 2;
    box[2].count[1] = 4;
    assert_int_equal(ckpt_fragment_check(&shape, CKPT_F32, f, 3, err), CKPT_EFORMAT);
    assert_string_equal(err->text, "element [2, 2] lies in 2 pieces");
}

TEST_ERR(empty_and_scalar_tensors)
{
    struct puzzle *p = &puzzle;
    struct ckpt_shape empty = ckpt_shape_2d(0, 6), scalar = {.rank = 0};
    struct ckpt_fragment f[2] = {{.file = p->file[0], .offset = 8}, {.file = p->file[0]}};
    struct ckpt_extent at;
    float got;

    assert_int_equal(ckpt_fragment_check(&empty, CKPT_F32, NULL, 0, err), 0);
    assert_int_equal(ckpt_fragment_check(&empty, CKPT_F32, f, 1, err), CKPT_EFORMAT);
    assert_int_equal(ckpt_fragment_gather(NULL, &empty, CKPT_F32, NULL, 0, 0, 0, err), 0);
    assert_false(ckpt_fragment_locate(&at, &empty, CKPT_F32, NULL, 0, 0, 0));
    assert_int_equal(ckpt_fragment_check(&scalar, CKPT_F32, f, 1, err), 0);
    assert_int_equal(ckpt_fragment_gather(&got, &scalar, CKPT_F32, f, 1, 0, 1, err), 0);
    assert_memory_equal(&got, p->bytes[0] + 8, 4);
    assert_true(ckpt_fragment_locate(&at, &scalar, CKPT_F32, f, 1, 0, 1));
    assert_int_equal(at.offset, 8);
    assert_int_equal(ckpt_fragment_check(&scalar, CKPT_F32, f, 2, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "overlap");
    assert_int_equal(ckpt_fragment_check(&scalar, CKPT_F32, NULL, 0, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "hole");
    assert_int_equal(ckpt_fragment_check(&scalar, CKPT_F4, f, 1, err), CKPT_EUNSUPPORTED);
}

/* 65,536 pieces: a square grid that is off by one element somewhere is found, and quickly. */
TEST_ERR(check_many_pieces)
{
    struct puzzle *p = &puzzle;
    struct ckpt_fragment *f = calloc(65536, sizeof *f);
    struct ckpt_box *box = calloc(65536, sizeof *box);
    struct ckpt_shape shape = ckpt_shape_2d(1024, 1024);

    for (int64_t i = 0; i < 65536; i++) {
        struct ckpt_fragment *k = &f[i * 40503 % 65536];        /* in no order */

        box[k - f] = (struct ckpt_box){{i / 256 * 4, i % 256 * 4}, {4, 4}};
        *k = (struct ckpt_fragment){.box = &box[k - f], .file = p->file[0]};
    }
    assert_int_equal(ckpt_fragment_check(&shape, CKPT_U8, f, 65536, err), 0);
    box[777].count[1] = 3;
    assert_int_equal(ckpt_fragment_check(&shape, CKPT_U8, f, 65536, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "hole");
    box[777].count[1] = 4;
    f[778].box = f[777].box;
    assert_int_equal(ckpt_fragment_check(&shape, CKPT_U8, f, 65536, err), CKPT_EFORMAT);
    free(box);
    free(f);
}

TEST_ERR(gather_of_unchecked_pieces_fails)
{
    struct puzzle *p = &puzzle;
    struct ckpt_shape shape = ckpt_shape_1d(8);
    struct ckpt_fragment f[2] = {{.box = &(struct ckpt_box){{0}, {3}}, .file = p->file[0]},
                                 {.box = &(struct ckpt_box){{4}, {4}}, .file = p->file[0],
                                  .offset = FILE_BYTES - 2}};
    unsigned char got[8];

    assert_int_equal(ckpt_fragment_gather(got, &shape, CKPT_U8, f, 2, 0, 4, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "hole");
    assert_int_equal(ckpt_fragment_gather(got, &shape, CKPT_U8, f, 2, 4, 4, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "truncated");
}
