/*
 * wildmatch - the patterns of .gitattributes and .gitignore, matched as git matches them.
 *
 * Source: git 2.39 wildmatch.c, gitattributes(5), gitignore(5).
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_WILDMATCH_H
#define CKPT_LIBCKPT_REMOTE_GIT_WILDMATCH_H

#include <stdbool.h>

/*
 * 1 when text matches, 0 when not, -1 when a pattern made to be slow has used its steps up.
 * With paths, "/" is matched by "/" and by the double star alone.
 */
int wildmatch(const char *pattern, const char *text, bool paths);

#endif
