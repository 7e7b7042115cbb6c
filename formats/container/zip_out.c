/* zip_out - see zip_out.h. */
#include "formats/container/zip_out.h"

#include <string.h>

#include "libckpt/base/buf.h"

#define BIG       0xffffffffu
#define HEAD_SIZE 30u           /* of a local header, without name and extra field */
#define MOST_DESCRIPTOR 24u

static bool wide(const struct zip_member *m) { return m->size >= BIG || m->header >= BIG; }

/* Bytes of the zip64 block in the local header, its own four included. */
static unsigned zip64_bytes(const struct zip_member *m)
{
    return wide(m) ? 4u + (m->size >= BIG ? 16u : 0u) + (m->header >= BIG ? 8u : 0u) : 0u;
}

static unsigned pad_bytes(const struct zip_member *m)
{
    uint64_t start = m->header + HEAD_SIZE + strlen(m->name) + zip64_bytes(m) + 4;

    return (unsigned)((ZIP_ALIGNMENT - start % ZIP_ALIGNMENT) % ZIP_ALIGNMENT);
}

static unsigned descriptor_bytes(const struct zip_member *m)
{
    return m->size == 0 ? 0u : wide(m) ? 24u : 16u;
}

uint64_t zip_layout(struct zip_member *member, size_t n)
{
    uint64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        struct zip_member *m = &member[i];

        m->header = at;
        m->data = at + HEAD_SIZE + strlen(m->name) + zip64_bytes(m) + 4 + pad_bytes(m);
        at = m->data + m->size + descriptor_bytes(m);
    }
    return at;
}

static uint16_t flags_of(const struct zip_member *m)
{
    return m->size == 0 ? 0x0800 : 0x0808;      /* UTF-8 name; sizes in a descriptor */
}

/* The zip64 block of an extra field, if there is one: what 32 bits cannot hold. */
static void put_zip64(struct ckpt_buf *b, const struct zip_member *m)
{
    unsigned n = zip64_bytes(m);

    if (n == 0)
        return;
    ckpt_buf_put_u16le(b, 1);
    ckpt_buf_put_u16le(b, (uint16_t)(n - 4));
    for (int i = 0; m->size >= BIG && i < 2; i++)
        ckpt_buf_put_u64le(b, m->size);
    if (m->header >= BIG)
        ckpt_buf_put_u64le(b, m->header);
}

static void put_head(struct ckpt_buf *b, const struct zip_member *m)
{
    unsigned pad = pad_bytes(m);

    ckpt_buf_put_u32le(b, 0x04034b50);
    ckpt_buf_put_u16le(b, 0);                   /* version needed */
    ckpt_buf_put_u16le(b, flags_of(m));
    for (int i = 0; i < 3; i++)                 /* stored; time, date */
        ckpt_buf_put_u16le(b, 0);
    for (int i = 0; i < 3; i++)                 /* crc and sizes are in the descriptor */
        ckpt_buf_put_u32le(b, 0);
    ckpt_buf_put_u16le(b, (uint16_t)strlen(m->name));
    ckpt_buf_put_u16le(b, (uint16_t)(zip64_bytes(m) + 4 + pad));
    ckpt_buf_put_str(b, m->name);
    put_zip64(b, m);
    ckpt_buf_put(b, "FB", 2);
    ckpt_buf_put_u16le(b, (uint16_t)pad);
    for (unsigned i = 0; i < pad; i++)
        ckpt_buf_put_u8(b, 'Z');
}

int zip_begin(struct ckpt_out *out, uint64_t base, const struct zip_member *member, size_t n,
              struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = 0;

    ckpt_buf_init(&b, 1u << 20);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        b.len = 0;
        put_head(&b, &member[i]);
        rc = ckpt_buf_ok(&b) ? ckpt_out_write_at(out, b.data, b.len, base + member[i].header, err)
                             : ckpt_nomem(err, b.len);
    }
    ckpt_buf_release(&b);
    return rc;
}

static void put_entry(struct ckpt_buf *b, const struct zip_member *m)
{
    ckpt_buf_put_u32le(b, 0x02014b50);
    ckpt_buf_put_u32le(b, 0);                   /* versions made by and needed */
    ckpt_buf_put_u16le(b, flags_of(m));
    for (int i = 0; i < 3; i++)                 /* stored; time, date */
        ckpt_buf_put_u16le(b, 0);
    ckpt_buf_put_u32le(b, m->crc);
    ckpt_buf_put_u32le(b, m->size >= BIG ? BIG : (uint32_t)m->size);
    ckpt_buf_put_u32le(b, m->size >= BIG ? BIG : (uint32_t)m->size);
    ckpt_buf_put_u16le(b, (uint16_t)strlen(m->name));
    ckpt_buf_put_u16le(b, (uint16_t)zip64_bytes(m));
    for (int i = 0; i < 5; i++)                 /* comment, disk, attributes */
        ckpt_buf_put_u16le(b, 0);
    ckpt_buf_put_u32le(b, m->header >= BIG ? BIG : (uint32_t)m->header);
    ckpt_buf_put_str(b, m->name);
    put_zip64(b, m);
}

static void put_end(struct ckpt_buf *b, size_t n, uint64_t directory, uint64_t bytes)
{
    uint16_t count = n >= 0xffff ? 0xffff : (uint16_t)n;

    ckpt_buf_put_u32le(b, 0x06064b50);          /* zip64 end of central directory */
    ckpt_buf_put_u64le(b, 44);
    ckpt_buf_put_u16le(b, 0x031e);
    ckpt_buf_put_u16le(b, 45);
    ckpt_buf_put_u64le(b, 0);                   /* disks */
    ckpt_buf_put_u64le(b, n);
    ckpt_buf_put_u64le(b, n);
    ckpt_buf_put_u64le(b, bytes);
    ckpt_buf_put_u64le(b, directory);
    ckpt_buf_put_u32le(b, 0x07064b50);          /* its locator */
    ckpt_buf_put_u32le(b, 0);
    ckpt_buf_put_u64le(b, directory + bytes);
    ckpt_buf_put_u32le(b, 1);
    ckpt_buf_put_u32le(b, 0x06054b50);          /* end of central directory */
    ckpt_buf_put_u32le(b, 0);
    ckpt_buf_put_u16le(b, count);
    ckpt_buf_put_u16le(b, count);
    ckpt_buf_put_u32le(b, bytes >= BIG ? BIG : (uint32_t)bytes);
    ckpt_buf_put_u32le(b, directory >= BIG ? BIG : (uint32_t)directory);
    ckpt_buf_put_u16le(b, 0);
}

uint64_t zip_total(const struct zip_member *member, size_t n, uint64_t directory)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += 46 + strlen(member[i].name) + zip64_bytes(&member[i]);
    return directory + bytes + 56 + 20 + 22;
}

/* The descriptor of a member of some bytes. */
static int put_descriptor(struct ckpt_out *out, uint64_t base, const struct zip_member *m,
                          struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc;

    ckpt_buf_init(&b, MOST_DESCRIPTOR);
    ckpt_buf_put_u32le(&b, 0x08074b50);
    ckpt_buf_put_u32le(&b, m->crc);
    for (int k = 0; k < 2; k++) {
        if (wide(m))
            ckpt_buf_put_u64le(&b, m->size);
        else
            ckpt_buf_put_u32le(&b, (uint32_t)m->size);
    }
    rc = ckpt_buf_ok(&b) ? ckpt_out_write_at(out, b.data, b.len, base + m->data + m->size, err)
                         : ckpt_nomem(err, MOST_DESCRIPTOR);
    ckpt_buf_release(&b);
    return rc;
}

int zip_end_member(struct ckpt_out *out, uint64_t base, struct zip_member *m, struct ckpt_err *err)
{
    int rc = m->size ? put_descriptor(out, base, m, err) : 0;

    m->ended = rc == 0;
    return rc;
}

int zip_finish(struct ckpt_out *out, uint64_t base, const struct zip_member *member, size_t n,
               uint64_t directory, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = 0;

    ckpt_buf_init(&b, (size_t)1 << 30);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct zip_member *m = &member[i];

        if (m->size && !m->ended)
            rc = put_descriptor(out, base, m, err);
    }
    for (size_t i = 0; i < n; i++)
        put_entry(&b, &member[i]);
    put_end(&b, n, directory, b.len);
    if (rc == 0)
        rc = ckpt_buf_ok(&b) ? ckpt_out_write_at(out, b.data, b.len, base + directory, err)
                             : ckpt_nomem(err, b.len);
    ckpt_buf_release(&b);
    return rc;
}
