/*
 * fuzz_zip: any bytes as an archive: members inside the file, apart from each other, found under
 * their names; or a refusal.
 *
 * Bytes that do not begin as an archive are orders to make one: sizes, places and copies of them
 * must agree in so many places that no change of single bytes would.
 */
#include <zlib.h>

#include "formats/container/zip.h"
#include "libckpt/base/buf.h"
#include "tests/fuzz/lib/target.h"

/* -- an archive by orders -------------------------------------------------------------------- */

/* What is so, or a lie, about the member in work: bits of an order. */
enum {
    DESCRIPTOR = 1, LONG_DESCRIPTOR = 2, DIR64 = 4, LOCAL64 = 8, LOCAL_ZERO = 16,
    GAP = 32, LIE_CRC = 64, LIE_SIZE = 128, LIE_NAME = 256, HEADER64 = 512, EXTRA = 1024,
    DEFLATED = 2048, LIE_OFFSET = 4096, TWO_EXTRAS = 8192
};

struct maker {
    struct ckpt_buf file, dir;
    uint16_t        n;
};

static void put_fields(struct ckpt_buf *b, unsigned what, uint32_t crc, uint32_t size, bool big,
                       size_t n_name, size_t n_extra)
{
    ckpt_buf_put_u16le(b, what & DESCRIPTOR ? 8 : 0);
    ckpt_buf_put_u16le(b, what & DEFLATED ? 8 : 0);
    ckpt_buf_put_u32le(b, 0);
    ckpt_buf_put_u32le(b, crc);
    ckpt_buf_put_u32le(b, big ? 0xffffffff : size);
    ckpt_buf_put_u32le(b, big ? 0xffffffff : size);
    ckpt_buf_put_u16le(b, (uint16_t)n_name);
    ckpt_buf_put_u16le(b, (uint16_t)n_extra);
}

static void put_extra(struct ckpt_buf *b, const struct ckpt_buf *sizes)
{
    ckpt_buf_put_u16le(b, 1);
    ckpt_buf_put_u16le(b, (uint16_t)sizes->len);
    ckpt_buf_put(b, sizes->data, sizes->len);
}

static void put_local(struct maker *m, unsigned what, const char *name, const uint8_t *p,
                      uint32_t size, uint32_t crc)
{
    bool zero = what & LOCAL_ZERO, big = !zero && (what & LOCAL64);

    ckpt_buf_put_u32le(&m->file, 0x04034b50);
    ckpt_buf_put_u16le(&m->file, 20);
    put_fields(&m->file, what & ~DEFLATED, zero ? 0 : crc, zero ? 0 : size, big, strlen(name),
               big ? 20 : 0);
    ckpt_buf_put_str(&m->file, name);
    if (big) {
        ckpt_buf_put_u32le(&m->file, 0x00100001);
        ckpt_buf_put_u64le(&m->file, size);
        ckpt_buf_put_u64le(&m->file, size);
    }
    ckpt_buf_put(&m->file, p, size);
    if (!(what & DESCRIPTOR))
        return;
    ckpt_buf_put_u32le(&m->file, 0x08074b50);
    ckpt_buf_put_u32le(&m->file, crc);
    for (int i = 0; i < 2; i++)
        if (what & LONG_DESCRIPTOR)
            ckpt_buf_put_u64le(&m->file, size);
        else
            ckpt_buf_put_u32le(&m->file, size);
}

static void put_member(struct maker *m, unsigned what, const char *name, const uint8_t *p,
                       uint32_t size)
{
    uint32_t crc = (uint32_t)crc32_z(0, p, size) ^ (what & LIE_CRC ? 1 : 0);
    uint32_t told = size + (what & LIE_SIZE ? 1 : 0);
    struct ckpt_buf extra;
    size_t at = m->file.len + (what & GAP ? 3 : 0), n_extra;

    if (what & GAP)
        ckpt_buf_put(&m->file, "gap", 3);
    put_local(m, what, name, p, size, crc);
    ckpt_buf_init(&extra, 64);
    if (what & DIR64) {
        ckpt_buf_put_u64le(&extra, told);
        ckpt_buf_put_u64le(&extra, told);
    }
    if (what & HEADER64)
        ckpt_buf_put_u64le(&extra, at);
    n_extra = (extra.len || (what & EXTRA) ? 4 + extra.len : 0) * (what & TWO_EXTRAS ? 2 : 1);
    ckpt_buf_put_u32le(&m->dir, 0x02014b50);
    ckpt_buf_put_u32le(&m->dir, 0);
    put_fields(&m->dir, what, crc, told, what & DIR64, strlen(name), n_extra);
    for (int i = 0; i < 5; i++)
        ckpt_buf_put_u16le(&m->dir, 0);
    ckpt_buf_put_u32le(&m->dir, what & HEADER64 ? 0xffffffff
                                                : (uint32_t)at - (what & LIE_OFFSET ? 1 : 0));
    ckpt_buf_put_str(&m->dir, what & LIE_NAME ? "a/lie" : name);
    for (size_t i = 0; i < n_extra / (4 + extra.len); i++)
        put_extra(&m->dir, &extra);
    ckpt_buf_release(&extra);
    m->n++;
}

static void put_end(struct maker *m, unsigned what)
{
    uint64_t at = m->file.len, end;

    ckpt_buf_put(&m->file, m->dir.data, m->dir.len);
    end = m->file.len;
    if (what & 1) {
        ckpt_buf_put_u32le(&m->file, 0x06064b50);
        ckpt_buf_put_u64le(&m->file, 44);
        ckpt_buf_put_u32le(&m->file, 0);
        ckpt_buf_put_u64le(&m->file, 0);
        ckpt_buf_put_u64le(&m->file, m->n + (what & 2 ? 1 : 0));
        ckpt_buf_put_u64le(&m->file, m->n + (what & 4 ? 1 : 0));
        ckpt_buf_put_u64le(&m->file, m->dir.len);
        ckpt_buf_put_u64le(&m->file, at - (what & 8 ? 1 : 0));
        ckpt_buf_put_u32le(&m->file, 0x07064b50);
        ckpt_buf_put_u32le(&m->file, 0);
        ckpt_buf_put_u64le(&m->file, end + (what & 16 ? 1 : 0));
        ckpt_buf_put_u32le(&m->file, 1);
    }
    ckpt_buf_put_u32le(&m->file, 0x06054b50);
    ckpt_buf_put_u32le(&m->file, 0);
    ckpt_buf_put_u16le(&m->file, m->n);
    ckpt_buf_put_u16le(&m->file, m->n);
    ckpt_buf_put_u32le(&m->file, (uint32_t)m->dir.len);
    ckpt_buf_put_u32le(&m->file, (uint32_t)at);
    ckpt_buf_put_u16le(&m->file, what & 32 ? 1 : 0);
}

/* One byte for the end, then for each member three: what (two), name and size. */
static void make_archive(struct maker *m, const uint8_t *data, size_t size)
{
    static const char *const name[] = {"a/data.pkl", "a/version", "a/data/0", "a/data/1",
                                       "A/data/1", "a/../x", "b/data/2", "a/DATA/0"};

    ckpt_buf_init(&m->file, (size_t)1 << 20);
    ckpt_buf_init(&m->dir, (size_t)1 << 20);
    for (size_t i = 1; i + 3 <= size && i < 3000; i += 3) {
        uint32_t bytes = data[i + 2] & 31;

        put_member(m, data[i] | (unsigned)data[i + 1] << 8, name[data[i + 2] >> 5], data,
                   bytes < size ? bytes : (uint32_t)size);
    }
    put_end(m, size ? data[0] : 0);
}

/* -- what must hold -------------------------------------------------------------------------- */

/* Payloads share no byte. */
static void check_apart(const struct zip *z)
{
    for (size_t i = 0; i < z->n && z->n < 200; i++)
        for (size_t k = 0; k < i; k++) {
            const struct zip_entry *a = &z->entry[i], *b = &z->entry[k];

            must(a->size == 0 || b->size == 0 || a->offset >= b->offset + b->size ||
                 b->offset >= a->offset + a->size);
        }
}

static void check_member(const struct zip *z, const struct zip_entry *e, const uint8_t *data)
{
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    char *bytes, buf[512];
    int slurped, verified;

    must(zip_find(z, e->name) == e);
    slurped = zip_slurp(z, e, &a, 1 << 20, &bytes, &err);
    verified = zip_verify(z, e, buf, sizeof buf, &err);
    must(e->deflated || slurped == verified);
    must(slurped || memcmp(bytes, data + e->offset, e->size) == 0);
    ckpt_arena_release(&a);
}

static void open_and_check(const uint8_t *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, "fuzz");
    struct ckpt_err err = {0};
    struct zip z;

    if (zip_open(&z, file, &err) == 0) {
        for (size_t i = 0; i < z.n; i++)
            must(z.entry[i].offset <= size && z.entry[i].size <= size - z.entry[i].offset);
        check_apart(&z);
        for (size_t i = 0; i < z.n; i++)
            check_member(&z, &z.entry[i], data);
        zip_release(&z);
    } else {
        must(err.text[0]);
    }
    ckpt_file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct maker m = {0};

    if (size >= 2 && memcmp(data, "PK", 2) == 0) {
        open_and_check(data, size);
        return 0;
    }
    make_archive(&m, data, size);
    if (ckpt_buf_ok(&m.file) && ckpt_buf_ok(&m.dir))
        open_and_check(m.file.data, m.file.len);
    ckpt_buf_release(&m.file);
    ckpt_buf_release(&m.dir);
    return 0;
}
