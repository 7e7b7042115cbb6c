/* npy - see npy.h. */
#include "formats/container/npy.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HEADER 65536u

/* A quote, at most one sign of byte order, and O: in a descr, an object. */
static bool has_object(const char *header)
{
    for (const char *p = strpbrk(header, "'\""); p; p = strpbrk(p + 1, "'\"")) {
        const char *q = p + 1 + (p[1] && strchr("|<>=", p[1]) != NULL);

        if (*q == 'O' && (q[1] == *p || (q[1] >= '0' && q[1] <= '9')))
            return true;
    }
    return false;
}

/* Bytes of an element; false when it has fields, or is of no kind that is known. */
static bool width_of(uint64_t *width, const char *header)
{
    const char *p = strstr(header, "'descr':");
    char kind;

    p = p ? p + 8 + strspn(p + 8, " ") : "";
    if (*p != '\'')
        return false;
    p += 1 + (p[1] && strchr("|<>=", p[1]) != NULL);
    kind = *p++;
    *width = strtoull(p, NULL, 10) * (kind == 'U' ? 4 : 1);
    return kind && strchr("biufcSUVMm?", kind) && *p >= '0' && *p <= '9';
}

static bool count_of(uint64_t *count, const char *header)
{
    const char *p = strstr(header, "'shape':");

    p = p ? strchr(p, '(') : NULL;
    *count = 1;
    while (p && *p && *p != ')') {
        p += 1 + strspn(p + 1, " ,");
        if (*p >= '0' && *p <= '9') {
            char *end;

            if (!ckpt_mul(count, *count, strtoull(p, &end, 10)))
                return false;
            p = end;
        } else if (*p != ')') {
            return false;
        }
    }
    return p && *p == ')';
}

int npy_read(struct npy *npy, struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file), n, width = 0, count = 0, bytes;
    unsigned char b[12] = {0};
    char *header;
    int rc = 0;

    *npy = (struct npy){0};
    if (size < 12 || ckpt_file_read_at(file, b, sizeof b, 0, err) ||
        memcmp(b, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: no header of a numpy array", ckpt_file_name(file));
    n = b[8] | (uint64_t)b[9] << 8;
    if (b[6] > 1)
        n |= (uint64_t)b[10] << 16 | (uint64_t)b[11] << 24;
    npy->data = (b[6] > 1 ? 12 : 10) + n;
    if (npy->data > size || n > MAX_HEADER)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %llu bytes of header", ckpt_file_name(file),
                         (unsigned long long)n);
    header = ckpt_alloc((size_t)n + 1, 1);
    if (!header)
        return ckpt_nomem(err, (size_t)n);
    rc = ckpt_file_read_at(file, header, (size_t)n, npy->data - n, err);
    npy->object = rc == 0 && has_object(header);
    npy->record = !width_of(&width, header);
    npy->end = size;
    if (rc == 0 && (strlen(header) != n || header[strspn(header, " ")] != '{' ||
                    !count_of(&count, header)))
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: the header is no description of an array",
                       ckpt_file_name(file));
    else if (rc == 0 && !npy->object && !npy->record) {
        if (!ckpt_mul(&bytes, width, count) || bytes > size - npy->data)
            rc = ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                              "%s: the elements pass the end of the file", ckpt_file_name(file));
        else
            npy->end = npy->data + bytes;
    }
    ckpt_free(header);
    return rc;
}
