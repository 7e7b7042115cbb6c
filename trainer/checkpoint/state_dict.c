/* checkpoint/state_dict - see checkpoint/state_dict.h. */
#include "trainer/checkpoint/state_dict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/families/arch.h"
#include "formats/formats.h"
#include "libckpt/mem.h"

struct state_dict {
    struct ckpt_tensors  list;          /* parameters in their order, then the tied name */
    size_t               tied;          /* index of that; SIZE_MAX: none */
    struct ckpt_sink    *sink;
    struct weights_taker taker;
};

int state_dict_name(char name[STATE_DICT_NAME], const struct settings *s,
                    const struct run_state *state, struct ckpt_err *err)
{
    const struct { const char *word; int64_t value; } words[] = {
        {"{start}", s->start_idx}, {"{end}", s->end_idx},
        {"{n}", (int64_t)ceil(state->epoch - 1e-6)}, {"{step}", state->global_step},
    };
    const char *p = s->state_dict_file;
    size_t n = 0;

    while (*p && n < STATE_DICT_NAME) {
        size_t k = 0, end = sizeof words / sizeof words[0];

        while (k < end && strncmp(p, words[k].word, strlen(words[k].word)) != 0)
            k++;
        if (k == end && (*p == '{' || *p == '}'))
            return ckpt_fail(err, CKPT_ECONFIG, "`state_dict_file %s`: it may have {start}, {end}, "
                             "{n} and {step}, not %.16s", s->state_dict_file, p);
        if (k == 1 && s->end_idx == 0)
            return ckpt_fail(err, CKPT_ECONFIG, "`state_dict_file %s`: {end} needs `end_idx`",
                             s->state_dict_file);
        if (k == end)
            name[n++] = *p++;
        else {
            n += (size_t)snprintf(name + n, STATE_DICT_NAME - n, "%lld",
                                  (long long)words[k].value);
            p += strlen(words[k].word);
        }
    }
    if (n >= STATE_DICT_NAME)
        return ckpt_fail(err, CKPT_ECONFIG, "`state_dict_file`: %zu bytes are too many for a name",
                         strlen(s->state_dict_file));
    name[n] = '\0';
    if (!ckpt_file_name_is_clean(name) || *name == '.' ||
        (strlen(name) > 3 ? strcmp(name + strlen(name) - 3, ".pt") != 0 : true))
        return ckpt_fail(err, CKPT_ECONFIG, "`state_dict_file %s`: the name of a file that ends "
                         "with .pt is wanted", s->state_dict_file);
    return 0;
}

/* Parameter i is tensor i; the tied name shares the first one's storage. */
static int take(void *ctx, size_t i, int64_t start, int64_t n, const float *from,
                struct ckpt_err *err)
{
    const struct state_dict *d = ctx;
    int rc = ckpt_sink_write(d->sink, i, start, n, from, err);

    return rc || i > 0 || d->tied == SIZE_MAX ? rc : ckpt_sink_write(d->sink, d->tied, start, n,
                                                                     from, err);
}

static int list_names(struct state_dict *d, const struct params *p, const char *tied,
                      struct ckpt_err *err)
{
    struct ckpt_tensor *alias;
    int rc = weights_list(&d->list, p, CKPT_F32, err);

    if (rc == 0 && tied)
        rc = ckpt_tensors_add(&d->list, &alias, tied, strlen(tied), CKPT_F32, &p->item[0].shape,
                              NULL, 0, false, err);
    d->tied = rc == 0 && tied ? d->list.n - 1 : SIZE_MAX;
    if (d->tied != SIZE_MAX)
        alias->alias_of = 0;
    return rc;
}

int state_dict_begin(struct state_dict **out, char path[4096], struct session *s,
                     const struct checkpoint *c, struct ckpt_err *err)
{
    const struct ckpt_create_opts opts = {.flags = CKPT_REPLACE};
    struct state_dict *d = ckpt_alloc(1, sizeof *d);
    char name[STATE_DICT_NAME];
    int rc;

    *out = d;
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    d->taker = (struct weights_taker){take, d};
    rc = state_dict_name(name, c->settings, c->state, err);
    if (rc == 0)
        rc = list_names(d, zero_flat(s->zero)->params, arch_tied_name(s->arch), err);
    if (rc)
        return rc;
    snprintf(path, 4096, "%s/%s", c->settings->output_dir, name);
    return ckpt_create(&d->sink, "torch", path, &d->list, &opts, err);
}

const struct weights_taker *state_dict_taker(const struct state_dict *d)
{
    return d ? &d->taker : NULL;
}

int state_dict_commit(struct state_dict *d, struct ckpt_err *err)
{
    struct ckpt_sink *sink = d->sink;

    d->sink = NULL;
    return ckpt_sink_commit(sink, err);
}

void state_dict_close(struct state_dict *d)
{
    if (!d)
        return;
    ckpt_sink_abort(d->sink);
    ckpt_tensors_release(&d->list);
    ckpt_free(d);
}
