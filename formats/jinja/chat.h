/*
 * chat - render messages as text with the chat template beside a model.
 *
 * The template is the first of these that exists: chat_template.jinja, with more by their names
 * in additional_chat_templates/; chat_template of tokenizer_config.json, one or a list of {name,
 * template}.  Of several, "tool_use" is used when there are tools, else "default".  The template
 * sees messages (members that are null are left out; reasoning_content, thinking and reasoning
 * stand for each other), tools, documents, add_generation_prompt and the special tokens by their
 * names.
 *
 * Source: transformers 5.23, apply_chat_template and render_jinja_template.
 */
#ifndef CKPT_FORMATS_JINJA_CHAT_H
#define CKPT_FORMATS_JINJA_CHAT_H

#include "formats/jinja/jinja.h"
#include "formats/tokens/tokenizer.h"

struct chat;

/*
 * Open the templates of a directory.  which: a template's file, or the name of one in the
 * directory; NULL: the directory's own choice.  tok supplies special tokens that the files do not
 * name.  CKPT_ECONFIG when there is no template.
 */
int chat_open(struct chat **out, struct ckpt_dir *dir, const char *which,
              const struct tokenizer *tok, struct ckpt_err *err);
void chat_close(struct chat *c);

/* Prepare a list of messages for the template, a new reference.  CKPT_EFORMAT when it is not a
 * list, or empty. */
int chat_messages(json_t **out, const json_t *list, struct ckpt_err *err);

struct chat_turns {
    const json_t *messages;     /* from chat_messages */
    size_t        n;            /* use only the first n */
    const json_t *tools;        /* a list, or NULL */
    const json_t *more;         /* an object of further variables, or NULL */
    bool          prompt;       /* add_generation_prompt */
};

/* Whether the template itself marks the assistant's text ({% generation %}). */
bool chat_marks(const struct chat *c, bool tools);
/* out as in jinja_render.  Any thread. */
int chat_render(const struct chat *c, const struct chat_turns *turns, struct jinja_out *out,
                struct ckpt_err *err);
/* The token that ends texts, or "". */
const char *chat_eos(const struct chat *c);

/* A digest of templates and special tokens; of a template that uses the date, the day too. */
int chat_digest(const struct chat *c, unsigned char out[16], struct ckpt_err *err);
/* A digest of the templates' texts alone, wherever they lie and on any day. */
int chat_digest_of_texts(const struct chat *c, unsigned char out[16], struct ckpt_err *err);

/* The text of the template chosen by `which`, to be stored with a model; into arena. */
int chat_template_text(const char **out, struct ckpt_dir *dir, const char *which,
                       struct ckpt_arena *arena, struct ckpt_err *err);

#endif
