/*
 * there - what a destination without commits lists: which files it has, and which --delete removes.
 */
#ifndef CKPT_TOOLS_PUSH_THERE_H
#define CKPT_TOOLS_PUSH_THERE_H

#include "libckpt/remote/tree.h"
#include "tools/push/plan.h"

/* The file at path, or NULL; t may be NULL. */
const struct tree_file *there_file(const struct tree *t, const char *path);
/* Fill *gone (in the plan's arena) with the paths of t that a glob matches and the plan lacks,
 * index files first: nobody shall meet an index without its files. */
int there_gone(const char ***gone, size_t *n, const struct tree *t, struct push_plan *p,
               const struct opt_list *globs, struct ckpt_err *err);
/* All files of the plan are listed with their sizes, else CKPT_EPROTOCOL "unconfirmed". */
int there_confirm(const struct tree *t, const struct push_plan *p, const char *address,
                  struct ckpt_err *err);

#endif
