/*
 * cli - what every tool does the same way: program name, one-line errors, exit statuses,
 * --version, a checked stdout, signals.
 */
#ifndef CKPT_CLI_H
#define CKPT_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"

/* Settings every tool has; filled by the common option rows (opt.h). */
struct cli {
    const char *tool;           /* "ckpt-merge" */
    bool        quiet;          /* -q: errors only */
    int         verbose;        /* -v: notes, -vv: debug */
    bool        json;           /* --json */
    bool        nul;            /* -0: end artifact lines with NUL */
    int         jobs;           /* -j N; 0: by CPUs */
    bool        strict;         /* --strict: warnings are errors */
    bool        follow;         /* --follow-symlinks */
    unsigned long warnings;     /* counted; repeated in one closing line */
    struct ckpt_arena options;  /* what parsed options point to; released by cli_end */
};

/*
 * Install the log hook, SIGPIPE, SIGXFSZ and orderly-stop handling; fill standard descriptors that
 * are closed.  cli is kept until cli_end.
 */
void cli_begin(struct cli *cli, const char *tool);
/* Print "tool: text" and the hint to stderr, with --json one object (tool, status, reason, error,
 * hint); returns the exit status for err. */
int cli_error(const struct cli *cli, const struct ckpt_err *err);
/* One finished artifact on stdout: path alone, or with --json the object (stolen reference may be
 * NULL: then {"path": path}).  Flushed at once; CKPT_EIO when stdout refuses. */
int cli_artifact(struct cli *cli, const char *path, json_t *object, struct ckpt_err *err);
/* Close the program: flush and check stdout, closing warning line.  Gives the exit status. */
int cli_end(struct cli *cli, int status);
/* Set by SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2; one a second
 * later has its default action. */
extern volatile int cli_stop;

/*
 * Work items: the positional arguments, or lines of stdin when there are none or one is "-".
 * Next item or NULL at the end; NUL-separated with -0.  The string is yours (ckpt_free).
 * CKPT_ESTOPPED when a signal asked to stop and items are left, or may come.
 */
struct cli_items;
/*
 * A checkpoint, an archive or something compressed may come on stdin instead of lines: then the
 * item is "-", stdin is a file from then on (spooled where it was a pipe), and *bytes is true.
 * Looking at stdin waits for its first bytes; a tool that does not call this takes lines only.
 */
int cli_items_bytes(struct cli_items *items, bool *bytes, struct ckpt_err *err);
/* Where to unpack: TMPDIR, or NULL for the library's own place. */
const char *cli_spool(void);
int cli_items_open(struct cli_items **out, char **arg, int n_arg, bool nul, struct ckpt_err *err);
int cli_items_next(struct cli_items *items, char **out, struct ckpt_err *err);
void cli_items_close(struct cli_items *items);

#endif
