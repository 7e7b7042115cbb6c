/*
 * cli - what every tool does the same way: program name, one-line errors, exit statuses,
 * --version, a checked stdout, signals.
 */
#ifndef CKPT_TOOLS_CLI_H
#define CKPT_TOOLS_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "libckpt/fail.h"
#include "libckpt/mem.h"

/* Settings every tool has; filled by the common option rows (opt.h). */
struct cli {
    const char *tool;           /* "ckpt-merge" */
    bool        quiet;          /* -q: errors only */
    int         verbose;        /* -v: notes, -vv: debug */
    bool        json;           /* --json */
    bool        nul;            /* -0: end artifact lines with NUL */
    int64_t     jobs;           /* -j N; 0: by CPUs */
    bool        strict;         /* --strict: warnings are errors */
    bool        follow;         /* --follow-symlinks */
    unsigned long warnings;     /* counted; repeated in one closing line */
    /* Whether the tool has an option of this name; set by opt_parse, NULL before. */
    bool      (*has_option)(const void *options, const char *name, size_t n);
    const void *options;
    struct ckpt_arena arena;    /* what parsed options point to; released by cli_end */
};

/*
 * Install the log hook, SIGPIPE, SIGXFSZ and orderly-stop handling; fill standard descriptors that
 * are closed.  cli is kept until cli_end.
 */
void cli_begin(struct cli *cli, const char *tool);
/*
 * text in dst, with each setting that the floors below name by `name` or `name value` as the option
 * of the tool: --name.  All that is printed to stderr goes through it.
 */
char *cli_flags(char *dst, size_t size, const struct cli *cli, const char *text);
/* A reader of stdout that left is an error of writing (EPIPE) and no end. */
void cli_ignore_pipe(void);
/* Print "tool: text" and the hint to stderr, with --json one object (tool, status, reason, error,
 * hint); returns the exit status for err. */
int cli_error(const struct cli *cli, const struct ckpt_err *err);
/* One finished artifact on stdout: path alone, or with --json the object (stolen reference may be
 * NULL: then {"path": path}).  Flushed at once; CKPT_EIO when stdout refuses. */
int cli_artifact(struct cli *cli, const char *path, json_t *object, struct ckpt_err *err);
/* Close the program: flush and check stdout, closing warning line.  Gives the exit status. */
int cli_end(struct cli *cli, int status);
/*
 * Set by SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2; one a second later has its default action.
 */
extern volatile int cli_stop;
/*
 * While on, a first SIGINT does not set cli_stop: a note says that the work goes on to its end, and
 * one a second later has its default action.
 */
void cli_drain(bool on);
/* CKPT_ESTOPPED with the signal's name. */
int cli_stopped(struct ckpt_err *err);
/* Where to unpack: TMPDIR, or NULL for the library's own place. */
const char *cli_spool(void);

#endif
