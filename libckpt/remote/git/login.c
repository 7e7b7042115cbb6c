/* git/login - see git/login.h. */
#include "libckpt/remote/git/login.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ask.h"
#include "libckpt/base/secret.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/hub_auth.h"

#define SECONDS 60              /* for a helper that asks the user */

/* The lines that name the host. */
static void put_place(struct ckpt_buf *b, const struct git_place *p)
{
    ckpt_buf_printf(b, "protocol=%s\nhost=%s\npath=%s\n", strncmp(p->url, "https", 5) == 0
                    ? "https" : "http", p->host, p->path);
    if (*p->user)
        ckpt_buf_printf(b, "username=%s\n", p->user);
}

/* The value of a line "name=value", into out. */
static bool value_of(char *out, size_t size, const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = text; *at; at += strcspn(at, "\n") + (at[strcspn(at, "\n")] == '\n'))
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return (size_t)snprintf(out, size, "%.*s", (int)strcspn(at + n + 1, "\n"),
                                    at + n + 1) < size;
    return false;
}

/* The Hub takes its token as a password of any user. */
static bool hub_login(struct git_login *l, const struct git_place *p)
{
    struct ckpt_err ignored = {0};
    struct hub_auth hub;
    char origin[512];
    bool is_hub;

    if (hub_auth_open(&hub, &ignored))
        return false;
    is_hub = hub.token && http_origin(origin, p->url, &ignored) == 0 &&
             strcmp(origin, hub.http.origin) == 0;
    if (is_hub) {
        snprintf(l->user, sizeof l->user, "%s", *p->user ? p->user : "user");
        snprintf(l->password, sizeof l->password, "%s", hub.token);
    }
    hub_auth_close(&hub);
    return is_hub;
}

void git_login_find(struct git_login *l, const struct git_place *p)
{
    const char *const argv[] = {"git", "credential", "fill", NULL};
    const char *prompt = getenv("GIT_TERMINAL_PROMPT");
    struct ckpt_err err = {0};
    struct ckpt_buf in, out;

    memset(l, 0, sizeof *l);
    if (p->ssh || hub_login(l, p))
        return;
    ckpt_buf_init(&in, 8192);
    ckpt_buf_init(&out, 8192);
    put_place(&in, p);
    ckpt_buf_put_str(&in, "\n");
    if (!prompt)                        /* a password is not asked for at a terminal */
        setenv("GIT_TERMINAL_PROMPT", "0", 1);
    if (!ckpt_buf_str(&in) || ckpt_ask(&out, argv, (char *)in.data, SECONDS, true, &err))
        ckpt_log(CKPT_LOG_DEBUG, "git credential: %s", err.text);
    else if (ckpt_buf_str(&out))
        l->by_helper = value_of(l->user, sizeof l->user, (char *)out.data, "username") &&
                       value_of(l->password, sizeof l->password, (char *)out.data, "password");
    if (!prompt)
        unsetenv("GIT_TERMINAL_PROMPT");
    if (!l->by_helper)
        git_login_forget(l);
    else
        ckpt_secret_add(l->password);
    if (out.data)
        explicit_bzero(out.data, out.len);
    ckpt_buf_release(&in);
    ckpt_buf_release(&out);
}

void git_login_report(const struct git_login *l, const struct git_place *p, bool accepted)
{
    const char *const argv[] = {"git", "credential", accepted ? "approve" : "reject", NULL};
    struct ckpt_err ignored = {0};
    struct ckpt_buf in, out;

    if (!l->by_helper)
        return;
    ckpt_buf_init(&in, 16384);
    ckpt_buf_init(&out, 8192);
    put_place(&in, p);
    if (!*p->user)
        ckpt_buf_printf(&in, "username=%s\n", l->user);
    ckpt_buf_printf(&in, "password=%s\n\n", l->password);
    if (ckpt_buf_str(&in))
        ckpt_ask(&out, argv, (char *)in.data, SECONDS, true, &ignored);
    if (in.data)
        explicit_bzero(in.data, in.len);
    ckpt_buf_release(&in);
    ckpt_buf_release(&out);
}

void git_login_forget(struct git_login *l) { explicit_bzero(l, sizeof *l); }
