/* train/prompts - the kinds of records that axolotl's files name, as templates; see train/names.h.
 *
 * Source: axolotl 0.19, prompt_strategies/user_defined.py and alpaca_w_system.py, whose formats are
 * Python's str.format.  The prompt of "alpaca" is that of tatsu-lab/stanford_alpaca, train.py. */
#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/mem.h"
#include "tools/train/names.h"

#define MAX_TEMPLATE ((size_t)64 << 10)     /* bytes, as data/template has it */
#define CUSTOM "datasets.*.type."

static const char two_kinds[] =
    "data sets of several kinds: one kind of record is read; --field-mapping names columns";

/* The text of a custom type's member, or what it is there without one. */
static const char *member(const struct opt_put *put, const char *name, const char *absent)
{
    char full[80];
    const char *text;

    snprintf(full, sizeof full, CUSTOM "%s", name);
    text = opt_put_other(put, full);
    return text ? text : absent;
}

/* Text that a template keeps as it is. */
static void put_literal(struct ckpt_buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '{' || *text == '}')
            ckpt_buf_put(out, text, 1);
        ckpt_buf_put(out, text, 1);
    }
}

/* "{name}", with what comes before the name. */
static void put_column(struct ckpt_buf *out, const char *before, const char *column)
{
    bool plain = !strpbrk(column, ".[]{}|'\"?!~ \t\n/");
    const char *quote = strchr(column, '\'') ? "\"" : "'";

    ckpt_buf_put_str(out, "{");
    ckpt_buf_put_str(out, before);
    ckpt_buf_put_str(out, plain ? "" : "[");
    ckpt_buf_put_str(out, plain ? "" : quote);
    ckpt_buf_put_str(out, column);
    ckpt_buf_put_str(out, plain ? "" : quote);
    ckpt_buf_put_str(out, plain ? "" : "]");
    ckpt_buf_put_str(out, "}");
}

/* What a format's {word} stands for: a column, or else a text. */
struct word { const char *name, *column, *text; };

/* A format of Python's: its words, and doubled braces; conversions and widths are refused. */
static int put_format(struct ckpt_buf *out, const struct opt_put *put, const char *name,
                      const char *format, const struct word *word, size_t n, struct ckpt_err *err)
{
    for (const char *p = format; *p;) {
        size_t k = strcspn(p, "{}"), w = 0, len;

        ckpt_buf_put(out, p, k);
        p += k;
        if (*p && p[1] == *p) {
            ckpt_buf_put(out, p, 2);
            p += 2;
            continue;
        }
        if (!*p)
            break;
        len = strcspn(p + 1, "{}");
        while (w < n && !(strlen(word[w].name) == len && !strncmp(word[w].name, p + 1, len)))
            w++;
        if (*p == '}' || p[1 + len] != '}')
            return opt_put_refuse(put, err, "%s: a lone brace at \"%.40s\" (write it twice)", name,
                                  p);
        if (w == n)
            return opt_put_refuse(put, err, "%s: {%.*s} stands for nothing there; {%s}%s%s%s does",
                                  name, (int)(len > 40 ? 40 : len), p + 1, word[0].name,
                                  n > 1 ? " or {" : "", n > 1 ? word[1].name : "",
                                  n > 1 ? "}" : "");
        if (word[w].column)
            put_column(out, "", word[w].column);
        else
            put_literal(out, word[w].text);
        p += len + 2;
    }
    return 0;
}

/* The system's text is the record's where the record has such a column, also an empty one. */
static int put_system(struct ckpt_buf *out, const struct opt_put *put, struct ckpt_err *err)
{
    const char *format = member(put, "system_format", "{system}");
    const char *column = member(put, "field_system", "system");
    const char *text = member(put, "system_prompt", "");
    struct word word = {"system", column, NULL};
    int rc = 0;

    if (!*format)
        return 0;
    if (*column) {
        put_column(out, "?", column);
        rc = put_format(out, put, "system_format", format, &word, 1, err);
        put_column(out, "/", column);
    }
    if (rc || !*text)
        return rc;
    word = (struct word){"system", NULL, text};
    if (*column)
        put_column(out, "~", column);
    rc = put_format(out, put, "system_format", format, &word, 1, err);
    if (*column)
        put_column(out, "/", column);
    return rc;
}

static int put_prompt(struct ckpt_buf *out, const struct opt_put *put, struct ckpt_err *err)
{
    const char *column = member(put, "field_input", "input");
    struct word word[] = {{"instruction", member(put, "field_instruction", "instruction"), NULL},
                          {"input", column, NULL}};
    int rc = put_system(out, put, err);

    if (rc == 0 && *column) {
        put_column(out, "?", column);
        rc = put_format(out, put, "format", member(put, "format", "{instruction} {input} "), word,
                        2, err);
        put_column(out, "/", column);
        put_column(out, "!", column);
    }
    rc = rc ? rc : put_format(out, put, "no_input_format",
                              member(put, "no_input_format", "{instruction} "), word, 1, err);
    if (rc == 0 && *column)
        put_column(out, "/", column);
    return rc;
}

/* Columns that a template can name. */
static int check_columns(const struct opt_put *put, struct ckpt_err *err)
{
    static const char *const names[] = {"field_instruction", "field_output", "field_system",
                                        "field_input"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *column = member(put, names[i], "x");

        if (i < 2 && !*column)
            return opt_put_refuse(put, err, "%s: a column's name is wanted", names[i]);
        if (strchr(column, '\'') && strchr(column, '"'))
            return opt_put_refuse(put, err, "%s: a name with quotes of both kinds", names[i]);
    }
    return 0;
}

/* Set an option to a text, which is released. */
static int put_text(struct opt_put *put, const char *option, struct ckpt_buf *text,
                    struct ckpt_err *err)
{
    const char *own = ckpt_buf_ok(text)
                          ? ckpt_arena_strndup(opt_put_arena(put), ckpt_buf_str(text), text->len)
                          : NULL;
    int rc;

    if (own)
        rc = opt_put_option(put, option, own, err);
    else
        rc = opt_put_refuse(put, err, "no memory for its template, or it is above %zu bytes",
                            MAX_TEMPLATE);
    ckpt_buf_release(text);
    return rc;
}

/* Each member of a custom type makes the whole of both templates: any of them may stand alone. */
int train_names_custom_prompt(struct opt_put *put, const char *const *value, size_t n,
                              struct ckpt_err *err)
{
    static const char *const names[] = {"system_prompt", "system_format", "field_system",
                                        "field_instruction", "field_input", "field_output",
                                        "format", "no_input_format"};
    struct ckpt_buf out;
    char full[80];
    int rc;

    (void)n;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(full, sizeof full, CUSTOM "%s", names[i]);
        if (opt_put_is(put, full) && strcmp(value[0], member(put, names[i], "")) != 0)
            return opt_put_refuse(put, err, two_kinds);
    }
    if (opt_put_other(put, "datasets.*.type"))
        return opt_put_refuse(put, err, two_kinds);
    if ((rc = check_columns(put, err)) != 0)
        return rc;
    ckpt_buf_init(&out, MAX_TEMPLATE);
    if ((rc = put_prompt(&out, put, err)) != 0) {
        ckpt_buf_release(&out);
        return rc;
    }
    if ((rc = put_text(put, "prompt-template", &out, err)) != 0)
        return rc;
    ckpt_buf_init(&out, MAX_TEMPLATE);
    put_column(&out, "", member(put, "field_output", "output"));
    return put_text(put, "completion-template", &out, err);
}

static bool is_chat(const char *type)
{
    return strcmp(type, "chat_template") == 0 || strcmp(type, "sharegpt") == 0;
}

int train_names_record_type(struct opt_put *put, const char *const *value, size_t n,
                            struct ckpt_err *err)
{
    static const char alpaca[] =
        "Below is an instruction that describes a task{?input}, paired with an input that "
        "provides further context{/input}. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\n{instruction}\n\n{?input}### Input:\n{input}\n\n{/input}"
        "### Response:\n";
    const char *first = opt_put_other(put, "datasets.*.type");
    int rc;

    (void)n;
    if (first && strcmp(first, value[0]) != 0 && !(is_chat(first) && is_chat(value[0])))
        return opt_put_refuse(put, err, two_kinds);
    if (is_chat(value[0]) || strcmp(value[0], "completion") == 0)
        return 0;
    if (strcmp(value[0], "alpaca") != 0)
        return opt_put_refuse(put, err, "type %s is not done: a mapping with format, "
                              "--prompt-template and --completion-template, or --messages-field, "
                              "name what a record is", value[0]);
    rc = opt_put_option(put, "prompt-template", alpaca, err);
    return rc ? rc : opt_put_option(put, "completion-template", "{output}", err);
}
