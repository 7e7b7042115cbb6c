/* answers - see answers.h. */
#include "tools/eval/answers.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/commit.h"

int answers_init(struct answers *a, size_t n, struct ckpt_err *err)
{
    a->n = n;
    a->row = ckpt_arena_alloc(&a->arena, n + 1, sizeof *a->row);
    return a->row ? 0 : ckpt_nomem(err, n * sizeof *a->row);
}

void answers_release(struct answers *a)
{
    ckpt_arena_release(&a->arena);
    memset(a, 0, sizeof *a);
}

const char *answers_text(struct answers *a, const json_t *v)
{
    if (json_is_string(v))
        return ckpt_arena_strndup(&a->arena, json_string_value(v), json_string_length(v));
    if (json_is_integer(v))
        return ckpt_arena_printf(&a->arena, "%lld", (long long)json_integer_value(v));
    if (json_is_boolean(v))
        return json_is_true(v) ? "true" : "false";
    return json_is_real(v) ? ckpt_arena_printf(&a->arena, "%.17g", json_real_value(v)) : NULL;
}

int answers_references(struct answers *a, size_t i, const json_t *v, struct ckpt_err *err)
{
    bool none = json_is_object(v) && json_is_array(json_object_get(v, "text")) &&
                json_array_size(json_object_get(v, "text")) == 0;
    const char **text;
    size_t n;

    if (json_is_object(v))
        v = json_object_get(v, "text");
    n = json_is_array(v) && !none ? json_array_size(v) : 1;
    text = ckpt_arena_alloc(&a->arena, n ? n : 1, sizeof *text);
    if (!text)
        return ckpt_nomem(err, n * sizeof *text);
    if (none)                           /* SQuAD 2: a question without an answer */
        text[0] = "";
    for (size_t k = 0; k < n && !none; k++)
        if (!(text[k] = answers_text(a, json_is_array(v) ? json_array_get(v, k) : v)))
            return ckpt_fail(err, CKPT_EFORMAT, "reference %zu is no text", k + 1);
    if (n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "there is no reference");
    a->row[i].reference = text;
    a->row[i].n_references = n;
    return 0;
}

const json_t *answers_named(const json_t *record)
{
    const json_t *v = json_object_get(record, "answers");

    if (json_is_object(v))
        v = json_object_get(v, "text");
    return json_array_size(v) > 0 ? v : NULL;
}

int answers_same(const struct answers *a, const struct answers *b, struct ckpt_err *err)
{
    if (a->n != b->n)
        return ckpt_fail(err, CKPT_EFORMAT, "%zu rows, and the predictions have %zu", b->n, a->n);
    for (size_t i = 0; i < a->n; i++) {
        const struct score_row *x = &a->row[i], *y = &b->row[i];
        bool same = x->n_references == y->n_references;

        for (size_t k = 0; same && k < x->n_references; k++)
            same = strcmp(x->reference[k], y->reference[k]) == 0;
        if (!same)
            return ckpt_fail(err, CKPT_EFORMAT, "row %zu has other references", i + 1);
    }
    return 0;
}

int answers_score(struct score **out, const char *metric, const struct answers *a,
                  const struct bertscore_want *encoder, struct ckpt_err *err)
{
    return strcmp(metric, "bertscore") == 0 ? bertscore_new(out, encoder, a->row, a->n, err)
                                            : score_new(out, metric, a->row, a->n, err);
}

static void put_member(struct ckpt_buf *line, const char *before, const char *text)
{
    ckpt_buf_put_str(line, before);
    ckpt_json_put_string(line, text, strlen(text));
}

int answers_write(const struct answers *a, const char *const *prompts, const char *path,
                  bool overwrite, struct ckpt_err *err)
{
    struct ckpt_buf line;
    bool lines = strcmp(path, "-") == 0;
    struct ckpt_out *out = NULL;
    int rc = lines ? 0 : ckpt_out_create(&out, path, overwrite ? CKPT_REPLACE : 0, err);

    for (size_t i = 0; rc == 0 && i < a->n; i++) {
        const struct score_row *r = &a->row[i];

        ckpt_buf_init(&line, SIZE_MAX);
        if (prompts)
            put_member(&line, "{\"prompt\": ", prompts[i]);
        put_member(&line, prompts ? ", \"prediction\": " : "{\"prediction\": ", r->prediction);
        ckpt_buf_put_str(&line, ", \"references\": [");
        for (size_t k = 0; k < r->n_references; k++)
            put_member(&line, k ? ", " : "", r->reference[k]);
        ckpt_buf_put_str(&line, "]}\n");
        if (!ckpt_buf_ok(&line))
            rc = ckpt_nomem(err, line.len);
        else if (lines)                 /* main asks whether all could be written */
            fwrite(line.data, 1, line.len, stdout);
        else
            rc = ckpt_out_write(out, line.data, line.len, err);
        ckpt_buf_release(&line);
    }
    if (lines || !out)
        return rc;
    if (rc == 0)
        return ckpt_out_commit(out, err);
    ckpt_out_abort(out);
    return rc;
}
