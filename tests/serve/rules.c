/* rules.c - faults by script: which request gets which. */
#include "tests/serve/serve.h"

#include <ctype.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct rule {
    char action[16], value[512], glob[512];
    long skip, times; /* left; times -1: no end */
};

static struct rule rules[64];
static size_t n_rules;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void add_rule(const char *text)
{
    if (n_rules == sizeof rules / sizeof *rules || !strrchr(text, '@')) {
        fprintf(stderr, "serve: %s: not a rule, or one too many\n", text);
        exit(64);
    }
    struct rule *r = &rules[n_rules++];
    const char *at = strrchr(text, '@');
    char head[600];
    char *colon, *value;

    snprintf(head, sizeof head, "%.*s", (int)(at - text), text);
    snprintf(r->glob, sizeof r->glob, "%s", at + 1);
    r->times = -1;
    colon = strrchr(head, ':');
    if (colon && isdigit((unsigned char)colon[1]) && !strchr(colon, '/')) {
        r->times = strtol(colon + 1, &value, 10);
        if (*value == '+') {
            r->skip = r->times;
            r->times = atol(value + 1);
        }
        *colon = '\0';
    }
    value = strchr(head, '=');
    if (value) {
        *value = '\0';
        snprintf(r->value, sizeof r->value, "%s", value + 1);
    }
    snprintf(r->action, sizeof r->action, "%.15s", head);
}

void apply_rules(struct request *r)
{
    r->act = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; !r->act && i < n_rules; i++)
        if (rules[i].times != 0 && fnmatch(rules[i].glob, r->path, 0) == 0) {
            if (rules[i].skip > 0) {
                rules[i].skip--;
                continue;
            }
            rules[i].times -= rules[i].times > 0;
            r->act = rules[i].action;
            r->value = rules[i].value;
        }
    pthread_mutex_unlock(&lock);
}

/* A status with the header that says when to come again, in one of its forms. */
static void answer_status(struct request *r)
{
    const char *more = strchr(r->value, ',');
    char headers[300] = "";
    long seconds = 0;
    time_t then;
    struct tm tm;

    if (!more || sscanf(more, ",%ld", &seconds) == 1) {
        snprintf(headers, sizeof headers, "Retry-After: %ld\r\n", seconds);
    } else if (sscanf(more, ",date=%ld", &seconds) == 1) {
        then = time(NULL) + seconds;
        strftime(headers, sizeof headers, "Retry-After: %a, %d %b %Y %H:%M:%S GMT\r\n",
                 gmtime_r(&then, &tm));
    } else if (sscanf(more, ",limit=%ld", &seconds) == 1) {
        snprintf(headers, sizeof headers, "RateLimit: \"api\";r=0;t=%ld\r\nRateLimit-Policy: "
                 "\"fixed window\";\"api\";q=500;w=300\r\n", seconds);
    }
    answer(r, atoi(r->value), headers, "{\"error\":\"as the rule says\"}", 28);
}

/* What the Hub says in words of its own. */
static const struct refusal {
    const char *action;
    int         status;
    const char *body;
} refusals[] = {
    {"busy", 409, "{\"error\":\"Another commit operation is in progress for this repository\"}"},
    {"quota", 403, "{\"error\":\"Private repository storage limit reached, please upgrade your plan to "
                   "increase your private storage limit\"}"},
    {"slow-down", 503, "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Reduce your request "
                       "rate</Message></Error>"},
    {"skewed", 403, "<?xml version=\"1.0\"?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference "
                    "between the request time and the current time is too large</Message></Error>"},
    {"expired", 403, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"},
};

static bool by_refusal(struct request *r)
{
    char date[60];
    time_t now = time(NULL);
    struct tm tm;

    strftime(date, sizeof date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", gmtime_r(&now, &tm));
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (is(r, refusals[i].action)) {
            answer(r, refusals[i].status, date, refusals[i].body, strlen(refusals[i].body));
            return true;
        }
    return false;
}

/* The connection goes away, or says nothing more. */
static void break_off(struct request *r)
{
    if (is(r, "stall")) {
        say(r, 0, 0);
        sleep(*r->value ? (unsigned)atoi(r->value) : 60);
        hang_up(r);
    } else if (*r->value) {
        receive_nothing(r);
        say(r, 0, 0);
        hang_up(r);
    } else {
        say(r, 0, 0);
        r->close = true;
    }
}

/* Rules that change the answer or the effect of a request that is served. */
static bool is_bend(const struct request *r)
{
    static const char *const bends[] = {"short", "slow", "flip", "plain", "chunk", "etag", "total", "cut",
                                        "gzip", "lost", "twice", "late", "page", "length", "moves", "rot", "inside", "drop"};

    for (size_t i = 0; i < sizeof bends / sizeof *bends; i++)
        if (is(r, bends[i]))
            return true;
    return false;
}

/* Answers that are all rule.  True when one was given. */
bool by_rule(struct request *r)
{
    char headers[8192] = "";

    if (!r->act || is_bend(r))
        return false;
    if (is(r, "reset") || is(r, "stall")) {
        break_off(r);
        return true;
    }
    if (!receive_nothing(r)) {
        say(r, 0, 0);
        return true;
    }
    if (by_refusal(r))
        return true;
    if (is(r, "status")) {
        answer_status(r);
    } else if (is(r, "echo")) {
        char body[800];
        int n = snprintf(body, sizeof body, "{\"error\":\"bad %s\"}", r->token);

        for (char *p = body; *p; p++)
            if (*p == '_' && p > body && p[-1] == 'r')
                *p = ' ';
        answer(r, atoi(r->value), "", body, (size_t)n);
    } else if (is(r, "say")) {
        char body[8000] = "{\"error\":\"bad ";
        size_t k = strlen(body);

        for (const char *p = r->token; *p; p++)
            k += (size_t)sprintf(body + k, "\\u%04x", (unsigned)(unsigned char)*p);
        k += (size_t)sprintf(body + k, "\"}");
        answer(r, atoi(r->value), "", body, k);
    } else if (is(r, "lead")) {
        snprintf(headers, sizeof headers, "Location: /web/%s/%%63%%61nary\r\n", r->token);
        answer(r, 302, headers, "", 0);
    } else if (is(r, "link")) {
        char far[6001];

        memset(far, 'x', 6000);
        far[6000] = '\0';
        snprintf(headers, sizeof headers, "Content-Type: application/json\r\nLink: <%s>; "
                 "rel=\"next\"\r\n", strcmp(r->value, "long") == 0 ? far : r->value);
        answer(r, 200, headers, "[]", 2);
    } else if (is(r, "line") || is(r, "dust")) {
        static char much[65536];

        memset(much, 'x', sizeof much);
        put(r->fd, is(r, "line") ? "HTTP/1.1 200 OK\r\nX-More: "
                                 : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;",
            is(r, "line") ? 25 : 49);
        for (int i = 0; i < 400 && put(r->fd, much, is(r, "line") ? sizeof much : 4096); i++)
            usleep(is(r, "line") ? 0 : 20000);
        say(r, 200, 0);
        r->close = true;
    } else if (is(r, "html")) {
        answer(r, 200, "Content-Type: text/html\r\n", "<!doctype html><html></html>", 28);
    } else if (is(r, "loop") || is(r, "away")) {
        snprintf(headers, sizeof headers, "Location: %s\r\n", is(r, "loop") ? r->target : r->value);
        answer(r, *r->method == 'P' ? 307 : 302, headers, "", 0);
    } else if (is(r, "head")) {
        put(r->fd, "HTTP/1.1 200 OK\r\n", 17);
        for (int i = 0; i < 100000 && put(r->fd, "X-More: and more and more\r\n", 27); i++)
            ;
        say(r, 200, 0);
        r->close = true;
    } else {
        return false;
    }
    return true;
}

