/*
 * rng - the random states of a training process, decoded; see inspect.h.
 *
 * Python's random, numpy's RandomState and torch's CPU generator are the same Mersenne Twister
 * with three ways of making numbers from its words; torch's CUDA generator is a counter.
 * Sources: CPython 3.13 Modules/_randommodule.c, numpy 2 legacy-distributions, PyTorch 2.x
 * CPUGeneratorImpl.cpp, CUDAGeneratorImpl.cpp, and Salmon et al. 2011 for Philox4x32-10.
 */
#include <stdio.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "formats/hf/trainer_files.h"
#include "libckpt/base/buf.h"
#include "tools/inspect/inspect.h"
#include "trainer/data/mt19937.h"
#include "trainer/philox.h"

#define SHOWN      4            /* words and numbers shown of those that come next */
#define MAX_TWISTS 2000         /* how far a likely seed is followed */
#define SEEDS      2048         /* further seeds that are tried, without drawing far */
#define CUDA_BYTES 16           /* seed, offset */

enum stream { PYTHON, NUMPY, TORCH, STREAMS };

static const char *const stream_name[STREAMS] = {"python", "numpy", "cpu"};

/* As random.random() and RandomState.random_sample(): 53 bits of two words. */
static double next_double(struct mt19937 *g)
{
    uint32_t a = mt19937_u32(g) >> 5, b = mt19937_u32(g) >> 6;

    return (a * 67108864.0 + b) / 9007199254740992.0;
}

static double next_of(enum stream s, struct mt19937 *g)
{
    return s == TORCH ? (double)(mt19937_u32(g) & 0xffffff) / 16777216.0 : next_double(g);
}

/* Words used up; a fresh generator of torch is one past the last. */
static uint32_t position(const struct mt19937 *g)
{
    return g->next < MT19937_N ? g->next : MT19937_N;
}

/* Whether g is the state of a seed after some draws; if so, how many words were drawn. */
static bool comes_of(const struct mt19937 *g, enum stream s, uint64_t seed, int twists,
                     int64_t *drawn)
{
    struct rng_streams fresh;
    struct mt19937 t = {.next = MT19937_N};
    bool found = false;

    hf_rng_seed(&fresh, seed);
    memcpy(t.state, s == PYTHON ? fresh.python : s == NUMPY ? fresh.numpy : fresh.torch,
           sizeof t.state);
    for (int twist = 0; !found && twist <= twists; twist++) {
        found = memcmp(t.state, g->state, sizeof t.state) == 0;
        *drawn = (int64_t)(twist - 1) * MT19937_N + position(g);
        t.next = MT19937_N;
        mt19937_u32(&t);
    }
    return found;
}

/* A number if JSON's readers keep it exact, else text. */
static json_t *exact(uint64_t n)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    return n < 1ull << 53 ? json_integer((json_int_t)n) : json_string(text);
}

static void put_line(struct out *o, const char *file, const char *text)
{
    char line[500];

    snprintf(line, sizeof line, "%s%s%s", file ? file : "", file ? ": " : "", text);
    out_line(o, line);
}

/* One Mersenne Twister.  *torch_seed is torch's own seed, which is tried for the others too. */
static void put_twister(struct out *o, const char *file, json_t *all, enum stream s,
                        const struct mt19937 *g, const uint64_t *torch_seed, bool search)
{
    const uint64_t likely[] = {torch_seed ? *torch_seed : 42, 42, 0, 1, 1234, 1337};
    json_t *j = json_pack("{s:s,s:I}", "algorithm", "MT19937", "position",
                          (json_int_t)position(g));
    json_t *words = json_array(), *next = json_array();
    struct mt19937 copy = *g;
    char text[300];
    int64_t drawn = 0;
    size_t n = (size_t)snprintf(text, sizeof text, "%s: MT19937 at %u of %d", stream_name[s],
                                position(g), MT19937_N);
    bool known = s == TORCH;
    uint64_t seed = g->seed;

    for (size_t i = 0; search && !known && i < sizeof likely / sizeof likely[0]; i++) {
        seed = likely[i];
        known = seed >> 32 == 0 && comes_of(g, s, seed, MAX_TWISTS, &drawn);
    }
    for (uint64_t i = 0; search && !known && i < SEEDS; i++) {
        seed = i;
        known = comes_of(g, s, seed, 1, &drawn);
    }
    if (known && s == TORCH && !search)
        drawn = -1;
    else if (known && s == TORCH && !comes_of(g, s, seed & 0xffffffff, MAX_TWISTS, &drawn))
        drawn = -1;                     /* further than was searched */
    if (known) {
        json_object_set_new(j, "seed", exact(seed));
        n += (size_t)snprintf(text + n, sizeof text - n, ", seed %llu", (unsigned long long)seed);
        if (drawn >= 0) {
            json_object_set_new(j, "drawn", json_integer(drawn));
            n += (size_t)snprintf(text + n, sizeof text - n, ", %lld words drawn",
                                  (long long)drawn);
        }
    }
    n += (size_t)snprintf(text + n, sizeof text - n, ", next");
    for (size_t i = 0; i < SHOWN; i++) {
        double v = next_of(s, &copy);

        json_array_append_new(words, json_integer(g->state[i]));
        json_array_append_new(next, json_real(v));
        n += (size_t)snprintf(text + n, sizeof text - n, " %.6g", v);
    }
    json_object_set_new(j, "first_words", words);
    json_object_set_new(j, "next", next);
    put_line(o, file, text);
    json_object_set_new(all, stream_name[s], j);
}

static const struct value *at(const struct value *v, size_t i)
{
    return (value_is(v, VALUE_TUPLE) || value_is(v, VALUE_LIST)) && i < v->u.seq.n
               ? v->u.seq.item[i] : NULL;
}

/* (3, (624 words, position), gauss) */
static bool take_python(struct mt19937 *g, const struct value *v)
{
    const struct value *words = at(v, 1);
    int64_t n;

    if (!words || !value_is(words, VALUE_TUPLE) || words->u.seq.n != MT_WORDS + 1)
        return false;
    for (size_t i = 0; i <= MT_WORDS; i++) {
        if (!value_as_int(words->u.seq.item[i], &n) || n < 0 || n > UINT32_MAX)
            return false;
        if (i < MT_WORDS)
            g->state[i] = (uint32_t)n;
    }
    g->next = (uint32_t)n;
    return n <= MT_WORDS;
}

/* ('MT19937', array, position, has_gauss, cached) */
static bool take_numpy(struct mt19937 *g, const struct value *v)
{
    const struct value *array = at(v, 1), *bytes = NULL;
    const char *name = value_as_str(at(v, 0));
    struct ckpt_cursor c;
    int64_t n;

    if (value_is(array, VALUE_OBJECT))
        bytes = at(array->u.obj.state, 4);
    if (!name || strcmp(name, "MT19937") != 0 || !value_is(bytes, VALUE_BYTES) ||
        bytes->u.text.n != 4 * MT_WORDS || !value_as_int(at(v, 2), &n) || n < 0 || n > MT_WORDS)
        return false;
    ckpt_cursor_init(&c, bytes->u.text.p, bytes->u.text.n);
    for (size_t i = 0; i < MT_WORDS; i++)
        g->state[i] = ckpt_cursor_u32le(&c);
    g->next = (uint32_t)n;
    return true;
}

/* Copy the n bytes of a state that is a byte vector; false when v is none of that length. */
static int state_bytes(void *dst, size_t n, bool *is, const struct torch_archive *a,
                       const struct value *v, struct ckpt_err *err)
{
    const struct torch_storage *s;

    *is = value_is(v, VALUE_TENSOR) && v->u.tensor->dtype == CKPT_U8 &&
          v->u.tensor->shape.rank == 1 && v->u.tensor->shape.dim[0] == (int64_t)n &&
          v->u.tensor->stride[0] == 1;
    if (!*is)
        return 0;
    torch_archive_storages(a, &s);
    return ckpt_file_read_at(torch_archive_file(a), dst, n,
                             s[v->u.tensor->storage].offset + (uint64_t)v->u.tensor->offset, err);
}

static int put_cuda(struct out *o, const char *file, json_t *list, const struct torch_archive *a,
                    const struct value *v, struct ckpt_err *err)
{
    unsigned char bytes[CUDA_BYTES];
    struct ckpt_cursor c;
    uint64_t seed, offset;
    uint32_t word[4];
    char text[200];
    bool is;
    int rc = state_bytes(bytes, sizeof bytes, &is, a, v, err);

    if (rc || !is)
        return rc;
    ckpt_cursor_init(&c, bytes, sizeof bytes);
    seed = ckpt_cursor_u64le(&c);
    offset = ckpt_cursor_u64le(&c);
    philox(word, seed, 0, offset / 4);
    snprintf(text, sizeof text, "cuda %zu: Philox4x32-10, seed %llu, offset %llu, next %.6g",
             json_array_size(list), (unsigned long long)seed, (unsigned long long)offset,
             word[offset % 4] * 0x1p-32 + 0x1p-33);
    put_line(o, file, text);
    json_array_append_new(list, json_pack("{s:s,s:o,s:o,s:f}", "algorithm", "Philox4x32-10",
                                          "seed", exact(seed), "offset", exact(offset), "next",
                                          word[offset % 4] * 0x1p-32 + 0x1p-33));
    return 0;
}

/* Under HF Trainer's key, or accelerate's. */
static const struct value *part(const struct torch_archive *a, const char *hf, const char *accel)
{
    const struct value *root = torch_archive_root(a), *v = value_get(root, hf);

    return v ? v : value_get(root, accel);
}

static const struct value *python_part(const struct torch_archive *a)
{
    return part(a, "python", "random_state");
}

static const struct value *numpy_part(const struct torch_archive *a)
{
    return part(a, "numpy", "numpy_random_seed");
}

static const struct value *cpu_part(const struct torch_archive *a)
{
    return part(a, "cpu", "torch_manual_seed");
}

bool inspect_is_rng(const struct torch_archive *a)
{
    return python_part(a) && numpy_part(a) && cpu_part(a);
}

int inspect_rng(struct out *o, const char *file, const struct torch_archive *a, bool search,
                json_t **out, struct ckpt_err *err)
{
    const struct value *cuda = part(a, "cuda", "torch_cuda_manual_seed");
    unsigned char bytes[MT19937_TORCH_BYTES];
    struct mt19937 g, torch_g;
    json_t *all = json_object(), *list = json_array();
    bool is = false;
    int rc = state_bytes(bytes, sizeof bytes, &is, a, cpu_part(a), err);

    is = rc == 0 && is && mt19937_from_torch(&torch_g, bytes) == 0;
    if (rc == 0 && take_python(&g, python_part(a)))
        put_twister(o, file, all, PYTHON, &g, is ? &torch_g.seed : NULL,
                    search);
    if (rc == 0 && take_numpy(&g, numpy_part(a)))
        put_twister(o, file, all, NUMPY, &g, is ? &torch_g.seed : NULL,
                    search);
    if (is)
        put_twister(o, file, all, TORCH, &torch_g, NULL, search);
    if (rc == 0 && value_is(cuda, VALUE_TENSOR))
        rc = put_cuda(o, file, list, a, cuda, err);
    for (size_t i = 0; rc == 0 && at(cuda, i); i++)
        rc = put_cuda(o, file, list, a, at(cuda, i), err);
    if (json_array_size(list))
        json_object_set(all, "cuda", list);
    json_decref(list);
    *out = all;
    return rc;
}
