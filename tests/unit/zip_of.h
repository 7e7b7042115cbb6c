/*
 * zip_of - zip archives in memory, made from a table: also those that nobody should read.
 */
#ifndef CKPT_TESTS_UNIT_ZIP_OF_H
#define CKPT_TESTS_UNIT_ZIP_OF_H

#include "tests/unit/unit.h"

#include <zlib.h>

#include "libckpt/base/buf.h"

/* A member to build, and how its headers lie. */
struct part {
    const char *name, *data;
    const char *local_name;         /* NULL: the same */
    unsigned    flags;
    const char *before;             /* bytes in front of its local header, or NULL */
    bool        zip64;              /* sizes in a zip64 block, here and in the directory */
    int         local_size;         /* added to the local header's size */
    unsigned    skip_descriptor;
};

static inline void u16(struct ckpt_buf *b, unsigned v) { ckpt_buf_put_u16le(b, (uint16_t)v); }
static inline void u32(struct ckpt_buf *b, size_t v) { ckpt_buf_put_u32le(b, (uint32_t)v); }

static inline void put_zip64(struct ckpt_buf *b, uint64_t size)
{
    u16(b, 1);
    u16(b, 16);
    ckpt_buf_put_u64le(b, size);
    ckpt_buf_put_u64le(b, size);
}

static inline void put_local(struct ckpt_buf *b, const struct part *p, uint32_t crc)
{
    const char *name = p->local_name ? p->local_name : p->name;
    size_t size = strlen(p->data);
    bool later = p->flags & 8;

    u32(b, 0x04034b50);
    u16(b, 0);
    u16(b, p->flags);
    u16(b, 0);
    u32(b, 0);
    u32(b, later ? 0 : crc);
    for (int k = 0; k < 2; k++)
        u32(b, p->zip64 ? 0xffffffffu : later ? 0 : size + (size_t)p->local_size);
    u16(b, (unsigned)strlen(name));
    u16(b, p->zip64 ? 20 : 0);
    ckpt_buf_put_str(b, name);
    if (p->zip64)
        put_zip64(b, size + (size_t)p->local_size);
    ckpt_buf_put_str(b, p->data);
    if (later && !p->skip_descriptor) {
        u32(b, 0x08074b50);
        u32(b, crc);
        u32(b, size);
        u32(b, size);
    }
}

/* Append an archive of those members; its offsets count from where it begins. */
static inline void zip_of(struct ckpt_buf *b, const struct part *p, size_t n)
{
    size_t at[8], dir, base = b->len;
    uint32_t crc[8];

    for (size_t i = 0; i < n; i++) {
        ckpt_buf_put_str(b, p[i].before ? p[i].before : "");
        at[i] = b->len - base;
        crc[i] = (uint32_t)crc32_z(0, (const unsigned char *)p[i].data, strlen(p[i].data));
        put_local(b, &p[i], crc[i]);
    }
    dir = b->len;
    for (size_t i = 0; i < n; i++) {
        u32(b, 0x02014b50);
        u32(b, 0);
        u16(b, p[i].flags);
        u16(b, 0);
        u32(b, 0);
        u32(b, crc[i]);
        for (int k = 0; k < 2; k++)
            u32(b, p[i].zip64 ? 0xffffffffu : strlen(p[i].data));
        u16(b, (unsigned)strlen(p[i].name));
        u16(b, p[i].zip64 ? 20 : 0);
        u16(b, 0);
        u32(b, 0);
        u32(b, 0);
        u32(b, at[i]);
        ckpt_buf_put_str(b, p[i].name);
        if (p[i].zip64)
            put_zip64(b, strlen(p[i].data));
    }
    u32(b, 0x06054b50);
    u32(b, 0);
    u16(b, (unsigned)n);
    u16(b, (unsigned)n);
    u32(b, b->len - 12 - dir);
    u32(b, dir - base);
    u16(b, 0);
}

#endif
