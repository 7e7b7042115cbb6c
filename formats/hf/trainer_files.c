/* trainer_files - see trainer_files.h. */
#include "formats/hf/trainer_files.h"

#include <string.h>

#include "formats/hf/adafactor.h"
#include "formats/hf/optim_file.h"
#include "formats/torch/out.h"
#include "libckpt/base/buf.h"
#include "libckpt/mem.h"

#define TORCH_STATE_BYTES 5056          /* of a CPU generator */

/* Knuth's initialisation, MT19937 reference code 2002/1/26. */
static void init_genrand(uint32_t mt[MT_WORDS], uint32_t s)
{
    mt[0] = s;
    for (uint32_t i = 1; i < MT_WORDS; i++)
        mt[i] = 1812433253u * (mt[i - 1] ^ (mt[i - 1] >> 30)) + i;
}

/* init_by_array of the same reference, called as in CPython's random.seed(int). */
static void init_by_array(uint32_t mt[MT_WORDS], const uint32_t *key, uint32_t n)
{
    uint32_t i = 1, j = 0;

    init_genrand(mt, 19650218u);
    for (uint32_t k = MT_WORDS > n ? MT_WORDS : n; k; k--) {
        mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1664525u)) + key[j] + j;
        if (++i >= MT_WORDS) {
            mt[0] = mt[MT_WORDS - 1];
            i = 1;
        }
        if (++j >= n)
            j = 0;
    }
    for (uint32_t k = MT_WORDS - 1; k; k--) {
        mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i >= MT_WORDS) {
            mt[0] = mt[MT_WORDS - 1];
            i = 1;
        }
    }
    mt[0] = 0x80000000u;
}

void hf_rng_seed(struct rng_streams *s, uint64_t seed)
{
    uint32_t key = (uint32_t)seed;

    memset(s, 0, sizeof *s);
    s->seed = seed;
    init_by_array(s->python, &key, 1);
    init_genrand(s->numpy, key);
    init_genrand(s->torch, key);
}

/* (3, (624 words, position), None) */
static struct value *python_state(struct ckpt_arena *a, const struct rng_streams *s)
{
    struct value *words = value_tuple(a), *state = value_tuple(a);

    for (size_t i = 0; i < MT_WORDS; i++)
        if (value_append(a, words, value_int(a, s->python[i])))
            return NULL;
    if (value_append(a, words, value_int(a, MT_WORDS)) ||
        value_append(a, state, value_int(a, 3)) || value_append(a, state, words) ||
        value_append(a, state, value_none(a)))
        return NULL;
    return state;
}

/* A tuple of n values; NULL when one of them is NULL. */
static struct value *tuple_of(struct ckpt_arena *a, struct value *const *item, size_t n)
{
    struct value *t = value_tuple(a);

    for (size_t i = 0; i < n; i++)
        if (value_append(a, t, item[i]))
            return NULL;
    return t;
}
#define TUPLE(a, ...)                                                                              \
    tuple_of(a, (struct value *[]){__VA_ARGS__},                                                   \
             sizeof((struct value *[]){__VA_ARGS__}) / sizeof(struct value *))

/* numpy's pickle of a uint32 array of MT_WORDS, with bytes as in protocol 2. */
static struct value *uint32_array(struct ckpt_arena *a, const uint32_t *words)
{
    struct value *dtype_state =
        TUPLE(a, value_int(a, 3), value_str(a, "<"), value_none(a), value_none(a), value_none(a),
              value_int(a, -1), value_int(a, -1), value_int(a, 0));
    struct value *dtype =
        value_object(a, "numpy", "dtype",
                     TUPLE(a, value_str(a, "u4"), value_bool(a, false), value_bool(a, true)),
                     dtype_state, false);
    struct value *shape = TUPLE(a, value_int(a, MT_WORDS));
    struct value *state = TUPLE(a, value_int(a, 1), shape, dtype, value_bool(a, false),
                                value_bytes(a, words, MT_WORDS * sizeof *words));

    return value_object(a, "numpy._core.multiarray", "_reconstruct",
                        TUPLE(a, value_global(a, "numpy", "ndarray"), TUPLE(a, value_int(a, 0)),
                              value_bytes(a, "b", 1)),
                        state, false);
}

/* The bytes of torch's CPU generator: CPUGeneratorImplState after manual_seed. */
static void torch_state(unsigned char out[TORCH_STATE_BYTES], const struct rng_streams *s)
{
    struct ckpt_buf b;

    memset(out, 0, TORCH_STATE_BYTES);
    ckpt_buf_init(&b, TORCH_STATE_BYTES);
    ckpt_buf_put_u64le(&b, s->seed);
    ckpt_buf_put_u32le(&b, 1);          /* left: the first draw generates new words */
    ckpt_buf_put_u32le(&b, 1);          /* seeded */
    ckpt_buf_put_u64le(&b, 0);          /* next */
    for (size_t i = 0; i < MT_WORDS; i++)
        ckpt_buf_put_u64le(&b, s->torch[i]);
    if (ckpt_buf_ok(&b))
        memcpy(out, b.data, b.len);
    ckpt_buf_release(&b);
}

int hf_rng_write(struct ckpt_out *out, const struct rng_streams *s, struct ckpt_err *err)
{
    unsigned char cpu[TORCH_STATE_BYTES];
    const void *data[1] = {cpu};
    struct torch_storage storage = {.dtype = CKPT_U8, .numel = TORCH_STATE_BYTES};
    struct value_tensor t = {.dtype = CKPT_U8, .shape = ckpt_shape_1d(TORCH_STATE_BYTES),
                             .stride = {1}};
    struct ckpt_arena a = {0};
    struct value *root = value_dict(&a, false);
    struct value *numpy = TUPLE(&a, value_str(&a, "MT19937"), uint32_array(&a, s->numpy),
                                value_int(&a, MT_WORDS), value_int(&a, 0), value_float(&a, 0.0));
    int rc;

    torch_state(cpu, s);
    if (value_set_str(&a, root, "python", python_state(&a, s)) ||
        value_set_str(&a, root, "numpy", numpy) ||
        value_set_str(&a, root, "cpu", value_tensor_new(&a, &t))) {
        ckpt_out_abort(out);
        rc = ckpt_nomem(err, (size_t)a.used);
    } else {
        rc = torch_write(out, "archive", root, &storage, data, 1, err);
    }
    ckpt_arena_release(&a);
    return rc;
}

int hf_scheduler_write(struct ckpt_out *out, const struct scheduler_state *s,
                         struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct value *root = value_dict(&a, false), *base = value_list(&a), *last = value_list(&a);
    struct value *lambdas = value_list(&a);
    int rc = 0;

    for (size_t i = 0; i < s->n_group; i++)
        rc |= value_append(&a, base, value_float(&a, s->base_lr[i])) |
              value_append(&a, last, value_float(&a, s->last_lr[i])) |
              value_append(&a, lambdas, value_dict(&a, false));
    rc |= value_set_str(&a, root, "base_lrs", base) |
          value_set_str(&a, root, "last_epoch", value_int(&a, s->last_epoch)) |
          value_set_str(&a, root, "_step_count", value_int(&a, s->last_epoch + 1)) |
          value_set_str(&a, root, "_is_initial", value_bool(&a, false)) |
          value_set_str(&a, root, "_get_lr_called_within_step", value_bool(&a, false)) |
          value_set_str(&a, root, "_last_lr", last) |
          value_set_str(&a, root, "lr_lambdas", lambdas);
    if (rc) {
        ckpt_out_abort(out);
        rc = ckpt_nomem(err, (size_t)a.used);
    } else {
        rc = torch_write(out, "archive", root, NULL, NULL, 0, err);
    }
    ckpt_arena_release(&a);
    return rc;
}

static struct value *sgd_group(struct ckpt_arena *a, const struct adamw_group *g)
{
    struct value *d = value_dict(a, false);

    return value_set_str(a, d, "lr", value_float(a, g->lr)) |
                   value_set_str(a, d, "momentum", value_float(a, g->momentum)) |
                   value_set_str(a, d, "dampening", value_float(a, g->dampening)) |
                   value_set_str(a, d, "weight_decay", value_float(a, g->weight_decay)) |
                   value_set_str(a, d, "nesterov", value_bool(a, g->nesterov)) |
                   value_set_str(a, d, "maximize", value_bool(a, false)) |
                   value_set_str(a, d, "foreach", value_none(a)) |
                   value_set_str(a, d, "differentiable", value_bool(a, false)) |
                   value_set_str(a, d, "fused", value_none(a)) |
                   value_set_str(a, d, "initial_lr", value_float(a, g->initial_lr))
               ? NULL : d;
}

static struct value *muon_group(struct ckpt_arena *a, const struct adamw_group *g)
{
    const struct muon_group *o = g->muon;
    struct value *d = value_dict(a, false);

    return value_set_str(a, d, "lr", value_float(a, g->lr)) |
                   value_set_str(a, d, "weight_decay", value_float(a, g->weight_decay)) |
                   value_set_str(a, d, "momentum", value_float(a, o->momentum)) |
                   value_set_str(a, d, "nesterov", value_bool(a, o->nesterov)) |
                   value_set_str(a, d, "ns_coefficients",
                                 TUPLE(a, value_float(a, o->a), value_float(a, o->b),
                                       value_float(a, o->c))) |
                   value_set_str(a, d, "eps", value_float(a, o->eps)) |
                   value_set_str(a, d, "ns_steps", value_int(a, o->ns_steps)) |
                   value_set_str(a, d, "adjust_lr_fn", value_str(a, o->adjust_lr_fn)) |
                   value_set_str(a, d, "initial_lr", value_float(a, g->initial_lr))
               ? NULL : d;
}

/* The hyper-parameters of one group in torch 2.15's order. */
static struct value *group_value(struct ckpt_arena *a, const struct adamw_group *g)
{
    static const struct { const char *key; int what; } flags[] = {
        {"amsgrad", 0}, {"maximize", 0}, {"foreach", -1}, {"capturable", 0},
        {"differentiable", 0}, {"fused", -1}, {"decoupled_weight_decay", 1},
    };
    struct value *d = value_dict(a, false);
    int rc = value_set_str(a, d, "lr", value_float(a, g->lr)) |
             value_set_str(a, d, "betas", TUPLE(a, value_float(a, g->beta1),
                                                value_float(a, g->beta2))) |
             value_set_str(a, d, "eps", value_float(a, g->eps)) |
             value_set_str(a, d, "weight_decay", value_float(a, g->weight_decay));

    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        rc |= value_set_str(a, d, flags[i].key,
                            flags[i].what < 0 ? value_none(a) : value_bool(a, flags[i].what));
    rc |= value_set_str(a, d, "initial_lr", value_float(a, g->initial_lr));
    return rc ? NULL : d;
}

struct value *hf_adamw_groups(struct ckpt_arena *a, const struct adamw_group *group,
                                 size_t n_group, const int64_t *first, const int64_t *count)
{
    struct value *groups = value_list(a);

    for (size_t g = 0; g < n_group; g++) {
        struct value *d = group[g].adafactor ? hf_adafactor_group(a, &group[g])
                          : group[g].sgd     ? sgd_group(a, &group[g])
                          : group[g].muon    ? muon_group(a, &group[g])
                                             : group_value(a, &group[g]);
        struct value *params = value_list(a);

        for (int64_t i = 0; i < count[g]; i++)
            if (value_append(a, params, value_int(a, first[g] + i)))
                return NULL;
        if (value_set_str(a, d, "params", params) || value_append(a, groups, d))
            return NULL;
    }
    return groups;
}

static enum ckpt_dtype moment_type(const struct adamw_param *p)
{
    return p->kind == ADAMW_BF16 ? CKPT_BF16 : CKPT_F32;
}

bool hf_adamw_keeps(const struct adamw_group *g, enum adamw_array of)
{
    return of == ADAMW_EXP_AVG      ? !g->sgd || g->momentum > 0
           : of == ADAMW_EXP_AVG_SQ ? !g->sgd && !g->muon : true;
}

/* Elements of storage k of a parameter: of its step, of its moments. */
static int64_t stored(const struct adamw_group *g, size_t k, int64_t numel)
{
    if (k == 0)
        return !g->sgd && !g->muon;
    return hf_adamw_keeps(g, k == 1 ? ADAMW_EXP_AVG : ADAMW_EXP_AVG_SQ) ? numel : 0;
}

/* The parameters of torch's optimizers, and what is known of their arrays. */
struct torch_states {
    const struct adamw_param  *param;
    const struct adamw_group  *group;
    const struct adamw_reader *reader;
    float                      step;
};

enum { PER_PARAM = 3 };                 /* storages: step, exp_avg or momentum_buffer, exp_avg_sq */

static int group_of(const void *ctx, size_t i)
{
    return ((const struct torch_states *)ctx)->param[i].group;
}

/* state[i] of one parameter; SGD has none without a momentum. */
static int add_state(const void *ctx, struct ckpt_arena *a, struct value *state, size_t i,
                     struct torch_storage *storage)
{
    const struct torch_states *s = ctx;
    const struct adamw_param *p = &s->param[i];
    const struct adamw_group *g = &s->group[p->group];
    struct ckpt_shape scalar = {.rank = 0};
    struct value *d = value_dict(a, false);
    enum ckpt_dtype type = moment_type(p);
    bool counts = !g->sgd && !g->muon;
    const char *first = counts ? "exp_avg" : "momentum_buffer";
    size_t at = PER_PARAM * i;
    int64_t numel = 0;
    int rc = !ckpt_shape_numel(&numel, &p->shape);

    for (size_t k = 0; k < PER_PARAM; k++)
        storage[k] = (struct torch_storage){.dtype = k ? type : CKPT_F32,
                                            .numel = stored(g, k, numel)};
    if (counts)
        rc |= value_set_str(a, d, "step", value_tensor_whole(a, CKPT_F32, &scalar, at));
    if (storage[1].numel)
        rc |= value_set_str(a, d, first, value_tensor_whole(a, type, &p->shape, at + 1));
    if (storage[2].numel)
        rc |= value_set_str(a, d, "exp_avg_sq", value_tensor_whole(a, type, &p->shape, at + 2));
    return rc || (hf_adamw_keeps(g, ADAMW_EXP_AVG) &&
                  value_set(a, state, value_int(a, (int64_t)i), d));
}

static int put_state(const void *ctx, struct torch_writer *w, size_t i, float *piece,
                     struct ckpt_err *err)
{
    const struct torch_states *s = ctx;
    const struct adamw_param *p = &s->param[i];
    const struct adamw_group *g = &s->group[p->group];
    const struct hf_optim_from from[] = {{p->exp_avg, s->reader, i, ADAMW_EXP_AVG},
                                         {p->exp_avg_sq, s->reader, i, ADAMW_EXP_AVG_SQ}};
    int64_t numel = 0;
    int rc = 0;

    ckpt_shape_numel(&numel, &p->shape);
    if (stored(g, 0, numel))
        rc = torch_writer_put(w, PER_PARAM * i, 0, 1, &s->step, err);
    for (size_t k = 0; rc == 0 && k < 2; k++)
        if (stored(g, k + 1, numel))
            rc = hf_optim_file_put(w, PER_PARAM * i + k + 1, numel, &from[k], piece, err);
    return rc;
}

int hf_optimizer_write(struct ckpt_out *out, const struct adamw_param *param, size_t n_param,
                         const struct adamw_group *group, size_t n_group, int64_t step,
                         const struct adamw_reader *reader, struct ckpt_err *err)
{
    const struct torch_states s = {param, group, reader, (float)step};
    const struct hf_optim_file f = {.group = group, .n_group = n_group, .n_param = n_param,
                                    .storages = PER_PARAM, .ctx = &s, .group_of = group_of,
                                    .add = add_state, .put = put_state};

    return hf_optim_file_write(out, &f, err);
}
