/*
 * tokenizer_file - any bytes as a file of that name: refused, or a tokenizer whose encodings lie
 * within the text and whose ids decode, or say why not.
 */
#ifndef CKPT_TESTS_FUZZ_LIB_TOKENIZER_FILE_H
#define CKPT_TESTS_FUZZ_LIB_TOKENIZER_FILE_H

#include <stdlib.h>
#include <string.h>

#include "formats/tokens/tokenizer.h"
#include "libckpt/err.h"

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
            if (e.id[i] < 0 || e.id[i] >= tokenizer_size(t) || e.start[i] < 0 ||
                e.start[i] > e.end[i] || e.end[i] > (int64_t)sizeof text - 1)
                abort();
        if (tokenizer_decode(t, &back, &len, e.id, e.n, true, &err) && !err.text[0])
            abort();
    } else if (!err.text[0]) {
        abort();
    }
    ckpt_free(back);
    encoding_release(&e);
}

static void tokenizer_of_bytes(const char *name, const unsigned char *data, size_t size)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    struct tokenizer *t;

    if (ckpt_file_memory(&file, data, size, name, &err))
        return;
    if (tokenizer_open(&t, file, &err) == 0)
        check(t);
    else if (!err.text[0] || t)
        abort();
    tokenizer_close(t);
    ckpt_file_close(file);
}

#endif
