/*
 * chat - messages -> the text a model was taught to read, by the chat template beside it.
 *
 * Where a template lies, the first that is there: chat_template.jinja, with more by their names
 * in additional_chat_templates/; chat_template of tokenizer_config.json, one or a list of
 * {name, template}.  Of several "tool_use" is taken when there are tools, else "default".
 * The template sees messages (members that are null are left out; reasoning_content, thinking
 * and reasoning stand for each other), tools, documents, add_generation_prompt and the special
 * tokens by their names.
 *
 * Source: transformers 5.23, apply_chat_template and render_jinja_template.
 */
#ifndef CKPT_FORMATS_JINJA_CHAT_H
#define CKPT_FORMATS_JINJA_CHAT_H

#include "formats/jinja/jinja.h"
#include "formats/tokens/tokenizer.h"

struct chat;

/*
 * The templates of a directory.  which: a template's file, or the name of one that the directory
 * has; NULL: those the directory has.  tok names the special tokens that no file of it does.
 * CKPT_ECONFIG when there is none.
 */
int chat_open(struct chat **out, struct ckpt_dir *dir, const char *which,
              const struct tokenizer *tok, struct ckpt_err *err);
void chat_close(struct chat *c);

/* A list of messages as the template is to see it, a new reference.  CKPT_EFORMAT when it is
 * none, or has none. */
int chat_messages(json_t **out, const json_t *list, struct ckpt_err *err);

struct chat_turns {
    const json_t *messages;     /* from chat_messages */
    size_t        n;            /* the first so many of them */
    const json_t *tools;        /* a list, or NULL */
    const json_t *more;         /* an object of further variables, or NULL */
    bool          prompt;       /* add_generation_prompt */
};

/* Whether the template says itself what the assistant wrote ({% generation %}). */
bool chat_marks(const struct chat *c, bool tools);
/* out as in jinja_render.  Any thread. */
int chat_render(const struct chat *c, const struct chat_turns *turns, struct jinja_out *out,
                struct ckpt_err *err);
/* The token that ends texts, or "". */
const char *chat_eos(const struct chat *c);

/* What tells one set of templates and special tokens from another; of a template that asks for the
 * date the day too. */
int chat_digest(const struct chat *c, unsigned char out[16], struct ckpt_err *err);

/* The text of the template that which names, for others to keep; into arena. */
int chat_template_text(const char **out, struct ckpt_dir *dir, const char *which,
                       struct ckpt_arena *arena, struct ckpt_err *err);

#endif
