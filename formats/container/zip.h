/*
 * zip - stored members of a zip archive, found through its central directory.
 *
 * Strict, because readers in the world disagree: exactly one end record with nothing after it,
 * no encryption, no compression (but of TorchScript's code), no name twice (nor by case), clean
 * relative names in one top folder, local headers that agree with the directory, members that
 * follow each other from byte 0 to the directory without overlap or gap (a reader of local
 * headers finds the same ones).  Opening reads headers, not payloads: their checksums, if there
 * are any, are proved by zip_slurp and zip_verify.
 * Source: PKWARE APPNOTE 6.3.10; as torch writes them, see zip_out.h.
 */
#ifndef CKPT_FORMATS_CONTAINER_ZIP_H
#define CKPT_FORMATS_CONTAINER_ZIP_H

#include "libckpt/file.h"

#define ZIP_MAX_MEMBERS 1048576u
#define ZIP_MAX_NAME    4096u

struct zip_entry {
    const char *name;           /* without the top folder and its slash */
    uint64_t    offset, size;   /* of the payload in the file */
    uint64_t    plain;          /* bytes it unfolds to: size, unless deflated */
    uint32_t    crc;            /* of those, as the directory says */
    bool        deflated;       /* below code/ only; not to be slurped */
};

struct zip {
    struct ckpt_arena arena;
    struct ckpt_file *file;     /* borrowed */
    char             *top;      /* the folder all members lie in */
    struct zip_entry *entry;    /* sorted by name */
    size_t            n;
    bool              no_sums;  /* torch wrote no checksums, as an option of it says: all are 0 */
};

int zip_open(struct zip *z, struct ckpt_file *file, struct ckpt_err *err);
/* The number of members by the end record, which alone is read. */
int zip_count(uint64_t *n, struct ckpt_file *file, struct ckpt_err *err);
void zip_release(struct zip *z);
/* NULL when absent. */
const struct zip_entry *zip_find(const struct zip *z, const char *name);
/* A member's bytes into arena memory, NUL-terminated, its CRC proved. */
int zip_slurp(const struct zip *z, const struct zip_entry *e, struct ckpt_arena *arena,
              uint64_t limit, char **out, struct ckpt_err *err);
/* Prove a member's CRC by reading it through buf. */
int zip_verify(const struct zip *z, const struct zip_entry *e, void *buf, size_t buf_bytes,
               struct ckpt_err *err);

#endif
