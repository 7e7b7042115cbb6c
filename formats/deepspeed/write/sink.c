/* write/sink - see write/sink.h. */
#include "formats/deepspeed/write/sink.h"

#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/deepspeed.h"
#include "formats/deepspeed/write/out.h"
#include "formats/deepspeed/write/states.h"
#include "formats/hf/side_files.h"
#include "libckpt/convert.h"

#define CHUNK 8192              /* elements converted at once */

struct sink {
    struct ckpt_outdir *dir;
    struct ds_cut       cut;
    char                tag[DS_MAX_TAG];
    const char         *record;         /* see create's opts */
    struct ds_file     *model, *optim;  /* [n_model], [world] */
    int                 n_model;
};

/* -- writing --------------------------------------------------------------------------------- */

/* Elements [start, start + count) that a rank's piece holds go to where it lies. */
static int put_piece(const struct ds_file *file, size_t storage, struct ds_piece p, size_t width,
                     int64_t start, int64_t count, const unsigned char *src, struct ckpt_err *err)
{
    int64_t lo = start > p.start ? start : p.start;
    int64_t hi = start + count < p.start + p.count ? start + count : p.start + p.count;

    return lo >= hi ? 0 : ds_file_put(file, storage, p.at + lo - p.start, hi - lo,
                                      src + (size_t)(lo - start) * width, err);
}

/* Into the flat tensor: which is 0 for weights, then the moments. */
static int put_flat(const struct sink *s, size_t param, size_t which, size_t width, int64_t start,
                    int64_t count, const unsigned char *src, struct ckpt_err *err)
{
    const struct ds_run *run = &s->cut.run;
    size_t storage = ds_optim_storage(run, run->param[param].flat, which);

    for (int r = 0; r < run->world; r++)
        if (put_piece(&s->optim[r], storage, ds_run_piece(run, param, r), width, start, count, src,
                      err))
            return err->code;
    return 0;
}

/* The model's copy of a trained parameter, in the dtype it computes in. */
static int put_rounded(const struct sink *s, size_t i, int64_t start, int64_t count,
                       const unsigned char *src, struct ckpt_err *err)
{
    const struct ds_target *to = &s->cut.target[i];
    enum ckpt_dtype from = s->cut.list->item[i].dtype;
    unsigned char chunk[CHUNK * 8];

    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;

        ckpt_convert(chunk, to->model_dtype, src + (size_t)at * ckpt_dtype_size(from), from,
                     (size_t)n);
        if (ds_file_put(&s->model[0], to->storage, start + at, n, chunk, err))
            return err->code;
    }
    return 0;
}

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    const struct sink *s = self;
    const struct ckpt_tensor *t = &s->cut.list->item[i];
    const struct ds_target *to = &s->cut.target[i];
    size_t width = ckpt_dtype_size(t->dtype);

    if (to->kind == DS_ALIAS)
        return 0;
    if (to->kind == DS_MOMENT)
        return put_flat(s, to->param, to->moment + 1, width, start, count, src, err);
    if (to->kind == DS_TRAINED)
        return put_flat(s, to->param, 0, width, start, count, src, err) || s->cut.run.stage == 3
                   ? err->code : put_rounded(s, i, start, count, src, err);
    for (int r = 0; r < s->n_model; r++) {
        bool parts = to->kind == DS_FROZEN && s->cut.run.stage == 3;
        struct ds_piece p = parts ? ds3_piece(t->numel, 0, r, s->cut.run.world)
                                  : (struct ds_piece){.count = t->numel};

        if (put_piece(&s->model[r], to->storage, p, width, start, count, src, err))
            return err->code;
    }
    return 0;
}

/* -- padding --------------------------------------------------------------------------------- */

/* Stage 3: behind each parameter's piece; 1 and 2: at the end of the rank's part. */
static int pad_optim(const struct sink *s, int rank, struct ckpt_err *err)
{
    const struct ds_run *run = &s->cut.run;
    const struct ds_file *file = &s->optim[rank];

    for (size_t which = 0; which <= run->n_moment; which++) {
        for (size_t k = 0; run->stage < 3 && k < run->n_flat; k++) {
            int64_t used = ds_run_part(run, k) - ds_run_padding(run, k, rank);
            int64_t pad = ds_optim_numel(&s->cut, k, which, rank) - used;

            if (ds_file_zeros(file, ds_optim_storage(run, k, which), used, pad, err))
                return err->code;
        }
        for (size_t i = 0; run->stage == 3 && i < run->n_param; i++) {
            struct ds_piece p = ds_run_piece(run, i, rank);

            if (ds_file_zeros(file, ds_optim_storage(run, run->param[i].flat, which),
                              run->param[i].at + p.count,
                              ds3_part(run->param[i].numel, run->world) - p.count, err))
                return err->code;
        }
    }
    return 0;
}

static int pad_model(const struct sink *s, int rank, struct ckpt_err *err)
{
    for (size_t i = 0; s->cut.run.stage == 3 && i < s->cut.list->n; i++) {
        int64_t numel = s->cut.list->item[i].numel, part = ds3_part(numel, s->cut.run.world);
        int64_t count = ds3_piece(numel, 0, rank, s->cut.run.world).count;

        if (s->cut.target[i].kind == DS_FROZEN &&
            ds_file_zeros(&s->model[rank], s->cut.target[i].storage, count, part - count, err))
            return err->code;
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

    /* The prefix says that bf16 is enabled; DeepSpeed looks for it under that name alone. */
    if (model && s->cut.run.stage < 3)
        snprintf(path, sizeof path, "%s/mp_rank_00_model_states.pt", s->tag);
    else
        snprintf(path, sizeof path, "%s/%szero_pp_rank_%d_mp_rank_00_%s_states.pt", s->tag,
                 !model && s->cut.bf16_names ? "bf16_" : "", rank,
                 model ? "model" : "optim");
    rc = model ? ds_model_states(&root, file, &s->cut, rank, err)
               : ds_optim_states(&root, file, &s->cut, rank, err);
    if (rc == 0)
        rc = ds_file_begin(file, s->dir, path, root, err);
    if (rc == 0)
        rc = model ? pad_model(s, rank, err) : pad_optim(s, rank, err);
    return rc;
}

static void free_sink(struct sink *s)
{
    for (int r = 0; s->model && r < s->n_model; r++)
        ds_file_close(&s->model[r]);
    for (int r = 0; s->optim && r < s->cut.run.world; r++)
        ds_file_close(&s->optim[r]);
    ckpt_free(s->model);
    ckpt_free(s->optim);
    ds_cut_release(&s->cut);
    ckpt_free(s);
}

static int sink_commit(void *self, struct ckpt_err *err)
{
    struct sink *s = self;
    struct ckpt_outdir *dir = s->dir;
    int rc = 0;

    for (int r = 0; rc == 0 && r < s->n_model; r++)
        rc = ds_file_commit(&s->model[r], err);
    for (int r = 0; rc == 0 && r < s->cut.run.world; r++)
        rc = ds_file_commit(&s->optim[r], err);
    if (rc == 0 && s->record)
        rc = ckpt_outdir_put(dir, CKPT_RECORD_FILE, s->record, strlen(s->record), err);
    if (rc == 0)
        rc = ds_write_latest(dir, s->tag, err);
    free_sink(s);
    if (rc == 0)
        return ckpt_outdir_commit(dir, err);
    ckpt_outdir_abort(dir);
    return rc;
}

static void sink_abort(void *self)
{
    struct sink *s = self;
    struct ckpt_outdir *dir = s->dir;

    free_sink(s);
    ckpt_outdir_abort(dir);
}

/* Checksums are made of what passes, so nothing is copied past us: no locate. */
static const struct ckpt_sink_ops sink_ops = {
    .format = "deepspeed", .write = sink_write, .commit = sink_commit, .abort = sink_abort,
};

int ds_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
              const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct sink *s = ckpt_alloc(1, sizeof *s);
    int rc = s ? 0 : ckpt_nomem(err, sizeof *s);

    *out = NULL;
    if (rc)
        return rc;
    if (opts->stream_fd > 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "a DeepSpeed directory is not written to a stream");
    if (rc == 0)
        rc = ds_cut_plan(&s->cut, tensors, opts->origin, opts->zero_stage, opts->world_size, err);
    if (rc == 0) {
        s->record = opts->record;
        ds_cut_tag(s->tag, &s->cut);
    }
    if (rc == 0) {
        int n_model = s->cut.run.stage == 3 ? s->cut.run.world : 1;

        s->model = ckpt_alloc((size_t)n_model, sizeof *s->model);
        s->optim = ckpt_alloc((size_t)s->cut.run.world, sizeof *s->optim);
        s->n_model = n_model;
        rc = s->model && s->optim ? ckpt_outdir_create(&s->dir, path, err)
                                  : ckpt_nomem(err, (size_t)n_model * sizeof *s->model);
    }
    for (int r = 0; rc == 0 && r < s->n_model; r++)
        rc = begin_file(s, &s->model[r], true, r, err);
    for (int r = 0; rc == 0 && r < s->cut.run.world; r++)
        rc = begin_file(s, &s->optim[r], false, r, err);
    for (size_t i = 0; rc == 0 && i < opts->n_extra; i++)
        rc = side_file_put(s->dir, &opts->extra[i], err);
    if (rc == 0 && ds_source_dir(opts->origin))
        rc = side_files_put_run(s->dir, ds_source_dir(opts->origin), s->cut.run.world, err);
    if (rc) {
        sink_abort(s);
        return rc;
    }
    return ckpt_sink_new(out, &sink_ops, s, tensors, false, err);
}
