/*
 * json/scan - where the values of a JSON text lie, found in one pass and without reading them.
 *
 * Only brackets, quotes and separators are looked at, so a file larger than memory is indexed
 * at the speed of the disk; what lies between is proved by the parser when a value is read.
 */
#ifndef CKPT_FORMATS_RECORDS_JSON_SCAN_H
#define CKPT_FORMATS_RECORDS_JSON_SCAN_H

#include "libckpt/file.h"

/* Bytes [at, at + n) of the file. */
struct json_span { uint64_t at, n; };

struct json_scan {
    const struct ckpt_file *file;
    unsigned char          *block;
    uint64_t                first;      /* file offset of block[0] */
    size_t                  have, i;    /* bytes in block; the one looked at */
    uint64_t                size;
    struct ckpt_err        *err;
    int                     rc;         /* 0, or of the first failure, which ends everything */
};

/* Begins after a byte order mark.  err is kept. */
int json_scan_open(struct json_scan *s, const struct ckpt_file *file, struct ckpt_err *err);
void json_scan_close(struct json_scan *s);
/* The next visible byte, not stepped over; -1 at the end of the file or after a failure. */
int json_scan_peek(struct json_scan *s);
uint64_t json_scan_at(const struct json_scan *s);
/* Step over a visible byte, which must be this one. */
int json_scan_expect(struct json_scan *s, char c);
/* Step over one value of any kind. */
int json_scan_value(struct json_scan *s, struct json_span *out);
/* Inside an array or object, after a value: over the comma (*more) or the closing byte. */
int json_scan_next(struct json_scan *s, char close, bool *more);

#endif
