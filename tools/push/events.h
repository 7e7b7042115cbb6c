/*
 * events - what happens while publishing, as JSON lines on stderr (cli_event): for programs.
 *
 *   {"tool": "ckpt-push", "event": "start", "source", "destination", "files", "bytes"}
 *   ... "file", "path", "bytes", "sent"          sent false: it was there
 *   ... "progress", "what", "done", "total", "rate"      bytes, and bytes a second
 *   ... "retry", "why", "try", "of", "wait"      seconds
 *   ... "published", "url", "files", "bytes"
 *   ... "note" or "warning", "text"
 */
#ifndef CKPT_TOOLS_PUSH_EVENTS_H
#define CKPT_TOOLS_PUSH_EVENTS_H

#include "tools/cli.h"
#include "tools/push/plan.h"

/* After parsing: with --json, and where stderr is no terminal. */
void push_events_begin(struct cli *cli);
void push_event_start(const struct cli *cli, const struct push_plan *p, const char *destination);
void push_event_file(const struct cli *cli, const struct push_file *f, bool sent);
void push_event_published(const struct cli *cli, const struct push_plan *p, const char *url);

#endif
