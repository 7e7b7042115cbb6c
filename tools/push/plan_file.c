/* plan_file - see plan_file.h. */
#include "tools/push/plan_file.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/commit.h"
#include "libckpt/err.h"

#define FILE_BYTES ((uint64_t)512 << 20)
#define LEFT_OUT   "left out"
#define DELETED    "deleted"

/* By enum push_state. */
static const struct { const char *action, *reason; } states[] = {
    {"upload", "sent"}, {"upload", "new"}, {"upload", "changed"}, {"skip", "same"},
    {"skip", "ignored"},
};

const char *plan_file_reason(enum push_state state) { return states[state].reason; }

/* The options of a plan that are a text, a flag, a list, as members of push_filter or send_want. */
static const struct { const char *name; size_t at; bool filter; } texts[] = {
    {"path-in-repo", offsetof(struct push_filter, path_in_repo), true},
    {"hub-strategy", offsetof(struct push_filter, strategy), true},
    {"branch", offsetof(struct send_want, branch), false},
    {"message", offsetof(struct send_want, message), false},
    {"author", offsetof(struct send_want, author), false},
    {"tag", offsetof(struct send_want, tag), false},
    {"verify", offsetof(struct send_want, verify), false},
}, flags[] = {
    {"allow-secrets", offsetof(struct push_filter, allow_secrets), true},
    {"allow-pickles", offsetof(struct push_filter, allow_pickles), true},
    {"create", offsetof(struct send_want, create), false},
    {"private", offsetof(struct send_want, is_private), false},
    {"create-pr", offsetof(struct send_want, create_pr), false},
}, lists[] = {
    {"include", offsetof(struct push_filter, include), true},
    {"also", offsetof(struct push_filter, also), true},
    {"exclude", offsetof(struct push_filter, exclude), true},
    {"delete", offsetof(struct send_want, remove), false},
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The value of option row of a table. */
#define PLACE(type, table, i, filter_, want_) \
    ((type *)((char *)((table)[i].filter ? (void *)(filter_) : (void *)(want_)) + (table)[i].at))
#define VALUE(type, table, i, filter_, want_) \
    ((const type *)((const char *)((table)[i].filter ? (const void *)(filter_) \
                                                     : (const void *)(want_)) + (table)[i].at))

/* -- writing ---------------------------------------------------------------------------------- */

struct plan_writer {
    struct ckpt_out *out;
};

int plan_writer_open(struct plan_writer **out, const char *path, struct ckpt_err *err)
{
    struct plan_writer *f = ckpt_alloc(1, sizeof *f);
    int rc = f ? ckpt_out_create(&f->out, path, CKPT_REPLACE, err) : ckpt_nomem(err, sizeof *f);

    *out = rc ? NULL : f;
    if (rc)
        ckpt_free(f);
    return rc;
}

/* A plan says exactly what is to be done, which JSON cannot of a name that is no UTF-8. */
static int told(const char *name, struct ckpt_err *err)
{
    if (ckpt_utf8_valid(name, strlen(name)))
        return 0;
    return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" is no UTF-8: no plan can name it", name);
}

/* Write a line; takes value. */
static int put(struct plan_writer *f, json_t *value, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = value ? 0 : ckpt_nomem(err, 256);

    ckpt_buf_init(&b, (size_t)16 << 20);
    rc = rc ? rc : ckpt_json_write(&b, value, 0, false, err);
    ckpt_buf_put(&b, "\n", 1);
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    rc = rc ? rc : ckpt_out_write(f->out, b.data, b.len, err);
    json_decref(value);
    ckpt_buf_release(&b);
    return rc;
}

static json_t *options_of(const struct push_filter *filter, const struct send_want *w)
{
    json_t *o = json_object();

    for (size_t i = 0; i < COUNT(texts); i++) {
        const char *text = *VALUE(char *, texts, i, filter, w);

        if (text)
            json_object_set_new(o, texts[i].name, json_string(text));
    }
    for (size_t i = 0; i < COUNT(flags); i++)
        if (*VALUE(bool, flags, i, filter, w))
            json_object_set_new(o, flags[i].name, json_true());
    for (size_t i = 0; i < COUNT(lists); i++) {
        const struct opt_list *l = VALUE(struct opt_list, lists, i, filter, w);
        json_t *items = l->n ? json_array() : NULL;

        for (size_t k = 0; k < l->n; k++)
            json_array_append_new(items, json_string(l->item[k]));
        if (items)
            json_object_set_new(o, lists[i].name, items);
    }
    return o;
}

static json_t *operation(const char *action, const char *path, const char *reason)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "type", "operation", "action", action, "path", path,
                     "reason", reason);
}

static int put_file(struct plan_writer *f, const struct push_file *file, struct ckpt_err *err)
{
    json_t *o = operation(states[file->state].action, file->to, states[file->state].reason);

    json_object_set_new(o, "size", json_integer((json_int_t)file->size));
    json_object_set_new(o, "how", json_string(file->lfs ? "lfs" : "regular"));
    if (file->digest)
        json_object_set_new(o, "digest", json_string(file->digest));
    return put(f, o, err);
}

int plan_writer_add(struct plan_writer *f, const struct push_plan *p, const char *destination,
                    const struct push_filter *filter, const struct send_want *w,
                    struct ckpt_err *err)
{
    json_t *head;
    int rc = told(p->source, err);

    rc = rc ? rc : told(destination, err);
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = told(p->file[i].to, err);
    for (size_t i = 0; rc == 0 && i < p->n_gone; i++)
        rc = told(p->gone[i], err);
    for (size_t i = 0; rc == 0 && i < p->n_left; i++)
        rc = told(p->left[i].path, err);
    if (rc)
        return rc;
    head = json_pack("{s:s, s:i, s:s, s:s, s:o}", "type", "header", "version", 1, "source",
                     p->source, "destination", destination, "options", options_of(filter, w));
    if (p->head)
        json_object_set_new(head, "head", json_string(p->head));
    rc = put(f, head, err);
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = put_file(f, &p->file[i], err);
    for (size_t i = 0; rc == 0 && i < p->n_gone; i++)
        rc = put(f, operation("delete", p->gone[i], DELETED), err);
    for (size_t i = 0; rc == 0 && i < p->n_left; i++) {
        json_t *o = operation("skip", p->left[i].path, LEFT_OUT);

        json_object_set_new(o, "why", json_string(p->left[i].why));
        rc = put(f, o, err);
    }
    return rc;
}

int plan_writer_commit(struct plan_writer *f, struct ckpt_err *err)
{
    int rc = ckpt_out_commit(f->out, err);

    ckpt_free(f);
    return rc;
}

void plan_writer_abort(struct plan_writer *f)
{
    if (f)
        ckpt_out_abort(f->out);
    ckpt_free(f);
}

/* -- reading ---------------------------------------------------------------------------------- */

static int bad(size_t line, const char *what, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "line %zu: %s", line, what);
}

/* A member that is a text, or NULL; *wrong when it is something else. */
static const char *text_of(const json_t *o, const char *name, bool *wrong)
{
    const json_t *v = json_object_get(o, name);

    *wrong = *wrong || (v && (!json_is_string(v) || !*json_string_value(v) ||
                              strlen(json_string_value(v)) != json_string_length(v)));
    return json_string_value(v);
}

static bool take_list(struct opt_list *l, struct ckpt_arena *arena, const json_t *items)
{
    const char **item = ckpt_arena_alloc(arena, json_array_size(items) + 1, sizeof *item);
    const json_t *v;
    size_t k;

    for (k = 0; item && (v = json_array_get(items, k)) != NULL; k++)
        if (!(item[k] = json_string_value(v)))
            return false;
    *l = (struct opt_list){.item = item, .n = k};
    return item != NULL;
}

/* Fill the options of a part; the names of all are known. */
static bool take_options(struct plan_part *part, struct ckpt_arena *arena, const json_t *o)
{
    size_t known = 0;
    bool wrong = false;

    for (size_t i = 0; i < COUNT(texts); i++) {
        const char *text = text_of(o, texts[i].name, &wrong);

        *PLACE(const char *, texts, i, &part->filter, &part->want) = text;
        known += text != NULL;
    }
    for (size_t i = 0; i < COUNT(flags); i++) {
        const json_t *v = json_object_get(o, flags[i].name);

        *PLACE(bool, flags, i, &part->filter, &part->want) = json_is_true(v);
        known += json_is_true(v);
    }
    for (size_t i = 0; i < COUNT(lists); i++) {
        const json_t *v = json_object_get(o, lists[i].name);

        if (!v)
            continue;
        if (!json_is_array(v) || !take_list(PLACE(struct opt_list, lists, i, &part->filter,
                                                  &part->want), arena, v))
            return false;
        known++;
    }
    return !wrong && known == json_object_size(o);
}

static int take_header(struct plan_file *f, const json_t *o, size_t line, struct ckpt_err *err)
{
    struct plan_part *more = ckpt_arena_alloc(&f->arena, f->n + 1, sizeof *more), *part;
    json_t *files = json_object(), *gone = json_object();
    const json_t *head = json_object_get(o, "head"), *options = json_object_get(o, "options");
    bool wrong = false;

    json_array_append_new(f->lines, files);
    json_array_append_new(f->lines, gone);
    if (!more || !files || !gone)
        return ckpt_nomem(err, (f->n + 1) * sizeof *more);
    if (f->n)
        memcpy(more, f->part, f->n * sizeof *more);
    f->part = more;
    part = &more[f->n++];
    *part = (struct plan_part){.source = text_of(o, "source", &wrong), .files = files,
                               .gone = gone, .head = json_string_value(head),
                               .destination = text_of(o, "destination", &wrong)};
    if (json_integer_value(json_object_get(o, "version")) != 1)
        return bad(line, "another version of plans", err);
    if (wrong || !part->source || !part->destination || (head && !part->head))
        return bad(line, "no source, or no destination", err);
    return json_is_object(options) && take_options(part, &f->arena, options)
               ? 0 : bad(line, "options that are not known", err);
}

static int take_operation(struct plan_file *f, json_t *o, size_t line, struct ckpt_err *err)
{
    const struct plan_part *part = f->n ? &f->part[f->n - 1] : NULL;
    bool wrong = false;
    const char *action = text_of(o, "action", &wrong), *path = text_of(o, "path", &wrong);
    const char *reason = text_of(o, "reason", &wrong);
    const json_t *digest = json_object_get(o, "digest"), *in;
    bool known = false, gone;

    if (!part)
        return bad(line, "an operation before any header", err);
    if (wrong || !action || !path || !reason || (digest && !json_is_string(digest)))
        return bad(line, "no operation", err);
    if (strcmp(reason, LEFT_OUT) == 0)
        return 0;
    gone = strcmp(action, "delete") == 0;
    for (size_t i = 0; i < COUNT(states); i++)
        known = known || (strcmp(action, states[i].action) == 0 &&
                          strcmp(reason, states[i].reason) == 0);
    if ((gone && strcmp(reason, DELETED) != 0) || (!gone && !known) ||
        (!gone && (!json_is_integer(json_object_get(o, "size")) ||
                   json_integer_value(json_object_get(o, "size")) < 0)))
        return bad(line, "an operation that is not known", err);
    in = gone ? part->gone : part->files;
    if (json_object_get(part->files, path) || json_object_get(part->gone, path))
        return bad(line, "a path a second time", err);
    return json_object_set((json_t *)(uintptr_t)in, path, o) ? ckpt_nomem(err, 64) : 0;
}

static int take_line(struct plan_file *f, const char *text, size_t n, size_t line,
                     struct ckpt_err *err)
{
    json_t *o = NULL;
    const char *type;
    int rc = ckpt_json_parse(&o, text, n, CKPT_JSON_STRICT, err);

    if (rc)
        return bad(line, "no JSON", err);
    if (json_array_append_new(f->lines, o))
        return ckpt_nomem(err, n);
    type = json_string_value(json_object_get(o, "type"));
    if (type && strcmp(type, "header") == 0)
        return take_header(f, o, line, err);
    return type && strcmp(type, "operation") == 0 ? take_operation(f, o, line, err)
                                                  : bad(line, "no line of a plan", err);
}

int plan_file_parse(struct plan_file *f, const char *text, size_t n, struct ckpt_err *err)
{
    size_t line = 1;
    int rc = 0;

    memset(f, 0, sizeof *f);
    f->lines = json_array();
    if (!f->lines)
        return ckpt_nomem(err, 64);
    for (size_t at = 0; rc == 0 && at < n; line++) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t k = end ? (size_t)(end - text) - at : n - at;

        rc = k ? take_line(f, text + at, k, line, err) : 0;
        at += k + 1;
    }
    return rc || f->n ? rc : bad(line, "the plan has no header", err);
}

int plan_file_read(struct plan_file *f, const char *path, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_file *file = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc;

    memset(f, 0, sizeof *f);
    rc = ckpt_file_open(&file, path, CKPT_FOLLOW, err);
    rc = rc ? rc : ckpt_file_slurp(file, &arena, FILE_BYTES, &text, &n, err);
    ckpt_file_close(file);
    if (rc == 0 && plan_file_parse(f, text, n, err))
        rc = ckpt_err_in(err, "%s", path);
    ckpt_arena_release(&arena);
    return rc;
}

void plan_file_close(struct plan_file *f)
{
    json_decref(f->lines);
    ckpt_arena_release(&f->arena);
    memset(f, 0, sizeof *f);
}

/* -- comparing -------------------------------------------------------------------------------- */

static int changed(const char *what, const char *how, struct ckpt_err *err)
{
    ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: %s since the plan was made", what, how);
    return ckpt_err_hint(err, "--plan makes another one");
}

static int moved(const char *what, const char *how, struct ckpt_err *err)
{
    ckpt_fail_as(err, CKPT_ESTOPPED, "conflict", "%s: %s since the plan was made", what, how);
    return ckpt_err_hint(err, "--plan makes another one");
}

/* Digests of different kinds say nothing about each other. */
static bool differ(const char *a, const char *b)
{
    return a && b && strncmp(a, b, strcspn(a, "-") + 1) == 0 && strcmp(a, b) != 0;
}

static int file_agrees(const json_t *o, const struct push_file *f, struct ckpt_err *err)
{
    const char *digest = json_string_value(json_object_get(o, "digest"));
    const char *reason = json_string_value(json_object_get(o, "reason"));

    if (!o)
        return changed(f->to, "was added", err);
    if ((uint64_t)json_integer_value(json_object_get(o, "size")) != f->size ||
        differ(digest, f->digest))
        return changed(f->from, "changed", err);
    return f->state == PUSH_SENT || strcmp(reason, states[f->state].reason) == 0
               ? 0 : moved(f->to, "the destination changed", err);
}

int plan_file_agrees(const struct plan_part *plan, const struct push_plan *p, struct ckpt_err *err)
{
    const char *path;
    json_t *o;
    int rc = 0;

    if (!plan)
        return 0;
    if (plan->head && p->head && strcmp(plan->head, p->head) != 0)
        return moved(plan->destination, "another commit came", err);
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = file_agrees(json_object_get(plan->files, p->file[i].to), &p->file[i], err);
    if (rc == 0 && p->n != json_object_size(plan->files))
        json_object_foreach ((json_t *)(uintptr_t)plan->files, path, o) {
            bool there = false;

            for (size_t i = 0; i < p->n && !there; i++)
                there = strcmp(p->file[i].to, path) == 0;
            if (!there)
                return changed(path, "is gone from the source", err);
        }
    for (size_t i = 0; rc == 0 && i < p->n_gone; i++)
        if (!json_object_get(plan->gone, p->gone[i]))
            rc = moved(p->gone[i], "was added to the destination", err);
    return rc || p->n_gone == json_object_size(plan->gone)
               ? rc : moved(plan->destination, "a file that was to be deleted is gone", err);
}
