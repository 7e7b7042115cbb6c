/* hf/optim_file - see hf/optim_file.h. */
#include "formats/hf/optim_file.h"

#include <assert.h>

#include "libckpt/mem.h"

int hf_optim_file_put(struct torch_writer *w, size_t storage, int64_t n,
                      const struct hf_optim_from *from, float *piece, struct ckpt_err *err)
{
    int rc = 0;

    assert(from->whole || from->reader);
    for (int64_t at = 0; rc == 0 && at < n; at += ADAMW_PIECE) {
        int64_t some = n - at < ADAMW_PIECE ? n - at : ADAMW_PIECE;

        if (!from->whole)
            rc = from->reader->read(from->reader->ctx, from->i, from->of, at, some, piece, err);
        if (rc == 0)
            rc = torch_writer_put(w, storage, at, some, from->whole ? from->whole + at : piece,
                                  err);
    }
    return rc;
}

/* The entries of all parameters, and which of them are whose; nonzero: no memory. */
static int add_states(struct ckpt_arena *a, struct value *state, const struct hf_optim_file *f,
                      struct torch_storage *storage, int64_t *first, int64_t *count)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < f->n_param; i++) {
        int g = f->group_of(f->ctx, i);

        rc = g < 0 || (size_t)g >= f->n_group ||
             f->add(f->ctx, a, state, i, storage + f->storages * i);
        if (!rc && count[g]++ == 0)
            first[g] = (int64_t)i;
    }
    return rc;
}

static int put_states(struct torch_writer *w, const struct hf_optim_file *f, struct ckpt_err *err)
{
    float *piece = ckpt_alloc_buffer((size_t)ADAMW_PIECE * sizeof *piece);
    int rc = piece ? 0 : ckpt_nomem(err, (size_t)ADAMW_PIECE * sizeof *piece);

    for (size_t i = 0; rc == 0 && i < f->n_param; i++)
        rc = f->put(f->ctx, w, i, piece, err);
    ckpt_free(piece);
    return rc;
}

int hf_optim_file_write(struct ckpt_out *out, const struct hf_optim_file *f, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    size_t n = f->storages * f->n_param;
    struct torch_storage *storage = ckpt_arena_alloc(&a, n + 1, sizeof *storage);
    int64_t *first = ckpt_arena_alloc(&a, 2 * f->n_group, sizeof *first);
    struct value *root = value_dict(&a, false), *state = value_dict(&a, false);
    struct torch_writer *w = NULL;
    int rc = !storage || !first || add_states(&a, state, f, storage, first, first + f->n_group);

    if (rc || value_set_str(&a, root, "state", state) ||
        value_set_str(&a, root, "param_groups",
                      hf_adamw_groups(&a, f->group, f->n_group, first, first + f->n_group))) {
        ckpt_out_abort(out);
        rc = ckpt_nomem(err, (size_t)a.used);
    } else {
        rc = torch_writer_new(&w, out, "archive", root, storage, n, NULL, err);
    }
    if (rc == 0)
        rc = put_states(w, f, err);
    if (w && rc == 0)
        rc = torch_writer_commit(w, err);
    else
        torch_writer_abort(w);
    ckpt_arena_release(&a);
    return rc;
}
