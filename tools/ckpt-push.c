/* ckpt-push - publish checkpoints: options -> plan -> one commit or one folder. */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/http.h"
#include "tools/cli_items.h"
#include "tools/opt/opt.h"
#include "tools/out.h"
#include "tools/push/card.h"
#include "tools/push/dest.h"
#include "tools/push/events.h"
#include "tools/push/plan_file.h"
#include "tools/push/remake.h"
#include "tools/push/sign.h"

struct want {
    struct send_want   send;
    struct push_filter filter;
    struct sign_want   sign;
    struct opt_list    card_metrics;
    const char        *card_dataset;
    uint64_t           bwlimit;
    bool               latest, best;
    const char        *plan, *apply;
};

#define OPT_VALUES struct want
static const struct opt rows[] = {
    OPT_TEXT("path-in-repo", "DIR", filter.path_in_repo,
             "folder in the destination; {name} in it is that of the source", .absent = "its root",
             .bytes = OPT_BYTES_ANY),
    OPT_ENUM("hub-strategy", "NAME", filter.strategy, "checkpoint all_checkpoints",
             "also publish each source whole in last-checkpoint, or in a folder of its name: to "
             "go on from, with the model at the root", .absent = "the source alone"),
    OPT_TEXT("branch", "NAME", send.branch, "branch to commit to", .letter = 'b',
             .absent = "the one that HEAD names"),
    OPT_TEXT("message", "TEXT", send.message, "message of the commit", .letter = 'm',
             .absent = "Upload NAME with ckpt-push"),
    OPT_TEXT("author", "NAME <MAIL>", send.author, "author of the commit",
             .absent = "ckpt-push <ckpt-push@localhost>"),
    OPT_FLAG("create", send.create, "create the repository if it is missing"),
    OPT_FLAG("private", send.is_private, "create it so that only its owner sees it"),
    OPT_FLAG("create-pr", send.create_pr,
             "open a pull request instead of committing to the branch"),
    OPT_TEXT("tag", "NAME", send.tag, "give the published commit this tag"),
    OPT_LIST("include", "GLOB", filter.include, "send only files that match; repeatable",
             .bytes = OPT_BYTES_ANY),
    OPT_LIST("also", "GLOB", filter.also,
             "send files that match although left out by default; repeatable",
             .bytes = OPT_BYTES_ANY),
    OPT_LIST("exclude", "GLOB", filter.exclude, "do not send files that match; repeatable",
             .bytes = OPT_BYTES_ANY),
    OPT_LIST("delete", "GLOB", send.remove,
             "in the same commit, remove published files that match and are not sent; repeatable",
             .bytes = OPT_BYTES_ANY),
    OPT_ENUM("verify", "HOW", send.verify, "deep",
             "read all published files back and compare their digests", .absent = "digests of the "
             "list of files"),
    OPT_FLAG("allow-secrets", filter.allow_secrets,
             "send files that hold what looks like a token or a private key"),
    OPT_FLAG("allow-pickles", filter.allow_pickles,
             "send files that run code when they are loaded, such as pickles with calls"),
    OPT_LIST("card-metrics", "FILE", card_metrics,
             "put the results of ckpt-eval --json into the card that is sent; repeatable",
             .bytes = OPT_BYTES_FILE),
    OPT_TEXT("card-dataset", "NAME", card_dataset, "data set that they are of, as owner/name",
             .absent = "as the results or the card say"),
    OPT_PATH("sign", "KEY.pem", sign.key,
             "sign all files that are sent with this private key, and send model.sig"),
    OPT_PATH("sign-cert", "CHAIN.pem", sign.certificates,
             "sign as the owner of this certificate; the signer's first, then those above it"),
    OPT_PATH("sign-passphrase-file", "FILE", sign.passphrase,
             "file whose first line is the passphrase of the key",
             .absent = "CKPT_SIGN_PASSPHRASE, if it is encrypted"),
    OPT_FLAG("best", best, "the folder of a run means its best checkpoint, not the newest"),
    OPT_FLAG("latest", latest, "of several paths that wait in the pipe, publish the last alone"),
    OPT_SIZE("bwlimit", bwlimit, "bytes to send in a second, all transfers together",
             .absent = "no limit"),
    OPT_FLAG("dry-run", send.dry_run, "print what would be sent, and why"),
    OPT_PATH("plan", "FILE", plan, "write what would be sent, and why, as lines of JSON"),
    OPT_PATH("apply", "FILE", apply, "carry out such a plan, if nothing has changed since"),
};
#undef OPT_VALUES

/* What a plan says is not said again beside it. */
static const struct opt_rule rules[] = {
    {OPT_BARS, "apply", "path-in-repo hub-strategy branch message author create private create-pr "
     "tag include also exclude delete verify allow-secrets allow-pickles best latest dry-run plan "
     "sign sign-cert sign-passphrase-file card-metrics card-dataset"},
    /* what is made while it is sent is not in the source, which --apply compares */
    {OPT_BARS, "plan", "dry-run sign card-metrics"},
};

static int print_plan(const struct push_plan *p, const struct cli *cli, const char *dest,
                      struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"path", "path", OUT_LEFT}, {"how", "how", OUT_LEFT}, {"reason", "reason", OUT_LEFT},
        {"bytes", "bytes", OUT_RIGHT},
    };
    uint64_t sends = 0;
    struct out *o;
    int rc;

    if ((rc = out_new(&o, cli->json, err)) != 0)
        return rc;
    out_str(o, "source", "source", p->source);
    out_str(o, "destination", "destination", dest);
    out_int(o, "files", "files", (int64_t)p->n);
    out_bytes(o, "bytes", "bytes", p->bytes);
    for (size_t i = 0; i < p->n; i++)
        sends += p->file[i].state < PUSH_SAME ? p->file[i].size : 0;
    out_bytes(o, "to_send", "to send", sends);
    out_table(o, "plan", columns, 4);
    for (size_t i = 0; i < p->n; i++) {
        out_cell_str(o, p->file[i].to);
        out_cell_str(o, p->file[i].lfs ? "lfs" : "regular");
        out_cell_str(o, plan_file_reason(p->file[i].state));
        out_cell_bytes(o, p->file[i].size);
    }
    for (size_t i = 0; i < p->n_gone; i++) {
        out_cell_str(o, p->gone[i]);
        out_cell_str(o, "");
        out_cell_str(o, "deleted");
        out_cell_str(o, "");
    }
    for (size_t i = 0; i < p->n_left; i++) {
        out_cell_str(o, p->left[i].path);
        out_cell_str(o, "");
        out_cell_str(o, "left out");
        out_cell_str(o, p->left[i].why);
    }
    out_table_end(o);
    return out_end(o, err);
}

/* With --hub-strategy checkpoint, what an earlier source left in the folder is deleted. */
static int replace_last(struct want *w, const struct dest *d, struct cli *cli,
                        struct ckpt_err *err)
{
    const char *below = w->filter.path_in_repo, **globs;
    size_t n = w->send.remove.n;

    if (!w->filter.strategy || strcmp(w->filter.strategy, "checkpoint") != 0)
        return 0;
    if (below && strstr(below, "{name}"))
        return ckpt_fail(err, CKPT_EUSAGE, "--hub-strategy checkpoint: one folder for all sources, "
                         "and --path-in-repo has a {name}");
    w->send.replaces = true;
    if (!(d->kind->takes & DEST_DELETE))
        return 0;
    globs = ckpt_arena_alloc(&cli->arena, n + 1, sizeof *globs);
    if (!globs)
        return ckpt_nomem(err, n * sizeof *globs);
    if (n)
        memcpy(globs, w->send.remove.item, n * sizeof *globs);
    globs[n] = ckpt_arena_printf(&cli->arena, "%s%s" PUSH_LAST "/*", below ? below : "",
                                 below && *below ? "/" : "");
    w->send.remove = (struct opt_list){.item = globs, .n = n + 1};
    return globs[n] ? 0 : ckpt_nomem(err, strlen(below ? below : ""));
}

struct job {
    const struct want *w;
    struct cli        *cli;
    struct dest        dest;
    struct cli_items  *items;
    struct sign_key    key;
    struct push_card   card;
    struct plan_writer *plan;       /* of --plan, or NULL */
};

static int publish_told(struct cli *cli, const struct push_plan *p, const char *url,
                        struct ckpt_err *err)
{
    push_event_published(cli, p, url);
    return cli_artifact(cli, url, NULL, err);
}

/* What names this machine is left out where others read, and the manifest follows. */
static int make_fit(struct push_plan *p, const struct dest *d, bool follow, struct ckpt_err *err)
{
    int rc = d->kind->is_public ? push_rename_bases(p, follow, err) : 0;

    return rc ? rc : push_remanifest(p, follow, err);
}

static int push_one(void *ctx, const char *item, struct ckpt_err *err)
{
    const struct want *w = ((struct job *)ctx)->w;
    struct cli *cli = ((struct job *)ctx)->cli;
    const struct dest *dest = &((struct job *)ctx)->dest;
    struct push_plan p;
    char url[4352];
    int rc;

    if (w->latest && cli_items_waiting(((struct job *)ctx)->items)) {
        ckpt_log(CKPT_LOG_NOTE, "%s: not published, a later one is there", item);
        return 0;
    }
    rc = push_plan_make(&p, item, &w->filter, err);
    if (rc == 0)
        rc = push_card(&p, &((struct job *)ctx)->card, w->filter.follow, err);
    rc = rc ? rc : make_fit(&p, dest, w->filter.follow, err);
    if (rc == 0 && w->sign.key)
        rc = push_sign(&p, &((struct job *)ctx)->key, w->filter.follow, err);
    if (rc == 0 && !w->send.dry_run)
        push_event_start(cli, &p, dest->address);
    if (rc == 0)
        rc = dest_send(url, sizeof url, dest, &p, &w->send, cli, err);
    if (rc == 0 && ((struct job *)ctx)->plan)
        rc = plan_writer_add(((struct job *)ctx)->plan, &p, dest->address, &w->filter, &w->send,
                             err);
    else if (rc == 0 && w->send.dry_run)
        rc = print_plan(&p, cli, dest->address, err);
    else if (rc == 0)
        rc = publish_told(cli, &p, url, err);
    push_plan_release(&p);
    return rc;
}

/* Carry out one part of a plan. */
static int apply_part(struct plan_part *part, struct cli *cli, struct ckpt_err *err)
{
    struct push_plan p;
    struct dest dest;
    char url[4352];
    int rc = dest_find(&dest, part->destination, err);

    part->want.follow = part->filter.follow = cli->follow;
    part->want.plan = part;
    rc = rc ? rc : dest_check(&dest, &part->want, err);
    if (rc)
        return rc;
    rc = push_plan_make(&p, part->source, &part->filter, err);
    rc = rc ? rc : make_fit(&p, &dest, part->filter.follow, err);
    if (rc == 0)
        push_event_start(cli, &p, dest.address);
    rc = rc ? rc : dest_send(url, sizeof url, &dest, &p, &part->want, cli, err);
    rc = rc ? rc : publish_told(cli, &p, url, err);
    push_plan_release(&p);
    return rc;
}

static int apply(const char *path, struct cli *cli, struct ckpt_err *err)
{
    struct plan_file f = {0};
    int rc = plan_file_read(&f, path, err);

    for (size_t i = 0; rc == 0 && i < f.n; i++)
        rc = cli_stop ? cli_stopped(err) : apply_part(&f.part[i], cli, err);
    plan_file_close(&f);
    return rc;
}

/* Publish the items, or write a plan of that. */
static int push_items(struct job *job, const char *plan, char **rest, int n_rest, int *status,
                      struct ckpt_err *err)
{
    bool bytes = false;
    int rc = cli_items_open(&job->items, rest, n_rest, job->cli->nul, err);

    rc = rc ? rc : cli_items_bytes(job->items, &bytes, err);
    if (rc == 0 && job->w->best)
        cli_items_best(job->items);
    if (rc == 0 && plan && bytes)
        rc = ckpt_fail(err, CKPT_EUSAGE, "--plan: standard input cannot be read a second time");
    if (rc == 0 && plan)
        rc = plan_writer_open(&job->plan, plan, err);
    rc = rc ? rc : cli_items_each(job->items, job->cli, push_one, job, status, err);
    cli_items_close(job->items);
    if (rc || *status)
        plan_writer_abort(job->plan);
    else if (job->plan && (rc = plan_writer_commit(job->plan, err)) == 0)
        rc = cli_artifact(job->cli, plan, NULL, err);
    return rc;
}

/* Tokens and keys are in this process: no core file has them, no other program of the user sees
 * its memory. */
static void keep_memory_private(void)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_DUMPABLE, 0);
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct want w = {0};
    const struct opt_spec spec = {
        .synopsis = "[option ...] DESTINATION [PATH ...]",
        .summary = "publish checkpoints to the Hub, a git repository with LFS, a store, or a "
                   "folder",
        .section = {OPT_SECTION(rows, &w)},
        .streams = "card-metrics",
        .rule = rules, .n_rule = sizeof rules / sizeof rules[0],
    };
    struct ckpt_err err = {0};
    struct job job = {.w = &w, .cli = &cli};
    int n_rest, rc, status = 0;
    char **rest;

    keep_memory_private();
    cli_begin(&cli, "ckpt-push");
    rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, NULL, &err);
    if (rc == 1)
        return cli_end(&cli, 0);
    w.send.follow = w.filter.follow = cli.follow;
    w.send.dry_run |= w.plan != NULL;
    http_limit_rate(w.bwlimit);
    push_events_begin(&cli);
    if (rc == 0 && w.apply && n_rest > 0)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "--apply: the plan names the destination and the paths");
    else if (rc == 0 && w.apply)
        return cli_end(&cli, apply(w.apply, &cli, &err) ? cli_error(&cli, &err) : 0);
    if (rc == 0 && n_rest < 1)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "where to publish is missing: ckpt-push DESTINATION "
                       "[PATH ...]");
    if (rc == 0)
        rc = cli_items_check(rest + 1, n_rest - 1, &err);
    if (rc == 0)
        rc = dest_find(&job.dest, rest[0], &err);
    if (rc == 0)
        rc = push_card_open(&job.card, &w.card_metrics, w.card_dataset, &err);
    if (rc == 0)
        rc = push_sign_open(&job.key, &w.sign, &err);
    if (rc == 0)
        rc = replace_last(&w, &job.dest, &cli, &err);
    if (rc == 0)                    /* a trainer may take hours until it announces the first item */
        rc = dest_check(&job.dest, &w.send, &err);
    if (rc == 0)
        rc = push_items(&job, w.plan, rest + 1, n_rest - 1, &status, &err);
    push_card_release(&job.card);
    sign_key_release(&job.key);
    return cli_end(&cli, rc ? cli_error(&cli, &err) : status);
}
