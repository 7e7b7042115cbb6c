/* behind.c - paths that another server answers, one behind this one, whose answers the same rules bend. */
#include "tests/serve/serve.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* Fields of one connection, which has another length of the body too. */
static bool is_own(const char *line)
{
    static const char *const own[] = {"Connection:", "Expect:", "Transfer-Encoding:", "Content-Length:"};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strncasecmp(line, own[i], strlen(own[i])) == 0)
            return true;
    return false;
}

/* Copy the lines of a header behind its first, without those; the bytes. */
static size_t copy_fields(char *dst, size_t size, const char *head, const char *stop)
{
    const char *at = strstr(head, "\r\n");
    size_t k = 0;

    for (at = at ? at + 2 : stop; at < stop; at += strcspn(at, "\r") + 2) {
        size_t line = strcspn(at, "\r");

        if (line > 0 && !is_own(at) && k + line + 3 < size)
            k += (size_t)snprintf(dst + k, size - k, "%.*s\r\n", (int)line, at);
    }
    return k;
}

/* The whole answer, malloced; HTTP/1.0 asks for one that ends with the connection. */
static char *ask(const struct request *r, size_t *n)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.behind)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char head[SERVE_PATH * 2], *text = NULL;
    size_t size = 0, k;
    ssize_t got = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    k = (size_t)snprintf(head, sizeof head, "%s %s HTTP/1.0\r\n", r->method, r->target);
    k += copy_fields(head + k, sizeof head - k - 100, r->head, r->head + strlen(r->head));
    k += (size_t)snprintf(head + k, sizeof head - k, "Content-Length: %zu\r\n\r\n", r->n_body);
    *n = 0;
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && put(fd, head, k) &&
        put(fd, r->body ? r->body : "", r->n_body))
        while (got > 0) {
            if (*n + 65537 > size)
                text = realloc(text, size = 2 * size + 131072);
            got = recv(fd, text + *n, 65536, 0);
            *n += got > 0 ? (size_t)got : 0;
        }
    if (text)
        text[*n] = '\0';
    close(fd);
    return text;
}

void serve_behind(struct request *r)
{
    char headers[SERVE_PATH], *text, *stop;
    const char *length;
    size_t n, body;
    int status = 0;

    text = ask(r, &n);
    stop = text ? strstr(text, "\r\n\r\n") : NULL;
    if (!stop || sscanf(text, "HTTP/%*s %d", &status) != 1) {
        fail(r, 502, "", "nobody is behind");
        free(text);
        return;
    }
    body = n - (size_t)(stop + 4 - text);
    *headers = '\0';
    copy_fields(headers, sizeof headers, text, stop + 2);
    length = strcasestr(text, "\r\nContent-Length:");
    if (strcmp(r->method, "HEAD") == 0 && length && length < stop)
        body = (size_t)atoll(length + 17);
    answer(r, status, headers, stop + 4, body);
    free(text);
}
