/*
 * evp - why a call of OpenSSL's EVP failed.
 */
#ifndef CKPT_LIBCKPT_BASE_EVP_H
#define CKPT_LIBCKPT_BASE_EVP_H

#include "libckpt/fail.h"

/* The error of a call for the digest NAME that failed: CKPT_ENOMEM where memory was short, else
 * CKPT_ESTATE.  Clear OpenSSL's own record of errors (ERR_clear_error) before that call. */
int ckpt_evp_failed(struct ckpt_err *err, const char *name);

#endif
