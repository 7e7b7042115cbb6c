/*
 * A record of any shape as a question with choices: a context without white space at its end and a
 * continuation for each choice, one of which is right, or an error that says why and is no lack of
 * memory.  By its own choices, by those of the command line, and with a template.
 */
#include "libckpt/base/json.h"
#include "tests/fuzz/lib/target.h"
#include "tools/eval/tasks/choice_row.h"

static void check(const json_t *record, const struct choice_opts *o)
{
    struct choice_row row = {0};
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};

    if (choice_row_read(&row, record, o, &arena, &err)) {
        must(err.text[0] && err.code != CKPT_ENOMEM);
    } else {
        size_t len = strlen(row.context);

        must(row.n > 0 && row.right < row.n);
        must(len == 0 || !strchr(" \t\r\n\f\v", row.context[len - 1]));
        for (size_t i = 0; i < row.n; i++) {
            size_t whole = strlen(row.continuation[i]), own = strlen(row.choice[i]);

            must(whole > own && strcmp(row.continuation[i] + whole - own, row.choice[i]) == 0);
        }
    }
    ckpt_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const words[] = {"negative", "positive"};
    static struct template *prompt;
    struct ckpt_err err = {0};
    json_t *record;

    if (!prompt)
        must(template_parse(&prompt, "{text} It is ", &err) == 0);
    if (ckpt_json_parse(&record, (const char *)data, size, CKPT_JSON_STRICT, &err))
        return 0;
    check(record, &(struct choice_opts){0});
    check(record, &(struct choice_opts){.words = {words, 2}});
    check(record, &(struct choice_opts){.prompt = prompt});
    json_decref(record);
    return 0;
}
