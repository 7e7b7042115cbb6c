/*
 * plan - what part of a checkpoint is published: which files, under which paths, how.
 *
 * Left out by default: hidden files, staging leftovers, and a training_args.bin that is not safe
 * to load or contains a token.  --include names files to publish nevertheless.
 */
#ifndef CKPT_TOOLS_PUSH_PLAN_H
#define CKPT_TOOLS_PUSH_PLAN_H

#include <sys/stat.h>

#include "libckpt/digest.h"
#include "libckpt/file.h"
#include "tools/opt/opt.h"

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
    bool        pinned;                 /* it must be the file of pin when it is opened */
    struct stat pin;
};

struct push_plan {
    struct ckpt_arena arena;
    struct ckpt_dir  *dir;              /* the source; NULL when it is one file */
    const char       *source;           /* as given */
    const char       *below;            /* path_in_repo of this source; "": the root */
    struct push_file *file;             /* sorted by `to`; index files and config last */
    size_t            n;
    uint64_t          bytes;
    size_t            n_left_out;
};

struct push_filter {
    struct opt_list include;            /* publish these although left out by default */
    struct opt_list exclude;
    const char     *path_in_repo;       /* folder in the destination, or NULL; {name} in it is the
                                           last component of the source */
    bool            follow;
    bool            allow_secrets;      /* files that hold what looks like a token are sent */
    bool            allow_pickles;      /* files that run code when they are loaded are sent */
};

/* Walk source (a directory, at most 8 levels, or one file).  CKPT_ENOTFOUND when empty. */
int push_plan_make(struct push_plan *p, const char *source, const struct push_filter *f,
                   struct ckpt_err *err);
void push_plan_release(struct push_plan *p);
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
/* From now on the file must be the one that fd is, unchanged. */
int push_plan_pin(struct push_file *f, int fd, struct ckpt_err *err);
int push_plan_pinned(const struct push_file *f, const struct ckpt_file *file,
                     struct ckpt_err *err);

#endif
