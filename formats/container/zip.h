/*
 * zip - stored members of a zip archive, found through its central directory.
 *
 * Strict, because programs read ambiguous archives differently: exactly one end record with
 * nothing after it, no encryption, no compression (except of TorchScript's code), no name twice
 * (ignoring case), clean relative names in one top folder, local headers that agree with the
 * directory, members that follow each other from byte 0 to the directory without overlap or gap
 * (a reader of local headers finds the same ones).  Opening reads headers, not payloads:
 * zip_slurp and zip_verify check their checksums, if there are any.  Source: PKWARE APPNOTE
 * 6.3.10; as torch writes them, see zip_out.h.
 */
#ifndef CKPT_FORMATS_CONTAINER_ZIP_H
#define CKPT_FORMATS_CONTAINER_ZIP_H

#include "libckpt/file.h"

#define ZIP_MAX_MEMBERS 1048576u
#define ZIP_MAX_NAME    4096u

struct zip_entry {
    const char *name;           /* without the top folder and its slash */
    uint64_t    offset, size;   /* of the payload in the file */
    uint64_t    plain;          /* unpacked bytes: size, unless deflated */
    uint32_t    crc;            /* of the unpacked bytes, from the directory */
    bool        deflated;       /* only below code/; zip_slurp refuses it */
};

struct zip {
    struct ckpt_arena arena;
    struct ckpt_file *file;     /* borrowed */
    char             *top;      /* the folder that contains all members */
    struct zip_entry *entry;    /* sorted by name */
    size_t            n;
    bool              no_sums;  /* torch can omit checksums: all are 0 */
};

int zip_open(struct zip *z, struct ckpt_file *file, struct ckpt_err *err);
/* The number of members from the end record, without reading anything else. */
int zip_count(uint64_t *n, struct ckpt_file *file, struct ckpt_err *err);
void zip_release(struct zip *z);
/* NULL when absent. */
const struct zip_entry *zip_find(const struct zip *z, const char *name);
/* Read a member into arena memory, NUL-terminated, and check its CRC. */
int zip_slurp(const struct zip *z, const struct zip_entry *e, struct ckpt_arena *arena,
              uint64_t limit, char **out, struct ckpt_err *err);
/* Check a member's CRC by reading it through buf. */
int zip_verify(const struct zip *z, const struct zip_entry *e, void *buf, size_t buf_bytes,
               struct ckpt_err *err);

#endif
