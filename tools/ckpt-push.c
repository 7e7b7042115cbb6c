/* ckpt-push - publish checkpoints: options -> plan -> one commit or one folder. */
#include <stdio.h>
#include <string.h>

#include "tools/cli_items.h"
#include "tools/opt/opt.h"
#include "tools/out.h"
#include "tools/push/send.h"

#define ROWS 16

struct want {
    struct send_want   send;
    struct push_filter filter;
};

static size_t rows(struct opt *row, struct want *w)
{
    const struct opt all[] = {
        {0, "path-in-repo", "DIR", OPT_STR, &w->filter.path_in_repo,
         "folder in the destination (default: its root)", NULL, 0, 0, false},
        {'b', "branch", "NAME", OPT_STR, &w->send.branch,
         "branch to commit to (default: the one HEAD names)", NULL, 0, 0, false},
        {'m', "message", "TEXT", OPT_STR, &w->send.message, "message of the commit", NULL, 0, 0,
         false},
        {0, "author", "NAME <MAIL>", OPT_STR, &w->send.author, "author of the commit", NULL, 0, 0,
         false},
        {0, "create", NULL, OPT_FLAG, &w->send.create,
         "make a bare repository when the destination does not exist", NULL, 0, 0, false},
        {0, "include", "GLOB", OPT_LIST, &w->filter.include,
         "send files that a default leaves out", NULL, 0, 0, false},
        {0, "exclude", "GLOB", OPT_LIST, &w->filter.exclude, "do not send files that match", NULL,
         0, 0, false},
        {0, "delete", "GLOB", OPT_LIST, &w->send.remove,
         "in the same commit remove published files that match and are not sent", NULL, 0, 0,
         false},
        {0, "dry-run", NULL, OPT_FLAG, &w->send.dry_run, "print what would be sent", NULL, 0, 0,
         false},
    };

    memcpy(row, all, sizeof all);
    return sizeof all / sizeof all[0];
}

static int print_plan(const struct push_plan *p, const struct cli *cli, const char *dest,
                      struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"path", "path", OUT_LEFT}, {"how", "how", OUT_LEFT}, {"bytes", "bytes", OUT_RIGHT},
    };
    struct out *o;

    if (out_new(&o, cli->json, err))
        return err->code;
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
    const char        *dest;
};

static int push_one(void *ctx, const char *item, struct ckpt_err *err)
{
    const struct want *w = ((struct job *)ctx)->w;
    struct cli *cli = ((struct job *)ctx)->cli;
    const char *dest = ((struct job *)ctx)->dest;
    const char *kind, *path;
    struct push_plan p;
    char url[4352];
    int rc = send_kind(&kind, &path, dest, err);

    if (rc)
        return rc;
    rc = push_plan_make(&p, item, &w->filter, err);
    if (rc == 0 && strcmp(kind, "git") == 0)
        rc = send_git(url, sizeof url, &p, dest, path, &w->send, cli, err);
    else if (rc == 0)
        rc = send_folder(url, sizeof url, &p, path, &w->send, cli, err);
    if (rc == 0 && w->send.dry_run)
        rc = print_plan(&p, cli, dest, err);
    else if (rc == 0)
        rc = cli_artifact(cli, url, NULL, err);
    push_plan_release(&p);
    return rc;
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct want w = {0};
    struct opt row[ROWS];
    struct opt_spec spec = {
        .synopsis = "[option ...] DESTINATION [PATH ...]",
        .summary = "publish checkpoints to a git repository with LFS, or to a folder", .row = row,
        .run_file = true,
    };
    struct cli_items *items = NULL;
    struct ckpt_err err = {0};
    struct job job = {.w = &w, .cli = &cli};
    int n_rest, rc, status = 0;
    char **rest;
    bool bytes;

    cli_begin(&cli, "ckpt-push");
    spec.n = rows(row, &w);
    rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, &err);
    if (rc == 1)
        return cli_end(&cli, 0);
    w.send.follow = w.filter.follow = cli.follow;
    if (rc == 0 && n_rest < 1)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "where to publish is missing: ckpt-push DESTINATION "
                       "[PATH ...]");
    if (rc == 0)                        /* a trainer may take hours until the first item comes */
        rc = send_check(rest[0], &w.send, &err);
    if (rc == 0)
        rc = cli_items_open(&items, rest + 1, n_rest - 1, cli.nul, &err);
    if (rc == 0)
        rc = cli_items_bytes(items, &bytes, &err);
    if (rc == 0) {
        job.dest = rest[0];
        rc = cli_items_each(items, &cli, push_one, &job, &status, &err);
    }
    cli_items_close(items);
    return cli_end(&cli, rc ? cli_error(&cli, &err) : status);
}
