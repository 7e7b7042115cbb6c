/*
 * options - data options of a tool: how files are read, what a record is, what is trained on. One
 * struct and one table of options (tools/data_rows.h) serve training and evaluation.
 */
#ifndef CKPT_TRAINER_DATA_OPTIONS_H
#define CKPT_TRAINER_DATA_OPTIONS_H

#include "trainer/data/stream.h"

struct data_settings {
    struct records_opts rows;           /* how files are read; the split is the caller's */
    const char  *field_mapping;         /* JSON, or NULL */
    const char  *text_field;
    const char  *messages_field;        /* column of chats */
    const char  *chat_template;         /* a file, or the name of a template that the model has,
                                           or NULL */
    bool         mask_history;          /* chats: loss on the last turn only */
    const char  *prompt_template;       /* "{field}" text, or NULL */
    const char  *completion_template;
    bool         train_on_prompt;       /* loss on the prompt too */
    bool         chat_prompts;          /* prompt and completion of text are turns of a chat */
    bool         assistant_only_loss;   /* of lists of messages: not on other roles */
    int64_t      max_seq_length;
    int64_t      max_target_length;     /* of a decoder beside an encoder; 0: max_seq_length */
    const char  *truncation_side;       /* "right" or "left" */
    bool         add_eos_token;
    int64_t      skip_bad_rows;         /* most bad rows to skip */
};

void data_settings_default(struct data_settings *s);
/* The part of data_opts that follows from these; the caller adds the rest. */
struct data_opts data_settings_opts(const struct data_settings *s);
/* Set the pair's length; CKPT_ECONFIG where max_target_length has no effect. */
int data_settings_pair(struct sample_pair *pair, const struct data_settings *s,
                       struct ckpt_err *err);
/* Call once a source is open: CKPT_EFORMAT when more rows are bad than allowed, a warning when
 * some are. */
int data_settings_check_bad(const struct data_settings *s, struct data_source *source,
                            struct ckpt_err *err);

#endif
