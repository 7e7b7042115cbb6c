/*
 * fuzz_deepspeed: any bytes as the folder of a DeepSpeed tag, and that cut anew.
 *
 * The first byte chooses which files there are; pickles follow, one behind another, each made an
 * archive (made_archive.h).  A file whose own pickle is not there has that of one like it: ranks
 * then agree about what was changed.  The folder is memory.
 */
#include <stdlib.h>

#include "formats/place.h"
#include "formats/deepspeed/deepspeed.h"
#include "formats/deepspeed/write/cut.h"
#include "libckpt/io/file_at.h"
#include "tests/fuzz/lib/made_archive.h"
#include "tests/fuzz/lib/source_walk.h"

#define MAX_FILE 10

/* Bits of the first byte; the others are the layout. */
#define WITHOUT_OPTIMIZER 0x80
#define UNEQUAL           0x40  /* masters that are not, rounded, what the model has */

#define MODEL(mp)    "mp_rank_0" mp "_model_states.pt"
#define MODEL3(r)    "zero_pp_rank_" r "_" MODEL("0")
#define OPTIM(r, mp) "zero_pp_rank_" r "_mp_rank_0" mp "_optim_states.pt"
#define EXPERT(e)    "expert_" e "_" MODEL("0")
#define SWAPPED      "offloaded_tensors/"       /* has every file, all zeros */

struct part {
    const char *path;
    size_t      like;           /* which pickle it has when its own is not there */
};

static const struct part layout[][MAX_FILE] = {
    {{MODEL("0")}},
    {{MODEL("0")}, {OPTIM("0", "0"), 1}},
    {{MODEL("0")}, {"bf16_" OPTIM("0", "0"), 1}, {"bf16_" OPTIM("1", "0"), 1}},
    {{MODEL("0")}, {OPTIM("0", "0"), 1}, {OPTIM("1", "0"), 1}},
    {{MODEL("0")}, {"zero_pp_rank_0_mp_rank_00optim_states.pt", 1},
     {"zero_pp_rank_1_mp_rank_00optim_states.pt", 1}},
    {{MODEL3("0")}, {OPTIM("0", "0"), 1}},
    {{MODEL3("0")}, {"bf16_" OPTIM("0", "0"), 1}, {MODEL3("1")}, {"bf16_" OPTIM("1", "0"), 1}},
    {{MODEL3("0")}, {"bf16_" OPTIM("0", "0"), 1}, {MODEL3("1")}, {"bf16_" OPTIM("1", "0"), 1},
     {SWAPPED}},
    {{MODEL("0")}, {"zero/optimizer_state.pt", 1}, {"zero/w/fp32.pt", 2}, {"zero/w/step.pt", 3},
     {"zero/w/exp_avg.pt", 2}, {"zero/b/fp32.pt", 2}, {"zero/b/exp_avg.pt", 2}},
    {{MODEL3("0")}, {"zero/optimizer_state.pt", 1}, {"zero/w/fp32.pt", 2},
     {"zero/w/exp_avg.pt", 2}, {"zero/b/fp32.pt", 2}, {"zero/b/exp_avg.pt", 2}, {MODEL3("1")}},
    {{MODEL("0")}, {"zero/optimizer_state.pt", 1}, {"zero/w/fp32.pt", 2},
     {"zero/w/exp_avg.pt", 2}, {"zero/b/fp32.pt", 2}, {"zero/b/exp_avg.pt", 2}, {MODEL("1")}},
    {{MODEL("0")}, {"bf16_" OPTIM("0", "0"), 1}, {"layer_0_" EXPERT("0"), 2},
     {"layer_0_" EXPERT("1"), 3}, {"bf16_" OPTIM("1", "0"), 1}},
    {{MODEL("0")}, {"expp_rank_0_mp_rank_00_optim_states.pt", 1}, {"layer_0_" EXPERT("0"), 2},
     {"layer_0_" EXPERT("1"), 3}, {"expp_rank_1_mp_rank_00_optim_states.pt", 1}},
    {{MODEL("0")}, {OPTIM("0", "0"), 1}, {EXPERT("0"), 2}, {EXPERT("1"), 3}},
    {{MODEL("0")}, {"bf16_" OPTIM("0", "0"), 1}, {"layer_00-model_states.pt", 2},
     {"layer_01-model_states.pt", 3}, {"layer_03-model_states.pt", 3}, {MODEL("1")},
     {"bf16_" OPTIM("0", "1"), 1}},
    {{MODEL("0")}, {"bf16_" OPTIM("0", "0"), 1}, {"layer_00-model_states.pt", 2},
     {"layer_01-model_states.pt", 3}, {"layer_03-model_states.pt", 3},
     {"bf16_" OPTIM("1", "0"), 1}},
};

/* -- a folder that is memory ----------------------------------------------------------------- */

struct disk {
    const struct part *part;            /* up to the first without a path */
    struct maker       made[MAX_FILE];
    size_t             n_made;
};

struct folder {
    const struct disk *disk;
    char               prefix[64];      /* "" or "zero/w/" */
};

static const struct dir_ops folder_ops;

static int open_folder(struct ckpt_dir **out, const struct disk *disk, const char *prefix,
                       const char *rel, const char *path, struct ckpt_err *err)
{
    struct folder *d = ckpt_alloc(1, sizeof *d);

    if (!d)
        return ckpt_nomem(err, sizeof *d);
    d->disk = disk;
    if ((size_t)snprintf(d->prefix, sizeof d->prefix, "%s%s%s", prefix, rel, *rel ? "/" : "") <
        sizeof d->prefix)
        for (const struct part *p = disk->part; p < disk->part + MAX_FILE && p->path; p++)
            if (strncmp(p->path, d->prefix, strlen(d->prefix)) == 0)
                return file_make_dir(out, &folder_ops, d, path, err);
    ckpt_free(d);
    return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such directory", path);
}

static int open_dir(void *self, struct ckpt_dir **out, const char *rel, const char *path,
                    struct ckpt_err *err)
{
    struct folder *d = self;

    return open_folder(out, d->disk, d->prefix, rel, path, err);
}

/* MAX_FILE when it is not there. */
static size_t find(const struct folder *d, const char *rel)
{
    size_t i = 0, n = strlen(d->prefix);

    while (i < MAX_FILE && d->disk->part[i].path &&
           (strncmp(d->disk->part[i].path, d->prefix, n) != 0 ||
            strcmp(d->disk->part[i].path + n, rel) != 0))
        i++;
    return i < MAX_FILE && d->disk->part[i].path ? i : MAX_FILE;
}

static bool has(void *self, const char *rel) { return find(self, rel) < MAX_FILE; }

static int open_file(void *self, struct ckpt_file **out, const char *rel, const char *path,
                     struct ckpt_err *err)
{
    const struct folder *d = self;
    const struct disk *disk = d->disk;
    size_t i = find(d, rel), k;

    if (strcmp(d->prefix, SWAPPED) == 0)
        return ckpt_file_memory(out, made_payload, 1024, path, err);
    if (i == MAX_FILE)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such file", path);
    k = i < disk->n_made ? i : disk->part[i].like;
    k = k < disk->n_made ? k : disk->n_made - 1;
    return ckpt_file_memory(out, disk->made[k].file.data, disk->made[k].file.len, path, err);
}

static int list(void *self, const char *path, struct ckpt_arena *arena, struct ckpt_entry **out,
                size_t *n, struct ckpt_err *err)
{
    const struct folder *d = self;
    size_t len = strlen(d->prefix), k;

    (void)path;
    *n = 0;
    *out = ckpt_arena_alloc(arena, MAX_FILE, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, MAX_FILE * sizeof **out);
    for (const struct part *p = d->disk->part; p < d->disk->part + MAX_FILE && p->path; p++) {
        const char *name;

        if (strncmp(p->path, d->prefix, len) != 0)
            continue;
        name = ckpt_arena_strndup(arena, p->path + len, strcspn(p->path + len, "/"));
        if (!name)
            return ckpt_nomem(err, strlen(p->path));
        for (k = 0; k < *n && strcmp((*out)[k].name, name) != 0; k++)
            ;
        if (k == *n)
            (*out)[(*n)++] = (struct ckpt_entry){.name = name, .is_dir = strchr(p->path + len, '/'),
                                                 .is_file = !strchr(p->path + len, '/')};
    }
    return 0;
}

static const struct dir_ops folder_ops = {.open_file = open_file, .open_dir = open_dir,
                                          .list = list, .has = has, .close = ckpt_free};

/* -- what is done with it -------------------------------------------------------------------- */

/* The ranks of a new cut hold each element of a parameter once. */
static void cut(struct ckpt_source *src, int stage, int world)
{
    struct ckpt_err err = {0};
    struct ds_cut cut = {0};

    if (ds_cut_plan(&cut, ckpt_source_tensors(src), src, stage, world, &err) == 0)
        for (size_t i = 0; i < cut.run.n_param; i++) {
            int64_t at = 0;

            for (int r = 0; r < world; r++) {
                struct ds_piece p = ds_run_piece(&cut.run, i, r);

                if (p.count < 0 || (p.count > 0 && p.start != at) || p.at < 0)
                    abort();
                at += p.count;
            }
            if (at != cut.run.param[i].numel)
                abort();
        }
    else if (!err.text[0])
        abort();
    ds_cut_release(&cut);
}

static void use(const struct disk *disk, bool optimizer)
{
    const struct ckpt_open_opts opts = {.optimizer = optimizer};
    struct ckpt_place place = {.path = "tag"};
    struct ckpt_source *src = NULL;
    struct ckpt_arena arena = {0};
    struct ckpt_entry *entry;
    struct ckpt_err err = {0};

    if (open_folder(&place.dir, disk, "", "", "tag", &err) ||
        ckpt_dir_list(place.dir, &arena, &entry, &place.n_entry, &err))
        abort();
    place.entry = entry;
    if (ckpt_format_deepspeed.open(&src, &place, &opts, &err) == 0) {
        read_tensors(src);
        for (int stage = 1; stage <= 3; stage++)
            cut(src, stage, 3);
    } else if (!err.text[0]) {
        abort();
    }
    ckpt_source_close(src);
    place_close(&place);
    ckpt_arena_release(&arena);
}

/* A pickle ends where the next begins: STOP, PROTO 2. */
static size_t pickle_size(const uint8_t *data, size_t size)
{
    for (size_t i = 1; i + 2 < size; i++)
        if (memcmp(data + i, ".\x80\x02", 3) == 0)
            return i + 1;
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct disk disk = {0};
    bool ok = true;
    uint8_t how;

    if (size < 2)
        return 0;
    how = *data++;
    size--;
    disk.part = layout[(how & 0x3f) % (sizeof layout / sizeof layout[0])];
    memset(made_payload, 0, 8);
    made_payload[2] = how & UNEQUAL ? 0x80 : 0;
    while (size > 0 && disk.n_made < MAX_FILE) {
        size_t n = pickle_size(data, size);

        ok = make_archive(&disk.made[disk.n_made++], data, n, false) && ok;
        data += n;
        size -= n;
    }
    if (ok)
        use(&disk, !(how & WITHOUT_OPTIMIZER));
    for (size_t i = 0; i < disk.n_made; i++)
        release_archive(&disk.made[i]);
    return 0;
}
