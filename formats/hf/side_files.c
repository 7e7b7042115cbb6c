/* side_files - see side_files.h. */
#include "formats/hf/side_files.h"
#include "libckpt/err.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

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
/* Folders of a model: templates for chats; pooling and the like of sentence-transformers. */
static const char *const folders[] = {"additional_chat_templates", "[0-9]_[A-Z]*"};

static bool any(const char *const *glob, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(glob[i], name, 0) == 0)
            return true;
    return false;
}

bool side_file_name(const char *name)
{
    return name[0] != '.' && any(kept, sizeof kept / sizeof kept[0], name) &&
           !any(left, sizeof left / sizeof left[0], name);
}

/* Room is made by doubling in the arena: the lists that are left behind are half of it. */
static int add(struct side_files *s, size_t *cap, struct ckpt_arena *arena, struct ckpt_extra e,
               struct ckpt_err *err)
{
    if (s->n == *cap) {
        size_t more = *cap ? 2 * *cap : 16;
        struct ckpt_extra *grown = ckpt_arena_alloc(arena, more, sizeof *grown);

        if (!grown || s->n >= MAX_FILES) {
            ckpt_file_close(e.file);
            return grown ? ckpt_fail(err, CKPT_ELIMIT, "more than %u side files", MAX_FILES)
                         : ckpt_nomem(err, more * sizeof *grown);
        }
        if (s->n)
            memcpy(grown, s->item, s->n * sizeof *grown);
        s->item = grown;
        *cap = more;
    }
    s->item[s->n++] = e;
    return 0;
}

/* The side files of a directory; those of a folder are named with it. */
static int add_all(struct side_files *s, size_t *cap, struct ckpt_dir *dir, const char *folder,
                   struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct ckpt_entry *entry;
    size_t n;

    if (ckpt_dir_list(dir, arena, &entry, &n, err))
        return err->code;
    for (size_t i = 0; i < n; i++) {
        struct ckpt_extra e = {.name = entry[i].name};

        if (!entry[i].is_file || entry[i].size > MAX_BYTES || !side_file_name(entry[i].name))
            continue;
        if (folder && !(e.name = ckpt_arena_printf(arena, "%s/%s", folder, entry[i].name)))
            return ckpt_nomem(err, strlen(entry[i].name));
        if (ckpt_file_open_at(&e.file, dir, entry[i].name, err) || add(s, cap, arena, e, err))
            return err->code;
    }
    for (size_t i = 0; !folder && i < n; i++) {
        struct ckpt_dir *sub;
        int rc;

        if (!entry[i].is_dir || !any(folders, sizeof folders / sizeof folders[0], entry[i].name))
            continue;
        if (ckpt_dir_open_at(&sub, dir, entry[i].name, err))
            return err->code;
        rc = add_all(s, cap, sub, entry[i].name, arena, err);
        ckpt_dir_close(sub);
        if (rc)
            return rc;
    }
    return 0;
}

int side_files_open(struct side_files *s, struct ckpt_dir *dir, struct ckpt_arena *arena,
                    struct ckpt_err *err)
{
    size_t cap = 0;

    memset(s, 0, sizeof *s);
    if (add_all(s, &cap, dir, NULL, arena, err))
        side_files_close(s);
    else
        return 0;
    return err->code;
}

void side_files_close(struct side_files *s)
{
    for (size_t i = 0; i < s->n; i++)
        ckpt_file_close(s->item[i].file);
    s->n = 0;
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

/* Whether a file of a checkpoint goes along with the run when it goes on on `world` ranks. */
static bool goes_along(const char *name, int world)
{
    static const char *const run[] = {"trainer_state.json", "scheduler.pt", "training_args.bin",
                                      "adapter_config.json", "adapter_model.safetensors",
                                      "adapter_model.bin"};
    char *end;
    long rank;

    if (any(run, sizeof run / sizeof run[0], name))
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

/* Copy the files of a directory that are wanted. */
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
    return any(states, sizeof states / sizeof states[0], name);
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
