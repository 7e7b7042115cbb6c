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

/* Remove what is there by name, or make it a fresh directory. */
static inline void scratch_remove(const char *path)
{
    char command[1024];

    snprintf(command, sizeof command, "rm -rf %s", path);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static inline void scratch_at(const char *path)
{
    scratch_remove(path);
    mkdir("build", 0777);
    if (mkdir(path, 0777))
        fail_msg("%s cannot be made", path);
}

/* A fresh directory below build/, its path in a static buffer. */
static inline const char *scratch(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "build/scratch-%s-%d", name, (int)getpid());
    scratch_at(path);
    return path;
}

/* Entries of a directory, hidden ones too. */
static inline int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    if (!d)
        fail_msg("%s cannot be listed", path);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

#endif
