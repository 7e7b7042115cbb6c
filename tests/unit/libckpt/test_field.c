/* field: what the fields of an answer's header say, and that others are as if not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "libckpt/remote/field.h"

static struct http_answer read(const char *line)
{
    struct http_answer a;

    field_clear(&a);
    field_line(&a, line, strlen(line));
    return a;
}

static void test_status_line_begins_anew(void **state)
{
    struct http_answer a = read("ETag: \"x\"\r\n");

    (void)state;
    field_line(&a, "HTTP/1.1 206 Partial Content\r\n", 30);
    assert_int_equal(a.status, 206);
    assert_string_equal(a.etag, "");
    assert_int_equal(read("HTTP/2 302 \r\n").status, 302);
    assert_int_equal(read("HTTP/2\r\n").status, 0);
    assert_int_equal(read("HTTP/1.1 99999999999999999999\r\n").status, 0);
}

static void test_ranges_are_of_files(void **state)
{
    struct http_answer a = read("Content-Range: bytes 10-99/1000\r\n");

    (void)state;
    assert_int_equal(a.range_at, 10);
    assert_int_equal(a.range_end, 100);
    assert_int_equal(a.total, 1000);
    a = read("content-range: bytes 0-4/*");
    assert_int_equal(a.range_end, 5);
    assert_int_equal(a.total, FIELD_NONE);
    a = read("Content-Range: bytes */7");
    assert_int_equal(a.range_at, FIELD_NONE);
    assert_int_equal(a.total, 7);
}

static void test_ranges_that_are_none(void **state)
{
    static const char *const bad[] = {
        "Content-Range: bytes 5-4/10", "Content-Range: bytes 0-10/10", "Content-Range: 0-4/10",
        "Content-Range: bytes 0-4", "Content-Range: bytes -4/10", "Content-Range: bytes 0-4/1x",
        "Content-Range: bytes 0-99999999999999999999/99999999999999999999",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct http_answer a = read(bad[i]);

        assert_int_equal(a.range_at, FIELD_NONE);
        assert_int_equal(a.total, FIELD_NONE);
    }
}

static void test_tags(void **state)
{
    struct http_answer a = read("ETag: W/\"abc\"");

    (void)state;
    assert_string_equal(a.etag, "abc");
    assert_true(a.weak);
    a = read("ETag:\"abc\"\r\n");
    assert_string_equal(a.etag, "abc");
    assert_false(a.weak);
    assert_string_equal(read("etag: abc").etag, "abc");
    assert_string_equal(read("X-Linked-Etag: \"d1\"").linked_etag, "d1");
    assert_string_equal(read("ETag: \"a\033b\"").etag, "");
}

static void test_link_to_the_next_page(void **state)
{
    char longest[FIELD_LINK + 1] = "", line[FIELD_LINK + 100];

    (void)state;
    assert_string_equal(read("Link: <https://hub/x?cursor=1>; rel=\"next\"").next,
                        "https://hub/x?cursor=1");
    assert_string_equal(read("Link: <a>; rel=\"prev\", <b>; rel=\"next\"").next, "b");
    assert_string_equal(read("Link: <a>; rel=\"prev\"").next, "");
    assert_string_equal(read("Link: <a; rel=\"next\"").next, "");
    assert_true(read("Link: <a; rel=\"next\"").bad_next);
    assert_string_equal(read("Link: <a>; rel=\"last next\"").next, "a");
    assert_string_equal(read("Link: <a>; REL = Next; title=x").next, "a");
    assert_string_equal(read("Link: <a>; rel=nextish, <b>; rel=\"next-to\"").next, "");
    assert_string_equal(read("Link: <a>; title=\"next\"").next, "");
    memset(longest, 'x', sizeof longest - 1);
    snprintf(line, sizeof line, "Link: <%s>; rel=\"next\"", longest);
    assert_string_equal(read(line).next, "");
    assert_true(read(line).bad_next);
    assert_false(read("Link: <b>; rel=\"next\"").bad_next);
}

static void test_waits(void **state)
{
    (void)state;
    assert_int_equal(read("Retry-After: 7").wait, 7);
    assert_int_equal(read("RateLimit: \"api\";r=0;t=55").wait, 56);
    assert_int_equal(read("RateLimit: \"api\";r=3;t=55").wait, FIELD_NONE);
    assert_string_equal(read("Retry-After: Fri, 24 May 2013 00:00:00 GMT").date,
                        "Fri, 24 May 2013 00:00:00 GMT");
}

static void test_lengths(void **state)
{
    (void)state;
    assert_int_equal(read("Content-Length: 12").length, 12);
    assert_int_equal(read("Content-Length: 12x").length, FIELD_NONE);
    assert_int_equal(read("Content-Length: -1").length, FIELD_NONE);
    assert_int_equal(read("X-Linked-Size: 6291456").linked_size, 6291456);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_line_begins_anew),
        cmocka_unit_test(test_ranges_are_of_files),
        cmocka_unit_test(test_ranges_that_are_none),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_link_to_the_next_page),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_lengths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
