/*
 * GGUF files under failure: a model is written as one, packed and as it is, and seen as a model
 * again.
 */
#include "tests/fault/jobs.h"

#include "formats/gguf/requantize.h"
#include "formats/gguf/as_model.h"
#include "formats/gguf/of_model.h"

SCRATCH_EACH("gguf-faults")

struct input {
    struct ckpt_cast_rule rule;
    bool                  packs;
};

static const char *out(void) { return text_of("%s/out.gguf", dir); }

static int write_file(const struct job *job, struct ckpt_err *err)
{
    const struct input *in = job->input;
    struct ckpt_copy_opts copy = {.workers = 1, .chunk_bytes = 5000};
    struct ckpt_create_opts opts = {.record = "{}"};
    struct ckpt_source *src, *made;
    int rc = ckpt_open(&src, job->name, NULL, err);

    if (rc == 0)
        rc = strstr(job->name, ".gguf")
                 ? gguf_requantize(&made, src, job->name, &in->rule, &in->packs, 1, err)
                 : gguf_of_model(&made, src, &in->rule, &in->packs, 1, err);
    if (rc)
        return rc;
    opts.info = ckpt_source_info(made);
    rc = write_source(out(), "gguf", made, &opts, &copy, err);
    ckpt_source_close(made);
    return rc;
}

/* See the file as a model, and read that to its end. */
static int read_file(const struct job *job, struct ckpt_err *err)
{
    struct ckpt_source *src, *seen;
    int rc;

    (void)job;
    if ((rc = ckpt_open(&src, out(), NULL, err)) != 0 ||
        (rc = gguf_as_model(&seen, src, err)) != 0)
        return rc;
    return jobs_read(seen, err);
}

static void check(const struct job *job)
{
    struct ckpt_err err = {0};

    if (read_file(job, &err))
        fail_msg("%s: %s", job->name, err.text);
    remove(out());
}

static const struct input f32_packed = {{"*", CKPT_F32}, true}, f32 = {{"*", CKPT_F32}, false},
                          f16 = {{"*", CKPT_F16}, false}, attn = {{"*attn*", CKPT_F16}, false};

#define WRITES(path, rule) {.name = path, .run = write_file, .check = check, .input = rule}

static const struct job jobs[] = {
    WRITES("tests/golden/gguf/llama", &f32_packed), WRITES("tests/golden/gguf/mixtral", &f32),
    WRITES("tests/golden/gguf/gpt2", &f16),
    WRITES("tests/golden/gguf/llama.q8_0.gguf", &attn),         /* into another */
};
#define N (sizeof jobs / sizeof jobs[0])

TEST(undisturbed) { jobs_undisturbed(jobs, N, dir); }
TEST(writing) { jobs_fail(jobs, N, dir); }

TEST(reading)
{
    for (size_t i = 0; i < N; i++) {
        struct ckpt_err err = {0};

        assert_int_equal(write_file(&jobs[i], &err), 0);
        for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(READ) | FAULT(OPEN)};
             faults_next(&f);) {
            int rc = read_file(&jobs[i], &err);

            faults_disarm(&f);
            faults_told(&f, rc, &err, jobs[i].name);
            assert_int_equal(rc != 0, f.struck);
        }
        remove(out());
    }
}
