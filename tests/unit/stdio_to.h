/* stdio_to - stdout and stderr into a file and back, for rooms that print. */
#ifndef CKPT_TESTS_UNIT_STDIO_TO_H
#define CKPT_TESTS_UNIT_STDIO_TO_H

#include "tests/unit/unit.h"

struct stdio_to {
    FILE *stream, *file;
    int   was;
};

static inline void stdio_begin(struct stdio_to *s, FILE *stream)
{
    fflush(stream);
    s->stream = stream;
    s->file = tmpfile();
    s->was = dup(fileno(stream));
    if (!s->file || s->was < 0 || dup2(fileno(s->file), fileno(stream)) < 0)
        fail_msg("no temporary file");
}

/* What was printed meanwhile; free it. */
static inline char *stdio_end(struct stdio_to *s)
{
    char *text = calloc(1, 1 << 20);
    size_t n;

    fflush(s->stream);
    if (!text || dup2(s->was, fileno(s->stream)) < 0)
        fail_msg("stdio is lost");
    close(s->was);
    rewind(s->file);
    n = fread(text, 1, (1 << 20) - 1, s->file);
    text[n] = '\0';
    fclose(s->file);
    return text;
}

#endif
