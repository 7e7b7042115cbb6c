/* chat - see chat.h. */
#include "formats/jinja/chat.h"

#include <string.h>
#include <time.h>

#include "libckpt/digest.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "libckpt/io/path.h"

#define MAX_TEMPLATES 64

static const char additional[] = "additional_chat_templates";

struct named {
    const char   *name;
    const char   *text;
    size_t        len;
    struct jinja *parsed;
    bool          marks;
};

struct chat {
    struct ckpt_arena arena;
    struct named      one[MAX_TEMPLATES];
    size_t            n;
    json_t           *special;      /* "bos_token": "<s>", ... */
};

/* -- where templates lie --------------------------------------------------------------------- */

static int add(struct chat *c, const char *name, const char *text, size_t len,
               struct ckpt_err *err)
{
    struct named *t = &c->one[c->n];

    if (c->n == MAX_TEMPLATES)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d chat templates", MAX_TEMPLATES);
    *t = (struct named){.name = ckpt_arena_strndup(&c->arena, name, strlen(name)), .len = len,
                        .text = ckpt_arena_strndup(&c->arena, text, len)};
    if (!t->name || !t->text)
        return ckpt_nomem(err, len);
    c->n++;
    return 0;
}

static int add_file(struct chat *c, struct ckpt_file *file, const char *name,
                    struct ckpt_err *err)
{
    char *text;
    size_t n;
    int rc = ckpt_file_slurp(file, &c->arena, JINJA_MAX_TEMPLATE, &text, &n, err);

    return rc ? rc : add(c, name, text, n, err);
}

static int add_file_at(struct chat *c, struct ckpt_dir *dir, const char *rel, const char *name,
                       struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    int rc = ckpt_file_open_at(&file, dir, rel, err);

    if (rc == 0)
        rc = add_file(c, file, name, err);
    ckpt_file_close(file);
    return rc;
}

/* Add NAME.jinja from the folder of further templates. */
static int add_folder(struct chat *c, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_dir *more = NULL;
    struct ckpt_entry *entry;
    size_t n = 0, at = 0;
    int rc = ckpt_dir_list(dir, &c->arena, &entry, &n, err);

    while (rc == 0 && at < n && !(entry[at].is_dir && strcmp(entry[at].name, additional) == 0))
        at++;
    if (rc || at == n)
        return rc;
    rc = ckpt_dir_open_at(&more, dir, additional, err);
    if (rc == 0)
        rc = ckpt_dir_list(more, &c->arena, &entry, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        size_t len = strlen(entry[i].name);
        const char *name;

        if (!entry[i].is_file || len < 7 || strcmp(entry[i].name + len - 6, ".jinja") != 0)
            continue;
        name = ckpt_arena_strndup(&c->arena, entry[i].name, len - 6);
        rc = name ? add_file_at(c, more, entry[i].name, name, err) : ckpt_nomem(err, len);
    }
    ckpt_dir_close(more);
    return rc;
}

static int add_from_config(struct chat *c, const json_t *config, struct ckpt_err *err)
{
    const json_t *v = json_object_get(config, "chat_template"), *one;
    size_t i;
    int rc;

    if (!v || json_is_null(v))
        return 0;
    if (json_is_string(v))
        return add(c, "default", json_string_value(v), json_string_length(v), err);
    json_array_foreach(v, i, one) {
        const json_t *name = json_object_get(one, "name"), *text = json_object_get(one, "template");

        if (!json_is_string(name) || !json_is_string(text))
            return ckpt_fail(err, CKPT_EFORMAT, "tokenizer_config.json: chat_template[%zu] is no "
                             "{name, template}", i);
        if ((rc = add(c, json_string_value(name), json_string_value(text),
                      json_string_length(text), err)) != 0)
            return rc;
    }
    return json_is_array(v) ? 0
                            : ckpt_fail(err, CKPT_EFORMAT, "tokenizer_config.json: chat_template "
                                        "is neither a string nor a list");
}

static int find_templates(struct chat *c, struct ckpt_dir *dir, const json_t *config,
                          struct ckpt_err *err)
{
    static const char file[] = "chat_template.jinja";
    int rc;

    if (ckpt_dir_has(dir, file) && (rc = add_file_at(c, dir, file, "default", err)) != 0)
        return rc;
    if ((rc = add_folder(c, dir, err)) != 0)
        return rc;
    return c->n > 0 ? 0 : add_from_config(c, config, err);
}

static const struct named *named(const struct chat *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->one[i].name, name) == 0)
            return &c->one[i];
    return NULL;
}

/* Make the requested template, named or given as a file, the default and only one. */
static int take(struct chat *c, const char *which, struct ckpt_err *err)
{
    const struct named *t = named(c, which);
    struct ckpt_file *file = NULL;
    int rc;

    if (t) {
        c->one[0] = *t;
    } else {
        c->n = 0;
        rc = ckpt_path_file(&file, which, CKPT_FOLLOW, err);
        if (rc == 0)
            rc = add_file(c, file, "default", err);
        ckpt_file_close(file);
        if (rc)
            return rc;
    }
    c->one[0].name = "default";
    c->n = 1;
    return 0;
}

/* -- opening --------------------------------------------------------------------------------- */

static int read_config(json_t **out, struct ckpt_dir *dir, const char *name, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    int rc;

    *out = NULL;
    if (!ckpt_dir_has(dir, name))
        return 0;
    rc = ckpt_file_open_at(&file, dir, name, err);
    if (rc == 0)
        rc = ckpt_json_read(out, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(file);
    return rc;
}

/* Take members whose names end in _token, or those of extra_special_tokens if that is an object. */
static int take_special(struct chat *c, const json_t *from, bool any, struct ckpt_err *err)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)from, key, v) {
        size_t n = strlen(key);
        const json_t *text = json_is_object(v) ? json_object_get(v, "content") : v;

        if ((any || (n > 6 && strcmp(key + n - 6, "_token") == 0)) && json_is_string(text) &&
            !json_object_get(c->special, key) &&
            json_object_set_new(c->special, key, json_string(json_string_value(text))))
            return ckpt_nomem(err, n);
    }
    return any ? 0 : take_special(c, json_object_get(from, "extra_special_tokens"), true, err);
}

static int special_tokens(struct chat *c, struct ckpt_dir *dir, const json_t *config,
                          const struct tokenizer *tok, struct ckpt_err *err)
{
    const struct { const char *key; int32_t id; } own[] = {
        {"bos_token", tok ? tokenizer_bos(tok) : -1}, {"eos_token", tok ? tokenizer_eos(tok) : -1},
        {"pad_token", tok ? tokenizer_pad(tok) : -1},
    };
    json_t *map = NULL;
    int rc = (c->special = json_object()) ? 0 : ckpt_nomem(err, sizeof *c->special);

    if (rc == 0)
        rc = take_special(c, config, false, err);
    if (rc == 0)
        rc = read_config(&map, dir, "special_tokens_map.json", err);
    if (rc == 0)
        rc = take_special(c, map, false, err);
    for (size_t i = 0; rc == 0 && i < 3; i++) {
        const char *text = own[i].id >= 0 ? tokenizer_token(tok, own[i].id) : NULL;

        if (text && !json_object_get(c->special, own[i].key) &&
            json_object_set_new(c->special, own[i].key, json_string(text)))
            rc = ckpt_nomem(err, sizeof *text);
    }
    json_decref(map);
    return rc;
}

/* Whether "{%- generation -%}" occurs, searched for as in transformers. */
static bool has_marks(const char *s)
{
    while ((s = strstr(s, "{%"))) {
        s += 2;
        s += *s == '-';
        s += strspn(s, " \t\r\n");
        if (strncmp(s, "generation", 10) != 0)
            continue;
        s += 10;
        s += strspn(s, " \t\r\n");
        if (strncmp(s, "%}", 2) == 0 || strncmp(s, "-%}", 3) == 0)
            return true;
    }
    return false;
}

static int open_all(struct chat *c, struct ckpt_dir *dir, const char *which,
                    const struct tokenizer *tok, struct ckpt_err *err)
{
    json_t *config = NULL;
    int rc = read_config(&config, dir, "tokenizer_config.json", err);

    if (rc == 0)
        rc = find_templates(c, dir, config, err);
    if (rc == 0 && which)
        rc = take(c, which, err);
    if (rc == 0 && c->n == 0) {
        rc = ckpt_fail(err, CKPT_ECONFIG, "%s: no chat template, neither chat_template.jinja nor "
                       "in tokenizer_config.json", ckpt_dir_path(dir));
        ckpt_err_hint(err, "give one with --chat-template FILE");
    }
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        if (strcmp(c->one[i].name, "default") != 0 && strcmp(c->one[i].name, "tool_use") != 0)
            continue;
        rc = jinja_parse(&c->one[i].parsed, c->one[i].text, c->one[i].len, err);
        c->one[i].marks = has_marks(c->one[i].text);
        if (rc)
            ckpt_err_in(err, "chat template%s%s", which ? " " : "", which ? which : "");
    }
    if (rc == 0)
        rc = special_tokens(c, dir, config, tok, err);
    json_decref(config);
    return rc;
}

int chat_open(struct chat **out, struct ckpt_dir *dir, const char *which,
              const struct tokenizer *tok, struct ckpt_err *err)
{
    struct chat *c = ckpt_alloc(1, sizeof *c);
    int rc = c ? open_all(c, dir, which, tok, err) : ckpt_nomem(err, sizeof *c);

    *out = rc == 0 ? c : NULL;
    if (rc)
        chat_close(c);
    return rc;
}

void chat_close(struct chat *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        jinja_free(c->one[i].parsed);
    json_decref(c->special);
    ckpt_arena_release(&c->arena);
    ckpt_free(c);
}

int chat_template_text(const char **out, struct ckpt_dir *dir, const char *which,
                       struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct chat c = {0};
    json_t *config = NULL;
    int rc = read_config(&config, dir, "tokenizer_config.json", err);

    *out = NULL;
    if (rc == 0)
        rc = find_templates(&c, dir, config, err);
    if (rc == 0)
        rc = take(&c, which, err);
    if (rc == 0 && !(*out = ckpt_arena_strndup(arena, c.one[0].text, c.one[0].len)))
        rc = ckpt_nomem(err, c.one[0].len);
    json_decref(config);
    ckpt_arena_release(&c.arena);
    return rc;
}

/* The digest of what was gathered, which is released. */
static int end_digest(struct ckpt_buf *b, unsigned char out[16], struct ckpt_err *err)
{
    int rc = ckpt_buf_ok(b) ? 0 : ckpt_nomem(err, b->len);

    if (rc == 0)
        ckpt_xxh128(out, b->data, b->len);
    ckpt_buf_release(b);
    return rc;
}

int chat_digest(const struct chat *c, unsigned char out[16], struct ckpt_err *err)
{
    struct ckpt_buf b;
    const char *key;
    time_t now = time(NULL);
    struct tm day;
    json_t *v;

    ckpt_buf_init(&b, SIZE_MAX);
    for (size_t i = 0; i < c->n; i++) {
        ckpt_buf_put(&b, c->one[i].name, strlen(c->one[i].name) + 1);
        ckpt_buf_put(&b, c->one[i].text, c->one[i].len + 1);
        if (strstr(c->one[i].text, "strftime_now") && localtime_r(&now, &day))
            ckpt_buf_printf(&b, "%d-%d", day.tm_year, day.tm_yday);
    }
    json_object_foreach(c->special, key, v) {
        ckpt_buf_put(&b, key, strlen(key) + 1);
        ckpt_buf_put(&b, json_string_value(v), json_string_length(v) + 1);
    }
    return end_digest(&b, out, err);
}

int chat_digest_of_texts(const struct chat *c, unsigned char out[16], struct ckpt_err *err)
{
    struct ckpt_buf b;

    ckpt_buf_init(&b, SIZE_MAX);
    for (size_t i = 0; i < c->n; i++)
        ckpt_buf_put(&b, c->one[i].text, c->one[i].len + 1);
    return end_digest(&b, out, err);
}

/* -- rendering ------------------------------------------------------------------------------- */

static const struct named *pick(const struct chat *c, bool tools)
{
    const struct named *t = tools ? named(c, "tool_use") : NULL;

    return t ? t : named(c, "default");
}

bool chat_marks(const struct chat *c, bool tools)
{
    const struct named *t = pick(c, tools);

    return t && t->marks;
}

const char *chat_eos(const struct chat *c)
{
    const char *eos = json_string_value(json_object_get(c->special, "eos_token"));

    return eos ? eos : "";
}

/* A model's reasoning has several names; a template knows one of them. */
static int alias_reasoning(json_t *message, struct ckpt_err *err)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *v = NULL;

    for (size_t i = 0; i < 3 && !v; i++)
        v = json_object_get(message, names[i]);
    if (!v)
        return 0;
    return json_object_set(message, names[0], v) ||
                   (!json_object_get(message, names[1]) && json_object_set(message, names[1], v))
               ? ckpt_nomem(err, sizeof *v) : 0;
}

int chat_messages(json_t **out, const json_t *list, struct ckpt_err *err)
{
    const json_t *message;
    const char *key;
    json_t *v;
    size_t i;
    int rc = 0;

    *out = NULL;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s", json_is_array(list) ? "the chat has no messages"
                                                                      : "not a list of messages");
    if (!(*out = json_array()))
        return ckpt_nomem(err, sizeof **out);
    json_array_foreach(list, i, message) {
        json_t *copy = json_object();

        if (!json_is_object(message))
            rc = ckpt_fail(err, CKPT_EFORMAT, "message %zu is no object", i + 1);
        else if (!copy || json_array_append_new(*out, json_incref(copy)))
            rc = ckpt_nomem(err, sizeof *copy);
        json_object_foreach((json_t *)message, key, v)
            if (rc == 0 && !json_is_null(v) && json_object_set(copy, key, v))
                rc = ckpt_nomem(err, sizeof *v);
        if (rc == 0)
            rc = alias_reasoning(copy, err);
        json_decref(copy);
        if (rc)
            break;
    }
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

/* Fresh values, since those of c are shared with other threads. */
static int variables(json_t **out, const struct chat *c, const struct chat_turns *turns,
                     struct ckpt_err *err)
{
    json_t *vars = json_object(), *messages = json_array(), *v;
    const char *key;
    int bad = !vars || !messages;

    json_object_foreach(c->special, key, v)
        bad |= !vars || json_object_set_new(vars, key, json_string(json_string_value(v)));
    json_object_foreach((json_t *)turns->more, key, v)
        bad |= !vars || json_object_set(vars, key, v);
    for (size_t i = 0; messages && i < turns->n; i++)
        bad |= json_array_append(messages, json_array_get(turns->messages, i));
    bad |= !vars || json_object_set_new(vars, "messages", messages) ||
           json_object_set_new(vars, "tools", turns->tools ? json_incref((json_t *)turns->tools)
                                                           : json_null()) ||
           json_object_set_new(vars, "add_generation_prompt", json_boolean(turns->prompt)) ||
           (!json_object_get(vars, "documents") &&
            json_object_set_new(vars, "documents", json_null()));
    if (!vars)
        json_decref(messages);
    *out = vars;
    return bad ? ckpt_nomem(err, sizeof *vars) : 0;
}

int chat_render(const struct chat *c, const struct chat_turns *turns, struct jinja_out *out,
                struct ckpt_err *err)
{
    const struct named *t = pick(c, turns->tools != NULL);
    json_t *vars = NULL;
    int rc;

    if (!t)
        return ckpt_fail(err, CKPT_ECONFIG, "several chat templates, and none is the default: name "
                         "one with --chat-template");
    rc = variables(&vars, c, turns, err);
    if (rc == 0 && (rc = jinja_render(t->parsed, vars, 0, out, err)))
        ckpt_err_in(err, "chat template");
    json_decref(vars);
    return rc;
}
