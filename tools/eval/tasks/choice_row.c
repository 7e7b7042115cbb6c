/* choice_row - see choice_row.h. */
#include "tools/eval/tasks/choice_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/buf.h"
#include "tools/eval/score/words.h"

#define MOST_CHOICES ((size_t)1 << 20)

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

static const char *text_of(const json_t *record, const char *field)
{
    return json_string_value(json_object_get(record, field));
}

/* The bytes as a string in the arena; takes b. */
static const char *keep(struct ckpt_arena *a, struct ckpt_buf *b)
{
    const char *s = ckpt_buf_ok(b) ? ckpt_arena_strndup(a, b->len ? (char *)b->data : "", b->len)
                                   : NULL;

    ckpt_buf_release(b);
    return s;
}

/* -- HellaSwag -------------------------------------------------------------------------------- */

/* Each " [title]" becomes ". ". */
static void put_titles(struct ckpt_buf *out, const char *s, size_t n)
{
    static const char title[] = " [title]";
    size_t width = sizeof title - 1;

    for (size_t i = 0; i < n;) {
        bool at = n - i >= width && memcmp(s + i, title, width) == 0;

        ckpt_buf_put(out, at ? ". " : s + i, at ? 2 : 1);
        i += at ? width : 1;
    }
}

/* Without what is in brackets on one line. */
static void put_unbracketed(struct ckpt_buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = i;

        while (s[i] == '[' && k < n && s[k] != ']' && s[k] != '\n')
            k++;
        if (s[i] == '[' && k < n && s[k] == ']')
            i = k;
        else
            ckpt_buf_put(out, s + i, 1);
    }
}

/* Text of WikiHow without its marks. */
static void put_clean(struct ckpt_buf *out, const char *text)
{
    struct ckpt_buf step[2];
    size_t len;
    const char *s = words_strip(text, &len);

    ckpt_buf_init(&step[0], SIZE_MAX);
    ckpt_buf_init(&step[1], SIZE_MAX);
    put_titles(&step[0], s, len);
    put_unbracketed(&step[1], (const char *)step[0].data, step[0].len);
    for (size_t i = 0; i < step[1].len; i++) {
        const unsigned char *c = step[1].data + i;

        ckpt_buf_put(out, c, 1);
        i += *c == ' ' && i + 1 < step[1].len && c[1] == ' ';
    }
    out->failed |= !ckpt_buf_ok(&step[0]) || !ckpt_buf_ok(&step[1]);
    ckpt_buf_release(&step[0]);
    ckpt_buf_release(&step[1]);
}

/* The first character in upper case, the others in lower: Python's capitalize. */
static void put_capitalized(struct ckpt_buf *out, const char *text)
{
    unsigned char bytes[4];
    size_t width;

    for (const unsigned char *s = (const unsigned char *)text; *s; s += width) {
        uint32_t cp = utf8_get(s, &width);

        cp = s == (const unsigned char *)text ? unicode_title(cp) : unicode_lower(cp);
        ckpt_buf_put(out, bytes, utf8_put(bytes, cp));
    }
}

static bool has_context(const json_t *record)
{
    return text_of(record, "ctx") || (text_of(record, "ctx_a") && text_of(record, "ctx_b"));
}

static const char *hellaswag_context(const json_t *record, struct ckpt_arena *a)
{
    const char *label = text_of(record, "activity_label"), *first = text_of(record, "ctx_a"),
               *second = text_of(record, "ctx_b"), *ctx = text_of(record, "ctx");
    struct ckpt_buf b, clean;

    ckpt_buf_init(&b, SIZE_MAX);
    ckpt_buf_init(&clean, SIZE_MAX);
    ckpt_buf_printf(&b, "%s%s%s", label ? label : "", label ? ": " : "",
                    first && second ? first : ctx ? ctx : "");
    if (first && second) {
        ckpt_buf_put_str(&b, " ");
        put_capitalized(&b, second);
    }
    if (ckpt_buf_str(&b))
        put_clean(&clean, ckpt_buf_str(&b));
    clean.failed |= !ckpt_buf_ok(&b);
    ckpt_buf_release(&b);
    return keep(a, &clean);
}

/* -- the others ------------------------------------------------------------------------------- */

static const char *arc_context(const json_t *record, struct ckpt_arena *a)
{
    return ckpt_arena_printf(a, "Question: %s\nAnswer:", text_of(record, "question"));
}

static const char *mmlu_context(const json_t *record, struct ckpt_arena *a)
{
    const char *subject = text_of(record, "subject"), *question;
    const json_t *choices = json_object_get(record, "choices");
    struct ckpt_buf b;
    size_t len;

    ckpt_buf_init(&b, SIZE_MAX);
    if (subject) {
        ckpt_buf_put_str(&b, "The following are multiple choice questions (with answers) about ");
        for (; *subject; subject++)
            ckpt_buf_put_u8(&b, *subject == '_' ? ' ' : (uint8_t)*subject);
        ckpt_buf_put_str(&b, ".\n\n");
    }
    question = words_strip(text_of(record, "question"), &len);
    ckpt_buf_put(&b, question, len);
    for (size_t i = 0; i < json_array_size(choices); i++)
        ckpt_buf_printf(&b, "\n%c. %s", letters[i], json_string_value(json_array_get(choices, i)));
    ckpt_buf_put_str(&b, "\nAnswer:");
    return keep(a, &b);
}

static const char *plain_context(const json_t *record, struct ckpt_arena *a)
{
    return ckpt_arena_strndup(a, text_of(record, "prompt"),
                              json_string_length(json_object_get(record, "prompt")));
}

/* The records that are known by their fields; choices in a member of an object have a key. */
static const struct shape {
    const char *question, *choices, *of, *key, *right;
    bool        letters, clean;
    const char *(*context)(const json_t *record, struct ckpt_arena *a);
} shapes[] = {
    {"endings", "endings", NULL, NULL, "label", false, true, hellaswag_context},
    {"question", "choices", "text", "label", "answerKey", false, false, arc_context},
    {"question", "choices", NULL, NULL, "answer", true, false, mmlu_context},
    {"prompt", "choices", NULL, NULL, "label", false, false, plain_context},
    {"prompt", "choices", NULL, NULL, "answer", false, false, plain_context},
};

static const struct shape *shape_of(const json_t *record)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (json_object_get(record, shapes[i].question) &&
            json_object_get(record, shapes[i].choices) &&
            json_object_get(record, shapes[i].right) &&
            json_is_object(json_object_get(record, shapes[i].choices)) == (shapes[i].of != NULL))
            return &shapes[i];
    return NULL;
}

/* A list of 2 texts or more. */
static int take_texts(const char ***out, size_t *n, const json_t *list, struct ckpt_arena *a,
                      struct ckpt_err *err)
{
    *n = json_array_size(list);
    if (*n < 2)
        return ckpt_fail(err, CKPT_EFORMAT, "a list of 2 choices or more is wanted");
    if (*n > MOST_CHOICES)
        return ckpt_fail(err, CKPT_ELIMIT, "%zu choices, %zu at most", *n, MOST_CHOICES);
    *out = ckpt_arena_alloc(a, *n, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, *n * sizeof **out);
    for (size_t i = 0; i < *n; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_string(v))
            return ckpt_fail(err, CKPT_EFORMAT, "choice %zu is no text", i + 1);
        if (json_string_length(v) == 0) /* it has no likelihood for each of its characters */
            return ckpt_fail(err, CKPT_EFORMAT, "choice %zu is an empty text", i + 1);
        (*out)[i] = ckpt_arena_strndup(a, json_string_value(v), json_string_length(v));
        if (!(*out)[i])
            return ckpt_nomem(err, json_string_length(v));
    }
    return 0;
}

/* The number that v is, or -1: also 1.0, as a column of numbers becomes where one is missing. */
static int64_t number_of(const json_t *v)
{
    double real = json_is_real(v) ? json_real_value(v) : -1;

    if (json_is_boolean(v))
        return json_is_true(v);
    if (json_is_integer(v))
        return json_integer_value(v);
    return real >= 0 && real < INT32_MAX && real == (double)(int64_t)real ? (int64_t)real : -1;
}

/* The choice whose key is the number: keys may be "1" to "4", and the field 1; -1: none. */
static int64_t key_of(const json_t *v, const json_t *keys)
{
    char number[24];

    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
    for (size_t k = 0; json_is_integer(v) && k < json_array_size(keys); k++) {
        const char *key = json_string_value(json_array_get(keys, k));

        if (key && strcmp(key, number) == 0)
            return (int64_t)k;
    }
    return -1;
}

/* Which one a field says: its number, or the key that it is (keys or choices), or a letter. */
static int find_right(size_t *right, const json_t *record, const char *field,
                      const char *const *choice, size_t n, const json_t *keys,
                      struct ckpt_err *err)
{
    const json_t *v = json_object_get(record, field);
    const char *s = json_string_value(v);
    int64_t i = key_of(v, keys);

    i = i < 0 ? number_of(v) : i;
    for (size_t k = 0; s && i < 0 && k < n; k++) {
        const char *key = keys ? json_string_value(json_array_get(keys, k)) : choice[k];

        if (key && strcmp(key, s) == 0)
            i = (int64_t)k;
    }
    if (s && i < 0 && !keys && s[0] && !s[1] && strchr(letters, s[0]))
        i = strchr(letters, s[0]) - letters;
    if (s && i < 0 && !keys && *s && strspn(s, "0123456789") == strlen(s) && strlen(s) < 5)
        i = strtoll(s, NULL, 10);
    if (i >= 0 && i < (int64_t)n) {
        *right = (size_t)i;
        return 0;
    }
    if (!v || json_is_null(v) || (s && !*s))
        return ckpt_fail(err, CKPT_EFORMAT, "the right choice is not given: nothing in the "
                         "field %s", field);
    if (s)
        return ckpt_fail(err, CKPT_EFORMAT, "the right choice is \"%.40s\", which is none of %zu",
                         s, n);
    ckpt_fail(err, CKPT_EFORMAT, "the right choice is not one of %zu, counted from 0", n);
    return json_is_integer(v) || json_is_real(v)
               ? ckpt_err_hint(err, "the field %s is %g", field, json_number_value(v))
               : ckpt_err_hint(err, "the field %s is no number", field);
}

/* Where the record has its own choices. */
static int own_choices(struct choice_row *out, const json_t *record, const struct shape *shape,
                       struct ckpt_arena *a, struct ckpt_err *err)
{
    const json_t *list = json_object_get(record, shape->choices), *keys = NULL;
    const char **choice = NULL;
    int rc;

    if (shape->of) {
        keys = json_object_get(list, shape->key);
        list = json_object_get(list, shape->of);
    }
    if ((rc = take_texts(&choice, &out->n, list, a, err)) != 0)
        return rc;
    if (shape->letters && out->n >= sizeof letters)
        return ckpt_fail(err, CKPT_EFORMAT, "%zu choices, there are letters for %zu", out->n,
                         sizeof letters - 1);
    if (strcmp(shape->question, "endings") != 0 && !text_of(record, shape->question))
        return ckpt_fail(err, CKPT_EFORMAT, "field %s is no text", shape->question);
    rc = find_right(&out->right, record, shape->right, choice, out->n, keys, err);
    for (size_t i = 0; rc == 0 && i < out->n; i++) {
        struct ckpt_buf b;

        ckpt_buf_init(&b, SIZE_MAX);
        if (shape->letters)
            ckpt_buf_put_u8(&b, (uint8_t)letters[i]);
        else if (shape->clean)
            put_clean(&b, choice[i]);
        else
            ckpt_buf_put_str(&b, choice[i]);
        if (!(choice[i] = keep(a, &b)))
            rc = ckpt_nomem(err, 64);
    }
    out->choice = choice;
    return rc;
}

/* White space at the end of the context goes to the continuations, before a space of theirs. */
static int join(struct choice_row *out, const char *context, struct ckpt_arena *a,
                struct ckpt_err *err)
{
    const char **continuation = ckpt_arena_alloc(a, out->n, sizeof *continuation), *tail;
    size_t len, lead = 0;

    if (!context || !continuation)
        return ckpt_nomem(err, 64);
    tail = words_strip(context, &len);
    lead = len ? (size_t)(tail - context) + len : 0;
    out->context = ckpt_arena_strndup(a, context, lead);
    for (size_t i = 0; i < out->n; i++)
        if (!(continuation[i] = ckpt_arena_printf(a, "%s %s", context + lead, out->choice[i])))
            return ckpt_nomem(err, 64);
    out->continuation = continuation;
    return out->context ? 0 : ckpt_nomem(err, lead);
}

static int unknown(const struct choice_opts *o, struct ckpt_err *err)
{
    if (o->words.n)
        return ckpt_fail(err, CKPT_EFORMAT, "no field text or prompt, and label");
    ckpt_fail(err, CKPT_EFORMAT, "no fields of a question with choices");
    return ckpt_err_hint(err, "known are endings and label; question, choices and answerKey or "
                         "answer; prompt, choices and label");
}

int choice_row_read(struct choice_row *out, const json_t *record, const struct choice_opts *o,
                    struct ckpt_arena *a, struct ckpt_err *err)
{
    const struct shape *shape = o->words.n ? NULL : shape_of(record);
    const char *context = NULL;
    struct ckpt_buf b;
    int rc;

    if (!shape && !o->words.n)
        return unknown(o, err);
    if (shape)
        rc = own_choices(out, record, shape, a, err);
    else {
        out->choice = o->words.item;
        out->n = o->words.n;
        rc = find_right(&out->right, record, "label", out->choice, out->n, NULL, err);
    }
    if (rc)
        return rc;
    if (o->prompt) {
        ckpt_buf_init(&b, SIZE_MAX);
        rc = template_render(o->prompt, &b, record, err);
        context = keep(a, &b);
    } else if (shape && shape->clean && !has_context(record)) {
        return ckpt_fail(err, CKPT_EFORMAT, "no text in a field ctx, or in ctx_a and ctx_b, before "
                         "the endings");
    } else if (shape) {
        context = shape->context(record, a);
    } else {
        context = text_of(record, "text") ? text_of(record, "text") : text_of(record, "prompt");
        if (!context)
            return unknown(o, err);
    }
    return rc ? rc : join(out, context, a, err);
}
