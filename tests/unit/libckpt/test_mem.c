/* mem, buf, map: limits hold, overflow is seen, memory is given back. */
#include "tests/unit/unit.h"

#include "libckpt/base/buf.h"
#include "libckpt/base/map.h"
#include "libckpt/mem.h"

TEST(arithmetic_sees_overflow)
{
    uint64_t v = 7;

    assert_true(ckpt_add(&v, UINT64_MAX - 1, 1));
    assert_false(ckpt_add(&v, UINT64_MAX, 1));
    assert_true(v == UINT64_MAX);               /* untouched */
    assert_false(ckpt_mul(&v, UINT64_MAX / 2, 3));
    assert_null(ckpt_alloc(SIZE_MAX, 2));
    assert_null(ckpt_grow(NULL, SIZE_MAX, 2));
}

TEST(arena)
{
    struct ckpt_arena a = {.limit = 1 << 20};
    char *big, *s = ckpt_arena_printf(&a, "%d-%s", 5, "x");

    assert_string_equal(s, "5-x");
    for (int i = 0; i < 1000; i++) {
        unsigned char *p = ckpt_arena_alloc(&a, 1, (size_t)i);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (int k = 0; k < i; k++)
            assert_int_equal(p[k], 0);
        memset(p, 0xff, (size_t)i);
    }
    big = ckpt_arena_alloc(&a, 1, 200000);      /* a block of its own */
    assert_non_null(big);
    assert_null(ckpt_arena_alloc(&a, 1, 1 << 20));
    assert_null(ckpt_arena_alloc(&a, SIZE_MAX / 2, 4));
    assert_string_equal(s, "5-x");
    ckpt_arena_release(&a);
    assert_int_equal(a.used, 0);
}

TEST(buf_limit_is_sticky)
{
    struct ckpt_buf b;

    ckpt_buf_init(&b, 10);
    ckpt_buf_put(&b, "12345678", 8);
    assert_true(ckpt_buf_ok(&b));
    ckpt_buf_put(&b, "901", 3);
    assert_false(ckpt_buf_ok(&b));
    ckpt_buf_put_u8(&b, 1);
    assert_int_equal(b.len, 8);
    assert_null(ckpt_buf_str(&b));
    ckpt_buf_release(&b);
}

TEST(cursor_stays_inside)
{
    static const unsigned char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 'l', '\n', 9};
    struct ckpt_cursor c;
    size_t len;

    ckpt_cursor_init(&c, bytes, sizeof bytes);
    assert_int_equal(ckpt_cursor_u16le(&c), 0x0201);
    assert_int_equal(ckpt_cursor_u32le(&c), 0x06050403);
    ckpt_cursor_skip(&c, 2);
    assert_memory_equal(ckpt_cursor_line(&c, &len), "l", 1);
    assert_int_equal(len, 1);
    assert_int_equal(ckpt_cursor_left(&c), 1);
    assert_int_equal(ckpt_cursor_u64le(&c), 0);
    assert_true(c.failed);
    assert_int_equal(ckpt_cursor_u8(&c), 0);       /* nothing moves any more */
    assert_int_equal(ckpt_cursor_left(&c), 0);
    assert_null(ckpt_cursor_line(&c, &len));
}

TEST(utf8)
{
    static const struct { const char *s; size_t n; int valid; } rows[] = {
        {"", 0, 1}, {"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10, 1}, {"\xc0\x80", 2, 0},
        {"\xed\xa0\x80", 3, 0}, {"\xf4\x90\x80\x80", 4, 0}, {"\xe2\x82", 2, 0}, {"a\0", 2, 0},
        {"\xff", 1, 0}, {"\x80", 1, 0}, {"\xe0\x80\x80", 3, 0}, {"\xf0\x80\x80\x80", 4, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(ckpt_utf8_valid(rows[i].s, rows[i].n), rows[i].valid);
    /* What is wrong is found wherever it stands in a long text. */
    for (size_t i = 0; i < 40; i++) {
        char text[40];

        memset(text, i % 2 ? 0x7f : 1, sizeof text);
        assert_true(ckpt_utf8_valid(text, sizeof text));
        text[i] = '\0';
        assert_false(ckpt_utf8_valid(text, sizeof text));
        text[i] = '\x80';
        assert_false(ckpt_utf8_valid(text, sizeof text));
        memcpy(text + (i < 39 ? i : 38), "\xc3\xa9", 2);
        assert_true(ckpt_utf8_valid(text, sizeof text));
    }
}

TEST_ERR(map)
{
    static char keys[5000][12];
    struct ckpt_map *m;

    assert_int_equal(ckpt_map_new(&m, 2, err), 0);
    for (size_t i = 0; i < 5000; i++) {
        snprintf(keys[i], sizeof keys[i], "key%zu", i);
        assert_int_equal(ckpt_map_add(m, keys[i], strlen(keys[i]), i, err), 0);
    }
    assert_int_equal(ckpt_map_count(m), 5000);
    for (size_t i = 0; i < 5000; i++)
        assert_int_equal(ckpt_map_get(m, keys[i], strlen(keys[i])), i);
    assert_true(ckpt_map_get(m, "key", 3) == CKPT_MAP_NONE);
    assert_int_equal(ckpt_map_add(m, "key7", 4, 1, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "duplicate");
    assert_int_equal(ckpt_map_get(m, "key7", 4), 7);
    ckpt_map_free(m);
}
