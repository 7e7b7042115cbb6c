/*
 * The text path with the n-th allocation or read failing, for every n until none does: an error
 * that says so, nothing leaked, and the same result as before once nothing fails.
 */
#include "tests/unit/faults.h"

#include "trainer/data/loader.h"

/* Open everything, take two steps, close everything. */
static int run_once(const char *path, const char *chat_template, struct ckpt_err *err)
{
    struct data_opts so = {.max_seq_length = 32, .workers = 1, .bad = DATA_BAD_SKIP};
    struct loader_opts lo = {.packing = true, .max_tokens = 64, .grad_accum = 2, .seed = 1,
                             .shuffle = true, .world_size = 1, .prefetch = 1};
    const struct loader_step *step;
    struct tokenizer *tok = NULL;
    struct records *records = NULL;
    struct data_source *source = NULL;
    struct loader *loader = NULL;
    struct ckpt_dir *dir = NULL;
    int rc;

    rc = ckpt_dir_open(&dir, "tests/golden/tokenizers/bloom", 0, err);
    if (rc == 0)
        rc = tokenizer_open_dir(&tok, dir, err);
    if (rc == 0)
        rc = records_open(&records, &path, 1, err);
    so.no_eos = true;
    so.chat_dir = dir;
    so.chat_template = chat_template;
    if (rc == 0)
        rc = data_source_open(&source, records, tok, &so, err);
    if (rc == 0)
        rc = loader_open(&loader, source, &lo, err);
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = loader_next(loader, &step, err);
    loader_close(loader);
    data_source_close(source);
    records_close(records);
    tokenizer_close(tok);
    ckpt_dir_close(dir);
    return rc;
}

#define ROWS "tests/golden/rows.jsonl"
#define CHATS "tests/golden/data/chats.jsonl"
#define TEMPLATE "tests/fuzz/seeds/jinja/qwen3"

TEST(nothing_fails)
{
    struct ckpt_err err = {0};

    if (run_once(ROWS, NULL, &err) || run_once(CHATS, TEMPLATE, &err))
        fail_msg("%s", err.text);
    assert_int_equal(run_once("tests/golden/absent.jsonl", NULL, &err), CKPT_ENOTFOUND);
}

static void fail_each(const char *path, const char *chat_template, unsigned kind, int want)
{
    struct faults f = {.kinds = kind};

    while (faults_next(&f)) {
        struct ckpt_err err = {0};
        int rc = run_once(path, chat_template, &err);

        /* Steps prepared ahead may meet the failure after the last one that was taken. */
        faults_disarm(&f);
        if (rc != 0 && (rc != want || !err.text[0]))
            fail_msg("operation %lu: code %d, \"%s\"", f.n, rc, err.text);
    }
    assert_true(f.rounds > 5);
}

TEST(allocations)
{
    fail_each(ROWS, NULL, FAULT(ALLOC), CKPT_ENOMEM);
    fail_each(CHATS, TEMPLATE, FAULT(ALLOC), CKPT_ENOMEM);
}

TEST(reads)
{
    fail_each(ROWS, NULL, FAULT(READ), CKPT_EIO);
    fail_each(CHATS, TEMPLATE, FAULT(READ), CKPT_EIO);
}
