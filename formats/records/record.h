/*
 * record - what a record of training data is, and the row a record reader fills in.
 *
 * A record is one JSON object (fields by name).  Readers give records in file order and can
 * start at any record, so a run resumes exactly; files may be larger than memory.
 */
#ifndef CKPT_RECORD_H
#define CKPT_RECORD_H

#include <jansson.h>

#include "libckpt/file.h"

struct record_ops {
    const char *name;                                   /* "jsonl", "text", "parquet", "arrow" */
    int (*bid)(const char *path, const unsigned char *head, size_t len);   /* 0..100 */
    int (*open)(void **self, struct ckpt_file *file, struct ckpt_err *err);/* takes file */
    int64_t (*count)(void *self);                       /* records */
    /* Record i as a new reference.  Any thread. */
    int (*get)(void *self, int64_t i, json_t **out, struct ckpt_err *err);
    void (*close)(void *self);
};

/* Several files seen as one list of records, in the order given. */
struct records;

/* paths: files, patterns of them (glob(7)), or directories whose files of data are taken
 * (record_dir.h). */
int records_open(struct records **out, const char *const *path, size_t n_path,
                 struct ckpt_err *err);
void records_close(struct records *r);
int64_t records_count(const struct records *r);
/* How the first file is spelt: "jsonl", ... */
const char *records_format(const struct records *r);
/* Whether a file with this name and beginning is one of records. */
bool records_is(const char *path, const unsigned char *head, size_t len);
/* Errors name file and record.  Any thread. */
int records_get(struct records *r, int64_t i, json_t **out, struct ckpt_err *err);
/* Put "file: record n: " in front of what a user of record i found wrong.  Returns err->code.
 */
int records_err_in(const struct records *r, int64_t i, struct ckpt_err *err);

#endif
