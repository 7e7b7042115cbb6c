/*
 * wildmatch - the patterns of .gitattributes and .gitignore, matched as git matches them.
 *
 * Source: git 2.39 wildmatch.c, gitattributes(5), gitignore(5).
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_WILDMATCH_H
#define CKPT_LIBCKPT_REMOTE_GIT_WILDMATCH_H

#include <stdbool.h>

/*
 * 1 when text matches, 0 when not, -1 when the limit of steps is reached, as patterns can be made
 * slow on purpose.  With paths, only "/" and the double star match "/".
 */
int wildmatch(const char *pattern, const char *text, bool paths);

#endif
