/*
 * made_archive - a torch archive around a pickle.
 *
 * With the checksums and the storages that the pickle asks for: by chance no change of a pickle
 * would come past its checksum.
 */
#ifndef CKPT_TESTS_FUZZ_LIB_MADE_ARCHIVE_H
#define CKPT_TESTS_FUZZ_LIB_MADE_ARCHIVE_H

#include <stdio.h>
#include <zlib.h>

#include "formats/container/pickle/pickle.h"
#include "formats/torch/value.h"
#include "libckpt/base/buf.h"
#include "tests/fuzz/lib/target.h"

#define MAX_PAYLOAD ((uint64_t)1 << 16)

/* What every storage begins with. */
static unsigned char made_payload[MAX_PAYLOAD] = {1, 2, 3, 4, 5, 6, 7, 8};

struct maker {
    struct ckpt_buf file, dir;
    uint16_t        n;
};

/* What local header and directory entry share: versions apart. */
static void put_common(struct ckpt_buf *b, const char *name, uint32_t crc, size_t n)
{
    ckpt_buf_put_u16le(b, 0);           /* flags */
    ckpt_buf_put_u16le(b, 0);           /* method */
    ckpt_buf_put_u32le(b, 0);           /* time, date */
    ckpt_buf_put_u32le(b, crc);
    ckpt_buf_put_u32le(b, (uint32_t)n);
    ckpt_buf_put_u32le(b, (uint32_t)n);
    ckpt_buf_put_u16le(b, (uint16_t)strlen(name));
    ckpt_buf_put_u16le(b, 0);           /* extra */
}

static void put_member(struct maker *m, const char *name, const void *p, size_t n)
{
    uint32_t crc = (uint32_t)crc32_z(0, p, n);
    size_t at = m->file.len;

    ckpt_buf_put_u32le(&m->file, 0x04034b50);
    ckpt_buf_put_u16le(&m->file, 20);
    put_common(&m->file, name, crc, n);
    ckpt_buf_put_str(&m->file, name);
    ckpt_buf_put(&m->file, p, n);
    ckpt_buf_put_u32le(&m->dir, 0x02014b50);
    ckpt_buf_put_u32le(&m->dir, 20 << 16 | 20);
    put_common(&m->dir, name, crc, n);
    for (int i = 0; i < 5; i++)         /* comment, disk, attributes */
        ckpt_buf_put_u16le(&m->dir, 0);
    ckpt_buf_put_u32le(&m->dir, (uint32_t)at);
    ckpt_buf_put_str(&m->dir, name);
    m->n++;
}

static void put_end(struct maker *m)
{
    uint32_t at = (uint32_t)m->file.len;

    ckpt_buf_put(&m->file, m->dir.data, m->dir.len);
    ckpt_buf_put_u32le(&m->file, 0x06054b50);
    ckpt_buf_put_u32le(&m->file, 0);
    ckpt_buf_put_u16le(&m->file, m->n);
    ckpt_buf_put_u16le(&m->file, m->n);
    ckpt_buf_put_u32le(&m->file, (uint32_t)m->dir.len);
    ckpt_buf_put_u32le(&m->file, at);
    ckpt_buf_put_u16le(&m->file, 0);
}

/* The storages that the pickle asks for, of the sizes it gives, while they are small. */
static void put_storages(struct maker *m, const uint8_t *data, size_t size)
{
    struct ckpt_arena a = {.limit = (uint64_t)256 << 20};
    struct torch_storages s = {0};
    uint64_t bytes, left = MAX_PAYLOAD;
    struct ckpt_err err = {0};
    struct ckpt_cursor c;
    struct value *v;
    char name[80];

    ckpt_cursor_init(&c, data, size);
    if (pickle_read(&v, &c, &a, NULL, &err) == 0)
        torch_value_resolve(v, &s, &a, false, &err);
    for (size_t i = 0; i < s.n && i < 1000; i++)
        if (ckpt_mul(&bytes, (uint64_t)s.item[i].numel, ckpt_dtype_size(s.item[i].dtype)) &&
            bytes <= left) {
            snprintf(name, sizeof name, "a/data/%s", s.item[i].key);
            put_member(m, name, made_payload, (size_t)bytes);
            left -= bytes;
        }
    torch_storages_release(&s);
    ckpt_arena_release(&a);
}

/* Released by release_archive, whatever became of it. */
static bool make_archive(struct maker *m, const uint8_t *data, size_t size, bool big_endian)
{
    ckpt_buf_init(&m->file, (size_t)16 << 20);
    ckpt_buf_init(&m->dir, (size_t)1 << 20);
    put_member(m, "a/data.pkl", data, size);
    put_member(m, "a/version", "3", 1);
    if (big_endian)
        put_member(m, "a/byteorder", "big", 3);
    put_storages(m, data, size);
    put_end(m);
    return ckpt_buf_ok(&m->file) && ckpt_buf_ok(&m->dir);
}

static void release_archive(struct maker *m)
{
    ckpt_buf_release(&m->file);
    ckpt_buf_release(&m->dir);
}

#endif
