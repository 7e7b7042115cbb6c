/* model_find - see model_find.h. */
#include "trainer/run/model_find.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "formats/foreign.h"
#include "formats/formats.h"
#include "formats/place.h"
#include "formats/run_dir.h"
#include "libckpt/log.h"
#include "libckpt/io/path.h"

#define MAX_DEPTH 6             /* folders around a checkpoint, as formats.c has it */

static bool has(const char *dir, const char *name)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return ckpt_path_is_file(path);
}

/* Whether path is an archive of a directory. */
static bool is_packed(const char *path)
{
    static const char *const tails[] = {"*.safetensors", "*.json", "*.bin", "*.pt", "*.pth",
                                        "*.gguf"};
    struct ckpt_arena arena = {0};
    struct ckpt_err ignored = {0};
    struct ckpt_place p;
    bool packed = ckpt_path_is_file(path);

    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
        packed &= fnmatch(tails[i], path, 0) != 0;
    if (packed && place_open(&p, path, &(struct ckpt_open_opts){.follow = true}, &arena,
                             &ignored) == 0) {
        packed = p.packed && p.dir;
        place_close(&p);
    }
    ckpt_arena_release(&arena);
    return packed;
}

void model_dir(char dir[4096], const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!ckpt_path_is_file(path) || is_packed(path))
        snprintf(dir, 4096, "%s", path);
    else if (slash)
        snprintf(dir, 4096, "%.*s", (int)(slash - path), path);
    else
        snprintf(dir, 4096, ".");
}

static int absent(const char *given, struct ckpt_err *err)
{
    ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such file or directory", given);
    return ckpt_path_hint_hub(given, err);
}

/* Files that other programs wrote are refused by what they are. */
static int check_foreign(const char *given, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_place p;
    int rc = place_open(&p, given, &(struct ckpt_open_opts){.follow = true}, &arena, err);

    if (rc == 0) {
        rc = foreign_tell(&p, err) ? ckpt_err_code(err) : 0;
        place_close(&p);
    }
    ckpt_arena_release(&arena);
    return rc;
}

/* Without a description: what keeps the weights from being read comes first. */
static int undescribed(const char *given, struct ckpt_err *err)
{
    struct ckpt_source *src;
    int rc;

    if ((rc = ckpt_open(&src, given, NULL, err)) != 0)
        return rc;
    ckpt_source_close(src);
    return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no config.json lies beside it, which tells what "
                     "model its weights are of", given);
}

/* A file must be one of weights, with the description beside it. */
static int check_file(const char *given, struct ckpt_err *err)
{
    static const char *const records[] = {"*.jsonl", "*.csv", "*.tsv", "*.parquet", "*.arrow",
                                          "*.txt"};
    char dir[4096];
    int rc;

    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++)
        if (fnmatch(records[i], given, 0) == 0) {
            ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: a file of records, a model is wanted here",
                      given);
            return ckpt_err_hint(err, "data goes to --train-file or --eval-file");
        }
    if (fnmatch("*.gguf", given, 0) == 0) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: a GGUF file, a model as Hugging Face lays it out is "
                  "wanted here", given);
        return ckpt_err_hint(err, "ckpt-merge --to hf -o DIR %s makes one of it", given);
    }
    model_dir(dir, given);
    if (fnmatch("*.json", given, 0) == 0 || is_packed(given))
        return 0;
    if ((rc = check_foreign(given, err)) != 0)
        return rc;
    return has(dir, "config.json") ? 0 : undescribed(given, err);
}

/* From the folder of a run to its newest checkpoint. */
static int enter(char path[4096], const char *given, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_place p;
    bool entered = true, any = false;
    int rc = place_open(&p, given, &(struct ckpt_open_opts){.follow = true}, &arena, err);

    if (rc) {
        ckpt_arena_release(&arena);
        return rc;
    }
    for (int depth = 0; rc == 0 && entered && depth < MAX_DEPTH; depth++) {
        rc = run_dir_enter(&p, any, false, &arena, &entered, err);
        any |= entered;
    }
    if (rc == 0 && any) {
        snprintf(path, 4096, "%s", p.path);
        ckpt_log(CKPT_LOG_NOTE, "%s: the newest checkpoint in it is %s", given, path);
    }
    if (rc == 0 && !any && foreign_tell(&p, err))
        rc = ckpt_err_code(err);
    place_close(&p);
    ckpt_arena_release(&arena);
    return rc;
}

int model_find(char path[4096], const char *given, struct ckpt_err *err)
{
    int rc;

    snprintf(path, 4096, "%s", given);
    if (ckpt_path_is_remote(given) || strcmp(given, "-") == 0)
        return 0;
    if (!ckpt_path_is_dir(given))
        return ckpt_path_is_file(given) ? check_file(given, err) : absent(given, err);
    if (has(given, "config.json") || has(given, "adapter_config.json"))
        return 0;
    rc = enter(path, given, err);
    if (rc || strcmp(path, given) != 0)
        return rc;
    if (has(given, "metrics.jsonl"))
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: the folder of a run that has saved no "
                         "checkpoint", given);
    return 0;
}
