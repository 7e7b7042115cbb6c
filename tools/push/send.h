/*
 * send - a plan to a destination: a folder, or a branch of a git repository with LFS.
 */
#ifndef CKPT_TOOLS_PUSH_SEND_H
#define CKPT_TOOLS_PUSH_SEND_H

#include "tools/cli.h"
#include "tools/push/plan.h"

struct send_want {
    const char     *branch;             /* NULL: the repository's own */
    const char     *message;            /* NULL: "Upload <name> with ckpt-push" */
    const char     *author;             /* "Name <mail>"; NULL: ckpt-push itself */
    struct opt_list remove;             /* --delete globs: published files not in the plan */
    bool            create;
    bool            follow;
    bool            dry_run;            /* everything is looked at, how files go is filled in */
};

/* What kind of place dest is: "git", "folder"; CKPT_EUSAGE names the schemes known. */
int send_kind(const char **kind, const char **path, const char *dest, struct ckpt_err *err);

/* What can be known of a destination before there is something to publish: CKPT_EUSAGE for options
 * that it has no use for, or how opening it fails. */
int send_check(const char *dest, const struct send_want *w, struct ckpt_err *err);
int send_git_check(const char *path, const struct send_want *w, struct ckpt_err *err);

/*
 * Publish.  url (capacity url_size) gets what can be handed on: the folder, or
 * <dest>@<commit>.  All or nothing for git: one commit; a folder that does not exist appears
 * whole, one that exists is updated file by file, index files last.
 */
int send_git(char *url, size_t url_size, struct push_plan *p, const char *dest, const char *path,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err);
int send_folder(char *url, size_t url_size, struct push_plan *p, const char *path,
                const struct send_want *w, const struct cli *cli, struct ckpt_err *err);

#endif
