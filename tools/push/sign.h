/*
 * push/sign - sign what is published: model.sig over all files of a plan, as a further file of it.
 *
 * A signature has random bits.  So that publishing the same files again publishes the same bytes,
 * and a second try after a crash is seen to be one, signatures are remembered in the cache by key
 * and list of files.
 */
#ifndef CKPT_TOOLS_PUSH_SIGN_H
#define CKPT_TOOLS_PUSH_SIGN_H

#include "libckpt/sign/key.h"
#include "tools/push/plan.h"

struct sign_want {
    const char *key;            /* PEM file of the private key; NULL: nothing is signed */
    const char *certificates;   /* PEM file: the signer's, then those above it; or NULL */
    const char *passphrase;     /* file whose first line is the key's; NULL: that of
                                   $CKPT_SIGN_PASSPHRASE */
};

/* Open the key before there is anything to sign; nothing where none is wanted. */
int push_sign_open(struct sign_key *k, const struct sign_want *w, struct ckpt_err *err);
/* Digest all files of the plan, and add model.sig.  From now on a file that changes is refused. */
int push_sign(struct push_plan *p, const struct sign_key *k, bool follow, struct ckpt_err *err);

#endif
