/*
 * rules - which files of a plan go by pointer, and the lines of .gitattributes that say so.
 *
 * git on a clone puts a file in a pointer's place only where a rule of the same commit says so,
 * and takes every file of such a name for a pointer.  So the rules of the tree decide; a file of
 * which they say nothing goes by its name and size, and gets a line of its own where it goes by
 * pointer.  Lines are put behind those that are there, and match one path each: nothing else of
 * the tree is read in another way because of them.
 */
#ifndef CKPT_TOOLS_PUSH_RULES_H
#define CKPT_TOOLS_PUSH_RULES_H

#include "libckpt/remote/git/git.h"
#include "tools/push/plan.h"

/*
 * Fill lfs of each file of p for the tree of g, which has its other changes by now, and text with
 * the .gitattributes that belongs to it; *changed is false when it is the one that is there.
 * CKPT_EREFUSED for a path that no commit may have, or a filter that is not Git LFS'.
 */
int rules_decide(struct ckpt_buf *text, bool *changed, const struct ckpt_git *g,
                 struct push_plan *p, struct ckpt_err *err);

#endif
