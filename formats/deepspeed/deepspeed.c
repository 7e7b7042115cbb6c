/*
 * deepspeed - see deepspeed.h.  Source: DeepSpeed 0.19.8 utils/zero_to_fp32.py and the classes
 * that write the files; where that converter drops or refuses something (stage 0, frozen weights
 * of stage 1, BF16_Optimizer), this reader does not.
 */
#include "formats/deepspeed/deepspeed.h"

#include <string.h>

#include "formats/place.h"
#include "formats/deepspeed/experts.h"
#include "formats/deepspeed/facts.h"
#include "formats/deepspeed/files.h"
#include "formats/deepspeed/pipe.h"
#include "formats/deepspeed/proof.h"
#include "formats/deepspeed/flat.h"
#include "formats/deepspeed/write/sink.h"
#include "formats/deepspeed/stage0.h"
#include "formats/deepspeed/module.h"
#include "formats/hf/side_files.h"
#include "formats/deepspeed/universal.h"
#include "formats/deepspeed/write/universal.h"

struct ds {
    struct ckpt_dir  *dir;
    struct ds_files  *files;            /* [n] pipeline stages; 1 without a pipeline */
    size_t            n;
    struct side_files side;
};

static void close_ds(void *self)
{
    struct ds *d = self;

    ds_files_close(d->files, d->n);
    side_files_close(&d->side);
    ckpt_dir_close(d->dir);
    ckpt_free(d);
}

static const struct ckpt_source_ops ops = {.format = "deepspeed", .close = close_ds};

const struct ds_files *ds_source_files(const struct ckpt_source *src)
{
    const struct ds *d = src ? ckpt_source_self(src, &ops) : NULL;

    return d ? d->files : NULL;
}

struct ckpt_dir *ds_source_dir(const struct ckpt_source *src)
{
    const struct ds *d = src ? ckpt_source_self(src, &ops) : NULL;

    return d && *d->files->tag ? d->dir : NULL;
}

/* List the optimizer's own weights. */
static int list_trained(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err)
{
    return f->universal ? universal_list(list, f, NULL, err)
             : f->stage == 0 ? ds_master_list(list, f, err) : ds_flat_list(list, f, NULL, err);
}

/* List trained, frozen and remaining tensors of the model, and tied names; f[n] are the stages
 * of a pipeline. */
static int list_weights(struct ckpt_tensors *list, const struct ds_files *f, size_t n,
                        struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = list_trained(list, &f[i], err);
    if (rc == 0 && f->universal && f->universal->sliced) {
        universal_tell_rest(list, f);
        return 0;
    }
    if (rc || f->layers)
        return rc ? rc : ds_layers_list(list, f, n, err);
    if ((rc = ds_prove_masters(list, f, err)) != 0 ||
        (f->stage == 3 && (rc = ds_frozen_list(list, f, err)) != 0) ||
        (rc = ds_module_list(list, f, err)) != 0 || (rc = ds_expert_list(list, f, err)) != 0)
        return rc;
    return ds_alias_list(list, f, err);
}

enum { MOMENTS = 16 };                  /* names of an optimizer's tensors */

/* List the tensors that the optimizer keeps for group g, but for those named before. */
static int list_group(struct ckpt_tensors *list, const struct ds_files *f, size_t g,
                      const char *seen[MOMENTS], size_t *n_seen, struct ckpt_err *err)
{
    const char *name;
    struct value *v;
    int rc = 0;

    for (size_t i = 0; rc == 0 && value_next(ds_state(f, 0, g), &i, &name, &v);) {
        size_t k = 0;

        if (!value_is(v, VALUE_TENSOR) || v->u.tensor->shape.rank == 0)
            continue;                   /* step is not a tensor, or one of rank 0 */
        while (k < *n_seen && strcmp(seen[k], name) != 0)
            k++;
        if (k < *n_seen)
            continue;
        if (*n_seen == MOMENTS)
            return ckpt_fail(err, CKPT_EFORMAT, "optimizer: keeps more than %d tensors a parameter",
                             MOMENTS);
        seen[(*n_seen)++] = name;
        rc = f->stage == 0 ? ds_moment_list(list, f, name, err) : ds_flat_list(list, f, name, err);
    }
    return rc;
}

/* List every tensor that the optimizer keeps per parameter, under any name.  Without ZeRO all
 * states are one parameter's; groups that Muon steps have others than AdamW's. */
static int list_moments(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err)
{
    size_t groups = f->stage == 0 ? 1 : ds_shape_groups(f, 0), n_seen = 0;
    const char *seen[MOMENTS];
    int rc = 0;

    for (size_t i = 0; f->universal && i < f->universal->n_state; i++)
        if ((rc = universal_list(list, f, f->universal->state[i], err)) != 0)
            return rc;
    if (f->universal)
        return 0;
    for (size_t g = 0; rc == 0 && g < groups; g++)
        rc = list_group(list, f, g, seen, &n_seen, err);
    return rc;
}

static bool is_tag_folder(const struct ckpt_place *p)
{
    return place_has(p, "mp_rank_00_model_states.pt") ||
           place_has_like(p, "zero_pp_rank_0_mp_rank_00_model_states.pt") ||
           place_has_like(p, "*zero_pp_rank_*_mp_rank_00*optim_states.pt");
}

static int bid(const struct ckpt_place *p)
{
    bool folder = false;

    if (!p->dir)
        return 0;
    if (is_tag_folder(p))
        return 90;
    for (size_t i = 0; i < p->n_entry; i++)
        folder = folder || p->entry[i].is_dir;
    return folder && (place_has(p, "latest") || place_has(p, "latest_universal")) ? 80 : 0;
}

/* Choose the tag; "" when place is a tag's folder itself. */
static int choose_tag(char tag[DS_MAX_TAG], const struct ckpt_place *place, const char *wanted,
                      struct ckpt_err *err)
{
    tag[0] = '\0';
    if (!is_tag_folder(place))
        return ds_find_tag(tag, place->dir, wanted, err);
    if (wanted)
        return ckpt_fail(err, CKPT_EUSAGE, "is the folder of one tag: --tag %s picks nothing here",
                         wanted);
    return 0;
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    char tag[DS_MAX_TAG];
    struct ds *d;
    int rc;

    *out = NULL;
    if (!place->dir)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: a DeepSpeed directory wanted, is a file",
                         place->path);
    d = ckpt_alloc(1, sizeof *d);
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    d->dir = place->dir;
    place->took = true;
    rc = choose_tag(tag, place, opts->tag, err);
    if (rc == 0)
        rc = ds_files_open(&d->files, &d->n, d->dir, tag, err);
    if (rc == 0)
        rc = list_weights(&list, d->files, d->n, err);
    for (size_t i = 0; rc == 0 && opts->optimizer && i < d->n; i++)
        rc = list_moments(&list, &d->files[i], err);
    if (rc == 0)
        rc = side_files_open(&d->side, d->dir, &list.arena, err);
    if (rc) {
        ckpt_err_in(err, "%s", place->path);
        close_ds(d);
        ckpt_tensors_release(&list);
        return rc;
    }
    return ckpt_source_new(out, &ops, d, &list, d->side.item, d->side.n, ds_facts(d->files),
                           err);
}

const struct ckpt_format ckpt_format_deepspeed = {
    .name = "deepspeed", .title = "DeepSpeed checkpoint", .bid = bid, .open = open_source,
    .create = ds_create,
};

static int never_bid(const struct ckpt_place *p)
{
    (void)p;
    return 0;
}

const struct ckpt_format ckpt_format_universal = {
    .name = "universal", .title = "DeepSpeed universal checkpoint", .bid = never_bid,
    .open = open_source, .create = universal_create,
};
