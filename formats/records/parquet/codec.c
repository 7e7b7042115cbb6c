/* parquet/codec - see parquet/codec.h. */
#include "formats/records/parquet/codec.h"

#include <brotli/decode.h>
#include <lz4.h>
#include <snappy-c.h>
#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "formats/records/parquet/parquet.h"

static bool unpack_snappy(unsigned char *dst, size_t m, const unsigned char *src, size_t n)
{
    size_t len = m, says;

    return snappy_uncompressed_length((const char *)src, n, &says) == SNAPPY_OK && says == m &&
           snappy_uncompress((const char *)src, n, (char *)dst, &len) == SNAPPY_OK && len == m;
}

/* gzip, zlib or several concatenated gzip members. */
static bool unpack_gzip(unsigned char *dst, size_t m, const unsigned char *src, size_t n)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)src, .avail_in = (uInt)n, .next_out = dst,
                  .avail_out = (uInt)m};
    int rc;

    if (n > UINT32_MAX || m > UINT32_MAX || inflateInit2(&z, 15 + 32) != Z_OK)
        return false;
    do {
        rc = inflate(&z, Z_FINISH);
    } while (rc == Z_STREAM_END && z.avail_in > 0 && z.avail_out > 0 &&
             inflateReset(&z) == Z_OK);
    inflateEnd(&z);
    return rc == Z_STREAM_END && z.avail_out == 0;
}

static bool unpack_brotli(unsigned char *dst, size_t m, const unsigned char *src, size_t n)
{
    size_t len = m;

    return BrotliDecoderDecompress(n, src, &len, dst) == BROTLI_DECODER_RESULT_SUCCESS &&
           len == m;
}

static bool unpack_block(unsigned char *dst, size_t m, const unsigned char *src, size_t n)
{
    return n <= INT32_MAX && m <= INT32_MAX &&
           LZ4_decompress_safe((const char *)src, (char *)dst, (int)n, (int)m) == (int)m;
}

static uint32_t be32(const unsigned char *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | (uint32_t)b[3];
}

/* Hadoop's frames: for each block u32 BE unpacked and packed size.  Some writers omit them. */
static bool unpack_lz4(unsigned char *dst, size_t m, const unsigned char *src, size_t n)
{
    size_t at = 0, out = 0;

    while (n - at >= 8) {
        size_t raw = be32(src + at), packed = be32(src + at + 4);

        if (packed > n - at - 8 || raw > m - out ||
            !unpack_block(dst + out, raw, src + at + 8, packed))
            break;
        at += 8 + packed;
        out += raw;
    }
    return (at == n && out == m) || unpack_block(dst, m, src, n);
}

static bool unpack_zstd(unsigned char *dst, size_t m, const unsigned char *src, size_t n)
{
    return ZSTD_decompress(dst, m, src, n) == m;
}

int pq_unpack(int codec, unsigned char *dst, size_t m, const unsigned char *src, size_t n,
              struct ckpt_err *err)
{
    bool good;

    switch (codec) {
    case PQ_RAW:
        good = n == m;
        if (good && m > 0)
            memcpy(dst, src, m);
        break;
    case PQ_SNAPPY: good = unpack_snappy(dst, m, src, n); break;
    case PQ_GZIP: good = unpack_gzip(dst, m, src, n); break;
    case PQ_BROTLI: good = unpack_brotli(dst, m, src, n); break;
    case PQ_LZ4: good = unpack_lz4(dst, m, src, n); break;
    case PQ_ZSTD: good = unpack_zstd(dst, m, src, n); break;
    case PQ_LZ4_RAW: good = unpack_block(dst, m, src, n); break;
    default:
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "a page is packed with codec %d (%s)", codec,
                         pq_codec_name(codec));
    }
    return good ? 0 : ckpt_fail(err, CKPT_EFORMAT, "%zu bytes do not unpack to %zu with %s", n, m,
                                pq_codec_name(codec));
}
