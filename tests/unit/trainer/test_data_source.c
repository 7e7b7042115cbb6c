/* stream, sample: how records become ids and labels, what is refused, what is skipped. */
#include "tests/unit/unit.h"
#include "tests/unit/data_files.h"

struct set {
    struct tokenizer   *tok;
    struct records     *records;
    struct data_source *source;
};

static int open_set(struct set *s, const char *body, const struct data_opts *opts,
                    struct ckpt_err *err)
{
    struct data_opts o = opts ? *opts : (struct data_opts){0};

    o.max_seq_length = o.max_seq_length ? o.max_seq_length : 64;
    o.workers = 2;
    ckpt_err_clear(err);
    s->tok = demo_tokenizer();
    s->records = records_of(body);
    return data_source_open(&s->source, s->records, s->tok, &o, err);
}

static void close_set(struct set *s)
{
    data_source_close(s->source);
    records_close(s->records);
    tokenizer_close(s->tok);
}

/* The text of the ids in [from, to). */
static void expect_text(const struct set *s, const struct sample *x, int64_t from, int64_t to,
                        const char *want)
{
    struct ckpt_err err = {0};
    char *text;
    size_t len;

    assert_int_equal(tokenizer_decode(s->tok, &text, &len, x->ids + from, (size_t)(to - from),
                                      false, &err), 0);
    assert_string_equal(text, want);
    ckpt_free(text);
}

/* First label that is none of -100; labels from there on must equal the ids. */
static int64_t supervised_from(const struct sample *x)
{
    int64_t i = 0;

    while (i < x->n && x->labels[i] == SAMPLE_NO_LABEL)
        i++;
    for (int64_t k = i; k < x->n; k++)
        assert_int_equal(x->labels[k], x->ids[k]);
    return i;
}

TEST(instruction_rows)
{
    static const char body[] =
        "{\"instruction\":\"Define the noun: dog\",\"input\":\"\",\"output\":\"an animal\"}\n"
        "{\"instruction\":\"Add\",\"input\":\"1 2\",\"output\":\"3\"}\n";
    struct data_opts all = {.loss_on_prompt = true};
    struct sample x = {0};
    struct ckpt_err err = {0};
    struct set s;
    char *prompt, *completion;
    int64_t from;

    assert_int_equal(open_set(&s, body, NULL, &err), 0);
    assert_int_equal(data_source_kind(s.source), DATA_PROMPT);
    assert_int_equal(data_source_count(s.source), 2);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    from = supervised_from(&x);
    expect_text(&s, &x, 0, from, "Define the noun: dog\n");
    expect_text(&s, &x, from, x.n, "an animal</s>");
    assert_int_equal(x.given, x.n);
    assert_false(x.cut);
    assert_int_equal(data_source_sample(s.source, 1, &x, &err), 0);
    expect_text(&s, &x, 0, supervised_from(&x), "Add\n1 2\n");
    assert_int_equal(data_source_sample(s.source, 2, &x, &err), CKPT_ENOTFOUND);
    assert_int_equal(data_source_text(s.source, 1, &prompt, &completion, &err), 0);
    assert_string_equal(prompt, "Add\n1 2\n");
    assert_string_equal(completion, "3");
    ckpt_free(prompt);
    ckpt_free(completion);
    close_set(&s);
    assert_int_equal(open_set(&s, body, &all, &err), 0);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    assert_int_equal(supervised_from(&x), 0);
    close_set(&s);
    sample_release(&x);
}

/* A token across the border of prompt and completion belongs to the completion. */
TEST(the_border_inside_a_token)
{
    struct sample x = {0};
    struct ckpt_err err = {0};
    struct set s;

    assert_int_equal(
        open_set(&s, "{\"prompt\":\"the ani\",\"completion\":\"mal\"}\n", NULL, &err), 0);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    expect_text(&s, &x, 0, x.n, "the animal</s>");
    expect_text(&s, &x, 0, supervised_from(&x), "the");
    sample_release(&x);
    close_set(&s);
}

TEST(text_rows_are_cut)
{
    struct data_opts o = {.max_seq_length = 3}, field = {.text_field = "odd 'name"};
    struct data_opts bare = {.no_eos = true};
    struct sample x = {0};
    struct data_stats stats;
    struct ckpt_err err = {0};
    struct set s;

    assert_int_equal(open_set(&s, "{\"text\":\"a b c d e\"}\n{\"text\":\"a\"}\n", &o, &err), 0);
    assert_int_equal(data_source_kind(s.source), DATA_TEXT);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    assert_int_equal(x.n, 3);
    assert_true(x.cut);
    assert_int_equal(x.given, 6);
    assert_int_equal(sample_targets(&x), 2);
    assert_null(data_source_lengths(s.source));
    assert_int_equal(data_source_scan(s.source, &stats, &err), 0);
    assert_int_equal(stats.n_samples, 2);
    assert_int_equal(stats.n_truncated, 1);
    assert_int_equal(stats.n_tokens, 5);
    assert_int_equal(stats.n_targets, 3);
    assert_int_equal(stats.longest, 3);
    assert_int_equal(data_source_lengths(s.source)[1], 2);
    close_set(&s);
    assert_int_equal(open_set(&s, "{\"odd 'name\":\"a b\"}\n", &field, &err), 0);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    expect_text(&s, &x, 0, x.n, "a b</s>");
    close_set(&s);
    assert_int_equal(open_set(&s, "{\"text\":\"a b</s>\"}\n", NULL, &err), 0);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    assert_int_equal(x.n, 3);                   /* eos stands there already */
    close_set(&s);
    assert_int_equal(open_set(&s, "{\"text\":\"a\"}\n{\"text\":\"\"}\n", &bare, &err), 0);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    assert_int_equal(x.n, 1);
    assert_int_equal(data_source_sample(s.source, 1, &x, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "record 2: no tokens"));
    close_set(&s);
    sample_release(&x);
}

TEST(templates)
{
    struct data_opts o = {.prompt_template = "Q: {q}\nA:", .completion_template = " {a[0]}"};
    struct data_opts half = {.prompt_template = "Q: {q}"};
    struct sample x = {0};
    struct ckpt_err err = {0};
    struct set s;

    assert_int_equal(
        open_set(&s, "{\"q\":\"who\",\"a\":[\"me\"]}\n{\"q\":\"who\"}\n", &o, &err), 0);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    expect_text(&s, &x, 0, supervised_from(&x), "Q: who\nA:");
    expect_text(&s, &x, supervised_from(&x), x.n, " me</s>");
    assert_int_equal(data_source_sample(s.source, 1, &x, &err), CKPT_EFORMAT);
    assert_non_null(
        strstr(err.text, "record 2: field \"a[0]\" is absent or null; there are: q"));
    close_set(&s);
    assert_int_equal(open_set(&s, "{\"q\":\"who\"}\n", &half, &err), CKPT_ECONFIG);
    close_set(&s);
    sample_release(&x);
}

TEST(rows_of_ids)
{
    static const int32_t ids[] = {5, 6, 7}, labels[] = {-100, 6, 7};
    struct data_opts cut = {.max_seq_length = 2};
    struct sample x = {0};
    struct ckpt_err err = {0};
    struct set s;
    char *p, *c;

    assert_int_equal(open_set(&s,
        "{\"input_ids\":[3,3,5,6,7,3],\"attention_mask\":[0,0,1,1,1,0],"
        "\"labels\":[-100,-100,-100,6,7,-100]}\n{\"input_ids\":[5,6,7]}\n", NULL, &err), 0);
    assert_int_equal(data_source_kind(s.source), DATA_IDS);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    assert_int_equal(x.n, 3);
    assert_int_equal(x.lead, 2);
    assert_int_equal(x.given, 6);
    assert_memory_equal(x.ids, ids, sizeof ids);
    assert_memory_equal(x.labels, labels, sizeof labels);
    assert_int_equal(data_source_sample(s.source, 1, &x, &err), 0);
    assert_memory_equal(x.labels, ids, sizeof ids);
    assert_int_equal(data_source_text(s.source, 0, &p, &c, &err), CKPT_EUNSUPPORTED);
    close_set(&s);
    assert_int_equal(open_set(&s, "{\"input_ids\":[5,6,7]}\n", &cut, &err), 0);
    assert_int_equal(data_source_sample(s.source, 0, &x, &err), 0);
    assert_int_equal(x.n, 2);
    assert_true(x.cut);
    close_set(&s);
    sample_release(&x);
}

TEST(rows_of_ids_that_are_wrong)
{
    static const struct { const char *row; int code; const char *says; } bad[] = {
        {"\"input_ids\":[1,-1]", CKPT_EFORMAT, "input_ids[1]"},
        {"\"input_ids\":[1,1.5]", CKPT_EFORMAT, "input_ids[1]"},
        {"\"input_ids\":[1,4294967297]", CKPT_EFORMAT, "input_ids[1]"},
        {"\"input_ids\":\"x\"", CKPT_EFORMAT, "list"},
        {"\"input_ids\":[]", CKPT_EFORMAT, "no tokens"},
        {"\"input_ids\":[1,2],\"labels\":[1]", CKPT_EFORMAT, "labels has 1"},
        {"\"input_ids\":[1,2],\"labels\":[1,-5]", CKPT_EFORMAT, "labels[1]"},
        {"\"input_ids\":[1,2,3],\"attention_mask\":[1,0,1]", CKPT_EUNSUPPORTED, "hole at 1"},
        {"\"input_ids\":[1,2],\"attention_mask\":[1,0],\"labels\":[1,2]", CKPT_EFORMAT,
         "labels[1]"},
        {"\"text\":\"x\"", CKPT_EFORMAT, "input_ids"},
    };
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sample x = {0};
        struct set s;
        char body[256];

        snprintf(body, sizeof body, "{\"input_ids\":[1]}\n{%s}\n", bad[i].row);
        assert_int_equal(open_set(&s, body, NULL, &err), 0);
        if (data_source_sample(s.source, 1, &x, &err) != bad[i].code ||
            !strstr(err.text, bad[i].says) || !strstr(err.text, "record 2"))
            fail_msg("%s: code %d, \"%s\"", bad[i].row, err.code, err.text);
        sample_release(&x);
        close_set(&s);
    }
}

TEST(sets_that_cannot_be_used)
{
    struct data_opts o = {.max_seq_length = 8};
    struct ckpt_err err = {0};
    struct records *r;
    struct data_source *d;
    struct set s;

    assert_int_equal(open_set(&s, "\n", NULL, &err), CKPT_EFORMAT);
    close_set(&s);
    assert_int_equal(open_set(&s, "{\"foo\":1,\"bar\":2}\n", NULL, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "there are: foo, bar"));
    assert_true(err.hint[0] != '\0');
    close_set(&s);
    r = records_of("{\"text\":\"x\"}\n");
    assert_int_equal(data_source_open(&d, r, NULL, &o, &err), CKPT_ECONFIG);
    assert_null(d);
    o.max_seq_length = 0;
    assert_int_equal(data_source_open(&d, r, NULL, &o, &err), CKPT_ECONFIG);
    records_close(r);
}

TEST(bad_rows_stop_or_are_skipped)
{
    static const char body[] = "{\"text\":\"a\"}\n{\"txt\":\"b\"}\n{\"text\":\"c\"}\n{broken\n"
                               "{\"text\":\"d\"}\n";
    struct data_opts skip = {.bad = DATA_BAD_SKIP};
    struct data_stats stats;
    struct sample x = {0};
    struct ckpt_err err = {0};
    struct set s;

    assert_int_equal(open_set(&s, body, NULL, &err), 0);
    assert_int_equal(data_source_sample(s.source, 1, &x, &err), CKPT_EFORMAT);
    assert_int_equal(data_source_scan(s.source, NULL, &err), CKPT_EFORMAT);
    close_set(&s);
    assert_int_equal(open_set(&s, body, &skip, &err), 0);
    assert_int_equal(data_source_scan(s.source, &stats, &err), 0);
    assert_int_equal(data_source_count(s.source), 3);
    assert_int_equal(stats.n_skipped, 2);
    assert_non_null(strstr(stats.first_bad, "record 2"));
    assert_int_equal(data_source_sample(s.source, 2, &x, &err), 0);
    expect_text(&s, &x, 0, x.n, "d</s>");
    close_set(&s);
    assert_int_equal(open_set(&s, "{\"text\":\"\"}\n",
                              &(struct data_opts){.bad = DATA_BAD_SKIP, .no_eos = true}, &err),
                     CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "none of 1 records"));
    close_set(&s);
    sample_release(&x);
}

TEST(rows_that_are_too_long_are_left_out_or_refused)
{
    static const char body[] = "{\"text\":\"a\"}\n{\"text\":\"a b c d e\"}\n{\"txt\":\"b\"}\n"
                               "{\"text\":\"c d\"}\n";
    struct data_opts drop = {.max_seq_length = 3, .excess = DATA_EXCESS_DROP};
    struct data_opts raise = {.max_seq_length = 3, .excess = DATA_EXCESS_RAISE};
    struct data_stats stats;
    struct sample x = {0};
    struct ckpt_err err = {0};
    struct set s;

    assert_int_equal(open_set(&s, body, &drop, &err), CKPT_EFORMAT);    /* of the bad row */
    assert_non_null(strstr(err.text, "record 3"));
    close_set(&s);
    ckpt_err_clear(&err);
    drop.bad = DATA_BAD_SKIP;
    assert_int_equal(open_set(&s, body, &drop, &err), 0);
    assert_int_equal(data_source_count(s.source), 2);
    assert_int_equal(data_source_dropped(s.source), 1);
    assert_int_equal(data_source_scan(s.source, &stats, &err), 0);
    assert_int_equal(stats.n_samples, 2);
    assert_int_equal(stats.n_skipped, 1);
    assert_int_equal(stats.n_dropped, 1);
    assert_int_equal(stats.n_truncated, 0);
    assert_int_equal(stats.n_tokens, 5);
    assert_int_equal(stats.longest, 3);
    assert_int_equal(data_source_lengths(s.source)[1], 3);
    assert_int_equal(data_source_sample(s.source, 1, &x, &err), 0);
    expect_text(&s, &x, 0, x.n, "c d</s>");
    close_set(&s);
    drop = (struct data_opts){.max_seq_length = 3, .excess = DATA_EXCESS_DROP};
    assert_int_equal(open_set(&s, "{\"text\":\"a b c d e\"}\n", &drop, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "all 1 records have more tokens than `max_seq_length 3`"));
    close_set(&s);
    ckpt_err_clear(&err);
    raise.bad = DATA_BAD_SKIP;                  /* a long row is not a bad one */
    assert_int_equal(open_set(&s, body, &raise, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "record 2: more tokens than `max_seq_length 3`"));
    close_set(&s);
    ckpt_err_clear(&err);
    assert_int_equal(open_set(&s, "{\"text\":\"a b\"}\n", &raise, &err), 0);
    assert_int_equal(data_source_count(s.source), 1);
    close_set(&s);
    sample_release(&x);
}

static void fingerprint(unsigned char print[16], const struct data_opts *opts)
{
    struct ckpt_err err = {0};
    struct set s;

    assert_int_equal(open_set(&s, "{\"prompt\":\"a\\n\",\"completion\":\"b\"}\n", opts, &err), 0);
    assert_int_equal(data_source_fingerprint(s.source, print, &err), 0);
    close_set(&s);
}

TEST(fingerprints)
{
    unsigned char a[16], b[16];

    fingerprint(a, NULL);
    fingerprint(b, NULL);
    assert_memory_equal(a, b, 16);
    fingerprint(b, &(struct data_opts){.loss_on_prompt = true});
    assert_memory_not_equal(a, b, 16);
}
