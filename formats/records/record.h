/*
 * record - what a record of training data is, and the row a record reader fills in.
 *
 * A record is one JSON object (fields by name).  Readers give records in file order and can
 * start at any record, so a run resumes exactly; files may be larger than memory.
 */
#ifndef CKPT_FORMATS_RECORDS_RECORD_H
#define CKPT_FORMATS_RECORDS_RECORD_H

#include <jansson.h>

#include "libckpt/file.h"

/* How files are read; a zeroed struct is what datasets does without arguments. */
struct records_opts {
    const char *split;          /* "train[:80%]+test" (records/split.h), or NULL: all there is */
    const char *config;         /* of README.md (records/card.h), or NULL: the default one */
    const char *field;          /* member of a JSON document that holds the rows, or NULL */
    char        delimiter;      /* of CSV; 0: a comma, in *.tsv a tab */
    const char *columns;        /* "a,b,c": names of CSV columns, the first line is a row then */
    bool        literal;        /* CSV: text as it is; only an empty field is null */
    int64_t     stream_tokens;  /* rows that a stream of ids is cut into; 0: 1024 */
    bool        identity;       /* records_identity will be asked for */
};

struct record_ops {
    const char *name;                                   /* "jsonl", "text", "parquet", ... */
    size_t      size;                                   /* bytes of self */
    int (*bid)(const char *path, const unsigned char *head, size_t len);   /* 0..100 */
    /* self is zeroed, and closed after a failure too.  Takes file; looks at opts only now. */
    int (*open)(void *self, struct ckpt_file *file, const struct records_opts *opts,
                struct ckpt_err *err);
    int64_t (*count)(void *self);                       /* records */
    /* Record i as a new reference.  Any thread. */
    int (*get)(void *self, int64_t i, json_t **out, struct ckpt_err *err);
    void (*close)(void *self);                          /* self itself stays the caller's */
    /* What the writer said beside the schema, such as datasets' features: text by key, borrowed.
     * NULL: files of this kind have none. */
    const json_t *(*metadata)(void *self);
};

/* One file by the reader of ops, without a choice.  Takes file, on failure too. */
int record_open(void **self, const struct record_ops *ops, struct ckpt_file *file,
                const struct records_opts *opts, struct ckpt_err *err);
void record_close(void *self, const struct record_ops *ops);

/* Several files seen as one list of records, in the order given. */
struct records;

/*
 * paths: files, patterns of them (glob(7)), or directories whose files of data are taken
 * (records/dir.h), on this host or elsewhere (path.h; patterns only where files can be listed:
 * hf://, s3://); what is compressed (gzip, zstd, xz, bzip2, lz4) is unpacked into $TMPDIR.
 * opts may be NULL.  With opts->split the records are the parts it names, in its order, of files
 * that belong to that split; files that were named one by one belong to every split.
 */
int records_open_with(struct records **out, const char *const *path, size_t n_path,
                      const struct records_opts *opts, struct ckpt_err *err);
int records_open(struct records **out, const char *const *path, size_t n_path,
                 struct ckpt_err *err);
/* From now on only records [from, to): negative numbers count from the end, INT64_MAX is it. */
void records_slice(struct records *r, int64_t from, int64_t to);
/* From now on only shard index of n, as datasets' Dataset.shard cuts: shards are runs of records,
 * the first ones longer by one where they cannot be equal; or with strided every n-th record. */
int records_shard(struct records *r, int64_t n, int64_t index, bool strided, struct ckpt_err *err);
void records_close(struct records *r);
int64_t records_count(const struct records *r);
/* A digest of 16 bytes that identifies records without reading them: of paths, sizes and times of
 * the files
 * and how they are read; of files elsewhere, of their bytes.  CKPT_ESTATE unless it was said at
 * open. */
int records_identity(const struct records *r, unsigned char id[16], struct ckpt_err *err);
/* How the first file is spelt: "jsonl", ... */
const char *records_format(const struct records *r);
/* What the first file says beside its schema, text by key; borrowed, NULL where there is none. */
const json_t *records_metadata(const struct records *r);
/* Whether a file with this name and beginning is one of records. */
bool records_is(const char *path, const unsigned char *head, size_t len);
/* Errors name file and record.  Any thread. */
int records_get(struct records *r, int64_t i, json_t **out, struct ckpt_err *err);
/* Put "file: record n: " in front of what a user of record i found wrong.  Returns err->code. */
int records_err_in(const struct records *r, int64_t i, struct ckpt_err *err);

#endif
