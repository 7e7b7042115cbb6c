/* git/place - see git/place.h. */
#include "libckpt/remote/git/place.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"

static const char *const https[] = {"git+https://", "https://"};
static const char *const plain[] = {"git+http://", "http://"};
static const char *const ssh[] = {"git+ssh://", "ssh+git://", "ssh://"};

/* Length of the first of n prefixes that address has, else 0. */
static size_t prefix_of(const char *address, const char *const *prefix, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(address, prefix[i], strlen(prefix[i])) == 0)
            return strlen(prefix[i]);
    return 0;
}

/* "host:path", "user@host:path": a colon before any slash, and no scheme. */
static bool is_scp_like(const char *address)
{
    size_t n = strcspn(address, ":/");

    return address[n] == ':' && n > 0 && !strstr(address, "://");
}

static bool ends_in_git(const char *s)
{
    size_t n = strlen(s);

    while (n > 0 && s[n - 1] == '/')
        n--;
    return n > 4 && strncmp(s + n - 4, ".git", 4) == 0;
}

bool git_place_is(const char *address)
{
    if (prefix_of(address, https, 1) || prefix_of(address, plain, 1) || prefix_of(address, ssh, 3))
        return true;
    return (prefix_of(address, https, 2) || prefix_of(address, plain, 2))
               ? ends_in_git(address) : is_scp_like(address);
}

static bool is_clean(const char *s)
{
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p <= 32 || *p == 127)
            return false;
    return ckpt_utf8_valid(s, strlen(s));
}

/* Copy n bytes; false when they do not fit, or begin like an option. */
static bool take(char *out, size_t size, const char *s, size_t n)
{
    if (n >= size || (n > 0 && *s == '-'))
        return false;
    memcpy(out, s, n);
    out[n] = '\0';
    return true;
}

/* [user@]host[:port]/path of an address with a scheme; false when it has another form. */
static bool split(struct git_place *p, const char *rest)
{
    size_t n = strcspn(rest, "/"), user = strcspn(rest, "@");
    const char *slash = rest + n;

    if (user < n) {
        if (memchr(rest, ':', user) || !take(p->user, sizeof p->user, rest, user))
            return false;
        rest += user + 1;
    }
    return *slash && slash > rest && take(p->host, sizeof p->host, rest, (size_t)(slash - rest)) &&
           slash[1] && take(p->path, sizeof p->path, slash + 1, strlen(slash + 1));
}

int git_place_parse(struct git_place *p, const char *address, struct ckpt_err *err)
{
    size_t n = prefix_of(address, ssh, 3), https_n = prefix_of(address, https, 2);
    size_t plain_n = prefix_of(address, plain, 2), colon;
    bool good = is_clean(address);

    memset(p, 0, sizeof *p);
    p->ssh = n > 0 || is_scp_like(address);
    if (good && p->ssh && n == 0) {
        const char *at = strchr(address, '@');

        colon = strcspn(address, ":");
        if (at && at < address + colon) {
            good = take(p->user, sizeof p->user, address, (size_t)(at - address));
            colon -= (size_t)(at + 1 - address);
            address = at + 1;
        }
        good = good && colon > 0 && take(p->host, sizeof p->host, address, colon) &&
               address[colon + 1] &&
               take(p->path, sizeof p->path, address + colon + 1, strlen(address + colon + 1));
        n = (size_t)snprintf(p->url, sizeof p->url, "%s%s%s:%s", p->user, *p->user ? "@" : "",
                             p->host, p->path);
    } else if (good) {
        n = n ? n : https_n ? https_n : plain_n;
        good = n > 0 && split(p, address + n);
        n = (size_t)snprintf(p->url, sizeof p->url, "%s://%s%s%s/%s", p->ssh ? "ssh"
                             : https_n ? "https" : "http", p->user, *p->user ? "@" : "", p->host,
                             p->path);
    }
    if (good && n < sizeof p->url)
        return 0;
    ckpt_fail(err, CKPT_EUSAGE, "no address of a git repository on another host");
    return ckpt_err_hint(err, "as in git+https://host/owner/name, git@host:owner/name.git; a "
                         "password is not written there: git's credential helpers hold it");
}
