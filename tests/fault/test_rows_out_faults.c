/*
 * Generated rows under each failure: a sentence, and FILE.part has whole rows but for the last; FILE
 * is there with every row, or not at all.
 */
#include "tests/unit/faults.h"
#include "tests/unit/files.h"

#include "tools/eval/rows_out.h"

#define N 5

static const char *dir;
static char path[600], part[600];
static const char *texts[N] = {"one", "two \"quoted\"", "", "four\n", "five"};

BEFORE_EACH()
{
    dir = scratch("rows-out-faults");
    file_in(path, dir, "rows.jsonl");
    file_in(part, dir, "rows.jsonl.part");
}

static int write_rows(bool in_order, struct ckpt_err *err)
{
    static const size_t order[N] = {2, 0, 1, 4, 3};
    char *prompt[N], *reference[N], *text[N] = {0}, *logprobs[N] = {0}, *answers[N] = {0};
    const char *finish[N];
    int64_t n_tokens[N];
    struct eval_result r = {.n = N, .prompt = prompt, .reference = reference, .text = text,
                            .finish = finish, .n_tokens = n_tokens, .logprobs = logprobs,
                            .answers_json = answers};
    struct rows_out *out = NULL;
    int rc = rows_out_open(&out, path, in_order, true, err);

    for (size_t i = 0; i < N; i++) {
        prompt[i] = (char *)(uintptr_t)"p";
        reference[i] = (char *)(uintptr_t)"";
        finish[i] = "stop";
        n_tokens[i] = (int64_t)i;
    }
    for (size_t k = 0; rc == 0 && k < N; k++) {
        text[order[k]] = (char *)(uintptr_t)texts[order[k]];
        rc = rows_out_put(out, &r, order[k], NULL, err);
    }
    rc = rc ? rc : rows_out_commit(out, err);
    rows_out_close(out);
    return rc;
}

/* Rows of the file, which end in newlines, are in order where they should be. */
static size_t count_rows(const char *file, bool in_order, bool whole)
{
    FILE *f = fopen(file, "re");
    char line[256];
    size_t n = 0, index;

    if (!f)
        return SIZE_MAX;
    while (fgets(line, sizeof line, f)) {
        if (!strchr(line, '\n')) {
            assert_false(whole);
            break;
        }
        assert_int_equal(sscanf(line, "{\"index\": %zu, ", &index), 1);
        if (in_order)
            assert_int_equal(index, n);
        n++;
    }
    fclose(f);
    return n;
}

TEST_ERR(every_row_is_there)
{
    for (int in_order = 0; in_order < 2; in_order++) {
        assert_int_equal(write_rows(in_order, err), 0);
        assert_int_equal(count_rows(path, in_order, true), N);
        assert_int_equal(entries(dir), 1);
    }
}

static void fail_each(bool in_order)
{
    for (struct faults f = {0}; faults_next(&f);) {
        struct ckpt_err err = {0};
        int rc = write_rows(in_order, &err);

        faults_disarm(&f);
        faults_told(&f, rc, &err, path);
        if (rc == 0 || access(path, F_OK) == 0)
            assert_int_equal(count_rows(path, in_order, true), N);
        else if (access(part, F_OK) == 0)
            assert_true(count_rows(part, in_order, false) <= N);
        unlink(path);
        unlink(part);
        assert_int_equal(entries(dir), 0);
    }
}

TEST(any_failure_is_told_and_keeps_rows) { fail_each(false); }
TEST(any_failure_is_told_and_keeps_rows_in_order) { fail_each(true); }
