/*
 * parquet/page - the pages of a column chunk, one after another, unpacked.
 *
 * A page is a thrift PageHeader and its body.  Version 1: everything packed, levels with their
 * length in front (u32 LE), then values.  Version 2: levels bare and without lengths, then
 * values, packed or not.  Levels are hybrid runs (parquet/bits.h).
 */
#ifndef CKPT_FORMATS_RECORDS_PARQUET_PAGE_H
#define CKPT_FORMATS_RECORDS_PARQUET_PAGE_H

#include "formats/records/parquet/parquet.h"

#define PQ_MAX_PAGE   ((uint64_t)1 << 30)       /* bytes, unpacked */
#define PQ_EASY_PAGE  ((uint64_t)64 << 20)      /* larger ones must be so in the file too: */
#define PQ_MAX_RATIO  1100                      /* unpacked to packed, deflate's largest */
#define PQ_MAX_MEMORY ((uint64_t)4 << 30)       /* bytes of pages held at once */

enum pq_encoding { PQ_ENC_PLAIN = 0, PQ_ENC_PLAIN_DICTIONARY = 2, PQ_ENC_RLE, PQ_ENC_BIT_PACKED,
                   PQ_ENC_DELTA, PQ_ENC_DELTA_LENGTH, PQ_ENC_DELTA_BYTES, PQ_ENC_RLE_DICTIONARY,
                   PQ_ENC_SPLIT };

struct pq_page {
    bool                 dictionary;
    uint64_t             values;        /* with nulls */
    int                  encoding;
    const unsigned char *rep, *def, *data;      /* valid until the next page */
    size_t               rep_len, def_len, data_len;
};

/* Where a chunk is read.  Zeroed but for its first four. */
struct pq_pages {
    const struct pq_file  *file;
    const struct pq_node  *leaf;
    const struct pq_chunk *chunk;
    uint64_t              *memory;      /* bytes held by all columns that are read together */
    uint64_t               at;          /* bytes of the chunk read */
    unsigned char         *raw, *packed;
    size_t                 raw_cap, packed_cap;
    unsigned char         *head;
    size_t                 head_cap;
};

/* The next data or dictionary page; *got false at the chunk's end. */
int pq_pages_next(struct pq_pages *p, struct pq_page *page, bool *got, struct ckpt_err *err);
/* Go past data pages of `most` values together at most, without reading their bodies; *passed is
 * the number of their values.  Stops before a dictionary. */
int pq_pages_pass(struct pq_pages *p, uint64_t most, uint64_t *passed, struct ckpt_err *err);
/* The last page's bytes are the caller's from now on: *cap of them, ckpt_free them. */
unsigned char *pq_pages_take(struct pq_pages *p, size_t *cap);
void pq_pages_release(struct pq_pages *p);

#endif
