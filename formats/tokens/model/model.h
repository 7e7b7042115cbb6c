/*
 * model - words -> ids, by the model of a tokenizer: a row of the table in model.c for each kind.
 *
 * What a short word became is remembered; a word is looked up before it is worked on.
 */
#ifndef CKPT_FORMATS_TOKENS_MODEL_MODEL_H
#define CKPT_FORMATS_TOKENS_MODEL_MODEL_H

#include <jansson.h>

#include "formats/tokens/piece.h"
#include "formats/tokens/model/vocab.h"

/* What a model is made from: used during the call only, but for vocab. */
struct model_source {
    const json_t       *json;       /* the value of "model" */
    const struct vocab *vocab;
    bool                bytes;      /* words are bytes that the vocabulary spells (ByteLevel) */
};

struct model_ops {
    const char *type;
    size_t      size, run_size;     /* bytes of a model and of a run, which begin as zeros */
    /* A model that fails to be read is released too. */
    int (*read)(void *model, const struct model_source *src, struct ckpt_err *err);
    void (*release)(void *model);       /* what it holds; NULL: nothing */
    void (*run_release)(void *run);     /* the same */
    int (*encode)(const void *model, void *run, const unsigned char *s, size_t n,
                  struct word *out, struct ckpt_err *err);
    /* Where the first part of s ends that no token and no merge reaches beyond; NULL: nowhere
     * but at its end. */
    size_t (*part)(const void *model, const unsigned char *s, size_t n);
};

extern const struct model_ops model_bpe, model_unigram, model_wordpiece, model_wordlevel;

struct token_model {
    const struct model_ops *ops;
    void                   *model;
};

struct model_run;               /* memory of encoding, and the words remembered: one a thread */

/* The type that json names, or that its members tell. */
int model_open(struct token_model *m, const struct model_source *src, struct ckpt_err *err);
void model_release(struct token_model *m);
int model_run_new(struct model_run **out, const struct token_model *m, struct ckpt_err *err);
void model_run_free(struct model_run *run);
/* s[0, n), n >= 1, valid UTF-8.  Any thread, each with its own run. */
int model_encode(const struct token_model *m, struct model_run *run, const unsigned char *s,
                 size_t n, struct word *out, struct ckpt_err *err);
static inline size_t model_part(const struct token_model *m, const unsigned char *s, size_t n)
{
    return m->ops->part ? m->ops->part(m->model, s, n) : n;
}

#endif
