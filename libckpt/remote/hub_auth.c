/* hub_auth - see hub_auth.h. */
#include "libckpt/remote/hub_auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/cache.h"

#define DEFAULT_ENDPOINT "https://huggingface.co"

/* Copy the token without surrounding white space; CKPT_ECONFIG when it has bytes invalid in a
 * header. */
static int take_token(char **out, const char *text, const char *from, struct ckpt_err *err)
{
    size_t n;

    text += strspn(text, " \t\r\n");
    n = strcspn(text, " \t\r\n");
    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= 32 || (unsigned char)text[i] >= 127 || n > 2048)
            return ckpt_fail(err, CKPT_ECONFIG, "%s: holds no token", from);
    *out = ckpt_alloc(n + 1, 1);
    if (!*out)
        return ckpt_nomem(err, n);
    memcpy(*out, text, n);
    return 0;
}

static int token_file(char **out, const char *path, struct ckpt_err *err)
{
    struct ckpt_err ignored = {0};
    struct ckpt_arena a = {0};
    struct ckpt_file *file;
    struct stat st;
    char *text;
    size_t n;
    int rc = 0;

    if (ckpt_file_open(&file, path, CKPT_FOLLOW, &ignored))
        return 0;
    if (ckpt_file_slurp(file, &a, 65536, &text, &n, &ignored) == 0) {
        rc = take_token(out, text, path, err);
        explicit_bzero(text, n);
    }
    if (stat(path, &st) == 0 && (st.st_mode & 077))
        ckpt_log(CKPT_LOG_WARNING, "%s: other users can read this token", path);
    ckpt_file_close(file);
    ckpt_arena_release(&a);
    return rc;
}

bool hub_home(char *path, size_t size, const char *tail)
{
    const char *set = getenv("HF_HOME");
    char home[2048];

    if (!set || !*set) {
        if (!cache_place(home, sizeof home, "XDG_CACHE_HOME", "/huggingface",
                         "/.cache/huggingface"))
            return false;
    } else {
        snprintf(home, sizeof home, "%s", set);
    }
    return (size_t)snprintf(path, size, "%s%s", home, tail) < size;
}

/* *out stays NULL when there is no token. */
static int find_token(char **out, struct ckpt_err *err)
{
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    const char *named = getenv("HF_TOKEN_PATH");
    char path[4096];
    int rc;

    *out = NULL;
    if (http_env_true("HF_HUB_DISABLE_IMPLICIT_TOKEN"))
        return 0;
    for (size_t i = 0; i < 2 && !*out; i++) {
        const char *token = getenv(names[i]);

        if (token && (rc = take_token(out, token, names[i], err)) != 0)
            return rc;
    }
    if (*out)
        return 0;
    if (named && *named)
        return token_file(out, named, err);
    return hub_home(path, sizeof path, "/token") ? token_file(out, path, err) : 0;
}

static int sign(void *ctx, const struct http_signed *what, char *lines, size_t size,
                struct ckpt_err *err)
{
    (void)what;
    return (size_t)snprintf(lines, size, "Authorization: Bearer %s\n", (const char *)ctx) < size
               ? 0 : ckpt_fail(err, CKPT_ECONFIG, "the token is too long");
}

int hub_auth_open(struct hub_auth *a, struct ckpt_err *err)
{
    const char *endpoint = getenv("HF_ENDPOINT");
    size_t n;
    int rc;

    memset(a, 0, sizeof *a);
    if (!endpoint || !*endpoint)
        endpoint = DEFAULT_ENDPOINT;
    n = strlen(endpoint);
    n -= endpoint[n - 1] == '/';
    if (n >= sizeof a->endpoint)
        return ckpt_fail(err, CKPT_EUSAGE, "HF_ENDPOINT: an address of %zu bytes", n);
    memcpy(a->endpoint, endpoint, n);
    if ((rc = find_token(&a->token, err)) != 0 || !a->token)
        return rc;
    a->http = (struct http_auth){.sign = sign, .ctx = a->token, .secret = a->token};
    if ((rc = http_origin(a->http.origin, a->endpoint, err)) != 0) {
        hub_auth_close(a);
        return ckpt_err_in(err, "HF_ENDPOINT");
    }
    return 0;
}

void hub_auth_close(struct hub_auth *a)
{
    if (a->token)
        explicit_bzero(a->token, strlen(a->token));
    ckpt_free(a->token);
    a->token = NULL;
}

const struct http_auth *hub_auth_of(const struct hub_auth *a)
{
    return a->token ? &a->http : NULL;
}
