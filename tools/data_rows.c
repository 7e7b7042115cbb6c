/* data_rows - see data_rows.h. */
#include "tools/data_rows.h"

#include <string.h>

size_t data_rows(struct opt *row, struct data_want *w)
{
    struct data_settings *s = &w->s;
    const struct opt all[] = {
        {0, "dataset-config", "NAME", OPT_STR, &s->rows.config,
         "configuration of README.md, of a data set that has several", NULL, 0, 0, false},
        {0, "data-field", "NAME", OPT_STR, &s->rows.field,
         "member of a JSON document that holds the records", NULL, 0, 0, false},
        {0, "csv-delimiter", "CHAR", OPT_STR, &w->delimiter,
         "what is between CSV values; tab is one too", NULL, 0, 0, false},
        {0, "csv-columns", "LIST", OPT_STR, &s->rows.columns,
         "names of CSV columns with commas between: the file has no header", NULL, 0, 0, false},
        {0, "csv-literal", NULL, OPT_FLAG, &s->rows.literal,
         "CSV values are text; only an empty one is null", NULL, 0, 0, false},
        {0, "field-mapping", "JSON", OPT_STR, &s->field_mapping,
         "{\"field\": \"column\"}: other names for columns", NULL, 0, 0, false},
        {0, "text-field", "NAME", OPT_STR, &s->text_field,
         "column that is text to learn as a whole", NULL, 0, 0, false},
        {0, "messages-field", "NAME", OPT_STR, &s->messages_field,
         "column that is a chat (default: messages or conversations)", NULL, 0, 0, false},
        {0, "chat-template", "FILE", OPT_PATH, &s->chat_template,
         "chat template in place of the model's, or the name of one that it has", NULL, 0, 0,
         false},
        {0, "mask-history", NULL, OPT_FLAG, &s->mask_history,
         "of a chat learn the last turn of the assistant alone", NULL, 0, 0, false},
        {0, "prompt-template", "TEXT", OPT_STR, &s->prompt_template,
         "prompt made of {field}s of a record", NULL, 0, 0, false},
        {0, "completion-template", "TEXT", OPT_STR, &s->completion_template,
         "completion made of {field}s of a record", NULL, 0, 0, false},
        {0, "train-on-prompt", NULL, OPT_FLAG, &s->train_on_prompt,
         "take the loss on prompts too", NULL, 0, 0, false},
        {0, "max-seq-length", "N", OPT_INT, &s->max_seq_length,
         "cut samples to this many tokens", NULL, 1, 1 << 20, false},
        {0, "truncation-side", "SIDE", OPT_CHOICE, &s->truncation_side,
         "which end of a longer sample goes", "right left", 0, 0, false},
        {0, "add-eos-token", NULL, OPT_FLAG, &s->add_eos_token,
         "end a text with the token that ends texts (default)", NULL, 0, 0, false},
        {0, "skip-bad-rows", "N", OPT_INT, &s->skip_bad_rows,
         "skip up to this many rows that cannot be used, and count them", NULL, 0, 1e15, false},
    };

    _Static_assert(sizeof all / sizeof all[0] <= DATA_ROWS, "more rows than callers have room for");
    memcpy(row, all, sizeof all);
    return sizeof all / sizeof all[0];
}

int data_rows_take(struct data_want *w, struct ckpt_err *err)
{
    const char *text = w->delimiter;

    if (!text)
        return 0;
    if (strcmp(text, "tab") != 0 && strcmp(text, "\\t") != 0 && strlen(text) != 1)
        return ckpt_fail(err, CKPT_EUSAGE, "--csv-delimiter: \"%s\" is not one byte", text);
    w->s.rows.delimiter = text[1] ? '\t' : *text;
    return 0;
}
