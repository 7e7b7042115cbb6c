/* formats - see formats.h.  The only file that knows all rows. */
#include "formats/formats.h"

#include <assert.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/dcp/dcp.h"
#include "formats/dcp/fsdp.h"
#include "formats/deepspeed/deepspeed.h"
#include "formats/foreign.h"
#include "formats/gguf/gguf.h"
#include "formats/hf/dir.h"
#include "formats/hf/safetensors.h"
#include "formats/logs/metrics_log.h"
#include "formats/npy.h"
#include "formats/peft/peft.h"
#include "formats/hf/side_files.h"
#include "formats/place.h"
#include "formats/run_dir.h"
#include "formats/torch/torch.h"
#include "libckpt/base/opts.h"
#include "libckpt/io/path.h"

static const struct ckpt_format *const rows[] = {
    &ckpt_format_safetensors, &ckpt_format_hf, &ckpt_format_torch, &ckpt_format_deepspeed,
    &ckpt_format_universal, &ckpt_format_peft, &ckpt_format_gguf, &ckpt_format_dcp,
    &ckpt_format_fsdp, &ckpt_format_numpy, NULL,
};

const struct ckpt_format *const *ckpt_formats(void) { return rows; }

const struct ckpt_format *ckpt_format_named(const char *name)
{
    for (size_t i = 0; rows[i]; i++)
        if (strcmp(rows[i]->name, name) == 0)
            return rows[i];
    return NULL;
}

/* Hint at the last folder that matches, for users who named its parent. */
static void hint_folder(const struct ckpt_place *p, const char *glob, struct ckpt_err *err)
{
    const char *last = NULL;
    long best = -1;

    for (size_t i = 0; i < p->n_entry; i++)
        if (p->entry[i].is_dir && fnmatch(glob, p->entry[i].name, 0) == 0) {
            const char *dash = strrchr(p->entry[i].name, '-');
            long n = dash ? strtol(dash + 1, NULL, 10) : 0;

            if (n > best) {
                best = n;
                last = p->entry[i].name;
            }
        }
    if (last)
        ckpt_err_hint(err, "%s/%s looks like one", p->path, last);
}

/* Hint at a folder inside that holds a model, or at a file whose name is one of weights. */
static void hint_inside(const struct ckpt_place *p, struct ckpt_err *err)
{
    static const char *const tails[] = {".safetensors", ".gguf", ".pt", ".pth", ".bin", ".ckpt",
                                        ".npz", NULL};
    static const char *const configs[] = {"config.json", "adapter_config.json"};
    const char *file = NULL;
    size_t n = 0;

    for (size_t i = 0; i < p->n_entry; i++) {
        const char *name = p->entry[i].name;
        char inner[CKPT_MAX_NAME];

        if (!p->entry[i].is_dir && ckpt_path_ends_in_any(name, tails)) {
            if (!p->entry[i].is_file) {
                ckpt_err_hint(err, "%s/%s is no regular file; --follow-symlinks follows links",
                              p->path, name);
                return;
            }
            file = n++ == 0 ? name : file;
        }
        for (size_t k = 0; p->entry[i].is_dir && k < 2; k++)
            if ((size_t)snprintf(inner, sizeof inner, "%s/%s", name, configs[k]) < sizeof inner &&
                ckpt_file_path_is_clean(inner) && ckpt_dir_has(p->dir, inner)) {
                ckpt_err_hint(err, "%s/%s looks like one", p->path, name);
                return;
            }
    }
    if (n == 1)
        ckpt_err_hint(err, "%s/%s may be one by itself", p->path, file);
    else if (n > 1)
        ckpt_err_hint(err, "%s/%s is one of %zu files in it that may be read each by itself",
                      p->path, file, n);
}

static int tell_directory(const struct ckpt_place *p, struct ckpt_err *err)
{
    int rc;

    if (p->n_entry == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: the directory is empty", p->path);
    if (place_is_partial(p))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: a partial download: it has unfinished files and no weights", p->path);
    if (foreign_tell(p, err))
        return CKPT_EUNSUPPORTED;
    if (p->packed && place_has(p, "version") && ckpt_dir_has(p->dir, "data/0"))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: a torch archive without data.pkl, which says what "
                         "its tensors are", p->path);
    if (place_has(p, "adapter_config.json"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: adapter_config.json, but no adapter_model",
                         p->path);
    if (place_has(p, "config.json")) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: config.json, but no weights that are known",
                  p->path);
        hint_inside(p, err);
        return CKPT_EUNSUPPORTED;
    }
    if (place_has(p, METRICS_LOG_NAME))
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: " METRICS_LOG_NAME " is the log of a run that "
                       "has saved no checkpoint", p->path);
    else
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: no checkpoint is recognised in this %s",
                       p->path, p->packed ? "archive" : "directory");
    hint_folder(p, "checkpoint-[0-9]*", err);
    if (!err->hint[0])
        hint_folder(p, "snapshots", err);
    if (!err->hint[0])
        hint_inside(p, err);
    return rc;
}

/* Whether the temporary file of a download belongs to a file of this name. */
static bool has_partner(const struct ckpt_place *p, const char *suffix)
{
    char name[4096];
    struct stat st;

    return (size_t)snprintf(name, sizeof name, "%s%s", p->path, suffix) < sizeof name &&
           stat(name, &st) == 0;
}

static int tell_accident(const struct ckpt_place *p, struct ckpt_err *err)
{
    if (p->dir)
        return tell_directory(p, err);
    if (ckpt_file_size(p->file) == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: is empty", p->path);
    if (place_is_html(p))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is an HTML page", p->path);
    if (foreign_tell(p, err))
        return CKPT_EUNSUPPORTED;
    if (p->head_len > 2 && p->head[0] == 0x80 && p->head[1] <= 5)
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-global",
                            "%s: is a bare pickle, which others would execute", p->path);
    if (has_partner(p, ".incomplete") || has_partner(p, ".aria2"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is a partial download", p->path);
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: no known checkpoint format", p->path);
}

/* The row with the highest bid; a tie is an error. */
static int choose(const struct ckpt_format **out, const struct ckpt_place *p,
                  struct ckpt_err *err)
{
    const struct ckpt_format *best = NULL, *rival = NULL;
    int high = 0;

    for (size_t i = 0; rows[i]; i++) {
        int bid = rows[i]->bid(p);

        if (bid > high) {
            best = rows[i];
            rival = NULL;
            high = bid;
        } else if (bid == high && bid > 0) {
            rival = rows[i];
        }
    }
    if (!best)
        return tell_accident(p, err);
    if (rival)
        return ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous", "%s: could be %s or %s", p->path,
                            best->name, rival->name);
    *out = best;
    return 0;
}

/* Folders around a checkpoint: experiment, trial, checkpoint_000001, checkpoint, and two more. */
#define MAX_DEPTH 6

/*
 * The same, but an archive of one thing that is not a checkpoint is entered, and for the folder
 * of a run its newest checkpoint is chosen: *inside then is its path in arena, else NULL.
 */
static int choose_inside(const struct ckpt_format **out, const char **inside,
                         struct ckpt_place *p, struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct ckpt_err outer;
    bool entered = true;
    int rc = choose(out, p, err);

    *inside = NULL;
    outer = *err;
    for (int depth = 0; rc == CKPT_EUNSUPPORTED && entered && depth < MAX_DEPTH; depth++) {
        ckpt_err_clear(err);
        rc = place_enter(p, arena, &entered, err);
        if (rc == 0 && !entered) {
            rc = run_dir_enter(p, *inside != NULL, false, arena, &entered, err);
            *inside = entered ? p->path : *inside;
        }
        if (rc == 0)
            rc = entered ? choose(out, p, err) : CKPT_EUNSUPPORTED;
        if (*inside && entered)
            outer = *err;
    }
    if (rc == CKPT_EUNSUPPORTED)
        *err = outer;
    return rc;
}

/*
 * A finished run's folder holds the trained model itself, without the states of its optimizer:
 * where those are asked for, its newest checkpoint is chosen.
 */
static int choose_states(const struct ckpt_format **out, const char **inside, struct ckpt_place *p,
                         struct ckpt_arena *arena, struct ckpt_err *err)
{
    const struct ckpt_format *of_run = *out;
    bool entered = false;
    int rc = 0;

    if (!*inside && p->dir && !side_files_optimizer(p->dir) && !place_has(p, "latest") &&
        place_has(p, "all_results.json"))
        rc = run_dir_enter(p, false, true, arena, &entered, err);
    if (rc == 0 && entered) {
        *inside = p->path;
        rc = choose(out, p, err);
    } else {
        *out = of_run;
    }
    return rc;
}

int ckpt_recognise(const struct ckpt_format **out, const char *path, bool follow,
                   struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    const char *inside;
    struct ckpt_place p;
    int rc;

    *out = NULL;
    rc = place_open(&p, path, &(struct ckpt_open_opts){.follow = follow}, &arena, err);
    if (rc == 0) {
        rc = choose_inside(out, &inside, &p, &arena, err);
        place_close(&p);
    }
    ckpt_arena_release(&arena);
    return rc;
}

static int open_with(struct ckpt_source **out, const struct ckpt_format *format, const char *path,
                     const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    const char *inside = NULL;
    struct ckpt_open_opts own;
    struct ckpt_place p;
    int rc = ckpt_opts_read(&own, sizeof own, opts, err);

    *out = NULL;
    if (rc == 0)
        rc = place_open(&p, path, &own, &arena, err);
    if (rc == 0) {
        if (!format)
            rc = choose_inside(&format, &inside, &p, &arena, err);
        if (rc == 0 && own.optimizer)
            rc = choose_states(&format, &inside, &p, &arena, err);
        if (rc == 0 && own.tag && ckpt_format_deepspeed.bid(&p) == 0)
            ckpt_log(CKPT_LOG_NOTE, "%s: is no DeepSpeed checkpoint: --tag %s picks nothing here",
                     p.path, own.tag);
        if (rc == 0) {
            assert(format);
            ckpt_err_clear(err);        /* from an earlier call: callers look at err->code */
            rc = format->open(out, &p, &own, err);
        }
        if (rc == 0 && inside && ckpt_source_info(*out))
            json_object_set_new((json_t *)ckpt_source_info(*out), "checkpoint",
                                json_string(inside));
        place_close(&p);
    }
    ckpt_arena_release(&arena);
    return rc;
}

int formats_open_dir(struct ckpt_dir **dir, const char *path, const struct ckpt_open_opts *opts,
                     struct ckpt_err *err)
{
    const struct ckpt_format *format;
    struct ckpt_arena arena = {0};
    struct ckpt_place p = {0};
    const char *inside;
    int rc = place_open(&p, path, opts, &arena, err);

    if (rc == 0)
        rc = choose_inside(&format, &inside, &p, &arena, err);
    *dir = rc ? NULL : p.dir;
    p.dir = *dir ? NULL : p.dir;
    place_close(&p);
    ckpt_arena_release(&arena);
    return rc;
}

int formats_unpack(struct ckpt_dir **dir, struct ckpt_file **file, const char *path,
                   const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_place p = {0};
    int rc = place_open(&p, path, opts, &arena, err);

    *dir = rc ? NULL : p.dir;
    *file = rc ? NULL : p.file;
    ckpt_arena_release(&arena);
    return rc;
}

int ckpt_open(struct ckpt_source **out, const char *path, const struct ckpt_open_opts *opts,
              struct ckpt_err *err)
{
    return open_with(out, NULL, path, opts, err);
}

int ckpt_open_as(struct ckpt_source **out, const char *format, const char *path,
                 const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    const struct ckpt_format *row = ckpt_format_named(format);

    *out = NULL;
    if (!row)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: no such format", format);
    return open_with(out, row, path, opts, err);
}

int ckpt_create(struct ckpt_sink **out, const char *format, const char *path,
                const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                struct ckpt_err *err)
{
    const struct ckpt_format *row = ckpt_format_named(format);
    struct ckpt_create_opts own;
    int rc = ckpt_opts_read(&own, sizeof own, opts, err);

    *out = NULL;
    if (rc == 0 && (!row || !row->create))
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is not written", format);
    return rc ? rc : row->create(out, path, tensors, &own, err);
}
