/*
 * oci_auth - who asks an OCI registry.
 *
 * A registry that answers 401 names what it wants: Basic, or a Bearer token of a token service,
 * which gets the user's name and password.  Both are in the file that REGISTRY_AUTH_FILE names, in
 * $DOCKER_CONFIG/config.json (~/.docker/config.json), or in
 * $XDG_RUNTIME_DIR/containers/auth.json: auths, or a program docker-credential-NAME by
 * credHelpers or credsStore.  Without them the token service is asked without a name.
 *
 * Source: distribution's docs/spec/auth/token.md (2.8), docker-credential-helpers 0.8,
 * containers-auth.json(5).
 */
#ifndef CKPT_LIBCKPT_REMOTE_OCI_OCI_AUTH_H
#define CKPT_LIBCKPT_REMOTE_OCI_OCI_AUTH_H

#include <pthread.h>
#include <time.h>

#include "libckpt/remote/http.h"

#define OCI_TOKEN 3900          /* bytes of a token, with terminator: http sends lines of 4096 */

struct oci_challenge {
    bool bearer;                /* else Basic */
    char realm[1024], service[512];
};

/* For one repository.  Its address stays. */
struct oci_auth {
    char                 host[300];     /* key of the credentials */
    char                 scope[320];
    pthread_mutex_t      lock;          /* guards all below */
    bool                 looked, has_login;
    char                 user[512], password[2900];
    struct oci_challenge challenge;     /* realm "" until there was one */
    char                 token[OCI_TOKEN];
    time_t               until;         /* when the token expires */
    struct http_auth     http;
};

/* origin: the registry's. */
int oci_auth_open(struct oci_auth *a, const char *origin, const char *host, const char *scope,
                  struct ckpt_err *err);
void oci_auth_close(struct oci_auth *a);
/* Take up a challenge: after 0 the request may succeed.  CKPT_EREFUSED without credentials. */
int oci_auth_answer(struct oci_auth *a, const char *challenge, struct ckpt_err *err);
/* False when text is neither a Bearer nor a Basic challenge. */
bool oci_challenge_read(struct oci_challenge *c, const char *text);

#endif
