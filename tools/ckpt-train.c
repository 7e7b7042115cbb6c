/* ckpt-train - fine-tune a model over shards of ranks: options -> settings -> run. */
#include <string.h>

#include "libckpt/log.h"
#include "tools/cli.h"
#include "tools/data_rows.h"
#include "tools/opt/opt.h"
#include "tools/out.h"
#include "tools/train/announce.h"
#include "tools/train/names.h"
#include "tools/train/rows.h"
#include "tools/train/start.h"
#include "tools/train/tell.h"
#include "trainer/comm/ranks.h"
#include "trainer/comm/report.h"
#include "trainer/cpu/blas.h"
#include "trainer/run/run.h"

/* What the run tells, and who hears it. */
struct told {
    struct cli        *cli;
    struct train_tell *tell;
    struct announce   *announce;        /* NULL: in a process that trains nothing */
};

static int artifact(void *ctx, const char *path, struct ckpt_err *err)
{
    (void)err;                          /* what stdout does never ends a run */
    announce_put(((struct told *)ctx)->announce, path);
    return 0;
}

static int ready(void *ctx, struct ckpt_err *err)
{
    return push_ready(((struct told *)ctx)->tell->push, err);
}

static void event(void *ctx, const struct run_event *e)
{
    train_tell_event(((struct told *)ctx)->tell, e);
    announce_look(((struct told *)ctx)->announce);
}

/* The same figures in lines for people, and in base units for programs. */
static int simulated(void *ctx, const struct run_simulated *r, struct ckpt_err *err)
{
    const struct simulate_model *m = &simulate_model;
    const struct told *t = ctx;
    char line[256], groups[32] = "";
    struct out *o;
    int rc = out_new(&o, t->cli->json, err);

    if (rc)
        return rc;
    out_int(o, "ranks", NULL, r->world);
    out_int(o, "nodes", NULL, r->nodes);
    out_int(o, "zero_stage", NULL, r->stage);
    if (r->group < r->world)
        snprintf(groups, sizeof groups, " in groups of %d", r->group);
    out_int(o, "shard_size", NULL, r->group);
    snprintf(line, sizeof line, "world: %d ranks on %d node%s, ZeRO stage %d%s", r->world, r->nodes,
             r->nodes == 1 ? "" : "s", r->stage, groups);
    out_line(o, line);
    out_real(o, "tokens_per_second", NULL, r->tokens / r->seconds);
    snprintf(line, sizeof line, "tokens/s: %.0f, %.0f of a rank", r->tokens / r->seconds,
             r->tokens / r->seconds / r->world);
    out_line(o, line);
    out_int(o, "steps", NULL, r->steps);
    out_real(o, "step_seconds", NULL, r->seconds);
    out_real(o, "step_seconds_least", NULL, r->seconds_least);
    snprintf(line, sizeof line, "step: %.3f ms, the mean of %lld; the quickest %.3f",
             1e3 * r->seconds, (long long)r->steps, 1e3 * r->seconds_least);
    out_line(o, line);
    out_real(o, "exposed_seconds", NULL, r->exposed);
    out_real(o, "communication_seconds", NULL, r->communication);
    out_real(o, "collectives", NULL, r->collectives);
    out_real(o, "collective_bytes", NULL, r->bytes);
    snprintf(line, sizeof line, "communication: %.3f ms of a step are exposed (%.1f %%), of %.3f "
             "ms in %.4g collectives of %.4g MB together", 1e3 * r->exposed,
             100 * r->exposed / r->seconds, 1e3 * r->communication, r->collectives,
             1e-6 * r->bytes);
    out_line(o, line);
    out_int(o, "node", NULL, r->net.node);
    out_real(o, "network_bytes_per_second", NULL, r->net.network);
    out_real(o, "link_bytes_per_second", NULL, r->net.link);
    out_real(o, "link_half_bytes", NULL, m->half);
    out_real(o, "start_seconds", NULL, m->start);
    snprintf(line, sizeof line, "model: %.4g GB/s a GPU in nodes of %d, half of it at %.3g MB; "
             "%.4g GB/s a GPU between nodes; %.3g us to start", 1e-9 * r->net.link, r->net.node,
             1e-6 * m->half, 1e-9 * r->net.network, 1e6 * m->start);
    out_line(o, line);
    return out_end(o, err);
}

static int planned(void *ctx, const struct estimate *e, struct ckpt_err *err)
{
    return train_tell_plan(e, ((struct told *)ctx)->cli->json, err);
}

/* A rank's failure is printed by its supervisor; without one, it is printed here with the rank. */
static void fail(void *ctx, const struct ckpt_err *err, bool agreed)
{
    const struct told *t = ctx;
    struct ranks r = ranks_found();
    struct ckpt_err own = *err;

    if (report_error(err, agreed) || (!agreed && train_start_tell(err)))
        return;
    if (!agreed && r.world_size > 1 && r.meet != RANKS_NOWHERE &&
        strncmp(own.text, "rank ", 5) != 0)
        ckpt_err_in(&own, "rank %ld", r.rank);
    cli_error(t->cli, &own);
}

/* Settings that may differ between ranks: paths on their hosts, and how each of them computes. */
static const char own_settings[] =
    "model init tokenizer adapter train-file eval-file data-dir dataset-name chat-template "
    "output-dir deepspeed resume-from-checkpoint resume-file dump-grads nproc ddp-timeout device "
    "device-memory-limit threads memory-log profile data-cache logging-dir run-name "
    TRAIN_START_OPTIONS " " TRAIN_TELL_OPTIONS;

/* Start ranks, be one of them, or be the only one.  Returns the exit status. */
static int train(struct cli *cli, const struct settings *s, const struct train_start *start,
                 struct train_tell *tell, struct ckpt_err *err)
{
    struct told told = {.cli = cli, .tell = tell};
    struct run_io io = {.ctx = &told, .artifact = artifact, .fail = fail, .simulated = simulated,
                        .ready = ready, .event = event, .planned = planned, .stop = &cli_stop};
    int status = 0, rc = train_start_ranks(&status, start, s, cli, err), lost;
    struct ckpt_err why = {0};

    comm_stop_on(&cli_stop);
    if (rc == 0 && (s->dry_run || settings_write(s)))
        rc = train_tell_begin(tell, s->output_dir, s->dry_run, err);
    if (rc == 0)
        rc = announce_open(&told.announce, cli, s->save_total_limit, err);
    if (rc == 0)
        rc = run_train(s, &io, err);
    else if (rc > 0)
        rc = 0;
    lost = announce_end(told.announce, &why);
    if (rc == 0 && lost) {
        *err = why;
        rc = lost;
    }
    if (rc == 0)
        return train_tell_end(tell, status);
    if (!io.told)
        fail(&told, err, false);
    return train_tell_end(tell, ckpt_err_status(rc));
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct settings s;
    struct train_start start = {.argv = argv};
    struct train_tell tell = {.push_to = NULL};
    struct train_names names = {0};
    const struct opt_spec spec = {
        .synopsis = "--model DIR --train-file DATA [-o DIR] [option ...]",
        .summary = "fine-tune a model, or train a fresh one, on one or several ranks",
        .section = {train_rows_model(&s), data_rows(&s.data), train_rows_run(&s),
                    train_tell_rows(&tell), train_start_rows(&start), train_names_rows(&names)},
        .dialect = train_dialects,
        .streams = "train-file eval-file chat-template",
        .writes_values = true,
        .rule = train_rows_rule, .n_rule = train_rows_n_rules,
    };
    struct ckpt_err err = {0};
    struct opt_list given = {0}, shared = {0}, told = {0};
    char **rest;
    int n_rest, rc;

    blas_begin(argv);
    cli_begin(&cli, "ckpt-train");
    settings_default(&s);
    rc = train_start_begin(&start, &err);
    if (rc == 0)
        rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, &given, &err);
    if (rc == 1)
        return report_close(cli_end(&cli, 0));
    if (rc == 0 && n_rest > 0)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "%s: no positional argument is taken", rest[0]);
    cli_ignore_pipe();
    s.given = given.item;
    s.n_given = given.n;
    if (rc == 0)
        rc = opt_values(&shared, &cli, own_settings, &err);
    if (rc == 0)
        rc = opt_values(&told, &cli, "on-save on-log on-eval on-end push-to", &err);
    s.told = told.item;
    s.n_told = told.n;
    s.shared = shared.item;
    s.n_shared = shared.n;
    train_tell_levels(&tell, &cli);
    if (rc == 0)
        rc = train_names_finish(&names, &s, &cli, &err);
    if (rc == 0 && train_names_print(&names, &cli))
        return report_close(cli_end(&cli, 0));
    if (rc == 0)
        rc = settings_check(&s, &err);
    if (rc == 0)
        rc = train_start_count(&start, &s, &err);
    if (rc == 0 && !train_start_is_rank(&start))
        rc = train_names_tell(&cli, &s, &err);
    if (rc == 0) {
        rc = train(&cli, &s, &start, &tell, &err);
    } else {
        fail(&(struct told){.cli = &cli}, &err, false);
        rc = ckpt_err_status(rc);
    }
    train_start_end(&start);
    return report_close(cli_end(&cli, rc));
}
