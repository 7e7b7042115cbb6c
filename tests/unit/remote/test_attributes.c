/* attributes: what git on a clone reads in .gitattributes, line by line. */
#include "tests/unit/unit.h"

#include "libckpt/remote/git/attributes.h"
#include "libckpt/remote/git/wildmatch.h"

struct want {
    const char          *path;
    enum attribute_state state;
    const char          *value;
};

static void look(const char *root, const char *sub, const struct want *w, size_t n)
{
    struct ckpt_err err = {0};
    struct attributes *a;

    assert_int_equal(attributes_new(&a, &err), 0);
    assert_int_equal(attributes_add(a, "", root, strlen(root), &err), 0);
    if (sub)
        assert_int_equal(attributes_add(a, "sub", sub, strlen(sub), &err), 0);
    for (size_t i = 0; i < n; i++) {
        enum attribute_state state;
        const char *value;

        assert_int_equal(attributes_of(&state, &value, a, w[i].path, "filter", &err), 0);
        if (state != w[i].state)
            fail_msg("%s: state %d, %d wanted", w[i].path, (int)state, (int)w[i].state);
        if (w[i].value)
            assert_string_equal(value, w[i].value);
    }
    attributes_free(a);
}
#define LOOK(root, sub, ...)                                                                       \
    look(root, sub, (const struct want[]){__VA_ARGS__},                                            \
         sizeof((const struct want[]){__VA_ARGS__}) / sizeof(struct want))
#define LFS ATTRIBUTE_VALUE, "lfs"

TEST(order)
{
    LOOK("*.bin filter=lfs\nbig.bin -filter\nx/*.bin !filter\n", NULL,
         {"a.bin", LFS}, {"d/a.bin", LFS}, {"big.bin", ATTRIBUTE_FALSE, NULL},
         {"d/big.bin", ATTRIBUTE_FALSE, NULL}, {"x/a.bin", ATTRIBUTE_TAKEN_BACK, NULL},
         {"x/y/a.bin", LFS}, {"a.json", ATTRIBUTE_UNSAID, NULL});
    LOOK("*.bin filter=lfs\n", "*.bin filter\n/a.bin filter=other\n",
         {"a.bin", LFS}, {"sub/b.bin", ATTRIBUTE_TRUE, NULL},
         {"sub/a.bin", ATTRIBUTE_VALUE, "other"}, {"sub/sub/a.bin", ATTRIBUTE_TRUE, NULL},
         {"subs/a.bin", LFS});
}

TEST(lines)
{
    LOOK("\xef\xbb\xbf# *.a filter=lfs\r\n  \"b c\" filter=lfs\r\n!d filter=lfs\ne/ filter=lfs\n"
         "f =x filter=lfs\ng -x=1 filter=lfs diff\n\"h\\t\\303\\244\" filter=lfs\n"
         "\"i filter=lfs\nj \t filter=lfs text", NULL,
         {"x.a", ATTRIBUTE_UNSAID, NULL}, {"b c", LFS}, {"d", ATTRIBUTE_UNSAID, NULL},
         {"!d", ATTRIBUTE_UNSAID, NULL}, {"e", ATTRIBUTE_UNSAID, NULL},
         {"f", ATTRIBUTE_UNSAID, NULL}, {"g", LFS}, {"h\t\xc3\xa4", LFS}, {"\"i", LFS}, {"j", LFS});
}

TEST(macros)
{
    LOOK("[attr]big filter=lfs -text\n[attr]bigger big\n*.bin bigger\n*.pt big filter=z\n"
         "*.q -big\n*.r filter=z big\n", "[attr]small filter=small\n*.s small\n",
         {"a.bin", LFS}, {"a.pt", ATTRIBUTE_VALUE, "z"}, {"a.q", ATTRIBUTE_UNSAID, NULL},
         {"a.r", LFS}, {"sub/a.s", ATTRIBUTE_UNSAID, NULL});
}

/* Longer lines are none for git either. */
TEST(long_line)
{
    char text[5000];
    int n = snprintf(text, sizeof text, "*.bin filter=lfs%*s\n*.pt filter=lfs%*s\n", 2047 - 16, "",
                     2048 - 15, "");

    assert_true(n > 2048);
    text[sizeof text - 1] = '\0';
    LOOK(text, NULL, {"a.bin", LFS}, {"a.pt", ATTRIBUTE_UNSAID, NULL});
}

TEST_ERR(costly)
{
    enum attribute_state got;
    struct attributes *a;
    const char *value;
    char text[200], path[201];

    for (int i = 0; i < 60; i += 2)
        memcpy(text + i, "*a", 2);
    snprintf(text + 60, sizeof text - 60, "*b filter=lfs\n");
    memset(path, 'a', 200);
    path[200] = '\0';
    assert_int_equal(attributes_new(&a, err), 0);
    assert_int_equal(attributes_add(a, "", text, strlen(text), err), 0);
    assert_int_equal(attributes_of(&got, &value, a, path, "filter", err), CKPT_ELIMIT);
    attributes_free(a);
}

TEST(patterns)
{
    static const struct { const char *pattern, *text; bool paths; int hit; } rows[] = {
        {"**/a", "a", true, 1}, {"**/a", "x/y/a", true, 1}, {"a/**", "a/b/c", true, 1},
        {"a/**/c", "a/c", true, 1}, {"a/**/c", "a/x/y/c", true, 1}, {"a**c", "ab/c", true, 0},
        {"a*c", "ab/c", false, 1}, {"*", "a/b", true, 0}, {"a?c", "a/c", true, 0},
        {"[!a]x", "bx", true, 1}, {"[^a-c]x", "bx", true, 0}, {"[]x]", "]", true, 1},
        {"[[:digit:]]", "5", true, 1}, {"[a", "a", true, 0}, {"\\*", "*", true, 1},
        {"\\*", "x", true, 0}, {"[\\]]", "]", true, 1}, {"a\\", "a", true, 0}, {"", "", true, 1},
        {"[a-]", "-", true, 1}, {"[/]", "/", true, 0}, {"*/b", "a/b", true, 1},
        {"*/b", "a/x/b", true, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (wildmatch(rows[i].pattern, rows[i].text, rows[i].paths) != rows[i].hit)
            fail_msg("%s %s: %d wanted", rows[i].pattern, rows[i].text, rows[i].hit);
}

/* The pattern of a path matches it, and nothing that looks like it. */
TEST_ERR(own_pattern)
{
    static const char *const paths[] = {
        "tokenizer.json", "a b", "sub/a*b?[c]", "#x", "!x", "\"q\"", "[attr]x", "a\\b", "\xc3\xa4",
    };

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        enum attribute_state got;
        struct attributes *a;
        struct ckpt_buf b;
        const char *value;
        char other[100];

        ckpt_buf_init(&b, 1000);
        attributes_pattern(&b, paths[i]);
        ckpt_buf_put_str(&b, " filter=lfs\n");
        assert_int_equal(attributes_new(&a, err), 0);
        assert_int_equal(attributes_add(a, "", (char *)b.data, b.len, err), 0);
        assert_int_equal(attributes_of(&got, &value, a, paths[i], "filter", err), 0);
        assert_int_equal(got, ATTRIBUTE_VALUE);
        snprintf(other, sizeof other, "x/%s", paths[i]);
        assert_int_equal(attributes_of(&got, &value, a, other, "filter", err), 0);
        assert_int_equal(got, ATTRIBUTE_UNSAID);
        attributes_free(a);
        ckpt_buf_release(&b);
    }
}
