/* train/tell - see train/tell.h. */
#include "tools/train/tell.h"

#include <string.h>

#include "tools/progress.h"
#include "trainer/comm/ranks.h"

#define OPT_VALUES struct train_tell
static const struct opt rows[] = {
    OPT_HEADING("Telling"),
    OPT_FLAG("disable-tqdm", disable_tqdm, "print lines now and then instead of a progress bar"),
    OPT_ENUM("log-level", "LEVEL", log_level, "passive debug info warning error critical",
             "what is printed: passive and info: all but details; warning: warnings and errors; "
             "error and critical: errors"),
    OPT_TEXT("on-save", "COMMAND", command[HOOK_SAVE],
             "run a command in the background after each checkpoint"),
    OPT_TEXT("on-log", "COMMAND", command[HOOK_LOG], "the same after a log line"),
    OPT_TEXT("on-eval", "COMMAND", command[HOOK_EVAL], "the same after an evaluation"),
    OPT_TEXT("on-end", "COMMAND", command[HOOK_END], "run a command when the run has ended"),
    OPT_TEXT("push-to", "URL", push_to,
             "publish each checkpoint in the background, as ckpt-push does"),
};
#undef OPT_VALUES

struct opt_section train_tell_rows(struct train_tell *t)
{
    t->log_level = "passive";
    return (struct opt_section)OPT_SECTION(rows, t);
}

void train_tell_levels(const struct train_tell *t, struct cli *cli)
{
    struct ranks r = ranks_found();

    cli->rank = r.world_size > 1 && r.meet != RANKS_NOWHERE ? r.rank : 0;
    if (strcmp(t->log_level, "debug") == 0)
        cli->verbose = 2;
    cli->only_warnings |= strcmp(t->log_level, "warning") == 0;
    cli->quiet |= strcmp(t->log_level, "error") == 0 || strcmp(t->log_level, "critical") == 0;
    if (t->disable_tqdm)
        progress_plain();
    if (cli->rank > 0 || cli->only_warnings)
        progress_silent();
}

int train_tell_begin(struct train_tell *t, const char *output_dir, struct ckpt_err *err)
{
    struct ranks r = ranks_found();
    int rc;

    if (r.rank > 0)
        return 0;
    rc = hooks_open(&t->hooks, t->command, output_dir, err);
    return rc ? rc : push_open(&t->push, t->push_to, output_dir, err);
}

void train_tell_event(struct train_tell *t, const struct run_event *e)
{
    const struct progress_facts facts = {
        .epoch = e->epoch, .num_epochs = e->num_epochs, .loss = e->loss,
        .tokens_per_second = e->tokens_per_second, .memory = e->memory,
    };

    if (e->kind == RUN_EVENT_STEP)
        progress_tell("training", &facts);
    hooks_event(t->hooks, e);
    if (e->kind == RUN_EVENT_SAVE)
        push_put(t->push, e->checkpoint);
    else
        push_look(t->push);
}

int train_tell_end(struct train_tell *t, int status)
{
    int pushed = push_end(t->push), end = status ? status : pushed;

    push_close(t->push);
    hooks_end(t->hooks, end);
    hooks_close(t->hooks);
    t->push = NULL;
    t->hooks = NULL;
    return end;
}
