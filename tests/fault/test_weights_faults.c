/*
 * model directories and adapters under failure: a base of two shards with its adapter folded in
 * is written as shards and read back; the n-th allocation, read, write, sync, rename and open
 * fails, for every n there is.  Each time: a sentence, nothing under the final name and nothing
 * beside it, no leak (asan tells); or the output is whole.
 */
#include "tests/unit/compare.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/peft/peft.h"
#include "libckpt/base/fault.h"

#define DIR_NAME "build/test_weights_faults"
#define OUT      DIR_NAME "/out"

struct input { const char *base, *adapter; };

static const struct input inputs[] = {
    {"tests/golden/hf/sharded", NULL},
    {"tests/golden/hf/bin", NULL},
    {"tests/golden/lora/llama-embed/base", "tests/golden/lora/llama-embed/adapter"},
    {"tests/golden/lora/llama-dora/base", "tests/golden/lora/llama-dora/adapter"},
    {"tests/golden/lora/llama-tokens/base", "tests/golden/lora/llama-tokens/adapter"},
    {"tests/golden/lora/gptoss-experts/base", "tests/golden/lora/gptoss-experts/adapter"},
    {"tests/golden/lora/llama-resized-tied/base", "tests/golden/lora/llama-resized-tied/adapter"},
    {"tests/golden/lora/net-conv/base", "tests/golden/lora/net-conv/adapter"},
};
#define N_INPUT (sizeof inputs / sizeof inputs[0])

static int open_input(struct ckpt_source **out, const struct input *in, struct ckpt_err *err)
{
    struct ckpt_source *base, *adapter;

    *out = NULL;
    if (ckpt_open(&base, in->base, NULL, err))
        return err->code;
    if (!in->adapter) {
        *out = base;
        return 0;
    }
    if (ckpt_open(&adapter, in->adapter, NULL, err)) {
        ckpt_source_close(base);
        return err->code;
    }
    return peft_merge(out, base, &(struct peft_adapter){adapter, "adapter", 1}, 1, err);
}

static int run(const struct input *in, struct ckpt_err *err)
{
    struct ckpt_create_opts create = {.max_shard_bytes = 8000};
    struct ckpt_copy_opts copy = {.workers = 1, .chunk_bytes = 4096};
    struct ckpt_source *src;
    struct ckpt_sink *sink;
    int rc;

    memset(err, 0, sizeof *err);
    rc = open_input(&src, in, err);
    if (rc) {
        assert_null(src);
        return rc;
    }
    create.n_extra = ckpt_source_extras(src, &create.extra);
    rc = ckpt_create(&sink, "hf", OUT, ckpt_source_tensors(src), &create, err);
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

static size_t entries(void)
{
    DIR *d = opendir(DIR_NAME);
    size_t n = 0;

    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

/* What stands is what an undisturbed run writes. */
static void expect_whole(const struct input *in)
{
    struct ckpt_source *found = must_open(OUT, NULL), *wanted;
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

static void test_an_undisturbed_run_is_whole(void **state)
{
    struct ckpt_err err;

    (void)state;
    for (size_t i = 0; i < N_INPUT; i++) {
        if (run(&inputs[i], &err))
            fail_msg("%s: %s", inputs[i].base, err.text);
        assert_int_equal(entries(), 1);
        expect_whole(&inputs[i]);
    }
}

#ifdef CKPT_FAULTS
static void fail_each(enum ckpt_fault kind, const struct input *in)
{
    struct ckpt_err err;
    bool struck = true;

    for (unsigned long n = 1; struck; n++) {
        int rc;

        ckpt_fault_arm(kind, n);
        rc = run(in, &err);
        struck = ckpt_fault_struck();
        ckpt_fault_arm(kind, 0);
        if (rc && !err.text[0])
            fail_msg("kind %d, %lu: no word", (int)kind, n);
        if (rc == 0) {
            expect_whole(in);
        } else if (!struck) {
            fail_msg("kind %d, %lu: %s", (int)kind, n, err.text);
        } else if (entries()) {
            /* A commit whose last sync failed may have got its name already: then it is whole. */
            if (kind != CKPT_FAULT_SYNC)
                fail_msg("kind %d, %lu: leaves something: %s", (int)kind, n, err.text);
            expect_whole(in);
        }
        assert_int_equal(entries(), 0);
    }
}

static void test_allocations(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_INPUT; i++)
        fail_each(CKPT_FAULT_ALLOC, &inputs[i]);
}

static void test_files(void **state)
{
    static const enum ckpt_fault kinds[] = {CKPT_FAULT_READ, CKPT_FAULT_WRITE, CKPT_FAULT_SYNC,
                                            CKPT_FAULT_RENAME, CKPT_FAULT_OPEN};

    (void)state;
    for (size_t i = 0; i < N_INPUT; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            fail_each(kinds[k], &inputs[i]);
}
#endif

static int setup(void **state)
{
    struct ckpt_err err = {0};
    struct stat st;

    (void)state;
    mkdir("build", 0777);
    if (stat(DIR_NAME, &st) == 0)
        ckpt_outdir_remove(DIR_NAME, &err);
    return mkdir(DIR_NAME, 0777);
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(DIR_NAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_undisturbed_run_is_whole),
#ifdef CKPT_FAULTS
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_files),
#endif
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
