/* yaml_limits: what would take libyaml minutes is refused at once, by its line. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <time.h>

#include "formats/container/yaml_limits.h"

/* head, then n times one. */
static char *many(const char *head, const char *one, size_t n, size_t *len)
{
    size_t h = strlen(head), k = strlen(one);
    char *text = malloc(h + n * k + 1);

    assert_non_null(text);
    memcpy(text, head, h + 1);
    for (size_t i = 0; i < n; i++)
        memcpy(text + h + i * k, one, k);
    *len = h + n * k;
    text[*len] = '\0';
    return text;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

TEST(what_is_quadratic_is_refused_at_once)
{
    static const struct { const char *head, *one, *says; size_t n; } set[] = {
        {"a: ", "[", "line 1: nested deeper than 64 levels", 4 << 20},
        {"a: ", "[\n", "nested deeper than 64 levels", 1 << 20},
        {"a: ", "{a: ", "nested deeper than 64 levels", 1 << 20},
        {"", "- ", "nested deeper than 64 levels", 1 << 20},
        {"", "? ", "nested deeper than 64 levels", 1 << 20},
        {"a: ", "[{", "nested deeper than 64 levels", 1 << 20},
        {"a:\n", "- &a b\n", "line 1002: more than 1000 anchors and aliases", 1 << 19},
        {"a:\n- &a b\n", "- *a\n", "more than 1000 anchors and aliases", 1 << 19},
        {"", "%TAG !a! b\n", "line 17: more than 16 directives", 1 << 18},
        {"a: [", "1,", "more than 200000 values", 1 << 21},
        {"a: \"", "[", NULL, 1 << 20},
        {"# ", "[", NULL, 1 << 20},
        {"a: b", " [", NULL, 1 << 20},
        {"a: |\n", " [\n", NULL, 1 << 20},
        {"", "\t[", NULL, 1 << 20},
    };

    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        struct ckpt_err err = {0};
        double began = seconds();
        size_t len;
        char *text = many(set[i].head, set[i].one, set[i].n, &len);
        int rc = yaml_check_limits(text, len, &err);

        free(text);
        assert_int_equal(rc, set[i].says ? CKPT_ELIMIT : 0);
        if (set[i].says && !strstr(err.text, set[i].says))
            fail_msg("\"%s...\": %s", set[i].one, err.text);
        if (seconds() - began > 2)
            fail_msg("\"%s...\" took %.1f s", set[i].one, seconds() - began);
    }
}

TEST(what_is_in_use_passes)
{
    struct ckpt_err err = {0};
    char deep[3 + 2 * 64 + 1];
    const char *text = "a: &x [1, {b: 2}]\nc: *x\n# [[[\nd: \"[[[\"\n";

    assert_int_equal(yaml_check_limits(text, strlen(text), &err), 0);
    assert_int_equal(yaml_check_limits("", 0, &err), 0);
    assert_int_equal(yaml_check_limits("a: [", 4, &err), 0);        /* no YAML: not told here */
    snprintf(deep, sizeof deep, "%064d%064d", 0, 0);
    memset(deep, '[', 64);
    memset(deep + 64, ']', 64);
    assert_int_equal(yaml_check_limits(deep, 128, &err), 0);
}
