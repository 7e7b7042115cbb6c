/* s3/key - see key.h. */
#include "libckpt/remote/s3/key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ask.h"
#include "libckpt/base/json.h"
#include "libckpt/base/secret.h"
#include "libckpt/err.h"
#include "libckpt/file.h"
#include "libckpt/mem.h"
#include "libckpt/remote/cache/cache.h"

#define PROCESS_SECONDS 60
#define PROCESS_BYTES   ((size_t)64 << 10)
#define MAX_WORDS       32

/* The value of name in [section] of an INI file; false when it is not there. */
static bool ini(char *out, size_t size, const char *path, const char *section, const char *name)
{
    struct ckpt_err ignored = {0};
    struct ckpt_arena a = {0};
    struct ckpt_file *file;
    char *text = NULL;
    bool in = false, found = false;
    size_t n = 0, k = strlen(section);

    if (ckpt_file_open(&file, path, CKPT_FOLLOW, &ignored))
        return false;
    if (ckpt_file_slurp(file, &a, 1 << 20, &text, &n, &ignored))
        text = NULL;
    for (char *line = text, *end; line && *line && !found; line = end) {
        size_t len = strcspn(line, "\r\n"), at = strspn(line, " \t"), m = strlen(name);

        end = line + len + strspn(line + len, "\r\n");
        if (line[at] == '[')
            in = strncmp(line + at + 1, section, k) == 0 && line[at + 1 + k] == ']';
        else if (in && len > at + m && strncmp(line + at, name, m) == 0) {
            const char *v = line + at + m;

            v += strspn(v, " \t");
            if (*v++ != '=')
                continue;
            v += strspn(v, " \t");
            len = (size_t)(line + len - v);
            while (len > 0 && strchr(" \t", v[len - 1]))
                len--;
            found = len > 0 && (size_t)snprintf(out, size, "%.*s", (int)len, v) < size;
        }
    }
    if (text)
        explicit_bzero(text, n);
    ckpt_arena_release(&a);
    ckpt_file_close(file);
    return found;
}

static bool from_env(char *out, size_t size, const char *name)
{
    const char *v = getenv(name);

    return v && *v && (size_t)snprintf(out, size, "%s", v) < size;
}

/* The path of a file of the AWS tools. */
static void aws_file(char path[4096], const char *variable, const char *fallback)
{
    if (!cache_place(path, 4096, variable, "", fallback))
        path[0] = '\0';
}

/* Keys of a section of a file. */
static bool from_file(struct sigv4_key *k, const char *path, const char *section)
{
    if (!ini(k->id, sizeof k->id, path, section, "aws_access_key_id") ||
        !ini(k->secret, sizeof k->secret, path, section, "aws_secret_access_key"))
        return false;
    ini(k->session, sizeof k->session, path, section, "aws_session_token");
    return true;
}

/* -- a program that prints a key -------------------------------------------------------------- */

/* Cut a command into words, in place: at blanks, but for those between double quotes. */
static bool split(const char *word[MAX_WORDS + 1], char *command)
{
    size_t n = 0;

    while (*(command += strspn(command, " \t")) && n < MAX_WORDS) {
        char *to = command;
        bool quoted = false;

        word[n++] = command;
        while (*command && (quoted || !strchr(" \t", *command))) {
            if (*command == '"')
                quoted = !quoted;
            else
                *to++ = *command;
            command++;
        }
        if (*command)
            command++;
        *to = '\0';
    }
    word[n] = NULL;
    return n > 0 && !*command;
}

static bool take(char *out, size_t size, const json_t *json, const char *name)
{
    const char *v = json_string_value(json_object_get(json, name));

    return v && *v && (size_t)snprintf(out, size, "%s", v) < size;
}

/* {"Version": 1, "AccessKeyId": ..., "SecretAccessKey": ..., "SessionToken": ...} */
static int from_process(struct sigv4_key *k, char *command, struct ckpt_err *err)
{
    const char *word[MAX_WORDS + 1];
    struct ckpt_err ignored = {0};
    struct ckpt_buf out;
    json_t *json = NULL;
    bool read = false;
    int rc = split(word, command) ? 0 : ckpt_fail(err, CKPT_ECONFIG, "credential_process has more "
                                                  "than %d words", MAX_WORDS);

    ckpt_buf_init(&out, PROCESS_BYTES);
    rc = rc ? rc : ckpt_ask(&out, word, "", PROCESS_SECONDS, false, err);
    if (rc == 0 && ckpt_json_parse(&json, (char *)out.data, out.len, CKPT_JSON_STRICT,
                                   &ignored) == 0) {
        read = json_integer_value(json_object_get(json, "Version")) == 1 &&
               take(k->id, sizeof k->id, json, "AccessKeyId") &&
               take(k->secret, sizeof k->secret, json, "SecretAccessKey");
        take(k->session, sizeof k->session, json, "SessionToken");
    }
    json_decref(json);
    if (out.data)
        explicit_bzero(out.data, out.len);
    ckpt_buf_release(&out);
    if (rc == 0 && !read)
        rc = ckpt_fail(err, CKPT_EREFUSED, "%s: prints no key", word[0]);
    return rc ? ckpt_err_in(err, "credential_process") : 0;
}

int s3_key_find(struct sigv4_key *k, bool *found, char *endpoint, size_t size, struct ckpt_err *err)
{
    char path[4096], profile[128] = "default", section[160], command[4096];
    int rc = 0;

    *endpoint = '\0';
    from_env(profile, sizeof profile, "AWS_PROFILE");
    snprintf(section, sizeof section, "%s%s", strcmp(profile, "default") == 0 ? "" : "profile ",
             profile);
    *found = from_env(k->id, sizeof k->id, "AWS_ACCESS_KEY_ID") &&
             from_env(k->secret, sizeof k->secret, "AWS_SECRET_ACCESS_KEY");
    if (*found)
        from_env(k->session, sizeof k->session, "AWS_SESSION_TOKEN");
    aws_file(path, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials");
    *found = *found || from_file(k, path, profile);
    aws_file(path, "AWS_CONFIG_FILE", "/.aws/config");
    *found = *found || from_file(k, path, section);
    if (!*found && ini(command, sizeof command, path, section, "credential_process"))
        *found = (rc = from_process(k, command, err)) == 0;
    if (!from_env(k->region, sizeof k->region, "AWS_REGION") &&
        !from_env(k->region, sizeof k->region, "AWS_DEFAULT_REGION") &&
        !ini(k->region, sizeof k->region, path, section, "region"))
        snprintf(k->region, sizeof k->region, "us-east-1");
    if (!from_env(endpoint, size, "AWS_ENDPOINT_URL_S3") &&
        !from_env(endpoint, size, "AWS_ENDPOINT_URL"))
        ini(endpoint, size, path, section, "endpoint_url");
    ckpt_secret_add(k->secret);
    ckpt_secret_add(k->session);
    return rc;
}
