/* stem - the stem of an English word by Porter's algorithm, with NLTK's extensions. */
#ifndef CKPT_TOOLS_EVAL_SCORE_STEM_H
#define CKPT_TOOLS_EVAL_SCORE_STEM_H

#include <stddef.h>

/*
 * Cut word, len bytes of a-z and 0-9 with room for one more, down to its stem; returns its length.
 *
 * Source: M. F. Porter, "An algorithm for suffix stripping" (1980); NLTK 3.9 nltk/stem/porter.py,
 * mode NLTK_EXTENSIONS.
 */
size_t stem_word(char *word, size_t len);

#endif
