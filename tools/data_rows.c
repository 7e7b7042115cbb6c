/* data_rows - see data_rows.h. */
#include "tools/data_rows.h"

#define OPT_VALUES struct data_settings
static const struct opt rows_of_data[] = {
    OPT_TEXT("dataset-config", "NAME", rows.config,
             "configuration of a data set whose README.md has several",
             .absent = "the one marked so or called default"),
    OPT_TEXT("data-field", "NAME", rows.field,
             "member of a JSON document that holds the records"),
    OPT_CHAR("csv-delimiter", rows.delimiter, "byte between CSV values, or the word tab",
             .absent = "a comma; tab in a .tsv"),
    OPT_TEXT("csv-columns", "LIST", rows.columns,
             "comma-separated names of CSV columns, for files without a header",
             .absent = "the header"),
    OPT_FLAG("csv-literal", rows.literal, "CSV values are text; only an empty one is null"),
    OPT_TEXT("field-mapping", "JSON", field_mapping,
             "{\"field\": \"column\"}: read fields from columns of other names"),
    OPT_TEXT("text-field", "NAME", text_field, "column of plain text to learn"),
    OPT_TEXT("messages-field", "NAME", messages_field, "column of chats",
             .absent = "messages or conversations"),
    OPT_PATH("chat-template", "FILE", chat_template,
             "chat template to use, or the name of one of the model's", .absent = "the model's"),
    OPT_FLAG("mask-history", mask_history, "learn only the assistant's last turn of a chat"),
    OPT_TEXT("prompt-template", "TEXT", prompt_template,
             "prompt made of {field}s of a record"),
    OPT_TEXT("completion-template", "TEXT", completion_template,
             "completion made of {field}s of a record"),
    OPT_FLAG("chat-prompts", chat_prompts,
             "make a chat of prompt and completion, for the chat template"),
    OPT_FLAG("train-on-prompt", train_on_prompt, "take the loss on prompts too"),
    OPT_FLAG("assistant-only-loss", assistant_only_loss,
             "of a list of messages, take the loss on the assistant's alone"),
    OPT_INT("max-seq-length", "N", max_seq_length, 1, 1 << 20,
            "length of a sample in tokens; longer ones are cut"),
    OPT_INT("max-target-length", "N", max_target_length, 1, 1 << 20,
            "length of what a decoder beside an encoder learns; longer ones are cut",
            .absent = "--max-seq-length"),
    OPT_ENUM("truncation-side", "SIDE", truncation_side, "right left",
             "end at which a longer sample is cut"),
    OPT_FLAG("add-eos-token", add_eos_token, "end a text with the end-of-text token"),
    OPT_INT("skip-bad-rows", "N", skip_bad_rows, 0, 1e15,
            "number of unusable rows to skip before giving up"),
};
#undef OPT_VALUES

struct opt_section data_rows(struct data_settings *s)
{
    return (struct opt_section)OPT_SECTION(rows_of_data, s);
}
