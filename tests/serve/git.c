/*
 * git.c - repositories below ROOT/git over http: git's own http-backend, as a web server runs it
 * (git-http-backend(1), RFC 3875), for who logs in with SERVE_LOGIN.
 */
#include "tests/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

static bool may(struct request *r)
{
    if (strcmp(r->token, SERVE_LOGIN) == 0)
        return true;
    answer(r, 401, "WWW-Authenticate: Basic realm=\"git\"\r\n", "", 0);
    return false;
}

/* In the child. */
static void become_backend(const struct request *r, int in, int out)
{
    char place[SERVE_PATH], type[100] = "", length[32];
    const char *service = strrchr(r->path, '/');

    snprintf(place, sizeof place, "%s/git", root);
    snprintf(length, sizeof length, "%zu", r->n_body);
    if (service && strcmp(r->method, "POST") == 0)
        snprintf(type, sizeof type, "application/x-%.40s-request", service + 1);
    setenv("GIT_PROJECT_ROOT", place, 1);
    setenv("GIT_HTTP_EXPORT_ALL", "1", 1);
    setenv("PATH_INFO", r->path + strlen("/git"), 1);
    setenv("QUERY_STRING", r->query, 1);
    setenv("REQUEST_METHOD", r->method, 1);
    setenv("CONTENT_TYPE", type, 1);
    setenv("CONTENT_LENGTH", length, 1);
    setenv("REMOTE_USER", "user", 1);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    close(STDERR_FILENO);              /* it prints there why it refuses a request */
    execlp("git", "git", "http-backend", (char *)NULL);
    _exit(127);
}

/* What the backend prints, malloced. */
static char *run_backend(const struct request *r, size_t *n)
{
    FILE *in = tmpfile(), *out = tmpfile();
    char *text = NULL;
    long size = 0;
    pid_t pid;

    *n = 0;
    if (in && out) {
        fwrite(r->body ? r->body : "", 1, r->n_body, in);
        fflush(in);
        rewind(in);
        pid = fork();
        if (pid == 0)
            become_backend(r, fileno(in), fileno(out));
        waitpid(pid, NULL, 0);
        fseek(out, 0, SEEK_END);
        size = ftell(out);
        rewind(out);
        text = malloc((size_t)size + 1);
        *n = fread(text, 1, (size_t)size, out);
        text[*n] = '\0';
    }
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    return text;
}

/* Its header becomes ours. */
static void pass_on(struct request *r, const char *text, size_t n)
{
    const char *stop = memmem(text, n, "\r\n\r\n", 4), *at = text;
    char headers[4096] = "";
    size_t k = 0;
    int status = 200;

    if (!stop) {
        fail(r, 500, "", "the backend printed no header");
        return;
    }
    while (at < stop) {
        size_t line = strcspn(at, "\r");

        if (strncasecmp(at, "Status:", 7) == 0)
            status = atoi(at + 7);
        else if (k + line + 3 < sizeof headers)
            k += (size_t)snprintf(headers + k, sizeof headers - k, "%.*s\r\n", (int)line, at);
        at += line + 2;
    }
    answer(r, status, headers, stop + 4, n - (size_t)(stop + 4 - text));
}

void serve_git(struct request *r)
{
    char *text;
    size_t n;

    if (!may(r))
        return;
    text = run_backend(r, &n);
    if (text)
        pass_on(r, text, n);
    else
        fail(r, 500, "", "no backend");
    free(text);
}
