/* choices: all choices of a row share its context.  [A, E7, X3] */
#include "tests/unit/golden_tokens.h"
#include "tests/unit/records_help.h"

#include <malloc.h>

#include "formats/families/arch.h"
#include "tools/eval/tasks/choices.h"

#define CHOICES 4000

static struct session s;
static struct records *rows;
static struct choices *choices;

BEFORE_EACH()
{
    struct ckpt_err err = {0};
    json_t *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "n_embd", 8,
                               "n_head", 2, "n_layer", 1, "n_positions", 1024, "vocab_size", 4096);

    if (arch_read_json(&s.arch, config, &err))
        fail_msg("%s", err.text);
    json_decref(config);
    s.tokenizer = open_named("gpt2");
}

AFTER_EACH()
{
    choices_close(choices);
    records_close(rows);
    tokenizer_close(s.tokenizer);
    arch_free(s.arch);
    choices = NULL;
    rows = NULL;
    s = (struct session){0};
}

/* Open a row of that many choices, of which each is a space and a digit or more. */
static int open_row(const char *prompt, int n, const struct choices_opts *o, struct ckpt_err *err)
{
    json_t *list = json_array(), *row;
    const char *path;
    char *text;

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_sprintf("%d", i));
    row = json_pack("{s:s, s:o, s:i}", "prompt", prompt, "choices", list, "label", 0);
    text = json_dumps(row, 0);
    json_decref(row);
    path = put_in(scratch("choices"), "rows.jsonl", text);
    free(text);
    rows = must_open_records(path, NULL);
    return choices_open(&choices, rows, &s, o, err);
}

/* The tokens of a text. */
static int64_t tokens_of(const char *text)
{
    struct encoding e = {0};
    struct ckpt_err err = {0};
    int64_t n;

    if (tokenizer_encode(s.tokenizer, &e, text, strlen(text), false, &err))
        fail_msg("%s", err.text);
    n = (int64_t)e.n;
    encoding_release(&e);
    return n;
}

TEST_ERR(many_choices_keep_one_context)
{
    size_t before = mallinfo2().uordblks, taken;
    char prompt[6001];

    memset(prompt, 'a', sizeof prompt - 1);
    for (size_t i = 0; i < sizeof prompt - 1; i += 6)
        prompt[i] = ' ';
    prompt[0] = 'b';
    prompt[sizeof prompt - 1] = '\0';
    assert_int_equal(open_row(prompt, CHOICES, &(struct choices_opts){.batch = 1}, err), 0);
    assert_true(choices_plan(choices).max_tokens > 1000);
    taken = mallinfo2().uordblks - before;
    if (taken > CHOICES * 1024)         /* a context is 4 KiB of ids, and 6,000 characters */
        fail_msg("%zu bytes", taken);
}

TEST_ERR(the_longest_is_that_of_a_context_with_a_choice)
{
    int64_t longest = 0;

    for (int i = 0; i < 1001; i++) {
        char text[64];
        int64_t n;

        snprintf(text, sizeof text, "How many are there? %d", i);
        n = tokens_of(text);
        longest = n > longest ? n : longest;
    }
    assert_int_equal(open_row("How many are there?", 1001,
                              &(struct choices_opts){.batch = 3}, err), 0);
    assert_int_equal(choices_plan(choices).max_tokens, 3 * (longest - 1));
}

TEST_ERR(what_is_too_long_loses_its_beginning)
{
    assert_int_equal(open_row("How many are there of them, or were there?", 12,
                              &(struct choices_opts){.batch = 1, .max_length = 7}, err), 0);
    assert_int_equal(choices_plan(choices).max_tokens, 7);
}

TEST_ERR(an_empty_context_needs_a_token)
{
    assert_int_equal(open_row("", 2, &(struct choices_opts){.batch = 1}, err), CKPT_EFORMAT);
    assert_non_null(strstr(err->text, "the context is empty"));
}
