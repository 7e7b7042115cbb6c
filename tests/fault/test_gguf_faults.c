/*
 * GGUF files under failure: a model is written as one, packed and as it is, and seen as a model
 * again; the n-th allocation, read, write, sync, rename and open fails, for every n there is.
 * Each time: a sentence, nothing under the final name and nothing beside it, no leak (asan
 * tells); or the output is whole.
 */
#include "tests/fault/jobs.h"
#include "tests/unit/compare.h"

#include "formats/gguf/requantize.h"
#include "formats/gguf/as_model.h"
#include "formats/gguf/of_model.h"
#include "libckpt/copy.h"

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
    {"tests/golden/gguf/llama", {"none", CKPT_F32}, false},     /* norms become F32, and a key */
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
    return rc ? rc : jobs_read_all(seen, err);
}

TEST(an_undisturbed_run_is_whole)
{
    struct ckpt_err err = {0};

    for (size_t i = 0; i < N_INPUT; i++) {
        if (write_file(&inputs[i], &err) || read_file(&err))
            fail_msg("%s: %s", inputs[i].model, err.text);
        assert_int_equal(entries(DIR_NAME), 1);
        remove(OUT);
    }
}

static int64_t size_of_out(void)
{
    struct stat st;

    return stat(OUT, &st) ? -1 : (int64_t)st.st_size;
}

TEST(writing)
{
    for (size_t i = 0; i < N_INPUT; i++) {
        struct ckpt_err ignored = {0};
        int64_t whole;

        assert_int_equal(write_file(&inputs[i], &ignored), 0);
        whole = size_of_out();
        remove(OUT);
        for (struct faults f = {0}; faults_next(&f);) {
            struct ckpt_err err = {0};
            const char *model = inputs[i].model;
            int rc = write_file(&inputs[i], &err);

            faults_disarm(&f);
            faults_told(&f, rc, &err, model);
            if (rc && entries(DIR_NAME) && f.kind != CKPT_FAULT_SYNC)   /* the directory's, last */
                fail_msg("%s, kind %d, %lu: leaves something", model, f.kind, f.n);
            if (entries(DIR_NAME) && read_file(&err))
                fail_msg("%s, kind %d, %lu: is not whole: %s", model, f.kind, f.n, err.text);
            if (rc == 0 && size_of_out() != whole)
                fail_msg("%s, kind %d, %lu: lacks something", model, f.kind, f.n);
            remove(OUT);
            assert_int_equal(entries(DIR_NAME), 0);
        }
    }
}

TEST(reading)
{
    for (size_t i = 0; i < N_INPUT; i++) {
        struct ckpt_err err = {0};

        assert_int_equal(write_file(&inputs[i], &err), 0);
        for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(READ) | FAULT(OPEN)}; faults_next(&f);) {
            int rc = read_file(&err);

            faults_disarm(&f);
            faults_told(&f, rc, &err, inputs[i].model);
            assert_int_equal(rc != 0, f.struck);
            ckpt_err_clear(&err);
        }
        remove(OUT);
    }
}

BEFORE_ALL()
{
    assert_int_equal(system("rm -rf " DIR_NAME " && mkdir -p " DIR_NAME), 0);
}

AFTER_ALL()
{
    assert_int_equal(system("rm -rf " DIR_NAME), 0);
}
