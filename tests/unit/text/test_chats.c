/* chat, conversation: records as transformers and trl make ids and labels of them; where templates
 * lie; what is refused. */
#include "tests/unit/records_help.h"

#include "tests/unit/data_files.h"
#include "trainer/data/conversation.h"

static const char *dir;

static void put(const char *rel, const char *text) { put_in(dir, rel, text); }

/* The directory with one of the golden tokenizers and nothing else. */
static void fresh(const char *tokenizer)
{
    char from[4096], cwd[2048];

    scratch_at(dir);
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(from, sizeof from, "%s/tests/golden/tokenizers/%s/tokenizer.json", cwd, tokenizer);
    assert_int_equal(symlink(from, path_in(dir, "tokenizer.json")), 0);
}

static struct ckpt_dir *open_dir(void)
{
    struct ckpt_err err = {0};
    struct ckpt_dir *open;

    if (ckpt_dir_open(&open, dir, CKPT_FOLLOW, &err))
        fail_msg("%s", err.text);
    return open;
}

struct set {
    struct ckpt_dir    *dir;
    struct tokenizer   *tok;
    struct records     *records;
    struct data_source *source;
};

static int open_set(struct set *s, const char *body, const struct data_opts *opts,
                    struct ckpt_err *err)
{
    struct data_opts o = *opts;

    *err = (struct ckpt_err){.code = CKPT_EIO, .text = "of an earlier call"};
    s->dir = open_dir();
    if (tokenizer_open_dir(&s->tok, s->dir, err))
        fail_msg("%s", err->text);
    s->records = records_of(body);
    o.max_seq_length = o.max_seq_length ? o.max_seq_length : 4096;
    o.workers = 1;
    o.chat_dir = s->dir;
    return data_source_open(&s->source, s->records, s->tok, &o, err);
}

static void close_set(struct set *s)
{
    data_source_close(s->source);
    records_close(s->records);
    tokenizer_close(s->tok);
    ckpt_dir_close(s->dir);
}

static const char *str(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static void expect_ids(const json_t *want, const struct sample *x, const char *name)
{
    if (json_array_size(want) != (size_t)x->n)
        fail_msg("%s: %lld tokens, %zu wanted", name, (long long)x->n, json_array_size(want));
    for (int64_t i = 0; i < x->n; i++)
        if (json_integer_value(json_array_get(want, (size_t)i)) != x->ids[i])
            fail_msg("%s: token %lld is %d", name, (long long)i, x->ids[i]);
}

/* ranges: [begin, end) of the tokens with loss; NULL: all. */
static void expect_labels(const json_t *ranges, const struct sample *x, const char *name)
{
    const json_t *range;
    size_t k;

    for (int64_t i = 0; i < x->n; i++) {
        bool learn = !ranges;

        json_array_foreach(ranges, k, range)
            learn |= i >= json_integer_value(json_array_get(range, 0)) &&
                     i < json_integer_value(json_array_get(range, 1));
        if (x->labels[i] != (learn ? x->ids[i] : SAMPLE_NO_LABEL))
            fail_msg("%s: label %lld is %d, the token %d", name, (long long)i, x->labels[i],
                     x->ids[i]);
    }
}

/* Ids and labels of the record in one way of learning; labels as in expect_labels. */
static void expect_sample(const char *body, const struct data_opts *opts, const json_t *ids,
                          const json_t *labels, const char *name)
{
    struct ckpt_err err = {0};
    struct sample x = {0};
    struct set s = {0};

    if (open_set(&s, body, opts, &err) || data_source_sample(s.source, 0, &x, &err))
        fail_msg("%s: %s", name, err.text);
    assert_int_equal(data_source_kind(s.source), DATA_CHAT);
    expect_ids(ids, &x, name);
    expect_labels(labels, &x, name);
    sample_release(&x);
    close_set(&s);
}

static void expect_question(const char *body, const char *want, const char *name)
{
    struct data_opts o = {0};
    struct ckpt_err err = {0};
    struct set s = {0};
    char *prompt, *answer;

    if (open_set(&s, body, &o, &err) || data_source_text(s.source, 0, &prompt, &answer, &err))
        fail_msg("%s: %s", name, err.text);
    if (strcmp(prompt, want) != 0 || !*answer)
        fail_msg("%s: asked <%s>, not <%s>", name, prompt, want);
    ckpt_free(prompt);
    ckpt_free(answer);
    close_set(&s);
}

static void expect_refusal(const char *body, const struct data_opts *opts, const char *why)
{
    struct ckpt_err err = {0};
    struct sample x = {0};
    struct set s = {0};

    if (open_set(&s, body, opts, &err) == 0 && data_source_sample(s.source, 0, &x, &err) == 0)
        fail_msg("%s is taken", body);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    sample_release(&x);
    close_set(&s);
}

static void check_case(const json_t *one)
{
    const json_t *ids = json_object_get(one, "ids"), *labels = json_object_get(one, "labels"),
                 *last = json_object_get(one, "last");
    struct data_opts plain = {0}, all = {.loss_on_prompt = true},
                     one_turn = {.mask_history = true}, whole = {.whole_chats = true};
    char *line = json_dumps(json_object_get(one, "record"), JSON_COMPACT);
    const char *name = str(one, "name");
    bool pair = json_object_get(json_object_get(one, "record"), "prompt");

    if (!ids)
        expect_refusal(line, &plain, str(one, "error"));
    if (json_object_get(one, "refused"))
        expect_refusal(line, &plain, "record 1: the chat template writes the first ");
    if (ids && labels)
        expect_sample(line, &plain, ids, labels, name);
    if (ids && !pair)
        expect_sample(line, &all, ids, NULL, name);
    if (ids && !pair)
        expect_sample(line, &whole, ids, NULL, name);
    else if (ids && labels)
        expect_sample(line, &whole, ids, labels, name);
    if (last)
        expect_sample(line, &one_turn, ids, last, name);
    if (str(one, "question"))
        expect_question(line, str(one, "question"), name);
    free(line);
}

TEST(learns_what_trl_learns)
{
    json_t *root = golden_json("tests/golden/chats.json");
    const json_t *one, *style;
    const char *now = "";
    size_t i;

    assert_true(json_array_size(json_object_get(root, "cases")) > 200);
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        if (strcmp(now, str(one, "style")) != 0) {
            json_t *config = json_object();

            now = str(one, "style");
            style = json_object_get(json_object_get(root, "styles"), now);
            fresh(str(style, "tokenizer"));
            json_object_set(config, "chat_template", json_object_get(style, "template"));
            json_object_set(config, "eos_token", json_object_get(style, "eos_token"));
            if (json_object_get(style, "bos_token"))
                json_object_set(config, "bos_token", json_object_get(style, "bos_token"));
            assert_int_equal(json_dump_file(config, path_in(dir, "tokenizer_config.json"), 0), 0);
            json_decref(config);
        }
        check_case(one);
    }
    json_decref(root);
}

#define CHATML "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n" \
               "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define HELLO "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}," \
              "{\"role\":\"assistant\",\"content\":\"b\"}]}\n"

/* What the template that is found renders of two messages. */
static void expect_template(const char *which, bool tools, const char *want)
{
    struct ckpt_err err = {0};
    struct jinja_out out = {0};
    struct ckpt_dir *open = open_dir();
    struct chat_turns turns = {.n = 1};
    struct chat *c;

    if (chat_open(&c, open, which, NULL, &err))
        fail_msg("%s", err.text);
    turns.messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "x");
    turns.tools = tools ? json_pack("[{}]") : NULL;
    if (chat_render(c, &turns, &out, &err))
        fail_msg("%s", err.text);
    assert_string_equal(ckpt_buf_str(&out.text), want);
    json_decref((json_t *)turns.messages);
    json_decref((json_t *)turns.tools);
    jinja_out_release(&out);
    chat_close(c);
    ckpt_dir_close(open);
}

static void expect_no_template(const char *which, int code, const char *why)
{
    struct ckpt_err err = {0};
    struct ckpt_dir *open = open_dir();
    struct chat *c;

    if (chat_open(&c, open, which, NULL, &err) != code || !strstr(err.text, why))
        fail_msg("\"%s\" (%d) does not say \"%s\"", err.text, err.code, why);
    ckpt_dir_close(open);
}

TEST(templates_are_found)
{
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct ckpt_dir *open;
    const char *text;

    fresh("qwen");
    expect_no_template(NULL, CKPT_ECONFIG, "no chat template");
    put("tokenizer_config.json", "{\"chat_template\": 5}");
    expect_no_template(NULL, CKPT_EFORMAT, "neither a string nor a list");
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"x\"}]}");
    expect_no_template(NULL, CKPT_EFORMAT, "chat_template[0] is no {name, template}");
    put("tokenizer_config.json",
        "{\"eos_token\": {\"content\": \"<|im_end|>\"}, \"bos_token\": null,"
        "\"chat_template\": \"one {{ eos_token }}{{ bos_token }}\"}");
    expect_template(NULL, false, "one <|im_end|>");
    put("special_tokens_map.json", "{\"unk_token\": \"?\", \"eos_token\": \"other\"}");
    put("tokenizer_config.json",
        "{\"eos_token\": \"<|im_end|>\", \"odd_token\": \"!\", \"chat_template\": ["
        "{\"name\": \"default\", \"template\": \"d{{ unk_token }}{{ odd_token }}{{ eos_token }}\"},"
        "{\"name\": \"tool_use\", \"template\": \"t{{ tools | length }}\"},"
        "{\"name\": \"rag\", \"template\": \"r\"},"
        "{\"name\": \"bad\", \"template\": \"{% no %}\"}]}");
    expect_template(NULL, false, "d?!<|im_end|>");
    expect_template(NULL, true, "t1");
    expect_template("rag", true, "r");
    expect_no_template("bad", CKPT_EUNSUPPORTED, "chat template bad");
    expect_no_template("nothing", CKPT_ENOTFOUND, "nothing");
    put("chat_template.jinja", "file{{ messages[0].content }}");
    expect_template(NULL, true, "filex");
    expect_no_template("rag", CKPT_ENOTFOUND, "rag");
    put("additional_chat_templates/tool_use.jinja", "more");
    put("additional_chat_templates/notes.txt", "none of them");
    expect_template(NULL, true, "more");
    expect_template(NULL, false, "filex");
    put("own.jinja", "own");
    expect_template(path_in(dir, "own.jinja"), true, "own");
    open = open_dir();
    assert_int_equal(chat_template_text(&text, open, "tool_use", &arena, &err), 0);
    assert_string_equal(text, "more");
    assert_int_equal(chat_template_text(&text, open, path_in(dir, "own.jinja"), &arena, &err), 0);
    assert_string_equal(text, "own");
    ckpt_arena_release(&arena);
    ckpt_dir_close(open);
}

static void chatml(void)
{
    fresh("qwen");
    put("tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
    put("chat_template.jinja", CHATML);
}

TEST(refuses)
{
    struct data_opts o = {0}, field = {.messages_field = "talk"},
                     both = {.messages_field = "talk", .text_field = "text"},
                     history = {.mask_history = true}, given = {.chat_template = "x"};

    chatml();
    expect_refusal("{\"messages\":[]}\n", &o,
                   "record 1: field \"messages\": the chat has no messages");
    expect_refusal("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n", &o,
                   "no turn of the assistant, so nothing to learn");
    expect_refusal("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}, 5]}\n", &o,
                   "message 2 is no object");
    expect_refusal("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}, "
                   "{\"content\":\"b\"}]}\n", &o,
                   "message 2 has no role");
    expect_refusal("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}, "
                   "{\"role\":\"assistant\",\"content\":\"b\",\"weight\":0.5}]}\n", &o,
                   "message 2: weight 0.5, 0 or 1 is wanted");
    expect_refusal("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}, "
                   "{\"role\":\"assistant\",\"content\":\"b\",\"weight\":0}]}\n", &o,
                   "no turn of the assistant, so nothing to learn");
    expect_refusal("{\"a\":1,\"messages\":[{\"role\":\"user\"},{\"role\":\"assistant\"}],"
                   "\"chat_template_kwargs\":[]}\n", &o, "\"chat_template_kwargs\" is no object");
    expect_refusal("{\"messages\":[{\"role\":\"user\"}],\"tools\":\"[{\"}\n", &o, "tools: ");
    expect_refusal("{\"messages\":[{\"role\":\"user\"}],\"tools\":{}}\n", &o,
                   "field \"tools\" is no list");
    expect_refusal("{\"text\":\"a\"}\n", &field, "field \"talk\" is absent or null");
    expect_refusal("{\"text\":\"a\"}\n", &both, "both a messages field and a text field are given");
    expect_refusal("{\"text\":\"a\"}\n", &history, "`mask_history` is given, and the records");
    expect_refusal("{\"text\":\"a\"}\n", &given, "`chat_template` is given, and the records");
    put("chat_template.jinja", "{{ raise_exception('not so') }}");
    expect_refusal(HELLO, &o, "record 1: chat template: line 1: not so");
}

/* No prompt, no answer, and no offset into a text that is not there. */
TEST(a_template_that_prints_nothing)
{
    static const char *const body =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\"}]}";
    struct ckpt_buf prompt, answer;
    struct ckpt_err err = {0};
    struct conversation talk = {0};
    struct ckpt_dir *open;
    struct chat *chat;
    json_t *record;

    fresh("qwen");
    put("chat_template.jinja", "{% set a = 1 %}");
    open = open_dir();
    ckpt_buf_init(&prompt, SIZE_MAX);
    ckpt_buf_init(&answer, SIZE_MAX);
    assert_int_equal(chat_open(&chat, open, NULL, NULL, &err), 0);
    assert_int_equal(ckpt_json_parse(&record, body, strlen(body), 0, &err), 0);
    assert_int_equal(conversation_of(&talk, record, "messages", &err), 0);
    assert_int_equal(conversation_question(&talk, chat, &prompt, &answer, &err), 0);
    assert_int_equal(prompt.len + answer.len, 0);
    ckpt_buf_release(&prompt);
    ckpt_buf_release(&answer);
    conversation_release(&talk);
    json_decref(record);
    chat_close(chat);
    ckpt_dir_close(open);
}

/* The text of the tokens that are learnt. */
static void expect_learnt(const char *body, const struct data_opts *o, const char *want)
{
    struct ckpt_err err = {0};
    struct sample x = {0};
    struct set s = {0};
    char *text;
    size_t len;
    int64_t n = 0;

    if (open_set(&s, body, o, &err) || data_source_sample(s.source, 0, &x, &err))
        fail_msg("%s: %s", body, err.text);
    for (int64_t i = 0; i < x.n; i++)
        if (x.labels[i] != SAMPLE_NO_LABEL)
            x.ids[n++] = x.labels[i];
    assert_int_equal(tokenizer_decode(s.tok, &text, &len, x.ids, (size_t)n, false, &err), 0);
    assert_string_equal(text, want);
    ckpt_free(text);
    sample_release(&x);
    close_set(&s);
}

/* Prompt and completion of text, as turns: what the chat template writes of them. */
TEST(prompts_as_chats)
{
    struct data_opts o = {.chat_prompts = true},
                     own = {.chat_prompts = true, .prompt_template = "{q}\n\n",
                            .completion_template = "{a}"};

    chatml();
    expect_learnt("{\"prompt\":\"a\",\"completion\":\"b\"}\n", &o, "b<|im_end|>\n");
    expect_learnt("{\"instruction\":\"a\",\"input\":\"\",\"output\":\"c\"}\n", &o,
                  "c<|im_end|>\n");
    expect_learnt("{\"q\":\"a\",\"a\":\"d\"}\n", &own, "d<|im_end|>\n");
    expect_learnt(HELLO, &o, "b<|im_end|>\n");
    own.loss_on_prompt = true;
    expect_learnt("{\"q\":\"a\",\"a\":\"d\"}\n", &own,
                  "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n");
}

TEST(fields)
{
    struct data_opts o = {0}, field = {.messages_field = "talk"},
                     mapped = {.field_mapping = "{\"messages\": \"talk\"}"},
                     chosen = {.field_mapping = "{\"completion\": \"chosen\"}"},
                     cut = {.max_seq_length = 6}, left = {.max_seq_length = 4, .cut_left = true};

    chatml();
    expect_learnt("{\"talk\":[{\"role\":\"user\",\"content\":\"a\"},"
                  "{\"role\":\"assistant\",\"content\":\"b\"}]}\n", &field, "b<|im_end|>\n");
    expect_learnt("{\"talk\":[{\"role\":\"user\",\"content\":\"a\"},"
                  "{\"role\":\"assistant\",\"content\":\"b\"}]}\n", &mapped, "b<|im_end|>\n");
    expect_learnt("{\"talk\":\"[{\\\"from\\\":\\\"human\\\",\\\"value\\\":\\\"a\\\"},"
                  "{\\\"from\\\":\\\"gpt\\\",\\\"value\\\":\\\"c\\\"}]\"}\n", &field,
                  "c<|im_end|>\n");
    expect_learnt("{\"prompt\":[{\"role\":\"user\",\"content\":\"a\"}],\"chosen\":"
                  "[{\"role\":\"assistant\",\"content\":\"d\"}],\"completion\":[],"
                  "\"rejected\":[]}\n",
                  &chosen, "d<|im_end|>\n");
    expect_learnt("{\"conversations\":[{\"from\":\"gpt\",\"value\":\"first\"},"
                  "{\"from\":\"observation\",\"value\":\"x\"},"
                  "{\"from\":\"function_call\",\"value\":\"y\"}]}\n", &o,
                  "first<|im_end|>\ny<|im_end|>\n");
    expect_learnt("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                  "{\"role\":\"assistant\",\"content\":\"not\",\"weight\":0},"
                  "{\"role\":\"user\",\"content\":\"b\",\"weight\":0},"
                  "{\"role\":\"assistant\",\"content\":\"so\",\"weight\":1}]}\n", &o,
                  "so<|im_end|>\n");
    expect_learnt(HELLO, &left, "b<|im_end|>\n");
    expect_learnt(HELLO, &cut, "");
}

/* An encoder reads all before the last turn, a decoder writes that. */
TEST(encoder_and_decoder)
{
    struct data_opts o = {.pair = {.wanted = true, .start = 7}, .no_eos = true};
    struct ckpt_err err = {0};
    struct sample x = {0};
    struct set s = {0};
    char *text;
    size_t len;

    chatml();
    if (open_set(&s, HELLO, &o, &err) || data_source_sample(s.source, 0, &x, &err))
        fail_msg("%s", err.text);
    assert_int_equal(tokenizer_decode(s.tok, &text, &len, x.enc, (size_t)x.n_enc, false, &err), 0);
    assert_string_equal(text, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
    ckpt_free(text);
    assert_int_equal(x.ids[0], 7);
    assert_int_equal(tokenizer_decode(s.tok, &text, &len, x.ids + 1, (size_t)x.n - 1, false, &err),
                     0);
    assert_string_equal(text, "b<|im_end|>\n");
    ckpt_free(text);
    assert_int_equal(sample_targets(&x), x.n - 1);
    sample_release(&x);
    close_set(&s);
}

/* Nested columns, where what a message lacks is null, are what JSON lines say. */
TEST(parquet)
{
    static const char *const path[] = {"tests/golden/data/chats.jsonl",
                                       "tests/golden/data/chats.parquet"};
    struct data_opts o = {.chat_template = "tests/fuzz/seeds/jinja/chatml",
                          .max_seq_length = 4096, .workers = 1};
    struct data_source *source[2];
    struct records *records[2];
    struct sample x[2] = {{0}, {0}};
    struct ckpt_err err = {0};
    struct tokenizer *tok;

    fresh("qwen");
    put("tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
    o.chat_dir = open_dir();
    assert_int_equal(tokenizer_open_dir(&tok, o.chat_dir, &err), 0);
    for (int k = 0; k < 2; k++)
        if (records_open(&records[k], &path[k], 1, &err) ||
            data_source_open(&source[k], records[k], tok, &o, &err))
            fail_msg("%s", err.text);
    assert_int_equal(data_source_count(source[0]), 6);
    assert_int_equal(data_source_count(source[1]), 6);
    for (int64_t i = 0; i < 6; i++) {
        for (int k = 0; k < 2; k++)
            if (data_source_sample(source[k], i, &x[k], &err))
                fail_msg("%s", err.text);
        assert_int_equal(x[0].n, x[1].n);
        assert_memory_equal(x[0].ids, x[1].ids, (size_t)x[0].n * sizeof *x[0].ids);
        assert_memory_equal(x[0].labels, x[1].labels, (size_t)x[0].n * sizeof *x[0].labels);
        assert_true(sample_targets(&x[0]) > 0);
    }
    for (int k = 0; k < 2; k++) {
        sample_release(&x[k]);
        data_source_close(source[k]);
        records_close(records[k]);
    }
    tokenizer_close(tok);
    ckpt_dir_close(o.chat_dir);
}

BEFORE_ALL()
{
    dir = scratch("chats");
}

AFTER_ALL()
{
    scratch_remove(dir);
}
