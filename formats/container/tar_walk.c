/* tar_walk - see tar_walk.h. */
#include "formats/container/tar_walk.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/io/archive.h"

#define BLOCK     512u
#define MAX_NOTE  65536u                /* most bytes of a long name, or of pax records */

static uint64_t number(const unsigned char *p, size_t n)
{
    uint64_t v = 0;

    if (p[0] & 0x80) {
        for (size_t i = n - 8; i < n; i++)
            v = v << 8 | p[i];
        return v;
    }
    for (size_t i = 0; i < n && p[i]; i++)
        if (p[i] >= '0' && p[i] <= '7')
            v = v * 8 + (uint64_t)(p[i] - '0');
    return v;
}

static void copy(char *dst, size_t size, const void *src, size_t n)
{
    n = n < size ? n : size - 1;
    memcpy(dst, src, n);
    dst[n] = '\0';
}

/* Apply records "27 path=long/name\n". */
static void use_pax(struct tar_piece *p, uint64_t *size, const char *s, size_t n)
{
    while (n > 0) {
        char *end;
        size_t len = strtoul(s, &end, 10);
        size_t key = (size_t)(end - s) + 1;

        if (*end != ' ' || len > n || len <= key)
            return;
        if (strncmp(s + key, "path=", 5) == 0 && len > key + 6)
            copy(p->name, sizeof p->name, s + key + 5, len - key - 6);
        if (strncmp(s + key, "size=", 5) == 0)
            *size = strtoull(s + key + 5, NULL, 10);
        s += len;
        n -= len;
    }
}

static int bad(const struct tar_walk *w, struct ckpt_err *err, const char *what)
{
    return ckpt_fail(err, CKPT_EFORMAT, "tar: %s at byte %llu", what, (unsigned long long)w->at);
}

/* Read the content of a header that describes the next one. */
static int read_note(struct tar_walk *w, struct tar_piece *p, uint64_t *size, char type,
                     struct ckpt_err *err)
{
    char *note;
    int rc;

    if (p->size > MAX_NOTE)
        return bad(w, err, "a name of too many bytes");
    note = ckpt_alloc((size_t)p->size + 1, 1);
    if (!note)
        return ckpt_nomem(err, (size_t)p->size);
    rc = ckpt_file_read_at(w->file, note, (size_t)p->size, p->offset, err);
    if (rc == 0 && type == 'L')
        copy(p->name, sizeof p->name, note, strnlen(note, (size_t)p->size));
    else if (rc == 0 && type == 'x')
        use_pax(p, size, note, (size_t)p->size);
    ckpt_free(note);
    return rc;
}

static enum tar_kind kind_of(char type)
{
    return type == '0' || type == '\0' || type == '7' ? TAR_FILE
           : type == '5' ? TAR_DIR : type == '1' || type == '2' ? TAR_LINK : TAR_ODD;
}

static void name_of(struct tar_piece *p, const unsigned char *b)
{
    size_t n = strnlen((const char *)b, 100), k = strnlen((const char *)b + 345, 155);

    if (p->name[0])
        return;                         /* a preceding header gave the name */
    if (memcmp(b + 257, "ustar\0", 6) != 0)
        k = 0;
    memcpy(p->name, b + 345, k);
    if (k)
        p->name[k++] = '/';
    memcpy(p->name + k, b, n);
    p->name[k + n] = '\0';
}

int tar_walk_next(struct tar_walk *w, struct tar_piece *p, struct ckpt_err *err)
{
    uint64_t end = ckpt_file_size(w->file), noted = UINT64_MAX;
    unsigned char b[BLOCK];
    int rc;

    *p = (struct tar_piece){0};
    for (;;) {
        if (w->at == end)
            return 0;
        if (end - w->at < BLOCK)
            return bad(w, err, "the file ends inside a header");
        if ((rc = ckpt_file_read_at(w->file, b, BLOCK, w->at, err)) != 0)
            return rc;
        if (b[0] == '\0' && memcmp(b, b + 1, BLOCK - 1) == 0)
            return 0;
        if (!ckpt_archive_is_tar(b, BLOCK))
            return bad(w, err, "a damaged header");
        p->offset = w->at + BLOCK;
        p->size = b[156] != 'x' && b[156] != 'L' && noted != UINT64_MAX ? noted
                                                                       : number(b + 124, 12);
        p->kind = kind_of((char)b[156]);
        if (p->kind == TAR_DIR || p->kind == TAR_LINK)
            p->size = 0;
        if (p->size > end - p->offset)
            return bad(w, err, "a member that the file cuts");
        if (!strchr("xgLK", b[156]) || b[156] == '\0')
            break;
        if (b[156] != 'K' && b[156] != 'g' && (rc = read_note(w, p, &noted, (char)b[156],
                                                              err)) != 0)
            return rc;
        w->at = p->offset + (p->size + BLOCK - 1) / BLOCK * BLOCK;
        if (w->at > end)
            return bad(w, err, "a member that the file cuts");
    }
    name_of(p, b);
    copy(p->link, sizeof p->link, b + 157, strnlen((const char *)b + 157, 100));
    w->at = p->offset + (p->size + BLOCK - 1) / BLOCK * BLOCK;
    w->at = w->at > end ? end : w->at;
    return 1;
}
