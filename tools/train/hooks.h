/*
 * train/hooks - commands of the user's at events of the run, through sh -c, in the background.
 *
 * At most one command of a kind runs at a time.  Of those that wait for it, a later log line
 * replaces an earlier one; checkpoints and evaluations wait in order.  A command that fails is a
 * warning; it never ends the run.
 */
#ifndef CKPT_TOOLS_TRAIN_HOOKS_H
#define CKPT_TOOLS_TRAIN_HOOKS_H

#include "tools/opt/opt.h"
#include "trainer/tell/event.h"

enum hook { HOOK_SAVE, HOOK_LOG, HOOK_EVAL, HOOK_END, HOOK_KINDS };

struct hooks;

/* command[kind]: NULL or "" for none.  Commands and output_dir outlive it. */
int hooks_open(struct hooks **out, const char *const command[HOOK_KINDS], const char *output_dir,
               struct ckpt_err *err);
/* An event of the run; also looks after commands that run.  NULL accepted. */
void hooks_event(struct hooks *h, const struct run_event *e);
/* The run is over, with this exit status: wait for all commands, then run that of the end and wait
 * for it.  NULL accepted. */
void hooks_end(struct hooks *h, int status);
void hooks_close(struct hooks *h);

#endif
