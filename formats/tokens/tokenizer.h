/*
 * tokenizer - text <-> ids, as the files of a tokenizer say.
 *
 * Read are all of tokenizer.json; sentencepiece models (spiece.model, tokenizer.model; see spm.h);
 * tiktoken rank files (see tiktoken.h); vocab.json with merges.txt; vocab.txt.
 */
#ifndef CKPT_FORMATS_TOKENS_TOKENIZER_H
#define CKPT_FORMATS_TOKENS_TOKENIZER_H

#include "formats/tokens/encoding.h"
#include "libckpt/file.h"

struct tokenizer;

/* The tokenizer that dir holds; tokenizer.json goes before other files.  Any thread may encode
 * with one tokenizer at a time per encoding. */
int tokenizer_open_dir(struct tokenizer **out, struct ckpt_dir *dir, struct ckpt_err *err);
/* Special tokens that stand for those which the files name; NULL: theirs. */
struct tokenizer_special { const char *eos, *pad; };
/* The same as if its tokenizer_config.json named these. */
int tokenizer_open_dir_as(struct tokenizer **out, struct ckpt_dir *dir,
                          const struct tokenizer_special *special, struct ckpt_err *err);
/* Whether there is a file in it that tokenizer_open_dir would read. */
bool tokenizer_in_dir(struct ckpt_dir *dir);
/* One file; its content says which kind it is. */
int tokenizer_open(struct tokenizer **out, struct ckpt_file *file, struct ckpt_err *err);
void tokenizer_close(struct tokenizer *t);

/* Append to enc (a zeroed struct is empty).  special: run the post-processor.  text is strict
 * UTF-8 (CKPT_EFORMAT names the byte else), of less than 4 GiB.  Any thread. */
int tokenizer_encode(const struct tokenizer *t, struct encoding *enc, const char *text,
                     size_t len, bool special, struct ckpt_err *err);

/* What tokenizer_encode_pair is to do beyond that. */
struct encode_opts {
    bool                     special;
    const struct truncation *truncation;    /* NULL: none */
    /* Of one text that is truncated: called for each window after the first, which is yours for
     * the call.  NULL: they are not wanted. */
    int (*window)(void *ctx, const struct encoding *enc, struct ckpt_err *err);
    void                    *window_ctx;
};
/* Append one text (b NULL) or two. */
int tokenizer_encode_pair(const struct tokenizer *t, struct encoding *enc, const char *a,
                          size_t len_a, const char *b, size_t len_b,
                          const struct encode_opts *opts, struct ckpt_err *err);
/* What the file asks for, NULL when nothing; neither is done unless the caller does it. */
const struct truncation *tokenizer_truncation(const struct tokenizer *t);
const struct padding *tokenizer_padding(const struct tokenizer *t);

/* Text of ids, NUL-terminated; *out is yours (ckpt_free).  skip_special leaves out special
 * tokens.  Ids outside the vocabulary are CKPT_EFORMAT. */
int tokenizer_decode(const struct tokenizer *t, char **out, size_t *len, const int32_t *id,
                     size_t n, bool skip_special, struct ckpt_err *err);
/* A digest of 16 bytes that identifies a tokenizer: of all files that it was read from. */
void tokenizer_digest(const struct tokenizer *t, unsigned char digest[16]);
/* One past the largest id; and of those that were not added to the vocabulary it was made with. */
int32_t tokenizer_size(const struct tokenizer *t);
int32_t tokenizer_own_size(const struct tokenizer *t);
int32_t tokenizer_id(const struct tokenizer *t, const char *token);     /* -1 when absent */
const char *tokenizer_token(const struct tokenizer *t, int32_t id);     /* NULL when absent */
/* From tokenizer_config.json / special_tokens_map.json beside it; -1 when unsaid. */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
int32_t tokenizer_pad(const struct tokenizer *t);
int32_t tokenizer_unk(const struct tokenizer *t);
/* Whether padding goes before a text: padding_side of tokenizer_config.json. */
bool tokenizer_pads_left(const struct tokenizer *t);

#endif
