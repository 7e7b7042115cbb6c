/* tiktoken - see tiktoken.h. */
#include "formats/tokens/tiktoken.h"

#include <string.h>

#include "libckpt/base/base64.h"
#include "formats/tokens/bytelevel.h"
#include "formats/tokens/unicode/scan.h"
#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/buf.h"
#include "libckpt/mem.h"

#define MAX_TOKEN 2048      /* bytes; the longest seen has 128 */
#define MAX_RANK  4000000

#define CL100K "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"         \
               "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN   "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"              \
               "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER  "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER  "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define O200K  "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"    \
               "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER "]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"   \
               "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The model family for a number of ranks; whether its tokenizer normalizes texts first, which
 * tiktoken itself does not (Qwen-7B, tokenization_qwen.py, tokenize). */
static const struct known { int64_t n; const char *pattern; bool nfc; } known[] = {
    {50256, scan_gpt2_pattern, false},      /* gpt2, r50k_base */
    {50257, scan_gpt2_pattern, false},      /* Whisper's multilingual.tiktoken */
    {50280, scan_gpt2_pattern, false},      /* p50k_base */
    {100256, CL100K, false},                /* cl100k_base */
    {128000, CL100K, false},                /* Llama 3 */
    {151643, QWEN, true},                   /* Qwen */
    {199998, O200K, false},                 /* o200k_base */
    {200000, O200K, false},                 /* Llama 4 */
};

/* One line: base64, a space, digits. */
static bool split_line(const char *s, size_t n, size_t *n_text, int64_t *rank)
{
    const char *space = memchr(s, ' ', n);
    size_t i;

    if (!space || space == s || (size_t)(space - s) > MAX_TOKEN / 3 * 4)
        return false;
    *n_text = (size_t)(space - s);
    *rank = 0;
    for (i = *n_text + 1; i < n && s[i] >= '0' && s[i] <= '9' && *rank < MAX_RANK; i++)
        *rank = *rank * 10 + (s[i] - '0');
    return i == n && i > *n_text + 1 && *rank < MAX_RANK;
}

/* The token of a line, spelt in the ByteLevel alphabet. */
static bool spell(char spelt[2 * MAX_TOKEN + 1], const char *s, size_t n)
{
    unsigned char raw[MAX_TOKEN + 3];
    size_t n_raw, k = 0;

    if (!base64_decode(raw, &n_raw, s, n) || n_raw == 0)
        return false;
    for (size_t i = 0; i < n_raw; i++)
        k += utf8_put((unsigned char *)spelt + k, bytelevel_char(raw[i]));
    spelt[k] = '\0';
    return true;
}

bool tiktoken_is(const char *bytes, size_t n)
{
    const char *eol = memchr(bytes, '\n', n < 4 * MAX_TOKEN ? n : 4 * MAX_TOKEN);
    char spelt[2 * MAX_TOKEN + 1];
    size_t n_text;
    int64_t rank;

    return eol && split_line(bytes, (size_t)(eol - bytes), &n_text, &rank) &&
           spell(spelt, bytes, n_text);
}

static int read_ranks(json_t *vocab, const char *bytes, size_t n, int64_t *n_rank,
                      struct ckpt_err *err)
{
    char spelt[2 * MAX_TOKEN + 1];
    uint64_t line = 1;

    *n_rank = 0;
    for (size_t at = 0; at < n; line++) {
        const char *s = bytes + at, *eol = memchr(s, '\n', n - at);
        size_t len = eol ? (size_t)(eol - s) : n - at, n_text;
        int64_t rank;

        at += len + (eol != NULL);
        if (len == 0)
            continue;
        /* Whisper's last rank has no bytes. */
        if (len > 2 && memcmp(s, "= ", 2) == 0 && split_line(s, len, &n_text, &rank)) {
            *n_rank += 1;
            continue;
        }
        if (!split_line(s, len, &n_text, &rank) || !spell(spelt, s, n_text))
            return ckpt_fail(err, CKPT_EFORMAT, "line %llu is not base64, a space and a rank",
                             (unsigned long long)line);
        if (json_object_get(vocab, spelt))
            return ckpt_fail(err, CKPT_EFORMAT, "line %llu: a token that stands above",
                             (unsigned long long)line);
        if (json_object_set_new(vocab, spelt, json_integer(rank)))
            return ckpt_nomem(err, n);
        *n_rank += 1;
    }
    return 0;
}

int tiktoken_read(json_t **out, const char *bytes, size_t n, struct ckpt_err *err)
{
    const struct known *of = NULL;
    json_t *vocab = json_object(), *norm = NULL;
    int64_t n_rank = 0;
    int rc;

    *out = NULL;
    if (!vocab)
        return ckpt_nomem(err, n);
    rc = read_ranks(vocab, bytes, n, &n_rank, err);
    if (rc) {
        json_decref(vocab);
        return rc;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].n == n_rank)
            of = &known[i];
    if (!of) {
        json_decref(vocab);
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%lld ranks: how texts are split for them is "
                         "not known", (long long)n_rank);
    }
    if (of->nfc)
        norm = json_pack("{s:s}", "type", "NFC");
    *out = json_pack("{s:s,s:o*,s:{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b}]},s:{s:s},"
                     "s:{s:s,s:b,s:b,s:o}}",
                     "version", "1.0", "normalizer", norm, "pre_tokenizer", "type", "Sequence",
                     "pretokenizers", "type", "Split", "pattern", "Regex", of->pattern,
                     "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
                     "add_prefix_space", 0, "use_regex", 0, "decoder", "type",
                     "ByteLevel", "model", "type", "BPE", "ranks", 1,
                     "ignore_merges", 1, "vocab", vocab);
    return *out ? 0 : ckpt_nomem(err, n);
}
