/*
 * tokenizer - text <-> ids, as a tokenizer.json says.
 */
#ifndef CKPT_TOKENIZER_H
#define CKPT_TOKENIZER_H

#include "libckpt/file.h"

struct tokenizer;

/* Ids with where each came from: [start, end) in bytes of the text as it was given. */
struct encoding {
    int32_t *id;
    int64_t *start, *end;       /* 0, 0 for tokens the post-processor added */
    size_t   n, cap;
};

/* Reads dir/tokenizer.json.  Any thread may encode with one tokenizer at a time per encoding.
 */
int tokenizer_open_dir(struct tokenizer **out, struct ckpt_dir *dir, struct ckpt_err *err);
int tokenizer_open(struct tokenizer **out, struct ckpt_file *file, struct ckpt_err *err);
void tokenizer_close(struct tokenizer *t);

/* Append to enc (a zeroed struct is empty).  special: run the post-processor.  text is strict
 * UTF-8 (CKPT_EFORMAT names the byte else).  Any thread. */
int tokenizer_encode(const struct tokenizer *t, struct encoding *enc, const char *text,
                     size_t len, bool special, struct ckpt_err *err);
void encoding_release(struct encoding *enc);
/* Text of ids, NUL-terminated; *out is yours (ckpt_free).  skip_special leaves out special
 * tokens.  Ids outside the vocabulary are CKPT_EFORMAT. */
int tokenizer_decode(const struct tokenizer *t, char **out, size_t *len, const int32_t *id,
                     size_t n, bool skip_special, struct ckpt_err *err);
/* One past the largest id. */
int32_t tokenizer_size(const struct tokenizer *t);
int32_t tokenizer_id(const struct tokenizer *t, const char *token);     /* -1 when absent */
const char *tokenizer_token(const struct tokenizer *t, int32_t id);     /* NULL when absent */
/* From tokenizer_config.json / special_tokens_map.json beside it; -1 when unsaid. */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
int32_t tokenizer_pad(const struct tokenizer *t);

#endif
