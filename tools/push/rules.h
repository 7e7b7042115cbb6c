/*
 * rules - which files of a plan become LFS pointers, and the lines of .gitattributes for them.
 *
 * In a clone, git replaces a pointer by its file only where a rule of the same commit says so,
 * and takes every file matched by such a rule for a pointer.  So the rules of the tree decide; a
 * file that no rule mentions is judged by its name and size, and gets a line of its own if it
 * becomes a pointer.  Lines are appended to the existing ones, and match one path each: no other
 * file of the tree is affected.
 */
#ifndef CKPT_TOOLS_PUSH_RULES_H
#define CKPT_TOOLS_PUSH_RULES_H

#include "libckpt/remote/git/git.h"
#include "tools/push/plan.h"

/*
 * Set lfs of each file of p for the tree of g, which has its other changes by now, and fill text
 * with the new .gitattributes; *changed is false when the text is the existing one.
 * CKPT_EREFUSED for a path that no commit may have, or a filter other than Git LFS.
 */
int rules_decide(struct ckpt_buf *text, bool *changed, const struct ckpt_git *g,
                 struct push_plan *p, struct ckpt_err *err);

#endif
