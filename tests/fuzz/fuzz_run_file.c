/*
 * A run file of any bytes, read as ckpt-train reads it: as one of its own, or of a trainer whose
 * names it has; and as ckpt-push reads a plan.  Seeds: tests/golden/recipes, tests/golden/ds_configs, tests/fuzz/seeds/run_file.
 */
#include <stdint.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "tests/fuzz/lib/target.h"
#include "tools/opt/rows.h"
#include "tools/push/plan_file.h"
#include "tools/train/names.h"

struct values {
    const char     *model, *file, *text;
    int64_t         n;
    double          x;
    bool            on;
    struct opt_list list, pair;
};

#define OPT_VALUES struct values
static const struct opt rows[] = {
    OPT_PATH("model", "PATH", model, "path"),
    OPT_PATH("output-dir", "PATH", file, "path"),
    OPT_TEXT("dataset-name", "NAME", text, "name"),
    OPT_INT("max-steps", "N", n, 0, 1e15, "number"),
    OPT_REAL("learning-rate", "X", x, 0, 1e3, "number"),
    OPT_FLAG("bf16", on, "flag"),
    OPT_LIST("target-modules", "NAMES", list, "list"),
    OPT_LIST("rank-pattern", "NAME=N", pair, "pairs"),
};
#undef OPT_VALUES

#define N (sizeof rows / sizeof rows[0])

static void try_plan(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    struct plan_file f;
    int rc = plan_file_parse(&f, (const char *)data, size, &err);

    must(rc == 0 ? f.n > 0 && f.part[0].source && f.part[0].destination : err.code == rc);
    plan_file_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct opt_slot slot[N];
    struct values v = {0};
    struct ckpt_arena arena = {0};
    struct opt_table t = {.slot = slot, .n = N, .n_tool = N, .arena = &arena,
                          .dialect = train_dialects};
    struct ckpt_err err = {0};
    int rc;

    try_plan(data, size);
    for (size_t i = 0; i < N; i++)
        slot[i] = (struct opt_slot){.row = &rows[i], .values = (char *)&v};
    rc = opt_run_text(&t, "run.yaml", (const char *)data, size, &err);
    if (rc == 0)
        rc = opt_take_later(&t, &err);
    must(rc == 0 || (err.code == rc && err.text[0]));
    ckpt_arena_release(&arena);
    return 0;
}
