/*
 * formats/run_dir - see formats/run_dir.h.
 *
 * Folders in which training programs put their checkpoints:
 *   HF Trainer    RUN/checkpoint-<step>/
 *   accelerate    PROJECT/checkpoints/checkpoint_<i>/
 *   Ray Train 1   [EXPERIMENT/]TRIAL/checkpoint_<i, six digits>/[checkpoint/], beside result.json
 *   Ray Train 2   RUN/<any name>/[checkpoint/], named by RUN/checkpoint_manager_snapshot.json
 *   Lightning     RUN/checkpoints/last.ckpt, or ...step=<step>.ckpt
 * Numbers are compared as numbers.  None of these programs marks a save as complete, but each
 * writes one file late: if the newest folder lacks it and an older one has it, the newest save
 * was interrupted.
 *
 * Sources: transformers 5.17 trainer_utils.py get_last_checkpoint, accelerate 1.15 accelerator.py
 * save_state, ray 2.5x train/_internal/storage.py and
 * train/v2/_internal/execution/checkpoint/checkpoint_manager.py, lightning 2.6
 * pytorch/callbacks/model_checkpoint.py.
 */
#include "formats/run_dir.h"

#include <assert.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/place.h"
#include "formats/ray_run.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"

static const char *const stems[] = {"checkpoint-", "checkpoint_"};
static const char *const late[] = {"trainer_state.json", "random_states_0.pkl", ".metadata"};
static const char *const weights[] = {"*.safetensors", "*.pt", "*.pth", "*.bin", "*.ckpt",
                                      "*.gguf"};
/* Files beside the weights with the same suffixes. */
static const char *const states[] = {"optim*", "*_optim*", "*sched*", "*rng*", "random_state*",
                                     "*scaler*", "*sampler*", "extra_state*", "training_args*"};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The folder with the highest number less than `below`. */
static const char *highest(const struct ckpt_place *p, const char *stem, int64_t below)
{
    const char *name = NULL;
    int64_t best = -1;

    for (size_t i = 0; i < p->n_entry; i++) {
        int64_t k = p->entry[i].is_dir ? ckpt_path_number(p->entry[i].name, stem) : -1;

        if (k > best && k < below) {
            best = k;
            name = p->entry[i].name;
        }
    }
    return name;
}

static bool has_folder(const struct ckpt_place *p, const char *name)
{
    for (size_t i = 0; i < p->n_entry; i++)
        if (p->entry[i].is_dir && strcmp(p->entry[i].name, name) == 0)
            return true;
    return false;
}

static bool folder_has(const struct ckpt_place *p, const char *folder, const char *name)
{
    struct ckpt_err ignored = {0};
    struct ckpt_dir *dir;
    bool has;

    if (ckpt_dir_open_at(&dir, p->dir, folder, &ignored))
        return false;
    has = ckpt_dir_has(dir, name);
    ckpt_dir_close(dir);
    return has;
}

static int doubt(const struct ckpt_place *p, const char *name, const char *why,
                 struct ckpt_err *err)
{
    ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous", "%s: %s", p->path, why);
    return ckpt_err_hint(err, "%s/%s looks like one", p->path, name);
}

/* The newest numbered folder, unless its save was interrupted. */
static int pick_numbered(const char **out, const struct ckpt_place *p, struct ckpt_err *err)
{
    const char *name = NULL, *stem = NULL;

    for (size_t s = 0; s < COUNT(stems); s++) {
        const char *found = highest(p, stems[s], INT64_MAX);

        if (found && name)
            return doubt(p, name, "folders named checkpoint-N and checkpoint_N, by two counts",
                         err);
        if (found) {
            name = found;
            stem = stems[s];
        }
    }
    for (size_t k = 0; name && k < COUNT(late); k++) {
        const char *older = name;

        if (folder_has(p, name, late[k]))
            continue;
        while ((older = highest(p, stem, ckpt_path_number(older, stem))))
            if (folder_has(p, older, late[k])) {
                char why[400];

                snprintf(why, sizeof why, "the newest, %.200s, has no %s: its save did not end",
                         name, late[k]);
                return doubt(p, older, why, err);
            }
    }
    *out = name;
    return 0;
}

/* Ray Train 2: the latest checkpoint according to the run's index, or the best. */
static int pick_indexed(const char **out, const struct ckpt_place *p, bool best,
                        struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct ckpt_file *f = NULL;
    int rc = ckpt_file_open_at(&f, p->dir, RAY_RUN_INDEX, err);

    if (rc == 0)
        rc = ray_run_find(out, f, best, p->path, arena, err);
    if (rc == 0 && !has_folder(p, *out))
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                          "%s/" RAY_RUN_INDEX ": names %s, which is not there", p->path, *out);
    ckpt_file_close(f);
    return rc;
}

/* Ray's experiment: the trial in it, recognised by its result.json, or the run by its index. */
static int pick_trial(const char **out, const struct ckpt_place *p, struct ckpt_err *err)
{
    const char *name = NULL;

    for (size_t i = 0; i < p->n_entry; i++) {
        if (!p->entry[i].is_dir || (!folder_has(p, p->entry[i].name, "result.json") &&
                                    !folder_has(p, p->entry[i].name, RAY_RUN_INDEX)))
            continue;
        if (name)
            return doubt(p, name, "has several trials", err);
        name = p->entry[i].name;
    }
    *out = name;
    return 0;
}

/* The single weights file of a folder that is known to be a checkpoint. */
static int pick_file(const char **out, const struct ckpt_place *p, struct ckpt_err *err)
{
    *out = NULL;
    for (size_t i = 0; i < p->n_entry; i++) {
        const char *name = p->entry[i].name;

        if (!p->entry[i].is_file || !place_name_like(name, weights, COUNT(weights)) ||
            place_name_like(name, states, COUNT(states)))
            continue;
        if (*out)
            return doubt(p, *out, "several files that could be its weights", err);
        *out = name;
    }
    return 0;
}

/* The number after "step=" in one of Lightning's names, or -1. */
static int64_t step_of(const char *name)
{
    const char *at = strstr(name, "step=");
    size_t digits = at ? strspn(at + 5, "0123456789") : 0;

    return digits > 0 && digits <= 18 ? strtoll(at + 5, NULL, 10) : -1;
}

/* Lightning's folder of .ckpt files: the last one, by name or by step. */
static int pick_ckpt(const char **out, const struct ckpt_place *p, struct ckpt_err *err)
{
    const char *best = NULL;
    int64_t most = -1;
    size_t n = 0, ties = 0;

    *out = NULL;
    for (size_t i = 0; i < p->n_entry; i++) {
        const char *name = p->entry[i].name;
        int64_t step;

        assert(name);
        if (!p->entry[i].is_file || fnmatch("*.ckpt", name, 0) != 0)
            continue;
        step = fnmatch("last*.ckpt", name, 0) == 0 ? INT64_MAX : step_of(name);
        n++;
        ties = step > most ? 1 : ties + (step == most);
        if (step > most || !best) {
            best = name;
            most = step;
        }
    }
    if (n > 1 && (most < 0 || ties > 1))
        return doubt(p, best, "several .ckpt files, and none is the last by its name or step", err);
    *out = best;
    return 0;
}

/* The folder to enter, or NULL. */
static int pick(const char **out, const struct ckpt_place *p, struct ckpt_arena *arena,
                struct ckpt_err *err)
{
    const char *only = NULL;
    size_t n = 0;
    int rc;

    *out = NULL;
    if (place_has(p, RAY_RUN_INDEX))
        return pick_indexed(out, p, false, arena, err);
    rc = pick_numbered(out, p, err);
    if (rc || *out)
        return rc;
    if (has_folder(p, "checkpoint"))
        *out = "checkpoint";
    else if (has_folder(p, "checkpoints"))
        *out = "checkpoints";
    if (*out)
        return 0;
    for (size_t i = 0; i < p->n_entry; i++)     /* of Ray Train 2, without its index */
        if (p->entry[i].is_dir && fnmatch("checkpoint_[0-9]*", p->entry[i].name, 0) == 0) {
            only = p->entry[i].name;
            n++;
        }
    if (n > 1)
        return doubt(p, only, "several checkpoints and no " RAY_RUN_INDEX " that names the latest",
                     err);
    *out = only;
    return only ? 0 : pick_trial(out, p, err);
}

int run_dir_enter(struct ckpt_place *p, bool found, bool trained, struct ckpt_arena *arena,
                  bool *entered, struct ckpt_err *err)
{
    const char *name = NULL, *file = NULL, *path;
    struct ckpt_place inner = {.packed = p->packed};
    struct ckpt_entry *entry = NULL;
    int rc;

    *entered = false;
    /* A model or adapter whose weights are missing or still arriving: do not enter an older one. */
    if (!p->dir || place_is_partial(p) ||
        (!trained && (place_has(p, "config.json") || place_has(p, "adapter_config.json"))))
        return 0;
    rc = trained ? pick_numbered(&name, p, err) : pick(&name, p, arena, err);
    if (rc == 0 && !name && !trained)
        rc = pick_ckpt(&file, p, err);
    if (rc == 0 && !name && !file && found)
        rc = pick_file(&file, p, err);
    if (file)
        name = file;
    if (rc || !name)
        return rc;
    path = ckpt_arena_printf(arena, "%s%s%s", p->path,
                             p->path[strlen(p->path) - 1] == '/' ? "" : "/", name);
    if (!path)
        return ckpt_nomem(err, strlen(name));
    if (file) {
        struct ckpt_file *f;

        if ((rc = ckpt_file_open_at(&f, p->dir, file, err)) != 0 ||
            (rc = place_of_file(&inner, f, err)) != 0)
            return rc;
    } else {
        rc = ckpt_dir_open_at(&inner.dir, p->dir, name, err);
        if (rc == 0)
            rc = ckpt_dir_list(inner.dir, arena, &entry, &inner.n_entry, err);
        if (rc) {
            ckpt_dir_close(inner.dir);
            return rc;
        }
        inner.entry = entry;
    }
    ckpt_dir_close(p->dir);
    *p = inner;
    p->path = path;
    *entered = true;
    return 0;
}

/* The entries of a folder on this machine; closed by the caller, also after a failure. */
static int look(struct ckpt_place *p, const char *path, struct ckpt_arena *arena,
                struct ckpt_err *err)
{
    struct ckpt_entry *entry = NULL;
    int rc;

    *p = (struct ckpt_place){.path = path};
    rc = ckpt_dir_open(&p->dir, path, CKPT_FOLLOW, err);
    if (rc == 0)
        rc = ckpt_dir_list(p->dir, arena, &entry, &p->n_entry, err);
    p->entry = entry;
    return rc;
}

bool run_dir_last(char path[4096], const char *run)
{
    struct ckpt_arena arena = {0};
    struct ckpt_err ignored = {0};
    struct ckpt_place p;
    const char *name = NULL;
    bool found = look(&p, run, &arena, &ignored) == 0;

    if (found && place_has(&p, RAY_RUN_INDEX))
        found = pick_indexed(&name, &p, false, &arena, &ignored) == 0;
    else
        for (size_t s = 0; found && s < COUNT(stems) && !name; s++)
            name = highest(&p, stems[s], INT64_MAX);
    found = found && name && snprintf(path, 4096, "%s/%s", run, name) < 4096;
    ckpt_dir_close(p.dir);
    ckpt_arena_release(&arena);
    return found;
}

/* The name that a trainer_state.json gives the best checkpoint, in path; false: none. */
static bool best_of(char path[4096], const char *run, const char *folder)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *f = NULL;
    json_t *state = NULL;
    const char *best, *slash;
    bool named = false;
    char file[4200];

    snprintf(file, sizeof file, "%s/%s/%s", run, folder, late[0]);
    if (ckpt_path_file(&f, file, CKPT_FOLLOW, &ignored) == 0 &&
        ckpt_json_read(&state, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, &ignored) == 0) {
        best = json_string_value(json_object_get(state, "best_model_checkpoint"));
        slash = best ? strrchr(best, '/') : NULL;
        best = slash ? slash + 1 : best;
        named = best && ckpt_file_name_is_clean(best);
        if (named)
            snprintf(path, 4096, "%s/%s", run, best);
    }
    json_decref(state);
    ckpt_file_close(f);
    return named;
}

/* By HF Trainer's state, of the newest checkpoint or of the run itself. */
static int best_numbered(char path[4096], const struct ckpt_place *p, const char *newest,
                         struct ckpt_err *err)
{
    if (best_of(path, p->path, newest) || best_of(path, p->path, "."))
        return 0;
    ckpt_fail(err, CKPT_ENOTFOUND, "%s: the trainer_state.json of %s names no best checkpoint",
              p->path, newest);
    return ckpt_err_hint(err, "a run has one that evaluates and saves");
}

static int best_in(char path[4096], const char *run, bool inside, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_place p;
    const char *name = NULL;
    int rc = look(&p, run, &arena, err);

    for (size_t s = 0; rc == 0 && s < COUNT(stems) && !name; s++)
        name = highest(&p, stems[s], INT64_MAX);
    if (rc == 0 && place_has(&p, RAY_RUN_INDEX)) {
        rc = pick_indexed(&name, &p, true, &arena, err);
        if (rc == 0 && snprintf(path, 4096, "%s/%s", run, name) >= 4096)
            rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: its path is too long", name);
    } else if (rc == 0 && name) {
        rc = best_numbered(path, &p, name, err);
    } else if (rc == 0 && (inside || (rc = pick_trial(&name, &p, err)) == 0)) {
        char trial[4096];

        rc = name && snprintf(trial, sizeof trial, "%s/%s", run, name) < (int)sizeof trial
                 ? best_in(path, trial, true, err)
                 : ckpt_fail(err, CKPT_ENOTFOUND, "%s: no checkpoints in it, of which one is the "
                             "best", run);
    }
    ckpt_dir_close(p.dir);
    ckpt_arena_release(&arena);
    return rc;
}

int run_dir_best(char path[4096], const char *run, struct ckpt_err *err)
{
    int rc = best_in(path, run, false, err);

    if (rc || ckpt_path_is_dir(path))
        return rc;
    return ckpt_fail(err, CKPT_ENOTFOUND, "%s: the best checkpoint, which is not there", path);
}
