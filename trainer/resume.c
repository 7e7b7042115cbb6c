/* resume - see resume.h. */
#include "trainer/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "libckpt/digest_of.h"
#include "libckpt/json.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/manifest.h"
#include "trainer/optim_load.h"
#include "trainer/weights.h"

static int by_number_down(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* The n of every checkpoint-<n> in output_dir, newest first, in the arena. */
static int numbers(struct ckpt_arena *a, int64_t **out, size_t *n, const char *output_dir,
                   struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    struct ckpt_entry *entry;
    size_t n_entry;
    int rc = ckpt_dir_open(&dir, output_dir, 0, err);

    *n = 0;
    if (rc == 0)
        rc = ckpt_dir_list(dir, a, &entry, &n_entry, err);
    if (rc == 0 && !(*out = ckpt_arena_alloc(a, n_entry, sizeof **out)))
        rc = ckpt_nomem(err, n_entry * sizeof **out);
    for (size_t i = 0; rc == 0 && i < n_entry; i++) {
        static const char prefix[] = "checkpoint-";
        const char *digits = entry[i].name + sizeof prefix - 1;

        if (!entry[i].is_dir || strncmp(entry[i].name, prefix, sizeof prefix - 1) != 0 ||
            !*digits || strspn(digits, "0123456789") != strlen(digits) || strlen(digits) > 18)
            continue;
        (*out)[(*n)++] = strtoll(digits, NULL, 10);
    }
    ckpt_dir_close(dir);
    if (rc == 0)
        qsort(*out, *n, sizeof **out, by_number_down);
    return rc;
}

int resume_latest(char path[4096], const char *output_dir, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    int64_t *number;
    size_t n;
    int rc = numbers(&a, &number, &n, output_dir, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        snprintf(path, 4096, "%s/checkpoint-%lld", output_dir, (long long)number[i]);
        if (manifest_check(NULL, path, MANIFEST_SIZES, err) == 0) {
            ckpt_arena_release(&a);
            return 0;
        }
        ckpt_log(CKPT_LOG_WARNING, "%s: passed over: %s", path, err->text);
        ckpt_err_clear(err);
    }
    ckpt_arena_release(&a);
    return rc ? rc : ckpt_fail(err, CKPT_ENOTFOUND, "%s: no verified checkpoint to resume from",
                               output_dir);
}

int resume_prune(const char *output_dir, int64_t keep, const char *best, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    int64_t *number, kept = 0;
    char path[4096];
    size_t n;
    int rc = numbers(&a, &number, &n, output_dir, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_err why = {0};

        snprintf(path, sizeof path, "%s/checkpoint-%lld", output_dir, (long long)number[i]);
        if (strcmp(path, best) == 0)
            continue;
        if (manifest_check(NULL, path, MANIFEST_SIZES, &why))
            continue;                   /* not ours, or damaged: for a person to look at */
        if (++kept > keep)
            rc = ckpt_remove_tree(path, err);
    }
    ckpt_arena_release(&a);
    return rc;
}

/*
 * One array of the rank from a source: weights, or a moment named by suffix.  Of an adapter, live:
 * under the wrapped model's names.
 */
static int read_array(enum zero_array of, struct session *s, struct ckpt_source *src,
                      size_t *index, const char *suffix, bool live, struct ckpt_err *err)
{
    const struct params *p = zero_flat(s->zero)->params;
    int rc = s->lora ? weights_match_saved(index, p, src, suffix, live, err)
                     : weights_match(index, p, src, suffix, NULL, false, err);

    return rc ? rc : weights_load(s->zero, of, src, index, NULL, err);
}

/* Weights and moments out of DeepSpeed's shards. */
static int load_deepspeed(struct session *s, const char *path, size_t *index,
                          struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.optimizer = true, .prove = true};
    struct ckpt_source *src = NULL;
    int rc = ckpt_open_as(&src, "deepspeed", path, &opts, err);

    if (rc == 0)
        rc = read_array(ZERO_MASTER, s, src, index, "", true, err);
    if (rc == 0)
        rc = read_array(ZERO_EXP_AVG, s, src, index, "|exp_avg", true, err);
    if (rc == 0)
        rc = read_array(ZERO_EXP_AVG_SQ, s, src, index, "|exp_avg_sq", true, err);
    if (rc == 0)
        optim_tell_change(s, path, OP_MOMENTS_F32);
    ckpt_source_close(src);
    return rc;
}

/* Weights out of the model's or the adapter's own files, moments out of optimizer.pt. */
static int load_plain(struct session *s, const char *path, size_t *index, struct ckpt_err *err)
{
    struct ckpt_source *src = NULL;
    char file[4200];
    int rc = ckpt_open_as(&src, s->lora ? "peft" : "hf", path, NULL, err);

    snprintf(file, sizeof file, "%s/optimizer.pt", path);
    if (rc == 0)
        rc = read_array(ZERO_MASTER, s, src, index, "", false, err);
    ckpt_source_close(src);
    return rc ? rc : optim_load(s, file, err);
}

/* Our own manifest says which data and seed the run had: the order of samples hangs on both. */
static int check_manifest(const char *path, const struct checkpoint *c, struct ckpt_err *err)
{
    json_t *m = NULL;
    const char *data;
    char own[33];
    int64_t seed;
    int rc = manifest_check(&m, path, MANIFEST_SIZES, err);

    if (rc == CKPT_ENOTFOUND) {
        ckpt_err_clear(err);
        ckpt_log(CKPT_LOG_NOTE, "%s: no manifest: written by another program", path);
        return 0;
    }
    ckpt_hex(own, c->data, sizeof c->data);
    if (rc == 0 && ckpt_json_int(&seed, m, "seed", err) == 0 &&
        ckpt_json_str(&data, m, "data", err) == 0) {
        if (seed != (int64_t)c->settings->seed)
            ckpt_fail(err, CKPT_EMISMATCH, "%s: the run had --seed %lld, this one has %llu", path,
                      (long long)seed, (unsigned long long)c->settings->seed);
        else if (strcmp(data, own) != 0)
            ckpt_fail(err, CKPT_EMISMATCH,
                      "%s: the run had other training data (or data settings) than this one", path);
    }
    json_decref(m);
    return err->code;
}

/* What the loss is scaled by; how many steps were skipped counts without scaling too. */
static int load_scaler(struct scaler *s, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_file *f;

    if (!ckpt_dir_has(dir, "scaler.pt")) {
        if (s->o.on)
            ckpt_log(CKPT_LOG_NOTE, "no scaler.pt: the loss scale starts at %g", s->scale);
        return 0;
    }
    if (ckpt_file_open_at(&f, dir, "scaler.pt", err) || scaler_file_read(s, f, err))
        return ckpt_err_in(err, "scaler.pt");
    return 0;
}

int resume_load(struct session *s, const char *path, const struct checkpoint *c,
                struct run_state *state, struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    struct ckpt_file *f = NULL;
    json_t *json = NULL;
    size_t *index = NULL;
    int rc = check_manifest(path, c, err);

    if (rc == 0)
        rc = ckpt_dir_open(&dir, path, 0, err);
    if (rc == 0)
        rc = ckpt_file_open_at(&f, dir, "trainer_state.json", err);
    if (rc == 0)
        rc = ckpt_json_read(&json, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    if (rc == 0)
        rc = run_state_read(state, json, err);
    if (rc == 0)
        rc = load_scaler(c->scaler, dir, err);
    if (rc == 0 && !(index = ckpt_alloc(zero_flat(s->zero)->params->n, sizeof *index)))
        rc = ckpt_nomem(err, zero_flat(s->zero)->params->n * sizeof *index);
    if (rc == 0)
        rc = ckpt_dir_has(dir, "latest") ? load_deepspeed(s, path, index, err)
                                         : load_plain(s, path, index, err);
    ckpt_free(index);
    json_decref(json);
    ckpt_file_close(f);
    ckpt_dir_close(dir);
    if (rc)
        ckpt_err_in(err, "%s", path);
    return comm_agree(s->comm, err);
}
