/*
 * encode - a tokenizer put to use: --encode and --decode.
 *
 * Texts come one per line; from a file called *.jsonl as one JSON string per line.  For each
 * there is one JSON object: {"ids", "offsets": [[start, end], ...] in characters, "tokens",
 * "decoded"}.  --decode takes such objects, or arrays of ids, and prints one JSON string each.
 * Lines are answered in order, as they arrive, by as many threads as there are jobs.
 */
#ifndef CKPT_TOOLS_INSPECT_ENCODE_H
#define CKPT_TOOLS_INSPECT_ENCODE_H

#include "tools/cli.h"

struct encode_want {
    const char *encode, *decode;    /* file with texts or ids, "-" for stdin; one of both is NULL */
    bool        special;            /* add the tokenizer's special tokens */
};

/* path: a directory with a tokenizer, or a file of one. */
int inspect_encode(const struct encode_want *w, const struct cli *cli, const char *path,
                   struct ckpt_err *err);

#endif
