/*
 * hidden - write an encoder's hidden states of texts to a file: for sentence vectors, and for
 * checks against other programs.
 */
#ifndef CKPT_TOOLS_EVAL_HIDDEN_H
#define CKPT_TOOLS_EVAL_HIDDEN_H

#include "tools/opt/opt.h"
#include "trainer/run/session.h"

/*
 * Write path (safetensors): of text i, counted from 0, i.ids [n] I32 and i.hidden.K [n, D] F32
 * for each K from 0, the embedding, to the number of blocks, as transformers' hidden_states.  A
 * file that exists is replaced only with overwrite (else CKPT_ECREATE).
 */
int hidden_write(const char *path, bool overwrite, struct session *s, const struct opt_list *texts,
                 int64_t max_length, struct ckpt_err *err);

#endif
