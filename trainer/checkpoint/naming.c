/* checkpoint/naming - see naming.h. */
#include "trainer/checkpoint/naming.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/manifest.h"

#define HF_STEM  "checkpoint-"
#define RAY_STEM "checkpoint_"
#define STATE    "trainer_state.json"

char *naming_last(char name[256], const char *path)
{
    size_t end = strlen(path), from;

    while (end > 0 && path[end - 1] == '/')
        end--;
    for (from = end; from > 0 && path[from - 1] != '/'; from--)
        ;
    snprintf(name, 256, "%.*s", (int)(end - from < 255 ? end - from : 255), path + from);
    return name;
}

bool naming_is_trial(const char *folder)
{
    char name[256];

    return strncmp(naming_last(name, folder), NAMING_TRIAL, sizeof NAMING_TRIAL - 1) == 0;
}

/* Whether name is what this program, or Ray, makes of number. */
static bool is_made_of(const char *name, const char *stem, int digits, int64_t number)
{
    char same[40];

    snprintf(same, sizeof same, "%s%0*" PRId64, stem, digits, number);
    return number >= 0 && strcmp(name, same) == 0;
}

static int64_t saves_of(const char *name)
{
    int64_t n = ckpt_path_number(name, RAY_STEM);

    return is_made_of(name, RAY_STEM, 6, n) ? n : -1;
}

static int64_t member(const json_t *of, const char *key)
{
    const json_t *v = json_object_get(of, key);

    return json_is_integer(v) && json_integer_value(v) >= 0 ? (int64_t)json_integer_value(v) : -1;
}

/* What the manifest says, or, of another program's checkpoint, the Trainer's state. */
static int64_t step_inside(const char *folder, const char *name)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *f = NULL;
    struct ckpt_dir *dir = NULL;
    json_t *doc = NULL;
    char path[4096];
    int64_t step = -1;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (ckpt_dir_open(&dir, path, 0, &ignored))
        return -1;
    if (manifest_read(&doc, dir, &ignored) == 0)
        step = member(doc, "step");
    json_decref(doc);
    doc = NULL;
    if (step < 0 && ckpt_file_open_at(&f, dir, STATE, &ignored) == 0 &&
        ckpt_json_read(&doc, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, &ignored) == 0)
        step = member(doc, "global_step");
    json_decref(doc);
    ckpt_file_close(f);
    ckpt_dir_close(dir);
    return step;
}

int64_t naming_step(const char *folder, const char *name)
{
    int64_t n = ckpt_path_number(name, HF_STEM);

    if (naming_is_trial(folder))
        return saves_of(name) >= 0 ? step_inside(folder, name) : -1;
    return is_made_of(name, HF_STEM, 1, n) ? n : -1;
}

static int down(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* The number of saves in folder's name for step: that of the checkpoint that is there, or the next.
 * Later saves are of later steps, so that the newest are looked at first. */
static int64_t count_of(const char *folder, int64_t step)
{
    struct ckpt_arena a = {0};
    struct ckpt_err ignored = {0};
    struct ckpt_entry *entry = NULL;
    struct ckpt_dir *dir = NULL;
    int64_t *saves = NULL, found = 0;
    size_t n_entry = 0, n = 0;

    if (ckpt_dir_open(&dir, folder, 0, &ignored) ||
        ckpt_dir_list(dir, &a, &entry, &n_entry, &ignored) ||
        !(saves = ckpt_arena_alloc(&a, n_entry + 1, sizeof *saves)))
        n_entry = 0;
    for (size_t i = 0; i < n_entry; i++)
        if (entry[i].is_dir && saves_of(entry[i].name) >= 0)
            saves[n++] = saves_of(entry[i].name);
    if (n > 0) {
        qsort(saves, n, sizeof *saves, down);
        found = saves[0] + 1;
    }
    for (size_t i = 0; i < n; i++) {
        char name[40];
        int64_t is;

        snprintf(name, sizeof name, RAY_STEM "%06" PRId64, saves[i]);
        is = step_inside(folder, name);
        if (is == step)
            found = saves[i];
        if (is >= 0 && is <= step)
            break;
    }
    ckpt_dir_close(dir);
    ckpt_arena_release(&a);
    return found;
}

char *naming_path(char path[4096], const char *folder, int64_t step)
{
    size_t n = strlen(folder);
    const char *slash = n && folder[n - 1] == '/' ? "" : "/";

    if (naming_is_trial(folder))
        snprintf(path, 4096, "%s%s" RAY_STEM "%06" PRId64, folder, slash, count_of(folder, step));
    else
        snprintf(path, 4096, "%s%s" HF_STEM "%" PRId64, folder, slash, step);
    return path;
}
