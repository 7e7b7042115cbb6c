/*
 * bpe and what stands before it: the merge order against a plain search, long words, the word
 * cache; character classes against the reference's; scanners against the regular expressions.
 */
#include "tests/unit/unit.h"

#include "formats/tokens/model/bpe.h"
#include "formats/tokens/bytelevel.h"
#include "formats/tokens/unicode/regex.h"
#include "formats/tokens/unicode/scan.h"
#include "formats/tokens/unicode/unicode.h"

static uint32_t random_state = 12345;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

/* Ids 0-25 are the letters; every merge makes the next id. */
#define N_MERGE 200

struct model {
    struct bpe_merge merge[N_MERGE];
    uint32_t         bytes[26 + N_MERGE];
    int32_t          byte_id[256];
    struct bpe      *bpe;
};

static void make_model(struct model *m, int32_t unk_id, bool fuse)
{
    struct bpe_opts o = {.byte_id = m->byte_id, .unk_id = unk_id, .fuse_unk = fuse,
                         .merge = m->merge, .n_merge = N_MERGE};
    struct ckpt_err err = {0};
    size_t n = 0;

    for (int i = 0; i < 256; i++)
        m->byte_id[i] = i >= 'a' && i <= 'z' ? i - 'a' : -1;
    for (size_t i = 0; i < 26; i++)
        m->bytes[i] = 1;
    while (n < N_MERGE) {
        /* Few letters, so that words have many merges. */
        uint32_t known = n ? 3 + (uint32_t)n : 3, l = below(known), r = below(known);
        bool again = false;

        l = l < 3 ? l : 23 + l;
        r = r < 3 ? r : 23 + r;
        for (size_t i = 0; i < n; i++)
            again |= m->merge[i].left == (int32_t)l && m->merge[i].right == (int32_t)r;
        if (again || m->bytes[l] + m->bytes[r] > 12)
            continue;
        m->merge[n] = (struct bpe_merge){(int32_t)l, (int32_t)r, (int32_t)(26 + n), (uint32_t)n};
        m->bytes[26 + n] = m->bytes[l] + m->bytes[r];
        n++;
    }
    assert_int_equal(bpe_new(&m->bpe, &o, &err), 0);
}

/* What the header says, word for word: of all pairs the lowest rank, leftmost first. */
static size_t plainly(const struct model *m, int32_t *id, size_t n)
{
    for (;;) {
        size_t best = SIZE_MAX, rank = N_MERGE;

        for (size_t i = 0; i + 1 < n; i++)
            for (size_t k = 0; k < rank; k++)
                if (m->merge[k].left == id[i] && m->merge[k].right == id[i + 1]) {
                    best = i;
                    rank = k;
                }
        if (best == SIZE_MAX)
            return n;
        id[best] = m->merge[rank].joined;
        memmove(id + best + 1, id + best + 2, (n - best - 2) * sizeof *id);
        n--;
    }
}

static void check_word(const struct model *m, struct bpe_run *run, const char *s, size_t n)
{
    struct ckpt_err err = {0};
    struct word w;
    int32_t *want = malloc(n * sizeof *want);
    size_t bytes = 0, want_n;

    for (size_t i = 0; i < n; i++)
        want[i] = s[i] - 'a';
    want_n = plainly(m, want, n);
    assert_int_equal(bpe_encode(m->bpe, run, (const unsigned char *)s, n, &w, &err), 0);
    assert_int_equal(w.n, want_n);
    assert_memory_equal(w.id, want, want_n * sizeof *want);
    for (size_t i = 0; i < w.n; i++)
        bytes += w.len[i];
    assert_int_equal(bytes, n);
    free(want);
}

TEST(merges_in_order)
{
    struct model m;
    struct bpe_run run = {0};
    char s[400];

    make_model(&m, -1, false);
    for (int t = 0; t < 3000; t++) {
        /* Short words, words around the two limits, and long ones. */
        size_t n = t % 4 == 0 ? 1 + below(8) : t % 4 == 1 ? 20 + below(10)
                 : t % 4 == 2 ? 60 + below(10) : 1 + below(399);

        for (size_t i = 0; i < n; i++)
            s[i] = (char)('a' + below(3));
        check_word(&m, &run, s, n);
    }
    bpe_run_release(&run);
    bpe_free(m.bpe);
}

TEST(a_long_word_is_quick)
{
    struct model m;
    struct bpe_run run = {0};
    struct word w;
    struct ckpt_err err = {0};
    size_t n = 1000000, bytes = 0;
    unsigned char *s = malloc(n);

    make_model(&m, -1, false);
    for (size_t i = 0; i < n; i++)
        s[i] = (unsigned char)('a' + below(3));
    assert_int_equal(bpe_encode(m.bpe, &run, s, n, &w, &err), 0);
    for (size_t i = 0; i < w.n; i++)
        bytes += w.len[i];
    assert_int_equal(bytes, n);
    assert_true(w.n < n);
    bpe_run_release(&run);
    bpe_free(m.bpe);
    free(s);
}

TEST(unknown_bytes)
{
    static const struct { int32_t unk; bool fuse; size_t n; uint32_t len[5]; } rows[] = {
        {-1, false, 2, {1, 1}},             /* dropped */
        {25, false, 5, {1, 1, 1, 1, 1}},    /* each a token */
        {25, true, 3, {1, 3, 1}},           /* one token */
    };
    struct ckpt_err err = {0};

    for (size_t i = 0; i < 3; i++) {
        struct model m;
        struct bpe_run run = {0};
        struct word w;

        make_model(&m, rows[i].unk, rows[i].fuse);
            for (int again = 0; again < 2; again++) {
            assert_int_equal(
                bpe_encode(m.bpe, &run, (const unsigned char *)"x???y", 5, &w, &err), 0);
            assert_int_equal(w.n, rows[i].n);
            for (size_t k = 0; k < w.n; k++)
                assert_int_equal(w.len[k], rows[i].len[k]);
        }
        bpe_run_release(&run);
        bpe_free(m.bpe);
    }
}

TEST(byte_alphabet)
{
    bool seen[0x144] = {false};
    unsigned char raw[8];
    size_t n;

    for (int b = 0; b < 256; b++) {
        uint32_t cp = bytelevel_char((unsigned char)b);

        assert_true(cp < 0x144 && !seen[cp]);
        seen[cp] = true;
        assert_int_equal(bytelevel_byte(cp), b);
    }
    assert_int_equal(bytelevel_char(' '), 0x120);
    assert_int_equal(bytelevel_char('\n'), 0x10a);
    assert_int_equal(bytelevel_char(0xad), 0x143);
    assert_int_equal(bytelevel_byte(' '), -1);
    assert_true(bytelevel_decode(raw, &n, "\xc4\xa0" "a", 3));
    assert_int_equal(n, 2);
    assert_memory_equal(raw, " a", 2);
    assert_false(bytelevel_decode(raw, &n, "a b", 3));
    assert_int_equal(n, 3);
}

/* classes.txt: class, first and last code point of every run of \p{L}, \p{N} and \s, as the
 * reference library's regular expressions see them. */
TEST(classes_equal_the_reference)
{
    FILE *f = fopen("tests/golden/tokenizers/classes.txt", "r");
    unsigned char *want = calloc(0x110000, 1);
    unsigned first, last, wrong = 0;
    char cls;

    assert_non_null(f);
    while (fscanf(f, " %c %x %x", &cls, &first, &last) == 3)
        memset(want + first, cls == 'L' ? UNICODE_LETTER : cls == 'N' ? UNICODE_NUMBER
                                                                      : UNICODE_SPACE,
               last - first + 1);
    fclose(f);
    for (uint32_t cp = 1; cp < 0x110000; cp++)
        if (cp < 0xd800 || cp > 0xdfff)
            wrong += unicode_class_of(cp) != want[cp];
    assert_int_equal(wrong, 0);
    free(want);
}

static size_t random_text(unsigned char *s, size_t n_chars)
{
    static const uint32_t odd[] = {
        ' ',     ' ',    '\n',   '\r',   '\t',   '\'',   '\'',   's',    'T',    'l',    'r',
        'e',     'v',    'm',    'D',    'a',    'Z',    '0',    '7',    '.',    ',',    '!',
        '?',     '(',    ')',    '|',    '#',    '-',    0xa0,   0x85,   0x3000, 0x2028, 0x17f,
        0xe9,    0x301,  0x4e2d, 0x3042, 0xff0c, 0x3002, 0x3001, 0x2026, 0x964,  0x6d4,  0x60c,
        0x1f600, 0x200d, 0x660,  0xbd,   0x180e, 0x130,  0x212a};
    size_t n = 0;

    for (size_t i = 0; i < n_chars; i++)
        n += utf8_put(s + n, odd[below(sizeof odd / sizeof *odd)]);
    return n;
}

/* Where the engine begins the next piece after from: its match, or the gap before it. */
static size_t engine_end(const struct regex *re, struct regex_run *run, const unsigned char *s,
                         size_t n, size_t from)
{
    struct ckpt_err err = {0};
    size_t start, end;
    bool found;

    assert_int_equal(regex_find(re, run, s, n, from, &found, &start, &end, &err), 0);
    return !found ? n : start > from ? start : end;
}

TEST(scanners_equal_the_patterns)
{
    static const char *const patterns[] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        " ?[^(\\s|[.,!?"
        "\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c])]+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    };
    struct ckpt_err err = {0};
    unsigned char s[4 * 24];

    assert_null(scan_for("\\w+"));
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        scan_fn *scan = scan_for(patterns[p]);
        struct regex *re;
        struct regex_run *run;

        assert_non_null(scan);
        assert_int_equal(regex_new(&re, patterns[p], strlen(patterns[p]), false, &err), 0);
        assert_int_equal(regex_run_new(&run, re, &err), 0);
        for (int t = 0; t < 20000; t++) {
            size_t n = random_text(s, 1 + below(24));

            for (size_t from = 0, end; from < n; from = end) {
                end = scan(s, n, from);
                if (end != engine_end(re, run, s, n, from))
                    fail_msg("pattern %zu: \"%.*s\" from byte %zu: scanner %zu, engine %zu", p,
                             (int)n, (char *)s, from, end, engine_end(re, run, s, n, from));
            }
        }
        regex_run_free(run);
        regex_free(re);
    }
}

TEST(patterns_that_cannot_be_carried_over)
{
    static const char *const bad[] = {"[a[^b]]", "[a&&b]", "(?m:.)", "\\h", "[a", "a\\", "\\Kb",
                                      "[[:alpha:]]", "(", ""};
    struct ckpt_err err = {0};
    struct regex *re;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(regex_new(&re, bad[i], strlen(bad[i]), false, &err) < 0);
        assert_null(re);
    }
    assert_int_equal(regex_new(&re, "[a", 2, true, &err), 0);       /* literal text */
    regex_free(re);
}

TEST(lossy_text)
{
    static const struct { const char *in, *out; } rows[] = {
        {"a\xff" "b", "a\xef\xbf\xbd" "b"},
        {"\xe2\x82", "\xef\xbf\xbd"},                               /* one maximal part */
        {"\xe2\x82" "a", "\xef\xbf\xbd" "a"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},   /* a surrogate is three */
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ckpt_buf b;

        ckpt_buf_init(&b, SIZE_MAX);
        utf8_put_lossy(&b, (const unsigned char *)rows[i].in, strlen(rows[i].in));
        assert_string_equal(ckpt_buf_str(&b), rows[i].out);
        ckpt_buf_release(&b);
    }
}
