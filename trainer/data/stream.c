/* stream - see stream.h. */
#include "trainer/data/stream.h"

#include <string.h>

#include "libckpt/digest.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "trainer/data/sample_cache.h"

#define FINGERS      64         /* samples that a fingerprint covers */

/* Record i with the fields that field_mapping renames. */
static int get_record(const struct data_source *d, int64_t i, json_t **out, struct ckpt_err *err)
{
    const char *name;
    json_t *column;
    int rc;

    if ((rc = records_get(d->records, i, out, err)) != 0)
        return rc;
    json_object_foreach(d->mapping, name, column) {
        json_t *v = json_object_get(*out, json_string_value(column));

        if (!v) {
            json_decref(*out);
            *out = NULL;
            ckpt_fail(err, CKPT_EFORMAT, "no column \"%s\" for field \"%s\"",
                      json_string_value(column), name);
            return records_err_in(d->records, i, err);
        }
        if (json_object_set(*out, name, v)) {
            json_decref(*out);
            *out = NULL;
            return ckpt_nomem(err, sizeof v);
        }
    }
    return 0;
}

static int parse_mapping(struct data_source *d, const char *text, struct ckpt_err *err)
{
    struct ckpt_err why = {0};
    const char *name;
    json_t *column;
    int rc;

    if (!text)
        return 0;
    rc = ckpt_json_parse(&d->mapping, text, strlen(text), CKPT_JSON_STRICT, &why);
    if (rc)                             /* a setting, not data */
        return ckpt_fail(err, rc == CKPT_EFORMAT ? CKPT_ECONFIG : rc, "field mapping: %s",
                         why.text);
    if (!json_is_object(d->mapping))
        return ckpt_fail(err, CKPT_ECONFIG,
                         "field mapping: not an object {\"field\": \"column\"}");
    json_object_foreach(d->mapping, name, column)
        if (!json_is_string(column))
            return ckpt_fail(err, CKPT_ECONFIG, "field mapping: \"%s\" leads to no name",
                             name);
    return 0;
}

/* Render the record's text, prompt first; *prompt gets the length of the prompt. */
static int render(const struct data_source *d, const json_t *record, struct ckpt_buf *text,
                  size_t *prompt, struct ckpt_err *err)
{
    json_t *v;
    int rc;

    *prompt = 0;
    /* A number is not text: nothing says how to spell it. */
    if (d->text_field && json_object_get(record, d->text_field) &&
        (rc = ckpt_json_get(&v, record, d->text_field, JSON_STRING, err)) != 0)
        return rc;
    if (d->prompt) {
        if ((rc = template_render(d->prompt, text, record, err)) != 0)
            return rc;
        *prompt = text->len;
    }
    return template_render(d->completion, text, record, err);
}

/* The turns of a record; prompt and completion that are text become one of the user and one of the
 * assistant. */
static int turns_of(struct conversation *turns, const struct data_source *d, const json_t *record,
                    struct ckpt_err *err)
{
    struct ckpt_buf text;
    json_t *made = NULL;
    size_t prompt = 0, end;
    int rc;

    if (!d->prompt)
        return conversation_of(turns, record, d->chat_field, err);
    ckpt_buf_init(&text, SIZE_MAX);
    rc = render(d, record, &text, &prompt, err);
    for (end = prompt; end > 0 && text.data[end - 1] == '\n';)
        end--;                          /* which would have parted it from the completion */
    if (rc == 0 &&
        !(made = json_pack("{s: [{s: s, s: s%}], s: [{s: s, s: s%}]}", "prompt", "role", "user",
                           "content", end ? (const char *)text.data : "", end, "completion",
                           "role", "assistant", "content",
                           text.len ? (const char *)text.data + prompt : "", text.len - prompt)))
        rc = ckpt_fail(err, CKPT_EFORMAT, "prompt or completion is not UTF-8");
    if (rc == 0)
        rc = conversation_of(turns, made, d->chat_field, err);
    json_decref(made);
    ckpt_buf_release(&text);
    return rc;
}

static int chat_sample(const struct data_source *d, const json_t *record, struct sample *s,
                       struct ckpt_err *err)
{
    enum conversation_loss loss = d->o.mask_history || d->o.pair.wanted ? CONVERSATION_LAST
                                  : d->o.loss_on_prompt ? CONVERSATION_ALL
                                                        : CONVERSATION_ASSISTANT;
    struct jinja_out out = {0};
    struct conversation turns = {0};
    int rc = turns_of(&turns, d, record, err);

    if (d->o.whole_chats && turns.n_prompt == 0 && loss == CONVERSATION_ASSISTANT)
        loss = CONVERSATION_ALL;
    if (rc == 0)
        rc = conversation_render(&turns, d->chat, loss, &out, err);
    if (rc == 0 && d->o.pair.wanted)
        rc = sample_pair_from_text(s, d->tok, (const char *)out.text.data, out.span[0].end,
                                   out.span[0].begin, d->o.no_eos ? -1 : tokenizer_eos(d->tok),
                                   &d->o.pair, d->o.max_seq_length, err);
    else if (rc == 0)
        rc = sample_from_spans(s, d->tok, (const char *)out.text.data, out.text.len, out.span,
                               out.n_span, d->o.max_seq_length, err);
    jinja_out_release(&out);
    conversation_release(&turns);
    return rc;
}

static int check_ids(const struct data_source *d, const int32_t *id, int64_t n,
                     struct ckpt_err *err)
{
    for (int64_t i = 0; d->o.vocab_size > 0 && i < n; i++)
        if (id[i] < 0 || id[i] >= d->o.vocab_size) {
            const char *token = d->tok && id[i] >= 0 ? tokenizer_token(d->tok, id[i]) : NULL;

            return ckpt_fail(err, CKPT_EMISMATCH, "token %lld has id %d%s%.60s%s, the model has "
                             "%lld (vocab_size)", (long long)i + 1, id[i], token ? " (" : "",
                             token ? token : "", token ? ")" : "", (long long)d->o.vocab_size);
        }
    return 0;
}

/* Check a sample against the model: ids, targets and positions. */
static int check_sample(const struct data_source *d, const struct sample *s, struct ckpt_err *err)
{
    int64_t most = d->o.vocab_size;
    int rc;

    if ((rc = check_ids(d, s->ids, s->n, err)) != 0 ||
        (rc = check_ids(d, s->enc, s->n_enc, err)) != 0)
        return rc;
    for (int64_t i = 1; most > 0 && i < s->n; i++)
        if (s->labels[i] != SAMPLE_NO_LABEL && (s->labels[i] < 0 || s->labels[i] >= most))
            return ckpt_fail(err, CKPT_EMISMATCH, "label %lld is %d, the model has %lld ids "
                             "(vocab_size)", (long long)i + 1, s->labels[i], (long long)most);
    if (d->o.max_positions > 0 && s->n > d->o.max_positions) {
        ckpt_fail(err, CKPT_EMISMATCH, "%lld tokens, the model has positions for %lld "
                  "(max_position_embeddings)", (long long)s->n, (long long)d->o.max_positions);
        return ckpt_err_hint(err, "`max_seq_length %lld` cuts longer ones",
                             (long long)d->o.max_positions);
    }
    return 0;
}

int data_source_make(const struct data_source *d, int64_t i, struct sample *s,
                     struct ckpt_err *err)
{
    struct ckpt_buf text;
    json_t *record = NULL;
    size_t prompt;
    int rc;

    ckpt_buf_init(&text, SIZE_MAX);
    rc = get_record(d, i, &record, err);
    if (rc)
        goto out;
    s->cut_left = d->o.cut_left;
    if (d->kind == DATA_IDS && d->o.pair.wanted)
        rc = sample_pair_from_ids(s, record, &d->o.pair, d->o.max_seq_length, err);
    else if (d->kind == DATA_IDS)
        rc = sample_from_ids(s, record, d->o.max_seq_length, err);
    else if (d->kind == DATA_CHAT)
        rc = chat_sample(d, record, s, err);
    else if ((rc = render(d, record, &text, &prompt, err)) == 0 && d->o.pair.wanted)
        rc = sample_pair_from_text(s, d->tok, text.len ? (const char *)text.data : "", text.len,
                                   prompt, d->o.no_eos ? -1 : tokenizer_eos(d->tok), &d->o.pair,
                                   d->o.max_seq_length, err);
    else if (rc == 0)
        rc = sample_from_text(s, d->tok, text.len ? (const char *)text.data : "", text.len,
                              d->o.loss_on_prompt ? 0 : prompt,
                              d->o.no_eos ? -1 : tokenizer_eos(d->tok), d->o.max_seq_length,
                              err);
    if (rc == 0 && s->n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "no tokens");
    if (rc == 0)
        rc = check_sample(d, s, err);
    if (rc)
        records_err_in(d->records, i, err);
out:
    json_decref(record);
    ckpt_buf_release(&text);
    return rc;
}

int data_source_sample(const struct data_source *d, int64_t i, struct sample *s,
                       struct ckpt_err *err)
{
    int rc = 0;

    if (i < 0 || i >= d->n)
        return ckpt_fail(err, CKPT_ENOTFOUND, "sample %lld of %lld", (long long)i,
                         (long long)d->n);
    i = d->usable ? d->usable[i] : i;
    s->pad_before = s->pad_after = s->target_bytes = 0;
    if (!d->cache || !sample_cache_get(d->cache, i, s))
        rc = data_source_make(d, i, s, err);
    else if (check_sample(d, s, err))
        rc = records_err_in(d->records, i, err);
    return rc || !d->o.padded ? rc : sample_pad(s, d->o.max_seq_length, d->o.pad_id,
                                                d->o.pad_before, err);
}

int data_source_record(const struct data_source *d, int64_t i, json_t **out, struct ckpt_err *err)
{
    return get_record(d, d->usable && i >= 0 && i < d->n ? d->usable[i] : i, out, err);
}

int data_source_err_in(const struct data_source *d, int64_t i, struct ckpt_err *err)
{
    return records_err_in(d->records, d->usable && i >= 0 && i < d->n ? d->usable[i] : i, err);
}

static int chat_text(const struct data_source *d, const json_t *record, struct ckpt_buf *prompt,
                     struct ckpt_buf *completion, struct ckpt_err *err)
{
    struct conversation turns = {0};
    int rc = turns_of(&turns, d, record, err);

    if (rc == 0)
        rc = conversation_question(&turns, d->chat, prompt, completion, err);
    conversation_release(&turns);
    return rc;
}

/* The two parts of a record of text. */
static int plain_text(const struct data_source *d, const json_t *record, struct ckpt_buf *prompt,
                      struct ckpt_buf *completion, struct ckpt_err *err)
{
    size_t split;
    int rc;

    if ((rc = render(d, record, prompt, &split, err)) != 0)
        return rc;
    if (d->kind == DATA_TEXT)
        return 0;
    ckpt_buf_put(completion, prompt->data + split, prompt->len - split);
    prompt->len = split;
    return 0;
}

int data_source_text(const struct data_source *d, int64_t i, char **prompt, char **completion,
                     struct ckpt_err *err)
{
    struct ckpt_buf part[2];
    json_t *record = NULL;
    int64_t at = d->usable && i >= 0 && i < d->n ? d->usable[i] : i;
    int rc;

    *prompt = *completion = NULL;
    if (d->kind == DATA_IDS)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "rows of input_ids have no text");
    ckpt_buf_init(&part[0], SIZE_MAX);
    ckpt_buf_init(&part[1], SIZE_MAX);
    rc = get_record(d, at, &record, err);
    if (rc == 0 && (rc = (d->kind == DATA_CHAT ? chat_text : plain_text)(d, record, &part[0],
                                                                         &part[1], err)))
        records_err_in(d->records, at, err);
    if (rc == 0) {
        *prompt = ckpt_buf_ok(&part[0]) ? ckpt_strdup(ckpt_buf_str(&part[0])) : NULL;
        *completion = ckpt_buf_ok(&part[1]) ? ckpt_strdup(ckpt_buf_str(&part[1])) : NULL;
        if (!*prompt || !*completion) {
            rc = ckpt_nomem(err, part[0].len + part[1].len);
            ckpt_free(*prompt);
            ckpt_free(*completion);
            *prompt = *completion = NULL;
        }
    }
    json_decref(record);
    ckpt_buf_release(&part[0]);
    ckpt_buf_release(&part[1]);
    return rc;
}

/* Answers as SQuAD has them, without any for some questions. */
static bool is_squad(const json_t *answers)
{
    return json_is_null(answers) || json_is_array(json_object_get(answers, "text"));
}

static bool is_list(const json_t *answers) { return json_is_array(answers); }

#define READING "Question: {question} {?context}Context: {context} {/context}Answer: "

/* What the fields of the first record say about the data set. */
static const struct shape_row {
    const char *field, *also, *prompt, *completion;
    bool      (*fits)(const json_t *also);  /* NULL: whatever the second field holds */
} shapes[] = {
    {"prompt", "completion", "{prompt}", "{completion}", NULL},
    {"instruction", "output", "{instruction}\n{?input}{input}\n{/input}", "{output}", NULL},
    {"question", "answers", READING, "{answers.text[0]|default:\"\"}", is_squad},
    {"question", "answers", READING, "{answers[0]|default:\"\"}", is_list},
    {"question", "answers", READING, "{answers}", NULL},
    {"question", "answer", "Question: {question}\nAnswer: ", "{answer}", NULL},
};

static const struct shape_row *shape_of(const json_t *record)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const json_t *also = json_object_get(record, shapes[i].also);

        if (also && json_object_get(record, shapes[i].field) &&
            (!shapes[i].fits || shapes[i].fits(also)))
            return &shapes[i];
    }
    return NULL;
}

static bool is_text(const json_t *record, const char *field)
{
    return json_is_string(json_object_get(record, field));
}

static int unknown_fields(const json_t *record, struct ckpt_err *err)
{
    struct ckpt_buf names;
    const char *name;
    json_t *v;
    int rc;

    ckpt_buf_init(&names, SIZE_MAX);
    json_object_foreach((json_t *)record, name, v)
        ckpt_buf_printf(&names, "%s%s", names.len ? ", " : "", name);
    rc = ckpt_fail(err, CKPT_EFORMAT, "no fields that make a sample (text; prompt, completion; "
                   "instruction, output; question, answer or answers; messages or conversations; "
                   "input_ids); there are: %.400s",
                   names.len ? ckpt_buf_str(&names) : "none");
    ckpt_buf_release(&names);
    if (json_object_get(record, "chosen") && json_object_get(record, "rejected"))
        ckpt_err_hint(err, "pairs of preferences are not trained on; what was chosen is, with %s",
                      json_object_get(record, "prompt") && is_text(record, "chosen")
                          ? "`prompt_template '{prompt}'` and `completion_template '{chosen}'`"
                      : is_text(record, "chosen") ? "`text_field chosen`"
                                                  : "`messages_field chosen`");
    else
        ckpt_err_hint(err, "say how with `prompt_template` and `completion_template`, or name "
                      "the field with `text_field`");
    return rc;
}

/* "{'name'}" for a field of any name. */
static int parse_field(struct template **out, const char *field, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc;

    ckpt_buf_init(&b, SIZE_MAX);
    ckpt_buf_printf(&b, strchr(field, '\'') ? "{[\"%s\"]}" : "{['%s']}", field);
    rc = ckpt_buf_ok(&b) ? template_parse(out, ckpt_buf_str(&b), err) : ckpt_nomem(err, b.len);
    ckpt_buf_release(&b);
    return rc;
}

static int no_tokenizer(struct ckpt_err *err, const char *why)
{
    ckpt_fail(err, CKPT_ECONFIG, "%s, and there is no tokenizer", why);
    return ckpt_err_hint(err, "the model's folder has none: `tokenizer` names one that has");
}

/* Treat the records as chats. */
static int decide_chat(struct data_source *d, const char *field, struct ckpt_err *err)
{
    d->kind = DATA_CHAT;
    d->chat_field = ckpt_strdup(field);
    if (!d->chat_field)
        return ckpt_nomem(err, strlen(field));
    if (!d->tok || !d->o.chat_dir)
        return no_tokenizer(err, "the records are chats");
    return chat_open(&d->chat, d->o.chat_dir, d->o.chat_template, d->tok, err);
}

static int decide(struct data_source *d, const json_t *record, struct ckpt_err *err)
{
    const struct shape_row *shape = shape_of(record);
    const char *prompt = d->o.prompt_template, *completion = d->o.completion_template;
    const char *chat = d->o.messages_field ? d->o.messages_field : conversation_field(record);
    bool told = prompt || completion || d->o.text_field;
    int rc;

    if (told && d->o.messages_field)
        return ckpt_fail(err, CKPT_ECONFIG, "both a messages field and %s are given",
                         d->o.text_field ? "a text field" : "templates");
    if (!told && !d->o.messages_field && json_object_get(record, "input_ids"))
        chat = NULL;
    if (!told && chat)
        return decide_chat(d, chat, err);
    if ((d->o.chat_template || d->o.mask_history) && !d->o.chat_prompts)
        return ckpt_fail(err, CKPT_ECONFIG, "`%s` is given, and the records are no chats",
                         d->o.chat_template ? "chat_template" : "mask_history");
    if (!told && json_object_get(record, "input_ids")) {
        d->kind = DATA_IDS;
        return 0;
    }
    if ((prompt || completion || shape) && !d->o.text_field) {
        d->kind = DATA_PROMPT;
        if (!told && json_is_boolean(json_object_get(record, "label")))     /* rows of KTO */
            ckpt_log(CKPT_LOG_WARNING, "`label` has no effect: completions are trained on where it "
                     "is false, too");
        if ((!prompt || !completion) && !shape)
            return ckpt_fail(err, CKPT_ECONFIG, "a %s template without a %s template, and the "
                             "fields do not say the other", prompt ? "prompt" : "completion",
                             prompt ? "completion" : "prompt");
        if ((rc = template_parse(&d->prompt, prompt ? prompt : shape->prompt, err)) != 0)
            return rc;
        rc = template_parse(&d->completion, completion ? completion : shape->completion, err);
        return rc || !d->o.chat_prompts ? rc : decide_chat(d, "prompt", err);
    }
    if (prompt || completion)
        return ckpt_fail(err, CKPT_ECONFIG, "both a text field and templates are given");
    d->kind = DATA_TEXT;
    if (!d->o.text_field && !json_object_get(record, "text"))
        return unknown_fields(record, err);
    d->text_field = ckpt_strdup(d->o.text_field ? d->o.text_field : "text");
    return d->text_field ? parse_field(&d->completion, d->text_field, err)
                         : ckpt_nomem(err, sizeof *d);
}

/* Text needs a tokenizer, and its eos must be known. */
static int check_tokenizer(const struct data_source *d, struct ckpt_err *err)
{
    if (d->kind == DATA_IDS)
        return 0;
    if (!d->tok)
        return no_tokenizer(err, "the data is text");
    if (d->kind != DATA_CHAT && !d->o.no_eos && tokenizer_eos(d->tok) < 0)
        return ckpt_fail(err, CKPT_ECONFIG,
                         "the tokenizer does not say which token ends a text "
                         "(eos_token in tokenizer_config.json)");
    if (d->kind != DATA_CHAT && !d->o.no_eos && d->o.vocab_size > 0 &&
        tokenizer_eos(d->tok) >= d->o.vocab_size)
        return ckpt_fail(err, CKPT_EMISMATCH, "the token that ends a text has id %d, the model has "
                         "%lld (vocab_size)", tokenizer_eos(d->tok), (long long)d->o.vocab_size);
    return 0;
}

int data_source_open(struct data_source **out, struct records *records,
                     const struct tokenizer *tok, const struct data_opts *opts,
                     struct ckpt_err *err)
{
    struct data_source *d = ckpt_alloc(1, sizeof *d);
    json_t *record = NULL;
    int rc;

    *out = NULL;
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    *d = (struct data_source){.records = records, .tok = tok, .o = *opts,
                              .n = records_count(records)};
    if (opts->max_seq_length < 1 || opts->max_seq_length > INT32_MAX - 1)
        rc = ckpt_fail(err, CKPT_ECONFIG, "max_seq_length is %lld, it must be 1 or more",
                       (long long)opts->max_seq_length);
    else if (d->n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "the data has no records");
    else if ((rc = parse_mapping(d, opts->field_mapping, err)) == 0)
        rc = get_record(d, 0, &record, err);
    if (rc == 0 && (rc = decide(d, record, err)))
        records_err_in(records, 0, err);
    if (rc == 0 && d->kind == DATA_TEXT && d->o.pair.wanted)
        rc = ckpt_fail(err, CKPT_ECONFIG, "the data is plain text: an encoder beside a decoder "
                       "wants a prompt and a completion");
    if (rc == 0)
        rc = check_tokenizer(d, err);
    /* The strings in opts are not used after this: the caller may free them. */
    d->o.prompt_template = d->o.completion_template = d->o.text_field = NULL;
    d->o.field_mapping = d->o.messages_field = d->o.chat_template = NULL;
    d->o.chat_dir = NULL;
    if (rc == 0)
        rc = sample_cache_open(&d->cache, d, opts, err);
    if (rc == 0 && (opts->bad == DATA_BAD_SKIP || opts->excess != DATA_EXCESS_TRUNCATE))
        rc = data_source_scan(d, NULL, err);
    if (rc == 0) {
        *out = d;
        d = NULL;
    }
    data_source_close(d);
    json_decref(record);
    return rc;
}

void data_source_close(struct data_source *d)
{
    if (!d)
        return;
    sample_cache_close(d->cache);
    json_decref(d->mapping);
    template_free(d->prompt);
    template_free(d->completion);
    chat_close(d->chat);
    ckpt_free(d->chat_field);
    ckpt_free(d->text_field);
    ckpt_free(d->usable);
    ckpt_free(d->length);
    ckpt_free(d);
}

enum data_kind data_source_kind(const struct data_source *d) { return d->kind; }
int64_t data_source_max_length(const struct data_source *d) { return d->o.max_seq_length; }
bool data_source_pairs(const struct data_source *d) { return d->o.pair.wanted; }
bool data_source_padded(const struct data_source *d) { return d->o.padded; }
int64_t data_source_count(const struct data_source *d) { return d->n; }
const int32_t *data_source_lengths(const struct data_source *d) { return d->length; }

int data_source_fingerprint(const struct data_source *d, unsigned char out[16],
                            struct ckpt_err *err)
{
    struct sample s = {0};
    struct ckpt_buf b;
    int64_t step = d->n > FINGERS ? d->n / FINGERS : 1;
    int rc = 0;

    ckpt_buf_init(&b, SIZE_MAX);
    ckpt_buf_put_u64le(&b, (uint64_t)d->n);
    ckpt_buf_put_u64le(&b, (uint64_t)d->o.max_seq_length);
    for (int64_t i = 0; rc == 0 && i < d->n; i += step) {
        rc = data_source_sample(d, i, &s, err);
        if (rc == 0) {
            ckpt_buf_put(&b, s.ids, (size_t)s.n * sizeof *s.ids);
            ckpt_buf_put(&b, s.labels, (size_t)s.n * sizeof *s.labels);
            ckpt_buf_put(&b, s.enc, (size_t)s.n_enc * sizeof *s.enc);
        }
    }
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0)
        ckpt_xxh128(out, b.data, b.len);
    sample_release(&s);
    ckpt_buf_release(&b);
    return rc;
}

int data_source_template(const struct data_source *d, char out[33], struct ckpt_err *err)
{
    unsigned char digest[16];
    int rc = d->chat ? chat_digest_of_texts(d->chat, digest, err) : 0;

    out[0] = '\0';
    if (rc == 0 && d->chat)
        ckpt_digest_hex(out, digest, sizeof digest);
    return rc;
}
