/* unit - what every unit test includes before its own headers. */
#ifndef CKPT_TEST_UNIT_H
#define CKPT_TEST_UNIT_H

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

/* TEST(name) { ... } - a test. */
#define TEST(name) static void test_##name(void **state __attribute__((unused)))

/* A fresh directory below build/, its path in a static buffer. */
static inline const char *scratch(const char *name)
{
    static char path[256];
    char command[700];

    snprintf(path, sizeof path, "build/scratch-%s-%d", name, (int)getpid());
    snprintf(command, sizeof command, "rm -rf %s && mkdir -p %s", path, path);
    if (system(command) != 0)
        fail_msg("%s", command);
    return path;
}

static inline void scratch_remove(const char *path)
{
    char command[1024];

    snprintf(command, sizeof command, "rm -rf %s", path);
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* Entries of a directory, hidden ones too. */
static inline int entries(const char *path)
{
    char command[700];
    FILE *p;
    int n = -1;

    snprintf(command, sizeof command, "ls -A %s | wc -l", path);
    p = popen(command, "r");
    if (!p || fscanf(p, "%d", &n) != 1)
        fail_msg("%s", command);
    pclose(p);
    return n;
}

#endif
