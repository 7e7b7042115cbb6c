/*
 * matmul/choice - see matmul/choice.h.
 *
 * Processes exclude each other by a lock on a file beside it; a process that cannot lock still
 * writes a complete file.
 */
#include "trainer/cuda/matmul/choice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALGO_WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t) };

/* FNV-1a, by words. */
static uint64_t hash(uint64_t h, const void *words, size_t n)
{
    uint64_t w;

    for (size_t i = 0; i < n; i++) {
        memcpy(&w, (const unsigned char *)words + i * sizeof w, sizeof w);
        h = (h ^ w) * 1099511628211u;
    }
    return h ^ h >> 29;
}

static uint64_t hash_key(const struct matmul_key *key)
{
    return hash(1469598103934665603u, key->at, KEY_NUMBERS);
}

/* The checksum at the end of a line of the file: cuBLASLt does not expect algorithms that it
 * did not make. */
static uint64_t digest(const struct matmul_choice *c)
{
    return hash(hash_key(&c->key) + (uint64_t)c->state, c->algo.data, ALGO_WORDS);
}

static size_t place_of(const struct matmul_choices *c, const struct matmul_key *key)
{
    size_t i = (size_t)hash_key(key) & (c->places - 1);

    while (c->at[i].state != CHOICE_EMPTY && memcmp(&c->at[i].key, key, sizeof *key) != 0)
        i = (i + 1) & (c->places - 1);
    return i;
}

const struct matmul_choice *matmul_choices_find(const struct matmul_choices *c,
                                                const struct matmul_key *key)
{
    const struct matmul_choice *at = &c->at[place_of(c, key)];

    return at->state == CHOICE_EMPTY ? NULL : at;
}

/* The ratio of two sizes, at least 1. */
static double ratio(int64_t x, int64_t y)
{
    return x < y ? (double)y / (double)x : (double)x / (double)y;
}

const struct matmul_choice *matmul_choices_like(const struct matmul_choices *c,
                                                const struct matmul_key *key)
{
    const struct matmul_choice *best = NULL;
    double least = 4.0 / 3.0;

    for (size_t i = 0; i < c->places; i++) {
        const struct matmul_choice *at = &c->at[i];
        struct matmul_key k = at->key;
        double m, by;

        if (at->state == CHOICE_EMPTY || !at->kept)
            continue;
        m = ratio(k.at[KEY_M], key->at[KEY_M]);
        by = ratio(k.at[KEY_K], key->at[KEY_K]);
        k.at[KEY_M] = key->at[KEY_M];
        k.at[KEY_K] = key->at[KEY_K];
        if (memcmp(&k, key, sizeof k) == 0 && m * by <= least) {
            least = m * by;
            best = at;
        }
    }
    return best;
}

/* Make space for one more entry. */
static int grow(struct matmul_choices *c)
{
    struct matmul_choice *old = c->at;
    size_t n = c->places;

    if (2 * (c->n + 1) <= n)
        return 0;
    c->places = n ? 2 * n : 256;
    c->at = (struct matmul_choice *)calloc(c->places, sizeof *c->at);
    if (!c->at) {
        c->at = old;
        c->places = n;
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        if (old[i].state != CHOICE_EMPTY)
            c->at[place_of(c, &old[i].key)] = old[i];
    free(old);
    return 0;
}

static struct matmul_choice *put(struct matmul_choices *c, const struct matmul_choice *choice)
{
    struct matmul_choice *at;

    if (grow(c))
        return NULL;
    at = &c->at[place_of(c, &choice->key)];
    if (at->state == CHOICE_EMPTY)
        c->n++;
    *at = *choice;
    return at;
}

/* One line of the file; false: not one. */
static bool parse(struct matmul_choice *to, const char *line)
{
    char *end;

    memset(to, 0, sizeof *to);
    to->kept = true;
    for (int j = 0; j < KEY_NUMBERS; j++, line = end) {
        errno = 0;
        to->key.at[j] = strtoll(line, &end, 10);
        if (end == line || errno)
            return false;
    }
    line += *line == ' ';
    to->state = *line == ':' ? CHOICE_FOUND : *line == '+' ? CHOICE_TILES : CHOICE_NONE;
    if (*line != ':' && *line != '+' && *line != '-')
        return false;
    line++;
    for (int j = 0; j < ALGO_WORDS; j++, line = end) {
        errno = 0;
        to->algo.data[j] = strtoull(line, &end, 16);
        if (end == line || errno)
            return false;
    }
    return strtoull(line, &end, 16) == digest(to) && *end == '\n';
}

/* Entries of the file replace those of the table. */
static void read_file(struct matmul_choices *c)
{
    FILE *f = fopen(c->path, "re");
    struct matmul_choice one;
    char line[512];

    if (!f)
        return;
    if (fgets(line, sizeof line, f) && strcmp(line, c->name) == 0)
        while (fgets(line, sizeof line, f))
            if (parse(&one, line) && !put(c, &one))
                break;
    fclose(f);
}

/* Beside the file, then in its place. */
static void write_file(const struct matmul_choices *c)
{
    size_t size = strlen(c->path) + 32;
    char *path = (char *)malloc(size);
    bool fine = false;
    FILE *f;

    if (!path)
        return;
    snprintf(path, size, "%s.%ld", c->path, (long)getpid());
    f = fopen(path, "we");
    if (f) {
        fputs(c->name, f);
        for (size_t i = 0; i < c->places; i++) {
            if (!c->at[i].kept)
                continue;
            for (int j = 0; j < KEY_NUMBERS; j++)
                fprintf(f, "%lld ", (long long)c->at[i].key.at[j]);
            fputc(c->at[i].state == CHOICE_FOUND   ? ':'
                  : c->at[i].state == CHOICE_TILES ? '+'
                                                   : '-', f);
            for (int j = 0; j < ALGO_WORDS; j++)
                fprintf(f, " %llx", (unsigned long long)c->at[i].algo.data[j]);
            fprintf(f, " %llx\n", (unsigned long long)digest(&c->at[i]));
        }
        fine = fflush(f) == 0 && !ferror(f) && fsync(fileno(f)) == 0;
        fine &= fclose(f) == 0;
    }
    if (!fine || rename(path, c->path) != 0)
        unlink(path);
    free(path);
}

const struct matmul_choice *matmul_choices_add(struct matmul_choices *c,
                                               const struct matmul_choice *choice, bool keep)
{
    struct matmul_choice own = *choice;
    const struct matmul_choice *at;
    char lock[4096];
    int fd;

    if (!keep || !c->path || (size_t)snprintf(lock, sizeof lock, "%s.lock", c->path) >= sizeof lock)
        return put(c, choice);
    fd = open(lock, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (fd >= 0)
        flock(fd, LOCK_EX);
    read_file(c);
    at = c->places ? matmul_choices_find(c, &choice->key) : NULL;
    if (!at || !at->kept) {
        own.kept = true;
        at = put(c, &own);
        write_file(c);
    }
    if (fd >= 0)
        close(fd);
    return at;
}

/* The directory, created if absent; false: it cannot be. */
static bool folder(char *to, size_t size)
{
    const char *own = getenv("CKPT_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;

    if (own && *own)
        n = snprintf(to, size, "%s", own);
    else if (xdg && *xdg)
        n = snprintf(to, size, "%s/ckpt", xdg);
    else if (home && *home)
        n = snprintf(to, size, "%s/.cache/ckpt", home);
    if (n < 0 || (size_t)n >= size)
        return false;
    for (char *p = to + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        mkdir(to, 0777);                /* access below reports a failure */
        *p = '/';
    }
    mkdir(to, 0777);
    return access(to, W_OK | X_OK) == 0;
}

int matmul_choices_open(struct matmul_choices *c, const char *gpu, size_t version)
{
    char dir[2048], name[128];
    size_t size;

    memset(c, 0, sizeof *c);
    snprintf(name, sizeof name, "cublaslt-%s-%zu", gpu, version);
    for (char *p = name; *p; p++)
        if (*p == ' ' || *p == '/')
            *p = '-';
    snprintf(c->name, sizeof c->name, "%s 5\n", name);
    if (grow(c))
        return -1;
    if (!folder(dir, sizeof dir))
        return 0;
    size = strlen(dir) + strlen(name) + 2;
    c->path = (char *)malloc(size);
    if (!c->path)
        return -1;
    snprintf(c->path, size, "%s/%s", dir, name);
    read_file(c);
    return 0;
}

void matmul_choices_close(struct matmul_choices *c)
{
    free(c->at);
    free(c->path);
    memset(c, 0, sizeof *c);
}
