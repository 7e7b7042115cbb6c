/* position - see position.h. */
#include "trainer/checkpoint/position.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/hf/trainer_saved.h"
#include "libckpt/base/json.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "trainer/optim/load.h"

#define STATE "trainer_state.json"

/* The best checkpoint of a run lies beside its others, wherever the run's folder is by now. */
static void find_best(struct run_state *state, const char *path)
{
    char beside[sizeof state->best_model_checkpoint];
    const char *slash = strrchr(state->best_model_checkpoint, '/');
    const char *name = slash ? slash + 1 : state->best_model_checkpoint;
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    if (*name && !ckpt_path_is_remote(path) &&
        (size_t)snprintf(beside, sizeof beside, "%.*s%s", (int)n, path, name) < sizeof beside &&
        ckpt_path_is_dir(beside))
        memcpy(state->best_model_checkpoint, beside, sizeof beside);
}

int position_read(struct run_state *state, bool *found, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_file *f = NULL;
    json_t *json = NULL;
    int rc;

    *found = ckpt_dir_has(dir, STATE);
    if (!*found)
        return 0;
    rc = ckpt_file_open_at(&f, dir, STATE, err);
    if (rc == 0)
        rc = ckpt_json_read(&json, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    if (rc == 0)
        rc = run_state_read(state, json, err);
    if (rc == 0)
        find_best(state, ckpt_dir_path(dir));
    json_decref(json);
    ckpt_file_close(f);
    return rc;
}

int position_updates(int64_t *updates, struct ckpt_source *src, struct ckpt_err *err)
{
    const json_t *said = json_object_get(ckpt_source_info(src), "optimizer_step");

    *updates = json_is_number(said) ? (int64_t)json_number_value(said) : -1;
    for (size_t t = 0; *updates < 0 && t < ckpt_source_count(src); t++) {
        const struct ckpt_tensor *x = ckpt_source_tensor(src, t);
        size_t n = strlen(x->name);
        double count = -1;
        unsigned char raw[16];
        int rc;

        if (n < 5 || strcmp(x->name + n - 5, "|step") != 0 || x->numel != 1 ||
            ckpt_dtype_size(x->dtype) > sizeof raw || !ckpt_convert_can(CKPT_F64, x->dtype))
            continue;
        if ((rc = ckpt_source_read(src, t, 0, 1, raw, err)) != 0)
            return rc;
        ckpt_convert(&count, CKPT_F64, raw, x->dtype, 1);
        if (count >= 0 && count < 0x1p53)
            *updates = (int64_t)count;
    }
    return 0;
}

/* The count of torch's optimizer in the file that accelerate and the Trainer give it. */
static int count_of_file(int64_t *step, const char *path, struct ckpt_err *err)
{
    static const char *const names[] = {"optimizer.bin", "optimizer.pt"};
    int rc = 0;

    for (size_t i = 0; rc == 0 && *step < 0 && i < sizeof names / sizeof names[0]; i++) {
        char file[4200];

        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        if (ckpt_path_is_file(file))
            rc = optim_steps(step, file, err);
    }
    return rc;
}

/* What the checkpoint itself says: facts of its shards, or its optimizer. */
static int step_of_source(int64_t *step, const char *path, struct ckpt_err *err)
{
    static const char *const keys[] = {"global_steps", "step"};
    const struct ckpt_open_opts opts = {.optimizer = true};
    struct ckpt_source *src = NULL;
    int rc = ckpt_open(&src, path, &opts, err);

    for (size_t i = 0; rc == 0 && *step < 0 && i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *said = json_object_get(ckpt_source_info(src), keys[i]);

        if (json_is_integer(said) && json_integer_value(said) >= 0)
            *step = json_integer_value(said);
    }
    if (rc == 0 && *step < 0)
        rc = position_updates(step, src, err);
    ckpt_source_close(src);
    return rc;
}

/* The digits that end the last part of a path, behind a word and one of "-_"; -1: none. */
static int64_t step_of_name(const char *path)
{
    size_t end = strlen(path), from;

    while (end > 0 && path[end - 1] == '/')
        end--;
    for (from = end; from > 0 && isdigit((unsigned char)path[from - 1]); from--)
        ;
    if (from == end || end - from > 15 || from < 2 || !strchr("-_", path[from - 1]) ||
        !isalpha((unsigned char)path[from - 2]))
        return -1;
    return strtoll(path + from, NULL, 10);
}

int position_step(int64_t *step, const char *path, struct ckpt_err *err)
{
    struct run_state state;
    struct ckpt_dir *dir = NULL;
    bool found = false;
    int rc = run_state_init(&state, err);

    *step = -1;
    if (rc == 0)
        rc = ckpt_dir_open(&dir, path, 0, err);
    if (rc == 0 && position_read(&state, &found, dir, err))
        rc = ckpt_err_in(err, "%s", path);
    if (rc == 0 && found)
        *step = state.global_step;
    if (rc == 0 && !found)
        rc = step_of_source(step, path, err);
    if (rc == 0 && *step < 0)
        rc = count_of_file(step, path, err);
    if (rc == 0 && *step < 0)
        *step = step_of_name(path);
    if (rc == 0 && *step < 0) {
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: neither %s nor its optimizer nor its name says "
                       "which step it is of", path, STATE);
        ckpt_err_hint(err, "name the folder checkpoint-<step>");
    }
    run_state_release(&state);
    ckpt_dir_close(dir);
    return rc;
}

/* Whether all groups have one rate. */
static bool one_rate(const struct optim_groups *g)
{
    for (size_t i = 1; i < g->n; i++)
        if (g->peak[i].lr < g->peak[0].lr || g->peak[i].lr > g->peak[0].lr)
            return false;
    return true;
}

/* The groups go on with their saved rates; where there is one alone and options give the groups
 * several, these count. */
static int take_rates(struct run_state *state, const struct optim_groups *groups,
                      const struct scheduler_saved *saved, struct ckpt_err *err)
{
    bool one = saved->one_rate && one_rate(groups);

    if (!one && saved->n_rate != groups->n)
        return saved->one_rate ? 0
               : ckpt_fail(err, CKPT_EUNSUPPORTED, "%zu groups with different base learning rates, "
                           "this run has %zu groups", saved->n_rate, groups->n);
    state->base_lr = saved->base_lr;
    for (size_t g = 0; g < groups->n; g++) {
        double lr = saved->rate[one ? 0 : g];

        state->other_rates |= lr < groups->peak[g].lr || lr > groups->peak[g].lr;
        groups->peak[g].lr = lr;
    }
    return 0;
}

int position_schedule(struct run_state *state, const struct optim_groups *groups, int64_t *done,
                      struct ckpt_dir *dir, struct ckpt_err *err)
{
    static const char *const names[] = {"scheduler.pt", "scheduler.bin"};
    struct scheduler_saved saved;
    struct ckpt_arena a = {0};
    struct ckpt_file *f;
    size_t i = ckpt_dir_has(dir, names[0]) ? 0 : 1;
    int rc;

    *done = -1;
    state->base_lr = NAN;
    if (!ckpt_dir_has(dir, names[i]))
        return 0;
    rc = ckpt_file_open_at(&f, dir, names[i], err);
    if (rc == 0)
        rc = hf_scheduler_read(&saved, &a, f, err);
    /* ReduceLROnPlateau and DeepSpeed's have no base rates, and their counts are others. */
    if (rc == 0 && saved.n_rate > 0) {
        rc = take_rates(state, groups, &saved, err);
        /* Of several processes accelerate counts one step for each: no skipped steps. */
        if (saved.last_epoch >= 0 && saved.last_epoch <= state->global_step)
            *done = saved.last_epoch;
    }
    ckpt_arena_release(&a);
    return rc ? ckpt_err_in(err, "%s", names[i]) : 0;
}
