/*
 * norm_steps - what the steps of a normalizer do to a piece: shared by the room that reads them
 * from tokenizer.json and the room that runs them.
 */
#ifndef CKPT_FORMATS_TOKENS_NORM_STEPS_H
#define CKPT_FORMATS_TOKENS_NORM_STEPS_H

#include "formats/tokens/unicode/charsmap.h"
#include "formats/tokens/unicode/compose.h"
#include "formats/tokens/edit.h"
#include "formats/tokens/unicode/regex.h"
#include "formats/tokens/model/trie.h"

struct norm_step;

struct norm_work {
    struct edit_buf     buf[2];         /* a step reads one and writes the other */
    struct compose_run *compose;
    struct regex_run   *regex;          /* of the step at work */
};

typedef int norm_fn(const struct norm_step *s, struct norm_work *w, struct piece *p,
                    struct ckpt_err *err);

struct norm_step {
    norm_fn          *apply;
    struct regex     *regex;            /* Replace */
    char             *text;             /* Replace, Prepend: what is put there */
    size_t            n_text;
    int               only;             /* Replace of one byte; -1: see regex */
    struct charsmap  *map;              /* Precompiled */
    enum compose_form form;
    bool              left, right;      /* Strip; SentencePiece: a mark there */
    bool              squeeze, escape;  /* SentencePiece: runs of spaces; spaces as marks */
    struct trie      *whole;            /* SentencePiece: texts that stay as they are */
};

norm_fn norm_compose, norm_lowercase, norm_strip, norm_strip_accents, norm_strip_nonspacing,
    norm_replace, norm_prepend, norm_precompiled, norm_nmt, norm_bytes, norm_clean, norm_chinese;

#endif
