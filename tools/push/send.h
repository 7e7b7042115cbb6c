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
    bool            dry_run;            /* check everything and fill in how each file is sent,
                                           but send nothing */
};

/* The kind of destination: "git", "folder"; CKPT_EUSAGE names the known schemes. */
int send_kind(const char **kind, const char **path, const char *dest, struct ckpt_err *err);

/* Check a destination before there is anything to publish: CKPT_EUSAGE for options that it does
 * not support, or the error of opening it. */
int send_check(const char *dest, const struct send_want *w, struct ckpt_err *err);
int send_git_check(const char *path, const struct send_want *w, struct ckpt_err *err);

/*
 * Publish.  url (capacity url_size) gets the address to hand on: the folder, or <dest>@<commit>.
 * With git all or nothing: one commit.  A new folder appears complete, an existing one is updated
 * file by file, index files last.
 */
int send_git(char *url, size_t url_size, struct push_plan *p, const char *dest, const char *path,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err);
int send_folder(char *url, size_t url_size, struct push_plan *p, const char *path,
                const struct send_want *w, const struct cli *cli, struct ckpt_err *err);

#endif
