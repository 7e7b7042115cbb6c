/*
 * hub_auth - which Hub is asked, and by which token.
 *
 * The Hub is HF_ENDPOINT.  The token is HF_TOKEN, HUGGING_FACE_HUB_TOKEN, or in the file that
 * HF_TOKEN_PATH names, else in $HF_HOME/token; it is sent to that Hub alone.  Source:
 * huggingface_hub 0.36, utils/_auth.py, constants.py.
 */
#ifndef CKPT_LIBCKPT_REMOTE_HUB_AUTH_H
#define CKPT_LIBCKPT_REMOTE_HUB_AUTH_H

#include "libckpt/remote/http.h"

struct hub_auth {
    char             endpoint[512];     /* without a slash at its end */
    char            *token;             /* or NULL */
    struct http_auth http;
};

/* CKPT_ECONFIG for a token that no header can hold, CKPT_EUSAGE for an endpoint that is no
 * address. */
int hub_auth_open(struct hub_auth *a, struct ckpt_err *err);
void hub_auth_close(struct hub_auth *a);
/* For requests; NULL without a token. */
const struct http_auth *hub_auth_of(const struct hub_auth *a);
/* $HF_HOME/tail, with the default when HF_HOME is not set; false when it does not fit. */
bool hub_home(char *path, size_t size, const char *tail);

#endif
