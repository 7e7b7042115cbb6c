/*
 * bpe - byte-pair merges over the bytes or the characters of a word.
 *
 * Symbols start as one per byte, or one per character; of all neighbouring pairs that the merge
 * list knows the one with the lowest rank is joined, the leftmost first, until none is left.
 * Source: huggingface/tokenizers 0.23 tokenizers/src/models/bpe/{model,word}.rs.
 */
#ifndef CKPT_FORMATS_TOKENS_MODEL_BPE_H
#define CKPT_FORMATS_TOKENS_MODEL_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/tokens/piece.h"
#include "libckpt/fail.h"

struct bpe;

/* Memory of merging, one a thread; a zeroed one is empty.  A symbol is an element of each array;
 * the short way uses them packed, the long way links them. */
struct bpe_run {
    int32_t              *id;
    uint32_t             *len, *rank;
    int32_t              *joined;   /* what the pair (i, next) becomes */
    uint32_t             *next, *prev;
    size_t                cap;
    struct bpe_candidate *heap;
    size_t                n_heap, cap_heap;
};

/* One merge of the list. */
struct bpe_merge { int32_t left, right, joined; uint32_t rank; };

/* A token that is one character. */
struct bpe_char { uint32_t cp; int32_t id; };

/* The id of these bytes, or -1. */
typedef int32_t bpe_find_fn(const void *ctx, const unsigned char *s, size_t n);

struct bpe_opts {
    bool                    chars;          /* symbols are characters, not bytes */
    const int32_t          *byte_id;        /* [256] id of each byte, -1 when absent; copied */
    int32_t                 unk_id;         /* for what is absent; -1: it is dropped */
    bool                    fuse_unk;       /* neighbouring unknowns become one token */
    bool                    ignore_merges;  /* a word that is a token is not merged */
    bool                    byte_fallback;  /* an unknown character becomes the ids of its bytes,
                                               where all are there; chars only */
    bool                    parts;          /* see bpe_part */
    const char             *prefix;         /* of each character but the first; kept, or NULL */
    const char             *suffix;         /* of the last character; kept, or NULL */
    const struct bpe_merge *merge;          /* [n_merge], used during bpe_new only */
    size_t                  n_merge;
    const struct bpe_char  *chr;            /* [n_chr], for chars, used during bpe_new only */
    size_t                  n_chr;
    bpe_find_fn            *find;           /* for prefix, suffix and ignore_merges */
    const void             *find_ctx;       /* kept */
};

int bpe_new(struct bpe **out, const struct bpe_opts *opts, struct ckpt_err *err);
void bpe_free(struct bpe *b);
void bpe_run_release(struct bpe_run *run);
/* n >= 1.  Any thread, each with its own run. */
int bpe_encode(const struct bpe *b, struct bpe_run *run, const unsigned char *s, size_t n,
               struct word *out, struct ckpt_err *err);
/* Bytes of s up to the first U+2581 that does not follow another: with opts.parts, which says
 * that no merge reaches over that place, what is in front can be encoded by itself. */
size_t bpe_part(const struct bpe *b, const unsigned char *s, size_t n);

#endif
