/*
 * secret - mask tokens and keys in all messages, in whatever form a server repeats them.
 *
 * err and log pass their texts through here.  A word that contains ten or more consecutive bytes
 * of a secret is shown as "***", also when written with JSON, HTML or percent escapes, in base64,
 * with the case of its letters changed, or with other characters in between.  So are passwords,
 * and users of http, that stand in an address.
 */
#ifndef CKPT_LIBCKPT_BASE_SECRET_H
#define CKPT_LIBCKPT_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* From now on mask secret (copied) in all messages of the process.  Any thread. */
void ckpt_secret_add(const char *secret);
/* Whether n bytes of text contain a secret. */
bool ckpt_secret_in(const char *text, size_t n);
/* Mask words that contain a secret, in place; the text never grows. */
void ckpt_secret_mask(char *text);

#endif
