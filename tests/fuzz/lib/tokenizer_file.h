/*
 * tokenizer_file - any bytes as a file of that name: refused, or a tokenizer whose encodings lie
 * within the text and whose ids decode, or say why not.
 */
#ifndef CKPT_TESTS_FUZZ_LIB_TOKENIZER_FILE_H
#define CKPT_TESTS_FUZZ_LIB_TOKENIZER_FILE_H

#include "formats/tokens/tokenizer.h"
#include "tests/fuzz/lib/target.h"

static const char text[] =
    "Hello, <s> it's 2 caf\xc3\xa9s (x|y)\n\n \xe4\xb8\xad\xe6\x96\x87 <unk> e\xcc\x81\xcc\xa3"
    "\xef\xac\x81 \x01\xe2\x96\x81\xea\xb0\x80 \xf0\x9f\x98\x80 A1";

static void check(const struct tokenizer *t)
{
    struct encoding e = {0};
    struct ckpt_err err = {0};
    char *back = NULL;
    size_t len;

    if (tokenizer_encode(t, &e, text, sizeof text - 1, true, &err) == 0) {
        for (size_t i = 0; i < e.n; i++)
            must(e.id[i] >= 0 && e.id[i] < tokenizer_size(t) && e.start[i] >= 0 &&
                 e.start[i] <= e.end[i] && e.end[i] <= (int64_t)sizeof text - 1);
        must(tokenizer_decode(t, &back, &len, e.id, e.n, true, &err) == 0 || err.text[0]);
    } else {
        must(err.text[0]);
    }
    ckpt_free(back);
    encoding_release(&e);
}

static void tokenizer_of_bytes(const char *name, const unsigned char *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, name);
    struct ckpt_err err = {0};
    struct tokenizer *t;

    if (tokenizer_open(&t, file, &err) == 0)
        check(t);
    else
        must(err.text[0] && !t);
    tokenizer_close(t);
    ckpt_file_close(file);
}

#endif
