/*
 * hub_plan - a plan as the Hub takes it: how each file is sent, and what is there already.
 */
#ifndef CKPT_TOOLS_PUSH_HUB_PLAN_H
#define CKPT_TOOLS_PUSH_HUB_PLAN_H

#include "libckpt/base/buf.h"
#include "libckpt/remote/hub_write.h"
#include "tools/push/plan.h"

enum hub_how {
    HUB_SEND,                   /* in the commit, or as an LFS object with a line in it */
    HUB_SAME,                   /* the repository has it */
    HUB_IGNORED                 /* by the repository's .gitignore */
};

struct hub_item {
    enum hub_how how;
    char         oid[65];       /* SHA-256 of an LFS file, SHA-1 of the git blob of another */
};

struct hub_plan {
    struct push_plan *p;
    bool              follow;
    struct hub_item  *item;     /* of each file of p */
    struct ckpt_arena arena;
};

int hub_plan_new(struct hub_plan *h, struct push_plan *p, bool follow, struct ckpt_err *err);
void hub_plan_free(struct hub_plan *h);
/* Ask the Hub about all files, and compute the digests that it compares. */
int hub_plan_ask(struct hub_plan *h, const struct hub_repo *r, const char *revision,
                 struct ckpt_err *err);
/* Tell the push_plan what was found; t: the files of the branch, NULL for one that is not there.
 * digests: those of its files too, as a plan that is shown or compared has them. */
int hub_plan_settle(const struct hub_plan *h, const struct tree *t, bool digests,
                    struct ckpt_err *err);
/* A digest of all that the plan publishes where: the same in a second process. */
int hub_plan_mark(char mark[33], const struct hub_plan *h, const char *target,
                  struct ckpt_err *err);
/* NULL, or the path of a file that the tree does not have as planned. */
const char *hub_plan_differs(const struct hub_plan *h, const struct tree *t);

#endif
