/*
 * trainer_files: what is written is what CPython, numpy, torch and transformers keep.  The
 * checksums of generator states are those of CPython 3.11, numpy 2.4 and torch 2.15 after their
 * own seeding; the files are compared with ones that HF Trainer wrote.
 */
#include "tests/unit/unit.h"

#include <zlib.h>

#include "formats/torch/torch.h"
#include "formats/hf/trainer_files.h"

#define GOLDEN "tests/golden/hf-trainer/plain_w1/run/checkpoint-2/"

static uint32_t crc_of(const void *p, size_t n) { return (uint32_t)crc32(0, p, (uInt)n); }

TEST(seeding)
{
    static const struct { uint64_t seed; uint32_t python, numpy, cpu; } known[] = {
        {0, 0xfa95054f, 0xe61a2824, 0x6d2b5ed2},
        {42, 0x61fc6f63, 0xe789079f, 0xee508d56},
        {4294967295, 0x6e0d4d9b, 0xc6bc9a40, 0xeff4eeb2},
    };
    struct rng_streams s;

    for (size_t i = 0; i < 3; i++) {
        hf_rng_seed(&s, known[i].seed);
        assert_int_equal(crc_of(s.python, sizeof s.python), known[i].python);
        assert_int_equal(crc_of(s.numpy, sizeof s.numpy), known[i].numpy);
        assert_memory_equal(s.torch, s.numpy, sizeof s.torch);
        assert_true(s.seed == known[i].seed);
    }
}

static struct torch_archive *reopen(const char *path)
{
    struct ckpt_err err = {0};
    struct torch_archive *a;
    struct ckpt_file *f;

    assert_int_equal(ckpt_file_open(&f, path, 0, &err), 0);
    if (torch_archive_open(&a, f, &err))
        fail_msg("%s", err.text);
    assert_int_equal(torch_archive_verify(a, &err), 0);
    return a;
}

static struct ckpt_out *new_file(char path[300], const char *name)
{
    struct ckpt_err err = {0};
    struct ckpt_out *out;

    snprintf(path, 300, "%s/x.pt", scratch(name));
    assert_int_equal(ckpt_out_create(&out, path, 0, &err), 0);
    return out;
}

static void remove_file(char *path)
{
    *strrchr(path, '/') = '\0';
    scratch_remove(path);
}

/* The two files hold the same values; tensors by dtype and shape. */
static void assert_same_values(const struct torch_archive *a, const struct torch_archive *b)
{
    json_t *x = value_to_json(torch_archive_root(a), 200000);
    json_t *y = value_to_json(torch_archive_root(b), 200000);
    char *p = json_dumps(x, JSON_SORT_KEYS), *q = json_dumps(y, JSON_SORT_KEYS);

    assert_non_null(p);
    assert_non_null(q);
    assert_string_equal(p, q);
    free(p);
    free(q);
    json_decref(x);
    json_decref(y);
}

/* The bytes of a tensor's storage, from its first element on. */
static void *bytes_of(const struct torch_archive *a, const struct value *v, size_t n)
{
    const struct torch_storage *s;
    struct ckpt_err err = {0};
    void *bytes = malloc(n);

    assert_true(bytes && value_is(v, VALUE_TENSOR));
    torch_archive_storages(a, &s);
    assert_int_equal(v->u.tensor->offset, 0);
    assert_int_equal(ckpt_file_read_at(torch_archive_file(a), bytes, n,
                                       s[v->u.tensor->storage].offset, &err),
                     0);
    return bytes;
}

TEST(rng_file)
{
    struct ckpt_err err = {0};
    struct torch_archive *a;
    struct rng_streams s;
    const struct value *root, *v;
    char path[300];
    void *cpu;
    int64_t n;

    hf_rng_seed(&s, 42);
    assert_int_equal(hf_rng_write(new_file(path, "rng"), &s, &err), 0);
    a = reopen(path);
    root = torch_archive_root(a);
    v = value_get(root, "python");
    assert_true(value_is(v, VALUE_TUPLE) && v->u.seq.n == 3);
    assert_true(value_as_int(v->u.seq.item[0], &n) && n == 3);
    assert_true(value_is(v->u.seq.item[2], VALUE_NONE));
    v = v->u.seq.item[1];
    assert_true(value_is(v, VALUE_TUPLE) && v->u.seq.n == MT_WORDS + 1);
    for (size_t i = 0; i < MT_WORDS; i++)
        assert_true(value_as_int(v->u.seq.item[i], &n) && n == s.python[i]);
    assert_true(value_as_int(v->u.seq.item[MT_WORDS], &n) && n == MT_WORDS);
    v = value_get(root, "numpy");
    assert_true(value_is(v, VALUE_TUPLE) && v->u.seq.n == 5);
    assert_string_equal(value_as_str(v->u.seq.item[0]), "MT19937");
    v = v->u.seq.item[1]->u.obj.state->u.seq.item[4];
    assert_true(value_is(v, VALUE_BYTES) && v->u.text.n == sizeof s.numpy);
    assert_memory_equal(v->u.text.p, s.numpy, sizeof s.numpy);
    cpu = bytes_of(a, value_get(root, "cpu"), 5056);
    assert_int_equal(crc_of(cpu, 5056), 0xee508d56);
    free(cpu);
    torch_archive_close(a);
    remove_file(path);
}

/* The shape of it is that of a file of HF Trainer, to the last global; numbers are the run's. */
TEST(rng_file_as_trainers)
{
    struct torch_archive *a, *b;
    struct ckpt_err err = {0};
    struct rng_streams s;
    struct value *x, *y;
    char path[300];

    hf_rng_seed(&s, 1);
    assert_int_equal(hf_rng_write(new_file(path, "rng_as"), &s, &err), 0);
    a = reopen(path);
    b = reopen(GOLDEN "rng_state.pth");
    x = value_get(torch_archive_root(a), "numpy")->u.seq.item[1];
    y = value_get(torch_archive_root(b), "numpy")->u.seq.item[1];
    assert_string_equal(x->u.obj.module, y->u.obj.module);
    assert_string_equal(x->u.obj.name, y->u.obj.name);
    x->u.obj.state->u.seq.item[4] = y->u.obj.state->u.seq.item[4];
    for (size_t i = 2; i < 5; i++)              /* position; the normal kept of a pair */
        value_get(torch_archive_root(a), "numpy")->u.seq.item[i]->u =
            value_get(torch_archive_root(b), "numpy")->u.seq.item[i]->u;
    x = value_get(torch_archive_root(a), "python")->u.seq.item[1];
    y = value_get(torch_archive_root(b), "python")->u.seq.item[1];
    assert_int_equal(x->u.seq.n, y->u.seq.n);
    *x = *y;
    *value_get(torch_archive_root(a), "python")->u.seq.item[2] =
        *value_get(torch_archive_root(b), "python")->u.seq.item[2];
    assert_same_values(a, b);
    torch_archive_close(a);
    torch_archive_close(b);
    remove_file(path);
}

TEST(scheduler_file)
{
    static const double base[] = {0.003, 0.003}, last[] = {0.0022500000000000003,
                                                           0.0022500000000000003};
    const struct scheduler_state s = {.base_lr = base, .last_lr = last, .n_group = 2,
                                      .last_epoch = 2};
    struct torch_archive *a, *b;
    struct ckpt_err err = {0};
    char path[300];

    assert_int_equal(hf_scheduler_write(new_file(path, "sched"), &s, &err), 0);
    a = reopen(path);
    b = reopen(GOLDEN "scheduler.pt");
    assert_same_values(a, b);
    torch_archive_close(a);
    torch_archive_close(b);
    remove_file(path);
}

#define PARAMS 20               /* of the golden: 15 that decay, 5 that do not */

static const struct adamw_group groups[] = {
    {.lr = 0.0022500000000000003, .initial_lr = 0.003, .beta1 = 0.9, .beta2 = 0.999,
     .eps = 1e-8, .weight_decay = 0},
    {.lr = 0.0022500000000000003, .initial_lr = 0.003, .beta1 = 0.9, .beta2 = 0.999,
     .eps = 1e-8, .weight_decay = 0},
};

static const struct value *moment(const struct torch_archive *a, size_t i, const char *which)
{
    const struct value *all = value_get(torch_archive_root(a), "state");

    assert_true(i < all->u.dict.n);
    return value_get(all->u.dict.val[i], which);
}

/* The moments of HF Trainer's file written anew are that file again. */
TEST(optimizer_file)
{
    static const char *const which[] = {"exp_avg", "exp_avg_sq"};
    struct torch_archive *a, *b = reopen(GOLDEN "optimizer.pt");
    struct adamw_param p[PARAMS] = {0};
    struct adamw_group g[2] = {groups[0], groups[1]};
    struct ckpt_err err = {0};
    void *data[PARAMS][2], *step;
    size_t bytes[PARAMS];
    char path[300];

    assert_true(value_as_float(
        value_get(value_get(torch_archive_root(b), "param_groups")->u.seq.item[0],
                  "weight_decay"), &g[0].weight_decay));
    for (size_t i = 0; i < PARAMS; i++) {
        int64_t numel;

        p[i].shape = moment(b, i, "exp_avg")->u.tensor->shape;
        assert_true(ckpt_shape_numel(&numel, &p[i].shape));
        bytes[i] = (size_t)numel * 4;
        p[i].group = i >= 15;
        for (size_t k = 0; k < 2; k++)
            data[i][k] = bytes_of(b, moment(b, i, which[k]), bytes[i]);
        p[i].exp_avg = data[i][0];
        p[i].exp_avg_sq = data[i][1];
    }
    assert_int_equal(hf_optimizer_write(new_file(path, "optim"), p, PARAMS, g, 2, 2, NULL, &err), 0);
    a = reopen(path);
    for (size_t i = 0; i < PARAMS; i++) {
        for (size_t k = 0; k < 2; k++) {
            void *got = bytes_of(a, moment(a, i, which[k]), bytes[i]);

            assert_memory_equal(got, data[i][k], bytes[i]);
            free(got);
            free(data[i][k]);
        }
        step = bytes_of(a, moment(a, i, "step"), 4);
        assert_true(*(float *)step == 2);
        free(step);
    }
    assert_same_values(a, b);
    torch_archive_close(a);
    torch_archive_close(b);
    remove_file(path);
}

/* Nothing stands after a call that refuses. */
TEST(optimizer_refused)
{
    float x[1] = {0};
    struct adamw_param p = {.shape = ckpt_shape_1d(1), .group = 2, .exp_avg = x,
                            .exp_avg_sq = x};
    struct ckpt_err err = {0};
    char path[300];

    assert_int_not_equal(hf_optimizer_write(new_file(path, "optim_bad"), &p, 1, groups, 2, 1,
                                              NULL, &err), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(entries(path), 0);
}
