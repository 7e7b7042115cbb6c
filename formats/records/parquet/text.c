/* parquet/text - see parquet/text.h. */
#include "formats/records/parquet/text.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/half.h"
#include "libckpt/base/json.h"

#define MAX_DECIMAL  64                 /* bytes; other readers stop at 256 bits */
#define JULIAN_EPOCH 2440588            /* the Julian day of 1970-01-01 */

static void put_bytes(struct ckpt_buf *out, const unsigned char *b, size_t n)
{
    unsigned char coded[65];            /* of 48 bytes, and a NUL */

    ckpt_buf_put_str(out, "{\"b64\":\"");
    for (size_t i = 0; i < n; i += 48)
        ckpt_buf_put(out, coded,
                     (size_t)EVP_EncodeBlock(coded, b + i, n - i < 48 ? (int)(n - i) : 48));
    ckpt_buf_put_str(out, "\"}");
}

/* The shortest digits that read back to the same bits, written so that it is not an integer. */
static void put_real(struct ckpt_buf *out, double v)
{
    char text[40];

    if (!isfinite(v)) {
        ckpt_buf_put_str(out, isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    ckpt_buf_put_str(out, text);
    if (!strpbrk(text, ".e"))
        ckpt_buf_put_str(out, ".0");
}

static void put_int(struct ckpt_buf *out, int64_t v)
{
    char text[24];
    size_t at = sizeof text;
    uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v;

    do {
        text[--at] = (char)('0' + u % 10);
        u /= 10;
    } while (u > 0);
    if (v < 0)
        text[--at] = '-';
    ckpt_buf_put(out, text + at, sizeof text - at);
}

/* Big-endian two's complement with a decimal point. */
static void put_decimal(struct ckpt_buf *out, const unsigned char *bytes, size_t n, int32_t scale)
{
    unsigned char b[MAX_DECIMAL];
    char text[MAX_DECIMAL * 3 + 128];
    size_t at = sizeof text;
    bool negative = n > 0 && bytes[0] & 0x80, more;
    unsigned carry = 1;

    for (size_t i = n; i-- > 0;) {
        unsigned v = negative ? (unsigned)(unsigned char)~bytes[i] + carry : bytes[i];

        b[i] = (unsigned char)v;
        carry = v >> 8;
    }
    text[--at] = '"';
    for (int32_t digits = 0;; digits++) {
        unsigned rest = 0;

        if (digits == scale && scale > 0)
            text[--at] = '.';
        more = false;
        for (size_t i = 0; i < n; i++) {        /* one long division by ten */
            unsigned v = rest << 8 | b[i];

            b[i] = (unsigned char)(v / 10);
            rest = v % 10;
            more |= b[i] != 0;
        }
        text[--at] = (char)('0' + rest);
        if (!more && digits >= scale)
            break;
    }
    if (negative)
        text[--at] = '-';
    text[--at] = '"';
    ckpt_buf_put(out, text + at, sizeof text - at);
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static int64_t floor_rest(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

/* The date that many days after 1970-01-01 in the proleptic Gregorian calendar. */
static int put_date(char *dst, size_t size, int64_t days)
{
    int64_t z = days + 719468, era = floor_div(z, 146097), day = z - era * 146097,
            year = (day - day / 1460 + day / 36524 - day / 146096) / 365, of_year, month;

    of_year = day - (365 * year + year / 4 - year / 100);
    month = (5 * of_year + 2) / 153;
    day = of_year - (153 * month + 2) / 5 + 1;
    month += month < 10 ? 3 : -9;
    year += 400 * era + (month <= 2);
    return snprintf(dst, size, "%04lld-%02lld-%02lld", (long long)year, (long long)month,
                    (long long)day);
}

/* Seconds of a day and nanoseconds. */
static void put_clock(char *dst, size_t size, int64_t s, int64_t nanos)
{
    int n = snprintf(dst, size, "%02lld:%02lld:%02lld", (long long)(s / 3600),
                     (long long)(s / 60 % 60), (long long)(s % 60));

    if (nanos % 1000)
        snprintf(dst + n, size - (size_t)n, ".%09lld", (long long)nanos);
    else if (nanos)
        snprintf(dst + n, size - (size_t)n, ".%06lld", (long long)(nanos / 1000));
}

static void put_stamp(struct ckpt_buf *out, int64_t seconds, int64_t nanos, bool utc)
{
    int64_t days = floor_div(seconds, 86400);
    char text[96];
    int n = put_date(text, sizeof text, days);

    text[n++] = 'T';
    put_clock(text + n, sizeof text - (size_t)n, floor_rest(seconds, 86400), nanos);
    ckpt_buf_printf(out, "\"%s%s\"", text, utc ? "+00:00" : "");
}

/* A count of units since 1970, or since midnight. */
static void put_time(struct ckpt_buf *out, const struct pq_node *leaf, int64_t v)
{
    int64_t unit = leaf->digits == 3 ? 1000 : leaf->digits == 6 ? 1000000 : 1000000000,
            seconds = floor_div(v, unit), nanos = floor_rest(v, unit) * (1000000000 / unit);
    char text[64];

    if (leaf->meaning == PQ_TIMESTAMP) {
        put_stamp(out, seconds, nanos, leaf->utc);
    } else {
        put_clock(text, sizeof text, seconds, nanos);
        ckpt_buf_printf(out, "\"%s\"", text);
    }
}

static uint32_t le32(const unsigned char *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* INT96: u64 nanoseconds of the day and u32 Julian day, which Hive and Spark wrote. */
static void put_int96(struct ckpt_buf *out, const unsigned char *b)
{
    int64_t nanos = (int64_t)(le32(b) | (uint64_t)le32(b + 4) << 32),
            seconds = floor_div(nanos, 1000000000);

    put_stamp(out, ((int64_t)le32(b + 8) - JULIAN_EPOCH) * 86400 + seconds,
              floor_rest(nanos, 1000000000), false);
}

static void put_uuid(struct ckpt_buf *out, const unsigned char *b)
{
    ckpt_buf_put_u8(out, '"');
    for (size_t i = 0; i < 16; i++)
        ckpt_buf_printf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
    ckpt_buf_put_u8(out, '"');
}

static void put_unsigned(struct ckpt_buf *out, const struct pq_node *leaf, int64_t v)
{
    if (leaf->type == PQ_INT32)
        put_int(out, (int64_t)(uint32_t)v);
    else if (v >= 0)
        put_int(out, v);
    else
        ckpt_buf_printf(out, "\"%llu\"", (unsigned long long)v);
}

static void put_decimal_value(struct ckpt_buf *out, const struct pq_node *leaf,
                              const struct pq_value *v)
{
    unsigned char b[8];

    if (leaf->type == PQ_INT32 || leaf->type == PQ_INT64) {
        for (size_t i = 0; i < 8; i++)
            b[i] = (unsigned char)((uint64_t)v->i >> (56 - 8 * i));
        put_decimal(out, b, 8, leaf->scale);
    } else if (v->len <= MAX_DECIMAL) {
        put_decimal(out, v->bytes, v->len, leaf->scale);
    } else {
        put_bytes(out, v->bytes, v->len);
    }
}

static void put_plain(struct ckpt_buf *out, const struct pq_node *leaf, const struct pq_value *v)
{
    switch (leaf->type) {
    case PQ_BOOLEAN: ckpt_buf_put_str(out, v->i ? "true" : "false"); break;
    case PQ_INT32: case PQ_INT64: put_int(out, v->i); break;
    case PQ_FLOAT: case PQ_DOUBLE: put_real(out, v->d); break;
    case PQ_INT96: put_int96(out, v->bytes); break;
    case PQ_BYTE_ARRAY: case PQ_FIXED: put_bytes(out, v->bytes, v->len); break;
    }
}

void pq_text(struct ckpt_buf *out, const struct pq_node *leaf, const struct pq_value *v)
{
    char date[40];

    switch (leaf->meaning) {
    case PQ_TEXT: ckpt_json_put_string(out, (const char *)v->bytes, v->len); break;
    case PQ_UNSIGNED: put_unsigned(out, leaf, v->i); break;
    case PQ_DECIMAL: put_decimal_value(out, leaf, v); break;
    case PQ_DATE:
        put_date(date, sizeof date, v->i);
        ckpt_buf_printf(out, "\"%s\"", date);
        break;
    case PQ_TIME: case PQ_TIMESTAMP: put_time(out, leaf, v->i); break;
    case PQ_UUID: put_uuid(out, v->bytes); break;
    case PQ_HALF: put_real(out, ckpt_f16_to_f32((uint16_t)(v->bytes[0] | v->bytes[1] << 8))); break;
    case PQ_INTERVAL:
        ckpt_buf_printf(out, "{\"months\":%u,\"days\":%u,\"milliseconds\":%u}", le32(v->bytes),
                        le32(v->bytes + 4), le32(v->bytes + 8));
        break;
    case PQ_NOTHING: ckpt_buf_put_str(out, "null"); break;
    case PQ_PLAIN: put_plain(out, leaf, v); break;
    }
}
