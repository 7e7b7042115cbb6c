/* template: the grammar of prompts, and what is wrong with a template or a record. */
#include "tests/unit/unit.h"

#include "trainer/data/template.h"

static const char record[] =
    "{\"name\":\"Ann\",\"empty\":\"\",\"none\":null,\"n\":3,\"x\":0.1,\"yes\":true,"
    "\"list\":[\"a\",\"b\",\"c\"],\"deep\":{\"in\":[{\"k\":\"v\"}]},\"odd name\":\"o\","
    "\"sp\":\" \\u00a0Hi \\n\",\"q\":\"say \\\"\\u00e9\\\"\"}";

static int render(char *out, size_t size, const char *text, struct ckpt_err *err)
{
    json_t *v = json_loads(record, 0, NULL);
    struct template *t;
    struct ckpt_buf b;
    int rc;

    ckpt_err_clear(err);
    ckpt_buf_init(&b, SIZE_MAX);
    assert_non_null(v);
    rc = template_parse(&t, text, err);
    if (rc == 0)
        rc = template_render(t, &b, v, err);
    if (rc == 0) {
        assert_true(b.len < size);
        memcpy(out, ckpt_buf_str(&b), b.len + 1);
    }
    template_free(t);
    ckpt_buf_release(&b);
    json_decref(v);
    return rc;
}

TEST(what_is_rendered)
{
    static const struct { const char *text, *want; } rows[] = {
        {"plain", "plain"},
        {"", ""},
        {"{name}!", "Ann!"},
        {"{{{name}}}", "{Ann}"},
        {"{n} {x} {yes}", "3 0.1 true"},
        {"{list[0]}{list[-1]}", "ac"},
        {"{list[*]}", "a, b, c"},
        {"{deep.in[0].k}", "v"},
        {"{['odd name']}{deep['in'][0][\"k\"]}", "ov"},
        {"[{sp|trim}]", "[Hi]"},
        {"{sp|trim|lower}", "hi"},
        {"{none|default:\"-\"}{absent|default:\"\"}", "-"},
        {"{list|json}", "[\"a\",\"b\",\"c\"]"},
        {"{name|json}", "\"Ann\""},
        {"{q}", "say \"\xc3\xa9\""},
        {"{?name}yes {name}{/name}{?empty}no{/empty}{?none}no{/none}{?absent}no{/absent}",
         "yes Ann"},
        {"{?list}{?empty}no{/empty}in{/list}", "in"},
        {"{?empty}{absent}{/empty}ok", "ok"},
        {"{!name}no{/name}{!empty}a{/empty}{!none}b{/none}{!absent}c{/absent}", "abc"},
        {"{~name}no{/name}{~empty}no{/empty}{~none}no{/none}{~absent}gone{/absent}", "gone"},
        {"{?name}{name}{/name}{!name}{absent}{/name}", "Ann"},
    };
    struct ckpt_err err;
    char out[256];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (render(out, sizeof out, rows[i].text, &err))
            fail_msg("\"%s\": %s", rows[i].text, err.text);
        assert_string_equal(out, rows[i].want);
    }
}

TEST(what_is_wrong)
{
    static const struct { const char *text; int code; const char *says; } rows[] = {
        {"{absent}", CKPT_EFORMAT, "there are: name, empty"},
        {"{none}", CKPT_EFORMAT, "\"none\""},
        {"{list[3]}", CKPT_EFORMAT, "list[3]"},
        {"{list[-4]}", CKPT_EFORMAT, "list[-4]"},
        {"{name[0]}", CKPT_EFORMAT, "name[0]"},
        {"{list}", CKPT_EFORMAT, "a list"},
        {"{deep}", CKPT_EFORMAT, "an object"},
        {"{name", CKPT_ECONFIG, "no '}'"},
        {"{}", CKPT_ECONFIG, "field name"},
        {"a}b", CKPT_ECONFIG, "lone"},
        {"{a|nosuch}", CKPT_ECONFIG, "filter"},
        {"{a[x]}", CKPT_ECONFIG, "neither a number"},
        {"{a[ 1]}", CKPT_ECONFIG, "neither a number"},
        {"{a[99999999999999999999]}", CKPT_ECONFIG, "neither a number"},
        {"{a[1}", CKPT_ECONFIG, "']'"},
        {"{a['x}", CKPT_ECONFIG, "quote"},
        {"{?a}x", CKPT_ECONFIG, "without end"},
        {"{?a}x{/b}", CKPT_ECONFIG, "another name"},
        {"x{/a}", CKPT_ECONFIG, "not begun"},
        {"{a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q}", CKPT_ECONFIG, "too many"},
        {"{a|default:\"x}", CKPT_ECONFIG, "quote"},
    };
    struct ckpt_err err;
    char out[256];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (render(out, sizeof out, rows[i].text, &err) != rows[i].code ||
            !strstr(err.text, rows[i].says))
            fail_msg("\"%s\": code %d, \"%s\"", rows[i].text, err.code, err.text);
}

TEST(alpaca)
{
    json_t *v = json_loads("{\"instruction\":\"Do.\",\"input\":\"\"}", 0, NULL);
    struct ckpt_err err = {0};
    struct template *t;
    struct ckpt_buf b;

    ckpt_buf_init(&b, SIZE_MAX);
    assert_int_equal(template_parse(&t, "alpaca", &err), 0);
    assert_int_equal(template_render(t, &b, v, &err), 0);
    assert_string_equal(ckpt_buf_str(&b),
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\nDo.\n\n### Response:\n");
    b.len = 0;
    json_object_set_new(v, "input", json_string("X"));
    assert_int_equal(template_render(t, &b, v, &err), 0);
    assert_string_equal(ckpt_buf_str(&b),
        "Below is an instruction that describes a task, paired with an input that provides "
        "further context. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\nDo.\n\n### Input:\nX\n\n### Response:\n");
    template_free(t);
    ckpt_buf_release(&b);
    json_decref(v);
}
