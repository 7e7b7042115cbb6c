/*
 * sentencepiece models and files of tiktoken ranks: the ids and texts of sentencepiece itself, line
 * for line; merges by rank against a plain search; damaged files.
 */
#include "tests/unit/unit.h"

#include "libckpt/base/base64.h"
#include "formats/tokens/tokenizer_parts.h"
#include "tests/unit/golden_tokens.h"

#define NAME "tokenizer.model"

TEST(the_ids_of_sentencepiece)
{
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct texts texts;
    size_t n, lines = 0;
    const char *golden = slurp(&arena, TOKENIZERS "/t5/spm_golden.jsonl", &n);
    char *model = slurp(&arena, TOKENIZERS "/t5/spiece.model", &n);
    struct tokenizer *t = must_open_bytes(NAME, model, n);

    texts_read(&texts, &arena);
    assert_int_equal(tokenizer_eos(t), 1);
    assert_int_equal(tokenizer_pad(t), 0);
    assert_int_equal(tokenizer_bos(t), -1);
    for (; *golden; lines++) {
        json_t *want = parse_line(&golden), *ids = json_object_get(want, "ids");
        json_int_t i = json_integer_value(json_object_get(want, "i"));
        struct encoding e = {0};
        char *text;

        if (tokenizer_encode(t, &e, json_string_value(texts.text[i]),
                             json_string_length(texts.text[i]), true, &err))
            fail_msg("line %lld: %s", (long long)i, err.text);
        assert_numbers("t5", (size_t)i, "ids", e.id, e.n, ids);
        assert_int_equal(tokenizer_decode(t, &text, &n, e.id, e.n, false, &err), 0);
        assert_string_equal(text, json_string_value(json_object_get(want, "dec")));
        ckpt_free(text);
        encoding_release(&e);
        json_decref(want);
    }
    assert_int_equal(lines, 405);
    tokenizer_close(t);
    texts_release(&texts);
    ckpt_arena_release(&arena);
}

/* What sentencepiece 0.2.3 gives for the same models. */
TEST(models_of_merges)
{
    struct ckpt_arena arena = {0};
    size_t n;
    char *bytes = slurp(&arena, "tests/fuzz/seeds/spm/bpe330.model", &n);
    struct tokenizer *t = must_open_bytes(NAME, bytes, n);

    assert_tokens(t, "the cat  sat", "\xe2\x96\x81the \xe2\x96\x81" "cat \xe2\x96\x81sat");
    assert_tokens(t, "a[INST]the <u>x", "\xe2\x96\x81" "a [INST] t he \xe2\x96\x81 <u> x");
    assert_tokens(t, "\xc3\xa9", "\xe2\x96\x81 <0xC3> <0xA9>");
    tokenizer_close(t);
    ckpt_arena_release(&arena);
}

/* 50256 ranks: bytes, then every word of two, three and some of four letters of a-z. */
static char *make_ranks(size_t *n, int letters[50256][5])
{
    char *text = malloc(50256 * 24), *p = text;
    int rank = 0;

    for (; rank < 50256; rank++) {
        unsigned char s[4];
        int k = rank - 256, len = 1;
        char *b64;

        if (k < 0) {
            s[0] = (unsigned char)rank;
        } else {
            for (len = 2; k >= (len == 2 ? 676 : len == 3 ? 17576 : 1 << 30); len++)
                k -= len == 2 ? 676 : 17576;
            for (int i = len - 1; i >= 0; i--, k /= 26)
                s[i] = (unsigned char)('a' + k % 26);
        }
        letters[rank][0] = len;
        for (int i = 0; i < len; i++)
            letters[rank][i + 1] = s[i];
        b64 = base64_encode(s, (size_t)len);
        p += sprintf(p, "%s %d\n", b64, rank);
        ckpt_free(b64);
    }
    *n = (size_t)(p - text);
    return text;
}

static int rank_of(const char *s, size_t n)
{
    int k = 0;

    if (n == 1)
        return (unsigned char)s[0];
    if (n > 4)
        return -1;
    for (size_t i = 0; i < n; i++)
        k = 26 * k + (s[i] - 'a');
    k += n == 2 ? 256 : n == 3 ? 256 + 676 : 256 + 676 + 17576;
    return k < 50256 ? k : -1;
}

TEST(merges_by_rank)
{
    static int letters[50256][5];
    struct ckpt_err err;
    uint32_t random = 7;
    size_t n;
    char *bytes = make_ranks(&n, letters);
    struct tokenizer *t = must_open_bytes(NAME, bytes, n);

    for (int round = 0; round < 2000; round++) {
        size_t len = 1 + (size_t)round % 14, cut[16], parts = len;
        struct encoding e = {0};
        char s[16];

        for (size_t i = 0; i < len; i++) {
            random = random * 1664525u + 1013904223u;
            s[i] = (char)('a' + (random >> 24) % 4);
            cut[i] = i;
        }
        cut[len] = len;
        /* The pair whose joint rank is lowest, leftmost first, until none is a token. */
        while (rank_of(s, len) < 0 || parts > 1) {
            size_t best = SIZE_MAX;
            int low = 1 << 30;

            for (size_t i = 0; i + 1 < parts; i++) {
                int r = rank_of(s + cut[i], cut[i + 2] - cut[i]);

                if (r >= 0 && r < low) {
                    low = r;
                    best = i;
                }
            }
            if (best == SIZE_MAX)
                break;
            memmove(cut + best + 1, cut + best + 2, (parts - best - 1) * sizeof *cut);
            parts--;
        }
        assert_int_equal(tokenizer_encode(t, &e, s, len, true, &err), 0);
        if (rank_of(s, len) >= 0) {         /* a word that is a token is taken whole */
            assert_int_equal(e.n, 1);
            assert_int_equal(e.id[0], rank_of(s, len));
        } else {
            assert_int_equal(e.n, parts);
            for (size_t i = 0; i < parts; i++)
                assert_int_equal(e.id[i], rank_of(s + cut[i], cut[i + 1] - cut[i]));
        }
        encoding_release(&e);
    }
    tokenizer_close(t);
    /* One rank less is nobody's file. */
    tokenizer_close(must_open_bytes(NAME, bytes, n - 1));
    while (bytes[n - 2] != '\n')
        n--;
    assert_null(open_bytes(NAME, bytes, n - 1, &err));
    assert_int_equal(err.code, CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "50255 ranks"));
    free(bytes);
}

/* n ranks: every byte, then e with an acute as one character, then what is in no text. */
static char *ranks_with_e_acute(size_t n, size_t *len)
{
    char *out = malloc(n * 24), *at = out;

    assert_non_null(out);
    for (size_t i = 0; i < n; i++) {
        unsigned char b[3] = {(unsigned char)i};
        char *b64;

        if (i == 256)
            memcpy(b, "\xc3\xa9", 2);
        else if (i > 256)
            memcpy(b, (unsigned char[]){(unsigned char)(0xf8 + (i >> 16)), (unsigned char)(i >> 8),
                                        (unsigned char)i}, 3);
        b64 = base64_encode(b, i < 256 ? 1 : i == 256 ? 2 : 3);
        at += sprintf(at, "%s %zu\n", b64, i);
        ckpt_free(b64);
    }
    *len = (size_t)(at - out);
    return out;
}

/* Qwen's own tokenizer normalizes before it looks for ranks; others' do not. */
TEST(qwens_texts_are_normalized)
{
    static const struct { size_t n; int32_t id[4]; size_t n_id; } set[] = {
        {151643, {256, 'a'}, 2}, {100256, {'e', 0xcc, 0x81, 'a'}, 4},
        {128000, {'e', 0xcc, 0x81, 'a'}, 4},
    };

    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        struct ckpt_err err = {0};
        struct encoding e = {0};
        size_t len;
        char *bytes = ranks_with_e_acute(set[i].n, &len);
        struct tokenizer *t = must_open_bytes(NAME, bytes, len);

        assert_int_equal(tokenizer_encode(t, &e, "e\xcc\x81" "a", 4, true, &err), 0);
        assert_int_equal(e.n, set[i].n_id);
        for (size_t k = 0; k < e.n; k++)
            assert_int_equal(e.id[k], set[i].id[k]);
        encoding_release(&e);
        tokenizer_close(t);
        free(bytes);
    }
}

TEST(damaged_files)
{
    static const char *const seeds[] = {"unigram26.model", "bpe40.model", "bpe330.model",
                                        "ranks.tiktoken"};
    struct ckpt_arena arena = {0};
    struct flipped f = {0};

    for (size_t k = 0; k < sizeof seeds / sizeof *seeds; k++) {
        char path[256], *bytes;
        size_t n;

        snprintf(path, sizeof path, "tests/fuzz/seeds/spm/%s", seeds[k]);
        bytes = slurp(&arena, path, &n);
        flip_bits(&f, NAME, bytes, n, 400, true);
    }
    assert_true(f.opened > 100 && f.refused > 100);
    ckpt_arena_release(&arena);
}
