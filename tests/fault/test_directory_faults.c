/*
 * what is written as a directory, under failure: model directories of shards, adapters folded into
 * their base, distributed checkpoints; the n-th allocation, read, write, sync, rename and open fails,
 * for every n there is.  Each time: a sentence, nothing under the final name and nothing beside it,
 * no leak (asan tells); or the output is whole.
 */
#include "tests/unit/compare.h"
#include "tests/unit/faults.h"

#include "formats/peft/peft.h"

#define GOLDEN   "tests/golden/"
#define DIR_NAME "build/test_directory_faults"
#define OUT      DIR_NAME "/out"

static const struct input {
    const char *format, *base, *adapter;
    bool        allocations;            /* alone: the rest ends in many syncs */
} inputs[] = {
    {"hf", GOLDEN "hf/sharded", NULL, false},
    {"hf", GOLDEN "hf/bin", NULL, false},
    {"hf", GOLDEN "lora/llama-embed/base", GOLDEN "lora/llama-embed/adapter", false},
    {"hf", GOLDEN "lora/llama-dora/base", GOLDEN "lora/llama-dora/adapter", false},
    {"hf", GOLDEN "lora/llama-tokens/base", GOLDEN "lora/llama-tokens/adapter", false},
    {"hf", GOLDEN "lora/gptoss-experts/base", GOLDEN "lora/gptoss-experts/adapter", false},
    {"hf", GOLDEN "lora/llama-resized-tied/base", GOLDEN "lora/llama-resized-tied/adapter", false},
    {"hf", GOLDEN "lora/net-conv/base", GOLDEN "lora/net-conv/adapter", false},
    {"dcp", GOLDEN "fsdp/2.15-more/mesh2d", NULL, false},
    {"dcp", GOLDEN "fsdp/2.15-more/st", NULL, false},
    {"dcp", GOLDEN "fsdp/2.11-dcp_hf", NULL, true},
    {"dcp", GOLDEN "fsdp/2.11-dcp_flatosd", NULL, true},
    {"dcp", GOLDEN "fsdp/2.15-more/ranks", NULL, true},
};
#define N_INPUT (sizeof inputs / sizeof inputs[0])

static int open_input(struct ckpt_source **out, const struct input *in, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.optimizer = strcmp(in->format, "dcp") == 0};
    struct ckpt_source *base, *adapter;
    int rc = ckpt_open(&base, in->base, &opts, err);

    *out = NULL;
    if (rc)
        return rc;
    if (!in->adapter) {
        *out = base;
        return 0;
    }
    rc = ckpt_open(&adapter, in->adapter, NULL, err);
    if (rc) {
        ckpt_source_close(base);
        return rc;
    }
    return peft_merge(out, base, &(struct peft_adapter){adapter, "adapter", 1}, 1, err);
}

static int run(const struct input *in, struct ckpt_err *err)
{
    bool dcp = strcmp(in->format, "dcp") == 0;
    struct ckpt_create_opts create = {.max_shard_bytes = dcp ? 200 : 8000};
    struct ckpt_copy_opts copy = {.workers = 1, .chunk_bytes = 4096};
    struct ckpt_source *src;
    struct ckpt_sink *sink;
    int rc = open_input(&src, in, err);

    if (rc) {
        assert_null(src);
        return rc;
    }
    create.n_extra = ckpt_source_extras(src, &create.extra);
    if (dcp)
        create.info = ckpt_source_info(src);
    rc = ckpt_create(&sink, in->format, OUT, ckpt_source_tensors(src), &create, err);
    if (rc == 0) {
        rc = ckpt_copy(sink, src, &copy, err);
        if (rc)
            ckpt_sink_abort(sink);
        else
            rc = ckpt_sink_commit(sink, err);
    }
    ckpt_source_close(src);
    return rc;
}

/* What stands is what an undisturbed run writes. */
static void expect_whole(const struct input *in)
{
    struct ckpt_open_opts opts = {.optimizer = strcmp(in->format, "dcp") == 0};
    struct ckpt_source *found = must_open(OUT, &opts), *wanted;
    struct ckpt_err err = {0};

    assert_int_equal(open_input(&wanted, in, &err), 0);
    assert_int_equal(ckpt_source_count(found), ckpt_source_count(wanted));
    for (size_t i = 0; i < ckpt_source_count(wanted); i++)
        assert_same_tensor(found, ckpt_source_tensor(wanted, i)->name, wanted, i, OUT);
    ckpt_source_close(found);
    ckpt_source_close(wanted);
    if (ckpt_outdir_remove(OUT, &err))
        fail_msg("%s", err.text);
}

BEFORE_ALL() { scratch_at(DIR_NAME); }
AFTER_ALL()  { assert_int_equal(rmdir(DIR_NAME), 0); }

TEST(an_undisturbed_run_is_whole)
{
    for (size_t i = 0; i < N_INPUT; i++) {
        struct ckpt_err err = {0};

        if (run(&inputs[i], &err))
            fail_msg("%s: %s", inputs[i].base, err.text);
        assert_int_equal(entries(DIR_NAME), 1);
        expect_whole(&inputs[i]);
    }
}

static void fail_each(unsigned kinds, const struct input *in)
{
    for (struct faults f = {.kinds = kinds}; faults_next(&f);) {
        struct ckpt_err err = {0};
        int rc = run(in, &err), n;

        faults_disarm(&f);
        faults_told(&f, rc, &err, in->base);
        n = entries(DIR_NAME);
        /* A commit whose last sync failed may have got its name already: then it is whole. */
        if (rc && n && f.kind != CKPT_FAULT_SYNC)
            fail_msg("kind %d, %lu: leaves something: %s", f.kind, f.n, err.text);
        if (rc == 0 || n)
            expect_whole(in);
        assert_int_equal(entries(DIR_NAME), 0);
    }
}

TEST(allocations)
{
    for (size_t i = 0; i < N_INPUT; i++)
        fail_each(FAULT(ALLOC), &inputs[i]);
}

TEST(files)
{
    for (size_t i = 0; i < N_INPUT; i++)
        if (!inputs[i].allocations)
            fail_each(FAULT(READ) | FAULT(WRITE) | FAULT(SYNC) | FAULT(RENAME) | FAULT(OPEN),
                      &inputs[i]);
}
