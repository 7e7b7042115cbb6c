/* side_files - see side_files.h. */
#include "formats/weights/side_files.h"

#include <fnmatch.h>
#include <string.h>

#define MAX_BYTES ((uint64_t)256 << 20)

static const char *const kept[] = {"*.json", "*.txt", "*.model", "*.jinja", "*.md", "*.tiktoken",
                                   "*.py", "LICENSE*", "NOTICE*", "*.vocab"};
static const char *const left[] = {"*.index.json", "*.index.*.json", "trainer_state.json",
                                   "MANIFEST.json", "all_results.json", "train_results.json",
                                   "eval_results.json", "zero_to_fp32.py", "zero_to_torch.py",
                                   "adapter_config.json", "metrics.jsonl"};

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

int side_files_open(struct side_files *s, struct ckpt_dir *dir, struct ckpt_arena *arena,
                    struct ckpt_err *err)
{
    struct ckpt_entry *entry;
    size_t n;

    memset(s, 0, sizeof *s);
    if (ckpt_dir_list(dir, arena, &entry, &n, err))
        return err->code;
    s->item = ckpt_arena_alloc(arena, n, sizeof *s->item);
    if (!s->item)
        return ckpt_nomem(err, n * sizeof *s->item);
    for (size_t i = 0; i < n; i++) {
        struct ckpt_file *file;

        if (!entry[i].is_file || entry[i].size > MAX_BYTES || !side_file_name(entry[i].name))
            continue;
        if (ckpt_file_open_at(&file, dir, entry[i].name, err)) {
            side_files_close(s);
            return err->code;
        }
        s->item[s->n++] = (struct ckpt_extra){.name = entry[i].name, .file = file};
    }
    return 0;
}

void side_files_close(struct side_files *s)
{
    for (size_t i = 0; i < s->n; i++)
        ckpt_file_close(s->item[i].file);
    s->n = 0;
}
