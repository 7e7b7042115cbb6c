/*
 * send - publish a plan: to a folder, a branch of a git repository with LFS, the Hub, a registry.
 */
#ifndef CKPT_TOOLS_PUSH_SEND_H
#define CKPT_TOOLS_PUSH_SEND_H

#include "tools/cli.h"
#include "tools/push/plan.h"

struct plan_part;

struct send_want {
    const char     *branch;             /* NULL: the repository's own */
    const char     *message;            /* NULL: "Upload <name> with ckpt-push" */
    const char     *author;             /* "Name <mail>"; NULL: ckpt-push itself */
    struct opt_list remove;             /* --delete globs: published files not in the plan */
    bool            replaces;           /* the folder that a source lies in has nothing else */
    const char     *tag;                /* of the published commit, or NULL */
    bool            create;
    bool            is_private;         /* what is created */
    bool            create_pr;          /* as a pull request */
    const char     *verify;             /* "deep": all files are read back; or NULL */
    bool            follow;
    bool            dry_run;            /* check everything and fill in how each file is sent,
                                           but send nothing */
    const struct plan_part *plan;       /* the plan that is carried out, exactly; or NULL */
};

struct dest;

/* As dest_check and dest_send of dest.h. */
int send_git_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err);
int send_far_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err);
int send_hub_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err);
int send_oci_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err);
int send_s3_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err);
int send_dav_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err);
int send_folder_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err);

/*
 * With git all or nothing: one commit.  A new folder appears complete, an existing one is updated
 * file by file, index files last.
 */
int send_git(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err);
int send_far(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err);
int send_hub(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err);
/* One manifest under the tag, which then has exactly the files of the plan. */
int send_oci(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err);
/* File by file, index files last. */
int send_s3(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
            const struct send_want *w, const struct cli *cli, struct ckpt_err *err);
int send_dav(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err);
int send_folder(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
                const struct send_want *w, const struct cli *cli, struct ckpt_err *err);

#endif
