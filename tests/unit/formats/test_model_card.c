/* model_card: what a card says is read, new keys and results are put into it, and the rest stays as it
 * is, byte for byte. */
#include "tests/unit/faults.h"
#include "tests/unit/unit.h"

#include "formats/hf/model_card.h"
#include "formats/hf/run_card.h"

static const struct model_card_result loss = {"text-generation", "acme/rows", "main", "test",
                                              "perplexity", "Perplexity", 12.5};

/* The card with these keys ("{...}") and results in it, in a static buffer. */
static const char *edit(const char *text, const char *keys, const struct model_card_result *r,
                        size_t n)
{
    static char got[8192];
    struct ckpt_err err = {0};
    json_error_t at;
    json_t *k = json_loads(keys, 0, &at);
    struct ckpt_buf b;

    assert_non_null(k);
    ckpt_buf_init(&b, sizeof got - 1);
    if (model_card_edit(&b, text, strlen(text), k, "toy", r, n, &err))
        snprintf(got, sizeof got, "%d: %s", err.code, err.text);
    else
        snprintf(got, sizeof got, "%s", ckpt_buf_str(&b));
    ckpt_buf_release(&b);
    json_decref(k);
    return got;
}

#define INDEX "model-index:\n- name: toy\n  results:\n  - task:\n      type: text-generation\n"         \
              "    dataset:\n      name: acme/rows\n      type: acme/rows\n      config: main\n"       \
              "      split: test\n    metrics:\n    - type: perplexity\n      value: 12.5\n"           \
              "      name: Perplexity\n"

TEST(a_new_card)
{
    assert_string_equal(edit("", "{\"license\": \"mit\", \"tags\": [\"lora\", \"no\", \"a: b\"]}", &loss, 1),
                        "---\nlicense: mit\ntags:\n- lora\n- \"no\"\n- \"a: b\"\n" INDEX "---\n");
    assert_string_equal(edit("# Body\n", "{\"license\": \"1.0\"}", NULL, 0),
                        "---\nlicense: \"1.0\"\n---\n\n# Body\n");
}

TEST(keys_that_are_there_stay)
{
    const char *text = "---\nlicense:   mit   # ours\ntags: [a,  b]\n---\n---\nnot yaml: [\n";

    assert_string_equal(edit(text, "{\"license\": \"apache-2.0\", \"tags\": [\"c\"]}", NULL, 0), text);
    assert_string_equal(edit(text, "{\"license\": \"x\", \"library_name\": \"peft\"}", NULL, 0),
                        "---\nlicense:   mit   # ours\ntags: [a,  b]\nlibrary_name: peft\n---\n---\nnot "
                        "yaml: [\n");
}

/* Only model-index is written anew: comments around it, line ends, other keys, the body stay. */
TEST(results_join_those_that_are_there)
{
    static const char head[] = "---\r\n# a comment: ü\r\nlanguage: no\r\n";
    static const char tail[] = "# after\r\n\r\nlicense: mit\r\n---\r\nbody  \r\n\r\n";
    static const char old[] =
        "model-index:\r\n- name: \"Other Name\"\r\n  results:\r\n  - task: {type: text-generation, name: T}\r\n"
        "    dataset: {type: acme/rows, name: Rows, config: main, split: test}\r\n    metrics:\r\n"
        "    - type: perplexity\r\n      value: 99\r\n      name: Perplexity\r\n      verified: true\r\n"
        "    - {type: f1, value: '0.5'}   # last\r\n";
    static const char new[] =
        "model-index:\r\n- name: \"Other Name\"\r\n  results:\r\n  - task:\r\n      type: text-generation\r\n"
        "      name: T\r\n    dataset:\r\n      type: acme/rows\r\n      name: Rows\r\n      config: main\r\n"
        "      split: test\r\n    metrics:\r\n    - type: perplexity\r\n      value: 12.5\r\n"
        "      name: Perplexity\r\n      verified: true\r\n    - type: f1\r\n      value: '0.5'\r\n";
    char text[2000], want[2000];

    snprintf(text, sizeof text, "%s%s%s", head, old, tail);
    snprintf(want, sizeof want, "%s%s%s", head, new, tail);
    assert_string_equal(edit(text, "{}", &loss, 1), want);
    assert_string_equal(edit(text, "{}", NULL, 0), text);
}

TEST(results_beside_others)
{
    struct model_card_result more[] = {loss, loss, loss};

    more[1].metric = "loss";
    more[1].name = NULL;
    more[1].value = 1e-5;
    more[2].split = NULL;
    more[2].value = 3;
    assert_string_equal(edit("---\n" INDEX "---\n", "{}", more, 3),
                        "---\nmodel-index:\n- name: toy\n  results:\n  - task:\n      type: text-generation\n"
                        "    dataset:\n      name: acme/rows\n      type: acme/rows\n      config: main\n"
                        "      split: test\n    metrics:\n    - type: perplexity\n      value: 12.5\n"
                        "      name: Perplexity\n    - type: loss\n      value: 1.0e-05\n"
                        "  - task:\n      type: text-generation\n    dataset:\n      name: acme/rows\n"
                        "      type: acme/rows\n      config: main\n    metrics:\n    - type: perplexity\n"
                        "      value: 3.0\n      name: Perplexity\n---\n");
}

TEST(an_empty_index)
{
    static const char *const empty[] = {"model-index: []\n", "model-index:\n", "model-index: # none\n",
                                        "model-index:\n- name: toy\n  results: []\n"};

    for (size_t i = 0; i < 4; i++) {
        char text[200];

        snprintf(text, sizeof text, "---\n%slicense: mit\n---\n", empty[i]);
        assert_string_equal(edit(text, "{}", &loss, 1), "---\n" INDEX "license: mit\n---\n");
    }
}

TEST(what_is_not_edited)
{
    static const char *const bad[][2] = {
        {"---\nmodel-index: text\n---\n", "is no list"},
        {"---\nmodel-index:\n- text\n---\n", "no model in it"},
        {"---\nmodel-index:\n- results: text\n---\n", "is no list"},
        {"---\na: &x [1]\nmodel-index:\n- name: *x\n---\n", "aliases"},
        {"---\n{a: b}\n---\n", "braces"},
        {"---\na:\n  - \rb: c\n---\n", "neither \\n nor"},
        {"---\na: b\xe2\x80\xa8" "c: d\n---\n", "neither \\n nor"},
        {"---\n- a\n---\n", "no mapping"},
        {"---\na: [\n---\n", "front matter"},
        {"---\na: b\na c\n---\n", "front matter"},
        {"---\r\na: b\r\n---\rc: d\r\n---\r\n", "more than one document"},
        {"---\na: b\n...\n---\n", "more than one document"},
        {"---\n  a: b\n---\n", "indented"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!strstr(edit(bad[i][0], "{}", &loss, 1), bad[i][1]))
            fail_msg("%zu: %s", i, edit(bad[i][0], "{}", &loss, 1));
}

TEST_ERR(keys_are_read)
{
    static const char text[] = "\n---\nlicense: mit\nlanguage:\n- en\n- \"no\"\nmodel-index:\n- name: x\n"
                               "n: {a: b}\n---\nlicense: other\n";
    json_t *keys, *want = json_pack("{s:s, s:[s, s]}", "license", "mit", "language", "en", "no");

    assert_int_equal(model_card_read(&keys, text, strlen(text), err), 0);
    assert_true(json_equal(keys, want));
    json_decref(keys);
    json_decref(want);
    assert_int_equal(model_card_read(&keys, "# none\n---\n", 11, err), 0);
    assert_int_equal(json_object_size(keys), 0);
    json_decref(keys);
    assert_int_equal(model_card_read(&keys, "---\na: [\n---\n", 13, err), CKPT_EFORMAT);
    assert_int_equal(model_card_read(&keys, "---\n---\n", 8, err), 0);
    json_decref(keys);
}

TEST(names_that_may_be_told)
{
    static const struct { const char *path, *name; bool hub; } cases[] = {
        {"hf://acme/toy@main", "acme/toy", true}, {"hf://datasets/acme/rows", "acme/rows", true},
        {"/home/me/.cache/huggingface/hub/models--acme--toy/snapshots/0123", "acme/toy", true},
        {"/h/models--gpt2/snapshots/01/", "gpt2", true}, {"models--a--b--c/snapshots/0", "a/b--c", true},
        {"/home/me/base/", "base", false}, {"base", "base", false}, {"/h/models--a--b/blobs/1", "1", false},
        {"", "", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[100];

        assert_int_equal(run_card_name(name, sizeof name, cases[i].path), cases[i].hub);
        assert_string_equal(name, cases[i].name);
    }
}

TEST_ERR(figures_of_a_trainer)
{
    json_t *row = json_pack("{s:f, s:f, s:f, s:f, s:f, s:s}", "epoch", 1.0, "eval_loss", 0.0, "eval_runtime", 2.0,
                            "eval_samples_per_second", 3.0, "eval_f1", 0.5, "eval_note", "x");
    struct model_card_result r[8];

    (void)err;
    assert_int_equal(run_card_figures(r, 8, row, "t", "d"), 3);
    assert_string_equal(r[0].metric, "loss");
    assert_string_equal(r[1].metric, "perplexity");
    assert_true(r[1].value == 1);
    assert_string_equal(r[2].metric, "f1");
    assert_int_equal(run_card_figures(r, 1, row, "t", "d"), 1);
    json_decref(row);
}

TEST(failures_are_told)
{
    json_t *keys = json_pack("{s:s, s:[s]}", "license", "mit", "tags", "a");

    for (struct faults f = {.kinds = FAULT(ALLOC)}; faults_next(&f);) {
        struct ckpt_err err = {0};
        struct ckpt_buf b;
        int rc;

        ckpt_buf_init(&b, 8192);
        rc = model_card_edit(&b, "---\n" INDEX "---\nbody\n", strlen("---\n" INDEX "---\nbody\n"),
                             keys, "toy", &loss, 1, &err);
        faults_disarm(&f);
        faults_told(&f, rc, &err, "editing");
        assert_true(rc || strstr(ckpt_buf_str(&b), "body\n"));
        ckpt_buf_release(&b);
    }
    json_decref(keys);
}
