/*
 * bench_tokens TOKENIZER.json TEXT - encode every line on one thread, five times; prints MB a second
 * of CPU time of the best, ids, and a hash of the ids that bench_tokens.py prints too.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "formats/tokens/tokenizer.h"
#include "libckpt/err.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    struct ckpt_arena arena = {0};
    struct encoding enc = {0};
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    struct tokenizer *t;
    const char *text, *line;
    char *bytes;
    size_t n, ids = 0;
    uint64_t hash = 0;
    double begin, best = 1e9;

    if (argc != 3 || ckpt_file_open(&file, argv[1], 0, &err) || tokenizer_open(&t, file, &err))
        return fprintf(stderr, "tokenize: %s\n", argc == 3 ? err.text : "two files"), 1;
    ckpt_file_close(file);
    if (ckpt_file_open(&file, argv[2], 0, &err) ||
        ckpt_file_slurp(file, &arena, (uint64_t)1 << 32, &bytes, &n, &err))
        return fprintf(stderr, "tokenize: %s\n", err.text), 1;
    ckpt_file_close(file);
    text = bytes;
    for (int round = 0; round < 5; round++) {
        begin = now();
        hash = ids = 0;
        for (line = text; line < text + n;) {
            const char *eol = memchr(line, '\n', (size_t)(text + n - line));

            eol = eol ? eol : text + n;
            enc.n = 0;
            if (tokenizer_encode(t, &enc, line, (size_t)(eol - line), true, &err))
                return fprintf(stderr, "tokenize: %s\n", err.text), 1;
            for (size_t i = 0; i < enc.n; i++)
                hash = hash * 31 + (uint64_t)enc.id[i];
            ids += enc.n;
            line = eol + 1;
        }
        best = now() - begin < best ? now() - begin : best;
    }
    printf("ckpt %.2f MB/s, %zu ids, hash %llx\n", (double)n / best / 1e6, ids,
           (unsigned long long)hash);
    encoding_release(&enc);
    tokenizer_close(t);
    ckpt_arena_release(&arena);
    return 0;
}
