/*
 * cli - behaviour that all tools share: program name, one-line errors, exit statuses, --version,
 * a checked stdout, signals.
 */
#ifndef CKPT_TOOLS_CLI_H
#define CKPT_TOOLS_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "libckpt/fail.h"
#include "libckpt/mem.h"

/* Settings that every tool has; filled by the common option rows (opt.h). */
struct cli {
    const char *tool;           /* "ckpt-merge" */
    bool        quiet;          /* -q: errors only */
    bool        only_warnings;  /* no notes */
    int         verbose;        /* -v: notes, -vv: debug */
    long        rank;           /* of several; what one after the first says begins with it */
    bool        json;           /* --json */
    bool        nul;            /* -0: end artifact lines with NUL */
    int64_t     jobs;           /* -j N; 0: number of CPUs */
    bool        events;         /* what happens is told as JSON lines on stderr (cli_event) */
    bool        strict;         /* --strict: warnings are errors */
    bool        follow;         /* --follow-symlinks */
    unsigned long warnings;     /* counted; repeated in one closing line */
    uint64_t    printed;        /* bytes of cli_artifact's lines */
    /* Whether the tool has an option of this name; set by opt_parse, NULL before. */
    bool      (*has_option)(const void *options, const char *name, size_t n);
    const void *options;
    struct ckpt_arena arena;    /* holds the values of parsed options; released by cli_end */
};

/*
 * Install the log hook, SIGPIPE, SIGXFSZ and orderly-stop handling; fill standard descriptors that
 * are closed.  cli is kept until cli_end.
 */
void cli_begin(struct cli *cli, const char *tool);
/*
 * Copy text to dst, replacing each setting that libraries name by `name` or `name value` with the
 * tool's option --name.  All messages to stderr pass through it.
 */
char *cli_flags(char *dst, size_t size, const struct cli *cli, const char *text);
/* Ignore SIGPIPE: a reader of stdout that left is a write error (EPIPE), not the end. */
void cli_ignore_pipe(void);
/* Print "tool: text" and the hint to stderr, with --json one object (tool, status, reason, error,
 * hint); returns the exit status for err. */
int cli_error(const struct cli *cli, const struct ckpt_err *err);
/* Print {"tool", "event", ...facts} as a line on stderr, where cli->events is set.  Takes facts.
 * Any thread. */
void cli_event(const struct cli *cli, const char *event, json_t *facts);
/* Report one finished artifact on stdout: path alone, or with --json the object (reference
 * taken; NULL: {"path": path}).  Flushed at once; CKPT_EIO when stdout fails. */
int cli_artifact(struct cli *cli, const char *path, json_t *object, struct ckpt_err *err);
/* End of the program: flush and check stdout, print the closing warning line.  Gives the exit
 * status. */
int cli_end(struct cli *cli, int status);
/*
 * Set by SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2; another signal a second later has its default
 * action.
 */
extern volatile int cli_stop;
/*
 * While on, a first SIGINT does not set cli_stop: a note says that the work continues to its end;
 * another SIGINT a second later has its default action.
 */
void cli_drain(bool on);
/* From now on signals have their default action, but for the SIGINT of cli_drain(): for work that
 * leaves nothing behind. */
void cli_end_at_once(void);
/* CKPT_ESTOPPED with the signal's name. */
int cli_stopped(struct ckpt_err *err);
/* rc; where that is CKPT_ESTOPPED after a signal, err is as cli_stopped() puts it, unless it has a
 * hint already. */
int cli_told_stop(int rc, struct ckpt_err *err);
/* Directory for unpacking: TMPDIR, or NULL for the library's default. */
const char *cli_spool(void);

#endif
