/*
 * A file of samples of any bytes, its digests made to fit: each record is a sample of ids, none, or
 * an error, and asking backwards gives the same answers.
 */
#include "libckpt/digest.h"
#include "tests/fuzz/lib/target.h"
#include "trainer/data/sample_file.h"

static uint64_t u64(const unsigned char *b)
{
    uint64_t v;

    memcpy(&v, b, sizeof v);
    return v;
}

/* The digests that the bytes want: of samples, of the index, of the head. */
static void prove(unsigned char *b, size_t size, uint64_t n)
{
    unsigned char digest[16], blocks[16 * 64];
    size_t n_block = 0;

    for (uint64_t i = 0; i < n; i++) {
        const unsigned char *e = b + SAMPLE_FILE_HEAD + i * SAMPLE_FILE_ENTRY;
        uint64_t at = u64(e), bytes = u64(e + 8) & UINT32_MAX;

        if (bytes > 8 && bytes <= size && at <= size - bytes &&
            at >= SAMPLE_FILE_HEAD + n * SAMPLE_FILE_ENTRY) {
            ckpt_xxh128(digest, b + at + 8, (size_t)bytes - 8);
            memcpy(b + at, digest, 8);
        }
    }
    for (uint64_t i = 0; i < n && n_block < 64; i += SAMPLE_FILE_BLOCK) {
        uint64_t m = n - i < SAMPLE_FILE_BLOCK ? n - i : SAMPLE_FILE_BLOCK;

        ckpt_xxh128(blocks + 16 * n_block++, b + SAMPLE_FILE_HEAD + i * SAMPLE_FILE_ENTRY,
                    (size_t)m * SAMPLE_FILE_ENTRY);
    }
    ckpt_xxh128(b + 352, blocks, 16 * n_block);
    ckpt_xxh128(b + 368, b, 368);
}

static void use(const struct sample *s)
{
    for (int64_t i = 0; i < s->n; i++)
        must(s->ids[i] >= 0 && s->labels[i] >= SAMPLE_NO_LABEL);
    for (int64_t i = 0; i < s->n_enc; i++)
        must(s->enc[i] >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *b = copy_of(data, size), key[16] = {0};
    struct sample_file *f = NULL;
    struct ckpt_err err = {0};
    struct sample s = {0};
    uint64_t n = 1, len = size;
    int64_t good = 0;
    bool have;

    if (size >= SAMPLE_FILE_HEAD) {
        n = u64(b + 24) % ((size - SAMPLE_FILE_HEAD) / SAMPLE_FILE_ENTRY + 1);
        memcpy(b, "CKPTIDS1", 8);
        memset(b + 8, 0, 16);
        memcpy(b + 24, &n, 8);
        memcpy(b + 32, &len, 8);
        prove(b, size, n);
    }
    sample_file_open(&f, file_of(b, size, "samples"), key, (int64_t)n, &err);
    for (uint64_t i = 0; f && i < 2 * n; i++) {
        ckpt_err_clear(&err);
        if (sample_file_get(f, (int64_t)(i < n ? i : 2 * n - 1 - i), &s, &have, &err) == 0) {
            good += i < n ? 1 : -1;
            if (have)
                use(&s);
        } else {
            must(err.text[0]);
        }
    }
    must(good == 0);
    sample_release(&s);
    sample_file_close(f);
    free(b);
    return 0;
}
