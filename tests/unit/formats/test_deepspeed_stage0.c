/*
 * deepspeed_stage0: which number of the optimizer is which parameter, by values where there are
 * masters, by shape where only one reading is left, and else refused.
 */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/torch/out.h"
#include "libckpt/base/half.h"
#include "libckpt/log.h"

/* Three parameters of one shape; the optimizer has b in group 0 and a in group 1, c is frozen. */
enum { A, B, C, N };
static const char *const names[N] = {"a", "b", "c"};
#define NUMEL 3

SCRATCH_EACH("ds-stage0")

/* Storages: `module` by parameter, then masters by entry, then a moment and a step an entry. */
enum { S_MASTER = N, S_MOMENT = N + 2, S_STEP = N + 4, S_ALL = N + 6 };

struct run {
    enum ckpt_dtype dtype;              /* of module */
    bool            masters;
    size_t          entry[2];           /* parameter of entry 0 (group 0) and 1 (group 1) */
    float           off;                /* added to entry 0's master */
};

static float value_of(size_t p, int e) { return 0.1f + (float)p + (float)e * 0.01f; }

static struct value *vector(struct ckpt_arena *a, enum ckpt_dtype dtype, size_t storage)
{
    return value_tensor_new(a, &(struct value_tensor){
        .dtype = dtype, .storage = storage, .stride = {1}, .shape = ckpt_shape_1d(NUMEL)});
}

static struct value *tree(struct ckpt_arena *a, const struct run *r)
{
    struct value *root = value_dict(a, false), *module = value_dict(a, true);
    struct value *inner = value_dict(a, false), *outer = value_dict(a, false);
    struct value *state = value_dict(a, false), *groups = value_list(a), *fp32 = value_list(a);
    int rc = 0;

    for (size_t i = 0; i < N; i++)
        rc |= value_set_str(a, module, names[i], vector(a, r->dtype, i));
    for (size_t i = 0; i < 2; i++) {
        struct value *one = value_dict(a, false), *g = value_dict(a, false);
        struct value *params = value_list(a), *list = value_list(a);
        struct value_tensor step = {.dtype = CKPT_F32, .storage = S_STEP + i,
                                    .shape = ckpt_shape_of(0, NULL)};

        rc |= value_set_str(a, one, "step", value_tensor_new(a, &step)) |
              value_set_str(a, one, "exp_avg", vector(a, CKPT_F32, S_MOMENT + i)) |
              value_set(a, state, value_int(a, (int64_t)i), one) |
              value_append(a, params, value_int(a, (int64_t)i)) |
              value_set_str(a, g, "params", params) | value_append(a, groups, g) |
              value_append(a, list, vector(a, CKPT_F32, S_MASTER + i)) |
              value_append(a, fp32, list);
    }
    rc |= value_set_str(a, inner, "state", state) |
          value_set_str(a, inner, "param_groups", groups) |
          value_set_str(a, outer, "optimizer_state_dict", inner) |
          (r->masters ? value_set_str(a, outer, "fp32_groups", fp32) : 0) |
          value_set_str(a, root, "module", module) |
          value_set_str(a, root, "buffer_names", value_list(a)) |
          value_set_str(a, root, "optimizer", r->masters ? outer : inner);
    assert_int_equal(rc, 0);
    return root;
}

static void put(unsigned char *to, enum ckpt_dtype dtype, float x)
{
    uint16_t h = ckpt_f32_to_bf16(x);

    if (dtype == CKPT_BF16)
        memcpy(to, &h, sizeof h);
    else
        memcpy(to, &x, sizeof x);
}

/* Moments are ten times the parameter's values. */
static void save(const char *path, const struct run *r)
{
    unsigned char bytes[S_ALL][NUMEL * sizeof(float)] = {{0}};
    struct torch_storage storage[S_ALL];
    const void *data[S_ALL];
    struct ckpt_arena a = {0};
    struct ckpt_outdir *made = NULL;
    struct ckpt_out *out;
    struct ckpt_err err = {0};

    for (size_t s = 0; s < S_ALL; s++) {
        enum ckpt_dtype dtype = s < N ? r->dtype : CKPT_F32;
        size_t p = s < N ? s : r->entry[(s - N) % 2];

        storage[s] = (struct torch_storage){.dtype = dtype, .numel = s < S_STEP ? NUMEL : 1};
        data[s] = bytes[s];
        for (int e = 0; s < S_STEP && e < NUMEL; e++)
            put(bytes[s] + (size_t)e * ckpt_dtype_size(dtype), dtype,
                value_of(p, e) * (s < S_MOMENT ? 1.0f : 10.0f) + (s == S_MASTER ? r->off : 0));
    }
    if (ckpt_outdir_create(&made, path, &err) ||
        ckpt_outdir_file(&out, made, "mp_rank_00_model_states.pt", &err) ||
        torch_write(out, "archive", tree(&a, r), storage, data, S_ALL, &err) ||
        ckpt_outdir_commit(made, &err))
        fail_msg("%s", err.text);
    ckpt_arena_release(&a);
}

static void check(struct ckpt_source *s, const char *name, size_t p, float factor)
{
    size_t at = ckpt_source_find(s, name);
    float *found;

    if (at == SIZE_MAX)
        fail_msg("%s is absent", name);
    assert_int_equal(ckpt_source_tensor(s, at)->dtype, CKPT_F32);
    found = read_whole(s, at);
    for (int e = 0; e < NUMEL; e++)
        assert_true(found[e] == value_of(p, e) * factor);
    free(found);
}

static int last_warnings;

static void count_warnings(void *ctx, enum ckpt_log_level level, const char *line)
{
    (void)ctx;
    last_warnings += level == CKPT_LOG_WARNING && strstr(line, "weights are the module's") != NULL;
}

/* Save, open with or without moments; NULL and err when it is refused. */
static struct ckpt_source *reopen(const struct run *r, bool optimizer, struct ckpt_err *err)
{
    const char *path = text_of("%s/run", dir);
    struct ckpt_source *s = NULL;

    last_warnings = 0;
    ckpt_log_hook(count_warnings, NULL);
    memset(err, 0, sizeof *err);
    save(path, r);
    ckpt_open(&s, path, &(struct ckpt_open_opts){.optimizer = optimizer}, err);
    ckpt_log_hook(NULL, NULL);
    scratch_at(dir);
    return s;
}

/* Order and number of shapes say nothing here: the values do. */
TEST(masters_are_told_by_their_values)
{
    static const size_t orders[][2] = {{A, B}, {B, A}, {C, A}, {B, C}};
    struct ckpt_err err;

    for (size_t k = 0; k < 4; k++) {
        struct run r = {.dtype = CKPT_BF16, .masters = true,
                        .entry = {orders[k][0], orders[k][1]}};
        struct ckpt_source *s = reopen(&r, true, &err);

        if (!s)
            fail_msg("%s", err.text);
        for (size_t i = 0; i < 2; i++) {
            check(s, names[r.entry[i]], r.entry[i], 1.0f);
            check(s, text_of("%s|exp_avg", names[r.entry[i]]), r.entry[i], 10.0f);
        }
        assert_int_equal(ckpt_source_count(s), N + 2);
        assert_int_equal(last_warnings, 0);
        ckpt_source_close(s);
    }
}

/* A master that is no parameter's: the 16-bit weights are given, and it is said. */
TEST(strange_masters_leave_the_modules_weights)
{
    struct run r = {.dtype = CKPT_BF16, .masters = true, .entry = {B, A}, .off = 0.5f};
    struct ckpt_err err;
    struct ckpt_source *s = reopen(&r, false, &err);

    if (!s)
        fail_msg("%s", err.text);
    assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "b"))->dtype, CKPT_BF16);
    assert_int_equal(ckpt_source_count(s), N);
    assert_int_equal(last_warnings, 1);
    ckpt_source_close(s);
    assert_null(reopen(&r, true, &err));
    assert_int_equal(err.code, CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "values of entry 0"));
}

/* Without masters two entries of three parameters of one shape stay without names. */
TEST(shapes_alone_are_not_guessed_at)
{
    struct run r = {.dtype = CKPT_F32, .masters = false, .entry = {B, A}};
    struct ckpt_err err;
    struct ckpt_source *s = reopen(&r, false, &err);

    if (!s)
        fail_msg("%s", err.text);
    check(s, "b", B, 1.0f);
    ckpt_source_close(s);
    assert_null(reopen(&r, true, &err));
    assert_int_equal(err.code, CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "2 entries of shape [3] could be any of 3 parameters"));
}
