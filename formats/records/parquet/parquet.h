/*
 * parquet - what a parquet file says of itself: schema, row groups, column chunks.
 *
 * Source: apache/parquet-format, parquet.thrift and LogicalTypes.md, 2.12.
 *
 *   "PAR1"
 *   ...     pages of column chunks
 *   ...     FileMetaData (thrift)
 *   u32 LE  its length
 *   "PAR1"  ("PARE": encrypted)
 *
 * A column of values is a leaf of the schema tree.  Each value has a definition level, how many
 * of the optional and repeated nodes on its path are there, and a repetition level, which
 * repeated node it begins anew.  A node is told here as what it means, not as it is spelt: a
 * LIST is its elements, whatever the levels between them are called.
 *
 * Abbreviations: pq (parquet).
 */
#ifndef CKPT_FORMATS_RECORDS_PARQUET_PARQUET_H
#define CKPT_FORMATS_RECORDS_PARQUET_PARQUET_H

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "libckpt/file.h"

#define PQ_MAX_FOOTER ((uint64_t)256 << 20)     /* bytes */
#define PQ_MAX_DEPTH  32                        /* levels of nesting */
#define PQ_MAX_NODES  262144                    /* of a schema */

enum pq_type { PQ_BOOLEAN, PQ_INT32, PQ_INT64, PQ_INT96, PQ_FLOAT, PQ_DOUBLE, PQ_BYTE_ARRAY,
               PQ_FIXED };
enum pq_kind { PQ_LEAF, PQ_STRUCT, PQ_LIST, PQ_MAP };
/* What a leaf's values stand for. */
enum pq_meaning { PQ_PLAIN, PQ_TEXT, PQ_UNSIGNED, PQ_DECIMAL, PQ_DATE, PQ_TIME, PQ_TIMESTAMP,
                  PQ_UUID, PQ_HALF, PQ_INTERVAL, PQ_NOTHING };

/* A node of the schema; they lie depth first, the root at 0. */
struct pq_node {
    const char     *name;
    const char     *key;            /* as a JSON text with its colon */
    enum pq_kind    kind;
    bool            optional, repeated;
    uint8_t         def;            /* definition level from which on it is there */
    uint8_t         rep;            /* repetition level of a further value of it, if repeated;
                                       else of the repeated node around it */
    size_t          end;            /* index after its last descendant */
    size_t          leaf, leaf_end; /* leaves below it, or its own */
    size_t          element;        /* PQ_LIST: node of an element; the repeated node is the
                                       child, or element itself.  PQ_MAP: the repeated node */
    /* Of a leaf: */
    enum pq_type    type;
    int32_t         width;          /* bytes of a PQ_FIXED */
    enum pq_meaning meaning;
    int32_t         scale, precision;   /* decimals */
    uint8_t         digits;         /* of a second: 3, 6 or 9 */
    uint8_t         bits;           /* of an integer that is said to have fewer, or 0 */
    bool            utc;
};

/* The values of a leaf in a row group. */
struct pq_chunk {
    uint64_t start, bytes;          /* in the file */
    uint64_t limit;                 /* bytes from start that its pages may take */
    uint64_t raw_bytes;             /* as it says, unpacked */
    uint64_t values;                /* with nulls */
    int      codec;
    uint32_t encodings;             /* a bit each */
};

struct pq_group {
    int64_t          first, rows;
    struct pq_chunk *chunk;         /* [n_leaf] */
};

struct pq_file {
    struct ckpt_file  *file;        /* borrowed */
    struct ckpt_arena  arena;
    struct pq_node    *node;
    size_t             n_node;
    size_t            *leaf;        /* [n_leaf] their nodes */
    size_t             n_leaf;
    struct pq_group   *group;
    size_t             n_group;
    int64_t            rows;
    const char        *created_by;  /* or NULL */
    json_t            *metadata;    /* string to string; text alone, values up to 64 KiB */
};

/* The file stays yours and is needed until release. */
int pq_file_open(struct pq_file *f, struct ckpt_file *file, struct ckpt_err *err);
void pq_file_release(struct pq_file *f);

/* "INT64", "BYTE_ARRAY"; "SNAPPY"; "PLAIN"; what a leaf means: "string", "timestamp[us]", ... */
const char *pq_type_name(enum pq_type type);
const char *pq_codec_name(int codec);
const char *pq_encoding_name(int encoding);
const char *pq_meaning_name(const struct pq_node *leaf);

#endif
