/* source - what the rooms that make up a source of samples share; see stream.h. */
#ifndef CKPT_DATA_SOURCE_H
#define CKPT_DATA_SOURCE_H

#include "trainer/data/stream.h"
#include "trainer/data/template.h"

struct data_source {
    struct records         *records;
    const struct tokenizer *tok;
    struct data_opts        o;
    enum data_kind          kind;
    json_t                 *mapping;                /* field -> column, or NULL */
    struct template        *prompt, *completion;    /* DATA_TEXT: completion alone */
    int64_t                 n;
    int64_t                *keep;       /* [n] record of each sample; NULL: all records */
    int32_t                *length;     /* [n] after a scan */
    struct data_stats       stats;
};

/* Sample of record i, which may be one that a scan left out. */
int data_source_make(const struct data_source *d, int64_t i, struct sample *s,
                     struct ckpt_err *err);

#endif
