/* xml: elements of flat answers, found by name. */
#include "tests/unit/unit.h"

#include "libckpt/base/xml.h"

TEST(text_of_elements)
{
    static const struct { const char *in, *name, *out; } good[] = {
        {"<a>x</a>", "a", "x"}, {"<r><ab>no</ab><a>x</a></r>", "a", "x"},
        {"<a xmlns=\"u\">x</a>", "a", "x"}, {"<a/>", "a", ""}, {"<a />x</a>", "a", ""},
        {"<a>&lt;&gt;&amp;&quot;&apos;&#34;&#x22;</a>", "a", "<>&\"'\"\""},
        {"<D:a>x</D:a>", "a", "x"}, {"<ns-1:a/>", "a", ""}, {"<r><:a>no</:a><b:a>x</b:a></r>", "a", "x"},
        {"  <?xml version=\"1.0\"?>\n<a>1 2</a>", "a", "1 2"},
    };
    static const char *const bad[] = {
        "", "<", "<a", "<a>", "<a>x", "<a>x</b>", "<a>&x;</a>", "<a>&#</a>", "<a>&#0;</a>",
        "<a>&#x80;</a>", "<a>&#99999999;</a>", "<a>& </a>", "<b>x</b>", "<a>0123456789</a>",
        "<D:a>x", "<D:a>x</D:b>", "<D:", "<D:a", "<a>x</D:", "<D: a>x</D: a>",
    };
    char out[10];

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(xml_text(out, sizeof out, xml_of(good[i].in), good[i].name));
        assert_string_equal(out, good[i].out);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(xml_text(out, sizeof out, xml_of(bad[i]), "a"));
        assert_string_equal(out, "");
    }
}

TEST(elements_one_after_another)
{
    struct xml in = xml_of("<l><p><n>1</n></p><p><n>23</n></p><p><n>4"), p;
    unsigned long long n = 0;

    assert_true(xml_next(&p, &in, "p") && xml_number(&n, p, "n"));
    assert_int_equal(n, 1);
    assert_true(xml_next(&p, &in, "p") && xml_number(&n, p, "n"));
    assert_int_equal(n, 23);
    assert_false(xml_next(&p, &in, "p"));
    assert_false(xml_number(&n, xml_of("<n>-1</n>"), "n"));
    assert_false(xml_number(&n, xml_of("<n>1x</n>"), "n"));
    assert_false(xml_number(&n, xml_of("<n>1234567890123456789</n>"), "n"));
}
