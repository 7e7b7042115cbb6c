/* ckpt-push - publish checkpoints: options -> plan -> one commit or one folder. */
#include <stdio.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/http.h"
#include "tools/cli_items.h"
#include "tools/opt/opt.h"
#include "tools/out.h"
#include "tools/push/dest.h"

struct want {
    struct send_want   send;
    struct push_filter filter;
    uint64_t           bwlimit;
    bool               latest, best;
};

#define OPT_VALUES struct want
static const struct opt rows[] = {
    OPT_TEXT("path-in-repo", "DIR", filter.path_in_repo,
             "folder in the destination; {name} in it is that of the source", .absent = "its root"),
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
    OPT_LIST("include", "GLOB", filter.include,
             "send files that are left out by default; repeatable"),
    OPT_LIST("exclude", "GLOB", filter.exclude, "do not send files that match; repeatable"),
    OPT_LIST("delete", "GLOB", send.remove,
             "in the same commit, remove published files that match and are not sent; repeatable"),
    OPT_ENUM("verify", "HOW", send.verify, "deep",
             "read all published files back and compare their digests", .absent = "digests of the "
             "list of files"),
    OPT_FLAG("allow-secrets", filter.allow_secrets,
             "send files that hold what looks like a token or a private key"),
    OPT_FLAG("best", best, "the folder of a run means its best checkpoint, not the newest"),
    OPT_FLAG("latest", latest, "of several paths that wait in the pipe, publish the last alone"),
    OPT_SIZE("bwlimit", bwlimit, "bytes to send in a second, all transfers together",
             .absent = "no limit"),
    OPT_FLAG("dry-run", send.dry_run, "print what would be sent"),
};
#undef OPT_VALUES

static int print_plan(const struct push_plan *p, const struct cli *cli, const char *dest,
                      struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"path", "path", OUT_LEFT}, {"how", "how", OUT_LEFT}, {"bytes", "bytes", OUT_RIGHT},
    };
    struct out *o;
    int rc;

    if ((rc = out_new(&o, cli->json, err)) != 0)
        return rc;
    out_str(o, "source", "source", p->source);
    out_str(o, "destination", "destination", dest);
    out_int(o, "files", "files", (int64_t)p->n);
    out_bytes(o, "bytes", "bytes", p->bytes);
    out_table(o, "plan", columns, 3);
    for (size_t i = 0; i < p->n; i++) {
        out_cell_str(o, p->file[i].to);
        out_cell_str(o, p->file[i].lfs ? "lfs" : "whole");
        out_cell_bytes(o, p->file[i].size);
    }
    out_table_end(o);
    return out_end(o, err);
}

struct job {
    const struct want *w;
    struct cli        *cli;
    struct dest        dest;
    struct cli_items  *items;
};

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
        rc = dest_send(url, sizeof url, dest, &p, &w->send, cli, err);
    if (rc == 0 && w->send.dry_run)
        rc = print_plan(&p, cli, dest->address, err);
    else if (rc == 0)
        rc = cli_artifact(cli, url, NULL, err);
    push_plan_release(&p);
    return rc;
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct want w = {0};
    const struct opt_spec spec = {
        .synopsis = "[option ...] DESTINATION [PATH ...]",
        .summary = "publish checkpoints to the Hub, a git repository with LFS, or a folder",
        .section = {OPT_SECTION(rows, &w)},
    };
    struct cli_items *items = NULL;
    struct ckpt_err err = {0};
    struct job job = {.w = &w, .cli = &cli};
    int n_rest, rc, status = 0;
    char **rest;
    bool bytes;

    cli_begin(&cli, "ckpt-push");
    rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, NULL, &err);
    if (rc == 1)
        return cli_end(&cli, 0);
    w.send.follow = w.filter.follow = cli.follow;
    if (rc == 0 && n_rest < 1)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "where to publish is missing: ckpt-push DESTINATION "
                       "[PATH ...]");
    if (rc == 0)
        rc = dest_find(&job.dest, rest[0], &err);
    http_limit_rate(w.bwlimit);
    if (rc == 0)                    /* a trainer may take hours until it announces the first item */
        rc = dest_check(&job.dest, &w.send, &err);
    if (rc == 0)
        rc = cli_items_open(&items, rest + 1, n_rest - 1, cli.nul, &err);
    if (rc == 0)
        rc = cli_items_bytes(items, &bytes, &err);
    if (rc == 0 && w.best)
        cli_items_best(items);
    job.items = items;
    if (rc == 0)
        rc = cli_items_each(items, &cli, push_one, &job, &status, &err);
    cli_items_close(items);
    return cli_end(&cli, rc ? cli_error(&cli, &err) : status);
}
