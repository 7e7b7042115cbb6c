/* fuzz_field: the header of an answer, line by line; what is kept obeys the rules of field.h. */
#include "libckpt/remote/field.h"
#include "tests/fuzz/lib/target.h"

static void check(const char *text, size_t size)
{
    size_t n = strnlen(text, size);

    must(n < size);
    for (size_t i = 0; i < n; i++)
        must((unsigned char)text[i] >= 32 && text[i] != 127);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size;
    struct http_answer a;

    field_clear(&a);
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = stop ? (size_t)(stop - at) + 1 : (size_t)(end - at);

        field_line(&a, at, n);
        at += n;
    }
    check(a.etag, sizeof a.etag);
    check(a.linked_etag, sizeof a.linked_etag);
    check(a.next, sizeof a.next);
    check(a.problem, sizeof a.problem);
    check(a.commit, sizeof a.commit);
    must(a.range_at == FIELD_NONE || a.range_at < a.range_end);
    must(a.range_at == FIELD_NONE || a.total == FIELD_NONE || a.range_end <= a.total);
    must(a.status >= 0 && a.status <= 999);
    return 0;
}
