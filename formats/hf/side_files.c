/* side_files - see side_files.h. */
#include "formats/hf/side_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/place.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/views/extra.h"

#define MAX_BYTES ((uint64_t)256 << 20)
#define MAX_FILES 65536u
#define BOUNCE    ((size_t)1 << 20)     /* bytes of a file in memory */

static const char *const kept[] = {"*.json", "*.txt", "*.model", "*.jinja", "*.md", "*.tiktoken",
                                   "*.py", "LICENSE*", "NOTICE*", "*.vocab", "*.bpe", "*.spm"};
static const char *const left[] = {"*.index.json", "*.index.*.json", "trainer_state.json",
                                   "MANIFEST.json", "ckpt_provenance.json",
                                   "all_results.json", "train_results.json",
                                   "eval_results.json", "zero_to_fp32.py",
                                   "zero_to_torch.py", "adapter_config.json",
                                   "metrics.jsonl"};
/* Sub-folders of a model: chat templates; pooling and others of sentence-transformers. */
static const char *const folders[] = {"additional_chat_templates", "[0-9]_[A-Z]*"};

bool side_file_name(const char *name)
{
    return name[0] != '.' && place_name_like(name, kept, sizeof kept / sizeof kept[0]) &&
           !place_name_like(name, left, sizeof left / sizeof left[0]);
}

/* Takes the file. */
static int add(struct side_files *s, struct ckpt_extra e, struct ckpt_err *err)
{
    int rc = s->n < MAX_FILES ? ckpt_reserve(&s->item, s->n, &s->cap, sizeof *s->item, err)
                              : ckpt_fail(err, CKPT_ELIMIT, "more than %u side files", MAX_FILES);

    if (rc)
        ckpt_file_close(e.file);
    else
        s->item[s->n++] = e;
    return rc;
}

static void tell_left_out(const struct ckpt_dir *dir, const struct ckpt_entry *e)
{
    if (e->is_file)
        ckpt_log(CKPT_LOG_WARNING, "%s/%s: not read: %" PRIu64 " bytes, %" PRIu64 " at most",
                 ckpt_dir_path(dir), e->name, e->size, MAX_BYTES);
    else
        ckpt_log(CKPT_LOG_WARNING, "%s/%s: not read: no regular file; --follow-symlinks follows "
                 "links", ckpt_dir_path(dir), e->name);
}

/* Add the side files of a directory; those in a folder are named with its path. */
static int add_all(struct side_files *s, struct ckpt_dir *dir, const char *folder,
                   struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_list(dir, arena, &entry, &n, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_extra e = {.name = entry[i].name};

        if (entry[i].is_dir || !side_file_name(entry[i].name))
            continue;
        if (!entry[i].is_file || entry[i].size > MAX_BYTES) {
            tell_left_out(dir, &entry[i]);
            continue;
        }
        if (folder && !(e.name = ckpt_arena_printf(arena, "%s/%s", folder, entry[i].name)))
            return ckpt_nomem(err, strlen(entry[i].name));
        rc = ckpt_file_open_at(&e.file, dir, entry[i].name, err);
        if (rc == 0)
            rc = add(s, e, err);
    }
    for (size_t i = 0; rc == 0 && !folder && i < n; i++) {
        struct ckpt_dir *sub;

        if (!entry[i].is_dir ||
            !place_name_like(entry[i].name, folders, sizeof folders / sizeof folders[0]))
            continue;
        rc = ckpt_dir_open_at(&sub, dir, entry[i].name, err);
        if (rc == 0)
            rc = add_all(s, sub, entry[i].name, arena, err);
        ckpt_dir_close(sub);
    }
    return rc;
}

int side_files_open(struct side_files *s, struct ckpt_dir *dir, struct ckpt_arena *arena,
                    struct ckpt_err *err)
{
    int rc;

    memset(s, 0, sizeof *s);
    rc = add_all(s, dir, NULL, arena, err);
    if (rc)
        side_files_close(s);
    return rc;
}

void side_files_close(struct side_files *s)
{
    for (size_t i = 0; i < s->n; i++)
        ckpt_file_close(s->item[i].file);
    ckpt_free(s->item);
    memset(s, 0, sizeof *s);
}

int side_file_put(struct ckpt_outdir *dir, const struct ckpt_extra *e, struct ckpt_err *err)
{
    unsigned char *bounce = ckpt_alloc_buffer(BOUNCE);
    uint64_t n = ckpt_file_size(e->file);
    struct ckpt_out *out = NULL;
    int rc = bounce ? ckpt_outdir_file(&out, dir, e->name, err) : ckpt_nomem(err, BOUNCE);

    if (rc == 0)
        rc = ckpt_out_reserve(out, n, err);
    if (rc == 0 && n > 0)
        rc = ckpt_out_copy(out, 0, e->file, 0, n, bounce, BOUNCE, err);
    if (rc == 0)
        rc = ckpt_out_commit(out, err);
    else
        ckpt_out_abort(out);
    ckpt_free(bounce);
    return rc;
}

int side_file_read(json_t **out, const struct ckpt_source *src, const char *name, uint64_t limit,
                   struct ckpt_err *err)
{
    const struct ckpt_extra *e = ckpt_source_extra(src, name);
    int rc;

    *out = NULL;
    rc = e ? ckpt_json_read(out, e->file, limit, CKPT_JSON_PYTHON, err) : 0;
    return rc ? ckpt_err_in(err, "%s", name) : 0;
}

int side_file_replace(struct ckpt_source **src, const char *name, const json_t *value,
                      json_t *info, struct ckpt_err *err)
{
    struct ckpt_source *below = *src;
    struct ckpt_buf b;
    int rc = 0;

    ckpt_buf_init(&b, (size_t)1 << 30);
    if (value) {
        rc = ckpt_json_write(&b, value, 2, false, err);
        ckpt_buf_put_u8(&b, '\n');
        if (rc == 0 && !ckpt_buf_ok(&b))
            rc = ckpt_nomem(err, b.len);
    }
    *src = NULL;
    if (rc == 0) {
        rc = ckpt_view_extra(src, below, name, value ? b.data : NULL, b.len, info, err);
    } else {
        ckpt_source_close(below);
        json_decref(info);
    }
    ckpt_buf_release(&b);
    return rc;
}

/* Whether a file belongs to a run that continues on `world` ranks. */
static bool goes_along(const char *name, int world)
{
    static const char *const run[] = {"trainer_state.json", "scheduler.pt", "training_args.bin",
                                      "adapter_config.json", "adapter_model.safetensors",
                                      "adapter_model.bin"};
    char *end;
    long rank;

    if (place_name_like(name, run, sizeof run / sizeof run[0]))
        return true;
    if (strcmp(name, "rng_state.pth") == 0)
        return world == 1;
    if (strncmp(name, "rng_state_", 10) != 0 || name[10] < '0' || name[10] > '9')
        return false;
    rank = strtol(name + 10, &end, 10);
    return strcmp(end, ".pth") == 0 && world > 1 && rank < world;
}

const char *side_files_optimizer(struct ckpt_dir *dir)
{
    static const char *const names[] = {"optimizer.pt", "optimizer.bin"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (ckpt_dir_has(dir, names[i]))
            return names[i];
    return NULL;
}

/* Copy the wanted files of a directory. */
static int put_wanted(struct ckpt_outdir *out, struct ckpt_dir *from,
                      bool (*is_wanted)(const char *name, int world), int world,
                      struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_list(from, &a, &entry, &n, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_extra e = {.name = entry[i].name};

        if (!entry[i].is_file || !is_wanted(entry[i].name, world))
            continue;
        rc = ckpt_file_open_at(&e.file, from, entry[i].name, err);
        if (rc == 0)
            rc = side_file_put(out, &e, err);
        ckpt_file_close(e.file);
    }
    ckpt_arena_release(&a);
    return rc;
}

static bool is_state(const char *name, int world)
{
    static const char *const states[] = {
        "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth", "trainer_state.json",
        "training_args.bin", "optimizer*.bin", "scheduler*.bin", "sampler*.bin",
        "dl_state_dict*.bin", "random_states_*.pkl", "custom_checkpoint_*.pkl",
    };

    (void)world;
    return place_name_like(name, states, sizeof states / sizeof states[0]);
}

int side_files_put_states(struct ckpt_outdir *out, struct ckpt_dir *from, struct ckpt_err *err)
{
    return put_wanted(out, from, is_state, 0, err);
}

int side_files_put_run(struct ckpt_outdir *out, struct ckpt_dir *from, int world,
                       struct ckpt_err *err)
{
    return put_wanted(out, from, goes_along, world, err);
}
