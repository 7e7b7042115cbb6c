/* unit - included by every test before the headers of the tested room. */
#ifndef CKPT_TESTS_UNIT_UNIT_H
#define CKPT_TESTS_UNIT_UNIT_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "libckpt/err.h"

/*
 * A suite is a file; its tests are heads TEST(name), each with a body, and run in the file's order.
 * BEFORE_ALL() and AFTER_ALL() head what is done once, BEFORE_EACH() and AFTER_EACH() what is done
 * around each test.  AGAIN(name) heads a last test, after which the file's others are run once more.
 * Heads tell the driver of themselves (driver.c, which has the main).
 */
#define TEST(name)    UNIT_PART(test_##name, UNIT_TEST)
#define AGAIN(name)   UNIT_PART(test_##name, UNIT_AGAIN)
#define BEFORE_ALL()  UNIT_PART(before_all, UNIT_BEFORE_ALL)
#define AFTER_ALL()   UNIT_PART(after_all, UNIT_AFTER_ALL)
#define BEFORE_EACH() UNIT_PART(before_each, UNIT_BEFORE_EACH)
#define AFTER_EACH()  UNIT_PART(after_each, UNIT_AFTER_EACH)

enum unit_part { UNIT_BEFORE_ALL, UNIT_AFTER_ALL, UNIT_BEFORE_EACH, UNIT_AFTER_EACH, UNIT_TEST,
                 UNIT_AGAIN };

void unit_add(enum unit_part part, const char *file, const char *name, void (*run)(void));

#define UNIT_PART(name, part)                                                                  \
    static void name(void);                                                                    \
    __attribute__((constructor)) static void add_##name(void)                                  \
    {                                                                                          \
        unit_add(part, __FILE__, #name, name);                                                 \
    }                                                                                          \
    static void name(void)

/* A test whose functions fill err, a record that is empty when the test begins. */
#define TEST_ERR(name)                                                                         \
    static void name##_with(struct ckpt_err *err);                                             \
    TEST(name)                                                                                 \
    {                                                                                          \
        name##_with(&(struct ckpt_err){0});                                                    \
    }                                                                                          \
    static void name##_with(struct ckpt_err *err)

/*
 * A fresh directory: below build/, its path in a static buffer; or at path.  One that is made in a
 * test, or around each (BEFORE_EACH), goes when the test has ended, however that was.
 */
const char *scratch(const char *name);
void scratch_at(const char *path);
/* Remove what is there by name, now. */
void scratch_remove(const char *path);

/* The path of a file in dir, in dst. */
char *file_in(char dst[600], const char *dir, const char *name);
/* Write a text to the file of this name in dir. */
void file_put(const char *dir, const char *name, const char *text);
/* The file's text is this, of less than 64 bytes. */
void file_holds(const char *path, const char *want);
/* Entries of a directory, hidden ones too. */
int entries(const char *path);

#endif
