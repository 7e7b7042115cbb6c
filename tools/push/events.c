/* events - see events.h. */
#include "tools/push/events.h"

#include <string.h>
#include <unistd.h>

#include "libckpt/base/json.h"
#include "libckpt/remote/http.h"
#include "tools/term.h"

static json_t *text(const char *s) { return ckpt_json_text(s, strlen(s)); }

static void on_retry(void *ctx, const char *why, long next, long most, uint64_t wait_ms)
{
    cli_event(ctx, "retry", json_pack("{s:s, s:I, s:I, s:f}", "why", why, "try", (json_int_t)next,
                                      "of", (json_int_t)most, "wait", (double)wait_ms / 1000));
}

void push_events_begin(struct cli *cli)
{
    cli->events = cli->json && !cli->quiet && !term_draws(STDERR_FILENO);
    if (cli->events)
        http_on_retry(on_retry, cli);
}

void push_event_start(const struct cli *cli, const struct push_plan *p, const char *destination)
{
    cli_event(cli, "start", json_pack("{s:o, s:o, s:I, s:I}", "source", text(p->source),
                                      "destination", text(destination), "files",
                                      (json_int_t)p->n, "bytes", (json_int_t)p->bytes));
}

void push_event_file(const struct cli *cli, const struct push_file *f, bool sent)
{
    cli_event(cli, "file", json_pack("{s:o, s:I, s:b}", "path", text(f->to), "bytes",
                                     (json_int_t)f->size, "sent", sent));
}

void push_event_published(const struct cli *cli, const struct push_plan *p, const char *url)
{
    cli_event(cli, "published", json_pack("{s:o, s:I, s:I}", "url", text(url), "files",
                                          (json_int_t)p->n, "bytes", (json_int_t)p->bytes));
}
