/*
 * Random lists of tensors through every pair of formats that are written, directories as they
 * are and packed as tar, tar.zst and zip: what was put in comes out, name by name and bit by bit.
 * X2, A6
 *
 * Each format says here what it can hold; one that is written and not listed fails the test.
 */
#include "tests/unit/unit.h"

#include "formats/formats.h"
#include "libckpt/copy.h"
#include "libckpt/io/pack.h"

#define MAX_ROWS 24
#define ROUNDS   4

/* What a format can hold. */
struct holds {
    const char *format;
    const char *name;                   /* of the file or directory */
    const char *dtypes;                 /* their names, blanks around each */
    int         max_rank;
    bool        empty;                  /* tensors without elements */
};

static const struct holds table[] = {
    {"safetensors", "x.safetensors",
     " BOOL U8 I8 U16 I16 U32 I32 U64 I64 F16 BF16 F32 F64 F8_E4M3 F8_E5M2 C64 ", 6, true},
    {"hf", "dir", " BOOL U8 I8 U16 I16 U32 I32 U64 I64 F16 BF16 F32 F64 F8_E4M3 F8_E5M2 C64 ", 6,
     true},
    {"torch", "x.pt",
     " BOOL U8 I8 U16 I16 U32 I32 U64 I64 F16 BF16 F32 F64 F8_E4M3 F8_E5M2 C64 C128 ", 6, true},
    {"dcp", "dcp",
     " BOOL U8 I8 U16 I16 U32 I32 U64 I64 F16 BF16 F32 F64 F8_E4M3 F8_E5M2 C64 C128 ", 6, true},
    {"gguf", "x.gguf", " I8 I16 I32 I64 F16 BF16 F32 F64 ", 4, false},
};

/* Written from what is a training run or an adapter only; their own tests go there and back. */
static const char *const others[] = {"deepspeed", "universal", "peft"};

static bool is_other(const char *format)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i], format) == 0)
            return true;
    return false;
}

static const struct holds *holds_of(const char *format)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].format, format) == 0)
            return &table[i];
    return NULL;
}

/* xorshift64*: the same lists in every run. */
static uint64_t draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717u;
}

/* -- a source of random tensors, all bytes in one file --------------------------------------- */

struct made {
    unsigned char    *bytes;
    struct ckpt_file *file;
};

static void made_close(void *self)
{
    struct made *m = self;

    ckpt_file_close(m->file);
    free(m->bytes);
    free(m);
}

static const struct ckpt_source_ops made_ops = {.format = "made", .close = made_close};

/* A dtype that both formats hold. */
static enum ckpt_dtype draw_dtype(uint64_t *seed, const struct holds *a, const struct holds *b)
{
    for (;;) {
        enum ckpt_dtype t = (enum ckpt_dtype)(1 + draw(seed) % (CKPT_DTYPE_COUNT - 1));
        char word[32];

        snprintf(word, sizeof word, " %s ", ckpt_dtype_name(t));
        if (strstr(a->dtypes, word) && strstr(b->dtypes, word))
            return t;
    }
}

static struct ckpt_shape draw_shape(uint64_t *seed, const struct holds *a, const struct holds *b)
{
    int most = a->max_rank < b->max_rank ? a->max_rank : b->max_rank;
    int64_t dim[8] = {0};
    int rank = (int)(draw(seed) % (uint64_t)(most + 1));

    for (int d = 0; d < rank; d++) {
        dim[d] = 1 + (int64_t)(draw(seed) % (rank > 2 ? 5 : 70));
        if (a->empty && b->empty && draw(seed) % 31 == 0)
            dim[d] = 0;
    }
    return ckpt_shape_of(rank, dim);
}

/* Random bytes; BOOL has 0 and 1 only, the one type whose bytes a reader may look at. */
static void fill(unsigned char *p, size_t n, enum ckpt_dtype t, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(draw(seed) >> 32) & (t == CKPT_BOOL ? 1 : 0xff);
}

static struct ckpt_source *make(uint64_t seed, const struct holds *a, const struct holds *b)
{
    static const char *const part[] = {"model", "layers", "weight", "bias", "h", "Größe", "0",
                                       "11", "norm", "attn"};
    struct made *m = calloc(1, sizeof *m);
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    struct ckpt_shape shape[MAX_ROWS];
    enum ckpt_dtype dtype[MAX_ROWS];
    size_t n = 1 + draw(&seed) % MAX_ROWS, size = 0, at = 0;
    uint64_t bytes;

    for (size_t i = 0; i < n; i++) {
        dtype[i] = draw_dtype(&seed, a, b);
        shape[i] = draw_shape(&seed, a, b);
        assert_true(ckpt_shape_bytes(&bytes, &shape[i], dtype[i]));
        size += (size_t)bytes;
    }
    m->bytes = malloc(size + 1);
    assert_int_equal(ckpt_file_memory(&m->file, m->bytes, size, "made", &err), 0);
    for (size_t i = 0; i < n; i++) {
        struct ckpt_fragment *f = ckpt_arena_alloc(&list.arena, 1, sizeof *f);
        struct ckpt_tensor *t;
        char name[128];

        snprintf(name, sizeof name, "%s.%s.%zu.%s", part[draw(&seed) % 10], part[draw(&seed) % 10],
                 i, part[draw(&seed) % 10]);
        *f = (struct ckpt_fragment){.file = m->file, .offset = at};
        assert_true(ckpt_shape_bytes(&bytes, &shape[i], dtype[i]));
        fill(m->bytes + at, (size_t)bytes, dtype[i], &seed);
        assert_int_equal(ckpt_tensors_add(&list, &t, name, strlen(name), dtype[i], &shape[i], f,
                                          bytes > 0, false, &err), 0);
        at += (size_t)bytes;
    }
    assert_int_equal(ckpt_source_new(&src, &made_ops, m, &list, NULL, 0, NULL, &err), 0);
    return src;
}

/* -- through formats ------------------------------------------------------------------------- */

/* The directory at path as an archive in its place. */
static void pack_it(char *path, size_t size, const char *tail)
{
    struct ckpt_err err = {0};
    struct ckpt_out *out;
    struct ckpt_dir *dir;
    char archive[720];

    assert_true(strlen(path) + strlen(tail) < sizeof archive);
    snprintf(archive, sizeof archive, "%.700s%.10s", path, tail);
    if (ckpt_dir_open(&dir, path, 0, &err) || ckpt_out_create(&out, archive, 0, &err) ||
        ckpt_pack(out, dir, ckpt_pack_of(archive), NULL, &err) || ckpt_out_commit(out, &err))
        fail_msg("%s: %s", archive, err.text);
    ckpt_dir_close(dir);
    scratch_remove(path);
    snprintf(path, size, "%s", archive);
}

/* Write src as h says below dir, pack it if it is a directory, and open what was written. */
static struct ckpt_source *through(struct ckpt_source *src, const struct holds *h, const char *dir,
                                   uint64_t shard, const char *pack)
{
    const struct ckpt_create_opts create = {.max_shard_bytes = shard};
    const struct ckpt_copy_opts copy = {.workers = 3, .chunk_bytes = 4096};
    struct ckpt_err err = {0};
    struct ckpt_source *back;
    struct ckpt_sink *sink;
    struct stat st;
    char path[720];

    snprintf(path, sizeof path, "%s/%s", dir, h->name);
    if (ckpt_create(&sink, h->format, path, ckpt_source_tensors(src), &create, &err) ||
        ckpt_copy(sink, src, &copy, &err) || ckpt_sink_commit(sink, &err))
        fail_msg("%s: %s", h->format, err.text);
    if (*pack && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        pack_it(path, sizeof path, pack);
    if (ckpt_open(&back, path, NULL, &err))
        fail_msg("%s: %s", path, err.text);
    return back;
}

static void assert_same(struct ckpt_source *want, struct ckpt_source *got, const char *route)
{
    struct ckpt_err err = {0};

    if (ckpt_source_count(got) != ckpt_source_count(want))
        fail_msg("%s: %zu tensors, %zu were written", route, ckpt_source_count(got),
                 ckpt_source_count(want));
    for (size_t i = 0; i < ckpt_source_count(want); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(want, i), *u;
        size_t k = ckpt_source_find(got, t->name), n = (size_t)ckpt_tensor_bytes(t);
        unsigned char *x = malloc(n + 1), *y = malloc(n + 1);

        if (k == SIZE_MAX)
            fail_msg("%s: %s is not there", route, t->name);
        u = ckpt_source_tensor(got, k);
        if (t->dtype != u->dtype || !ckpt_shape_equal(&t->shape, &u->shape))
            fail_msg("%s: %s is %s of %lld elements, not %s of %lld", route, t->name,
                     ckpt_dtype_name(u->dtype), (long long)u->numel, ckpt_dtype_name(t->dtype),
                     (long long)t->numel);
        assert_int_equal(ckpt_source_read(want, i, 0, t->numel, x, &err), 0);
        if (ckpt_source_read(got, k, 0, u->numel, y, &err))
            fail_msg("%s: %s", route, err.text);
        if (memcmp(x, y, n) != 0)
            fail_msg("%s: %s holds other bytes", route, t->name);
        free(x);
        free(y);
    }
}

TEST(every_pair)
{
    size_t n = sizeof table / sizeof table[0];

    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++)
            for (uint64_t round = 1; round <= ROUNDS; round++) {
                static const char *const packs[] = {"", ".tar", ".tar.zst", ".zip"};
                uint64_t seed = (a * 64 + b + 1) * 1000003 + round;
                const char *dir = scratch("any");
                char one[300], two[300], route[128];
                struct ckpt_source *src = make(seed, &table[a], &table[b]), *mid, *end;

                snprintf(one, sizeof one, "%s/1", dir);
                snprintf(two, sizeof two, "%s/2", dir);
                snprintf(route, sizeof route, "made -> %s -> %s, round %d", table[a].format,
                         table[b].format, (int)round);
                assert_int_equal(mkdir(one, 0777) | mkdir(two, 0777), 0);
                mid = through(src, &table[a], one, round % 3 ? 0 : 3000,
                              packs[round % 4]);
                end = through(mid, &table[b], two, round % 2 ? 0 : 5000,
                              packs[(round + b) % 4]);
                assert_same(src, end, route);
                ckpt_source_close(end);
                ckpt_source_close(mid);
                ckpt_source_close(src);
                scratch_remove(dir);
            }
}

TEST(all_are_listed)
{
    const struct ckpt_format *const *row = ckpt_formats();

    for (size_t i = 0; row[i]; i++)
        if (row[i]->create && !holds_of(row[i]->name) && !is_other(row[i]->name))
            fail_msg("%s is written and has no row here", row[i]->name);
}
