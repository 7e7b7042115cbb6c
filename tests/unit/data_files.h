/* data_files - records and the demo's tokenizer for the tests of the data path. */
#ifndef CKPT_TESTS_UNIT_DATA_FILES_H
#define CKPT_TESTS_UNIT_DATA_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/data/stream.h"

static inline struct tokenizer *demo_tokenizer(void)
{
    struct ckpt_err err = {0};
    struct tokenizer *t;
    struct ckpt_dir *dir;

    if (ckpt_dir_open(&dir, "tools/recipes/demo/tokenizer", 0, &err) ||
        tokenizer_open_dir(&t, dir, &err))
        fail_msg("%s", err.text);
    ckpt_dir_close(dir);
    return t;
}

/* A JSONL file of that body, opened; the file itself is gone again. */
static inline struct records *records_of(const char *body)
{
    char path[] = "/tmp/ckpt-test-data-XXXXXX.jsonl";
    const char *list = path;
    struct ckpt_err err = {0};
    struct records *r;
    int fd = mkstemps(path, 6);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, body, strlen(body)), (ssize_t)strlen(body));
    close(fd);
    if (records_open(&r, &list, 1, &err))
        fail_msg("%s", err.text);
    unlink(path);
    return r;
}

#endif
