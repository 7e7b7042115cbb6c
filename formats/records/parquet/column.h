/*
 * parquet/column - the entries of a column chunk, one at a time: levels, and a value where they
 * say that there is one.  Held are one page and the dictionary, whatever the chunk's size.
 */
#ifndef CKPT_FORMATS_RECORDS_PARQUET_COLUMN_H
#define CKPT_FORMATS_RECORDS_PARQUET_COLUMN_H

#include "formats/records/parquet/bits.h"
#include "formats/records/parquet/page.h"

/* A value as its physical type has it. */
struct pq_value {
    int64_t              i;             /* BOOLEAN, INT32, INT64 */
    double               d;             /* FLOAT, DOUBLE */
    const unsigned char *bytes;         /* INT96, BYTE_ARRAY, FIXED; valid until the next peek */
    size_t               len;
};

struct pq_column {
    const struct pq_node *leaf;
    struct pq_pages       pages;
    uint64_t              left;         /* entries after this page */
    uint64_t              in_page;      /* entries of this page that are left */
    struct pq_hybrid      reps, defs;
    uint32_t              rep, def;     /* of the entry in front, after a peek */
    bool                  there;        /* an entry was peeked at and not taken */
    /* Values of the page. */
    int                   encoding;
    struct ckpt_cursor    plain;        /* also the bytes of what lengths tell */
    uint64_t              bit;          /* of packed booleans */
    struct pq_hybrid      index;        /* in the dictionary; booleans */
    struct pq_delta       delta, suffix;
    uint64_t              split, n_split;
    unsigned char        *last;         /* the value before, of what is told by prefixes */
    size_t                last_len, last_cap;
    /* The dictionary. */
    unsigned char        *dictionary;
    size_t                dictionary_cap, n_entry;
    struct pq_entry      *entry;        /* of BYTE_ARRAY; else entries have one width */
    const unsigned char  *entries;
};

/* The values of leaf number i in a row group; memory is counted in *memory. */
void pq_column_open(struct pq_column *c, const struct pq_file *file, const struct pq_group *group,
                    size_t i, uint64_t *memory);
void pq_column_close(struct pq_column *c);
/* Look at the next entry: c->rep, c->def.  *end when there is none. */
int pq_column_peek(struct pq_column *c, bool *end, struct ckpt_err *err);
/* Take the entry that was looked at; v is filled in when it has a value (def as the leaf's). */
int pq_column_take(struct pq_column *c, struct pq_value *v, struct ckpt_err *err);
/* Leave out n rows, whole pages of them unread where a row is one value.  A chunk that ends within
 * them is no error here: the next peek tells. */
int pq_column_skip(struct pq_column *c, uint64_t n, struct ckpt_err *err);

#endif
