/*
 * Formats that are written as a directory, under failure: model directories of shards, adapters
 * folded into their base, distributed checkpoints.
 */
#include "tests/fault/jobs.h"

#include "formats/peft/peft.h"

SCRATCH_EACH("directory-faults")

#define GOLDEN "tests/golden/"

/* adapter NULL: none */
struct input { const char *format, *adapter; };

static const char *out(void) { return text_of("%s/out", dir); }

static int open_input(struct ckpt_source **src, const struct job *job, struct ckpt_err *err)
{
    const struct input *in = job->input;
    struct ckpt_open_opts opts = {.optimizer = strcmp(in->format, "dcp") == 0};
    struct ckpt_source *base, *adapter;
    int rc;

    *src = NULL;
    if ((rc = ckpt_open(&base, job->name, &opts, err)) != 0)
        return rc;
    if (!in->adapter) {
        *src = base;
        return 0;
    }
    if ((rc = ckpt_open(&adapter, in->adapter, NULL, err)) != 0) {
        ckpt_source_close(base);
        return rc;
    }
    return peft_merge(src, base, &(struct peft_adapter){adapter, "adapter", 1}, 1, err);
}

static int run(const struct job *job, struct ckpt_err *err)
{
    const struct input *in = job->input;
    bool dcp = strcmp(in->format, "dcp") == 0;
    struct ckpt_copy_opts copy = {.workers = 1, .chunk_bytes = 4096};
    struct ckpt_create_opts opts = {.max_shard_bytes = dcp ? 200 : 8000};
    struct ckpt_source *src;
    int rc = open_input(&src, job, err);

    if (rc) {
        assert_null(src);
        return rc;
    }
    opts.n_extra = ckpt_source_extras(src, &opts.extra);
    opts.info = dcp ? ckpt_source_info(src) : NULL;
    rc = write_source(out(), in->format, src, &opts, &copy, err);
    ckpt_source_close(src);
    return rc;
}

/* The output is that of an undisturbed run. */
static void check(const struct job *job)
{
    const struct input *in = job->input;
    struct ckpt_open_opts opts = {.optimizer = strcmp(in->format, "dcp") == 0};
    struct ckpt_source *found = must_open(out(), &opts), *wanted;
    struct ckpt_err err = {0};

    assert_int_equal(open_input(&wanted, job, &err), 0);
    assert_same_tensors(found, wanted, job->name);
    ckpt_source_close(found);
    ckpt_source_close(wanted);
    if (ckpt_outdir_remove(out(), &err))
        fail_msg("%s", err.text);
}

#define ROW(format, base, adapter, kind) \
    {.name = GOLDEN base, .run = run, .check = check, .kinds = kind, \
     .input = &(const struct input){format, adapter}}
#define MERGED(name) ROW("hf", "lora/" name "/base", GOLDEN "lora/" name "/adapter", 0)

static const struct job jobs[] = {
    ROW("hf", "hf/sharded", NULL, 0),
    ROW("hf", "hf/bin", NULL, 0),
    MERGED("llama-embed"), MERGED("llama-dora"), MERGED("llama-tokens"),
    MERGED("gptoss-experts"), MERGED("llama-resized-tied"), MERGED("net-conv"),
    ROW("dcp", "fsdp/2.15-more/mesh2d", NULL, 0),
    ROW("dcp", "fsdp/2.15-more/st", NULL, 0),
    /* Allocations alone: the rest ends in many syncs. */
    ROW("dcp", "fsdp/2.11-dcp_hf", NULL, FAULT(ALLOC)),
    ROW("dcp", "fsdp/2.11-dcp_flatosd", NULL, FAULT(ALLOC)),
    ROW("dcp", "fsdp/2.15-more/ranks", NULL, FAULT(ALLOC)),
};
#define N (sizeof jobs / sizeof jobs[0])

TEST(undisturbed) { jobs_undisturbed(jobs, N, dir); }
TEST(each_failure_is_told) { jobs_fail(jobs, N, dir); }
