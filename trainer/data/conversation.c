/* data/conversation - see data/conversation.h. */
#include "trainer/data/conversation.h"

#include <assert.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

/* -- records --------------------------------------------------------------------------------- */

/* Role names of ShareGPT and similar formats; other names are roles already. */
static const char *role_of(const char *from)
{
    static const char *const names[][2] = {
        {"human", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
        {"bard", "assistant"}, {"model", "assistant"}, {"function_call", "assistant"},
        {"observation", "tool"}, {"function_response", "tool"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], from) == 0)
            return names[i][1];
    return from;
}

static bool is_list_of_turns(const json_t *v)
{
    const json_t *first = json_array_get(v, 0);

    if (json_is_string(v))
        return json_string_value(v)[0] == '[' && strchr(json_string_value(v), '{');
    return json_is_array(v) && (json_array_size(v) == 0 || json_object_get(first, "role") ||
                                json_object_get(first, "from"));
}

const char *conversation_field(const json_t *record)
{
    static const char *const names[] = {"messages", "conversations", "conversation"};

    for (size_t i = 0; i < 3; i++)
        if (is_list_of_turns(json_object_get(record, names[i])))
            return names[i];
    return is_list_of_turns(json_object_get(record, "prompt")) &&
                   json_is_array(json_object_get(record, "completion"))
               ? "prompt" : NULL;
}

/* Turn {from, value} of one message into {role, content}; *renamed: it had these members. */
static int rename_turn(json_t *message, size_t i, bool *renamed, struct ckpt_err *err)
{
    json_t *from = json_object_get(message, "from"), *value = json_object_get(message, "value"),
           *weight = json_object_get(message, "weight");
    int bad = 0;

    if (json_is_string(from)) {
        bad |= json_object_set_new(message, "role",
                                   json_string(role_of(json_string_value(from)))) ||
               json_object_del(message, "from");
        *renamed = true;
    }
    if (value && !json_object_get(message, "content"))
        bad |= json_object_set(message, "content", value) || json_object_del(message, "value");
    if (bad)
        return ckpt_nomem(err, sizeof *message);
    if (!json_is_string(json_object_get(message, "role")))
        return ckpt_fail(err, CKPT_EFORMAT, "message %zu has no role", i + 1);
    if (json_is_number(weight) && json_number_value(weight) != 0 && json_number_value(weight) != 1)
        return ckpt_fail(err, CKPT_EFORMAT, "message %zu: weight %g, 0 or 1 is wanted", i + 1,
                         json_number_value(weight));
    return 0;
}

/* A list, or the JSON text of one, as in files without nested values; a new reference. */
static int list_of(json_t **out, const json_t *v, const char *name, struct ckpt_err *err)
{
    *out = NULL;
    if (json_is_string(v) &&
        ckpt_json_parse(out, json_string_value(v), json_string_length(v), CKPT_JSON_STRICT, err))
        return ckpt_err_in(err, "%s", name);
    if (!*out)
        *out = json_incref((json_t *)v);
    if (json_is_array(*out))
        return 0;
    json_decref(*out);
    *out = NULL;
    return ckpt_fail(err, CKPT_EFORMAT, "field \"%s\" is %s", name,
                     v && !json_is_null(v) ? "no list" : "absent or null");
}

/* Append the messages of one field. */
static int add_messages(struct conversation *t, const json_t *record, const char *field,
                        bool *sharegpt, struct ckpt_err *err)
{
    json_t *list = NULL, *copy = NULL, *one;
    size_t i;
    int rc = list_of(&list, json_object_get(record, field), field, err);

    if (rc)
        return rc;
    rc = chat_messages(&copy, list, err);
    json_array_foreach(copy, i, one)
        if (rc == 0)
            rc = rename_turn(one, i, sharegpt, err);
    if (rc)
        ckpt_err_in(err, "field \"%s\"", field);
    else if (!t->messages)
        t->messages = json_incref(copy);
    else if (json_array_extend(t->messages, copy))
        rc = ckpt_nomem(err, sizeof *copy);
    json_decref(copy);
    json_decref(list);
    return rc;
}

/* A column "system" becomes the first message of a ShareGPT conversation. */
static int add_system(struct conversation *t, const json_t *record, struct ckpt_err *err)
{
    const char *text = json_string_value(json_object_get(record, "system"));
    const char *role = json_string_value(json_object_get(json_array_get(t->messages, 0), "role"));

    if (!text || !*text || strcmp(role, "system") == 0)
        return 0;
    return json_array_insert_new(t->messages, 0, json_pack("{s:s,s:s}", "role", "system",
                                                           "content", text))
               ? ckpt_nomem(err, sizeof *text) : 0;
}

int conversation_of(struct conversation *t, const json_t *record, const char *field,
                    struct ckpt_err *err)
{
    const json_t *tools = json_object_get(record, "tools"),
                 *more = json_object_get(record, "chat_template_kwargs");
    bool sharegpt = false, pair = strcmp(field, "prompt") == 0;
    int rc;

    if ((rc = add_messages(t, record, field, &sharegpt, err)) != 0)
        return rc;
    if (sharegpt && (rc = add_system(t, record, err)) != 0)
        return rc;
    if (pair) {
        t->n_prompt = json_array_size(t->messages);
        if ((rc = add_messages(t, record, "completion", &sharegpt, err)) != 0)
            return rc;
    }
    if (tools && !json_is_null(tools) && !(json_is_string(tools) &&
                                           json_string_length(tools) == 0) &&
        (rc = list_of(&t->tools, tools, "tools", err)) != 0)
        return rc;
    if (t->tools && json_array_size(t->tools) == 0) {   /* templates treat [] as if there were
                                                           tools */
        json_decref(t->tools);
        t->tools = NULL;
    }
    if (more && !json_is_null(more) && !json_is_object(more))
        return ckpt_fail(err, CKPT_EFORMAT, "field \"chat_template_kwargs\" is no object");
    t->more = json_is_object(more) ? json_incref((json_t *)more) : NULL;
    return 0;
}

void conversation_release(struct conversation *t)
{
    json_decref(t->messages);
    json_decref(t->tools);
    json_decref(t->more);
    memset(t, 0, sizeof *t);
}

/* -- spans with loss -------------------------------------------------------------------------- */

static bool is_assistant(const struct conversation *t, size_t i)
{
    const json_t *role = json_object_get(json_array_get(t->messages, i), "role");

    return strcmp(json_string_value(role), "assistant") == 0;
}

/* Whether message i says that it is not to be learnt. */
static bool is_left_out(const struct conversation *t, size_t i)
{
    const json_t *weight = json_object_get(json_array_get(t->messages, i), "weight");

    return json_is_number(weight) && json_number_value(weight) == 0;
}

/* Whether a turn of the assistant says so: the template's own marks do not know of it. */
static bool leaves_out(const struct conversation *t)
{
    for (size_t i = 0; i < json_array_size(t->messages); i++)
        if (is_assistant(t, i) && is_left_out(t, i))
            return true;
    return false;
}

static int render(const struct conversation *t, const struct chat *c, size_t n, bool prompt,
                  struct jinja_out *out, struct ckpt_err *err)
{
    struct chat_turns turns = {.messages = t->messages, .n = n, .tools = t->tools,
                               .more = t->more, .prompt = prompt};

    return chat_render(c, &turns, out, err);
}

/* Length of the common prefix of both texts. */
static size_t common(const struct ckpt_buf *a, const struct ckpt_buf *b)
{
    size_t n = 0;

    while (n < a->len && n < b->len && a->data[n] == b->data[n])
        n++;
    return n;
}

static int add_span(struct jinja_out *out, size_t begin, size_t end, struct ckpt_err *err)
{
    return begin < end ? jinja_out_add(out, begin, end, err) : 0;
}

static const char mark[] = "ckpt-ends-here-5b1d";

static bool equal(const unsigned char *a, const unsigned char *b, size_t n)
{
    assert(n == 0 || (a && b));
    return n == 0 || memcmp(a, b, n) == 0;
}

/* The position of the marker, if it occurs exactly once. */
static bool find_mark(const struct ckpt_buf *b, size_t *at)
{
    const size_t k = sizeof mark - 1;
    const unsigned char *p = b->data ? memmem(b->data, b->len, mark, k) : NULL;

    if (!p)
        return false;
    *at = (size_t)(p - b->data);
    return !memmem(p + k, b->len - *at - k, mark, k);
}

/* Render the chat with the marker after the last non-blank character of message i; *out has no
 * messages if that message has no text. */
static int with_mark(const struct conversation *t, size_t i, struct conversation *out,
                     struct ckpt_err *err)
{
    json_t *turn = json_copy(json_array_get(t->messages, i));
    const char *content = json_string_value(json_object_get(turn, "content"));
    size_t n = content ? strlen(content) : 0, end = n;
    struct ckpt_buf b;
    bool done = turn != NULL;

    *out = *t;
    out->messages = NULL;
    ckpt_buf_init(&b, SIZE_MAX);
    while (end > 0 && strchr(" \t\r\n", content[end - 1]))
        end--;
    if (end > 0) {
        ckpt_buf_put(&b, content, end);
        ckpt_buf_put_str(&b, mark);
        ckpt_buf_put_str(&b, content + end);
        out->messages = json_copy(t->messages);
        done = ckpt_buf_ok(&b) && out->messages &&
               json_object_set_new(turn, "content", json_string(ckpt_buf_str(&b))) == 0 &&
               json_array_set(out->messages, i, turn) == 0;
    }
    json_decref(turn);
    ckpt_buf_release(&b);
    return done ? 0 : ckpt_nomem(err, n);
}

/*
 * Find where message n - 1 ends in the whole text, when later messages change its rendering, as
 * with templates that drop the reasoning of earlier turns.  A marker at the end of its content
 * shows the position; the text that the template puts after the content when nothing follows
 * belongs to the message too.  Without the marker the rendering must equal the text.
 */
static int end_by_mark(const struct conversation *t, const struct chat *c, size_t n,
                       const struct jinja_out *whole, size_t *end, bool *found,
                       struct ckpt_err *err)
{
    const size_t k = sizeof mark - 1, full = whole->text.len;
    struct jinja_out all = {0}, part = {0};
    struct conversation marked;
    size_t at = 0, tail = 0, rest, eos = strlen(chat_eos(c));
    int rc = with_mark(t, n - 1, &marked, err);

    if (rc == 0 && marked.messages)
        rc = render(&marked, c, json_array_size(t->messages), false, &all, err);
    if (rc == 0 && marked.messages)
        rc = render(&marked, c, n, false, &part, err);
    *found = rc == 0 && find_mark(&all.text, &at) && find_mark(&part.text, &tail) &&
             all.text.len == full + k && equal(all.text.data, whole->text.data, at) &&
             equal(all.text.data + at + k, whole->text.data + at, full - at);
    if (*found) {
        tail += k;
        rest = part.text.len - tail;
        *found = rest <= full - at && equal(part.text.data + tail, whole->text.data + at, rest);
        if (!*found && rest >= eos && rest - eos <= full - at &&
            equal(part.text.data + part.text.len - eos, (const unsigned char *)chat_eos(c), eos)) {
            rest -= eos;
            *found = equal(part.text.data + tail, whole->text.data + at, rest);
        }
        *end = at + rest;
    }
    json_decref(marked.messages);
    jinja_out_release(&all);
    jinja_out_release(&part);
    return rc == CKPT_EFORMAT ? 0 : rc;     /* a template may refuse the marker: not found */
}

/* Where the first n messages end in the whole text. */
static int end_of(const struct conversation *t, const struct chat *c, size_t n,
                  struct jinja_out *part, const struct jinja_out *whole, size_t *end,
                  struct ckpt_err *err)
{
    const char *eos = chat_eos(c);
    size_t k = strlen(eos), same;
    bool found;
    int rc;

    if (n == json_array_size(t->messages)) {
        *end = whole->text.len;
        return 0;
    }
    if (render(t, c, n, false, part, err))
        return ckpt_err_in(err, "the first %zu messages", n);
    same = common(&part->text, &whole->text);
    *end = part->text.len;
    if (same < *end && *end >= k && k > 0 && memcmp(part->text.data + *end - k, eos, k) == 0)
        *end -= k;
    if (same >= *end)
        return 0;
    rc = end_by_mark(t, c, n, whole, end, &found, err);
    if (rc || found)
        return rc;
    ckpt_fail(err, CKPT_EFORMAT, "the chat template writes the first %zu messages otherwise where "
              "more follow, so that the assistant's turns cannot be told apart", n);
    return ckpt_err_hint(err, "`mask_history` learns the last turn alone, `train_on_prompt` all "
                         "tokens; `chat_template` takes a template with {%% generation %%} marks");
}

/* Add turn i of the assistant. */
static int add_turn(const struct conversation *t, const struct chat *c, size_t i,
                    struct jinja_out *part, struct jinja_out *out, struct ckpt_err *err)
{
    size_t before = 0, begin = 0, end;
    int rc;

    if (i > 0 && (rc = end_of(t, c, i, part, out, &before, err)) != 0)
        return rc;
    rc = render(t, c, i, true, part, err);
    if (rc && (i > 0 || rc != CKPT_EFORMAT))
        return ckpt_err_in(err, "the first %zu messages", i);
    if (rc)
        ckpt_err_clear(err);            /* many templates need a first message: then the turn is
                                           the whole text */
    else
        begin = common(&part->text, &out->text);
    /* For a template whose generation prompt does not extend the text of the messages before. */
    begin = begin < before ? before : begin;
    if ((rc = end_of(t, c, i + 1, part, out, &end, err)) != 0)
        return rc;
    return add_span(out, begin, end, err);
}

/* The last turn of the assistant, or 0. */
static size_t last_turn(const struct conversation *t)
{
    size_t i = json_array_size(t->messages);

    while (i-- > 0)
        if (is_assistant(t, i))
            return i;
    return 0;
}

static int add_turns(const struct conversation *t, const struct chat *c, size_t from,
                     struct jinja_out *out, struct ckpt_err *err)
{
    struct jinja_out part = {0};
    int rc = 0;

    for (size_t i = from; rc == 0 && i < json_array_size(t->messages); i++)
        if (is_assistant(t, i) && !is_left_out(t, i))
            rc = add_turn(t, c, i, &part, out, err);
    jinja_out_release(&part);
    return rc;
}

/* Keep the template's spans that lie after the first n messages: a turn may have several. */
static int keep_after(const struct conversation *t, const struct chat *c, size_t n,
                       struct jinja_out *out, struct ckpt_err *err)
{
    struct jinja_out part = {0};
    size_t from = 0, kept = 0;
    int rc = n > 0 ? end_of(t, c, n, &part, out, &from, err) : 0;

    for (size_t i = 0; rc == 0 && i < out->n_span; i++)
        if (out->span[i].end > from)
            out->span[kept++] = out->span[i];
    out->n_span = kept;
    jinja_out_release(&part);
    return rc;
}

/* Add everything after the prompt. */
static int add_completion(const struct conversation *t, const struct chat *c,
                          struct jinja_out *out, struct ckpt_err *err)
{
    struct jinja_out part = {0};
    int rc = render(t, c, t->n_prompt, true, &part, err);

    if (rc)
        ckpt_err_in(err, "the prompt");
    else
        rc = add_span(out, common(&part.text, &out->text), out->text.len, err);
    jinja_out_release(&part);
    return rc;
}

int conversation_render(const struct conversation *t, const struct chat *c,
                        enum conversation_loss loss, struct jinja_out *out,
                        struct ckpt_err *err)
{
    size_t n = 0;
    int rc = render(t, c, json_array_size(t->messages), false, out, err);

    if (rc)
        return rc;
    for (size_t i = 0; i < out->n_span; i++)
        if (out->span[i].begin < out->span[i].end)
            out->span[n++] = out->span[i];
    out->n_span = n;
    if (loss == CONVERSATION_ASSISTANT && t->n_prompt == 0 && chat_marks(c, t->tools != NULL) &&
        !leaves_out(t))
        rc = 0;
    else if (loss == CONVERSATION_LAST && n > 0 && !leaves_out(t))
        rc = keep_after(t, c, last_turn(t), out, err);
    else if ((out->n_span = 0, loss == CONVERSATION_ALL))
        rc = add_span(out, 0, out->text.len, err);
    else if (loss == CONVERSATION_ASSISTANT && t->n_prompt > 0)
        rc = add_completion(t, c, out, err);
    else
        rc = add_turns(t, c, loss == CONVERSATION_LAST ? last_turn(t) : 0, out, err);
    if (rc == 0 && out->n_span == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "no turn of the assistant, so nothing to learn");
    return rc;
}

int conversation_question(const struct conversation *t, const struct chat *c,
                          struct ckpt_buf *prompt, struct ckpt_buf *answer,
                          struct ckpt_err *err)
{
    size_t n = json_array_size(t->messages), ask = t->n_prompt;
    struct jinja_out whole = {0}, part = {0};
    const json_t *content;
    int rc;

    if (ask == 0)
        ask = n > 1 && is_assistant(t, n - 1) ? n - 1 : n;
    rc = render(t, c, ask, true, &part, err);
    if (rc == 0)
        ckpt_buf_put(prompt, part.text.data, part.text.len);
    content = ask + 1 == n ? json_object_get(json_array_get(t->messages, ask), "content") : NULL;
    if (rc == 0 && json_is_string(content)) {
        ckpt_buf_put(answer, json_string_value(content), json_string_length(content));
    } else if (rc == 0 && ask < n && (rc = render(t, c, n, false, &whole, err)) == 0) {
        size_t same = common(&part.text, &whole.text);

        if (same < whole.text.len)      /* a template may render nothing */
            ckpt_buf_put(answer, whole.text.data + same, whole.text.len - same);
    }
    if (rc == 0 && (!ckpt_buf_ok(prompt) || !ckpt_buf_ok(answer)))
        rc = ckpt_nomem(err, prompt->len + answer->len);
    jinja_out_release(&part);
    jinja_out_release(&whole);
    return rc;
}
