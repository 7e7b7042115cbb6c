/* source - shared by the files that make up a source of samples; see stream.h. */
#ifndef CKPT_TRAINER_DATA_SOURCE_H
#define CKPT_TRAINER_DATA_SOURCE_H

#include "trainer/data/stream.h"
#include "trainer/data/conversation.h"
#include "trainer/data/template.h"

struct sample_cache;

struct data_source {
    struct records         *records;
    const struct tokenizer *tok;
    struct data_opts        o;
    enum data_kind          kind;
    json_t                 *mapping;                /* field -> column, or NULL */
    struct template        *prompt, *completion;    /* DATA_TEXT: completion alone */
    struct chat            *chat;                   /* DATA_CHAT: its template */
    char                   *chat_field;             /* and the field of its messages */
    char                   *text_field;             /* DATA_TEXT: field of the text */
    struct sample_cache    *cache;                  /* or NULL */
    int64_t                 n;
    int64_t                *usable;     /* [n] record of each sample; NULL: all records */
    int32_t                *length;     /* [n] after a scan */
    struct data_stats       stats;
};

/* Make the sample of record i, also of one that a scan excluded; from the record itself. */
int data_source_make(const struct data_source *d, int64_t i, struct sample *s,
                     struct ckpt_err *err);

#define SCAN_BLOCK   256        /* records that a worker takes at once */
#define SCAN_WORKERS 16

/* Receives the samples of a pass over the records. */
struct scan_sink {
    /* Sample of record i, or NULL where there is none: blocks come in any order, records of a
     * block in order on one worker. */
    int (*put)(void *ctx, size_t worker, int64_t i, const struct sample *s, struct ckpt_err *err);
    /* All n records of the block that begins with record first are done. */
    int (*end)(void *ctx, size_t worker, int64_t first, int64_t n, struct ckpt_err *err);
    void *ctx;
};

/*
 * Make the samples of all records, on several threads.  length[n] and sink may be NULL; a bad
 * record is an error unless bad ones are skipped, or there is a sink.
 */
int data_source_survey(const struct data_source *d, int32_t *length, struct data_stats *stats,
                       const struct scan_sink *sink, struct ckpt_err *err);

#endif
