/* dav/dav_login - see dav_login.h. */
#include "libckpt/remote/dav/dav_login.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "libckpt/base/base64.h"
#include "libckpt/base/secret.h"
#include "libckpt/err.h"
#include "libckpt/file.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/remote/cache/cache.h"

#define NETRC_BYTES (1u << 20)
#define BLANKS      " \t\r\n"

/* Cut the next word off *at; NULL at the end.  Words may be in double quotes. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, BLANKS), *end;

    if (!*word)
        return NULL;
    end = *word == '"' ? strchr(word + 1, '"') : NULL;
    if (end)
        word++;
    else
        end = word + strcspn(word, BLANKS);
    *at = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

bool dav_login_netrc(char user[DAV_USER], char password[DAV_PASSWORD], char *text,
                     const char *host)
{
    bool in = false, found = false;
    char *word, *value;

    *user = *password = '\0';
    while ((word = next_word(&text)) != NULL) {
        bool machine = strcmp(word, "machine") == 0, other = strcmp(word, "default") == 0;

        if (found && (machine || other))
            break;
        if (other) {
            in = true;
        } else if (strcmp(word, "macdef") == 0) {
            char *end = strstr(text, "\n\n");

            text = end ? end : text + strlen(text);
        } else if ((value = next_word(&text)) == NULL) {
            break;
        } else if (machine) {
            in = strcasecmp(value, host) == 0;
        } else if (in && strcmp(word, "login") == 0) {
            found = (size_t)snprintf(user, DAV_USER, "%s", value) < DAV_USER;
        } else if (in && strcmp(word, "password") == 0) {
            found = (size_t)snprintf(password, DAV_PASSWORD, "%s", value) < DAV_PASSWORD;
        }
    }
    return found && *user;
}

/* Read the netrc file; it should be its owner's alone. */
static bool from_netrc(char user[DAV_USER], char password[DAV_PASSWORD], const char *host)
{
    struct ckpt_err ignored = {0};
    struct ckpt_arena a = {0};
    struct ckpt_file *file;
    struct stat st;
    char path[4096], *text = NULL;
    bool found = false;
    size_t n = 0;

    if (!cache_place(path, sizeof path, "NETRC", "", "/.netrc") ||
        ckpt_file_open(&file, path, CKPT_FOLLOW, &ignored))
        return false;
    if (ckpt_file_slurp(file, &a, NETRC_BYTES, &text, &n, &ignored) == 0) {
        found = dav_login_netrc(user, password, text, host);
        explicit_bzero(text, n);
    }
    if (found && stat(path, &st) == 0 && (st.st_mode & 077))
        ckpt_log(CKPT_LOG_WARNING, "%s: others than its owner can read this file with a password",
                 path);
    ckpt_arena_release(&a);
    ckpt_file_close(file);
    return found;
}

static bool from_env(char *out, size_t size, const char *name)
{
    const char *v = getenv(name);

    return v && *v && !strpbrk(v, "\r\n") && (size_t)snprintf(out, size, "%s", v) < size;
}

int dav_login_find(char *line, size_t size, const char *host, struct ckpt_err *err)
{
    char user[DAV_USER] = "", password[DAV_PASSWORD] = "", both[DAV_USER + DAV_PASSWORD], *text;
    char token[2048];
    bool fits = true;

    *line = '\0';
    if (from_env(token, sizeof token, "CKPT_DAV_TOKEN")) {
        ckpt_secret_add(token);
        fits = (size_t)snprintf(line, size, "Authorization: Bearer %s\n", token) < size;
        explicit_bzero(token, sizeof token);
        return fits ? 0 : ckpt_fail(err, CKPT_ECONFIG, "CKPT_DAV_TOKEN is too long");
    }
    if (from_env(user, sizeof user, "CKPT_DAV_USER"))
        from_env(password, sizeof password, "CKPT_DAV_PASSWORD");
    else if (!from_netrc(user, password, host))
        return 0;
    if (strchr(user, ':'))
        return ckpt_fail(err, CKPT_ECONFIG, "%s: a user name with a colon", host);
    snprintf(both, sizeof both, "%s:%s", user, password);
    text = base64_encode((unsigned char *)both, strlen(both));
    fits = text && (size_t)snprintf(line, size, "Authorization: Basic %s\n", text) < size;
    if (*password)
        ckpt_secret_add(password);
    if (text) {
        ckpt_secret_add(text);
        explicit_bzero(text, strlen(text));
    }
    ckpt_free(text);
    explicit_bzero(both, sizeof both);
    explicit_bzero(password, sizeof password);
    return fits ? 0 : ckpt_nomem(err, sizeof both);
}
