/*
 * pack_of - archives of any kind in memory, made by libarchive from a table: also those that
 * nobody should open.
 */
#ifndef CKPT_TESTS_UNIT_PACK_OF_H
#define CKPT_TESTS_UNIT_PACK_OF_H

#include <archive.h>
#include <archive_entry.h>

#include "tests/unit/unit.h"

struct packed {
    const char  *name;
    unsigned     type;      /* AE_IF...; 0 is a regular file */
    const char  *link;      /* target of a link; of a hard one when type is 0 */
    const char  *text;
};

#define PACK_ROOM ((size_t)1 << 20)

static unsigned char pack_bytes[PACK_ROOM];

/* The bytes lie in pack_bytes until the next call.  options as archive_write_set_options. */
static inline size_t pack(int format, int filter, const char *options, const struct packed *p,
                          size_t n)
{
    struct archive *a = archive_write_new();
    size_t used = 0;

    assert_non_null(a);
    assert_int_equal(archive_write_set_format(a, format), ARCHIVE_OK);
    assert_int_equal(archive_write_add_filter(a, filter), ARCHIVE_OK);
    if (options)
        assert_int_equal(archive_write_set_options(a, options), ARCHIVE_OK);
    archive_write_set_bytes_in_last_block(a, 1);
    assert_int_equal(archive_write_open_memory(a, pack_bytes, PACK_ROOM, &used), ARCHIVE_OK);
    for (size_t i = 0; i < n; i++) {
        struct archive_entry *e = archive_entry_new();
        const char *text = p[i].text ? p[i].text : "";

        archive_entry_set_pathname(e, p[i].name);
        archive_entry_set_filetype(e, p[i].type ? p[i].type : AE_IFREG);
        archive_entry_set_perm(e, 0644);
        if (p[i].link && p[i].type == AE_IFLNK)
            archive_entry_set_symlink(e, p[i].link);
        else if (p[i].link)
            archive_entry_set_hardlink(e, p[i].link);
        archive_entry_set_size(e, p[i].type || p[i].link ? 0 : (la_int64_t)strlen(text));
        if (archive_write_header(a, e) < ARCHIVE_WARN)
            fail_msg("%s: %s", p[i].name, archive_error_string(a));
        if (!p[i].type && !p[i].link)
            assert_int_equal(archive_write_data(a, text, strlen(text)), strlen(text));
        archive_entry_free(e);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    assert_int_equal(archive_write_free(a), ARCHIVE_OK);
    return used;
}

#endif
