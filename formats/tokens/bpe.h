/*
 * bpe - byte-pair merges over the bytes of a word.
 *
 * Symbols start as one per byte; of all neighbouring pairs that the merge list knows the one
 * with the lowest rank is joined, the leftmost first, until none is left.
 * Source: huggingface/tokenizers 0.21 tokenizers/src/models/bpe/{model,word}.rs.
 */
#ifndef CKPT_BPE_H
#define CKPT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/err.h"

struct bpe;
struct bpe_run;                 /* memory of merging: one a thread */

/* One merge of the list: its place is its rank. */
struct bpe_merge { int32_t left, right, joined; };

struct bpe_opts {
    const int32_t          *byte_id;        /* [256] id of each byte, -1 when absent; copied */
    int32_t                 unk_id;         /* for absent bytes; -1: they are dropped */
    bool                    fuse_unk;       /* neighbouring unknown bytes become one token */
    bool                    ignore_merges;  /* a word that is a token is taken whole */
    const struct bpe_merge *merge;          /* [n_merge], used during bpe_new only */
    size_t                  n_merge;
    const uint32_t         *token_bytes;    /* [n_vocab] bytes each id stands for; kept */
    int32_t                 n_vocab;
    /* Whole words for ignore_merges: the id of these bytes or -1.  ctx is kept. */
    int32_t               (*whole)(void *ctx, const unsigned char *s, size_t n);
    void                   *whole_ctx;
};

/* Tokens of one word; valid until the next word of the same run. */
struct bpe_word {
    const int32_t  *id;
    const uint32_t *len;        /* bytes of the word that each covers */
    size_t          n;
};

int bpe_new(struct bpe **out, const struct bpe_opts *opts, struct ckpt_err *err);
void bpe_free(struct bpe *b);
int bpe_run_new(struct bpe_run **out, struct ckpt_err *err);
void bpe_run_free(struct bpe_run *run);
/* n >= 1.  Any thread, each with its own run. */
int bpe_encode(const struct bpe *b, struct bpe_run *run, const unsigned char *s, size_t n,
               struct bpe_word *out, struct ckpt_err *err);

#endif
