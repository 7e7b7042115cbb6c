/*
 * json - a thin layer over jansson: limits, refusal of duplicate keys, errors as ckpt_err.
 *
 * Values are jansson's own json_t; this room adds the rules of reading foreign JSON (depth, size,
 * duplicates, strict UTF-8, integers exact to 64 bits) and getters that fail by name.
 */
#ifndef CKPT_LIBCKPT_BASE_JSON_H
#define CKPT_LIBCKPT_BASE_JSON_H

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "libckpt/fail.h"
#include "libckpt/file.h"

#define CKPT_JSON_MAX_DEPTH 64
#define CKPT_JSON_MAX_BYTES ((uint64_t)64 << 20)            /* documents */
#define CKPT_JSON_MAX_TOKENIZER_BYTES ((uint64_t)256 << 20) /* tokenizer.json */

enum ckpt_json_flags {
    CKPT_JSON_STRICT = 0,
    /* Python's writer emits NaN, Infinity and -Infinity, which are read as strings of that name,
     * and integers of any length: those beyond 64 bits are read as reals. */
    CKPT_JSON_PYTHON = 1 << 0,
    /* The text is one line of a file: errors name the column only, and the caller adds the line
     * number. */
    CKPT_JSON_LINE = 1 << 1
};

/* Gives *out: a new reference; json_decref it.  CKPT_EFORMAT names line and column. */
int ckpt_json_parse(json_t **out, const char *text, size_t len, unsigned flags,
                    struct ckpt_err *err);
/* The same for a whole open file of at most limit bytes. */
int ckpt_json_read(json_t **out, struct ckpt_file *file, uint64_t limit, unsigned flags,
                   struct ckpt_err *err);

/*
 * Members of an object.  The plain form fails with CKPT_EFORMAT with key, wanted and found type
 * when the member is absent or has another type; the _or form gives fallback when the member is
 * absent or null, and still fails on another type.  Results are borrowed from obj.
 */
int ckpt_json_get(json_t **out, const json_t *obj, const char *key, json_type type,
                  struct ckpt_err *err);
int ckpt_json_str(const char **out, const json_t *obj, const char *key, struct ckpt_err *err);
int ckpt_json_int(int64_t *out, const json_t *obj, const char *key, struct ckpt_err *err);
int ckpt_json_int_or(int64_t *out, const json_t *obj, const char *key, int64_t fallback,
                     struct ckpt_err *err);
int ckpt_json_num_or(double *out, const json_t *obj, const char *key, double fallback,
                     struct ckpt_err *err);
int ckpt_json_bool_or(bool *out, const json_t *obj, const char *key, bool fallback,
                      struct ckpt_err *err);
int ckpt_json_str_or(const char **out, const json_t *obj, const char *key, const char *fallback,
                     struct ckpt_err *err);

/*
 * Write value as text: on one line without blanks when indent is 0, otherwise spelt as Python's
 * json.dumps(indent=n) does.  Keys keep their order unless sort is set.  Numbers print so that
 * they read back to the same bits.
 */
int ckpt_json_write(struct ckpt_buf *out, const json_t *value, unsigned indent, bool sort,
                    struct ckpt_err *err);
/* A string of n bytes, a name of a file among them: those that are not UTF-8 are escaped as in
 * messages ("\\xff").  A new reference; NULL when memory does not suffice. */
json_t *ckpt_json_text(const char *s, size_t n);
/* A string in quotes, as Python's json.dumps(ensure_ascii=False).  Bytes that are not UTF-8 are
 * passed on. */
void ckpt_json_put_string(struct ckpt_buf *out, const char *s, size_t n);

#endif
