/*
 * secret - tokens and keys, masked in all messages, in whatever form a server repeats them.
 *
 * err and log pass what they are given through here.  A word that holds ten bytes or more of a
 * secret in a row is shown as "***", also where it is written with JSON's, HTML's or percent
 * escapes, in base64, in other cases of letters, or with other signs in between.
 */
#ifndef CKPT_LIBCKPT_BASE_SECRET_H
#define CKPT_LIBCKPT_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* From now on secret (copied) is masked in all messages of the process.  Any thread. */
void ckpt_secret_add(const char *secret);
/* Whether n bytes of text hold one. */
bool ckpt_secret_in(const char *text, size_t n);
/* Mask the words that do, in place; shorter or of the same length. */
void ckpt_secret_mask(char *text);

#endif
