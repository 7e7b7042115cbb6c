/*
 * torch_file - what targets over torch files share.
 *
 * Bytes that begin as an archive or as a legacy stream are the file.  All others are a pickle,
 * and an archive is made around it, with the checksums and the storages that it asks for: by
 * chance no change of a pickle would come past its checksum.
 */
#ifndef CKPT_FUZZ_TORCH_FILE_H
#define CKPT_FUZZ_TORCH_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "formats/container/pickle.h"
#include "formats/place.h"
#include "formats/weights/torch_legacy.h"
#include "formats/weights/torch_tar.h"

#define MAX_PAYLOAD ((uint64_t)1 << 16)

/* -- an archive around a pickle -------------------------------------------------------------- */

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
    static const unsigned char payload[MAX_PAYLOAD] = {1, 2, 3, 4, 5, 6, 7, 8};
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
            put_member(m, name, payload, (size_t)bytes);
            left -= bytes;
        }
    torch_storages_release(&s);
    ckpt_arena_release(&a);
}

static void make_archive(struct maker *m, const uint8_t *data, size_t size)
{
    ckpt_buf_init(&m->file, (size_t)16 << 20);
    ckpt_buf_init(&m->dir, (size_t)1 << 20);
    put_member(m, "a/data.pkl", data, size);
    put_member(m, "a/version", "3", 1);
    if (size % 4 == 1)
        put_member(m, "a/byteorder", "big", 3);
    put_storages(m, data, size);
    put_end(m);
}

/* -- what is done with it -------------------------------------------------------------------- */

static void read_tensors(struct ckpt_source *src)
{
    struct ckpt_err err = {0};
    unsigned char bytes[4096];

    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        int64_t n = t->numel < 128 ? t->numel : 128;

        if (n > 0 && ckpt_dtype_size(t->dtype) > 0) {
            ckpt_source_read(src, i, 0, n, bytes, &err);
            ckpt_source_read(src, i, t->numel - n, n, bytes, &err);
        }
    }
}

/* As a source of tensors, strictly. */
static void load(const struct ckpt_format *format, const uint8_t *data, size_t size)
{
    static const struct ckpt_open_opts none;
    struct ckpt_source *src = NULL;
    struct ckpt_err err = {0};
    struct ckpt_place place;
    struct ckpt_file *file;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err) || place_of_file(&place, file, &err))
        return;
    if (format->open(&src, &place, &none, &err) == 0)
        read_tensors(src);
    else if (!err.text[0])
        abort();
    ckpt_source_close(src);
    place_close(&place);
}

/* As something to look at. */
static void look(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    struct torch_archive *a;
    struct ckpt_file *file;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err) ||
        torch_archive_open_any(&a, file, &err))
        return;
    json_decref(value_to_json(torch_archive_root(a), 1000));
    torch_archive_verify(a, &err);
    torch_archive_close(a);
}

/* The whole of a target: format opens what the bytes are, or what is made around them. */
static int fuzz_torch_file(const struct ckpt_format *format, const uint8_t *data, size_t size)
{
    struct maker m = {0};

    if ((size >= 4 && memcmp(data, "PK\3\4", 4) == 0) || torch_legacy_is(data, size) ||
        torch_tar_is(data, size)) {
        load(format, data, size);
        look(data, size);
        return 0;
    }
    make_archive(&m, data, size);
    if (ckpt_buf_ok(&m.file) && ckpt_buf_ok(&m.dir)) {
        load(format, m.file.data, m.file.len);
        look(m.file.data, m.file.len);
    }
    ckpt_buf_release(&m.file);
    ckpt_buf_release(&m.dir);
    return 0;
}

#endif
