/* git/lfs_place - see git/lfs_place.h. */
#include "libckpt/remote/git/lfs_place.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/ask.h"
#include "libckpt/base/base64.h"
#include "libckpt/base/json.h"
#include "libckpt/base/secret.h"
#include "libckpt/err.h"
#include "libckpt/remote/git/git_own.h"

#define CONFIG_BYTES ((size_t)65536)
#define SSH_SECONDS  60

static int sign(void *ctx, const struct http_signed *what, char *lines, size_t size,
                struct ckpt_err *err)
{
    (void)what;
    return (size_t)snprintf(lines, size, "%s", (const char *)ctx) < size
               ? 0 : ckpt_fail(err, CKPT_ECONFIG, "the credential is too long");
}

static bool is_address(const char *url)
{
    return strncmp(url, "https://", 8) == 0 || strncmp(url, "http://", 7) == 0;
}

/* One line of the file: a section's name, or a setting of it. */
static void read_line(char url[HTTP_URL], const char *line, size_t n, bool *in_lfs)
{
    const char *value;

    while (n > 0 && isspace((unsigned char)*line)) {
        line++;
        n--;
    }
    if (n > 0 && *line == '[') {
        *in_lfs = n >= 5 && strncasecmp(line, "[lfs]", 5) == 0;
        return;
    }
    if (!*in_lfs || n < 4 || strncasecmp(line, "url", 3) != 0 || !strchr(" \t=", line[3]))
        return;
    value = memchr(line, '=', n);
    if (!value)
        return;
    n -= (size_t)(++value - line);
    while (n > 0 && strchr(" \t\"", *value)) {
        value++;
        n--;
    }
    while (n > 0 && strchr(" \t\r\"", value[n - 1]))
        n--;
    snprintf(url, HTTP_URL, "%.*s", (int)(n < HTTP_URL ? n : 0), value);
}

bool lfs_place_config(char url[HTTP_URL], const char *text)
{
    bool in_lfs = false;

    *url = '\0';
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        read_line(url, text, n, &in_lfs);
    }
    return is_address(url);
}

/* From git's configuration, or the tree's. */
static bool configured(char url[HTTP_URL], const struct git_mirror *m)
{
    struct ckpt_err ignored = {0};
    git_config *config = NULL, *now = NULL;
    const char *text = NULL;
    struct ckpt_buf b;
    bool found;

    *url = '\0';
    if (git_repository_config(&config, m->git->repo) == 0 &&
        git_config_snapshot(&now, config) == 0 && git_config_get_string(&text, now, "lfs.url") == 0)
        snprintf(url, HTTP_URL, "%s", text);
    git_config_free(now);
    git_config_free(config);
    if (is_address(url))
        return true;
    ckpt_buf_init(&b, CONFIG_BYTES);
    found = ckpt_git_has(m->git, ".lfsconfig") &&
            ckpt_git_read(&b, m->git, ".lfsconfig", &ignored) == 0 && ckpt_buf_str(&b) &&
            lfs_place_config(url, (char *)b.data);
    ckpt_buf_release(&b);
    return found;
}

/* -- over ssh --------------------------------------------------------------------------------- */

/* {"href": ..., "header": {...}} */
static int read_answer(struct lfs_place *l, const struct git_mirror *m, const json_t *answer,
                       struct ckpt_err *err)
{
    const char *href = json_string_value(json_object_get(answer, "href")), *key;
    size_t at = 0;
    json_t *v;

    if (!href || !is_address(href) || strlen(href) >= sizeof l->url)
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: git-lfs-authenticate names no address",
                         m->place.host);
    snprintf(l->url, sizeof l->url, "%s", href);
    json_object_foreach (json_object_get(answer, "header"), key, v) {
        const char *value = json_string_value(v);

        if (!value || strpbrk(value, "\r\n") || strpbrk(key, "\r\n: "))
            continue;
        ckpt_secret_add(value);
        at += (size_t)snprintf(l->lines + at, sizeof l->lines - at, "%s: %s\n", key, value);
        if (at >= sizeof l->lines)
            return ckpt_fail(err, CKPT_ELIMIT, "%s: git-lfs-authenticate prints a header of more "
                             "than %zu bytes", m->place.host, sizeof l->lines);
    }
    return 0;
}

static int ask_by_ssh(struct lfs_place *l, const struct git_mirror *m, const char *operation,
                      struct ckpt_err *err)
{
    const struct git_place *p = &m->place;
    char host[400], port[32] = "Port=22", command[2100];
    const char *colon = strchr(p->host, ':');
    const char *const with_port[] = {"ssh", "-o", "BatchMode=yes", "-o", port, "--", host, command,
                                     NULL};
    const char *const plain[] = {"ssh", "-o", "BatchMode=yes", "--", host, command, NULL};
    struct ckpt_buf out;
    json_t *answer = NULL;
    int rc = 0;

    if (strpbrk(p->path, "'\\"))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: quotes in the path of a repository", p->path);
    snprintf(host, sizeof host, "%s%s%.*s", p->user, *p->user ? "@" : "",
             (int)(colon ? (size_t)(colon - p->host) : strlen(p->host)), p->host);
    if (colon)
        snprintf(port, sizeof port, "Port=%.20s", colon + 1);
    snprintf(command, sizeof command, "git-lfs-authenticate '%s' %s", p->path, operation);
    ckpt_buf_init(&out, CONFIG_BYTES);
    rc = ckpt_ask(&out, colon ? with_port : plain, "", SSH_SECONDS, false, err);
    if (rc == 0 && !ckpt_buf_str(&out))
        rc = ckpt_nomem(err, out.len);
    if (rc == 0)
        rc = ckpt_json_parse(&answer, (char *)out.data, out.len, CKPT_JSON_STRICT, err);
    if (rc == 0)
        rc = read_answer(l, m, answer, err);
    json_decref(answer);
    if (out.data)
        explicit_bzero(out.data, out.len);
    ckpt_buf_release(&out);
    return rc;
}

/* -- by the repository's address -------------------------------------------------------------- */

static int derive(struct lfs_place *l, const struct git_mirror *m, struct ckpt_err *err)
{
    const struct git_place *p = &m->place;
    size_t n = strlen(p->path);
    const char *end, *scheme = strncmp(p->url, "http://", 7) == 0 ? "http" : "https";

    while (n > 0 && p->path[n - 1] == '/')
        n--;
    end = n > 4 && strncmp(p->path + n - 4, ".git", 4) == 0 ? "" : ".git";
    if ((size_t)snprintf(l->url, sizeof l->url, "%s://%s/%.*s%s/info/lfs", scheme, p->host, (int)n,
                         p->path, end) >= sizeof l->url)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", p->host);
    return 0;
}

/* The repository's credential, for its own host. */
static int add_login(struct lfs_place *l, struct git_mirror *m, struct ckpt_err *err)
{
    char pair[4400], origin[512], *text;
    int n, rc = 0;

    if (m->place.ssh || http_origin(origin, m->place.url, &(struct ckpt_err){0}) ||
        strcmp(origin, l->auth.origin) != 0 || !*git_mirror_login(m)->password)
        return 0;
    n = snprintf(pair, sizeof pair, "%s:%s", m->login.user, m->login.password);
    text = base64_encode((unsigned char *)pair, (size_t)n);
    if (!text || (size_t)snprintf(l->lines, sizeof l->lines, "Authorization: Basic %s\n", text) >=
                     sizeof l->lines)
        rc = ckpt_fail(err, CKPT_ECONFIG, "the credential is too long");
    if (text) {
        ckpt_secret_add(text);
        explicit_bzero(text, strlen(text));
    }
    ckpt_free(text);
    explicit_bzero(pair, sizeof pair);
    return rc;
}

int lfs_place_find(struct lfs_place *l, struct git_mirror *m, const char *operation,
                   struct ckpt_err *err)
{
    int rc = 0;

    memset(l, 0, sizeof *l);
    if (!configured(l->url, m)) {
        if (m->place.ssh && (rc = ask_by_ssh(l, m, operation, err)) == CKPT_EREFUSED) {
            ckpt_err_clear(err);
            rc = derive(l, m, err);     /* a host without that command */
        } else if (!m->place.ssh) {
            rc = derive(l, m, err);
        }
    }
    if (rc == 0)
        rc = http_origin(l->auth.origin, l->url, err);
    if (rc == 0 && !*l->lines)
        rc = add_login(l, m, err);
    l->auth.sign = sign;
    l->auth.ctx = l->lines;
    return rc;
}

void lfs_place_forget(struct lfs_place *l) { explicit_bzero(l, sizeof *l); }
