/*
 * regex - patterns of tokenizer files, matched by PCRE2.
 *
 * Files are written for Oniguruma with Ruby's syntax.  The pattern is carried over: classes
 * nested in classes are joined, \s and \S become the exact White_Space set, \w, \b and \p{L}
 * mean what they do there, ^ and $ work at every line.  What has no equal (negated nested
 * classes, "&&", the (?m) option, \h, \G, \K) is refused.  A pattern is foreign: its size is
 * limited, and a match that takes too many steps is an error.
 */
#ifndef CKPT_FORMATS_TOKENS_UNICODE_REGEX_H
#define CKPT_FORMATS_TOKENS_UNICODE_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/base/buf.h"
#include "libckpt/fail.h"

#define REGEX_MAX_PATTERN   4096        /* bytes; the longest in use is under 400 */
#define REGEX_MATCH_LIMIT   1000000u    /* PCRE2's steps of one match */

struct regex;
struct regex_run;                       /* memory of matching: one a thread */

/* literal: the pattern is plain text. */
int regex_new(struct regex **out, const char *pattern, size_t len, bool literal,
              struct ckpt_err *err);
void regex_free(struct regex *re);
int regex_run_new(struct regex_run **out, const struct regex *re, struct ckpt_err *err);
void regex_run_free(struct regex_run *run);
/*
 * The first match in s[from, len), s valid UTF-8: *found, and its [*start, *end).
 * CKPT_ELIMIT when the limit is reached.
 */
int regex_find(const struct regex *re, struct regex_run *run, const unsigned char *s,
               size_t len, size_t from, bool *found, size_t *start, size_t *end,
               struct ckpt_err *err);

/*
 * All matches in s, one after the other, as Oniguruma's find_iter gives them: an empty match is
 * none where the last one ended.  Zero m before the first call.
 */
struct regex_match { size_t start, end, from; bool any; };
int regex_next(const struct regex *re, struct regex_run *run, const unsigned char *s, size_t len,
               struct regex_match *m, bool *found, struct ckpt_err *err);

/* Characters of a general category ("L", "Lu") that PCRE2 does not know, as parts of a class. */
void regex_put_newer(struct ckpt_buf *out, const char *category, size_t len);

#endif
