/*
 * GGUF files under failure: a model is written as one, packed and as it is, and seen as a model
 * again; the n-th allocation, read, write, sync, rename and open fails, for every n there is.
 * Each time: a sentence, nothing under the final name and nothing beside it, no leak (asan
 * tells); or the output is whole.
 */
#include "tests/unit/compare.h"

#include <dirent.h>
#include <sys/stat.h>

#include "formats/gguf/requantize.h"
#include "formats/gguf/as_model.h"
#include "formats/gguf/of_model.h"
#include "libckpt/copy.h"
#include "libckpt/base/fault.h"

#define DIR_NAME "build/test_gguf_faults"
#define OUT      DIR_NAME "/out.gguf"

static const struct input {
    const char           *model;
    struct ckpt_cast_rule rule;
    bool                  packs;
} inputs[] = {
    {"tests/golden/gguf/llama", {"*", CKPT_F32}, true},
    {"tests/golden/gguf/mixtral", {"*", CKPT_F32}, false},
    {"tests/golden/gguf/gpt2", {"*", CKPT_F16}, false},
    {"tests/golden/gguf/llama.q8_0.gguf", {"*attn*", CKPT_F16}, false},     /* into another */
};
#define N_INPUT (sizeof inputs / sizeof inputs[0])

/* Write OUT, then see it as a model and read that to its end. */
static int write_file(const struct input *in, struct ckpt_err *err)
{
    struct ckpt_copy_opts copy = {.workers = 1, .chunk_bytes = 5000};
    struct ckpt_create_opts create = {.record = "{}"};
    struct ckpt_source *src, *made;
    struct ckpt_sink *sink;
    int rc = ckpt_open(&src, in->model, NULL, err);

    if (rc == 0)
        rc = strstr(in->model, ".gguf")
                 ? gguf_requantize(&made, src, in->model, &in->rule, &in->packs, 1, err)
                 : gguf_of_model(&made, src, &in->rule, &in->packs, 1, err);
    if (rc)
        return rc;
    create.info = ckpt_source_info(made);
    rc = ckpt_create(&sink, "gguf", OUT, ckpt_source_tensors(made), &create, err);
    if (rc == 0) {
        rc = ckpt_copy(sink, made, &copy, err);
        if (rc)
            ckpt_sink_abort(sink);
        else
            rc = ckpt_sink_commit(sink, err);
    }
    ckpt_source_close(made);
    return rc;
}

static int read_file(struct ckpt_err *err)
{
    struct ckpt_source *src, *seen;
    int rc = ckpt_open(&src, OUT, NULL, err);

    if (rc == 0)
        rc = gguf_as_model(&seen, src, err);
    if (rc)
        return rc;
    for (size_t i = 0; rc == 0 && i < ckpt_source_count(seen); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(seen, i);
        void *p = malloc((size_t)ckpt_tensor_bytes(t) + 1);

        rc = ckpt_source_read(seen, i, 0, t->numel, p, err);
        free(p);
    }
    ckpt_source_close(seen);
    return rc;
}

static size_t left(void)
{
    DIR *d = opendir(DIR_NAME);
    size_t n = 0;

    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

TEST(an_undisturbed_run_is_whole)
{
    struct ckpt_err err = {0};

    for (size_t i = 0; i < N_INPUT; i++) {
        if (write_file(&inputs[i], &err) || read_file(&err))
            fail_msg("%s: %s", inputs[i].model, err.text);
        assert_int_equal(left(), 1);
        remove(OUT);
    }
}

#ifdef CKPT_FAULTS
static void fail_each(enum ckpt_fault kind, const struct input *in)
{
    struct ckpt_err err;
    bool struck = true;

    for (unsigned long n = 1; struck; n++) {
        int rc;

        memset(&err, 0, sizeof err);
        ckpt_fault_arm(kind, n);
        rc = write_file(in, &err);
        struck = ckpt_fault_struck();
        ckpt_fault_arm(kind, 0);
        if (rc && (!err.text[0] || !struck))
            fail_msg("%s, kind %d, %lu: %s", in->model, (int)kind, n, err.text);
        if (rc && left() && kind != CKPT_FAULT_SYNC)    /* the last one, of the directory */
            fail_msg("%s, kind %d, %lu: leaves something", in->model, (int)kind, n);
        if (left() && read_file(&err))
            fail_msg("%s, kind %d, %lu: is not whole: %s", in->model, (int)kind, n, err.text);
        remove(OUT);
        assert_int_equal(left(), 0);
    }
}

TEST(writing)
{
    for (size_t i = 0; i < N_INPUT; i++)
        for (int kind = 0; kind < CKPT_FAULT_KINDS; kind++)
            fail_each((enum ckpt_fault)kind, &inputs[i]);
}

TEST(reading)
{
    static const enum ckpt_fault kinds[] = {CKPT_FAULT_ALLOC, CKPT_FAULT_READ, CKPT_FAULT_OPEN};
    struct ckpt_err err;

    for (size_t i = 0; i < N_INPUT; i++) {
        assert_int_equal(write_file(&inputs[i], &err), 0);
        for (size_t k = 0; k < 3; k++)
            for (unsigned long n = 1, struck = 1; struck; n++) {
                int rc;

                memset(&err, 0, sizeof err);
                ckpt_fault_arm(kinds[k], n);
                rc = read_file(&err);
                struck = ckpt_fault_struck();
                ckpt_fault_arm(kinds[k], 0);
                if ((rc != 0) != (struck != 0) || (rc && !err.text[0]))
                    fail_msg("kind %d, %lu: %d %s", (int)kinds[k], n, rc, err.text);
            }
        remove(OUT);
    }
}
#endif

static int make_dir(void **state)
{
    return system("rm -rf " DIR_NAME " && mkdir -p " DIR_NAME);
}

static int remove_dir(void **state)
{
    return system("rm -rf " DIR_NAME);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_undisturbed_run_is_whole),
#ifdef CKPT_FAULTS
        cmocka_unit_test(test_writing),
        cmocka_unit_test(test_reading),
#endif
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
