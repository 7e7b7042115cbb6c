/*
 * torch_file - what targets over torch files share.
 *
 * Bytes that begin as an archive or as a legacy stream are the file.  All others are a pickle,
 * and an archive is made around it (made_archive.h).
 */
#ifndef CKPT_TESTS_FUZZ_LIB_TORCH_FILE_H
#define CKPT_TESTS_FUZZ_LIB_TORCH_FILE_H

#include "formats/torch/legacy.h"
#include "formats/torch/tar.h"
#include "tests/fuzz/lib/made_archive.h"
#include "tests/fuzz/lib/source_walk.h"

/* -- what is done with it -------------------------------------------------------------------- */

/* As a source of tensors, strictly. */
static void load(const struct ckpt_format *format, const uint8_t *data, size_t size)
{
    struct ckpt_source *src = source_of(format, data, size);

    if (src)
        read_tensors(src, READ_MAY_FAIL);
    ckpt_source_close(src);
}

/* As something to look at. */
static void look(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    struct torch_archive *a;

    if (torch_archive_open_any(&a, file_of(data, size, "fuzz"), &err))
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
    if (make_archive(&m, data, size, size % 4 == 1)) {
        load(format, m.file.data, m.file.len);
        look(m.file.data, m.file.len);
    }
    release_archive(&m);
    return 0;
}

#endif
