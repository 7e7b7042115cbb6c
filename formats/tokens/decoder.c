/* decoder - see decoder.h. */
#include "formats/tokens/decoder.h"

#include <string.h>

#include "formats/tokens/bytelevel.h"
#include "formats/tokens/component.h"
#include "formats/tokens/pretok_steps.h"
#include "formats/tokens/unicode/regex.h"
#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

#define MARK "\xe2\x96\x81"     /* U+2581 */
#define MAX_STEPS 16            /* the longest sequence seen has five */

struct step;
typedef int step_fn(const struct step *s, const struct decoder_list *in,
                    struct decoder_list *out, struct ckpt_err *err);

struct step {
    step_fn      *run;
    struct regex *regex;        /* Replace */
    char         *text;         /* Replace's content, a prefix, suffix, pad token, or character */
    char         *delimiter;    /* CTC */
    size_t        start, stop;  /* Strip */
    bool          cleanup;      /* SentencePiece: runs of spaces were squeezed */
    bool          prefixed;     /* Metaspace: the first token may begin with one */
};

struct decoder {
    struct step step[MAX_STEPS];
    size_t      n;
    bool        joins;          /* a decoder is given */
};

void decoder_list_init(struct decoder_list *list)
{
    memset(list, 0, sizeof *list);
    ckpt_buf_init(&list->text, SIZE_MAX);
}

void decoder_list_release(struct decoder_list *list)
{
    ckpt_buf_release(&list->text);
    ckpt_free(list->end);
}

/* End the string that was put since the last end. */
static void end_string(struct decoder_list *list)
{
    struct ckpt_err ignored = {0};

    if (ckpt_reserve(&list->end, list->n, &list->cap, sizeof *list->end, &ignored))
        list->failed = true;
    else
        list->end[list->n++] = list->text.len;
}

void decoder_list_add(struct decoder_list *list, const char *s, size_t n)
{
    ckpt_buf_put(&list->text, s, n);
    end_string(list);
}

static const char *string_of(const struct decoder_list *list, size_t i, size_t *n)
{
    size_t from = i ? list->end[i - 1] : 0;

    *n = list->end[i] - from;
    return list->text.data ? (const char *)list->text.data + from : "";
}

/* Put s with every `what` replaced by `by`. */
static void put_replaced(struct ckpt_buf *out, const char *s, size_t n, const char *what,
                         const char *by)
{
    size_t n_what = strlen(what), n_by = strlen(by);
    const char *at;

    while (n_what > 0 && n >= n_what && (at = memmem(s, n, what, n_what))) {
        ckpt_buf_put(out, s, (size_t)(at - s));
        ckpt_buf_put(out, by, n_by);
        n -= (size_t)(at - s) + n_what;
        s = at + n_what;
    }
    ckpt_buf_put(out, s, n);
}

void decoder_clean_up(struct ckpt_buf *out, const char *s, size_t n)
{
    static const char *const rows[][2] = {
        {" .", "."},     {" ?", "?"},     {" !", "!"},   {" ,", ","},
        {" ' ", "'"},    {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"},
        {" 's", "'s"},   {" 've", "'ve"}, {" 're", "'re"},
    };
    struct ckpt_buf b[2];

    ckpt_buf_init(&b[0], SIZE_MAX);
    ckpt_buf_init(&b[1], SIZE_MAX);
    ckpt_buf_put(&b[0], s, n);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ckpt_buf *from = &b[i & 1], *to = &b[~i & 1];

        to->len = 0;
        put_replaced(to, (const char *)from->data, from->len, rows[i][0], rows[i][1]);
    }
    ckpt_buf_put(out, b[1].data, b[1].len);
    out->failed |= b[0].failed || b[1].failed;
    ckpt_buf_release(&b[0]);
    ckpt_buf_release(&b[1]);
}

static int run_bytelevel(const struct step *s, const struct decoder_list *in,
                         struct decoder_list *out, struct ckpt_err *err)
{
    struct ckpt_buf raw;
    int rc = 0;

    (void)s;
    ckpt_buf_init(&raw, SIZE_MAX);
    for (size_t i = 0; rc == 0 && i < in->n; i++) {
        size_t n, n_raw;
        const char *token = string_of(in, i, &n);
        unsigned char *bytes = ckpt_alloc(n + 1, 1);

        if (bytes) {
            bytelevel_decode(bytes, &n_raw, token, n);
            ckpt_buf_put(&raw, bytes, n_raw);
        }
        if (!bytes || !ckpt_buf_ok(&raw))
            rc = ckpt_nomem(err, n);
        ckpt_free(bytes);
    }
    utf8_put_lossy(&out->text, raw.data, raw.len);
    end_string(out);
    ckpt_buf_release(&raw);
    return rc;
}

static int run_replace(const struct step *s, const struct decoder_list *in,
                       struct decoder_list *out, struct ckpt_err *err)
{
    struct regex_run *run;
    int rc = regex_run_new(&run, s->regex, err);

    for (size_t i = 0; rc == 0 && i < in->n; i++) {
        struct regex_match m = {0};
        size_t n, done = 0;
        const char *token = string_of(in, i, &n);
        bool found = n > 0;

        while (rc == 0 && found) {
            rc = regex_next(s->regex, run, (const unsigned char *)token, n, &m, &found, err);
            if (rc || !found)
                break;
            ckpt_buf_put(&out->text, token + done, m.start - done);
            ckpt_buf_put_str(&out->text, s->text);
            done = m.end;
        }
        ckpt_buf_put(&out->text, token + done, n - done);
        end_string(out);
    }
    regex_run_free(run);
    return rc;
}

/* Replace the step's text by a space in each token, or in one of them by nothing. */
static void replace_text(const struct step *s, const struct decoder_list *in,
                         struct decoder_list *out, size_t no_space)
{
    for (size_t i = 0; i < in->n; i++) {
        size_t n;
        const char *token = string_of(in, i, &n);

        put_replaced(&out->text, token, n, s->text, i == no_space ? "" : " ");
        end_string(out);
    }
}

static int run_metaspace(const struct step *s, const struct decoder_list *in,
                         struct decoder_list *out, struct ckpt_err *err)
{
    (void)err;
    replace_text(s, in, out, s->prefixed ? 0 : SIZE_MAX);
    return 0;
}

static int run_bpe(const struct step *s, const struct decoder_list *in, struct decoder_list *out,
                   struct ckpt_err *err)
{
    (void)err;
    replace_text(s, in, out, in->n - 1);
    return 0;
}

static int run_wordpiece(const struct step *s, const struct decoder_list *in,
                         struct decoder_list *out, struct ckpt_err *err)
{
    size_t prefix = strlen(s->text);
    struct ckpt_buf word;

    (void)err;
    ckpt_buf_init(&word, SIZE_MAX);
    for (size_t i = 0; i < in->n; i++) {
        size_t n, skip = 0;
        const char *token = string_of(in, i, &n);

        word.len = 0;
        if (i > 0 && n >= prefix && memcmp(token, s->text, prefix) == 0)
            skip = prefix;
        else if (i > 0)
            ckpt_buf_put_str(&word, " ");
        ckpt_buf_put(&word, token + skip, n - skip);
        if (s->cleanup)
            decoder_clean_up(&out->text, (const char *)word.data, word.len);
        else
            ckpt_buf_put(&out->text, word.data, word.len);
        end_string(out);
    }
    out->failed |= word.failed;
    ckpt_buf_release(&word);
    return 0;
}

/* The byte that "<0x41>" names, or -1. */
static int named_byte(const char *s, size_t n)
{
    int value = 0;

    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        int c = s[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c == '+' && i == 3 ? 0 : -1;

        if (digit < 0)
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* Flush collected bytes: as text if they are UTF-8, else one U+FFFD for each. */
static void flush_bytes(struct ckpt_buf *bytes, struct decoder_list *out)
{
    if (bytes->len == 0)
        return;
    if (utf8_valid_prefix(bytes->data, bytes->len) == bytes->len)
        decoder_list_add(out, (const char *)bytes->data, bytes->len);
    else
        for (size_t i = 0; i < bytes->len; i++)
            decoder_list_add(out, "\xef\xbf\xbd", 3);
    bytes->len = 0;
}

static int run_fallback(const struct step *s, const struct decoder_list *in,
                        struct decoder_list *out, struct ckpt_err *err)
{
    struct ckpt_buf bytes;

    (void)s;
    (void)err;
    ckpt_buf_init(&bytes, SIZE_MAX);
    for (size_t i = 0; i < in->n; i++) {
        size_t n;
        const char *token = string_of(in, i, &n);
        int byte = named_byte(token, n);

        if (byte >= 0) {
            ckpt_buf_put_u8(&bytes, (uint8_t)byte);
            continue;
        }
        flush_bytes(&bytes, out);
        decoder_list_add(out, token, n);
    }
    flush_bytes(&bytes, out);
    out->failed |= bytes.failed;
    ckpt_buf_release(&bytes);
    return 0;
}

static int run_fuse(const struct step *s, const struct decoder_list *in,
                    struct decoder_list *out, struct ckpt_err *err)
{
    (void)s;
    (void)err;
    decoder_list_add(out, (const char *)in->text.data, in->n ? in->end[in->n - 1] : 0);
    return 0;
}

static int run_strip(const struct step *s, const struct decoder_list *in,
                     struct decoder_list *out, struct ckpt_err *err)
{
    size_t width = strlen(s->text);

    (void)err;
    for (size_t i = 0; i < in->n; i++) {
        size_t n, from = 0;
        const char *token = string_of(in, i, &n);
        size_t to = n;

        for (size_t k = 0; k < s->start && n - from >= width &&
                           memcmp(token + from, s->text, width) == 0; k++)
            from += width;
        for (size_t k = 0; k < s->stop && to - from >= width &&
                           memcmp(token + to - width, s->text, width) == 0; k++)
            to -= width;
        decoder_list_add(out, token + from, to - from);
    }
    return 0;
}

static int run_ctc(const struct step *s, const struct decoder_list *in, struct decoder_list *out,
                   struct ckpt_err *err)
{
    struct ckpt_buf b[2];
    size_t n_last = 0;
    const char *last = NULL;

    (void)err;
    ckpt_buf_init(&b[0], SIZE_MAX);
    ckpt_buf_init(&b[1], SIZE_MAX);
    for (size_t i = 0; i < in->n; i++) {
        size_t n;
        const char *token = string_of(in, i, &n);
        bool again = last && n == n_last && memcmp(token, last, n) == 0;

        last = token;
        n_last = n;
        b[0].len = b[1].len = 0;
        if (again)
            continue;
        put_replaced(&b[0], token, n, s->text, "");
        if (s->cleanup) {
            decoder_clean_up(&b[1], (const char *)b[0].data, b[0].len);
            b[0].len = 0;
            put_replaced(&b[0], (const char *)b[1].data, b[1].len, s->delimiter, " ");
        }
        if (b[0].len > 0)
            decoder_list_add(out, (const char *)b[0].data, b[0].len);
    }
    out->failed |= b[0].failed || b[1].failed;
    ckpt_buf_release(&b[0]);
    ckpt_buf_release(&b[1]);
    return 0;
}

/* Put collected bytes as sentencepiece does: characters, and one U+FFFD for each invalid byte. */
static void put_bytes(struct ckpt_buf *out, struct ckpt_buf *bytes)
{
    for (size_t i = 0; i < bytes->len; i++) {
        size_t good = utf8_valid_prefix(bytes->data + i, bytes->len - i);

        ckpt_buf_put(out, bytes->data + i, good);
        i += good;
        if (i < bytes->len)
            ckpt_buf_put_str(out, "\xef\xbf\xbd");
    }
    bytes->len = 0;
}

/* Source: sentencepiece 2734490 src/sentencepiece_processor.cc, Decode. */
static int run_sentencepiece(const struct step *s, const struct decoder_list *in,
                             struct decoder_list *out, struct ckpt_err *err)
{
    bool at_start = true, seen = false;     /* one leading mark may be dropped */
    struct ckpt_buf bytes;

    (void)err;
    ckpt_buf_init(&bytes, SIZE_MAX);
    for (size_t i = 0; i < in->n; i++) {
        size_t n, skip = 0;
        const char *token = string_of(in, i, &n);
        int byte = named_byte(token, n);

        if (byte >= 0) {
            ckpt_buf_put_u8(&bytes, (uint8_t)byte);
            continue;
        }
        put_bytes(&out->text, &bytes);
        if (seen || out->text.len > 0)
            at_start = false;
        if (at_start && (s->prefixed || s->cleanup) && n >= 3 && memcmp(token, MARK, 3) == 0)
            skip = 3;
        seen = skip > 0 && !s->cleanup;
        put_replaced(&out->text, token + skip, n - skip, MARK, " ");
    }
    put_bytes(&out->text, &bytes);
    end_string(out);
    out->failed |= bytes.failed;
    ckpt_buf_release(&bytes);
    return 0;
}

static int read_bpe(struct step *s, const json_t *json, struct ckpt_err *err)
{
    return component_text(&s->text, json, "suffix", "</w>", err);
}

static int read_wordpiece(struct step *s, const json_t *json, struct ckpt_err *err)
{
    int rc = ckpt_json_bool_or(&s->cleanup, json, "cleanup", true, err);

    return rc ? rc : component_text(&s->text, json, "prefix", "##", err);
}

static int read_metaspace(struct step *s, const json_t *json, struct ckpt_err *err)
{
    enum metaspace scheme;
    const char *c;
    int rc;

    if ((rc = pretok_metaspace_scheme(json, &scheme, err)) != 0 ||
        (rc = component_char(json, "replacement", &c, err)) != 0)
        return rc;
    s->prefixed = scheme != META_NEVER;
    return component_text(&s->text, json, "replacement", NULL, err);
}

static int read_sentencepiece(struct step *s, const json_t *json, struct ckpt_err *err)
{
    int rc = ckpt_json_bool_or(&s->prefixed, json, "prefix", true, err);

    return rc ? rc : ckpt_json_bool_or(&s->cleanup, json, "squeeze", true, err);
}

static int read_ctc(struct step *s, const json_t *json, struct ckpt_err *err)
{
    int rc;

    if ((rc = ckpt_json_bool_or(&s->cleanup, json, "cleanup", true, err)) != 0 ||
        (rc = component_text(&s->text, json, "pad_token", "<pad>", err)) != 0)
        return rc;
    return component_text(&s->delimiter, json, "word_delimiter_token", "|", err);
}

static int read_replace(struct step *s, const json_t *json, struct ckpt_err *err)
{
    const char *pattern;
    bool literal;
    int rc;

    if ((rc = component_pattern(json, &pattern, &literal, err)) != 0 ||
        (rc = component_text(&s->text, json, "content", NULL, err)) != 0)
        return rc;
    return regex_new(&s->regex, pattern, strlen(pattern), literal, err);
}

static int read_strip(struct step *s, const json_t *json, struct ckpt_err *err)
{
    const char *c;
    int64_t start, stop;
    int rc;

    if ((rc = component_char(json, "content", &c, err)) != 0 ||
        (rc = ckpt_json_int_or(&start, json, "start", 0, err)) != 0 ||
        (rc = ckpt_json_int_or(&stop, json, "stop", 0, err)) != 0)
        return rc;
    if (start < 0 || stop < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "start %lld, stop %lld", (long long)start,
                         (long long)stop);
    s->start = (size_t)start;
    s->stop = (size_t)stop;
    return component_text(&s->text, json, "content", NULL, err);
}

/* Component types but Sequence, which only lists others. */
static const struct row {
    const char *type;
    step_fn    *run;
    int (*read)(struct step *s, const json_t *json, struct ckpt_err *err);
} rows[] = {
    {"ByteLevel", run_bytelevel, NULL},
    {"WordPiece", run_wordpiece, read_wordpiece},
    {"Metaspace", run_metaspace, read_metaspace},
    {"BPEDecoder", run_bpe, read_bpe},
    {"ByteFallback", run_fallback, NULL},
    {"Fuse", run_fuse, NULL},
    {"Replace", run_replace, read_replace},
    {"Strip", run_strip, read_strip},
    {"CTC", run_ctc, read_ctc},
    {"SentencePiece", run_sentencepiece, read_sentencepiece},   /* only in trees made by spm.c */
};

static int add_step(void *ctx, const void *row, const json_t *json, struct ckpt_err *err)
{
    const struct row *r = row;
    struct decoder *d = ctx;
    struct step *s = &d->step[d->n];

    if (d->n == MAX_STEPS)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d steps", MAX_STEPS);
    d->n++;
    s->run = r->run;
    return r->read ? r->read(s, json, err) : 0;
}

int decoder_new(struct decoder **out, const json_t *json, struct ckpt_err *err)
{
    static const struct component_table table = {rows, sizeof rows / sizeof *rows, sizeof *rows,
                                                 add_step};
    struct decoder *d = ckpt_alloc(1, sizeof *d);

    *out = NULL;
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    d->joins = !component_is_absent(json);
    if (component_each(json, "decoders", &table, d, err)) {
        decoder_free(d);
        return ckpt_err_in(err, "decoder");
    }
    *out = d;
    return 0;
}

void decoder_free(struct decoder *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n; i++) {
        regex_free(d->step[i].regex);
        ckpt_free(d->step[i].text);
        ckpt_free(d->step[i].delimiter);
    }
    ckpt_free(d);
}

bool decoder_is_bytes(const struct decoder *d)
{
    return d->n == 1 && d->step[0].run == run_bytelevel;
}

int decoder_run(const struct decoder *d, struct decoder_list *list, struct ckpt_buf *out,
                struct ckpt_err *err)
{
    struct decoder_list now = *list, next;
    int rc = 0;

    decoder_list_init(list);
    for (size_t i = 0; rc == 0 && !now.failed && i < d->n; i++) {
        decoder_list_init(&next);
        rc = d->step[i].run(&d->step[i], &now, &next, err);
        decoder_list_release(&now);
        now = next;
    }
    if (rc == 0 && (now.failed || !ckpt_buf_ok(&now.text)))
        rc = ckpt_nomem(err, now.text.len);
    for (size_t i = 0; rc == 0 && i < now.n; i++) {
        size_t n;
        const char *s = string_of(&now, i, &n);

        if (i > 0 && !d->joins)
            ckpt_buf_put_str(out, " ");
        ckpt_buf_put(out, s, n);
    }
    if (rc == 0 && !ckpt_buf_ok(out))
        rc = ckpt_nomem(err, now.text.len);
    decoder_list_release(&now);
    return rc ? ckpt_err_in(err, "decoder") : 0;
}
