/*
 * choices_file - rewrites files of choices, so that products are computed as a test asks:
 * timing chooses our own kernel, or a sum in parts, only where it is faster.
 */
#ifndef CKPT_TESTS_GPU_CHOICES_FILE_H
#define CKPT_TESTS_GPU_CHOICES_FILE_H

#include <dirent.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"

/* As matmul/choice.h has them. */
enum { KEY_M = 0, KEY_K = 2, KEY_IN = 4, KEY_FLAGS = 7, KEY_NUMBERS = 11, ALGO_WORDS = 8 };
enum { FLAG_QUICK = 32, CHOICE_FOUND = 1, CHOICE_TILES = 2 };
enum { LONG = 1024 };
enum { REDUCE_IN_F32 = 2 };             /* cuBLASLt's reduction scheme "compute type" */

/* FNV-1a by words, as matmul/choice.cu has it. */
static inline uint64_t mixed(uint64_t h, const uint64_t *w, int n)
{
    for (int i = 0; i < n; i++)
        h = (h ^ w[i]) * 1099511628211u;
    return h ^ h >> 29;
}

/* Copy a line of the file, changed to "by our own kernel", or, with parts, the algorithm of a
 * long sum of 16 bits changed to split it into so many (the high half of its second word, and
 * the third). */
static inline void put_choice(FILE *to, const char *line, int parts)
{
    uint64_t key[KEY_NUMBERS], algo[ALGO_WORDS], sum;
    const char *at = line;
    bool splits;
    char *end;

    for (int i = 0; i < KEY_NUMBERS; i++, at = end)
        key[i] = (uint64_t)strtoll(at, &end, 10);
    at += *at == ' ';
    splits = *at++ == ':' && key[KEY_K] > LONG && key[KEY_IN] % 256 != CKPT_F32;
    for (int i = 0; i < ALGO_WORDS; i++, at = end)
        algo[i] = strtoull(at, &end, 16);
    if (parts && !splits) {
        fputs(line, to);
        return;
    }
    if (parts) {
        algo[1] = (algo[1] & 0xffffffff) | (uint64_t)parts << 32;
        algo[2] = REDUCE_IN_F32;
    }
    for (int i = 0; i < KEY_NUMBERS; i++)
        fprintf(to, "%lld ", (long long)key[i]);
    fputc(parts ? ':' : '+', to);
    for (int i = 0; i < ALGO_WORDS; i++)
        fprintf(to, " %llx", (unsigned long long)algo[i]);
    sum = mixed(mixed(1469598103934665603u, key, KEY_NUMBERS) +
                    (parts ? CHOICE_FOUND : CHOICE_TILES), algo, ALGO_WORDS);
    fprintf(to, " %llx\n", (unsigned long long)sum);
}

/* A fresh folder, in a static buffer, where choices are kept from now on. */
static inline char *choices_folder(void)
{
    static char folder[64];

    snprintf(folder, sizeof folder, "/tmp/choices-XXXXXX");
    assert_non_null(mkdtemp(folder));
    setenv("CKPT_CACHE", folder, 1);
    return folder;
}

/* The path of the folder's file. */
static inline void choices_path(const char *folder, char *path, size_t size)
{
    DIR *dir = opendir(folder);
    struct dirent *e;

    assert_non_null(dir);
    path[0] = '\0';
    while ((e = readdir(dir)))
        if (strncmp(e->d_name, "cublaslt-", 9) == 0 && !strstr(e->d_name, ".lock"))
            snprintf(path, size, "%s/%s", folder, e->d_name);
    closedir(dir);
}

/* Change all lines of the folder's file; returns their number.  parts 0: by our own kernel. */
static inline int choices_put(const char *folder, int parts)
{
    char path[512], other[600], line[1024];
    FILE *from, *to;
    int n = 0;

    choices_path(folder, path, sizeof path);
    snprintf(other, sizeof other, "%s.new", path);
    from = fopen(path, "r");
    to = fopen(other, "w");
    assert_true(from && to);
    assert_non_null(fgets(line, sizeof line, from));
    fputs(line, to);
    for (; fgets(line, sizeof line, from); n++)
        put_choice(to, line, parts);
    fclose(from);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(rename(other, path), 0);
    return n;
}

static inline void folder_gone(const char *folder)
{
    char path[600];
    DIR *dir = opendir(folder);
    struct dirent *e;

    while (dir && (e = readdir(dir)))
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            unlink(path);
        }
    if (dir)
        closedir(dir);
    rmdir(folder);
}

#endif
