/*
 * parquet/codec - pages packed by parquet's codecs, unpacked by the libraries that know them.
 *
 * The size that a page header declares is the size that must come out: never more is written,
 * and less is an error.
 */
#ifndef CKPT_FORMATS_RECORDS_PARQUET_CODEC_H
#define CKPT_FORMATS_RECORDS_PARQUET_CODEC_H

#include <stddef.h>

#include "libckpt/fail.h"

enum pq_codec { PQ_RAW, PQ_SNAPPY, PQ_GZIP, PQ_LZO, PQ_BROTLI, PQ_LZ4, PQ_ZSTD, PQ_LZ4_RAW };

/* Exactly m bytes into dst.  CKPT_EUNSUPPORTED for a codec that is not known here. */
int pq_unpack(int codec, unsigned char *dst, size_t m, const unsigned char *src, size_t n,
              struct ckpt_err *err);

#endif
