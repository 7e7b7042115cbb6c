/* sample - see sample.h. */
#include "trainer/data/sample.h"

#include <string.h>

#include "libckpt/mem.h"

void sample_release(struct sample *s)
{
    ckpt_free(s->ids);
    ckpt_free(s->labels);
    ckpt_free(s->enc);
    memset(s, 0, sizeof *s);
}

int sample_pad(struct sample *s, int64_t n, int32_t id, bool before, struct ckpt_err *err)
{
    int64_t pad = n > s->n ? n - s->n : 0, from = before ? 0 : s->n;
    int rc = sample_reserve(s, s->n + pad, err);

    if (rc)
        return rc;
    if (before) {
        memmove(s->ids + pad, s->ids, (size_t)s->n * sizeof *s->ids);
        memmove(s->labels + pad, s->labels, (size_t)s->n * sizeof *s->labels);
    }
    for (int64_t i = from; i < from + pad; i++)
        s->ids[i] = s->labels[i] = id;
    s->n += pad;
    s->pad_before = before ? pad : 0;
    s->pad_after = before ? 0 : pad;
    return 0;
}

int64_t sample_length(const struct sample *s)
{
    /* The last target of a pair is not an input. */
    return s->n_enc == 0 ? s->n : s->n - 1 > s->n_enc ? s->n - 1 : s->n_enc;
}

int64_t sample_targets(const struct sample *s)
{
    int64_t n = 0;

    for (int64_t i = 1; i < s->n; i++)
        n += s->labels[i] != SAMPLE_NO_LABEL;
    return n;
}

int sample_reserve(struct sample *s, int64_t n, struct ckpt_err *err)
{
    int64_t cap = s->cap < 64 ? 64 : s->cap;
    void *p;

    if (n <= s->cap)
        return 0;
    while (cap < n)
        cap *= 2;
    if (!(p = ckpt_grow(s->ids, (size_t)cap, sizeof *s->ids)))
        return ckpt_nomem(err, (size_t)cap * sizeof *s->ids);
    s->ids = p;
    if (!(p = ckpt_grow(s->labels, (size_t)cap, sizeof *s->labels)))
        return ckpt_nomem(err, (size_t)cap * sizeof *s->labels);
    s->labels = p;
    s->cap = cap;
    return 0;
}

/* Member key of a DATA_IDS record: a list of n integers in low..INT32_MAX (n < 0: of any
 * length).  NULL when absent or null and not needed. */
static int int_list(const json_t **out, const json_t *record, const char *key, bool needed,
                    int64_t n, int64_t low, struct ckpt_err *err)
{
    const json_t *v = json_object_get(record, key);

    *out = NULL;
    if ((!v || json_is_null(v)) && !needed)
        return 0;
    if (!json_is_array(v))
        return ckpt_fail(err, CKPT_EFORMAT, "field \"%s\" is not a list of numbers", key);
    if (n >= 0 && json_array_size(v) != (size_t)n)
        return ckpt_fail(err, CKPT_EFORMAT, "%s has %zu numbers, input_ids %lld", key,
                         json_array_size(v), (long long)n);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);

        if (!json_is_integer(item) || json_integer_value(item) < low ||
            json_integer_value(item) > INT32_MAX)
            return ckpt_fail(err, CKPT_EFORMAT, "%s[%zu] is not a whole number of %lld or more",
                             key, i, (long long)low);
    }
    *out = v;
    return 0;
}

static int64_t int_at(const json_t *list, int64_t i)
{
    return json_integer_value(json_array_get(list, (size_t)i));
}

/*
 * The unmasked tokens are [*first, *end).  Refused: a hole in the mask, which would look like
 * padding once padding is dropped, and a label at a masked position, which would be trained.
 */
static int masked_span(const json_t *mask, const json_t *labels, int64_t n, int64_t *first,
                       int64_t *end, struct ckpt_err *err)
{
    *first = 0;
    *end = n;
    if (!mask)
        return 0;
    while (*first < n && int_at(mask, *first) == 0)
        ++*first;
    while (*end > *first && int_at(mask, *end - 1) == 0)
        --*end;
    for (int64_t i = 0; i < n; i++) {
        bool inside = i >= *first && i < *end;

        if (inside && int_at(mask, i) == 0)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "attention_mask has a hole at %lld; only "
                             "padding at the two ends can be left out", (long long)i);
        if (!inside && labels && int_at(labels, i) != SAMPLE_NO_LABEL)
            return ckpt_fail(err, CKPT_EFORMAT, "labels[%lld] is %lld although attention_mask "
                             "leaves the token out; %d was expected", (long long)i,
                             (long long)int_at(labels, i), SAMPLE_NO_LABEL);
    }
    return 0;
}

int sample_from_ids(struct sample *s, const json_t *record, int64_t max, struct ckpt_err *err)
{
    const json_t *ids, *mask, *labels;
    int64_t n, first, end;
    int rc;

    if ((rc = int_list(&ids, record, "input_ids", true, -1, 0, err)) != 0)
        return rc;
    n = (int64_t)json_array_size(ids);
    if ((rc = int_list(&mask, record, "attention_mask", false, n, 0, err)) != 0 ||
        (rc = int_list(&labels, record, "labels", false, n, SAMPLE_NO_LABEL, err)) != 0 ||
        (rc = masked_span(mask, labels, n, &first, &end, err)) != 0)
        return rc;
    s->cut = end - first > max;
    if (s->cut && s->cut_left)
        first = end - max;
    else if (s->cut)
        end = first + max;
    if ((rc = sample_reserve(s, end - first, err)) != 0)
        return rc;
    s->given = n;
    s->lead = first;
    s->n = end - first;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t label = labels ? int_at(labels, first + i) : int_at(ids, first + i);

        if (label < 0 && label != SAMPLE_NO_LABEL)
            return ckpt_fail(err, CKPT_EFORMAT, "labels[%lld] is %lld, neither an id nor %d",
                             (long long)(first + i), (long long)label, SAMPLE_NO_LABEL);
        s->ids[i] = (int32_t)int_at(ids, first + i);
        s->labels[i] = (int32_t)label;
    }
    return 0;
}

/* Tokens that end inside the first `prompt` bytes of the text have no loss; tokens that the
 * post-processor puts in front belong to the prompt, those after to the completion. */
static int64_t label_from(const struct encoding *enc, size_t prompt)
{
    size_t i = 0;

    if (prompt == 0)
        return 0;
    while (i < enc->n && enc->end[i] <= (int64_t)prompt)
        i++;
    /* Without any token of a completion, tokens added after the text belong to the prompt. */
    while (i > 0 && i == enc->n && enc->end[i - 1] == 0)
        i--;
    return (int64_t)i;
}

/* Keep at most max of the n tokens that were filled in. */
static void limit(struct sample *s, int64_t n, int64_t max)
{
    s->cut = n > max;
    s->n = s->cut ? max : n;
    s->given = n;
    s->lead = s->cut && s->cut_left ? n - max : 0;
    memmove(s->ids, s->ids + s->lead, (size_t)s->n * sizeof *s->ids);
    memmove(s->labels, s->labels + s->lead, (size_t)s->n * sizeof *s->labels);
}

/* Bytes of text that targets stand for: a token stands for those from the end of the tokens before
 * it to its own end, and a sample's first token is no target. */
static int64_t count_bytes(const struct sample *s, const struct encoding *enc)
{
    int64_t sum = 0, seen = 0;

    for (int64_t k = 0; k < s->lead + s->n && k < (int64_t)enc->n; k++) {
        int64_t more = enc->end[k] > seen ? enc->end[k] - seen : 0;

        if (k > s->lead && s->labels[k - s->lead] != SAMPLE_NO_LABEL)
            sum += more;
        seen += more;
    }
    return sum;
}

int sample_from_text(struct sample *s, const struct tokenizer *tok, const char *text,
                     size_t len, size_t prompt, int32_t eos, int64_t max, struct ckpt_err *err)
{
    struct encoding enc = {0};
    int64_t first, n;
    int rc;

    rc = tokenizer_encode(tok, &enc, text, len, true, err);
    n = (int64_t)enc.n;
    if (rc == 0)
        rc = sample_reserve(s, n + 1, err);
    if (rc)
        goto out;
    first = label_from(&enc, prompt);
    for (int64_t i = 0; i < n; i++) {
        s->ids[i] = enc.id[i];
        s->labels[i] = i >= first ? enc.id[i] : SAMPLE_NO_LABEL;
    }
    if (eos >= 0 && (n == 0 || s->ids[n - 1] != eos))
        s->ids[n] = s->labels[n] = eos, n++;
    limit(s, n, max);
    s->target_bytes = count_bytes(s, &enc);
out:
    encoding_release(&enc);
    return rc;
}

/* Tokens [*first, *end) overlap the span, including tokens without bytes between them; the
 * search starts at token *end. */
static void tokens_of(const struct encoding *enc, const struct jinja_span *span, size_t *first,
                      size_t *end)
{
    size_t i = *end;

    while (i < enc->n && enc->end[i] <= (int64_t)span->begin)
        i++;
    *first = *end = i;
    for (; i < enc->n && enc->start[i] < (int64_t)span->end; i++)
        if (enc->end[i] > enc->start[i])
            *end = i + 1;
}

int sample_from_spans(struct sample *s, const struct tokenizer *tok, const char *text, size_t len,
                      const struct jinja_span *span, size_t n_span, int64_t max,
                      struct ckpt_err *err)
{
    struct encoding enc = {0};
    size_t first, end = 0;
    int rc = tokenizer_encode(tok, &enc, text, len, false, err);

    if (rc == 0)
        rc = sample_reserve(s, (int64_t)enc.n + 1, err);
    if (rc)
        goto out;
    for (size_t i = 0; i < enc.n; i++) {
        s->ids[i] = enc.id[i];
        s->labels[i] = SAMPLE_NO_LABEL;
    }
    for (size_t k = 0; k < n_span; k++) {
        tokens_of(&enc, &span[k], &first, &end);
        for (size_t i = first; i < end; i++)
            s->labels[i] = enc.id[i];
    }
    limit(s, (int64_t)enc.n, max);
    s->target_bytes = count_bytes(s, &enc);
out:
    encoding_release(&enc);
    return rc;
}

int sample_reserve_enc(struct sample *s, int64_t n, struct ckpt_err *err)
{
    void *p = n > s->enc_cap ? ckpt_grow(s->enc, (size_t)n, sizeof *s->enc) : s->enc;

    if (n > s->enc_cap && !p)
        return ckpt_nomem(err, (size_t)n * sizeof *s->enc);
    s->enc = p;
    s->enc_cap = n > s->enc_cap ? n : s->enc_cap;
    return 0;
}

/* Most tokens of the decoder's part. */
static int64_t most_target(const struct sample_pair *pair, int64_t max)
{
    return pair->max_target > 0 && pair->max_target < max ? pair->max_target : max;
}

int sample_pair_from_ids(struct sample *s, const json_t *record, const struct sample_pair *pair,
                         int64_t max, struct ckpt_err *err)
{
    const json_t *ids, *mask, *labels;
    int64_t n, first, end, n_labels, target = most_target(pair, max);
    int rc;

    if ((rc = int_list(&ids, record, "input_ids", true, -1, 0, err)) != 0)
        return rc;
    n = (int64_t)json_array_size(ids);
    if ((rc = int_list(&mask, record, "attention_mask", false, n, 0, err)) != 0 ||
        (rc = int_list(&labels, record, "labels", true, -1, SAMPLE_NO_LABEL, err)) != 0 ||
        (rc = masked_span(mask, NULL, n, &first, &end, err)) != 0)
        return rc;
    n_labels = (int64_t)json_array_size(labels);
    while (n_labels > 0 && int_at(labels, n_labels - 1) == SAMPLE_NO_LABEL)
        n_labels--;                     /* padding: no earlier position attends to it */
    s->cut = end - first > max || n_labels > target;
    s->n_enc = end - first < max ? end - first : max;
    n_labels = n_labels < target ? n_labels : target;
    if (s->n_enc == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "input_ids: nothing for the encoder to read");
    if ((rc = sample_reserve_enc(s, s->n_enc, err)) != 0 ||
        (rc = sample_reserve(s, n_labels + 1, err)) != 0)
        return rc;
    for (int64_t i = 0; i < s->n_enc; i++)
        s->enc[i] = (int32_t)int_at(ids, first + i);
    s->ids[0] = pair->start;
    s->labels[0] = SAMPLE_NO_LABEL;
    for (int64_t i = 0; i < n_labels; i++) {
        int64_t label = int_at(labels, i);

        if (label < 0 && label != SAMPLE_NO_LABEL)
            return ckpt_fail(err, CKPT_EFORMAT, "labels[%lld] is %lld, neither an id nor %d",
                             (long long)i, (long long)label, SAMPLE_NO_LABEL);
        s->labels[i + 1] = (int32_t)label;
        s->ids[i + 1] = label < 0 ? pair->pad : (int32_t)label;
    }
    s->n = n_labels + 1;
    s->lead = 0;
    s->given = (int64_t)json_array_size(labels);
    return 0;
}

/* Copy at most max tokens of a part to ids[max], the last of which is eos; returns how many. */
static void part_ids(int64_t *n, int32_t *ids, bool *cut, const struct encoding *enc,
                     int32_t eos, int64_t max, bool left)
{
    int64_t own = (int64_t)enc->n, from;

    if (eos >= 0 && own > 0 && enc->id[own - 1] == eos)
        own--;
    *n = own + (eos >= 0);
    *cut |= *n > max;
    from = *n > max && left ? *n - max : 0;
    *n = *n > max ? max : *n;
    for (int64_t i = 0; i < *n; i++)
        ids[i] = eos >= 0 && i == *n - 1 ? eos : enc->id[from + i];
}

int sample_pair_from_text(struct sample *s, const struct tokenizer *tok, const char *text,
                          size_t len, size_t prompt, int32_t eos, const struct sample_pair *pair,
                          int64_t max, struct ckpt_err *err)
{
    struct encoding enc = {0}, dec = {0};
    int64_t n = 0;
    int rc;

    s->cut = false;
    rc = tokenizer_encode(tok, &enc, text, prompt, true, err);
    if (rc == 0)
        rc = tokenizer_encode(tok, &dec, text + prompt, len - prompt, true, err);
    if (rc == 0)
        rc = sample_reserve_enc(s, (int64_t)enc.n + 1, err);
    if (rc == 0)
        rc = sample_reserve(s, (int64_t)dec.n + 2, err);
    if (rc)
        goto out;
    part_ids(&s->n_enc, s->enc, &s->cut, &enc, eos, max, s->cut_left);
    part_ids(&n, s->ids + 1, &s->cut, &dec, eos, most_target(pair, max), false);
    if (s->n_enc == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "the prompt has no token for the encoder");
    s->ids[0] = pair->start;
    s->labels[0] = SAMPLE_NO_LABEL;
    memcpy(s->labels + 1, s->ids + 1, (size_t)n * sizeof *s->labels);
    s->n = n + 1;
    s->given = n;
    s->lead = 0;
    s->target_bytes = 0;
    for (size_t k = 0; k < dec.n && (int64_t)k < n; k++)
        s->target_bytes = dec.end[k] > s->target_bytes ? dec.end[k] : s->target_bytes;
out:
    encoding_release(&enc);
    encoding_release(&dec);
    return rc;
}
