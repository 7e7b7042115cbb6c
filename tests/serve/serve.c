/*
 * serve - a hub and a web server on loopback, for tests: serve ROOT LOG [OPTION ...] [RULE ...]
 *
 * Prints "PORT STORAGE" when it listens, the two ports of 127.0.0.1, and serves until it is killed
 * or its parent ends.  README.md says what it serves, the lines of LOG, and the rules.
 */
#include "tests/serve/serve.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

const char *root;
int port_of[2];
struct options options = {.multipart = 5 << 20, .chunk = 5 << 20, .page = 25, .expires = 3600};

/* Once the body is there.  False: the client went away within it. */
static bool serve_body(struct request *r)
{
    if (r->port == port_of[1] ? !receive_storage(r) : !receive_text(r)) {
        say(r, 0, 0);
        return false;
    }
    return true;
}

static void serve_route(struct request *r)
{
    if (strstr(r->path, ".."))
        fail(r, 400, "", "no");
    else if (r->port == port_of[1])
        serve_storage(r);
    else if (options.behind && strncmp(r->path, "/v2/", 4) == 0)
        serve_behind(r);
    else if (strncmp(r->path, "/git/", 5) == 0)
        serve_git(r);
    else if (strncmp(r->path, "/dav", 4) == 0 && strchr("/", r->path[4]))
        serve_dav(r);
    else if (!serve_hub(r))
        serve_static(r);
}

static void serve_one(struct request *r)
{
    apply_rules(r);
    if (by_rule(r) || !serve_body(r))
        return;
    if (is(r, "twice")) {
        r->mute = true;
        serve_route(r);
        r->mute = false;
    } else if (is(r, "late")) {
        r->note = "late";
        fail(r, 504, "", "Gateway Time-out");
        r->mute = r->close = true;
        shutdown(r->fd, SHUT_WR);
        usleep((useconds_t)(strtod(r->value, NULL) * 1e6));
    }
    serve_route(r);
}

/* -- a connection ----------------------------------------------------------------------------- */

/* Read until the empty line; NULL at the end of the connection. */
static char *read_head(struct conn *c)
{
    for (;;) {
        char *stop = memmem(c->buf + c->at, c->have - c->at, "\r\n\r\n", 4), *head;

        if (stop) {
            stop[2] = '\0';
            head = strdup(c->buf + c->at);
            c->at = (size_t)(stop - c->buf) + 4;
            return head;
        }
        if (!conn_fill(c))
            return NULL;
    }
}

void field(char *dst, size_t size, const struct request *r, const char *name)
{
    size_t n = strlen(name);

    *dst = '\0';
    for (const char *at = strstr(r->head, "\r\n"); at && !*dst; at = strstr(at + 2, "\r\n")) {
        const char *value = at + 2 + n;

        if (strncasecmp(at + 2, name, n) != 0)
            continue;
        value += strspn(value, " ");
        snprintf(dst, size, "%.*s", (int)strcspn(value, "\r"), value);
    }
}

static void parse_head(struct request *r)
{
    char text[100], *q;

    sscanf(r->head, "%11s %4095s", r->method, r->target);
    field(r->range, sizeof r->range, r, "Range:");
    field(r->token, sizeof r->token, r, "Authorization:");
    for (char *p = r->token; *p; p++)
        *p = *p == ' ' ? '_' : *p;
    for (char *p = r->range; *p; p++)
        *p = *p == ' ' ? '_' : *p;
    field(text, sizeof text, r, "Content-Length:");
    r->length = atoll(text);
    field(text, sizeof text, r, "Transfer-Encoding:");
    r->length = strcasestr(text, "chunked") ? -1 : r->length;
    field(text, sizeof text, r, "Expect:");
    r->expect = *text != '\0';
    snprintf(r->path, sizeof r->path, "%s", r->target);
    q = strchr(r->path, '?');
    if (q) {
        snprintf(r->query, sizeof r->query, "%s", q + 1);
        *q = '\0';
    }
    unescape(r->path);
}

static void *serve_client(void *ctx)
{
    struct conn *c = ctx;
    bool open = true;
    char *head;

    c->size = 65536;
    c->buf = malloc(c->size);
    while (open && (head = read_head(c)) != NULL) {
        struct request *r = calloc(1, sizeof *r);

        r->conn = c;
        r->fd = c->fd;
        r->port = c->port;
        r->head = head;
        parse_head(r);
        serve_one(r);
        open = !r->close;
        free(r->body);
        free(r);
        free(head);
    }
    close(c->fd);
    free(c->buf);
    free(c);
    return NULL;
}

/* A socket, and the port that it is of. */
struct door {
    int fd, port;
};

static void *serve_port(void *ctx)
{
    struct door *d = ctx;

    for (;;) {
        int fd = accept(d->fd, NULL, NULL), one = 1;
        struct conn *c = fd < 0 ? NULL : calloc(1, sizeof *c);
        pthread_t thread;

        if (!c)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        c->fd = fd;
        c->port = d->port;
        if (pthread_create(&thread, NULL, serve_client, c))
            exit(71);
        pthread_detach(thread);
    }
}

static struct door listen_on(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t n = sizeof a;
    struct door d = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
    int one = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (d.fd < 0 || setsockopt(d.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(d.fd, (struct sockaddr *)&a, sizeof a) || listen(d.fd, 128) ||
        getsockname(d.fd, (struct sockaddr *)&a, &n)) {
        perror("serve");
        exit(71);
    }
    d.port = ntohs(a.sin_port);
    return d;
}

static void add_option(const char *text)
{
    if (sscanf(text, "--multipart=%lld", &options.multipart) != 1 &&
        sscanf(text, "--chunk=%lld", &options.chunk) != 1 &&
        sscanf(text, "--page=%ld", &options.page) != 1 &&
        sscanf(text, "--expires=%ld", &options.expires) != 1 &&
        sscanf(text, "--unproved=%d", &options.unproved) != 1 &&
        sscanf(text, "--behind=%d", &options.behind) != 1 &&
        sscanf(text, "--transfer=%19s", options.transfer) != 1 &&
        sscanf(text, "--ports=%d,%d", &options.ports[0], &options.ports[1]) != 2) {
        fprintf(stderr, "serve: %s: no such option\n", text);
        exit(64);
    }
}

int main(int argc, char **argv)
{
    struct door d[2];
    pthread_t thread;

    if (argc < 3)
        return 64;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    root = argv[1];
    for (int i = 3; i < argc; i++)
        (strncmp(argv[i], "--", 2) == 0 ? add_option : add_rule)(argv[i]);
    for (int i = 0; i < 2; i++) {
        d[i] = listen_on(options.ports[i]);
        port_of[i] = d[i].port;
    }
    if (!log_open(argv[2]) || pthread_create(&thread, NULL, serve_port, &d[1]))
        return 71;
    printf("%d %d\n", port_of[0], port_of[1]);
    fflush(stdout);
    serve_port(&d[0]);
}
