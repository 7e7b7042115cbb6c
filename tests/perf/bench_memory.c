/* bench_memory THREADS GIB - how fast this machine's cores read memory: the bound of --stats. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct part { const uint64_t *p; size_t n; uint64_t sum; pthread_t thread; };

static void *add(void *arg)
{
    struct part *t = arg;
    uint64_t s[8] = {0};

    for (size_t i = 0; i + 8 <= t->n; i += 8)
        for (size_t k = 0; k < 8; k++)
            s[k] += t->p[i + k];
    for (size_t k = 0; k < 8; k++)
        t->sum += s[k];
    return NULL;
}

int main(int argc, char **argv)
{
    size_t threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 2;
    size_t bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 1) << 30, n = bytes / 8 / threads;
    struct part part[64];
    uint64_t *p = malloc(bytes), sum = 0;
    double best = 0;

    if (!p || threads < 1 || threads > 64)
        return 1;
    memset(p, 1, bytes);
    for (int round = 0; round < 5; round++) {
        struct timespec a, b;
        double s;

        clock_gettime(CLOCK_MONOTONIC, &a);
        for (size_t k = 0; k < threads; k++) {
            part[k] = (struct part){.p = p + k * n, .n = n};
            pthread_create(&part[k].thread, NULL, add, &part[k]);
        }
        for (size_t k = 0; k < threads; k++) {
            pthread_join(part[k].thread, NULL);
            sum += part[k].sum;
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
        best = (double)bytes / s > best ? (double)bytes / s : best;
    }
    printf("%.2f\n", best / 1e9);
    free(p);
    return sum == 0;
}
