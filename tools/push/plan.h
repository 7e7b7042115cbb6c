/*
 * plan - what part of a checkpoint is published: which files, under which paths, how.
 *
 * Left out by default: hidden files, staging leftovers, and a training_args.bin that is not safe
 * to load or contains a token.  --also names files to publish nevertheless.
 */
#ifndef CKPT_TOOLS_PUSH_PLAN_H
#define CKPT_TOOLS_PUSH_PLAN_H

#include <sys/stat.h>

#include "libckpt/digest.h"
#include "libckpt/file.h"
#include "tools/opt/opt.h"

/* What a destination has at the path of a file: filled by those that compare, before the first
 * byte moves. */
enum push_state {
    PUSH_SENT,                          /* not known: it is sent */
    PUSH_NEW,
    PUSH_CHANGED,                       /* another content */
    PUSH_SAME,                          /* the same: not sent */
    PUSH_IGNORED                        /* the destination's own rules leave it out */
};

struct push_file {
    const char *from;                   /* path below the source */
    const char *to;                     /* path in the destination */
    uint64_t    size;
    bool        large;                  /* its name or size suggests LFS */
    bool        lfs;                    /* becomes a pointer, by the destination's rules */
    bool        index;                  /* readers take it as a sign of completeness: sent last */
    char        oid[CKPT_SHA256_HEX];   /* filled while sending */
    const void *made;                   /* its size bytes, for a file that the source does not have;
                                           or NULL */
    struct stat *pin;                   /* it must be this file when it is opened; or NULL */
    enum push_state state;
    const char *digest;                 /* "sha256-<hex>", "sha1-<hex>" of a git blob; or NULL */
};

/* A file of the source that is not published. */
struct push_left {
    const char *path, *why;
};

struct push_plan {
    struct ckpt_arena arena;
    struct ckpt_dir  *dir;              /* the source; NULL when it is one file */
    const char       *source;           /* as given */
    const char       *below;            /* the folder of this source; "": the root */
    const char       *root;             /* path_in_repo of this source */
    struct push_file *file;             /* sorted by `to`; index files and config last */
    size_t            n, cap;
    uint64_t          bytes;
    struct push_left *left;             /* in the order of the walk */
    size_t            n_left, cap_left;
    const char      **gone;             /* published paths that are removed */
    size_t            n_gone, cap_gone;
    const char       *head;             /* what the destination stands at: a commit, a digest, ""
                                           when it is not there; NULL: it has no such thing */
};

#define PUSH_LAST "last-checkpoint"     /* the folder of strategy "checkpoint" */

struct push_filter {
    struct opt_list include;            /* publish these alone; none: all */
    struct opt_list also;               /* publish these although left out by default */
    struct opt_list exclude;
    const char     *path_in_repo;       /* folder in the destination, or NULL; {name} in it is the
                                           last component of the source */
    const char     *strategy;           /* "checkpoint", "all_checkpoints"; else NULL: see below */
    bool            follow;
    bool            allow_secrets;      /* files that hold what looks like a token are sent */
    bool            allow_pickles;      /* files that run code when they are loaded are sent */
};

/*
 * Walk source (a directory, at most 8 levels, or one file).  CKPT_ENOTFOUND when empty.
 *
 * With a strategy it lies whole in a folder of its own below path_in_repo, last-checkpoint or that
 * of its name, and what using the model needs lies at path_in_repo too: HF Trainer's hub_strategy.
 */
int push_plan_make(struct push_plan *p, const char *source, const struct push_filter *f,
                   struct ckpt_err *err);
void push_plan_release(struct push_plan *p);
/* The digest of the i-th file: SHA-256, or with git the SHA-1 of its git blob ("" for a member of
 * an archive).  A file that is unchanged since an earlier call, in this process or another, is not
 * read again.  Any thread. */
int push_plan_digest(char hex[CKPT_SHA256_HEX], const struct push_plan *p, size_t i, bool follow,
                     bool git, struct ckpt_err *err);
/* The destination has file i in this state; hex is its digest of that kind, "" when unknown. */
int push_plan_found(struct push_plan *p, size_t i, enum push_state state, const char *kind,
                    const char *hex, struct ckpt_err *err);
/* A published path is removed.  push_plan_forget begins anew, before another look at what is
 * published. */
int push_plan_remove(struct push_plan *p, const char *path, struct ckpt_err *err);
void push_plan_forget(struct push_plan *p);
/* Open the i-th file.  CKPT_EFORMAT "changed" when it is pinned and has changed. */
int push_plan_open(struct ckpt_file **out, const struct push_plan *p, size_t i, bool follow,
                   struct ckpt_err *err);
/* Decide by its name and size how a file is sent, and whether last. */
void push_plan_judge(struct push_file *f);
void push_plan_sort(struct push_plan *p);

/* made.c: `from` is a path below the source. */
/* Publish these bytes (copied) by that name, in place of the source's file if it has one. */
int push_plan_put(struct push_plan *p, const char *from, const void *bytes, size_t n,
                  struct ckpt_err *err);
/* Do not publish that file, if it is there. */
void push_plan_drop(struct push_plan *p, const char *from);
/* From now on the i-th file must be the one that fd is, unchanged.  Any thread, one at a time. */
int push_plan_pin(struct push_plan *p, size_t i, int fd, struct ckpt_err *err);
int push_plan_pinned(const struct push_file *f, const struct ckpt_file *file,
                     struct ckpt_err *err);

#endif
