/* write/sink - see write/sink.h. */
#include "formats/deepspeed/write/sink.h"

#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/deepspeed.h"
#include "formats/deepspeed/write/out.h"
#include "formats/deepspeed/write/states.h"
#include "formats/dir_sink.h"
#include "formats/hf/side_files.h"

struct sink {
    struct dir_sink base;
    struct ds_cut   cut;
    char            tag[DS_MAX_TAG];
    struct ds_file *model, *optim;      /* [n_model], [world] */
    int             n_model;
};

/* -- writing --------------------------------------------------------------------------------- */

/* Write the elements [start, start + count) that a rank's piece covers. */
static int put_piece(const struct ds_file *file, size_t storage, struct ds_piece p, size_t width,
                     int64_t start, int64_t count, const unsigned char *src, struct ckpt_err *err)
{
    int64_t lo = start > p.start ? start : p.start;
    int64_t hi = start + count < p.start + p.count ? start + count : p.start + p.count;

    return lo >= hi ? 0 : ds_file_put(file, storage, p.at + lo - p.start, hi - lo,
                                      src + (size_t)(lo - start) * width, err);
}

/* Write into a flat tensor: `which` is 0 for weights, then the moments. */
static int put_flat(const struct sink *s, size_t param, size_t which, size_t width, int64_t start,
                    int64_t count, const unsigned char *src, struct ckpt_err *err)
{
    const struct ds_run *run = &s->cut.run;
    size_t storage = ds_optim_storage(run, run->param[param].flat, which);
    int rc = 0;

    for (int r = 0; rc == 0 && r < run->world; r++)
        rc = put_piece(&s->optim[r], storage, ds_run_piece(run, param, r), width, start, count,
                       src, err);
    return rc;
}

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    const struct sink *s = self;
    const struct ckpt_tensor *t = &s->cut.list->item[i];
    const struct ds_target *to = &s->cut.target[i];
    size_t width = ckpt_dtype_size(t->dtype);
    int rc = 0;

    if (to->kind == DS_ALIAS)
        return 0;
    if (to->kind == DS_MOMENT)
        return put_flat(s, to->param, to->moment + 1, width, start, count, src, err);
    if (to->kind == DS_TRAINED) {
        rc = put_flat(s, to->param, 0, width, start, count, src, err);
        return rc || s->cut.run.stage == 3
                   ? rc : ds_file_put_rounded(&s->model[0], to->storage, start, count, src,
                                              t->dtype, err);
    }
    for (int r = 0; rc == 0 && r < s->n_model; r++) {
        bool parts = to->kind == DS_FROZEN && s->cut.run.stage == 3;
        struct ds_piece p = parts ? ds3_piece(t->numel, 0, r, s->cut.run.world)
                                  : (struct ds_piece){.count = t->numel};

        rc = put_piece(&s->model[r], to->storage, p, width, start, count, src, err);
    }
    return rc;
}

/* -- padding --------------------------------------------------------------------------------- */

/* Write padding.  Stage 3: after each parameter's piece; 1 and 2: at the end of the rank's part. */
static int pad_optim(const struct sink *s, int rank, struct ckpt_err *err)
{
    const struct ds_run *run = &s->cut.run;
    const struct ds_file *file = &s->optim[rank];
    int rc;

    for (size_t which = 0; which <= run->n_moment; which++) {
        for (size_t k = 0; run->stage < 3 && k < run->n_flat; k++) {
            int64_t used = ds_run_part(run, k) - ds_run_padding(run, k, rank);
            int64_t pad = ds_optim_numel(&s->cut, k, which, rank) - used;

            if (which > 0 && !ds_run_has(run, k, which - 1))
                continue;
            if ((rc = ds_file_zeros(file, ds_optim_storage(run, k, which), used, pad,
                                    err)) != 0)
                return rc;
        }
        for (size_t i = 0; run->stage == 3 && i < run->n_param; i++) {
            const struct ds_run_param *param = &run->param[i];
            struct ds_piece p = ds_run_piece(run, i, rank);
            int64_t pad = ds3_part(param->numel, run->world) - p.count;

            if (which > 0 && !ds_run_has(run, param->flat, which - 1))
                continue;
            rc = ds_file_zeros(file, ds_optim_storage(run, param->flat, which),
                               param->at + p.count, pad, err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int pad_model(const struct sink *s, int rank, struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; s->cut.run.stage == 3 && i < s->cut.list->n; i++) {
        int64_t numel = s->cut.list->item[i].numel, part = ds3_part(numel, s->cut.run.world);
        int64_t count = ds3_piece(numel, 0, rank, s->cut.run.world).count;

        if (s->cut.target[i].kind == DS_FROZEN &&
            (rc = ds_file_zeros(&s->model[rank], s->cut.target[i].storage, count, part - count,
                                err)) != 0)
            return rc;
    }
    return 0;
}

/* -- beginning and end ----------------------------------------------------------------------- */

static int begin_file(struct sink *s, struct ds_file *file, bool model, int rank,
                      struct ckpt_err *err)
{
    char path[2 * DS_MAX_TAG + 64];
    struct value *root;
    int rc;

    /* The prefix means that bf16 is enabled; DeepSpeed then looks only for that name. */
    if (model && s->cut.run.stage < 3)
        snprintf(path, sizeof path, "%s/mp_rank_00_model_states.pt", s->tag);
    else
        snprintf(path, sizeof path, "%s/%szero_pp_rank_%d_mp_rank_00_%s_states.pt", s->tag,
                 !model && s->cut.bf16_names ? "bf16_" : "", rank,
                 model ? "model" : "optim");
    rc = model ? ds_model_states(&root, file, &s->cut, rank, err)
               : ds_optim_states(&root, file, &s->cut, rank, err);
    if (rc == 0)
        rc = ds_file_begin(file, s->base.dir, path, root, err);
    if (rc == 0)
        rc = model ? pad_model(s, rank, err) : pad_optim(s, rank, err);
    return rc;
}

static void sink_release(void *self)
{
    struct sink *s = self;

    for (int r = 0; s->model && r < s->n_model; r++)
        ds_file_close(&s->model[r]);
    for (int r = 0; s->optim && r < s->cut.run.world; r++)
        ds_file_close(&s->optim[r]);
    ckpt_free(s->model);
    ckpt_free(s->optim);
    ds_cut_release(&s->cut);
}

static int sink_finish(void *self, struct ckpt_err *err)
{
    struct sink *s = self;
    int rc = 0;

    for (int r = 0; rc == 0 && r < s->n_model; r++)
        rc = ds_file_commit(&s->model[r], err);
    for (int r = 0; rc == 0 && r < s->cut.run.world; r++)
        rc = ds_file_commit(&s->optim[r], err);
    return rc;
}

static int sink_put_index(void *self, struct ckpt_err *err)
{
    const struct sink *s = self;

    return ds_write_latest(s->base.dir, s->tag, err);
}

static int sink_plan(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct sink *s = self;
    int rc = ds_cut_plan(&s->cut, s->base.list, opts->origin, opts->zero_stage, opts->world_size,
                         err);

    if (rc)
        return rc;
    ds_cut_tag(s->tag, &s->cut);
    s->n_model = s->cut.run.stage == 3 ? s->cut.run.world : 1;
    s->model = ckpt_alloc((size_t)s->n_model, sizeof *s->model);
    s->optim = ckpt_alloc((size_t)s->cut.run.world, sizeof *s->optim);
    return s->model && s->optim ? 0 : ckpt_nomem(err, (size_t)s->n_model * sizeof *s->model);
}

static int sink_begin(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct sink *s = self;
    struct ckpt_dir *from = ds_source_dir(opts->origin);
    int rc = 0;

    for (int r = 0; rc == 0 && r < s->n_model; r++)
        rc = begin_file(s, &s->model[r], true, r, err);
    for (int r = 0; rc == 0 && r < s->cut.run.world; r++)
        rc = begin_file(s, &s->optim[r], false, r, err);
    return rc || !from ? rc : side_files_put_run(s->base.dir, from, s->cut.run.world, err);
}

/* Checksums need the bytes: without locate all of them pass through write. */
static const struct dir_sink_ops dir_ops = {
    .title = "a DeepSpeed directory", .size = sizeof(struct sink), .plan = sink_plan,
    .begin = sink_begin, .write = sink_write, .finish = sink_finish,
    .put_index = sink_put_index, .release = sink_release,
};

int ds_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
              const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    return dir_sink_create(out, &dir_ops, path, tensors, opts, err);
}
