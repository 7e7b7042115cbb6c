/*
 * compose - Unicode normalization forms of a piece.
 *
 * The reference's tables are those of Unicode 9.0: characters that came later have neither
 * decompositions nor combining classes here.  Source: unicode-normalization-alignments 0.1.12
 * src/{decompose,recompose}.rs; The Unicode Standard Annex #15.
 */
#ifndef CKPT_FORMATS_TOKENS_UNICODE_COMPOSE_H
#define CKPT_FORMATS_TOKENS_UNICODE_COMPOSE_H

#include "formats/tokens/edit.h"

enum compose_form { COMPOSE_NFC, COMPOSE_NFD, COMPOSE_NFKC, COMPOSE_NFKD };

struct compose_run;         /* memory: one a thread */

int compose_run_new(struct compose_run **out, struct ckpt_err *err);
void compose_run_free(struct compose_run *run);
/* *p in the form asked for: itself when it is in it, else in buf, which must not hold it. */
int compose(struct piece *p, enum compose_form form, struct compose_run *run,
            struct edit_buf *buf, struct ckpt_err *err);

#endif
