/* train/tell - see train/tell.h. */
#include "tools/train/tell.h"

#include <math.h>
#include <string.h>

#include "tools/out.h"
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
             "run a command in the background after each checkpoint", .bytes = OPT_BYTES_ANY),
    OPT_TEXT("on-log", "COMMAND", command[HOOK_LOG], "the same after a log line",
             .bytes = OPT_BYTES_ANY),
    OPT_TEXT("on-eval", "COMMAND", command[HOOK_EVAL], "the same after an evaluation",
             .bytes = OPT_BYTES_ANY),
    OPT_TEXT("on-end", "COMMAND", command[HOOK_END], "run a command when the run has ended",
             .bytes = OPT_BYTES_ANY),
    OPT_TEXT("push-to", "URL", push_to,
             "publish each checkpoint in the background, as ckpt-push does",
             .bytes = OPT_BYTES_ANY),
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

/* Limits that are not known are null, as reals that are not finite are. */
static double known(uint64_t bytes) { return bytes == UINT64_MAX ? (double)NAN : (double)bytes; }

int train_tell_plan(const struct estimate *e, bool json, struct ckpt_err *err)
{
    const struct { const char *key; uint64_t bytes; } sizes[] = {
        {"weights_bytes", e->fit.zero.weights}, {"gradients_bytes", e->fit.zero.grads},
        {"optimizer_bytes", e->fit.zero.optim + e->fit.zero.ring},
        {"gathered_bytes", e->fit.zero.gathered}, {"activations_bytes", e->fit.activations},
        {"workspace_bytes", e->fit.workspace}, {"device_bytes", e->fit.all},
        {"host_bytes", e->host}, {"snapshot_bytes", e->snapshot},
        {"checkpoint_model_bytes", e->checkpoint.model},
        {"checkpoint_states_bytes", e->checkpoint.states},
        {"checkpoint_optimizer_bytes", e->checkpoint.optimizer},
        {"checkpoint_others_bytes", e->checkpoint.others},
        {"checkpoint_bytes", e->checkpoint.all}, {"state_dict_bytes", e->checkpoint.state_dict},
        {"final_model_bytes", e->checkpoint.final_model}, {"disk_bytes", e->disk},
    };
    const struct { const char *key; int64_t n; } counts[] = {
        {"world_size", e->world_size}, {"zero_stage", e->zero_stage},
        {"parameters", e->parameters}, {"trained_parameters", e->trained}, {"rows", e->rows},
        {"rows_dropped", e->dropped},
        {"rows_sampled", e->sampled}, {"steps", e->steps}, {"first_step", e->first_step},
        {"steps_per_epoch", e->steps_per_epoch}, {"length_min", e->shortest},
        {"length_p95", e->p95}, {"length_max", e->longest}, {"checkpoints_kept", e->kept},
    };
    const struct { const char *key; double x; } reals[] = {
        {"epochs", e->epochs}, {"tokens", e->tokens}, {"length_mean", e->mean},
        {"truncated_share", e->truncated}, {"supervised_share", e->supervised},
        {"packing_efficiency", e->efficiency}, {"device_limit_bytes", known(e->fit.free_bytes)},
        {"disk_free_bytes", known(e->disk_free)}, {"step_flos", e->flos_step},
        {"total_flos", e->flos}, {"product_flops_per_second", e->rate > 0 ? e->rate : (double)NAN},
        {"step_seconds_least", e->seconds_step}, {"seconds_least", e->seconds},
    };
    struct out *o;
    int rc = json ? out_new(&o, true, err) : 0;

    if (!json || rc)
        return rc;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        out_int(o, counts[i].key, NULL, counts[i].n);
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        out_real(o, reals[i].key, NULL, reals[i].x);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        out_bytes(o, sizes[i].key, NULL, sizes[i].bytes);
    out_str(o, "saves", NULL, e->saves);
    return out_end(o, err);
}

int train_tell_begin(struct train_tell *t, const char *output_dir, bool dry, struct ckpt_err *err)
{
    struct ranks r = ranks_found();
    int rc = 0;

    if (r.rank > 0)
        return 0;
    if (!dry)
        rc = hooks_open(&t->hooks, t->command, output_dir, err);
    return rc ? rc : push_open(&t->push, t->push_to, output_dir, dry, err);
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
