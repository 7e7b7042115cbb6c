/*
 * secrets - text files that hold what looks like a token or a private key.
 *
 * Shapes: the Hub's tokens (hf_), AWS key ids (AKIA), GitHub's tokens (ghp_, gho_, ghs_,
 * github_pat_), and the first line of a private key in PEM.  Files of more than 4 MiB, and files
 * with a zero byte, are not looked at.
 */
#ifndef CKPT_TOOLS_PUSH_SECRETS_H
#define CKPT_TOOLS_PUSH_SECRETS_H

#include "libckpt/file.h"

/* CKPT_EREFUSED "secret" names the line and the kind. */
int secrets_refuse(struct ckpt_file *file, struct ckpt_err *err);

#endif
