/* rights.c - what .gitattributes and .gitignore say of a path. */
#include "tests/serve/serve.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Patterns without a slash are of names, others of paths; a star star also stands for no folder. */
static bool matches(const char *pattern, const char *path)
{
    const char *name = strrchr(path, '/'), *stars;
    char flat[1024];

    if (!strchr(pattern, '/'))
        return fnmatch(pattern, name ? name + 1 : path, 0) == 0;
    pattern += *pattern == '/';
    if (fnmatch(pattern, path, strstr(pattern, "**") ? 0 : FNM_PATHNAME) == 0)
        return true;
    stars = strstr(pattern, "**/");
    if (!stars)
        return false;
    snprintf(flat, sizeof flat, "%.*s%s", (int)(stars - pattern), pattern, stars + 3);
    return fnmatch(flat, path, 0) == 0;
}

/* The next line of a text; false at its end. */
static bool next_line(char *line, size_t size, const char **at)
{
    size_t n = strcspn(*at, "\n");

    if (**at == '\0')
        return false;
    snprintf(line, size, "%.*s", (int)n, *at);
    line[strcspn(line, "\r")] = '\0';
    *at += n + ((*at)[n] == '\n');
    return true;
}

bool attribute_lfs(const char *attributes, const char *path)
{
    char line[2048], pattern[1024];
    bool lfs = false;
    int n;

    while (attributes && next_line(line, sizeof line, &attributes)) {
        if (*line == '#' || sscanf(line, "%1023s%n", pattern, &n) != 1 || !matches(pattern, path))
            continue;
        if (strstr(line + n, "-filter") || strstr(line + n, "!filter"))
            lfs = false;
        else if (strstr(line + n, "filter="))
            lfs = strstr(line + n, "filter=lfs") != NULL;
    }
    return lfs;
}

/* Whether a line of .gitignore is of this path, or of a folder that it lies in. */
static bool covers(char *pattern, const char *path)
{
    size_t n = strlen(pattern);
    bool folder = n > 0 && pattern[n - 1] == '/';
    char part[4096];

    if (folder)
        pattern[n - 1] = '\0';
    for (const char *at = strchr(path, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
        if (matches(pattern, part))
            return true;
    }
    return !folder && matches(pattern, path);
}

bool ignored(const char *ignore, const char *path)
{
    char line[2048];
    bool yes = false;

    while (ignore && next_line(line, sizeof line, &ignore))
        if (*line && *line != '#' && covers(line + (*line == '!'), path))
            yes = *line != '!';
    return yes;
}
