/*
 * data/conversation - a record that is a conversation -> text, and which bytes of it carry loss.
 *
 *   messages        [{role, content, ...}, ...], or the JSON text of it
 *   conversations   (or conversation) the same, or ShareGPT's [{from, value}, ...] with human,
 *                   gpt, ...; a column system is then the first message
 *   prompt, completion   lists of messages both
 *
 * Beside them: tools (a list, or its JSON text) and chat_template_kwargs go to the template.
 *
 * Loss is on what the assistant wrote: the template's {% generation %} spans where it has them;
 * otherwise the chat is rendered in parts: a turn begins where the chat before it, rendered with
 * the generation prompt, first differs from the whole text, and ends where the chat up to and
 * including it ends.  That rendering must be a prefix of the whole (except for a closing eos,
 * which some templates put after every text), or else a marker put after the turn's content must
 * show the place.  Of prompt and completion, loss is on the completion, which begins where the
 * rendered prompt first differs from the text.  A turn of the assistant with "weight": 0 carries no
 * loss, as in OpenAI's and Mistral's files.
 *
 * Source: trl 1.16 sft_trainer.py (assistant_only_loss, completion_only_loss), data_utils.py.
 */
#ifndef CKPT_TRAINER_DATA_CONVERSATION_H
#define CKPT_TRAINER_DATA_CONVERSATION_H

#include "formats/jinja/chat.h"

enum conversation_loss {
    CONVERSATION_ASSISTANT, /* all turns of the assistant, or the completion of a prompt */
    CONVERSATION_LAST,      /* only the last of these */
    CONVERSATION_ALL        /* every token */
};

struct conversation {
    json_t *messages;   /* of prompt and completion together */
    size_t  n_prompt;   /* how many messages are the prompt's; 0: one list */
    json_t *tools;      /* a list, or NULL */
    json_t *more;       /* chat_template_kwargs, or NULL */
};

/* The field that makes a record a chat, "prompt" with completion; NULL when it is not a chat. */
const char *conversation_field(const json_t *record);
/* Parse a record; t is zeroed before, release it either way.  CKPT_EFORMAT says why it is not a
 * chat. */
int conversation_of(struct conversation *t, const json_t *record, const char *field,
                    struct ckpt_err *err);
void conversation_release(struct conversation *t);
/* Fill out->text, and out->span with the parts with loss: at least one, none empty. */
int conversation_render(const struct conversation *t, const struct chat *c,
                        enum conversation_loss loss, struct jinja_out *out,
                        struct ckpt_err *err);
/*
 * The question to a model, rendered with the generation prompt, and the last answer of the
 * assistant ("" when the chat ends otherwise).  Both are appended.
 */
int conversation_question(const struct conversation *t, const struct chat *c,
                          struct ckpt_buf *prompt, struct ckpt_buf *answer,
                          struct ckpt_err *err);

#endif
