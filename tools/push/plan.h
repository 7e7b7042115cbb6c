/*
 * plan - what part of a checkpoint is published: which files, under which paths, how.
 *
 * Left out by default: hidden files, staging leftovers, and a training_args.bin that is not safe
 * to load or contains a token.  --include names files to publish nevertheless.
 */
#ifndef CKPT_TOOLS_PUSH_PLAN_H
#define CKPT_TOOLS_PUSH_PLAN_H

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
};

/* Walk source (a directory, at most 8 levels, or one file).  CKPT_ENOTFOUND when empty. */
int push_plan_make(struct push_plan *p, const char *source, const struct push_filter *f,
                   struct ckpt_err *err);
void push_plan_release(struct push_plan *p);
/* Open the i-th file. */
int push_plan_open(struct ckpt_file **out, const struct push_plan *p, size_t i, bool follow,
                   struct ckpt_err *err);

#endif
