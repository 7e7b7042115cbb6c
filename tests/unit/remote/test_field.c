/* field: what the fields of an answer's header say, and that others are as if not there. */
#include "tests/unit/unit.h"

#include "libckpt/remote/field.h"

static struct http_answer read_answer(const char *line)
{
    struct http_answer a;

    field_clear(&a);
    field_line(&a, line, strlen(line));
    return a;
}

TEST(status_line_begins_anew)
{
    struct http_answer a = read_answer("ETag: \"x\"\r\n");

    field_line(&a, "HTTP/1.1 206 Partial Content\r\n", 30);
    assert_int_equal(a.status, 206);
    assert_string_equal(a.etag, "");
    assert_int_equal(read_answer("HTTP/2 302 \r\n").status, 302);
    assert_int_equal(read_answer("HTTP/2\r\n").status, 0);
    assert_int_equal(read_answer("HTTP/1.1 99999999999999999999\r\n").status, 0);
}

TEST(ranges_are_of_files)
{
    struct http_answer a = read_answer("Content-Range: bytes 10-99/1000\r\n");

    assert_int_equal(a.range_at, 10);
    assert_int_equal(a.range_end, 100);
    assert_int_equal(a.total, 1000);
    a = read_answer("content-range: bytes 0-4/*");
    assert_int_equal(a.range_end, 5);
    assert_int_equal(a.total, FIELD_NONE);
    a = read_answer("Content-Range: bytes */7");
    assert_int_equal(a.range_at, FIELD_NONE);
    assert_int_equal(a.total, 7);
}

TEST(ranges_that_are_none)
{
    static const char *const bad[] = {
        "Content-Range: bytes 5-4/10", "Content-Range: bytes 0-10/10", "Content-Range: 0-4/10",
        "Content-Range: bytes 0-4", "Content-Range: bytes -4/10", "Content-Range: bytes 0-4/1x",
        "Content-Range: bytes 0-99999999999999999999/99999999999999999999",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct http_answer a = read_answer(bad[i]);

        assert_int_equal(a.range_at, FIELD_NONE);
        assert_int_equal(a.total, FIELD_NONE);
    }
}

TEST(tags)
{
    struct http_answer a = read_answer("ETag: W/\"abc\"");

    assert_string_equal(a.etag, "abc");
    assert_true(a.weak);
    a = read_answer("ETag:\"abc\"\r\n");
    assert_string_equal(a.etag, "abc");
    assert_false(a.weak);
    assert_string_equal(read_answer("etag: abc").etag, "abc");
    assert_string_equal(read_answer("X-Linked-Etag: \"d1\"").linked_etag, "d1");
    assert_string_equal(read_answer("ETag: \"a\033b\"").etag, "");
}

TEST(link_to_the_next_page)
{
    char longest[FIELD_LINK + 1] = "", line[FIELD_LINK + 100];

    assert_string_equal(read_answer("Link: <https://hub/x?cursor=1>; rel=\"next\"").next,
                        "https://hub/x?cursor=1");
    assert_string_equal(read_answer("Link: <a>; rel=\"prev\", <b>; rel=\"next\"").next, "b");
    assert_string_equal(read_answer("Link: <a>; rel=\"prev\"").next, "");
    assert_string_equal(read_answer("Link: <a; rel=\"next\"").next, "");
    assert_true(read_answer("Link: <a; rel=\"next\"").bad_next);
    assert_string_equal(read_answer("Link: <a>; rel=\"last next\"").next, "a");
    assert_string_equal(read_answer("Link: <a>; REL = Next; title=x").next, "a");
    assert_string_equal(read_answer("Link: <a>; rel=nextish, <b>; rel=\"next-to\"").next, "");
    assert_string_equal(read_answer("Link: <a>; title=\"next\"").next, "");
    memset(longest, 'x', sizeof longest - 1);
    snprintf(line, sizeof line, "Link: <%s>; rel=\"next\"", longest);
    assert_string_equal(read_answer(line).next, "");
    assert_true(read_answer(line).bad_next);
    assert_false(read_answer("Link: <b>; rel=\"next\"").bad_next);
}

TEST(waits)
{
    assert_int_equal(read_answer("Retry-After: 7").wait, 7);
    assert_int_equal(read_answer("RateLimit: \"api\";r=0;t=55").wait, 56);
    assert_int_equal(read_answer("RateLimit: \"api\";r=3;t=55").wait, FIELD_NONE);
    assert_string_equal(read_answer("Retry-After: Fri, 24 May 2013 00:00:00 GMT").date,
                        "Fri, 24 May 2013 00:00:00 GMT");
}

TEST(lengths)
{
    assert_int_equal(read_answer("Content-Length: 12").length, 12);
    assert_int_equal(read_answer("Content-Length: 12x").length, FIELD_NONE);
    assert_int_equal(read_answer("Content-Length: -1").length, FIELD_NONE);
    assert_int_equal(read_answer("X-Linked-Size: 6291456").linked_size, 6291456);
}
