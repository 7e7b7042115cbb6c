/* A record of any shape as a chat: spans inside the text, in order, or an error that says why. */
#include "libckpt/base/json.h"
#include "tests/fuzz/lib/memory_dir.h"
#include "trainer/data/conversation.h"

/* Templates of the two kinds: what follows changes what was, and marks. */
static const char *const templates[] = {
    "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</t>')[-1] if not loop.last else m.content }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}{{ tools }}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{{ m.tool_calls }}{% endfor %}",
};

static void check(const struct conversation *talk, const struct chat *chat,
                  enum conversation_loss loss)
{
    struct jinja_out out = {0};
    struct ckpt_err err = {0};
    size_t at = 0;

    if (conversation_render(talk, chat, loss, &out, &err)) {
        must(err.text[0]);
    } else {
        must(out.n_span > 0);
        for (size_t i = 0; i < out.n_span; i++) {
            must(at <= out.span[i].begin && out.span[i].begin < out.span[i].end &&
                 out.span[i].end <= out.text.len);
            at = out.span[i].begin;
        }
    }
    jinja_out_release(&out);
}

static struct chat *chat_of(const char *text)
{
    const struct memory_file file = {"chat_template.jinja", text, strlen(text)};
    struct ckpt_dir *dir = memory_dir_of(&file, 1);
    struct ckpt_err err = {0};
    struct chat *chat;

    must(chat_open(&chat, dir, NULL, NULL, &err) == 0);
    ckpt_dir_close(dir);
    return chat;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct chat *chat[2];
    struct ckpt_buf ask, answer;
    struct ckpt_err err = {0};
    struct conversation talk = {0};
    const char *field;
    json_t *record;

    for (int i = 0; i < 2; i++)
        if (!chat[i])
            chat[i] = chat_of(templates[i]);
    if (ckpt_json_parse(&record, (const char *)data, size, CKPT_JSON_STRICT, &err))
        return 0;
    field = conversation_field(record);
    if (conversation_of(&talk, record, field ? field : "messages", &err)) {
        must(err.text[0]);
    } else {
        for (int i = 0; i < 2; i++) {
            for (enum conversation_loss loss = 0; loss <= CONVERSATION_ALL; loss++)
                check(&talk, chat[i], loss);
            ckpt_err_clear(&err);
            ckpt_buf_init(&ask, SIZE_MAX);
            ckpt_buf_init(&answer, SIZE_MAX);
            must(conversation_question(&talk, chat[i], &ask, &answer, &err) == 0 || err.text[0]);
            ckpt_buf_release(&ask);
            ckpt_buf_release(&answer);
        }
    }
    conversation_release(&talk);
    json_decref(record);
    return 0;
}
