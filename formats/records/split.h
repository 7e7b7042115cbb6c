/*
 * records/split - splits as Hugging Face's datasets knows them: which files form one, and the
 * expressions that name parts of them.
 *
 * Source: datasets 5.2 data_files.py (patterns of names) and arrow_reader.py (ReadInstruction).
 */
#ifndef CKPT_FORMATS_RECORDS_SPLIT_H
#define CKPT_FORMATS_RECORDS_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

/* How the files of a folder say which split they belong to: the first rule that fits any. */
enum split_rule {
    SPLIT_SHARDED,      /* data/NAME-00000-of-00001... */
    SPLIT_BY_DIR,       /* a folder's name has a keyword: "train", "dev", "evaluation", ... */
    SPLIT_BY_FILE,      /* the file's name has one */
    SPLIT_ALL_TRAIN
};

struct split_name { const char *name; size_t len; };    /* not NUL-terminated */

enum split_rule split_rule_of(const char *const *path, size_t n);
/* By that rule; len 0 for none. */
struct split_name split_name_of(const char *path, enum split_rule rule);

/* Bytes of a file's name without an ending that says how it is compressed (.gz, .zst, ...). */
size_t split_plain_length(const char *name);

/* "name", "name[from:to]", with "%" after numbers, and "(pct1_dropremainder)" after all. */
struct split_part {
    char    name[128];
    bool    percent, drop_remainder, has_from, has_to;
    int64_t from, to;
};

#define SPLIT_MAX_PARTS 32
/* "a+b[:10%]" -> parts; CKPT_EUSAGE shows where the text is wrong. */
int split_parse(struct split_part *part, size_t *n, const char *text, struct ckpt_err *err);
/* Which of n records the part means: [*from, *to). */
int split_range(const struct split_part *p, int64_t n, int64_t *from, int64_t *to,
                struct ckpt_err *err);

#endif
