/*
 * by_tiles - makes our own kernel the choice for all products that a file of choices has: what is
 * timed takes it only where it is faster.
 */
#ifndef CKPT_TEST_BY_TILES_H
#define CKPT_TEST_BY_TILES_H

#include <dirent.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"

enum { KEY_NUMBERS = 11, ALGO_WORDS = 8, CHOICE_TILES = 2 };

/* FNV-1a by words, as matmul_choice.cu has it. */
static inline uint64_t mixed(uint64_t h, const uint64_t *w, int n)
{
    for (int i = 0; i < n; i++)
        h = (h ^ w[i]) * 1099511628211u;
    return h ^ h >> 29;
}

/* A line of the file, which now says "by tiles". */
static inline void by_tiles(FILE *to, const char *line)
{
    uint64_t key[KEY_NUMBERS], algo[ALGO_WORDS], sum;
    const char *at = line;
    char *end;

    for (int i = 0; i < KEY_NUMBERS; i++, at = end) {
        key[i] = (uint64_t)strtoll(at, &end, 10);
        fprintf(to, "%lld ", (long long)key[i]);
    }
    fputc('+', to);
    for (int i = 0; i < ALGO_WORDS; i++, at = end) {
        algo[i] = strtoull(i ? at : at + 2, &end, 16);
        fprintf(to, " %llx", (unsigned long long)algo[i]);
    }
    sum = mixed(mixed(1469598103934665603u, key, KEY_NUMBERS) + CHOICE_TILES, algo, ALGO_WORDS);
    fprintf(to, " %llx\n", (unsigned long long)sum);
}

/* Of all lines of the folder's file; gives how many. */
static inline int all_by_tiles(const char *folder)
{
    char path[512] = "", other[600], line[1024];
    DIR *dir = opendir(folder);
    FILE *from, *to;
    struct dirent *e;
    int n = 0;

    assert_non_null(dir);
    while ((e = readdir(dir)))
        if (strncmp(e->d_name, "cublaslt-", 9) == 0 && !strstr(e->d_name, ".lock"))
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    closedir(dir);
    snprintf(other, sizeof other, "%s.new", path);
    from = fopen(path, "r");
    to = fopen(other, "w");
    assert_true(from && to);
    assert_non_null(fgets(line, sizeof line, from));
    fputs(line, to);
    for (; fgets(line, sizeof line, from); n++)
        by_tiles(to, line);
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
