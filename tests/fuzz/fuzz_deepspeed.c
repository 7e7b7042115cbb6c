/*
 * fuzz_deepspeed: any bytes as the folder of a DeepSpeed tag, and that cut anew.
 *
 * The first byte chooses which files there are; pickles follow, one behind another, each made an
 * archive (made_archive.h).  A file whose own pickle is not there has that of one like it: ranks
 * then agree about what was changed.  The folder is memory.
 */
#include "formats/deepspeed/deepspeed.h"
#include "formats/deepspeed/write/cut.h"
#include "tests/fuzz/lib/made_archive.h"
#include "tests/fuzz/lib/memory_dir.h"
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

                must(p.count >= 0 && (p.count == 0 || p.start == at) && p.at >= 0);
                at += p.count;
            }
            must(at == cut.run.param[i].numel);
        }
    else
        must(err.text[0]);
    ds_cut_release(&cut);
}

static void use(const struct memory_file *file, size_t n, bool optimizer)
{
    const struct ckpt_open_opts opts = {.optimizer = optimizer};
    struct ckpt_place place = {.path = "tag", .dir = memory_dir_of(file, n)};
    struct ckpt_source *src = NULL;
    struct ckpt_arena arena = {0};
    struct ckpt_entry *entry;
    struct ckpt_err err = {0};

    must(ckpt_dir_list(place.dir, &arena, &entry, &place.n_entry, &err) == 0);
    place.entry = entry;
    if (ckpt_format_deepspeed.open(&src, &place, &opts, &err) == 0) {
        read_tensors(src, READ_MAY_FAIL);
        for (int stage = 1; stage <= 3; stage++)
            cut(src, stage, 3);
    } else {
        must(err.text[0]);
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

/* Files of a layout; one whose own pickle is not there has that of another. */
static size_t list_files(struct memory_file file[MAX_FILE], const struct part *part,
                         const struct maker *made, size_t n_made)
{
    size_t n = 0;

    for (; n < MAX_FILE && part[n].path; n++) {
        size_t k = n < n_made ? n : part[n].like < n_made ? part[n].like : n_made - 1;

        file[n] = (struct memory_file){part[n].path, made[k].file.data, made[k].file.len};
        if (strcmp(part[n].path, SWAPPED) == 0)
            file[n] = (struct memory_file){SWAPPED, made_payload, 1024};
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_file file[MAX_FILE];
    struct maker made[MAX_FILE];
    size_t n_made = 0, n;
    bool ok = true;
    uint8_t how;

    if (size < 2)
        return 0;
    how = *data++;
    size--;
    memset(made_payload, 0, 8);
    made_payload[2] = how & UNEQUAL ? 0x80 : 0;
    for (; size > 0 && n_made < MAX_FILE; data += n, size -= n) {
        n = pickle_size(data, size);
        made[n_made] = (struct maker){0};
        ok = make_archive(&made[n_made++], data, n, false) && ok;
    }
    n = list_files(file, layout[(how & 0x3f) % (sizeof layout / sizeof layout[0])], made, n_made);
    if (ok)
        use(file, n, !(how & WITHOUT_OPTIMIZER));
    for (size_t i = 0; i < n_made; i++)
        release_archive(&made[i]);
    return 0;
}
