/* hostfile - see hostfile.h. */
#include "trainer/launch/hostfile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/ckpt.h"
#include "libckpt/mem.h"

#define MAX_BYTES ((size_t)4 << 20)     /* of a file */
#define BLANKS    " \t\r\v\f"
#define NAME      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* A piece of text that ends where another begins. */
struct piece { const char *at; size_t n; };

static struct piece piece_until(struct piece *rest, const char *set)
{
    struct piece p = {rest->at, 0};

    while (p.n < rest->n && !memchr(set, rest->at[p.n], strlen(set)))
        p.n++;
    rest->at += p.n;
    rest->n -= p.n;
    return p;
}

static void skip(struct piece *rest, const char *set)
{
    while (rest->n && memchr(set, *rest->at, strlen(set))) {
        rest->at++;
        rest->n--;
    }
}

static bool begins(const struct piece *p, const char *word)
{
    return p->n >= strlen(word) && memcmp(p->at, word, strlen(word)) == 0;
}

/* A whole number of at most `most`, or -1. */
static int64_t number(struct piece p, int64_t most)
{
    int64_t n = 0;

    for (size_t i = 0; i < p.n; i++) {
        if (p.at[i] < '0' || p.at[i] > '9' || (n = 10 * n + (p.at[i] - '0')) > most)
            return -1;
    }
    return p.n ? n : -1;
}

static struct hostfile_host *find(const struct hostfile *h, struct piece name)
{
    for (size_t i = 0; i < h->n; i++)
        if (strlen(h->host[i].name) == name.n && memcmp(h->host[i].name, name.at, name.n) == 0)
            return &h->host[i];
    return NULL;
}

static bool is_name(struct piece p)
{
    struct piece rest = p;

    skip(&rest, NAME);
    return p.n && p.n < sizeof ((struct hostfile_host *)0)->name && rest.n == 0 && *p.at != '-';
}

/* -- the file --------------------------------------------------------------------------------- */

static int add(struct hostfile *h, struct piece name, int64_t slots, struct ckpt_err *err)
{
    struct hostfile_host *host;

    if ((h->n & (h->n + 1)) == 0) {     /* 0, 1, 3, 7 ...: room for as many again */
        host = ckpt_alloc(2 * h->n + 1, sizeof *host);
        if (!host)
            return ckpt_nomem(err, (2 * h->n + 1) * sizeof *host);
        if (h->n)
            memcpy(host, h->host, h->n * sizeof *host);
        ckpt_free(h->host);
        h->host = host;
    }
    host = &h->host[h->n];
    *host = (struct hostfile_host){.n = slots};
    memcpy(host->name, name.at, name.n);
    host->slot = ckpt_alloc((size_t)slots, sizeof *host->slot);
    if (!host->slot)
        return ckpt_nomem(err, (size_t)slots * sizeof *host->slot);
    for (int64_t i = 0; i < slots; i++)
        host->slot[i] = (uint16_t)i;
    h->n++;
    return 0;
}

/* "NAME slots=N [max_slots=N]"; what is wrong with it in *why. */
static int parse_line(struct hostfile *h, struct piece line, const char **why,
                      struct ckpt_err *err)
{
    struct piece name, slots, more;
    int64_t n;

    skip(&line, BLANKS);
    name = piece_until(&line, BLANKS);
    skip(&line, BLANKS);
    slots = piece_until(&line, BLANKS);
    skip(&line, BLANKS);
    more = piece_until(&line, BLANKS);
    skip(&line, BLANKS);
    if (name.n == 0)
        return 0;
    if (!is_name(name))
        *why = "the host's name has other characters than letters, digits and . _ -";
    else if (!begins(&slots, "slots="))
        *why = "wanted HOST slots=N";
    else if ((n = number((struct piece){slots.at + 6, slots.n - 6}, HOSTFILE_MAX_SLOTS)) < 0)
        *why = "the number of slots is no whole number up to 1024";
    else if (line.n || (more.n && !begins(&more, "max_slots=")))
        *why = "something follows HOST slots=N";
    else if (find(h, name))
        *why = "the host is there twice";
    else if (h->n == HOSTFILE_MAX_HOSTS)
        *why = "more than 16384 hosts";
    else
        return n ? add(h, name, n, err) : 0;
    return CKPT_ECONFIG;
}

int hostfile_parse(struct hostfile *h, const char *text, size_t n, const char *name,
                   struct ckpt_err *err)
{
    struct piece rest = {text, n}, line, rule;
    const char *why = NULL;
    size_t number = 1;
    int rc = 0;

    *h = (struct hostfile){0};
    for (; rest.n && rc == 0; number++) {
        line = piece_until(&rest, "\n");
        rest.at += rest.n > 0;
        rest.n -= rest.n > 0;
        rule = piece_until(&line, "#");
        rc = parse_line(h, rule, &why, err);
        if (why)
            ckpt_fail(err, CKPT_ECONFIG, "%s: line %zu: %s: %.*s", name, number, why,
                      (int)(rule.n < 200 ? rule.n : 200), rule.at);
    }
    if (rc == 0 && h->n == 0)
        rc = ckpt_fail(err, CKPT_ECONFIG, "%s: there is no host in it, wanted HOST slots=N", name);
    if (rc)
        hostfile_release(h);
    return rc;
}

int hostfile_read(struct hostfile *h, const char *path, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_file *file = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc;

    *h = (struct hostfile){0};
    rc = ckpt_file_open(&file, path, CKPT_FOLLOW, err);
    if (rc == 0)
        rc = ckpt_file_slurp(file, &arena, MAX_BYTES, &text, &n, err);
    if (rc == 0)
        rc = hostfile_parse(h, text, n, path, err);
    ckpt_file_close(file);
    ckpt_arena_release(&arena);
    return rc;
}

/* -- choices ---------------------------------------------------------------------------------- */

/* What a choice says of one host: whether it is named, and which slots of it. */
struct chosen {
    bool     all;
    uint16_t slot[HOSTFILE_MAX_SLOTS];
    int64_t  n;
};

static bool has(const uint16_t *slot, int64_t n, int64_t wanted)
{
    for (int64_t i = 0; i < n; i++)
        if (slot[i] == wanted)
            return true;
    return false;
}

/* "0,2" of a host. */
static int choose_slots(struct chosen *c, const struct hostfile_host *host, struct piece slots,
                        struct ckpt_err *err)
{
    do {
        struct piece one = piece_until(&slots, ",");
        int64_t slot = number(one, HOSTFILE_MAX_SLOTS);

        if (slot < 0 || !has(host->slot, host->n, slot))
            return ckpt_fail(err, CKPT_ECONFIG, "%s: there is no slot \"%.*s\", the host file has "
                             "%lld", host->name, (int)(one.n < 80 ? one.n : 80), one.at,
                             (long long)host->n);
        if (!has(c->slot, c->n, slot))
            c->slot[c->n++] = (uint16_t)slot;
        if (slots.n == 0)
            return 0;
        slots.at++;
        slots.n--;
    } while (true);
}

/* Gather what the choice says of each host. */
static int choose(struct chosen *c, const struct hostfile *h, const char *choice,
                  struct ckpt_err *err)
{
    struct piece rest = {choice, strlen(choice)};
    int rc = 0;

    while (rc == 0) {
        struct piece one = piece_until(&rest, "@"), slots = one;
        struct piece name = piece_until(&slots, ":");
        const struct hostfile_host *host = find(h, name);

        if (!host)
            return ckpt_fail(err, CKPT_ECONFIG, "\"%.*s\" is no host of the host file",
                             (int)(name.n < 200 ? name.n : 200), name.at);
        if (slots.n)
            rc = choose_slots(&c[host - h->host], host,
                              (struct piece){slots.at + 1, slots.n - 1}, err);
        else
            c[host - h->host].all = true;
        if (rest.n == 0)
            break;
        rest.at++;
        rest.n--;
    }
    return rc;
}

static void keep(struct hostfile_host *host, const struct chosen *c, bool include)
{
    int64_t n = 0;

    if (include && !c->all) {
        memcpy(host->slot, c->slot, (size_t)c->n * sizeof *c->slot);
        host->n = c->n;
    } else if (!include) {
        for (int64_t i = 0; i < host->n && !c->all; i++)
            if (!has(c->slot, c->n, host->slot[i]))
                host->slot[n++] = host->slot[i];
        host->n = n;
    }
}

/* Take out hosts that have no slots left. */
static int drop_empty(struct hostfile *h, const char *choice, struct ckpt_err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < h->n; i++)
        if (h->host[i].n)
            h->host[n++] = h->host[i];
        else
            ckpt_free(h->host[i].slot);
    h->n = n;
    return n ? 0 : ckpt_fail(err, CKPT_ECONFIG, "\"%.200s\" leaves no host", choice);
}

static int filter(struct hostfile *h, const char *choice, bool include, struct ckpt_err *err)
{
    struct chosen *c = ckpt_alloc(h->n, sizeof *c);
    int rc = c ? 0 : ckpt_nomem(err, h->n * sizeof *c);

    if (rc == 0)
        rc = choose(c, h, choice, err);
    for (size_t i = 0; i < h->n && rc == 0; i++)
        keep(&h->host[i], &c[i], include);
    ckpt_free(c);
    return rc ? rc : drop_empty(h, choice, err);
}

int hostfile_include(struct hostfile *h, const char *choice, struct ckpt_err *err)
{
    return filter(h, choice, true, err);
}

int hostfile_exclude(struct hostfile *h, const char *choice, struct ckpt_err *err)
{
    return filter(h, choice, false, err);
}

int hostfile_first_hosts(struct hostfile *h, int64_t n, struct ckpt_err *err)
{
    if ((size_t)n > h->n)
        return ckpt_fail(err, CKPT_ECONFIG, "`num_nodes %lld`: the host file has %zu", (long long)n,
                         h->n);
    while (h->n > (size_t)n)
        ckpt_free(h->host[--h->n].slot);
    return 0;
}

int hostfile_first_slots(struct hostfile *h, int64_t n, struct ckpt_err *err)
{
    for (size_t i = 0; i < h->n; i++) {
        if (n > h->host[i].n)
            return ckpt_fail(err, CKPT_ECONFIG, "`num_gpus %lld`: %s has %lld slots", (long long)n,
                             h->host[i].name, (long long)h->host[i].n);
        h->host[i].n = n;
    }
    return 0;
}

int64_t hostfile_slots(const struct hostfile *h)
{
    int64_t n = 0;

    for (size_t i = 0; i < h->n; i++)
        n += h->host[i].n;
    return n;
}

void hostfile_slot_list(char *out, size_t size, const struct hostfile_host *host)
{
    size_t at = 0;

    *out = '\0';
    for (int64_t i = 0; i < host->n && at + 6 < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%d", i ? "," : "", host->slot[i]);
}

bool hostfile_is_here(const char *name)
{
    char own[256] = "";

    return strcmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0 ||
           (gethostname(own, sizeof own - 1) == 0 && strcmp(name, own) == 0);
}

void hostfile_release(struct hostfile *h)
{
    for (size_t i = 0; i < h->n; i++)
        ckpt_free(h->host[i].slot);
    ckpt_free(h->host);
    *h = (struct hostfile){0};
}
