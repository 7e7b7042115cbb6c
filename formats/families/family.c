/* family - see family.h. */
#include "formats/families/family.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

const struct family *family_at(size_t i)
{
    for (const struct family *const *list = family_table; *list; list++)
        for (const struct family *f = *list; f->model_type; f++)
            if (i-- == 0)
                return f;
    return NULL;
}

const struct family *family_find(const char *model_type, const char *architecture)
{
    const struct family *f;

    for (size_t i = 0; (f = family_at(i)) != NULL; i++)
        if ((model_type && strcmp(model_type, f->model_type) == 0) ||
            (architecture && f->architecture && strcmp(architecture, f->architecture) == 0))
            return f;
    return NULL;
}

const char *family_known(char *dst, size_t size)
{
    const struct family *f;
    size_t n = 0;

    dst[0] = '\0';
    for (size_t i = 0; (f = family_at(i)) != NULL && n < size; i++)
        if (f->keys && !f->untrained)
            n += (size_t)snprintf(dst + n, size - n, "%s%s", n ? ", " : "", f->model_type);
    return dst;
}

size_t family_parts(struct family_name part[ROLE_COUNT], const struct arch *arch, int64_t layer)
{
    const struct family *f = arch->family;
    const struct family_name *row = layer < 0                          ? f->before
                                    : layer >= arch->num_hidden_layers ? f->after
                                    : f->encoder && arch_is_encoder(arch, layer) ? f->encoder
                                                                                 : f->block;
    size_t n = 0;

    for (; row->pattern; row++) {
        int last = (int)row->role + (strchr(row->pattern, '$') != NULL);

        if (row->pattern[0] == (arch->mlp == ARCH_MLP_GATED ? '-' : '+'))
            continue;
        for (int role = (int)row->role; role <= last && n < ROLE_COUNT; role++)
            if (role_exists(arch, (enum role)role, layer))
                part[n++] = (struct family_name){(enum role)role, row->pattern};
    }
    return n;
}

/* The four lists of a row, in turn. */
static const struct family_name *list_of(const struct family *f, int i)
{
    const struct family_name *list[] = {f->before, f->encoder, f->block, f->after};
    static const struct family_name none = {ROLE_COUNT, NULL};

    return list[i] ? list[i] : &none;
}

const char *family_pattern(const struct family *f, enum role role)
{
    for (int i = 0; i < 4; i++)
        for (const struct family_name *row = list_of(f, i); row->pattern; row++)
            if (row->role == role || (row->role + 1 == role && strchr(row->pattern, '$')))
                return row->pattern;
    return NULL;
}

const char *family_tail(const struct family *f, enum role role)
{
    const char *pattern = family_pattern(f, role), *dot = pattern ? strrchr(pattern, '.') : NULL;

    if (!dot)
        return NULL;
    while (dot > pattern && dot[-1] != '.' && dot[-1] != '^')
        dot--;
    return dot;
}

bool family_has_module(const char *last, enum role role)
{
    const struct family *f;
    size_t n = strlen(last);

    for (size_t i = 0; (f = family_at(i)) != NULL; i++) {
        const char *tail = family_tail(f, role);

        if (tail && strncmp(tail, last, n) == 0 && tail[n] == '.')
            return true;
    }
    return false;
}

const char *family_block_number(const char *name)
{
    const struct family *f;

    for (size_t i = 0; (f = family_at(i)) != NULL; i++) {
        size_t n = strlen(f->prefix), k = f->block ? strcspn(f->block->pattern, "#") : 0;
        const char *at = strncmp(name, f->prefix, n) == 0 ? name + n : name;

        if (k && !f->encoder && strncmp(at, f->block->pattern, k) == 0 && at[k] >= '0' &&
            at[k] <= '9')
            return at + k;
    }
    return NULL;
}

const struct family_name *family_name_find(const struct family *f, const char *name,
                                           struct family_place *at)
{
    size_t n = strlen(f->prefix);
    bool prefixed = strncmp(name, f->prefix, n) == 0;

    for (int i = 0; i < 4; i++)
        for (const struct family_name *row = list_of(f, i); row->pattern; row++)
            if (family_match(at, row, row->pattern[0] == '^' || !prefixed ? name : name + n))
                return row;
    return NULL;
}

bool family_is_spare(const struct family *f, const char *name)
{
    for (const char *const *glob = f->spare; glob && *glob; glob++)
        if (fnmatch(*glob, name, 0) == 0)
            return true;
    return false;
}

const struct family_key *family_key_of(const struct family *f, size_t at)
{
    for (const struct family_key *k = f->keys; k && k->name; k++)
        if (k->at == at)
            return k;
    return NULL;
}

/* A number without sign or leading zeros, at most nine digits. */
static const char *digits(const char *s, int64_t *out)
{
    size_t n = strspn(s, "0123456789");

    if (n == 0 || n > 9 || (n > 1 && s[0] == '0'))
        return NULL;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out = *out * 10 + (s[i] - '0');
    return s + n;
}

bool family_match(struct family_place *at, const struct family_name *row, const char *name)
{
    const char *pattern = row->pattern + strspn(row->pattern, "^+-");

    *at = (struct family_place){row->role, -1, -1};
    for (; *pattern; pattern++) {
        if (*pattern == '#' || *pattern == '@') {
            name = digits(name, *pattern == '#' ? &at->layer : &at->expert);
            if (!name)
                return false;
        } else if (*pattern == '$') {
            at->role += strcmp(name, "bias") == 0;
            return at->role != row->role || strcmp(name, "weight") == 0;
        } else if (*pattern != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

bool family_spell(char *dst, size_t size, const char *pattern, const char *prefix,
                  const struct family_place *at)
{
    const char *what = role_is_bias(at->role) ? "bias" : "weight";
    int n = snprintf(dst, size, "%s", *pattern == '^' ? "" : prefix);

    for (pattern += strspn(pattern, "^+-"); n >= 0 && (size_t)n < size && *pattern; pattern++) {
        char *to = dst + n;
        size_t left = size - (size_t)n;

        n += *pattern == '#'   ? snprintf(to, left, "%lld", (long long)at->layer)
             : *pattern == '@' ? snprintf(to, left, "%lld", (long long)at->expert)
             : *pattern == '$' ? snprintf(to, left, "%s", what)
                               : snprintf(to, left, "%c", *pattern);
    }
    return n >= 0 && (size_t)n < size;
}
