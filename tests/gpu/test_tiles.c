/*
 * Projections by our own kernel, which is taken where it is faster: a file of choices that says so of
 * all products that were met, against the CPU.
 */
#include <dirent.h>
#include <unistd.h>

#include "tests/gpu/linear_pair.h"

enum { NUMBERS = 11, WORDS = 8, TILES = 2 };

/* FNV-1a by words, as matmul_choice.cu has it. */
static uint64_t mixed(uint64_t h, const uint64_t *w, int n)
{
    for (int i = 0; i < n; i++)
        h = (h ^ w[i]) * 1099511628211u;
    return h ^ h >> 29;
}

/* A line of the file, which now says "by tiles". */
static void by_tiles(FILE *to, const char *line)
{
    uint64_t key[NUMBERS], algo[WORDS];
    const char *at = line;
    char *end;

    for (int i = 0; i < NUMBERS; i++, at = end) {
        key[i] = (uint64_t)strtoll(at, &end, 10);
        fprintf(to, "%lld ", (long long)key[i]);
    }
    fputc('+', to);
    for (int i = 0; i < WORDS; i++, at = end) {
        algo[i] = strtoull(i ? at : at + 2, &end, 16);
        fprintf(to, " %llx", (unsigned long long)algo[i]);
    }
    fprintf(to, " %llx\n", (unsigned long long)mixed(mixed(1469598103934665603u, key, NUMBERS) +
                                                         TILES, algo, WORDS));
}

/* Of all lines of the folder's file; gives how many. */
static int all_by_tiles(const char *folder)
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

static void empty(const char *folder)
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

static void test_tiles(void **state)
{
    static const struct linear_case c[] = {
        {.n = 1024, .in = 128, .out = 128},
        {.n = 1025, .in = 136, .out = 264, .bias = true},
        {.n = 1100, .in = 200, .out = 136, .bias = true, .residual = true},
        {.n = 1100, .in = 264, .out = 136, .bias = true, .in_place = true, .dx_add = true},
        {.n = 1200, .in = 128, .out = 384, .bias = true, .act = OP_ACT_GELU_TANH, .pre = true},
        {.n = 1200, .in = 136, .out = 392, .act = OP_ACT_GELU_TANH},
        {.n = 1200, .in = 136, .out = 392, .bias = true, .act = OP_ACT_RELU},
        {.n = 1300, .in = 520, .out = 128, .bias = true, .x_act = OP_ACT_GELU_TANH},
        {.n = 1300, .in = 520, .out = 128, .x_act = OP_ACT_GELU_TANH, .made = true},
        {.n = 1400, .in = 264, .out = 136, .bias = true, .in_out = true, .dx_add = true},
        {.n = 1400, .in = 136, .out = 128, .out_ld = 272, .bias = true},
        {.n = 1030, .in = 136, .out = 136, .bias = true, .rank = 8, .frozen = true},
        {.n = 1030, .in = 136, .out = 136, .odd = true, .bias = true},
        {.n = 6000, .in = 1032, .out = 2056, .bias = true, .frozen = true},
    };
    size_t n = gpu_small() == 2 ? 6 : sizeof c / sizeof c[0];
    char folder[] = "/tmp/tiles-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("CKPT_CACHE", folder, 1);
    linear_check_all(c, n, 6000);
    assert_true(all_by_tiles(folder) >= (int)n);
    linear_check_all(c, n, 6000);
    empty(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
