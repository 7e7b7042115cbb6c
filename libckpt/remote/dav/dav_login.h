/*
 * dav/dav_login - what authenticates requests to a WebDAV server, asked for once.
 *
 *   CKPT_DAV_TOKEN                      a bearer token
 *   CKPT_DAV_USER, CKPT_DAV_PASSWORD    a name and password
 *   machine HOST login USER password PASSWORD     in NETRC, ~/.netrc; or "default" in place of HOST
 *
 * Source: RFC 7617 (Basic), RFC 6750 (Bearer), netrc(5) of inetutils: words between blanks,
 * "macdef" up to an empty line.
 */
#ifndef CKPT_LIBCKPT_REMOTE_DAV_DAV_LOGIN_H
#define CKPT_LIBCKPT_REMOTE_DAV_DAV_LOGIN_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"

#define DAV_USER     256
#define DAV_PASSWORD 1024

/* Write the header line of a host, ended by '\n'; "" when nothing is known of it. */
int dav_login_find(char *line, size_t size, const char *host, struct ckpt_err *err);
/* The login of host in the text of a netrc file.  Changes text. */
bool dav_login_netrc(char user[DAV_USER], char password[DAV_PASSWORD], char *text,
                     const char *host);

#endif
