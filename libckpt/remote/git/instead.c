/* git/instead - see git/instead.h. */
#include "libckpt/remote/git/instead.h"

#include <git2.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/err.h"

/* What begins the address is replaced by base: the longest so far. */
struct match {
    const char *address;
    char        base[2048];
    size_t      n;              /* bytes that it replaces; 0: none */
};

/* An entry url.<base>.insteadOf = beginning. */
static int look(const git_config_entry *e, void *ctx)
{
    struct match *m = ctx;
    const char *base = e->name + strlen("url."), *end = strrchr(base, '.');
    size_t n = strlen(e->value), k = end ? (size_t)(end - base) : 0;

    if (k > 0 && k < sizeof m->base && n > m->n && strncmp(m->address, e->value, n) == 0) {
        memcpy(m->base, base, k);
        m->base[k] = '\0';
        m->n = n;
    }
    return 0;
}

/* The rules of that kind, if any matches. */
static bool matches(struct match *m, git_config *config, const char *rules, const char *address)
{
    m->address = address;
    m->n = 0;
    return git_config_foreach_match(config, rules, look, m) == 0 && m->n > 0;
}

int git_instead_parse(struct git_place *p, const char *address, bool push, struct ckpt_err *err)
{
    const char *bare = strncmp(address, "git+", 4) == 0 ? address + 4 : address;
    char text[sizeof p->url];
    git_config *config = NULL;
    struct match m;
    int rc;

    git_libgit2_init();
    if (git_config_open_default(&config) == 0 &&
        ((push && matches(&m, config, "^url\\..*\\.pushinsteadof$", bare)) ||
         matches(&m, config, "^url\\..*\\.insteadof$", bare)))
        address = (size_t)snprintf(text, sizeof text, "%s%s", m.base, bare + m.n) < sizeof text
                      ? text : "";
    rc = git_place_parse(p, address, err);
    git_config_free(config);
    git_libgit2_shutdown();
    return rc;
}
