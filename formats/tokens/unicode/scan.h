/*
 * scan - hand-written splitters for the patterns that nearly every byte-level tokenizer uses.
 *
 * Each gives the same pieces as its regular expression does under Oniguruma, gaps between
 * matches being pieces of their own (behaviour "Isolated"); tests compare them with the engine.
 */
#ifndef CKPT_FORMATS_TOKENS_UNICODE_SCAN_H
#define CKPT_FORMATS_TOKENS_UNICODE_SCAN_H

#include <stddef.h>

/* The end of the piece that starts at from < n of s, which is valid UTF-8. */
typedef size_t scan_fn(const unsigned char *s, size_t n, size_t from);

/* The pattern built into the ByteLevel pre-tokenizer (GPT-2, OPT, RoBERTa). */
extern const char scan_gpt2_pattern[];
scan_fn scan_gpt2;
/* The scanner of a Split pattern, or NULL when there is none (use regex.h). */
scan_fn *scan_for(const char *pattern);

#endif
