/* zero_side - a model whose states lie somewhere, opened the same each time. */
#ifndef CKPT_TESTS_UNIT_ZERO_SIDE_H
#define CKPT_TESTS_UNIT_ZERO_SIDE_H

#include "tests/unit/golden_model.h"
#include "trainer/comm/comm.h"
#include "trainer/shard/zero.h"

struct side {
    struct device *dev;
    struct comm   *comm;
    struct model  *model;
    struct zero   *zero;
};

/* On a device that is open. */
static inline void side_open(struct side *s, const struct golden *g, struct device *dev,
                             const struct model_opts *model, const struct zero_opts *opts)
{
    struct ckpt_err err = {0};

    s->dev = dev;
    OK(comm_open(&s->comm, 0, &err), err);
    OK(model_new(&s->model, g->arch, model, s->dev, &err), err);
    OK(zero_new(&s->zero, model_params(s->model), opts, s->dev, s->comm, &err), err);
}

/* What is still on its way is waited for first: freeing memory of a GPU does that too. */
static inline void side_close(struct side *s)
{
    struct ckpt_err err = {0};

    OK(device_sync(s->dev, &err), err);
    zero_free(s->zero);
    model_free(s->model);
    comm_close(s->comm);
    device_close(s->dev);
}

/* A copy of all that a side has, byte for byte, in the golden's arena. */
struct saved {
    unsigned char *at;
    size_t         bytes;
};

/* All arrays of states as they are stored, after `at`; NULL: only their size. */
static inline size_t side_states(struct side *s, unsigned char *at)
{
    const struct params *p = model_params(s->model);
    struct ckpt_err err = {0};
    size_t bytes = 0;

    for (size_t i = 0; i < p->n; i++)
        for (int k = 0; k < OPTIM_STATE_ARRAYS; k++) {
            enum optim_state_array of = (enum optim_state_array)k;
            int64_t n = p->item[i].numel;
            size_t size = optim_state_bytes(of, zero_moments(s->zero, i), n);

            if (at && size)
                OK(zero_read_stored(s->zero, of, i, 0, n, at + bytes, &err), err);
            bytes += size;
        }
    return bytes;
}

/* What passes see of weights of 16 bits, likewise. */
static inline size_t side_weights(struct side *s, unsigned char *at)
{
    const struct model_weights *w = zero_weights(s->zero);
    const struct params *p = model_params(s->model);
    struct ckpt_err err = {0};
    size_t bytes = 0;

    for (int u = 0; u < p->n_layers; u++) {
        size_t n = (size_t)p->layer_numel[u] * 2;

        if (at) {
            const void *x = w->acquire(w->ctx, u);

            OK(device_sync(s->dev, &err), err);
            memcpy(at + bytes, x, n);
            w->release(w->ctx, u);
        }
        bytes += n;
    }
    return bytes;
}

static inline struct saved side_save(struct golden *g, struct side *s)
{
    size_t states = side_states(s, NULL), all = states + side_weights(s, NULL);
    struct saved saved = {ckpt_arena_alloc(&g->arena, all, 1), all};

    side_states(s, saved.at);
    side_weights(s, saved.at + states);
    return saved;
}

static inline void assert_same_saved(struct saved found, struct saved wanted, const char *what)
{
    assert_int_equal(found.bytes, wanted.bytes);
    if (memcmp(found.at, wanted.at, wanted.bytes) != 0)
        fail_msg("%s: states differ", what);
}

#endif
