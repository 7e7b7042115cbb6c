/*
 * encode - a tokenizer put to use: --encode and --decode.
 *
 * Texts come one a line; from a file called *.jsonl as one JSON string a line.  For each there
 * is one JSON object: {"ids", "offsets": [[start, end], ...] in characters, "tokens", "decoded"}.
 * The way back takes such objects, or arrays of ids, and gives one JSON string each.  Lines are
 * answered in their order, as they come, by as many threads as there are jobs.
 */
#ifndef CKPT_TOOLS_INSPECT_ENCODE_H
#define CKPT_TOOLS_INSPECT_ENCODE_H

#include "tools/cli.h"

struct encode_want {
    const char *encode, *decode;    /* the file with texts or ids, "-" for stdin; one is NULL */
    bool        special;            /* with the tokens that the tokenizer adds */
};

/* path: a directory with a tokenizer, or a file of one. */
int inspect_encode(const struct encode_want *w, const struct cli *cli, const char *path,
                   struct ckpt_err *err);

#endif
